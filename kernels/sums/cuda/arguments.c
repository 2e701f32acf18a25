/* arguments.c - the arguments of a pass over rows */
#include "kernels/sums/cuda/sums.h"

dfgnn_status dfgnn__sums_find_tensors(const sums_tensor *list, int count,
                                      dfgnn_dtype dtype) {
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; i < count && !status; i++)
    status = dfgnn__gather_tensor(list[i].to, list[i].name, list[i].data,
                                  list[i].strides, dtype);
  return status;
}

enum { MOST_TENSORS = 10 };

/* The tensors of a pass, gates last; data is NULL where there is none. */
static int list_tensors(sums_tensor *list, gather_params *p, int pass,
                        const dfgnn_problem *problem, const dfgnn_args *a) {
  const int found = dfgnn__sums_found(problem);
  /* The values of a row: gradients of copies need them for moments only. */
  const int own = !dfgnn__sums_copies(problem) || found & REDUCE_MOMENTS;
  const int pna = found == REDUCE_ALL && pass != SUMS_FORWARD;
  const sums_tensor forward[] = {
      {&p->table, "value", a->value, &a->value_strides},
      {&p->out, "out", a->out, &a->out_strides},
      {&p->own_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->far_gate, "gate_src", a->gate_src, &a->gate_src_strides}};
  const sums_tensor columns[] = {
      {&p->table, "grad_out", a->grad_out, &a->grad_out_strides},
      {&p->own, "value", own ? a->value : NULL, &a->value_strides},
      {&p->out, "grad_value", a->grad_value, &a->grad_value_strides},
      {&p->own_gate, "gate_src", a->gate_src, &a->gate_src_strides},
      {&p->far_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->out_gate, "grad_gate_src", a->grad_gate_src,
       &a->grad_gate_src_strides}};
  const sums_tensor rows[] = {
      {&p->table, "value", a->value, &a->value_strides},
      {&p->own, "grad_out", a->grad_out, &a->grad_out_strides},
      {&p->out, "grad_gate_dst", a->grad_gate_dst, &a->grad_gate_dst_strides},
      {&p->own_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->far_gate, "gate_src", a->gate_src, &a->gate_src_strides}};
  const sums_tensor moments[] = {
      {&p->table, "value", a->value, &a->value_strides},
      {&p->row_grad, "grad_out", a->grad_out, &a->grad_out_strides}};
  const sums_tensor grades[] = {
      {&p->grad_min, "grad_out_min", a->grad_out_min, &a->grad_out_strides},
      {&p->grad_max, "grad_out_max", a->grad_out_max, &a->grad_out_strides},
      {&p->mean_out, "out", a->out, &a->out_strides}};
  const sums_tensor *all[] = {forward, columns, rows, moments};
  static const int counts[][2] = {{2, 4}, {3, 6}, {5, 5}, {2, 2}}; /* gated */
  const int own_count = counts[pass][dfgnn__sums_gated(problem)];
  int count = 0;
  for (int i = 0; i < own_count; i++)
    list[count++] = all[pass][i];
  for (int i = 0; pna && i < 3; i++)
    list[count++] = grades[i];
  return count;
}

/* Sets the factors of the rows and of what they gather. */
static void fill_factors(gather_params *p, const sums_call *call, int pass) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const int columns = pass == SUMS_COLUMNS;
  p->row_scale = columns ? call->scale_src : call->scale_dst;
  p->gathered_scale = columns ? call->scale_dst : call->scale_src;
  p->mean = pass == SUMS_FORWARD && dfgnn__sums_averages(problem);
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    p->weights = call->launch->args->edge_weight;
}

/* Sets the arrays that a reduction writes beside its first result. */
static void fill_results(gather_params *p, const sums_call *call, int pass) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  const int found = dfgnn__sums_found(problem);
  p->square_root = problem->op != DFGNN_OP_REDUCE_VAR;
  if (pass == SUMS_MOMENTS) {
    p->coefficient = call->coefficient;
    p->offset = call->offset;
    return;
  }
  p->arg_min = found & REDUCE_MIN ? args->arg_min : NULL;
  p->arg_max = found & REDUCE_MAX ? args->arg_max : NULL;
  if (found == REDUCE_ALL) {
    p->out_min = args->out_min;
    p->out_max = args->out_max;
    p->out_std = args->out_std;
  }
}

void dfgnn__sums_fill_grades(gather_params *p, const sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  const int found = dfgnn__sums_found(problem);
  p->row_offsets = dfgnn__gather_offsets(call->launch->setting.matrix);
  p->row_arg = found & REDUCE_MIN   ? args->arg_min
               : found & REDUCE_MAX ? args->arg_max
                                    : NULL;
  p->row_arg2 = found == REDUCE_ALL ? args->arg_max : NULL;
  p->coefficient = call->coefficient;
  p->offset = call->offset;
}

static void fill_edges(gather_params *p, const sums_call *call, int pass,
                       const dfgnn_matrix *matrix) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  /* Sums of copies read no ids of edges but to find their weights. */
  const int ids =
      p->weights || dfgnn__sums_found(problem) || !dfgnn__sums_copies(problem);
  if (pass == SUMS_COLUMNS && ids)
    p->edge_ids = (csr_offsets){call->transpose->array[2], matrix->offsets64};
  if (dfgnn__sums_copies(problem))
    return;
  p->attr = args->edge_attr;
  p->matrix = call->matrix;
  if (pass == SUMS_COLUMNS && problem->edge_dim == DFGNN_EDGE_PROJECTED)
    p->grad_attr = args->grad_edge_attr;
}

/* The widest vector that the arrays beside the tensors can be loaded in; four
 * numbers of 32 bits are loaded at most. */
static int arrays_vector(const gather_params *p, const dfgnn_problem *problem,
                         int vector) {
  const int given = problem->edge_dim == DFGNN_EDGE_PROJECTED;
  const void *const arrays[] = {p->out_min, p->out_max, p->out_std,
                                p->grad_attr, given ? p->attr : NULL};
  const void *const edges[] = {p->arg_min, p->arg_max, p->row_arg, p->row_arg2};
  uintptr_t any = 0, any_edge = 0;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    any |= (uintptr_t)arrays[i];
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
    any_edge |= (uintptr_t)edges[i];
  vector = dfgnn__gather_fit(vector, any, dfgnn_dtype_size(problem->dtype));
  return any_edge % 16 == 0 ? vector
                            : dfgnn__gather_fit(vector, any_edge, sizeof(int));
}

dfgnn_status dfgnn__sums_fill(gather_params *p, int *vector,
                              const sums_call *call, int pass,
                              const dfgnn_matrix *matrix) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  sums_tensor list[MOST_TENSORS];
  dfgnn__gather_fill(p, problem, matrix);
  fill_factors(p, call, pass);
  fill_edges(p, call, pass, matrix);
  if (dfgnn__sums_found(problem)) {
    if (pass == SUMS_FORWARD || pass == SUMS_MOMENTS)
      fill_results(p, call, pass);
    else
      dfgnn__sums_fill_grades(p, call);
  }
  const int count = list_tensors(list, p, pass, problem, call->launch->args);
  *vector = arrays_vector(p, problem, *vector);
  dfgnn_status status = dfgnn__sums_find_tensors(list, count, problem->dtype);
  for (int i = 0; i < count && !status; i++)
    *vector = dfgnn__gather_vector(p, list[i].to, problem->dtype, *vector);
  return status;
}
