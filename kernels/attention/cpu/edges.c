/* edges.c - preparations of a launch with edge features: W and its transpose as
 * scalars */
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
      .grad_attr = args->grad_edge_attr,
      .order = p->edge_list ? launch->setting.matrix->edge_order : NULL,
      .offsets64 = launch->setting.matrix->offsets64,
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
  const int64_t size = (int64_t)edges->element_size, width = edges->width;
  if (!edges->convert && !edges->order)
    return edges->attr + e * width * size;
  if (!edges->order)
    edges->loops->load(buffer, edges->attr + e * width * size, size,
                       count * width);
  for (int64_t i = 0; edges->order && i < count; i++)
    edges->loops->load(
        (char *)buffer + (size_t)(i * width) * edges->scalar_size,
        edges->attr + dfgnn__cpu_edges_row(edges, e + i) * width * size, size,
        width);
  return buffer;
}

void dfgnn__cpu_edges_store(const dfgnn_cpu_edges *edges, int64_t e,
                            int64_t count, const void *from) {
  const int64_t size = (int64_t)edges->element_size, width = edges->width;
  if (!edges->order)
    edges->loops->store(edges->grad_attr + e * width * size, size, from,
                        count * width);
  for (int64_t i = 0; edges->order && i < count; i++)
    edges->loops->store(
        edges->grad_attr + dfgnn__cpu_edges_row(edges, e + i) * width * size,
        size, (const char *)from + (size_t)(i * width) * edges->scalar_size,
        width);
}
