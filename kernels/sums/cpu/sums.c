/* sums.c - sums, reductions and messages on a CPU: workspaces, jobs and walks
 */
#include "kernels/sums/cpu/sums.h"

#include "kernels/common/cpu_tables.h"

DFGNN_CPU_TABLES(dfgnn__cpu_sums_kernels, dfgnn_cpu_sums_kernels,
                 dfgnn__cpu_sums)

/* ---- operators ----------------------------------------------------------- */

static int backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int gated(const dfgnn_problem *problem) {
  return dfgnn__message_gated(problem->message);
}

static int copies(const dfgnn_problem *problem) {
  return problem->message == DFGNN_MESSAGE_COPY;
}

static int averages(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

static dfgnn_cpu_edges edges_of(const dfgnn_problem *problem) {
  return problem->edge_dim == 0  ? DFGNN_CPU_EDGES_NONE
         : problem->edge_dim < 0 ? DFGNN_CPU_EDGES_GIVEN
                                 : DFGNN_CPU_EDGES_PROJECTED;
}

/* The results that a reduction finds; 0: messages are added up. */
static int found_by(const dfgnn_problem *problem) {
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return DFGNN_CPU_LOW;
  case DFGNN_OP_REDUCE_MAX:
    return DFGNN_CPU_HIGH;
  case DFGNN_OP_REDUCE_VAR:
  case DFGNN_OP_REDUCE_STD:
    return DFGNN_CPU_MOMENTS;
  case DFGNN_OP_REDUCE_PNA:
    return DFGNN_CPU_LOW | DFGNN_CPU_HIGH | DFGNN_CPU_MOMENTS;
  default:
    return 0;
  }
}

/* Do gradients read records of the rows? */
static int has_records(const dfgnn_problem *problem) {
  return backward(problem) && copies(problem) &&
         found_by(problem) & DFGNN_CPU_MOMENTS;
}

/* ---- the workspace ------------------------------------------------------- */

static size_t row_bytes(const dfgnn_problem *problem) {
  return (size_t)(problem->heads * problem->dim) *
         dfgnn__cpu_scalar_bytes(problem);
}

/* Bytes of the largest state of a walk. */
static size_t state_bytes(const dfgnn_problem *problem) {
  const int found = found_by(problem);
  const int known = (found & DFGNN_CPU_MOMENTS ? 3 : 0) +
                    (found & DFGNN_CPU_LOW ? 2 : 0) +
                    (found & DFGNN_CPU_HIGH ? 2 : 0);
  const int finds = found && (!backward(problem) || has_records(problem));
  const int sums = backward(problem) ? 1 + gated(problem) : 1;
  return dfgnn__cpu_aligned((size_t)(finds ? known : sums) *
                            row_bytes(problem));
}

static size_t record_bytes(const dfgnn_problem *problem) {
  size_t components = problem->op == DFGNN_OP_REDUCE_PNA ? 3 : 2;
  return has_records(problem) ? components * row_bytes(problem) : 0;
}

static size_t offset_bytes(const dfgnn_matrix *matrix) {
  return matrix->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
}

static dfgnn_cpu_sums_layout cpu_sums_layout(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  const size_t rows = (size_t)setting->matrix->destinations;
  dfgnn_cpu_sums_layout l = {0};
  size_t next = 0;
  if (backward(p) && averages(p))
    next += dfgnn__cpu_aligned(rows * dfgnn__cpu_scalar_bytes(p));
  l.records = next;
  next += dfgnn__cpu_aligned(rows * record_bytes(p));
  if (!copies(p) && p->edge_dim > 0)
    dfgnn__cpu_project_place(&l, &next, setting);
  l.list = next;
  if (backward(p) && p->edge_list)
    next += dfgnn__cpu_aligned((size_t)setting->matrix->edges *
                               offset_bytes(setting->matrix));
  l.walk = next;
  return l;
}

size_t dfgnn__cpu_sums_workspace(const dfgnn_setting *setting,
                                 dfgnn_cpu_algorithm algorithm) {
  return cpu_sums_layout(setting).walk +
         dfgnn__cpu_walk_memory(setting, algorithm,
                                state_bytes(setting->problem));
}

/* ---- the job ------------------------------------------------------------- */

static dfgnn_cpu_table edge_table(const dfgnn_problem *problem,
                                  const void *base) {
  const dfgnn_strides strides = {problem->heads * problem->dim, problem->dim,
                                 1};
  return dfgnn__cpu_table(problem, base, &strides);
}

/* The tensors that a reduction writes, or that its gradients read.  A sum has
 * the first alone. */
static dfgnn_cpu_reduced reduced_of(const dfgnn_problem *p,
                                    const dfgnn_args *args) {
  const int back = backward(p), found = found_by(p);
  const dfgnn_strides *s = back ? &args->grad_out_strides : &args->out_strides;
  dfgnn_cpu_reduced r = {
      .out = dfgnn__cpu_table(p, back ? args->grad_out : args->out, s)};
  if (found & DFGNN_CPU_LOW)
    r.arg_min = dfgnn__cpu_dense(p, args->arg_min, sizeof(int32_t));
  if (found & DFGNN_CPU_HIGH)
    r.arg_max = dfgnn__cpu_dense(p, args->arg_max, sizeof(int32_t));
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

/* Is `value` read?  Gradients of plain sums and of extremes need none. */
static int reads_value(const dfgnn_problem *p, const dfgnn_args *args) {
  return !backward(p) || !copies(p) || found_by(p) & DFGNN_CPU_MOMENTS ||
         (p->op == DFGNN_OP_SPMM_WEIGHTED && args->grad_edge_weight);
}

static void find_tables(dfgnn_cpu_sums_call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  c->job.reduced = reduced_of(p, args);
  if (reads_value(p, args))
    c->value = dfgnn__cpu_table(p, args->value, &args->value_strides);
  if (backward(p))
    c->grad_out = c->job.reduced.out;
  if (gated(p)) {
    c->gate_dst = dfgnn__cpu_table(p, args->gate_dst, &args->gate_dst_strides);
    c->gate_src = dfgnn__cpu_table(p, args->gate_src, &args->gate_src_strides);
  }
  if (!copies(p) && p->edge_dim == DFGNN_EDGE_PROJECTED)
    c->job.attr = edge_table(p, args->edge_attr);
}

/* The tables of reduced results; the first ones hold int32. */
enum { REDUCED_TABLES = 8, POSITIONS = 2 };

static void list_reduced(dfgnn_cpu_table *list[REDUCED_TABLES],
                         dfgnn_cpu_reduced *r) {
  dfgnn_cpu_table *const all[REDUCED_TABLES] = {
      &r->arg_min, &r->arg_max, &r->out,  &r->least,
      &r->most,    &r->std,     &r->mean, &r->deviation};
  for (int i = 0; i < REDUCED_TABLES; i++)
    list[i] = all[i];
}

static void cut_pieces(dfgnn_cpu_sums_call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  const dfgnn_cpu_table outs[] = {
      dfgnn__cpu_table(p, args->grad_value, &args->grad_value_strides),
      dfgnn__cpu_table(p, args->grad_gate_src, &args->grad_gate_src_strides),
      dfgnn__cpu_table(p, args->grad_gate_dst, &args->grad_gate_dst_strides)};
  const dfgnn_cpu_table *others[] = {&c->value,    &c->gate_dst, &c->gate_src,
                                     &c->job.attr, &outs[0],     &outs[1],
                                     &outs[2]};
  enum { OTHERS = sizeof others / sizeof *others };
  dfgnn_cpu_table *reduced[REDUCED_TABLES];
  const dfgnn_cpu_table *tables[REDUCED_TABLES + OTHERS];
  size_t elements[REDUCED_TABLES + OTHERS];
  list_reduced(reduced, &c->job.reduced);
  for (int i = 0; i < REDUCED_TABLES + OTHERS; i++) {
    tables[i] = i < REDUCED_TABLES ? reduced[i] : others[i - REDUCED_TABLES];
    elements[i] = i < POSITIONS ? sizeof(int32_t) : dfgnn_dtype_size(p->dtype);
  }
  c->job.pieces = dfgnn__cpu_pieces(p, c->job.weight != NULL, tables, elements,
                                    REDUCED_TABLES + OTHERS);
  c->job.record_piece = c->job.pieces.dim;
}

void dfgnn__cpu_sums_begin(dfgnn_cpu_sums_call *c, const dfgnn_launch *launch,
                           dfgnn_cpu_algorithm algorithm) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  *c = (dfgnn_cpu_sums_call){
      .launch = launch,
      .kernels = dfgnn__cpu_sums_kernels(setting->parameter[DFGNN_CPU_P_SIMD],
                                         p->dtype),
      .algorithm = algorithm,
      .layout = cpu_sums_layout(setting),
      .memory = launch->workspace,
      .job = {.op = p->op,
              .message = p->message,
              .part = edges_of(p),
              .found = found_by(p),
              .heads = p->heads,
              .dim = p->dim,
              .width = p->heads * p->dim,
              .rows = m->destinations,
              .columns = m->sources,
              .offsets64 = m->offsets64,
              .row_offsets = m->offsets,
              .row_indices = m->indices,
              .edges = m->edges,
              .offsets = m->offsets,
              .indices = m->indices,
              .edge = p->edge_list ? m->edge_order : NULL,
              .prefetch = setting->parameter[DFGNN_CPU_P_PREFETCH],
              .record_bytes = (int64_t)record_bytes(p)}};
  if (DFGNN_BIT(p->op) & DFGNN_OPS_SPMM) {
    c->scale_dst = launch->args->scale_dst;
    c->scale_src = launch->args->scale_src;
  }
  if (p->op == DFGNN_OP_SPMM_WEIGHTED)
    c->job.weight = launch->args->edge_weight;
  find_tables(c);
  if (c->job.reduced.arg_min.base || c->job.reduced.arg_max.base ||
      (c->job.found && !copies(p)))
    c->job.found |= DFGNN_CPU_ARGS;
  cut_pieces(c);
  if (!copies(p) && p->edge_dim > 0)
    dfgnn__cpu_project_begin(c);
}

/* ---- walks --------------------------------------------------------------- */

static dfgnn_cpu_fold *fold_of(const dfgnn_cpu_sums_call *c,
                               const dfgnn_cpu_sums *job, dfgnn_cpu_pass pass,
                               int rest) {
  const dfgnn_cpu_sums_kernels *k = c->kernels;
  const dfgnn_problem *p = c->launch->setting.problem;
  if (!copies(p) && !job->found)
    return k->add_messages[pass][job->part][job->message];
  if (!copies(p))
    return (job->message == DFGNN_MESSAGE_RELU ? k->find_relu
                                               : k->find_gates)[pass];
  if (!job->found)
    return k->add;
  if (pass == DFGNN_CPU_FORWARD)
    return k->find[job->found];
  if (!(job->found & DFGNN_CPU_MOMENTS))
    return k->grade[DFGNN_CPU_PICK];
  if (!(job->found & DFGNN_CPU_LOW))
    return k->grade[DFGNN_CPU_SPREAD];
  return k->grade[rest ? DFGNN_CPU_REST : DFGNN_CPU_BOTH];
}

/* Walks the rows of matrix.  rest: PNA's gradients without those of min and
 * max. */
static void walk(const dfgnn_cpu_sums_call *c, const dfgnn_cpu_sums *job,
                 const dfgnn_matrix *matrix, dfgnn_cpu_pass pass, int rest) {
  const dfgnn_setting *setting = &c->launch->setting;
  const int *p = setting->parameter;
  const int found = job->found && pass == DFGNN_CPU_FORWARD;
  dfgnn_cpu_walk rows = dfgnn__cpu_walk(matrix, dfgnn__cpu_threads(setting),
                                        c->memory + c->layout.walk);
  dfgnn_cpu_aggregate aggregate = {
      .job = job,
      .pieces = job->pieces.count,
      .state_bytes = state_bytes(setting->problem),
      .fold = fold_of(c, job, pass, rest),
      .merge = found ? c->kernels->merge_found : c->kernels->merge_sums,
      .finish = found ? c->kernels->finish_found : c->kernels->finish_sums};
  dfgnn__cpu_project_forget(c);
  if (found || job->to.base || job->to_gate.base || job->grad_attr.base ||
      job->grad_weight)
    dfgnn__cpu_walk_run(&rows, &aggregate, c->algorithm, p);
}

static void walk_forward(const dfgnn_cpu_sums_call *c) {
  dfgnn_cpu_sums job = c->job;
  job.own.gate = c->gate_dst;
  job.far = (dfgnn_cpu_ends){c->value, c->gate_src};
  job.to = job.reduced.out;
  job.scale = c->scale_src;
  job.after = c->scale_dst;
  job.mean = averages(c->launch->setting.problem);
  walk(c, &job, c->launch->setting.matrix, DFGNN_CPU_FORWARD, 0);
}

/* ---- backward ------------------------------------------------------------ */

/* Divides the scales of the destinations by their degrees. */
static void divide(void *data, int64_t begin, int64_t end) {
  const dfgnn_cpu_sums_call *c = data;
  const dfgnn_matrix *m = c->launch->setting.matrix;
  const int wide = c->launch->setting.problem->dtype == DFGNN_F64;
  for (int64_t i = begin; i < end; i++) {
    int64_t degree = dfgnn__cpu_edge(m->offsets64, m->offsets, i + 1) -
                     dfgnn__cpu_edge(m->offsets64, m->offsets, i);
    double factor =
        c->scale_dst ? dfgnn__cpu_scalar_at(c->scale_dst, i, wide) : 1;
    dfgnn__cpu_set_scalar(c->memory + c->layout.scales, i,
                          degree > 0 ? factor / (double)degree : factor, wide);
  }
}

static void record_rows(void *data, int64_t begin, int64_t end) {
  const dfgnn_cpu_sums_call *c = data;
  c->kernels->record(&c->job, begin, end);
}

void dfgnn__cpu_sums_record(dfgnn_cpu_sums_call *c) {
  const dfgnn_setting *setting = &c->launch->setting;
  if (!c->job.record_bytes)
    return;
  c->job.record = c->memory + c->layout.records;
  if (setting->problem->op == DFGNN_OP_REDUCE_PNA)
    dfgnn__cpu_for(dfgnn__cpu_threads(setting), c->job.rows, 256, record_rows,
                   c);
  else
    walk_forward(c);
}

/* Finds the places in the list of the edges of columns. */
static void list_columns(void *data, int64_t begin, int64_t end) {
  const dfgnn_cpu_sums_call *c = data;
  const dfgnn_matrix *m = c->launch->setting.matrix;
  const void *edges = c->launch->views[0]->array[2];
  char *to = c->memory + c->layout.list;
  for (int64_t e = begin; e < end; e++) {
    int64_t place = dfgnn__cpu_edge(m->offsets64, m->edge_order,
                                    dfgnn__cpu_edge(m->offsets64, edges, e));
    if (m->offsets64)
      ((int64_t *)to)[e] = place;
    else
      ((int32_t *)to)[e] = (int32_t)place;
  }
}

void dfgnn__cpu_sums_columns(const dfgnn_cpu_sums_call *c, int rest) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  const dfgnn_view *transpose = c->launch->views[0];
  dfgnn_matrix columns =
      dfgnn__transposed(c->launch->setting.matrix, transpose);
  dfgnn_cpu_sums job = c->job;
  job.offsets = columns.offsets;
  job.indices = columns.indices;
  job.edge = transpose->array[2];
  if (p->edge_list && c->launch->setting.matrix->edge_order) {
    dfgnn__cpu_for(dfgnn__cpu_threads(&c->launch->setting), job.edges, 4096,
                   list_columns, (void *)c);
    job.edge = c->memory + c->layout.list;
  }
  job.own = (dfgnn_cpu_ends){c->value, c->gate_src};
  job.far = (dfgnn_cpu_ends){c->grad_out, c->gate_dst};
  job.to = dfgnn__cpu_table(p, args->grad_value, &args->grad_value_strides);
  if (gated(p))
    job.to_gate =
        dfgnn__cpu_table(p, args->grad_gate_src, &args->grad_gate_src_strides);
  if (job.attr.base)
    job.grad_attr = edge_table(p, args->grad_edge_attr);
  if (p->op == DFGNN_OP_SPMM_WEIGHTED)
    job.grad_weight = args->grad_edge_weight;
  job.scale = c->scale_dst;
  job.after = c->scale_src;
  walk(c, &job, &columns, DFGNN_CPU_COLUMNS, rest);
}

/* The job of gradients by destination and by edge. */
static dfgnn_cpu_sums by_row(const dfgnn_cpu_sums_call *c) {
  dfgnn_cpu_sums job = c->job;
  job.own = (dfgnn_cpu_ends){c->grad_out, c->gate_dst};
  job.far = (dfgnn_cpu_ends){c->value, c->gate_src};
  job.scale = c->scale_src;
  job.after = c->scale_dst;
  return job;
}

static void grade_messages(const dfgnn_cpu_sums_call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_sums job = by_row(c);
  dfgnn__cpu_project_grade(c, &job);
  if (!gated(p))
    return;
  job.to =
      dfgnn__cpu_table(p, args->grad_gate_dst, &args->grad_gate_dst_strides);
  walk(c, &job, c->launch->setting.matrix, DFGNN_CPU_ROWS, 0);
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status launch(const dfgnn_launch *launch,
                           dfgnn_cpu_algorithm algorithm) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_cpu_sums_call c;
  dfgnn__cpu_sums_begin(&c, launch, algorithm);
  if (!backward(setting->problem)) {
    walk_forward(&c);
    return DFGNN_OK;
  }
  if (averages(setting->problem)) {
    dfgnn__cpu_for(dfgnn__cpu_threads(setting), setting->matrix->destinations,
                   4096, divide, &c);
    c.scale_dst = c.memory + c.layout.scales;
  }
  dfgnn__cpu_sums_record(&c);
  dfgnn__cpu_sums_columns(&c, 0);
  if (!copies(setting->problem))
    grade_messages(&c);
  return DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

DFGNN_CPU_WALK_ALGORITHMS(dfgnn__cpu_sums_workspace, launch)

/* Extremes count a row's edges, and a matrix multiplies blocks of them. */
static int lists(const dfgnn_problem *problem) {
  return !found_by(problem) && problem->edge_dim == DFGNN_EDGE_PROJECTED;
}

static const char *no_message(const dfgnn_setting *setting) {
  return copies(setting->problem)
             ? "messages are copies of nodes, which spmm and reduce serve"
         : setting->problem->edge_list && !lists(setting->problem)
             ? "takes edge features in the graph's order alone"
             : NULL;
}

static const char *message_applicable(const dfgnn_setting *setting) {
  const char *reason = no_message(setting);
  return reason ? reason : dfgnn__cpu_applicable(setting);
}

#define MESSAGES(label, pass_name, pass)                                       \
  DFGNN_CPU_WALK_FAMILY(label, "message", DFGNN_OPS_MESSAGE, pass_name, pass,  \
                        DFGNN_CPU_CHUNK),                                      \
      .messages = DFGNN_MESSAGES_ALL, .edge_ops = DFGNN_OPS_MESSAGE,           \
      .edge_list = 1
#define MESSAGE_FAMILIES(pass_name, pass)                                      \
  {MESSAGES(row, pass_name, pass), .parameters = DFGNN_CPU_ROW_PARAMETERS,     \
   .legal = dfgnn__cpu_row_legal, .applicable = message_applicable,            \
   .views = dfgnn__cpu_views},                                                 \
  {                                                                            \
    MESSAGES(balanced, pass_name, pass),                                       \
        .parameters = DFGNN_CPU_SIZED_PARAMETERS("parts", 2, {4, 16}),         \
        .legal = dfgnn__cpu_legal, .applicable = message_applicable,           \
        .views = dfgnn__cpu_views                                              \
  }
#define FAMILIES(name, ops)                                                    \
  DFGNN_CPU_WALK_FAMILIES(name, ops, "fwd", DFGNN_PASS_FORWARD,                \
                          DFGNN_CPU_ADD_CHUNK),                                \
      DFGNN_CPU_WALK_FAMILIES(name, ops, "bwd", DFGNN_PASS_BACKWARD,           \
                              DFGNN_CPU_ADD_CHUNK)

DFGNN_FAMILIES(sums_cpu_sums) = {
    MESSAGE_FAMILIES("fwd", DFGNN_PASS_FORWARD),
    MESSAGE_FAMILIES("bwd", DFGNN_PASS_BACKWARD),
    FAMILIES("reduce", DFGNN_OPS_REDUCE),
    FAMILIES("spmm", DFGNN_OPS_SPMM),
    DFGNN_FAMILIES_END,
};
