/* edges.c - preparations of a launch with edge features: W and its transpose
 * as scalars */
#include "kernels/attention/cpu/edges.h"

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
  return padded->edge_dim > 0 ? dfgnn__cpu_heads_bytes(padded, padded->edge_dim)
                              : 0;
}

size_t dfgnn__cpu_edges_bytes(const dfgnn_problem *padded) {
  return 2 * weight_bytes(padded) + dfgnn__cpu_heads_bytes(padded, 1) +
         dfgnn__cpu_att_bytes(padded);
}

static void transpose(char *to, const char *from, int64_t rows, int64_t columns,
                      size_t size) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(to + (size_t)(c * rows + r) * size,
             from + (size_t)(r * columns + c) * size, size);
}

void dfgnn__cpu_edges_begin(dfgnn_cpu_edges *edges, const dfgnn_launch *launch,
                            const dfgnn_problem *padded, int simd,
                            char *memory) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const dfgnn_matrix *m = launch->setting.matrix;
  const dfgnn_cpu_kernels *kernels = dfgnn__cpu_kernels(simd, p->dtype);
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
    edges->weight =
        dfgnn__cpu_pad_heads(p, padded, args->edge_weight, p->edge_dim, memory);
    transpose(transposed, memory, (int64_t)row_of(padded), p->edge_dim,
              dfgnn__cpu_scalar_size(p));
    edges->transposed = transposed;
    if (args->edge_bias)
      edges->bias = dfgnn__cpu_pad_heads(p, padded, args->edge_bias, 1, bias);
  }
  const int64_t row = (int64_t)row_of(padded);
  edges->careful =
      !projects || (kernels->finite(edges->weight, row * p->edge_dim) &&
                    (!edges->bias || kernels->finite(edges->bias, row)));
  edges->att = dfgnn__cpu_pad_att(p, padded, args->att,
                                  bias + dfgnn__cpu_heads_bytes(padded, 1));
}
