/* edges.c - preparations of a launch with edge features or norms: W and its
 * transpose as scalars, normalised copies */
#include "kernels/attention/cpu/edges.h"
#include "kernels/common/cpu_tables.h"

DFGNN_CPU_TABLES(dfgnn__cpu_edge_loops, dfgnn_cpu_edge_loops, dfgnn__cpu_edge)

static int adjacent(const dfgnn_cpu_edges *e, const dfgnn_cpu_job *job,
                    const dfgnn_cpu_tensor *t) {
  const int64_t size = (int64_t)e->element_size;
  return t->feature == size && t->head == job->dim * size;
}

int dfgnn__cpu_edges_short(const dfgnn_cpu_edges *edges,
                           const dfgnn_cpu_job *job,
                           const dfgnn_cpu_tensor *key,
                           const dfgnn_cpu_tensor *value) {
  return job->op == DFGNN_OP_GT && edges->weight &&
         job->heads <= DFGNN_CPU_SHORT_HEADS && !job->bias && !job->drops &&
         !job->weights && adjacent(edges, job, key) &&
         adjacent(edges, job, value);
}

/* ---- W ------------------------------------------------------------------- */

static int64_t row_numbers(const dfgnn_problem *problem) {
  return problem->heads * problem->dim;
}

static size_t weight_bytes(const dfgnn_problem *problem) {
  return problem->edge_dim > 0
             ? dfgnn__cpu_aligned(
                   (size_t)(row_numbers(problem) * problem->edge_dim) *
                   dfgnn__cpu_scalar_size(problem))
             : 0;
}

static size_t vector_bytes(const dfgnn_problem *problem) {
  return dfgnn__cpu_aligned((size_t)row_numbers(problem) *
                            dfgnn__cpu_scalar_size(problem));
}

size_t dfgnn__cpu_edges_bytes(const dfgnn_problem *problem) {
  return 2 * weight_bytes(problem) + 2 * vector_bytes(problem);
}

static void transpose(char *to, const char *from, int64_t rows, int64_t columns,
                      size_t size) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(to + (size_t)(c * rows + r) * size,
             from + (size_t)(r * columns + c) * size, size);
}

char *dfgnn__cpu_edges_begin(dfgnn_cpu_edges *edges, const dfgnn_launch *launch,
                             int simd, char *memory) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  int64_t size = (int64_t)dfgnn_dtype_size(p->dtype), row = row_numbers(p);
  *edges = (dfgnn_cpu_edges){
      .loops = dfgnn__cpu_edge_loops(simd, p->dtype),
      .features = p->edge_dim < 0 ? p->dim : p->edge_dim,
      .width = p->edge_dim < 0 ? row : p->edge_dim,
      .attr = args->edge_attr,
      .element_size = (size_t)size,
      .scalar_size = dfgnn__cpu_scalar_size(p),
      .keys = p->edge_dim && p->edge_use != DFGNN_EDGE_VALUES,
      .values = p->edge_dim && p->edge_use != DFGNN_EDGE_KEYS,
  };
  edges->convert = edges->scalar_size != edges->element_size;
  if (p->edge_dim > 0) {
    edges->weight = memory;
    edges->transposed = memory + weight_bytes(p);
    edges->loops->load(edges->weight, args->edge_weight, size,
                       row * p->edge_dim);
    transpose(edges->transposed, edges->weight, row, p->edge_dim,
              edges->scalar_size);
  }
  memory += 2 * weight_bytes(p);
  if (p->edge_dim > 0 && args->edge_bias) {
    edges->bias = memory;
    edges->loops->load(edges->bias, args->edge_bias, size, row);
  }
  memory += vector_bytes(p);
  if (p->op == DFGNN_OP_GATV2) {
    edges->att = memory;
    edges->loops->load(edges->att, args->att, size, row);
  }
  return memory + vector_bytes(p);
}

const void *dfgnn__cpu_edges_load(const dfgnn_cpu_edges *edges, int64_t e,
                                  int64_t count, void *buffer) {
  const char *from =
      edges->attr + (size_t)(e * edges->width) * edges->element_size;
  if (!edges->convert)
    return from;
  edges->loops->load(buffer, from, (int64_t)edges->element_size,
                     count * edges->width);
  return buffer;
}

/* ---- norms --------------------------------------------------------------- */

static size_t copy_bytes(const dfgnn_problem *problem, int64_t nodes) {
  return dfgnn__cpu_aligned((size_t)(nodes * row_numbers(problem)) *
                            dfgnn_dtype_size(problem->dtype));
}

size_t dfgnn__cpu_norm_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  return p->qk_norm ? copy_bytes(p, setting->matrix->destinations) +
                          copy_bytes(p, setting->matrix->sources)
                    : 0;
}

static void normalize(const dfgnn_problem *p, const dfgnn_cpu_edge_loops *loops,
                      char *to, const void *base, const dfgnn_strides *strides,
                      const void *weight, double eps, int64_t nodes,
                      int threads) {
  const dfgnn_cpu_tensor from = dfgnn__cpu_tensor_of(p, base, strides);
  int64_t size = (int64_t)dfgnn_dtype_size(p->dtype), rows = nodes * p->heads;
#pragma omp parallel for num_threads(threads) if (rows > 1024)
  for (int64_t i = 0; i < rows; i++)
    loops->normalize(
        to + i * p->dim * size,
        from.base + i / p->heads * from.node + i % p->heads * from.head,
        from.feature, weight, p->dim, p->qk_norm == DFGNN_QK_NORM_LAYER, eps);
}

void dfgnn__cpu_norm_begin(dfgnn_launch *to, dfgnn_args *args,
                           const dfgnn_launch *launch,
                           const dfgnn_cpu_edge_loops *loops, int threads,
                           char *memory) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_matrix *m = launch->setting.matrix;
  const dfgnn_strides dense = {row_numbers(p), p->dim, 1};
  *to = *launch;
  if (!p->qk_norm)
    return;
  *args = *launch->args;
  to->args = args;
  char *query = memory, *key = memory + copy_bytes(p, m->destinations);
  normalize(p, loops, query, args->query, &args->query_strides,
            args->query_norm, args->norm_eps, m->destinations, threads);
  normalize(p, loops, key, args->key, &args->key_strides, args->key_norm,
            args->norm_eps, m->sources, threads);
  args->query = query;
  args->key = key;
  args->query_strides = args->key_strides = dense;
}
