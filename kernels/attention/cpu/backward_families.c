/* backward_families.c - the CPU families of gradients: a walk over rows for
 * destinations and edges, and one over columns for sources
 *
 *   twopass  the walks share no memory: both compute scores and products
 *   spill    the first walk leaves the terms of all edges in memory, and the
 *            second only sums rows by them.  The memory holds dS of each edge
 *            and head if columns are walked first, and P as well if rows are */
#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/families.h"

enum { SIMD };

#define WORKSPACE(label)                                                       \
  static size_t label##_workspace(const dfgnn_setting *setting) {              \
    const dfgnn_cpu_plan plan = label##_plan(setting->parameter);              \
    return dfgnn__cpu_backward_workspace(setting, &plan);                      \
  }

static dfgnn_status walk_both(const dfgnn_launch *launch,
                              const dfgnn_cpu_plan *plan) {
  dfgnn_cpu_backward b;
  dfgnn__cpu_backward_begin(&b, launch, plan);
  dfgnn__cpu_spans(&b.rows);
  dfgnn__cpu_spans(&b.columns);
  dfgnn__cpu_backward_walk(&b.rows, plan->schedule);
  dfgnn__cpu_backward_walk(&b.columns, plan->schedule);
  return DFGNN_OK;
}

/* ---- twopass ------------------------------------------------------------- */

enum { PREFETCH = 1, SCHEDULE };

static dfgnn_cpu_plan twopass_plan(const int *p) {
  return (dfgnn_cpu_plan){.simd = p[SIMD],
                          .schedule = p[SCHEDULE],
                          .prefetch = p[PREFETCH],
                          .pads = 1};
}

static int twopass_legal(const int *p) {
  return dfgnn__cpu_fetches(p[SIMD], p[PREFETCH]);
}

static dfgnn_status twopass_launch(const dfgnn_launch *launch) {
  const dfgnn_cpu_plan plan = twopass_plan(launch->setting.parameter);
  return walk_both(launch, &plan);
}

WORKSPACE(twopass)

/* ---- spill --------------------------------------------------------------- */

enum { SPILL_FIRST = 1, SPILL_PREFETCH, SPILL_SCHEDULE };
enum { ROWS, COLUMNS };

static dfgnn_cpu_plan spill_plan(const int *p) {
  return (dfgnn_cpu_plan){.simd = p[SIMD],
                          .schedule = p[SPILL_SCHEDULE],
                          .prefetch = p[SPILL_PREFETCH],
                          .spill = p[SPILL_FIRST] == ROWS ? 2 : 1,
                          .pads = 1};
}

static int spill_legal(const int *p) {
  return dfgnn__cpu_fetches(p[SIMD], p[SPILL_PREFETCH]);
}

static dfgnn_status spill_launch(const dfgnn_launch *launch) {
  const dfgnn_cpu_plan plan = spill_plan(launch->setting.parameter);
  const int rows_first = launch->setting.parameter[SPILL_FIRST] == ROWS;
  dfgnn_cpu_backward b;
  dfgnn__cpu_backward_begin(&b, launch, &plan);
  dfgnn_cpu_side *first = rows_first ? &b.rows : &b.columns;
  dfgnn_cpu_side *second = rows_first ? &b.columns : &b.rows;
  if (first->wanted && second->wanted) {
    first->terms = DFGNN_CPU_SPILL;
    first->wants_gradients = 1;
    second->terms = DFGNN_CPU_READ;
    second->wants_gradients = 1;
    second->values.prefetch = second->scores.prefetch = plan.prefetch;
    if (!dfgnn__cpu_spans(first) || !dfgnn__cpu_spans(second))
      first->all_heads = second->all_heads = 0;
  } else {
    dfgnn__cpu_spans(first);
    dfgnn__cpu_spans(second);
  }
  dfgnn__cpu_backward_walk(first, plan.schedule);
  dfgnn__cpu_backward_walk(second, plan.schedule);
  return DFGNN_OK;
}

WORKSPACE(spill)

/* ---- families ------------------------------------------------------------ */

DFGNN_FAMILIES(attention_cpu_backward_families) = {
    {DFGNN_CPU_BACKWARD(spill), .legal = spill_legal, .revision = 3,
     .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD,
                    {"first", 2, {ROWS, COLUMNS}, {"rows", "columns"}},
                    DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    {DFGNN_CPU_BACKWARD(twopass), .legal = twopass_legal, .revision = 5,
     .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    DFGNN_FAMILIES_END};
