/* weights.c - launches the gradient of edge weights */
#include "kernels/sums/cuda/weights.h"

#include "kernels/sums/cuda/sums.h"
#include "lib/base/error.h"

/* The widest vector of which the heads of each node are made. */
static int vector_of_heads(const weigh_params *p, const feature_tensor *t,
                           dfgnn_dtype dtype) {
  const size_t size = dfgnn_dtype_size(dtype);
  const uint64_t places = (uintptr_t)t->data | t->node_bytes |
                          (uint64_t)p->dim * size |
                          (p->heads > 1 ? (uint64_t)t->head * size : 0);
  if (dtype == DFGNN_F64 || (p->dim > 1 && t->feature != 1))
    return 1;
  return dfgnn__gather_fit(dfgnn__wide_vector(dtype), places, size);
}

dfgnn_status dfgnn__sums_grade_weights(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  weigh_params p = {0};
  if (matrix->destinations == 0 || matrix->edges == 0)
    return DFGNN_OK;
  p.edges = matrix->edges;
  p.offsets = dfgnn__gather_offsets(matrix);
  p.indices = matrix->indices;
  p.rows = (int)(matrix->destinations);
  p.heads = (int)(problem->heads);
  p.dim = (int)(problem->dim);
  p.row_scale = args->scale_dst;
  p.gathered_scale = args->scale_src;
  p.to = args->grad_edge_weight;
  DFGNN_TRY(dfgnn__gather_tensor(&p.grad, "grad_out", args->grad_out,
                                 &args->grad_out_strides, problem->dtype));
  DFGNN_TRY(dfgnn__gather_tensor(&p.value, "value", args->value,
                                 &args->value_strides, problem->dtype));
  const int of_grad = vector_of_heads(&p, &p.grad, problem->dtype);
  const int of_value = vector_of_heads(&p, &p.value, problem->dtype);
  const int vector = of_grad < of_value ? of_grad : of_value;
  const int64_t runs = dfgnn__ceil_div(p.edges, WEIGH_RUN);
  const int needed = (int)dfgnn__ceil_div(p.dim, vector);
  const int lanes = needed <= 4 ? 4 : needed <= 8 ? 8 : needed <= 16 ? 16 : 32;
  const int vectors = needed > 32 ? 2 : 1, unroll = needed > 32 ? 2 : 4;
  const int64_t blocks = dfgnn__ceil_div(runs * lanes, WEIGH_THREADS);
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld edges are too many: they take %lld blocks, and a "
                       "grid has 2^31",
                       (long long)p.edges, (long long)blocks);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/sums/cuda/weights.cuh", "dfgnn::weigh_edges",
                    DFGNN_TYPE(problem->dtype), vector, lanes, vectors, unroll);
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks, (unsigned)p.heads},
                           .threads = WEIGH_THREADS};
  return dfgnn__launch_struct(launch->setting.queue, &program, grid, &p);
}
