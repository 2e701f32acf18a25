/* layout.c - see layout.h */
#include "kernels/attention/cuda/layout.h"

#include "kernels/attention/cuda/norms.h"
#include "kernels/attention/operators.h"
#include "kernels/common/dropout.h"
#include "lib/base/error.h"

/* ---- tensors ------------------------------------------------------------- */

dfgnn_status dfgnn__view_tensor(tensor_view *view, const char *name,
                                const void *data, const dfgnn_strides *strides,
                                size_t size) {
  const int64_t stride[] = {strides->node, strides->head, strides->feature};
  const int64_t most = (int64_t)UINT32_MAX / (int64_t)size;
  *view = (tensor_view){0};
  if (!data)
    return DFGNN_OK;
  for (int i = 0; i < 3; i++)
    if (stride[i] < 0 || stride[i] > most)
      return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "%s: a stride is %lld elements, expected 0 .. %lld",
                         name, (long long)stride[i], (long long)most);
  *view = (tensor_view){.data = data,
                        .node_bytes = (unsigned)(stride[0] * (int64_t)size),
                        .head_bytes = (unsigned)(stride[1] * (int64_t)size),
                        .feature_bytes = (unsigned)(stride[2] * (int64_t)size)};
  return DFGNN_OK;
}

int dfgnn__view_aligned(const tensor_view *view, int64_t heads, int vector,
                        size_t size) {
  const unsigned bytes = (unsigned)size * (unsigned)vector;
  return !view->data ||
         ((uintptr_t)view->data % bytes == 0 && view->node_bytes % bytes == 0 &&
          view->feature_bytes == size &&
          (heads == 1 || view->head_bytes % bytes == 0));
}

int dfgnn__view_packed(const tensor_view *view, int64_t heads, int64_t dim,
                       size_t size) {
  return !view->data ||
         (view->feature_bytes == size &&
          (heads == 1 || view->head_bytes == (uint64_t)dim * size));
}

dfgnn_status dfgnn__tensors(attention_tensors *t, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const dfgnn_op op = problem->op;
  const int backward = problem->pass == DFGNN_PASS_BACKWARD;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const struct {
    tensor_view *view;
    int has;
    const char *name;
    const void *data;
    const dfgnn_strides *strides;
  } tensors[] = {
      {&t->query, DFGNN_HAS_QUERY(op), "query", a->query, &a->query_strides},
      {&t->key, DFGNN_HAS_KEY(op), "key", a->key, &a->key_strides},
      {&t->value, 1, "value", a->value, &a->value_strides},
      {&t->out, 1, "out", a->out, &a->out_strides},
      {&t->grad_out, backward, "grad_out", a->grad_out, &a->grad_out_strides},
      {&t->grad_query, backward && DFGNN_HAS_QUERY(op), "grad_query",
       a->grad_query, &a->grad_query_strides},
      {&t->grad_key, backward && DFGNN_HAS_KEY(op), "grad_key", a->grad_key,
       &a->grad_key_strides},
      {&t->grad_value, backward, "grad_value", a->grad_value,
       &a->grad_value_strides}};
  dfgnn_status status = DFGNN_OK;
  *t = (attention_tensors){0};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors && !status; i++)
    status = dfgnn__view_tensor(tensors[i].view, tensors[i].name,
                                tensors[i].has ? tensors[i].data : NULL,
                                tensors[i].strides, size);
  return status;
}

int dfgnn__views_aligned(const tensor_view *const *views, int count,
                         const dfgnn_problem *problem, int vector) {
  int aligned = problem->dim % vector == 0;
  for (int i = 0; i < count; i++)
    aligned = aligned && dfgnn__view_aligned(views[i], problem->heads, vector,
                                             dfgnn_dtype_size(problem->dtype));
  return aligned;
}

int dfgnn__views_packed(const tensor_view *const *views, int count,
                        const dfgnn_problem *problem) {
  int packed = 1;
  for (int i = 0; i < count; i++)
    packed =
        packed && dfgnn__view_packed(views[i], problem->heads, problem->dim,
                                     dfgnn_dtype_size(problem->dtype));
  return packed;
}

/* ---- dropout and norms --------------------------------------------------- */

dropout_params dfgnn__dropout_params(const dfgnn_problem *problem,
                                     const dfgnn_args *args) {
  return (dropout_params){.on = problem->dropout && args->dropout > 0,
                          .threshold = dfgnn__dropout_threshold(args->dropout),
                          .keep = 1 / (1 - args->dropout),
                          .seed = args->seed,
                          .seed_value = args->seed_value,
                          .number = args->edge_number};
}

dfgnn_status dfgnn__inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int lanes = dfgnn__ceil_power(dfgnn__ceil_div(problem->dim, 4));
  const norms_params p = {.inverse = inverse,
                          .tensor = *tensor,
                          .pairs = nodes * problem->heads,
                          .heads = (int)problem->heads,
                          .dim = (int)problem->dim,
                          .lanes = lanes < 32 ? lanes : 32};
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/norms.cuh", "dfgnn::inverse_norms",
                    DFGNN_TYPE(problem->dtype));
  const int64_t blocks = dfgnn__ceil_div(p.pairs * p.lanes, 256);
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld norms need more than 2^31 - 1 blocks",
                       (long long)p.pairs);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks}, .threads = 256}, &p);
}
