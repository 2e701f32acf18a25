/* message.c - shapes, arguments and passes of sums and reductions of messages
 * on a GPU */
#include "base/error.h"
#include "kernels/message/cuda/message_host.h"
#include "kernels/reduce/cuda/reduce.h"
#include "kernels/spmm/cuda/spmm.h"

#define SOURCE "kernels/message/cuda/message.cuh"
#define REDUCE_SOURCE "kernels/message/cuda/reduce.cuh"

/* ---- shapes -------------------------------------------------------------- */

/* Lanes, vectors, edges in flight. */
/* clang-format off */
const gather_choice dfgnn__message_shapes[] = {
    {32, 1, 2}, {32, 1, 4}, {32, 2, 2}, {16, 1, 2}, {16, 1, 4}, {16, 2, 2},
    {8, 1, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {4, 2, 2}, {0}};
/* clang-format on */

static int backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int gated(const dfgnn_problem *problem) {
  return dfgnn__message_gated(problem->message);
}

static int is_mean(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

/* The REDUCE_... bits of a reduction, which keeps the edges of its extremes; 0:
 * the operator is a sum. */
static int found_by(const dfgnn_problem *problem) {
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return REDUCE_MIN | REDUCE_ARG;
  case DFGNN_OP_REDUCE_MAX:
    return REDUCE_MAX | REDUCE_ARG;
  case DFGNN_OP_REDUCE_PNA:
    return REDUCE_ALL | REDUCE_ARG;
  default:
    return 0;
  }
}

static int bits_of(const dfgnn_problem *problem) {
  const int grade = !found_by(problem) || !backward(problem) ? 0
                    : problem->op == DFGNN_OP_REDUCE_PNA     ? MESSAGE_MOMENTS
                                                             : MESSAGE_PICK;
  return (gated(problem) ? MESSAGE_GATED : 0) |
         (dfgnn__message_parts(problem->message) > 1 ? MESSAGE_VALUE : 0) |
         grade;
}

static const int *extreme_of(const dfgnn_problem *problem,
                             const dfgnn_args *args) {
  return problem->op == DFGNN_OP_REDUCE_MAX ? args->arg_max : args->arg_min;
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

/* The constants of an instance in one number, for dfgnn__gather_refusal: the
 * MESSAGE_... bits, edge_dim + 1, and the REDUCE_... bits of a forward pass. */
enum { WHAT_BITS = 16, FIELD_BITS = 8 };

static int instance(const dfgnn_problem *problem, int pass, const void *attr) {
  const int what =
      pass | bits_of(problem) |
      (problem->edge_dim > 0 ? MESSAGE_TOGETHER * together(problem, attr) : 0);
  const int found = pass == MESSAGE_FORWARD ? found_by(problem) : 0;
  return what | (int)(problem->edge_dim + 1) << WHAT_BITS |
         found << (WHAT_BITS + FIELD_BITS);
}

/* Fills the program of a shape; 0 if there is none.  PNA takes so many
 * registers an edge and row that its lanes have one vector and fewer edges in
 * flight. */
static int find_program(dfgnn_program *program, dfgnn_dtype dtype, int instance,
                        const gather_shape *shape, int width) {
  const int what = instance & ((1 << WHAT_BITS) - 1);
  const int fields = (instance >> WHAT_BITS & ((1 << FIELD_BITS) - 1)) - 1;
  const int found = instance >> (WHAT_BITS + FIELD_BITS);
  const int moments = found & REDUCE_MOMENTS || what & MESSAGE_MOMENTS;
  const int unroll = moments && shape->vector > 1
                         ? (shape->vector > 4 ? 1 : shape->unroll / 2)
                         : shape->unroll;
  const dfgnn_program sums = DFGNN_PROGRAM(
      SOURCE, "dfgnn::message_rows", DFGNN_TYPE(dtype), shape->vector,
      shape->lanes, shape->vectors, unroll, what, fields, width);
  const dfgnn_program reductions = DFGNN_PROGRAM(
      REDUCE_SOURCE, "dfgnn::reduce_messages", DFGNN_TYPE(dtype), shape->vector,
      shape->lanes, shape->vectors, unroll, found, what, fields, width);
  *program = found ? reductions : sums;
  if (moments && shape->vector > 1 && shape->vectors > 1)
    return 0;
  return dfgnn__gather_listed(shape->vector == 1 ? dfgnn__gather_narrow_shapes
                                                 : dfgnn__message_shapes,
                              shape->lanes, shape->vectors, shape->unroll);
}

/* Must elements be loaded one by one?  Edge features that the caller projected
 * have heads first, so where the layout has heads last no vector of theirs fits
 * one of nodes. */
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
    return "messages are copies of nodes, which spmm and reduce serve";
  if (problem->edge_dim > DFGNN_MESSAGE_FIELDS)
    return "more than 64 features an edge: pass them projected";
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

/* The numbers of a partial result per feature. */
static int parts_of(const dfgnn_problem *problem) {
  const int found = backward(problem) ? 0 : found_by(problem);
  return !found ? sums_of(problem) : found & REDUCE_MOMENTS ? 7 : 2;
}

static size_t table_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  return backward(p) && p->op == DFGNN_OP_REDUCE_PNA
             ? dfgnn__gather_bytes(setting->matrix->destinations *
                                       dfgnn__gather_width(p),
                                   dfgnn__scalar_size(p->dtype))
             : 0;
}

message_layout dfgnn__message_layout(const dfgnn_setting *setting,
                                     int item_edges) {
  const dfgnn_problem *p = setting->problem;
  const size_t scalar = dfgnn__scalar_size(p->dtype);
  const int64_t width = dfgnn__gather_width(p);
  const int64_t fields = p->edge_dim > 0 ? p->edge_dim : 0;
  const int64_t rows = width * dfgnn__message_parts(p->message);
  message_layout l = {.blocks = dfgnn__message_blocks(setting)};
  l.matrix = dfgnn__spmm_scale_bytes(setting);
  l.sums = l.matrix +
           (fields ? dfgnn__gather_bytes((fields + 1) * rows, scalar) : 0);
  l.tables = l.sums +
             (fields && backward(p)
                  ? dfgnn__gather_bytes(l.blocks * (fields + 1) * rows, scalar)
                  : 0);
  l.partial = l.tables + 2 * table_bytes(setting);
  l.bytes = l.partial +
            (item_edges ? dfgnn__gather_bytes(dfgnn__gather_item_slots(
                                                  setting->matrix, item_edges) *
                                                  width * parts_of(p),
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

/* Sets the scales of the rows and of the nodes that they gather. */
static void fill_scales(message_params *p, const message_call *call, int pass) {
  const int columns = pass == MESSAGE_COLUMNS;
  gather_params *g = &p->gather;
  g->row_scale = columns ? call->scale_src : call->scale_dst;
  g->gathered_scale = columns ? call->scale_dst : call->scale_src;
  g->mean = pass == MESSAGE_FORWARD && is_mean(call->launch->setting.problem);
}

/* Sets the tensors that a reduction writes beside its first result. */
static void fill_results(gather_params *g, const dfgnn_problem *problem,
                         const dfgnn_args *args) {
  g->arg_min = problem->op == DFGNN_OP_REDUCE_MAX ? NULL : args->arg_min;
  g->arg_max = problem->op == DFGNN_OP_REDUCE_MIN ? NULL : args->arg_max;
  if (problem->op != DFGNN_OP_REDUCE_PNA)
    return;
  g->out_min = args->out_min;
  g->out_max = args->out_max;
  g->out_std = args->out_std;
}

/* Sets the tensors by destination that the gradient of a reduction's message
 * reads. */
static dfgnn_status fill_grades(gather_params *g, const message_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  g->row_offsets = dfgnn__gather_offsets(call->launch->setting.matrix);
  g->row_arg = call->extreme;
  if (problem->op != DFGNN_OP_REDUCE_PNA)
    return DFGNN_OK;
  g->row_arg2 = args->arg_max;
  g->coefficient = call->coefficient;
  g->offset = call->offset;
  dfgnn_status status =
      dfgnn__gather_tensor(&g->grad_min, "grad_out_min", args->grad_out_min,
                           &args->grad_out_strides, problem->dtype);
  if (!status)
    status =
        dfgnn__gather_tensor(&g->grad_max, "grad_out_max", args->grad_out_max,
                             &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&g->mean_out, "out", args->out,
                                  &args->out_strides, problem->dtype);
  return status;
}

/* Are the tensors that list_tensors() leaves out fit for 16-byte loads? */
static int others_aligned(const gather_params *g, const dfgnn_args *args,
                          const dfgnn_problem *problem, int pass) {
  const void *const arrays[] = {g->arg_min, g->arg_max, g->row_arg,
                                g->row_arg2};
  int aligned = dfgnn__gather_aligned(g, &g->grad_min, problem->dtype) &&
                dfgnn__gather_aligned(g, &g->grad_max, problem->dtype) &&
                dfgnn__gather_aligned(g, &g->mean_out, problem->dtype);
  for (int i = 0; i < 4; i++)
    aligned &= (uintptr_t)arrays[i] % 16 == 0;
  if (pass != MESSAGE_FORWARD || problem->op != DFGNN_OP_REDUCE_PNA)
    return aligned;
  return aligned && (uintptr_t)args->out_min % 16 == 0 &&
         (uintptr_t)args->out_max % 16 == 0 &&
         (uintptr_t)args->out_std % 16 == 0;
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
  if (found_by(problem) && pass == MESSAGE_FORWARD) {
    p->gather.square_root = 1;
    fill_results(&p->gather, problem, args);
  } else if (found_by(problem)) {
    dfgnn_status status = fill_grades(&p->gather, call);
    if (status)
      return status;
  }
  *shape = call->shape;
  const int count = list_tensors(list, p, pass, args);
  int aligned =
      (uintptr_t)args->edge_attr % 16 == 0 && (uintptr_t)p->grad_attr % 16 == 0;
  aligned |= !given;
  aligned &= others_aligned(&p->gather, args, problem, pass);
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
  const int found = found_by(launch->setting.problem);
  if (found && pass == MESSAGE_FORWARD)
    return dfgnn__reduce_merge_items(&p.gather, items, launch, found);
  return merge(&p, items, launch,
               pass == MESSAGE_COLUMNS ? sums_of(launch->setting.problem) : 1);
}

/* Fills PNA's tables: mean and deviation give a message m the gradient
 * offset + coefficient (m - mean). */
static dfgnn_status fill_tables(message_call *call) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  feature_tensor grad, grad_std, std;
  gather_params p;
  call->coefficient = (char *)launch->workspace + call->layout.tables;
  call->offset = (char *)call->coefficient + table_bytes(&launch->setting);
  dfgnn__gather_fill(&p, problem, launch->setting.matrix);
  p.row_offsets = dfgnn__gather_offsets(launch->setting.matrix);
  p.coefficient = call->coefficient;
  p.offset = call->offset;
  dfgnn_status status =
      dfgnn__gather_tensor(&grad, "grad_out", args->grad_out,
                           &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&grad_std, "grad_out_std", args->grad_out_std,
                                  &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&std, "out_std", args->out_std,
                                  &args->out_strides, problem->dtype);
  return status ? status
                : dfgnn__reduce_fill_tables(
                      &p, &grad, &grad_std, &std,
                      (int)launch->setting.matrix->destinations, launch);
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
  call->bits = bits_of(problem);
  call->extreme = extreme_of(problem, args);
  if (problem->op == DFGNN_OP_SPMM_SUM || problem->op == DFGNN_OP_SPMM_MEAN) {
    call->scale_dst = args->scale_dst;
    call->scale_src = args->scale_src;
  }
  if (problem->edge_dim > 0) {
    call->matrix = (char *)launch->workspace + call->layout.matrix;
    status = dfgnn__message_convert(call);
  }
  if (status || !backward(problem))
    return status ? status : run_pass(call, MESSAGE_FORWARD);
  if (is_mean(problem)) {
    void *scales = (char *)launch->workspace + call->layout.scales;
    status = dfgnn__spmm_mean_scales(scales, call->scale_dst, launch);
    call->scale_dst = scales;
  }
  if (!status && problem->op == DFGNN_OP_REDUCE_PNA)
    status = fill_tables(call);
  if (!status && (args->grad_value || args->grad_gate_src ||
                  (given && args->grad_edge_attr)))
    status = run_pass(call, MESSAGE_COLUMNS);
  if (!status && args->grad_gate_dst)
    status = run_pass(call, MESSAGE_ROWS);
  if (!status && problem->edge_dim > 0)
    status = dfgnn__message_grade_projection(call);
  return status;
}
