/* message.c - the CPU families of sums and reductions of messages, forward and
 * backward */
#include "kernels/message/cpu/message.h"

#include <string.h>

#include "kernels/common/cpu_tables.h"
#include "kernels/common/half.h"

DFGNN_CPU_TABLES(dfgnn__cpu_message_kernels, dfgnn_cpu_message_kernels,
                 dfgnn__cpu_message)

/* ---- the workspace ------------------------------------------------------- */

static int backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int gated(const dfgnn_problem *problem) {
  return dfgnn__message_gated(problem->message);
}

/* Is the operator a reduction other than a sum? */
static int reduces(const dfgnn_problem *problem) {
  return !dfgnn__cpu_message_sums(problem->op);
}

static int is_mean(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

static dfgnn_cpu_message_kind kind_of(const dfgnn_problem *problem) {
  return problem->message == DFGNN_MESSAGE_RELU ? DFGNN_CPU_MESSAGE_RELU
         : problem->message == DFGNN_MESSAGE_GATE
             ? DFGNN_CPU_MESSAGE_GATE
             : DFGNN_CPU_MESSAGE_GATE_VALUE;
}

static int64_t width_of(const dfgnn_problem *problem) {
  return problem->heads * problem->dim;
}

static int64_t padded(int64_t count) {
  return (count + DFGNN_CPU_MESSAGE_PAD - 1) / DFGNN_CPU_MESSAGE_PAD *
         DFGNN_CPU_MESSAGE_PAD;
}

/* The gradients of matrix and offset are summed by blocks of edges.  The number
 * of blocks does not depend on that of threads, so that results do not. */
enum { BLOCK_EDGES = 2048, MOST_BLOCKS = 16 };

static int64_t count_blocks(int64_t edges) {
  int64_t blocks = (edges + BLOCK_EDGES - 1) / BLOCK_EDGES;
  return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
}

/* The offsets of the parts of the workspace, and their sizes. */
typedef struct layout {
  size_t scales;     /* scales by destination, for the gradients of means */
  size_t matrix;     /* of the projection */
  size_t by_feature; /* its transpose, for gradients */
  size_t scratch, scratch_bytes;
  size_t sums, sums_bytes; /* of the blocks of edges */
  size_t walk;
} layout;

static layout lay_out(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  size_t scalar = dfgnn__cpu_scalar_bytes(p), next = 0;
  int64_t fields = p->edge_dim > 0 ? p->edge_dim : 0;
  int64_t width = padded(width_of(p)) * dfgnn__message_parts(p->message);
  int64_t padded_fields = padded(fields + 1);
  layout l = {0};
#define PART(part, numbers)                                                    \
  do {                                                                         \
    l.part = next;                                                             \
    next += dfgnn__cpu_aligned((size_t)(numbers)*scalar);                      \
  } while (0)
  PART(scales, backward(p) && is_mean(p) ? setting->matrix->destinations : 0);
  if (fields) {
    l.scratch_bytes =
        dfgnn__cpu_aligned(DFGNN_CPU_MESSAGE_HEAD +
                           DFGNN_CPU_MESSAGE_WINDOW *
                               (size_t)(width + 2 * padded_fields) * scalar);
    l.sums_bytes = dfgnn__cpu_aligned((size_t)((fields + 1) * width) * scalar);
    PART(matrix, (fields + 1) * width);
    PART(by_feature, backward(p) ? width * padded_fields : 0);
    l.scratch = next;
    next += l.scratch_bytes * (size_t)setting->device->units;
    l.sums = next;
    if (backward(p))
      next += l.sums_bytes * (size_t)count_blocks(setting->matrix->edges);
  }
#undef PART
  l.walk = next;
  return l;
}

static size_t state_bytes(const dfgnn_problem *problem) {
  int sums = backward(problem)  ? 1 + gated(problem)
             : reduces(problem) ? DFGNN_CPU_MESSAGE_KNOWN
                                : 1;
  return dfgnn__cpu_aligned((size_t)(sums * width_of(problem)) *
                            dfgnn__cpu_scalar_bytes(problem));
}

static size_t workspace(const dfgnn_setting *setting,
                        dfgnn_cpu_algorithm algorithm) {
  return lay_out(setting).walk +
         dfgnn__cpu_walk_memory(setting, algorithm,
                                state_bytes(setting->problem));
}

/* ---- numbers of every type ----------------------------------------------- */

static double number_at(const void *array, int64_t i, dfgnn_dtype dtype) {
  switch (dtype) {
  case DFGNN_F64:
    return ((const double *)array)[i];
  case DFGNN_F16:
    return dfgnn__f16_to_float(((const uint16_t *)array)[i]);
  case DFGNN_BF16:
    return dfgnn__bf16_to_float(((const uint16_t *)array)[i]);
  default:
    return ((const float *)array)[i];
  }
}

static double scalar_at(const void *array, int64_t i, int wide) {
  return wide ? ((const double *)array)[i] : ((const float *)array)[i];
}

static void set_scalar(void *array, int64_t i, double x, int wide) {
  if (wide)
    ((double *)array)[i] = x;
  else
    ((float *)array)[i] = (float)x;
}

/* ---- the job ------------------------------------------------------------- */

typedef struct call {
  const dfgnn_launch *launch;
  const dfgnn_cpu_message_kernels *kernels;
  dfgnn_cpu_algorithm algorithm;
  layout layout;
  char *memory;
  const void *scale_src, *scale_dst; /* backward, dst has a mean's share */
  dfgnn_cpu_message job;             /* the fields common to all passes */
  dfgnn_cpu_table value, grad_out, gate_dst, gate_src;
} call;

/* Divides the scales of the destinations by their degrees. */
static void divide(void *data, int64_t begin, int64_t end) {
  const call *c = data;
  const dfgnn_matrix *m = c->launch->setting.matrix;
  const void *scale = c->scale_dst;
  int wide = c->launch->setting.problem->dtype == DFGNN_F64;
  for (int64_t i = begin; i < end; i++) {
    int64_t degree = dfgnn__cpu_edge(m->offsets64, m->offsets, i + 1) -
                     dfgnn__cpu_edge(m->offsets64, m->offsets, i);
    double factor = scale ? scalar_at(scale, i, wide) : 1;
    set_scalar(c->memory + c->layout.scales, i,
               degree > 0 ? factor / (double)degree : factor, wide);
  }
}

/* The position in [H, D] of number `at` of a row in the order of pieces. */
static int64_t feature_of(const call *c, int64_t at) {
  const dfgnn_problem *p = c->launch->setting.problem;
  if (c->job.pieces.count > 1 || p->layout != DFGNN_LAYOUT_NDH)
    return at;
  return at % p->heads * p->dim + at / p->heads;
}

/* The number of rows of the caller's matrix: features of all parts. */
static int64_t parameters_of(const call *c) {
  return c->job.width *
         dfgnn__message_parts(c->launch->setting.problem->message);
}

/* The positions of a row of the caller's matrix, [parts, H, D], there and in
 * our padded matrix. */
typedef struct place_of_parameter {
  int64_t given, padded;
} place_of_parameter;

static place_of_parameter find_parameter(const call *c, int64_t k) {
  int64_t width = c->job.width, at = k % width;
  return (place_of_parameter){k - at + feature_of(c, at),
                              k / width * padded(width) + at};
}

static void convert_projection(call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_projection *to = &c->job.projection;
  char *matrix = c->memory + c->layout.matrix;
  char *by_feature = c->memory + c->layout.by_feature;
  int wide = p->dtype == DFGNN_F64;
  int64_t fields = to->fields;
  size_t scalar = dfgnn__cpu_scalar_bytes(p);
  memset(matrix, 0, (size_t)((fields + 1) * to->row) * scalar);
  if (backward(p))
    memset(by_feature, 0, (size_t)(to->row * to->padded_fields) * scalar);
  for (int64_t k = 0; k < parameters_of(c); k++) {
    place_of_parameter place = find_parameter(c, k);
    int64_t i = place.given, at = place.padded;
    for (int64_t f = 0; f < fields; f++) {
      double x = number_at(args->edge_weight, i * fields + f, p->dtype);
      set_scalar(matrix, f * to->row + at, x, wide);
      if (backward(p))
        set_scalar(by_feature, at * to->padded_fields + f, x, wide);
    }
    if (args->edge_bias)
      set_scalar(matrix, fields * to->row + at,
                 number_at(args->edge_bias, i, p->dtype), wide);
  }
  to->matrix = matrix;
  to->by_feature = by_feature;
}

static void make_projection(call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  c->job.projection = (dfgnn_cpu_projection){
      .fields = p->edge_dim,
      .padded_fields = padded(p->edge_dim + 1),
      .padded_width = padded(c->job.width),
      .row = padded(c->job.width) * dfgnn__message_parts(p->message),
      .attr = args->edge_attr,
      .grad_attr = args->grad_edge_attr,
      .scratch = c->memory + c->layout.scratch,
      .scratch_bytes = c->layout.scratch_bytes};
  convert_projection(c);
}

static dfgnn_cpu_table edge_table(const dfgnn_problem *problem,
                                  const void *base) {
  const dfgnn_strides strides = {width_of(problem), problem->dim, 1};
  return dfgnn__cpu_table(problem, base, &strides);
}

/* Sets the dense tables of positions; base stays NULL where there are none. */
static void find_positions(dfgnn_cpu_reduced *to, const dfgnn_problem *p,
                           const dfgnn_args *args) {
  if (p->op != DFGNN_OP_REDUCE_MAX)
    to->arg_min = dfgnn__cpu_dense(p, args->arg_min, sizeof(int32_t));
  if (p->op != DFGNN_OP_REDUCE_MIN)
    to->arg_max = dfgnn__cpu_dense(p, args->arg_max, sizeof(int32_t));
}

/* The tensors that a reduction writes, or that its gradients read. */
static dfgnn_cpu_reduced reduced_of(const dfgnn_problem *p,
                                    const dfgnn_args *args) {
  int back = backward(p);
  const dfgnn_strides *s = back ? &args->grad_out_strides : &args->out_strides;
  dfgnn_cpu_reduced r = {
      .out = dfgnn__cpu_table(p, back ? args->grad_out : args->out, s)};
  if (reduces(p))
    find_positions(&r, p, args);
  if (p->op != DFGNN_OP_REDUCE_PNA)
    return r;
  r.least = dfgnn__cpu_table(p, back ? args->grad_out_min : args->out_min, s);
  r.most = dfgnn__cpu_table(p, back ? args->grad_out_max : args->out_max, s);
  r.std = dfgnn__cpu_table(p, back ? args->grad_out_std : args->out_std, s);
  if (back) {
    r.mean = dfgnn__cpu_table(p, args->out, &args->out_strides);
    r.deviation = dfgnn__cpu_table(p, args->out_std, &args->out_strides);
  }
  return r;
}

static void cut_pieces(call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  size_t size = dfgnn_dtype_size(p->dtype);
  const dfgnn_cpu_reduced *r = &c->job.reduced;
  const dfgnn_cpu_table outs[] = {
      dfgnn__cpu_table(p, args->grad_value, &args->grad_value_strides),
      dfgnn__cpu_table(p, args->grad_gate_src, &args->grad_gate_src_strides),
      dfgnn__cpu_table(p, args->grad_gate_dst, &args->grad_gate_dst_strides)};
  const dfgnn_cpu_table *tables[] = {
      &r->arg_min,  &r->arg_max,  &c->value,    &c->grad_out,
      &c->gate_dst, &c->gate_src, &c->job.attr, &outs[0],
      &outs[1],     &outs[2],     &r->out,      &r->least,
      &r->most,     &r->std,      &r->mean,     &r->deviation};
  enum { TABLES = sizeof tables / sizeof *tables, POSITIONS = 2 };
  size_t elements[TABLES];
  for (int i = 0; i < TABLES; i++)
    elements[i] = i < POSITIONS ? sizeof(int32_t) : size;
  c->job.pieces = dfgnn__cpu_pieces(p, 0, tables, elements, TABLES);
}

static void make_job(call *c) {
  const dfgnn_setting *setting = &c->launch->setting;
  const dfgnn_problem *p = setting->problem;
  const dfgnn_args *args = c->launch->args;
  c->job =
      (dfgnn_cpu_message){.edges = setting->matrix->edges,
                          .width = width_of(p),
                          .rows = setting->matrix->destinations,
                          .offsets64 = setting->matrix->offsets64,
                          .offsets = setting->matrix->offsets,
                          .indices = setting->matrix->indices,
                          .prefetch = setting->parameter[DFGNN_CPU_P_PREFETCH],
                          .kind = kind_of(p),
                          .op = p->op,
                          .reduced = reduced_of(p, args),
                          .row_offsets = setting->matrix->offsets};
  if (p->op == DFGNN_OP_SPMM_SUM || p->op == DFGNN_OP_SPMM_MEAN) {
    c->scale_dst = args->scale_dst;
    c->scale_src = args->scale_src;
  }
  c->value = dfgnn__cpu_table(p, args->value, &args->value_strides);
  if (backward(p))
    c->grad_out = dfgnn__cpu_table(p, args->grad_out, &args->grad_out_strides);
  if (gated(p)) {
    c->gate_dst = dfgnn__cpu_table(p, args->gate_dst, &args->gate_dst_strides);
    c->gate_src = dfgnn__cpu_table(p, args->gate_src, &args->gate_src_strides);
  }
  if (p->edge_dim == DFGNN_EDGE_PROJECTED)
    c->job.attr = edge_table(p, args->edge_attr);
  cut_pieces(c);
  if (p->edge_dim > 0)
    make_projection(c);
}

/* ---- walks --------------------------------------------------------------- */

static void forget_windows(const call *c) {
  int threads = c->launch->setting.device->units;
  const dfgnn_cpu_projection *p = &c->job.projection;
  for (int t = 0; p->scratch && t < threads; t++)
    *(dfgnn_cpu_window *)(p->scratch + (size_t)t * p->scratch_bytes) =
        (dfgnn_cpu_window){0, 0};
}

static void walk(const call *c, const dfgnn_cpu_message *job,
                 const dfgnn_matrix *matrix, dfgnn_cpu_message_pass pass,
                 const dfgnn_view *items) {
  const dfgnn_setting *setting = &c->launch->setting;
  int64_t edge_dim = setting->problem->edge_dim;
  dfgnn_cpu_message_edges edges = edge_dim == 0  ? DFGNN_CPU_EDGES_NONE
                                  : edge_dim < 0 ? DFGNN_CPU_EDGES_GIVEN
                                                 : DFGNN_CPU_EDGES_PROJECTED;
  dfgnn_cpu_walk rows = dfgnn__cpu_walk(matrix, setting->device->units,
                                        c->memory + c->layout.walk);
  dfgnn_cpu_aggregate aggregate = {
      .job = job,
      .pieces = job->pieces.count,
      .state_bytes = state_bytes(setting->problem),
      .fold = c->kernels->pass[pass][edges][job->kind].fold,
      .merge = c->kernels->merge,
      .finish = c->kernels->finish};
  if (reduces(setting->problem))
    aggregate.fold = c->kernels->reduced[pass][edges][job->kind].fold;
  if (reduces(setting->problem) && pass == DFGNN_CPU_MESSAGE_FORWARD) {
    aggregate.merge = c->kernels->merge_reduced;
    aggregate.finish = c->kernels->finish_reduced;
  }
  forget_windows(c);
  dfgnn__cpu_walk_run(&rows, &aggregate, c->algorithm, setting->parameter,
                      items);
}

static void walk_forward(const call *c, const dfgnn_view *items) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_message job = c->job;
  job.own.gate = c->gate_dst;
  job.far = (dfgnn_cpu_message_ends){c->value, c->gate_src};
  job.to = dfgnn__cpu_table(p, args->out, &args->out_strides);
  job.scale = c->scale_src;
  job.after = c->scale_dst;
  job.mean = is_mean(p);
  walk(c, &job, c->launch->setting.matrix, DFGNN_CPU_MESSAGE_FORWARD, items);
}

/* ---- backward ------------------------------------------------------------ */

static void walk_columns(const call *c, const dfgnn_view *items) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  const dfgnn_view *transpose = c->launch->views[0];
  dfgnn_matrix columns =
      dfgnn__transposed(c->launch->setting.matrix, transpose);
  dfgnn_cpu_message job = c->job;
  job.offsets = columns.offsets;
  job.indices = columns.indices;
  job.edge = transpose->array[2];
  job.own = (dfgnn_cpu_message_ends){c->value, c->gate_src};
  job.far = (dfgnn_cpu_message_ends){c->grad_out, c->gate_dst};
  job.to = dfgnn__cpu_table(p, args->grad_value, &args->grad_value_strides);
  if (gated(p))
    job.to_gate =
        dfgnn__cpu_table(p, args->grad_gate_src, &args->grad_gate_src_strides);
  if (job.attr.base)
    job.grad_attr = edge_table(p, args->grad_edge_attr);
  job.scale = c->scale_dst;
  job.after = c->scale_src;
  if (job.to.base || job.to_gate.base || job.grad_attr.base)
    walk(c, &job, &columns, DFGNN_CPU_MESSAGE_COLUMNS, items);
}

/* The job of the gradients by destination and by edge. */
static dfgnn_cpu_message by_row(const call *c) {
  dfgnn_cpu_message job = c->job;
  job.own = (dfgnn_cpu_message_ends){c->grad_out, c->gate_dst};
  job.far = (dfgnn_cpu_message_ends){c->value, c->gate_src};
  job.scale = c->scale_src;
  job.after = c->scale_dst;
  return job;
}

static void walk_rows(const call *c, const dfgnn_view *items) {
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_message job = by_row(c);
  if (!gated(c->launch->setting.problem) || !args->grad_gate_dst)
    return;
  job.to = dfgnn__cpu_table(c->launch->setting.problem, args->grad_gate_dst,
                            &args->grad_gate_dst_strides);
  walk(c, &job, c->launch->setting.matrix, DFGNN_CPU_MESSAGE_ROWS, items);
}

/* ---- gradients of projections -------------------------------------------- */

typedef struct edge_blocks {
  const call *call;
  dfgnn_cpu_message job;
  int64_t count;
} edge_blocks;

static void *sums_of(const call *c, int64_t block) {
  return c->memory + c->layout.sums + (size_t)block * c->layout.sums_bytes;
}

static void walk_blocks(void *data, int64_t begin, int64_t end) {
  const edge_blocks *b = data;
  const call *c = b->call;
  const dfgnn_args *args = c->launch->args;
  const dfgnn_cpu_projection *p = &b->job.projection;
  int sums = args->grad_edge_weight || args->grad_edge_bias;
  char *scratch = p->scratch + (size_t)dfgnn__cpu_thread() * p->scratch_bytes;
  for (int64_t block = begin; block < end; block++) {
    void *to = sums ? sums_of(c, block) : NULL;
    if (to)
      memset(to, 0, c->layout.sums_bytes);
    c->kernels->edges(&b->job, b->job.edges * block / b->count,
                      b->job.edges * (block + 1) / b->count, scratch, to);
  }
}

/* Adds up the blocks' sums for some rows of the matrix, in order. */
static void add_blocks(void *data, int64_t begin, int64_t end) {
  const edge_blocks *b = data;
  const dfgnn_args *args = b->call->launch->args;
  const dfgnn_cpu_projection *p = &b->job.projection;
  int wide = b->call->launch->setting.problem->dtype == DFGNN_F64;
  for (int64_t row = begin; row < end; row++)
    for (int64_t f = 0; f <= p->fields; f++) {
      place_of_parameter place = find_parameter(b->call, row);
      int64_t i = place.given, at = f * p->row + place.padded;
      double sum = 0;
      for (int64_t k = 0; k < b->count; k++)
        sum += scalar_at(sums_of(b->call, k), at, wide);
      if (f < p->fields && args->grad_edge_weight)
        set_scalar(args->grad_edge_weight, i * p->fields + f, sum, wide);
      else if (f == p->fields && args->grad_edge_bias)
        set_scalar(args->grad_edge_bias, i, sum, wide);
    }
}

static void walk_edges(const call *c) {
  const dfgnn_args *args = c->launch->args;
  int threads = c->launch->setting.device->units;
  edge_blocks b = {c, by_row(c), count_blocks(c->job.edges)};
  int sums = args->grad_edge_weight || args->grad_edge_bias;
  if (!b.job.projection.fields || (!sums && !args->grad_edge_attr))
    return;
  dfgnn__cpu_for(threads, b.count, 1, walk_blocks, &b);
  if (sums)
    dfgnn__cpu_for(threads, parameters_of(c), 64, add_blocks, &b);
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status launch(const dfgnn_launch *launch,
                           dfgnn_cpu_algorithm algorithm) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  int split = algorithm == DFGNN_CPU_SPLIT;
  call c = {.launch = launch,
            .kernels = dfgnn__cpu_message_kernels(
                setting->parameter[DFGNN_CPU_P_SIMD], problem->dtype),
            .algorithm = algorithm,
            .layout = lay_out(setting),
            .memory = launch->workspace};
  make_job(&c);
  if (!backward(problem)) {
    walk_forward(&c, split ? launch->views[0] : NULL);
    return DFGNN_OK;
  }
  if (is_mean(problem)) {
    dfgnn__cpu_for(setting->device->units, setting->matrix->destinations, 4096,
                   divide, &c);
    c.scale_dst = c.memory + c.layout.scales;
  }
  walk_columns(&c, split ? launch->views[1] : NULL);
  walk_rows(&c, split ? launch->views[2] : NULL);
  walk_edges(&c);
  return DFGNN_OK;
}

/* Backward asks for work items of the columns, then of the rows. */
static int split_views(const dfgnn_setting *setting,
                       dfgnn_view_request *requests) {
  int count = dfgnn__cpu_split_views(setting, requests);
  if (backward(setting->problem)) {
    requests[count] = requests[count - 1];
    requests[count++].transposed = 0;
  }
  return count;
}

/* ---- families ------------------------------------------------------------ */

DFGNN_CPU_WALK_ALGORITHM(row, DFGNN_CPU_ROW, workspace, launch)
DFGNN_CPU_WALK_ALGORITHM(split, DFGNN_CPU_SPLIT, workspace, launch)
DFGNN_CPU_WALK_ALGORITHM(balanced, DFGNN_CPU_BALANCED, workspace, launch)

static const char *no_message(const dfgnn_setting *setting) {
  return setting->problem->message == DFGNN_MESSAGE_COPY
             ? "messages are copies of nodes, which spmm and reduce serve"
             : NULL;
}

static const char *applicable(const dfgnn_setting *setting) {
  const char *reason = no_message(setting);
  return reason ? reason : dfgnn__cpu_applicable(setting);
}

static const char *split_applicable(const dfgnn_setting *setting) {
  const char *reason = no_message(setting);
  return reason ? reason : dfgnn__cpu_split_applicable(setting);
}

#define FAMILY(label, pass_name, pass)                                         \
  DFGNN_CPU_WALK_FAMILY(label, "message", DFGNN_OPS_MESSAGE, pass_name, pass,  \
                        DFGNN_CPU_MESSAGE_CHUNK),                              \
      .messages = DFGNN_MESSAGES_ALL, .edge_ops = DFGNN_OPS_MESSAGE
#define FAMILIES(pass_name, pass)                                              \
  {FAMILY(row, pass_name, pass), .parameters = DFGNN_CPU_ROW_PARAMETERS,       \
   .legal = dfgnn__cpu_row_legal, .applicable = applicable,                    \
   .views = dfgnn__cpu_views},                                                 \
      {FAMILY(split, pass_name, pass),                                         \
       .parameters = DFGNN_CPU_SIZED_PARAMETERS("edges", 2, {128, 1024}),      \
       .legal = dfgnn__cpu_legal, .applicable = split_applicable,              \
       .views = split_views},                                                  \
  {                                                                            \
    FAMILY(balanced, pass_name, pass),                                         \
        .parameters = DFGNN_CPU_SIZED_PARAMETERS("parts", 2, {4, 16}),         \
        .legal = dfgnn__cpu_legal, .applicable = applicable,                   \
        .views = dfgnn__cpu_views                                              \
  }

DFGNN_FAMILIES(message_cpu_message) = {
    FAMILIES("fwd", DFGNN_PASS_FORWARD),
    FAMILIES("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
