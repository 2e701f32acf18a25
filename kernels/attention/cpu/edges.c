/* edges.c - preparations of a launch with edge features: padded heads, and W
 * and its transpose as scalars */
#include "kernels/attention/cpu/edges.h"

/* ---- padding ------------------------------------------------------------- */

/* A head fills vectors, or heads fill one together. */
dfgnn_problem dfgnn__cpu_padded(const dfgnn_problem *problem, int simd) {
  const int64_t vector = dfgnn__cpu_kernels(simd, problem->dtype)->vector;
  dfgnn_problem padded = *problem;
  int64_t dim = 1;
  if (problem->dim > vector / 2) {
    dim = (problem->dim + vector - 1) / vector * vector;
  } else {
    while (dim < problem->dim || (dim * problem->heads) % vector)
      dim *= 2;
  }
  padded.dim = dim;
  return padded;
}

const char *dfgnn__cpu_edges_refusal(const dfgnn_setting *setting, int simd) {
  const char *missing = dfgnn__cpu_simd_missing(simd);
  return missing ? missing
         : setting->problem->heads > DFGNN_CPU_MOST_HEADS
             ? "edge features are for 256 heads or fewer"
             : NULL;
}

/* ---- W ------------------------------------------------------------------- */

static size_t row_of(const dfgnn_problem *padded) {
  return (size_t)(padded->heads * padded->dim);
}

static size_t weight_bytes(const dfgnn_problem *padded) {
  return padded->edge_dim > 0
             ? dfgnn__cpu_aligned(row_of(padded) * (size_t)padded->edge_dim *
                                      dfgnn__cpu_scalar_size(padded) +
                                  DFGNN_CPU_PADDING)
             : 0;
}

static size_t vector_bytes(const dfgnn_problem *padded) {
  return dfgnn__cpu_aligned(row_of(padded) * dfgnn__cpu_scalar_size(padded) +
                            DFGNN_CPU_PADDING);
}

size_t dfgnn__cpu_edges_bytes(const dfgnn_problem *padded) {
  return 2 * weight_bytes(padded) + 2 * vector_bytes(padded);
}

static void transpose(char *to, const char *from, int64_t rows, int64_t columns,
                      size_t size) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(to + (size_t)(c * rows + r) * size,
             from + (size_t)(r * columns + c) * size, size);
}

/* The operands of a copy of an array [heads, dim, inner], dense, to one whose
 * heads are padded. */
typedef struct copying {
  const dfgnn_problem *from, *to;
  const dfgnn_cpu_kernels *kernels;
} copying;

/* Copies as scalars. */
static void *widen_heads(const copying *c, char *to, const char *from,
                         int64_t inner, size_t bytes) {
  const size_t size = dfgnn_dtype_size(c->from->dtype);
  const size_t scalar = dfgnn__cpu_scalar_size(c->from);
  memset(to, 0, bytes);
  for (int64_t h = 0; h < c->from->heads; h++)
    c->kernels->widen(to + (size_t)(h * c->to->dim * inner) * scalar,
                      from + (size_t)(h * c->from->dim * inner) * size,
                      c->from->dim * inner);
  return to;
}

static void *copy_heads(const copying *c, char *to, const char *from) {
  const size_t size = dfgnn_dtype_size(c->from->dtype);
  memset(to, 0, vector_bytes(c->to));
  for (int64_t h = 0; h < c->from->heads; h++)
    memcpy(to + (size_t)(h * c->to->dim) * size,
           from + (size_t)(h * c->from->dim) * size,
           (size_t)c->from->dim * size);
  return to;
}

void dfgnn__cpu_edges_begin(dfgnn_cpu_edges *edges, const dfgnn_launch *launch,
                            const dfgnn_problem *padded, int simd,
                            char *memory) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const dfgnn_matrix *m = launch->setting.matrix;
  const copying c = {p, padded, dfgnn__cpu_kernels(simd, p->dtype)};
  const int projects = p->edge_dim > 0, gt = p->op == DFGNN_OP_GT;
  char *transposed = memory + weight_bytes(padded);
  char *bias = transposed + weight_bytes(padded);
  *edges = (dfgnn_cpu_edges){
      .dim = p->dim,
      .features = projects ? p->edge_dim : 0,
      .width = projects ? p->edge_dim : p->heads * p->dim,
      .attr = args->edge_attr,
      .grad_attr = args->grad_edge_attr,
      .order = p->edge_list ? m->edge_order : NULL,
      .offsets64 = m->offsets64,
      .keys = !gt || p->edge_use != DFGNN_EDGE_VALUES,
      .values = gt && p->edge_use != DFGNN_EDGE_KEYS,
  };
  if (projects) {
    edges->weight = widen_heads(&c, memory, args->edge_weight, p->edge_dim,
                                weight_bytes(padded));
    transpose(transposed, memory, (int64_t)row_of(padded), p->edge_dim,
              dfgnn__cpu_scalar_size(p));
    edges->transposed = transposed;
    if (args->edge_bias)
      edges->bias =
          widen_heads(&c, bias, args->edge_bias, 1, vector_bytes(padded));
  }
  const int64_t row = (int64_t)row_of(padded);
  edges->careful =
      !projects || (c.kernels->finite(edges->weight, row * p->edge_dim) &&
                    (!edges->bias || c.kernels->finite(edges->bias, row)));
  if (p->op == DFGNN_OP_GATV2)
    edges->att = copy_heads(&c, bias + vector_bytes(padded), args->att);
}
