/* factor.c - the factor of an edge in SpMM, in float64 */
#include "kernels/spmm/reference/spmm.h"

static double scale(const dfgnn_problem *problem, const void *scales,
                    int64_t node) {
  return scales ? dfgnn__ref_scalar(problem, scales, node) : 1;
}

double dfgnn__spmm_reference_scale(const dfgnn_problem *problem,
                                   const dfgnn_args *args, int64_t row,
                                   int64_t column) {
  return scale(problem, args->scale_dst, row) *
         scale(problem, args->scale_src, column);
}

double dfgnn__spmm_reference_factor(const dfgnn_problem *problem,
                                    const dfgnn_matrix *matrix,
                                    const dfgnn_args *args, int64_t row,
                                    int64_t column, int64_t edge,
                                    int64_t head) {
  double f = dfgnn__spmm_reference_scale(problem, args, row, column);
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    f *= dfgnn__ref_scalar(problem, args->edge_weight,
                           edge * problem->heads + head);
  else if (problem->op == DFGNN_OP_SPMM_MEAN)
    f /= (double)(dfgnn__ref_offset(matrix, row + 1) -
                  dfgnn__ref_offset(matrix, row));
  return f;
}
