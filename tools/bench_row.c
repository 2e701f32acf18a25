/* bench_row.c - what the rows of all of dfgnn-bench's reports say */
#include <math.h>

#include "base/error.h"
#include "tools/bench.h"
#if __has_include("tools/commit.h")
#include "tools/commit.h"
#else
#define DFGNN_COMMIT ""
#endif

const char *bench_commit(void) { return DFGNN_COMMIT; }

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

void bench_put_environment(json_t *row, const tool_case *each) {
  tool_put_count(row, "units", each->info->units);
  tool_put(row, "driver", each->info->driver);
  tool_put(row, "runtime", each->info->runtime);
  tool_put(row, "version", dfgnn_version());
  tool_put(row, "commit", bench_commit());
}

void bench_fail(bench *b, const tool_case *each, dfgnn_status status) {
  char text[128];
  tool_problem_text(text, sizeof text, each->problem);
  dfgnn__fail_prefix(status, "%s, %s: ", each->label, text);
  b->failed = tool_fail(status);
}
