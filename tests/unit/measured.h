/* measured.h - measurements of a context's device, for the tests of lib */
#ifndef DFGNN_TESTS_MEASURED_H
#define DFGNN_TESTS_MEASURED_H

#include "db/store.h"
#include "lib/describe.h"

/* A measurement of a problem on a graph: the variant took `ratio` of the time
 * of the anchor, which took 1 ms. */
static inline dfgnn_measurement
measurement_of(const dfgnn_context *ctx, const dfgnn_graph *graph,
               const dfgnn_problem *problem, const char *variant,
               const char *anchor, double ratio) {
  dfgnn_measurement m;
  dfgnn__describe(&m, ctx, graph, problem);
  m.variant = variant;
  m.tool = "tests";
  m.run = "0123456789abcdef0123456789abcdef";
  m.time = 1;
  m.status = "ok";
  m.anchor = anchor;
  m.median_ms = m.ci_low_ms = m.ci_high_ms = ratio;
  m.ratio = m.ratio_low = m.ratio_high = ratio;
  m.samples = 9;
  return m;
}

#endif
