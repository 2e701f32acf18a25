/* smmf.c - Shared Memory Maximization Fusion of the DF-GNN paper: one
 * kernel, see cuda_smmf_kernel.cuh.  Shared memory is sized by what the
 * heaviest block of the graph needs, up to a share of the device's; blocks
 * beyond that keep their scores in the workspace. */
#include <stdlib.h>

#include "base/error.h"
#include "kernels/attention/cuda/passes.h"

enum { ROWS, BALANCE, VEC, SOFTMAX };
enum { BLOCKS_RESIDENT = 4 }; /* that a multiprocessor should hold */

typedef struct smmf_state {
  size_t shared;
} smmf_state;

/* The paper's ablations, at the first number of rows. */
static int legal(const int *parameter) {
  int out = parameter[BALANCE] + parameter[VEC] + parameter[SOFTMAX];
  return out == 0 || (parameter[ROWS] == 8 && out != 2);
}

static size_t limit(const dfgnn_setting *setting) {
  int64_t most = setting->device->shared_bytes;
  return (size_t)(most > 0 ? most : 48 << 10) / BLOCKS_RESIDENT;
}

/* Of one block's scores of one head. */
static size_t block_bytes(const dfgnn_setting *setting, int64_t edges) {
  return (size_t)edges * dfgnn__passes_scalar(setting->problem->dtype);
}

static size_t workspace(const dfgnn_setting *setting) {
  const int64_t most = setting->matrix->max_degree * setting->parameter[ROWS];
  return block_bytes(setting, most) <= limit(setting)
             ? 0
             : dfgnn__passes_score_bytes(setting);
}

static dfgnn_status prepare(void **state, const dfgnn_setting *setting,
                            const dfgnn_view *const *views) {
  const dfgnn_problem *problem = setting->problem;
  int64_t most = 0;
  (void)views;
  smmf_state *s = malloc(sizeof *s);
  if (!s)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status =
      dfgnn__cuda_most_edges(&most, setting->matrix, setting->parameter[ROWS]);
  const size_t wanted =
      (block_bytes(setting, most) * (size_t)problem->heads + 15) / 16 * 16;
  const size_t most_bytes = limit(setting) / 16 * 16;
  s->shared = wanted < most_bytes ? wanted : most_bytes;
  /* What a kernel may use is one number for all plans. */
  if (!status)
    status = dfgnn__cuda_smmf_allow(problem->op, problem->dtype, most_bytes);
  if (status)
    free(s);
  else
    *state = s;
  return status;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const int *parameter = launch->setting.parameter;
  const smmf_state *state = launch->state;
  const dfgnn_smmf smmf = {.rows = parameter[ROWS],
                           .by_row = parameter[BALANCE],
                           .redundant = parameter[SOFTMAX],
                           .shared = state->shared};
  dfgnn_passes passes;
  dfgnn__passes_fill(&passes, launch, parameter[VEC]);
  return dfgnn__cuda_smmf(&passes, &smmf);
}

/* ---- kernels by operator ------------------------------------------------ */

#define KERNELS(op)                                                            \
  dfgnn_status dfgnn__cuda_smmf_##op(const dfgnn_passes *,                     \
                                     const dfgnn_smmf *);                      \
  dfgnn_status dfgnn__cuda_smmf_allow_##op(const dfgnn_passes *, size_t)
KERNELS(gt);
KERNELS(agnn);
KERNELS(gat);
KERNELS(gatv2);

static const struct {
  dfgnn_status (*run)(const dfgnn_passes *, const dfgnn_smmf *);
  dfgnn_status (*allow)(const dfgnn_passes *, size_t);
} kernels[DFGNN_OP_COUNT] = {
    [DFGNN_OP_GT] = {dfgnn__cuda_smmf_gt, dfgnn__cuda_smmf_allow_gt},
    [DFGNN_OP_AGNN] = {dfgnn__cuda_smmf_agnn, dfgnn__cuda_smmf_allow_agnn},
    [DFGNN_OP_GAT] = {dfgnn__cuda_smmf_gat, dfgnn__cuda_smmf_allow_gat},
    [DFGNN_OP_GATV2] = {dfgnn__cuda_smmf_gatv2, dfgnn__cuda_smmf_allow_gatv2},
};

dfgnn_status dfgnn__cuda_smmf(const dfgnn_passes *passes,
                              const dfgnn_smmf *smmf) {
  return passes->rows ? kernels[passes->op].run(passes, smmf) : DFGNN_OK;
}

dfgnn_status dfgnn__cuda_smmf_allow(dfgnn_op op, dfgnn_dtype dtype,
                                    size_t shared) {
  dfgnn_passes passes = {.op = op, .dtype = dtype, .vector = 1};
  dfgnn_status status = kernels[op].allow(&passes, shared);
  passes.vector = 2;
  return status ? status : kernels[op].allow(&passes, shared);
}

DFGNN_FAMILIES(attention_cuda_smmf) = {
    {.name = "cuda.attention.fwd.smmf",
     .algorithm = "smmf",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 1,
     .deterministic = 1,
     .weights = 1,
     .parameters = {{"rows", 3, {8, 16, 32}, {NULL}},
                    {"balance", 2, {0, 1}, {"edge", "row"}},
                    {"vec", 2, {0, 1}, {"wide", "1"}},
                    {"softmax", 2, {0, 1}, {"once", "redundant"}}},
     .legal = legal,
     .workspace = workspace,
     .prepare = prepare,
     .release = free,
     .launch = launch},
    DFGNN_FAMILIES_END};
