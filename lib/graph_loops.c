/* graph_loops.c - features of the self loops that a graph was given, on the
 * host */
#include <string.h>

#include "dfgnn_graph.h"
#include "kernels/common/half.h"
#include "kernels/common/host_view.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

enum { CHUNK = 64 };   /* columns that are summed at a time */
#define PARALLEL 65536 /* numbers that are worth threads */

/* Features of edges: those of the list, and those of the graph. */
typedef struct filling {
  const dfgnn_graph *graph;
  int64_t width, loops;
  int mean;
  const void *from;
  void *to;
} filling;

/* ---- numbers of each type, which stands in the arguments as a constant ----
 */

#define FOR_EACH_TYPE static inline __attribute__((always_inline))

FOR_EACH_TYPE void put(dfgnn_dtype type, void *array, int64_t k, double x) {
  if (type == DFGNN_F64)
    ((double *)array)[k] = x;
  else if (type == DFGNN_F32)
    ((float *)array)[k] = (float)x;
  else
    ((uint16_t *)array)[k] = type == DFGNN_F16 ? dfgnn__f16_from_double(x)
                                               : dfgnn__bf16_from_double(x);
}

/* ---- a row ----------------------------------------------------------------
 */

/* What an edge of the row counts in its loop. */
static double share(const filling *f, int64_t edges) {
  return f->mean && edges ? 1.0 / (double)edges : 1.0;
}

static int64_t order_at(const filling *f, int64_t e) {
  return dfgnn__index_at(f->graph->edge_order, f->graph->matrix.offsets64, e);
}

/* Copies the features of the edges begin to end - 1, whose sum the loop at end
 * gets, if there is one. */
FOR_EACH_TYPE void fill_row(const filling *f, dfgnn_dtype type, int64_t begin,
                            int64_t end, int loop) {
  const double each = share(f, end - begin);
  for (int64_t first = 0; first < f->width; first += CHUNK) {
    const int64_t count = f->width - first < CHUNK ? f->width - first : CHUNK;
    double sum[CHUNK] = {0};
    for (int64_t e = begin; e < end; e++) {
      const int64_t from = order_at(f, e) * f->width + first,
                    to = e * f->width + first;
      for (int64_t k = 0; k < count; k++) {
        const double x = dfgnn__number_at(type, f->from, from + k);
        put(type, f->to, to + k, x);
        sum[k] += x;
      }
    }
    for (int64_t k = 0; loop && k < count; k++)
      put(type, f->to, end * f->width + first + k, each * sum[k]);
  }
}

/* Gradients of the edges: their own, and their share of the loop's. */
FOR_EACH_TYPE void spread_row(const filling *f, dfgnn_dtype type, int64_t begin,
                              int64_t end, int loop) {
  const double each = loop ? share(f, end - begin) : 0;
  const int64_t of_loop = loop ? end * f->width : 0;
  for (int64_t e = begin; e < end; e++) {
    const int64_t from = e * f->width, to = order_at(f, e) * f->width;
    for (int64_t k = 0; k < f->width; k++) {
      double x = dfgnn__number_at(type, f->from, from + k);
      if (loop)
        x += each * dfgnn__number_at(type, f->from, of_loop + k);
      put(type, f->to, to + k, x);
    }
  }
}

/* ---- all rows -------------------------------------------------------------
 */

FOR_EACH_TYPE void do_rows(const filling *f, dfgnn_dtype type, int back) {
  const dfgnn_matrix *m = &f->graph->matrix;
  const int threads = f->graph->ctx->info.units;
#pragma omp parallel for num_threads(threads) if (m->edges * f->width >        \
                                                  PARALLEL)
  for (int64_t i = 0; i < m->destinations; i++) {
    const int loop = i < f->loops;
    const int64_t begin = dfgnn__offset_at(m, i),
                  end = dfgnn__offset_at(m, i + 1) - loop;
    if (back)
      spread_row(f, type, begin, end, loop);
    else
      fill_row(f, type, begin, end, loop);
  }
}

static void do_rows_of_type(const filling *f, dfgnn_dtype type, int back) {
  switch (type) {
  case DFGNN_F64:
    back ? do_rows(f, DFGNN_F64, 1) : do_rows(f, DFGNN_F64, 0);
    break;
  case DFGNN_F16:
    back ? do_rows(f, DFGNN_F16, 1) : do_rows(f, DFGNN_F16, 0);
    break;
  case DFGNN_BF16:
    back ? do_rows(f, DFGNN_BF16, 1) : do_rows(f, DFGNN_BF16, 0);
    break;
  default:
    back ? do_rows(f, DFGNN_F32, 1) : do_rows(f, DFGNN_F32, 0);
  }
}

/* ---- the interface --------------------------------------------------------
 */

static dfgnn_status check(const dfgnn_graph *graph, dfgnn_dtype type,
                          int64_t width) {
  DFGNN_TRY(dfgnn__check_graph(graph));
  if (strcmp(graph->ctx->backend->name, "cpu"))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "features of self loops are filled in on CPUs alone, "
                       "and the graph is on %s",
                       graph->ctx->backend->name);
  if (!graph->edge_order || graph->matrix.edge_order)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the graph was not made of a list with coo.self_loops, "
                       "so it has no loops to fill in");
  DFGNN_TRY(dfgnn__check_range("dtype", type, 0, DFGNN_F64));
  DFGNN_TRY(dfgnn__check_range("width", width, 1, INT32_MAX));
  return DFGNN_OK;
}

static int64_t loops_of(const dfgnn_matrix *m) {
  return m->destinations < m->sources ? m->destinations : m->sources;
}

dfgnn_status dfgnn_graph_fill_loops(const dfgnn_graph *graph, dfgnn_dtype dtype,
                                    int64_t width, int mean, const void *given,
                                    void *filled) {
  DFGNN_TRY(check(graph, dtype, width));
  const dfgnn_matrix *m = &graph->matrix;
  if (m->edges && (!filled || (!given && m->edges > loops_of(m))))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       filled ? "given" : "filled");
  const filling f = {graph, width, loops_of(m), mean, given, filled};
  do_rows_of_type(&f, dtype, 0);
  return DFGNN_OK;
}

dfgnn_status dfgnn_graph_fill_loops_backward(const dfgnn_graph *graph,
                                             dfgnn_dtype dtype, int64_t width,
                                             int mean, const void *grad_filled,
                                             void *grad_given) {
  DFGNN_TRY(check(graph, dtype, width));
  const dfgnn_matrix *m = &graph->matrix;
  const filling f = {graph, width, loops_of(m), mean, grad_filled, grad_given};
  const int64_t listed =
      f.loops ? order_at(&f, dfgnn__offset_at(m, 1) - 1) : m->edges;
  if (listed && (!grad_filled || !grad_given))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       grad_filled ? "grad_given" : "grad_filled");
  if (listed > m->edges - f.loops) /* loops of the list were left out */
    memset(grad_given, 0, (size_t)(listed * width) * dfgnn_dtype_size(dtype));
  do_rows_of_type(&f, dtype, 1);
  return DFGNN_OK;
}
