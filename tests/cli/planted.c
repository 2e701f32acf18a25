/* planted.c - a variant that is wrong, to test what the tools do with one */
#include "lib/registry.h"

#include <string.h>

/* Writes zeros, which are right only for rows without edges. */
static dfgnn_status planted_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *p = launch->setting.problem;
  int64_t numbers = launch->setting.matrix->destinations * p->heads * p->dim;
  memset(launch->args->out, 0, (size_t)numbers * dfgnn_dtype_size(p->dtype));
  return DFGNN_OK;
}

static const dfgnn_family planted[] = {{.name = "cpu.attention.fwd.planted",
                                        .algorithm = "planted",
                                        .backend = "cpu",
                                        .ops = DFGNN_OPS_ATTENTION,
                                        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                        .dtypes = DFGNN_BIT(DFGNN_F32),
                                        .revision = 1,
                                        .deterministic = 1,
                                        .launch = planted_launch},
                                       DFGNN_FAMILIES_END};

__attribute__((constructor)) static void plant(void) {
  dfgnn__registry_add(planted);
}
