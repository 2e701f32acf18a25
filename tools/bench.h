/* bench.h - the modes of dfgnn-bench, one file each */
#ifndef DFGNN_TOOLS_BENCH_H
#define DFGNN_TOOLS_BENCH_H

#include "tools/inputs.h"
#include "tools/report.h"

typedef struct bench {
  const tool_settings *settings;
  json_t *rows;
  int failed, wrong;
} bench;

int bench_time(void *data, const tool_case *each);
extern const tool_column bench_time_columns[];

int bench_dispatch(void *data, const tool_case *each);
extern const tool_column bench_dispatch_columns[];

int bench_regret(tool_settings *settings, tool_graphs *graphs);

/* Copy bandwidth in bytes/s, measured once a run; NaN if not known. */
double bench_bandwidth(const tool_case *each);

/* Adds the versions of the library, its source, the driver and the runtime. */
void bench_put_environment(json_t *row, const tool_case *each);

/* Adds the variant, its revision, and the files of device code that a call of
 * the plan compiles, whose change makes the row stale. */
void bench_put_variant(json_t *row, const dfgnn_variant *variant,
                       const dfgnn_plan *plan);

/* Reports a failed case, and keeps its exit status. */
void bench_fail(bench *b, const tool_case *each, dfgnn_status status);

#endif
