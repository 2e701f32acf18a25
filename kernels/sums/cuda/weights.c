/* weights.c - launches the gradient of edge weights */
#include "kernels/sums/cuda/weights.h"

#include "kernels/sums/cuda/sums.h"
#include "lib/base/error.h"

/* Are the heads of each node whole 16-byte words? */
static int wide_heads(const weigh_params *p, const feature_tensor *t,
                      dfgnn_dtype dtype) {
  const int64_t size = (int64_t)dfgnn_dtype_size(dtype);
  return dtype != DFGNN_F64 && (uintptr_t)(t->data) % 16 == 0 &&
         t->node_bytes % 16 == 0 && (p->dim == 1 || t->feature == 1) &&
         (p->heads == 1 || t->head * size % 16 == 0) && p->dim * size % 16 == 0;
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
  dfgnn_status status =
      dfgnn__gather_tensor(&p.grad, "grad_out", args->grad_out,
                           &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&p.value, "value", args->value,
                                  &args->value_strides, problem->dtype);
  if (status)
    return status;
  const int wide = wide_heads(&p, &p.grad, problem->dtype) &&
                   wide_heads(&p, &p.value, problem->dtype);
  const int64_t runs = dfgnn__ceil_div(p.edges, WEIGH_RUN);
  const int vector = wide ? dfgnn__wide_vector(problem->dtype) : 1;
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
