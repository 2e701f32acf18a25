/* message.c - shapes, arguments and passes of sums of messages on a GPU */
#include "base/error.h"
#include "kernels/message/cuda/message_host.h"
#include "kernels/spmm/cuda/spmm.h"

#define SOURCE "kernels/message/cuda/message.cuh"

/* ---- shapes -------------------------------------------------------------- */

/* clang-format off */
const gather_choice dfgnn__message_shapes[] = {
    {32, 1, 2}, {32, 1, 4}, {32, 2, 2}, {16, 1, 2}, {16, 1, 4}, {16, 2, 2},
    {8, 1, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {4, 2, 2}, {0}};
/* clang-format on */

static int backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int gated(const dfgnn_problem *problem) {
  return problem->message == DFGNN_MESSAGE_GATE;
}

/* Features of an edge that one load can read. */
static int together(const dfgnn_problem *problem, const void *attr) {
  const int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  int count = dfgnn__wide_vector(problem->dtype);
  while (count > 1 && (problem->edge_dim % count != 0 ||
                       (uintptr_t)attr % (uintptr_t)(count * size) != 0))
    count /= 2;
  return count;
}

/* The constants of an instance in one number, for dfgnn__gather_refusal. */
static int instance(const dfgnn_problem *problem, int pass, const void *attr) {
  const int what =
      pass + (gated(problem) ? MESSAGE_GATED : 0) +
      (problem->edge_dim > 0 ? MESSAGE_TOGETHER * together(problem, attr) : 0);
  return what | (int)(problem->edge_dim + 1) << 8;
}

static int find_program(dfgnn_program *program, dfgnn_dtype dtype, int what,
                        const gather_shape *shape, int width) {
  const dfgnn_program rows_program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::message_rows", DFGNN_TYPE(dtype),
                    shape->vector, shape->lanes, shape->vectors, shape->unroll,
                    what & 255, (what >> 8) - 1, width);
  *program = rows_program;
  return dfgnn__gather_listed(shape->vector == 1 ? dfgnn__gather_narrow_shapes
                                                 : dfgnn__message_shapes,
                              shape->lanes, shape->vectors, shape->unroll);
}

/* Edges as they are given have heads first, which vectors of a layout that has
 * them last do not. */
static int element_wise(const dfgnn_problem *problem) {
  return problem->edge_dim == DFGNN_EDGE_PROJECTED &&
         problem->layout == DFGNN_LAYOUT_NDH;
}

const char *dfgnn__message_refusal(gather_shape *shape,
                                   const dfgnn_setting *setting, int lanes,
                                   int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  if (problem->message == DFGNN_MESSAGE_COPY)
    return "messages are copies of nodes";
  if (problem->edge_dim > DFGNN_MESSAGE_FIELDS)
    return "more than 64 features an edge: project them before";
  if (m->max_degree > INT32_MAX - 65536 ||
      m->destinations > INT32_MAX - 65536 || m->sources > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  return dfgnn__gather_refusal(
      shape, setting, find_program,
      instance(problem, backward(problem) ? MESSAGE_COLUMNS : MESSAGE_FORWARD,
               NULL),
      element_wise(problem), lanes, vectors, unroll);
}

/* ---- the workspace ------------------------------------------------------- */

static int sums_of(const dfgnn_problem *problem) {
  return backward(problem) && gated(problem) ? 2 : 1;
}

message_layout dfgnn__message_layout(const dfgnn_setting *setting,
                                     int item_edges) {
  const dfgnn_problem *p = setting->problem;
  const size_t scalar = dfgnn__scalar_size(p->dtype);
  const int64_t width = dfgnn__gather_width(p);
  const int64_t fields = p->edge_dim > 0 ? p->edge_dim : 0;
  message_layout l = {.blocks = dfgnn__message_blocks(setting)};
  l.matrix = dfgnn__spmm_scale_bytes(setting);
  l.sums = l.matrix +
           (fields ? dfgnn__gather_bytes((fields + 1) * width, scalar) : 0);
  l.partial =
      l.sums +
      (fields && backward(p)
           ? dfgnn__gather_bytes(l.blocks * (fields + 1) * width, scalar)
           : 0);
  l.bytes = l.partial +
            (item_edges ? dfgnn__gather_bytes(dfgnn__gather_item_slots(
                                                  setting->matrix, item_edges) *
                                                  width * sums_of(p),
                                              scalar)
                        : 0);
  return l;
}

/* ---- arguments ----------------------------------------------------------- */

typedef struct tensor_argument {
  feature_tensor *to;
  const char *name;
  const void *data;
  const dfgnn_strides *strides;
} tensor_argument;

enum { TENSORS = 6 };

static int list_tensors(tensor_argument *list, message_params *p, int pass,
                        const dfgnn_args *a) {
  feature_tensor *table = &p->gather.table, *out = &p->gather.out;
  const tensor_argument forward[] = {
      {table, "value", a->value, &a->value_strides},
      {out, "out", a->out, &a->out_strides},
      {&p->own_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->far_gate, "gate_src", a->gate_src, &a->gate_src_strides}};
  const tensor_argument columns[] = {
      {table, "grad_out", a->grad_out, &a->grad_out_strides},
      {&p->own, "value", a->value, &a->value_strides},
      {out, "grad_value", a->grad_value, &a->grad_value_strides},
      {&p->own_gate, "gate_src", a->gate_src, &a->gate_src_strides},
      {&p->far_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->out_gate, "grad_gate_src", a->grad_gate_src,
       &a->grad_gate_src_strides}};
  const tensor_argument rows[] = {
      {table, "value", a->value, &a->value_strides},
      {&p->own, "grad_out", a->grad_out, &a->grad_out_strides},
      {out, "grad_gate_dst", a->grad_gate_dst, &a->grad_gate_dst_strides},
      {&p->own_gate, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->far_gate, "gate_src", a->gate_src, &a->gate_src_strides}};
  const tensor_argument *all[] = {forward, columns, rows};
  static const int counts[] = {4, 6, 5};
  for (int i = 0; i < counts[pass]; i++)
    list[i] = all[pass][i];
  return counts[pass];
}

/* Which scales belong to the rows, and which to what they gather. */
static void fill_scales(message_params *p, const message_call *call, int pass) {
  const dfgnn_args *args = call->launch->args;
  gather_params *g = &p->gather;
  g->row_scale = pass == MESSAGE_COLUMNS ? args->scale_src : call->scale_dst;
  g->gathered_scale =
      pass == MESSAGE_COLUMNS ? call->scale_dst : args->scale_src;
  g->mean = pass == MESSAGE_FORWARD &&
            call->launch->setting.problem->op == DFGNN_OP_SPMM_MEAN;
}

/* Fills the parameters and finds the program for the tensors given, which may
 * need another shape. */
static dfgnn_status prepare(message_params *p, dfgnn_program *program,
                            gather_shape *shape, const message_call *call,
                            const dfgnn_matrix *matrix, int pass) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  const int given = problem->edge_dim == DFGNN_EDGE_PROJECTED;
  tensor_argument list[TENSORS];
  const message_params none = {.attr = args->edge_attr, .matrix = call->matrix};
  *p = none;
  dfgnn__gather_fill(&p->gather, problem, matrix);
  if (pass == MESSAGE_COLUMNS)
    p->gather.edge_ids =
        (csr_offsets){call->transpose->array[2], matrix->offsets64};
  if (pass == MESSAGE_COLUMNS && given)
    p->grad_attr = args->grad_edge_attr;
  fill_scales(p, call, pass);
  *shape = call->shape;
  const int count = list_tensors(list, p, pass, args);
  int aligned =
      (uintptr_t)args->edge_attr % 16 == 0 && (uintptr_t)p->grad_attr % 16 == 0;
  aligned |= !given;
  for (int i = 0; i < count; i++) {
    dfgnn_status status =
        dfgnn__gather_tensor(list[i].to, list[i].name, list[i].data,
                             list[i].strides, problem->dtype);
    if (status)
      return status;
    aligned &= dfgnn__gather_aligned(&p->gather, list[i].to, problem->dtype);
  }
  if (shape->vector > 1 && !aligned)
    dfgnn__gather_narrow(shape, p->gather.width);
  if (find_program(program, problem->dtype,
                   instance(problem, pass, args->edge_attr), shape,
                   p->gather.width))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     (long long)problem->heads, (long long)problem->dim);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status merge(message_params *p, const dfgnn_view *items,
                          const dfgnn_launch *launch, int sums) {
  int columns = dfgnn__ceil_power(p->gather.width);
  const void *heavy = items->array[3];
  columns = columns < 32              ? 32
            : columns > MERGE_THREADS ? MERGE_THREADS
                                      : columns;
  void *arguments[] = {p, &heavy, &columns};
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/message/cuda/merge.cuh", "dfgnn::merge_messages",
                    DFGNN_TYPE(launch->setting.problem->dtype), sums);
  const dfgnn_grid grid = {.blocks = {(unsigned)items->extra},
                           .threads = MERGE_THREADS};
  return items->extra
             ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
             : DFGNN_OK;
}

static dfgnn_status run_pass(const message_call *call, int pass) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_view *items =
      pass == MESSAGE_ROWS ? call->row_items : call->items;
  const dfgnn_matrix matrix =
      pass == MESSAGE_COLUMNS
          ? dfgnn__transposed(launch->setting.matrix, call->transpose)
          : *launch->setting.matrix;
  message_params p;
  dfgnn_program program;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &program, &shape, call, &matrix, pass);
  if (status)
    return status;
  if (call->order && pass != MESSAGE_ROWS)
    p.gather.schedule.order = call->order->array[0];
  if (items) {
    dfgnn__gather_items(&p.gather, items, &matrix);
    p.gather.partial = (char *)launch->workspace + call->layout.partial;
  }
  /* the parameters begin with those of the gather */
  status = dfgnn__gather_run(&p.gather, &program, &shape, launch, call->warps,
                             call->rows, call->span);
  if (status || !items)
    return status;
  return merge(&p, items, launch,
               pass == MESSAGE_COLUMNS ? sums_of(launch->setting.problem) : 1);
}

int dfgnn__message_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests, int count) {
  if (backward(setting->problem) && setting->problem->edge_dim > 0)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return count;
}

dfgnn_status dfgnn__message_run(message_call *call) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const int given = problem->edge_dim == DFGNN_EDGE_PROJECTED;
  dfgnn_status status = DFGNN_OK;
  call->scale_dst = args->scale_dst;
  if (problem->edge_dim > 0) {
    call->matrix = (char *)launch->workspace + call->layout.matrix;
    status = dfgnn__message_convert(call);
  }
  if (status || !backward(problem))
    return status ? status : run_pass(call, MESSAGE_FORWARD);
  if (problem->op == DFGNN_OP_SPMM_MEAN) {
    void *scales = (char *)launch->workspace + call->layout.scales;
    status = dfgnn__spmm_mean_scales(scales, args->scale_dst, launch);
    call->scale_dst = scales;
  }
  if (!status && (args->grad_value || args->grad_gate_src ||
                  (given && args->grad_edge_attr)))
    status = run_pass(call, MESSAGE_COLUMNS);
  if (!status && args->grad_gate_dst)
    status = run_pass(call, MESSAGE_ROWS);
  if (!status && problem->edge_dim > 0)
    status = dfgnn__message_grade_projection(call);
  return status;
}
