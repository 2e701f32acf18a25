/* bench_row.c - what the rows of all of dfgnn-bench's reports say */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/collect.h"
#include "lib/plan.h"
#include "tools/bench.h"
#if __has_include("tools/commit.h")
#include "tools/commit.h"
#else
#define DFGNN_COMMIT "" /* not known */
#endif

double bench_bandwidth(const tool_case *each) {
  static struct {
    const dfgnn_context *ctx;
    double bandwidth;
  } known[TOOL_MAX_DEVICES];
  int i = 0;
  while (i < TOOL_MAX_DEVICES - 1 && known[i].ctx && known[i].ctx != each->ctx)
    i++;
  if (known[i].ctx != each->ctx) {
    known[i].ctx = each->ctx;
    if (each->ctx->backend->copy_bandwidth(each->ctx->device,
                                           &known[i].bandwidth))
      known[i].bandwidth = NAN;
  }
  return known[i].bandwidth;
}

/* The programs that a call of the plan launches, none on a CPU, which the
 * caller destroys; NULL: no plan or no memory. */
static dfgnn_programs *programs_of(const dfgnn_plan *plan) {
  dfgnn_programs *programs = NULL;
  if (!plan || dfgnn__programs_create(&programs))
    return NULL;
  const dfgnn_setting setting = dfgnn__setting(plan->graph, &plan->problem);
  (void)dfgnn__collect_programs(programs, plan->variant, &setting, plan->views,
                                0);
  return programs;
}

void bench_put_variant(json_t *row, const dfgnn_variant *variant,
                       const dfgnn_plan *plan) {
  char files[1024] = "";
  dfgnn_programs *programs = programs_of(plan);
  for (size_t i = 0; programs && i < dfgnn__programs_count(programs); i++) {
    const char *file = dfgnn__programs_get(programs, i)->source;
    const size_t used = strlen(files);
    if (!strstr(files, file))
      snprintf(files + used, sizeof files - used, "%s%s", used ? " " : "",
               file);
  }
  dfgnn__programs_destroy(programs);
  tool_put(row, "variant", variant->name);
  tool_put_count(row, "revision", variant->family->revision);
  if (*files)
    tool_put(row, "code", files);
}

void bench_put_environment(json_t *row, const tool_case *each) {
  tool_put_count(row, "units", each->info->units);
  tool_put(row, "driver", each->info->driver);
  tool_put(row, "runtime", each->info->runtime);
  tool_put(row, "version", dfgnn_version());
  tool_put(row, "commit", DFGNN_COMMIT);
}

void bench_fail(bench *b, const tool_case *each, dfgnn_status status) {
  char text[128];
  tool_problem_text(text, sizeof text, each->problem);
  dfgnn__fail_prefix(status, "%s, %s: ", each->label, text);
  b->failed = tool_fail(status);
}
