/* sums.c - workspaces, views and passes of sums, reductions and messages on a
 * GPU */
#include "kernels/sums/cuda/sums.h"

#include "lib/base/error.h"

#define MERGE_SOURCE "kernels/sums/cuda/merge.cuh"

/* ---- the workspace ------------------------------------------------------- */

/* The numbers of a partial result per feature, in the pass that has most. */
static int parts_of(const dfgnn_problem *problem) {
  const int found = dfgnn__sums_found(problem);
  const int parts = (found & REDUCE_MIN ? 2 : 0) +
                    (found & REDUCE_MAX ? 2 : 0) +
                    (found & REDUCE_MOMENTS ? 3 : 0);
  if (dfgnn__sums_backward(problem))
    return found == REDUCE_MOMENTS ? parts : dfgnn__sums_gated(problem) ? 2 : 1;
  return found ? parts : 1;
}

int64_t dfgnn__sums_longest(const dfgnn_setting *setting) {
  return dfgnn__sums_backward(setting->problem)
             ? setting->signature->max_source_degree
             : setting->matrix->max_degree;
}

int64_t dfgnn__sums_hub(const dfgnn_setting *setting) {
  const int64_t longest = dfgnn__sums_longest(setting);
  return longest > SUMS_HUB_EDGES ? longest : 0;
}

sums_layout dfgnn__sums_layout(const dfgnn_setting *setting, int item_edges) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  const size_t scalar = dfgnn__scalar_size(p->dtype);
  const int64_t width = dfgnn__gather_width(p);
  const int64_t rows = dfgnn__sums_backward(p) ? m->destinations : 0;
  const int64_t fields = p->edge_dim > 0 ? p->edge_dim + 1 : 0; /* an offset */
  const int64_t matrix = fields * width * dfgnn__message_parts(p->message);
  const int64_t table =
      dfgnn__sums_found(p) & REDUCE_MOMENTS ? rows * width : 0;
  const int64_t slots =
      item_edges ? dfgnn__gather_item_slots(m, item_edges) : 0;
  sums_layout l = {.blocks = fields ? dfgnn__sums_blocks(setting) : 0};
  l.scales = dfgnn__place(&l.bytes, dfgnn__sums_averages(p) ? rows : 0, scalar);
  l.matrix = dfgnn__place(&l.bytes, matrix, scalar);
  l.sums = dfgnn__place(
      &l.bytes, dfgnn__sums_backward(p) ? l.blocks * matrix : 0, scalar);
  l.coefficient = dfgnn__place(&l.bytes, table, scalar);
  l.offset = dfgnn__place(&l.bytes, table, scalar);
  l.partial = dfgnn__place(&l.bytes, slots * parts_of(p) * width, scalar);
  return l;
}

static void *at(const sums_call *call, size_t offset) {
  return (char *)call->launch->workspace + offset;
}

/* ---- views --------------------------------------------------------------- */

int dfgnn__sums_views(const dfgnn_setting *setting,
                      dfgnn_view_request *requests, sums_walk walk,
                      dfgnn_view_kind kind, int64_t parameter) {
  const dfgnn_problem *problem = setting->problem;
  const int backward = dfgnn__sums_backward(problem);
  int count = 0;
  if (backward)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  if (kind != DFGNN_VIEW_NONE)
    requests[count++] = (dfgnn_view_request){
        .kind = kind,
        .parameter = kind == DFGNN_VIEW_WORK_ITEMS ? parameter : 0,
        .transposed = backward};
  if (walk == SUMS_OVER_BLOCKS)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                             .parameter = parameter,
                                             .transposed = backward};
  if (walk == SUMS_OVER_BLOCKS && dfgnn__sums_hub(setting))
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                             .parameter = SUMS_HUB_EDGES,
                                             .transposed = backward};
  if (kind == DFGNN_VIEW_WORK_ITEMS && dfgnn__sums_walks_rows(problem))
    requests[count++] =
        (dfgnn_view_request){.kind = kind, .parameter = parameter};
  if (backward && !dfgnn__sums_copies(problem) && problem->edge_dim > 0)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return count;
}

static void take_views(sums_call *call, dfgnn_view_kind kind,
                       int64_t parameter) {
  const dfgnn_setting *setting = &call->launch->setting;
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const int count =
      dfgnn__sums_views(setting, requests, call->walk, kind, parameter);
  for (int i = 0; i < count; i++) {
    const dfgnn_view *view = call->launch->views[i];
    switch (requests[i].kind) {
    case DFGNN_VIEW_TRANSPOSE:
      call->transpose = view;
      break;
    case DFGNN_VIEW_DEGREE_ORDER:
    case DFGNN_VIEW_PLACE_ORDER:
      call->order = view;
      break;
    case DFGNN_VIEW_ROW_OF_EDGE:
      call->row_of_edge = view;
      break;
    default:
      if (call->walk == SUMS_OVER_BLOCKS && call->items)
        call->hubs = view;
      else if (call->items)
        call->row_items = view;
      else
        call->items = view;
    }
  }
}

/* ---- programs -------------------------------------------------------------
 */

/* Finds the program for the arguments, which may need another shape. */
static dfgnn_status find_program(dfgnn_program *program, gather_shape *shape,
                                 const sums_kernel *kernel,
                                 const gather_params *p, int pass, int vector,
                                 const dfgnn_problem *problem) {
  if (vector == 1)
    dfgnn__gather_narrow(shape, p->width);
  shape->vector = vector;
  if (kernel->kind == SUMS_GRADE && shape->vector == 1)
    *shape = (gather_shape){1, shape->lanes, 1, 4};
  /* Shapes of gradients may have 2 edges in flight, those of moments have 4. */
  if (pass == SUMS_MOMENTS && shape->vector > 1)
    shape->unroll = 4;
  if (dfgnn__sums_program(program, problem->dtype, kernel, shape, p->width))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     (long long)problem->heads, (long long)problem->dim);
}

/* ---- rows that were cut -------------------------------------------------- */

/* Features that a thread which merges sums has at a time. */
static int merge_vector(const gather_shape *shape) {
  return shape->vector > 4 ? 4 : shape->vector;
}

static dfgnn_status launch_merge(const dfgnn_program *program, gather_params *p,
                                 int vector, int64_t blocks, const int *heavy,
                                 const dfgnn_queue *queue) {
  const int needed = dfgnn__ceil_power(dfgnn__ceil_div(p->width, vector));
  const int least = 32 / vector;
  int columns = needed < least           ? least
                : needed > MERGE_THREADS ? MERGE_THREADS
                                         : needed;
  void *arguments[] = {p, &heavy, &columns};
  const dfgnn_grid grid = {
      .blocks = {(unsigned)blocks}, .threads = MERGE_THREADS, .overlaps = 1};
  return blocks ? dfgnn__launch(queue, program, grid, arguments) : DFGNN_OK;
}

static dfgnn_status merge_items(gather_params *p, const sums_kernel *kernel,
                                const gather_shape *shape,
                                const dfgnn_view *items,
                                const dfgnn_launch *launch) {
  const int type = DFGNN_TYPE(launch->setting.problem->dtype);
  const int gates = kernel->kind == SUMS_ADD_MESSAGES &&
                    (kernel->what & MESSAGE_PASS) == SUMS_COLUMNS &&
                    kernel->what & MESSAGE_GATED;
  const int found =
      kernel->kind == SUMS_FIND || kernel->kind == SUMS_FIND_MESSAGES;
  const int vector = found ? 1 : merge_vector(shape);
  const dfgnn_program add = DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::merge_sums",
                                          type, gates ? 2 : 1, vector);
  const dfgnn_program find =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::merge_found", type, kernel->found);
  return launch_merge(found ? &find : &add, p, vector, items->extra,
                      items->array[3], launch->setting.queue);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status run_blocks(gather_params *p, const dfgnn_program *program,
                               const gather_shape *shape,
                               const sums_kernel *kernel, const sums_call *call,
                               const dfgnn_matrix *matrix) {
  p->schedule.heavy = call->items->array[3];
  p->schedule.heavy_rows = (int)call->items->extra;
  p->schedule.item_edges = (int)call->items->request.parameter;
  gather_params merged = *p;
  if (call->hubs) {
    dfgnn__gather_items(&merged, call->hubs, matrix);
    merged.partial = at(call, call->layout.partial);
    p->partial = merged.partial;
    p->schedule.row_item = merged.schedule.row_item;
    p->schedule.extra_items = merged.schedule.extra_items;
    p->schedule.hubs = call->hubs->array[3];
    p->schedule.hub_rows = (int)call->hubs->extra;
    p->schedule.hub_edges = SUMS_HUB_EDGES;
    p->schedule.hub_blocks = (int)dfgnn__ceil_div(
        dfgnn__sums_hub(&call->launch->setting), SUMS_HUB_EDGES);
  }
  dfgnn_status status = dfgnn__gather_run(p, program, shape, call->launch,
                                          call->warps, call->rows, GATHER_ONCE);
  return status || !call->hubs
             ? status
             : merge_items(&merged, kernel, shape, call->hubs, call->launch);
}

static dfgnn_status run_pass(const sums_call *call, int pass) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_problem *problem = launch->setting.problem;
  const int first = pass == SUMS_FORWARD || pass == SUMS_COLUMNS;
  const dfgnn_view *items = first ? call->items : call->row_items;
  const dfgnn_matrix matrix =
      pass == SUMS_COLUMNS
          ? dfgnn__transposed(launch->setting.matrix, call->transpose)
          : *launch->setting.matrix;
  gather_params p;
  dfgnn_program program;
  gather_shape shape = call->shape;
  int vector = shape.vector;
  DFGNN_TRY(dfgnn__sums_fill(&p, &vector, call, pass, &matrix));
  const sums_kernel kernel = dfgnn__sums_kernel(problem, pass, call->walk, &p);
  DFGNN_TRY(find_program(&program, &shape, &kernel, &p, pass, vector, problem));
  if (call->order && first)
    p.schedule.order = call->order->array[0];
  if (call->walk == SUMS_OVER_BLOCKS)
    return run_blocks(&p, &program, &shape, &kernel, call, &matrix);
  if (items) {
    dfgnn__gather_items(&p, items, &matrix);
    p.partial = at(call, call->layout.partial);
  }
  dfgnn_status status = dfgnn__gather_run(&p, &program, &shape, launch,
                                          call->warps, call->rows, call->span);
  return status || !items ? status
                          : merge_items(&p, &kernel, &shape, items, launch);
}

/* ---- tables by destination, for backward passes -------------------------- */

/* Divides the scales of the destinations by their degrees. */
static dfgnn_status fill_scales(sums_call *call) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const int wide = launch->setting.problem->dtype == DFGNN_F64;
  void *to = at(call, call->layout.scales);
  csr_offsets offsets = dfgnn__gather_offsets(matrix);
  int rows = (int)matrix->destinations;
  void *arguments[] = {&to, &call->scale_dst, &offsets, &rows};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::mean_scales",
                    DFGNN_TYPE(wide ? DFGNN_F64 : DFGNN_F32));
  const dfgnn_grid grid = {.blocks = {(unsigned)dfgnn__ceil_div(rows, 256)},
                           .threads = 256};
  dfgnn_status status =
      rows ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
           : DFGNN_OK;
  call->scale_dst = to;
  return status;
}

/* PNA's mean and deviation give a message m the gradient
 * offset + coefficient (m - mean). */
static dfgnn_status fill_tables(const sums_call *call) {
  const dfgnn_launch *launch = call->launch;
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  int rows = (int)launch->setting.matrix->destinations;
  feature_tensor grad, grad_std, std;
  gather_params p;
  dfgnn__gather_fill(&p, problem, launch->setting.matrix);
  dfgnn__sums_fill_grades(&p, call);
  const sums_tensor list[] = {
      {&grad, "grad_out", a->grad_out, &a->grad_out_strides},
      {&grad_std, "grad_out_std", a->grad_out_std, &a->grad_out_strides},
      {&std, "out_std", a->out_std, &a->out_strides}};
  DFGNN_TRY(dfgnn__sums_find_tensors(list, 3, problem->dtype));
  const int64_t blocks = dfgnn__ceil_div((int64_t)rows * p.width, 256);
  void *arguments[] = {&p, &grad, &grad_std, &std, &rows};
  const dfgnn_program program = DFGNN_PROGRAM(
      MERGE_SOURCE, "dfgnn::fill_tables", DFGNN_TYPE(problem->dtype));
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks}, .threads = 256};
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%d rows of %d features are too many: a grid has 2^31 "
                       "blocks of 256 features",
                       rows, p.width);
  return blocks
             ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
             : DFGNN_OK;
}

/* ---- calls --------------------------------------------------------------- */

static dfgnn_status prepare_backward(sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const int found = dfgnn__sums_found(problem);
  if (dfgnn__sums_averages(problem))
    return fill_scales(call);
  if (!(found & REDUCE_MOMENTS))
    return DFGNN_OK;
  call->coefficient = at(call, call->layout.coefficient);
  call->offset = at(call, call->layout.offset);
  return found == REDUCE_ALL ? fill_tables(call) : run_pass(call, SUMS_MOMENTS);
}

static dfgnn_status run_backward(sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  const int copies = dfgnn__sums_copies(problem);
  const int columns =
      args->grad_value ||
      (!copies &&
       (args->grad_gate_src ||
        (problem->edge_dim == DFGNN_EDGE_PROJECTED && args->grad_edge_attr)));
  dfgnn_status status = columns || !copies ? prepare_backward(call) : DFGNN_OK;
  if (!status && columns)
    status = run_pass(call, SUMS_COLUMNS);
  if (status)
    return status;
  if (copies)
    return problem->op == DFGNN_OP_SPMM_WEIGHTED && args->grad_edge_weight
               ? dfgnn__sums_grade_weights(call->launch)
               : DFGNN_OK;
  if (args->grad_gate_dst)
    status = run_pass(call, SUMS_ROWS);
  return !status && problem->edge_dim > 0 ? dfgnn__sums_grade_projection(call)
                                          : status;
}

static void set_scales(sums_call *call) {
  const dfgnn_args *args = call->launch->args;
  if (DFGNN_BIT(call->launch->setting.problem->op) & DFGNN_OPS_SPMM) {
    call->scale_dst = args->scale_dst;
    call->scale_src = args->scale_src;
  }
}

static dfgnn_status run(sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  dfgnn_status status = DFGNN_OK;
  set_scales(call);
  if (!dfgnn__sums_copies(problem) && problem->edge_dim > 0) {
    call->matrix = at(call, call->layout.matrix);
    status = dfgnn__sums_convert(call);
  }
  if (status)
    return status;
  return dfgnn__sums_backward(problem) ? run_backward(call)
                                       : run_pass(call, SUMS_FORWARD);
}

dfgnn_status dfgnn__sums_launch(sums_call *call, const int *shape,
                                dfgnn_view_kind kind, int64_t parameter) {
  const dfgnn_setting *setting = &call->launch->setting;
  const char *reason = dfgnn__sums_refusal(&call->shape, setting, call->walk,
                                           shape[0], shape[1], shape[2]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  const int items = call->walk == SUMS_OVER_BLOCKS
                        ? dfgnn__sums_hub(setting) ? SUMS_HUB_EDGES : 0
                    : kind == DFGNN_VIEW_WORK_ITEMS ? (int)parameter
                                                    : 0;
  call->layout = dfgnn__sums_layout(setting, items);
  take_views(call, kind, parameter);
  return run(call);
}
