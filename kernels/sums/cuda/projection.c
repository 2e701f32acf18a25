/* projection.c - launches the kernels of the matrix that projects edge
 * features, and of its gradients */
#include "kernels/sums/cuda/sums.h"
#include "lib/base/error.h"

#define SOURCE "kernels/sums/cuda/projection.cuh"

/* Waves of blocks, each of which has sums of its own, and the least tiles of
 * edges of a block. */
enum { BLOCK_WAVES = 2, LEAST_TILES = 4 };

static int64_t feature_tiles(const dfgnn_problem *problem) {
  return dfgnn__ceil_div(dfgnn__gather_width(problem), EDGES_FEATURES);
}

static int parts_of(const dfgnn_problem *problem) {
  return dfgnn__message_parts(problem->message);
}

static int64_t edge_tiles(const dfgnn_matrix *matrix) {
  return dfgnn__ceil_div(matrix->edges, EDGES_TILE);
}

int dfgnn__sums_blocks(const dfgnn_setting *setting) {
  const int64_t resident = (int64_t)setting->device->units * BLOCK_WAVES * 4;
  int64_t blocks = dfgnn__ceil_div(resident, feature_tiles(setting->problem) *
                                                 parts_of(setting->problem));
  const int64_t most =
      dfgnn__ceil_div(edge_tiles(setting->matrix), LEAST_TILES);
  blocks = blocks > most ? most : blocks;
  return blocks < 1 ? 1 : (int)blocks;
}

/* ---- the matrix ---------------------------------------------------------- */

dfgnn_status dfgnn__sums_convert(const sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const message_matrix_params p = {
      .fields = (int)problem->edge_dim,
      .parts = parts_of(problem),
      .width = dfgnn__gather_width(problem),
      .heads = (int)problem->heads,
      .dim = (int)problem->dim,
      .heads_inner = problem->layout == DFGNN_LAYOUT_NDH,
      .matrix = call->launch->args->edge_projection,
      .offset = call->launch->args->edge_bias,
      .to = (void *)call->matrix};
  const dfgnn_program program = DFGNN_PROGRAM(SOURCE, "dfgnn::message_matrix",
                                              DFGNN_TYPE(problem->dtype));
  const dfgnn_grid grid = {
      .blocks = {(unsigned)dfgnn__ceil_div(
          (int64_t)(p.fields + 1) * p.parts * p.width, 256)},
      .threads = 256};
  return dfgnn__launch_struct(call->launch->setting.queue, &program, grid, &p);
}

/* ---- gradients ----------------------------------------------------------- */

static dfgnn_status fill(message_edges_params *p, const sums_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_matrix *m = call->launch->setting.matrix;
  const dfgnn_args *a = call->launch->args;
  *p = (message_edges_params){
      .edges = m->edges,
      .fields = (int)problem->edge_dim,
      .width = dfgnn__gather_width(problem),
      .heads = (int)problem->heads,
      .dim = (int)problem->dim,
      .heads_inner = problem->layout == DFGNN_LAYOUT_NDH,
      .tiles = (int)feature_tiles(problem),
      .offsets = dfgnn__gather_offsets(m),
      .indices = m->indices,
      .row_of_edge = call->row_of_edge->array[0],
      .scale_dst = call->scale_dst,
      .scale_src = call->scale_src,
      .arg = problem->op == DFGNN_OP_REDUCE_MAX ? a->arg_max : a->arg_min,
      .arg2 = a->arg_max,
      .coefficient = call->coefficient,
      .offset = call->offset,
      .attr = a->edge_attr,
      .matrix = call->matrix,
      .grad_attr = a->grad_edge_attr,
      .sums = (char *)call->launch->workspace + call->layout.sums};
  const sums_tensor tensors[] = {
      {&p->value, "value", a->value, &a->value_strides},
      {&p->grad_out, "grad_out", a->grad_out, &a->grad_out_strides},
      {&p->gate_dst, "gate_dst", a->gate_dst, &a->gate_dst_strides},
      {&p->gate_src, "gate_src", a->gate_src, &a->gate_src_strides},
      {&p->grad_min, "grad_out_min", a->grad_out_min, &a->grad_out_strides},
      {&p->grad_max, "grad_out_max", a->grad_out_max, &a->grad_out_strides},
      {&p->mean, "out", a->out, &a->out_strides}};
  return dfgnn__sums_find_tensors(
      tensors, problem->op == DFGNN_OP_REDUCE_PNA ? 7 : 4, problem->dtype);
}

static unsigned shared_bytes(const dfgnn_problem *problem, int stride) {
  const int64_t fields = problem->edge_dim + 1;
  return (unsigned)((EDGES_TILE * fields + fields * EDGES_FEATURES +
                     EDGES_TILE * stride) *
                    (int64_t)dfgnn__scalar_size(problem->dtype));
}

static dfgnn_status run_tiles(const sums_call *call, const char *name,
                              message_edges_params *p, unsigned blocks,
                              unsigned tiles, int stride) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_program program = {.source = SOURCE,
                                 .name = name,
                                 .count = 3,
                                 .constant = {DFGNN_TYPE(problem->dtype),
                                              dfgnn__sums_message_bits(problem),
                                              p->fields}};
  const dfgnn_grid grid = {.blocks = {blocks, tiles},
                           .threads = EDGES_THREADS,
                           .shared = shared_bytes(problem, stride)};
  return dfgnn__launch_struct(call->launch->setting.queue, &program, grid, p);
}

static dfgnn_status add_parameters(const sums_call *call,
                                   const message_edges_params *e, int blocks) {
  const dfgnn_args *args = call->launch->args;
  const int wide = call->launch->setting.problem->dtype == DFGNN_F64;
  const message_parameters_params p = {
      .blocks = blocks,
      .fields = e->fields,
      .parts = parts_of(call->launch->setting.problem),
      .width = e->width,
      .heads = e->heads,
      .dim = e->dim,
      .heads_inner = e->heads_inner,
      .sums = e->sums,
      .grad_matrix = args->grad_edge_projection,
      .grad_offset = args->grad_edge_bias};
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::message_parameter_sums",
                    DFGNN_TYPE(wide ? DFGNN_F64 : DFGNN_F32));
  const dfgnn_grid grid = {
      .blocks = {(unsigned)dfgnn__ceil_div(
          (int64_t)(p.fields + 1) * p.parts * p.width, 256)},
      .threads = 256};
  return dfgnn__launch_struct(call->launch->setting.queue, &program, grid, &p);
}

dfgnn_status dfgnn__sums_grade_projection(const sums_call *call) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_args *args = call->launch->args;
  const int64_t tiles = edge_tiles(setting->matrix);
  message_edges_params p;
  if (tiles > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld edges are too many: a grid has 2^31 tiles of %d",
                       (long long)setting->matrix->edges, EDGES_TILE);
  dfgnn_status status = fill(&p, call);
  if (!status && args->grad_edge_attr && tiles > 0)
    status = run_tiles(call, "dfgnn::message_fields", &p, (unsigned)tiles, 1,
                       EDGES_FEATURES + 1);
  if (status || (!args->grad_edge_projection && !args->grad_edge_bias))
    return status;
  p.chunks = (int)dfgnn__ceil_div(tiles, call->layout.blocks);
  DFGNN_TRY(run_tiles(
      call, "dfgnn::message_parameters", &p, (unsigned)call->layout.blocks,
      (unsigned)(p.tiles * parts_of(setting->problem)), EDGES_FEATURES));
  return add_parameters(call, &p, call->layout.blocks);
}
