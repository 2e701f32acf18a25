/* reduce.c - the CPU families of reductions, forward and backward */
#include "kernels/reduce/cpu/reduce.h"

#include <string.h>

#include "kernels/common/cpu_tables.h"
#include "kernels/spmm/cpu/spmm.h"

DFGNN_CPU_TABLES(dfgnn__cpu_reduce_kernels, dfgnn_cpu_reduce_kernels,
                 dfgnn__cpu_reduce)

/* ---- operators ----------------------------------------------------------- */

static int back(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int selects(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_REDUCE_MIN ||
         problem->op == DFGNN_OP_REDUCE_MAX ||
         problem->op == DFGNN_OP_REDUCE_PNA;
}

static int has_moments(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_REDUCE_VAR ||
         problem->op == DFGNN_OP_REDUCE_STD ||
         problem->op == DFGNN_OP_REDUCE_PNA;
}

static int narrow_storage(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F16 || problem->dtype == DFGNN_BF16;
}

static dfgnn_cpu_fold forward_fold(const dfgnn_problem *problem,
                                   const dfgnn_args *args) {
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return args->arg_min ? DFGNN_CPU_FOLD_MIN_ARG : DFGNN_CPU_FOLD_MIN;
  case DFGNN_OP_REDUCE_MAX:
    return args->arg_max ? DFGNN_CPU_FOLD_MAX_ARG : DFGNN_CPU_FOLD_MAX;
  case DFGNN_OP_REDUCE_PNA:
    return args->arg_min || args->arg_max ? DFGNN_CPU_FOLD_PNA_ARG
                                          : DFGNN_CPU_FOLD_PNA;
  default:
    return DFGNN_CPU_FOLD_MOMENTS;
  }
}

static dfgnn_cpu_fold backward_fold(const dfgnn_problem *problem,
                                    int scattered) {
  if (!has_moments(problem))
    return DFGNN_CPU_FOLD_BACK_SELECT;
  if (!selects(problem))
    return DFGNN_CPU_FOLD_BACK_MOMENTS;
  return scattered ? DFGNN_CPU_FOLD_BACK_PNA_REST : DFGNN_CPU_FOLD_BACK_PNA;
}

/* ---- the workspace ------------------------------------------------------- */

static size_t row_bytes(const dfgnn_problem *problem) {
  return (size_t)(problem->heads * problem->dim) *
         dfgnn__cpu_scalar_bytes(problem);
}

static size_t state_bytes(const dfgnn_problem *problem) {
  int components = problem->op != DFGNN_OP_REDUCE_PNA ? 2
                   : back(problem)                    ? 1
                                                      : 6;
  return dfgnn__cpu_aligned((size_t)components * row_bytes(problem));
}

static size_t record_bytes(const dfgnn_problem *problem) {
  size_t components = problem->op == DFGNN_OP_REDUCE_PNA ? 3 : 2;
  return back(problem) && has_moments(problem) ? components * row_bytes(problem)
                                               : 0;
}

static size_t records_bytes(const dfgnn_setting *setting) {
  return dfgnn__cpu_aligned((size_t)setting->matrix->destinations *
                            record_bytes(setting->problem));
}

/* Bytes of scatter's scalar sums by column, where storage is narrower. */
static size_t sums_bytes(const dfgnn_setting *setting) {
  return narrow_storage(setting->problem)
             ? dfgnn__cpu_aligned((size_t)setting->matrix->sources *
                                  row_bytes(setting->problem))
             : 0;
}

static size_t workspace(const dfgnn_setting *setting,
                        dfgnn_cpu_algorithm algorithm) {
  if (setting->problem->op == DFGNN_OP_REDUCE_MEAN)
    return dfgnn__cpu_spmm_workspace(setting, algorithm);
  return records_bytes(setting) +
         dfgnn__cpu_walk_memory(setting, algorithm,
                                state_bytes(setting->problem));
}

/* ---- the job ------------------------------------------------------------- */

typedef struct call {
  const dfgnn_launch *launch;
  const dfgnn_cpu_reduce_kernels *kernels;
  dfgnn_cpu_algorithm algorithm;
  dfgnn_cpu_reduce job;
  char *memory; /* of the walks */
} call;

static void forward_tables(dfgnn_cpu_reduce *job, const dfgnn_problem *problem,
                           const dfgnn_args *args) {
  const dfgnn_strides *strides = &args->out_strides;
  job->out = dfgnn__cpu_table(problem, args->out, strides);
  if (problem->op == DFGNN_OP_REDUCE_PNA) {
    job->out_min = dfgnn__cpu_table(problem, args->out_min, strides);
    job->out_max = dfgnn__cpu_table(problem, args->out_max, strides);
    job->out_std = dfgnn__cpu_table(problem, args->out_std, strides);
  }
}

static void backward_tables(dfgnn_cpu_reduce *job, const dfgnn_problem *problem,
                            const dfgnn_args *args) {
  const dfgnn_strides *strides = &args->grad_out_strides;
  job->grad_out = dfgnn__cpu_table(problem, args->grad_out, strides);
  job->grad_value =
      dfgnn__cpu_table(problem, args->grad_value, &args->grad_value_strides);
  if (problem->op == DFGNN_OP_REDUCE_PNA) {
    job->grad_min = dfgnn__cpu_table(problem, args->grad_out_min, strides);
    job->grad_max = dfgnn__cpu_table(problem, args->grad_out_max, strides);
    job->grad_std = dfgnn__cpu_table(problem, args->grad_out_std, strides);
    strides = &args->out_strides;
    job->out = dfgnn__cpu_table(problem, args->out, strides);
    job->out_std = dfgnn__cpu_table(problem, args->out_std, strides);
  }
}

/* The tables that a slice of features shifts; the first ones hold int32. */
enum { TABLES = 12, INDEX_TABLES = 2 };

static void list_tables(dfgnn_cpu_table *list[TABLES], dfgnn_cpu_reduce *job) {
  dfgnn_cpu_table *all[TABLES] = {
      &job->arg_min,  &job->arg_max,  &job->value,    &job->out,
      &job->out_min,  &job->out_max,  &job->out_std,  &job->grad_out,
      &job->grad_min, &job->grad_max, &job->grad_std, &job->grad_value};
  for (int i = 0; i < TABLES; i++)
    list[i] = all[i];
}

static size_t element_size(const dfgnn_problem *problem, int table) {
  return table < INDEX_TABLES ? sizeof(int32_t)
                              : dfgnn_dtype_size(problem->dtype);
}

static void make_job(call *c) {
  const dfgnn_problem *problem = c->launch->setting.problem;
  const dfgnn_matrix *matrix = c->launch->setting.matrix;
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_table *tables[TABLES];
  const dfgnn_cpu_table *constant[TABLES];
  size_t sizes[TABLES];
  c->job = (dfgnn_cpu_reduce){
      .op = problem->op,
      .edges = matrix->edges,
      .width = problem->heads * problem->dim,
      .offsets64 = matrix->offsets64,
      .offsets = matrix->offsets,
      .indices = matrix->indices,
      .prefetch = c->launch->setting.parameter[DFGNN_CPU_P_PREFETCH],
      .row_offsets = matrix->offsets,
      .row_indices = matrix->indices,
      .rows = matrix->destinations,
      .columns = matrix->sources,
      .record_bytes = (int64_t)record_bytes(problem)};
  if (!back(problem) || has_moments(problem))
    c->job.value = dfgnn__cpu_table(problem, args->value, &args->value_strides);
  if (back(problem))
    backward_tables(&c->job, problem, args);
  else
    forward_tables(&c->job, problem, args);
  if (selects(problem) && problem->op != DFGNN_OP_REDUCE_MAX)
    c->job.arg_min = dfgnn__cpu_dense(problem, args->arg_min, sizeof(int32_t));
  if (selects(problem) && problem->op != DFGNN_OP_REDUCE_MIN)
    c->job.arg_max = dfgnn__cpu_dense(problem, args->arg_max, sizeof(int32_t));
  list_tables(tables, &c->job);
  for (int i = 0; i < TABLES; i++) {
    constant[i] = tables[i];
    sizes[i] = element_size(problem, i);
  }
  c->job.pieces = dfgnn__cpu_pieces(problem, 0, constant, sizes, TABLES);
  c->job.record_piece = c->job.pieces.dim;
}

static void shift(dfgnn_cpu_reduce *job, const dfgnn_problem *problem,
                  int64_t features) {
  dfgnn_cpu_table *tables[TABLES];
  list_tables(tables, job);
  for (int i = 0; i < TABLES; i++)
    if (tables[i]->base)
      tables[i]->base += features * (int64_t)element_size(problem, i);
  if (job->record)
    job->record += (size_t)features * dfgnn__cpu_scalar_bytes(problem);
}

/* Walks the rows of matrix with one kind of inner loops. */
static void walk(const call *c, const dfgnn_cpu_reduce *job,
                 const dfgnn_matrix *matrix, dfgnn_cpu_fold fold,
                 const dfgnn_view *items) {
  const dfgnn_setting *setting = &c->launch->setting;
  const int *p = setting->parameter;
  const dfgnn_cpu_folding *folding = &c->kernels->folding[fold];
  int64_t dim = job->pieces.dim;
  int64_t slice = dfgnn__cpu_slice(c->algorithm, p, dim);
  dfgnn_cpu_walk rows =
      dfgnn__cpu_walk(matrix, setting->device->units, c->memory);
  dfgnn_cpu_reduce part;
  dfgnn_cpu_aggregate aggregate = {.job = &part,
                                   .pieces = job->pieces.count,
                                   .state_bytes = state_bytes(setting->problem),
                                   .fold = folding->fold,
                                   .merge = folding->merge,
                                   .finish = folding->finish};
  for (int64_t d = 0; d < dim; d += slice) {
    part = *job;
    part.pieces.dim = dim - d < slice ? dim - d : slice;
    shift(&part, setting->problem, d);
    dfgnn__cpu_walk_run(&rows, &aggregate, c->algorithm, p, items);
  }
}

/* ---- backward ------------------------------------------------------------ */

static void record_rows(void *data, int64_t begin, int64_t end) {
  const call *c = data;
  c->kernels->record(&c->job, begin, end);
}

/* Writes the record of each row, which the columns read. */
static void make_records(call *c, const dfgnn_view *items) {
  const dfgnn_setting *setting = &c->launch->setting;
  dfgnn_cpu_reduce *job = &c->job;
  if (!job->record_bytes)
    return;
  job->record = c->launch->workspace;
  if (setting->problem->op == DFGNN_OP_REDUCE_PNA)
    dfgnn__cpu_for(setting->device->units, job->rows, 256, record_rows, c);
  else
    walk(c, job, setting->matrix, DFGNN_CPU_FOLD_MOMENTS, items);
}

static void walk_columns(call *c, int scattered, const dfgnn_view *items) {
  const dfgnn_setting *setting = &c->launch->setting;
  const dfgnn_view *transpose = c->launch->views[0];
  dfgnn_matrix columns = dfgnn__transposed(setting->matrix, transpose);
  dfgnn_cpu_reduce job = c->job;
  job.offsets = columns.offsets;
  job.indices = columns.indices;
  job.edge = transpose->array[2];
  walk(c, &job, &columns, backward_fold(setting->problem, scattered), items);
}

static dfgnn_status launch(const dfgnn_launch *launch,
                           dfgnn_cpu_algorithm algorithm) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return dfgnn__cpu_spmm_launch(launch, algorithm);
  call c = {.launch = launch,
            .kernels = dfgnn__cpu_reduce_kernels(
                setting->parameter[DFGNN_CPU_P_SIMD], problem->dtype),
            .algorithm = algorithm,
            .memory = (char *)launch->workspace + records_bytes(setting)};
  int split = algorithm == DFGNN_CPU_SPLIT;
  make_job(&c);
  if (!back(problem)) {
    walk(&c, &c.job, setting->matrix, forward_fold(problem, launch->args),
         split ? launch->views[0] : NULL);
    return DFGNN_OK;
  }
  make_records(&c, split ? launch->views[2] : NULL);
  walk_columns(&c, 0, split ? launch->views[1] : NULL);
  return DFGNN_OK;
}

/* Backward asks for work items of the columns, and for those of the rows if it
 * walks rows to record their moments. */
static int split_views(const dfgnn_setting *setting,
                       dfgnn_view_request *requests) {
  const dfgnn_op op = setting->problem->op;
  int count = dfgnn__cpu_split_views(setting, requests);
  if (back(setting->problem) &&
      (op == DFGNN_OP_REDUCE_VAR || op == DFGNN_OP_REDUCE_STD)) {
    requests[count] = requests[count - 1];
    requests[count++].transposed = 0;
  }
  return count;
}

/* ---- scatter ------------------------------------------------------------- */

enum { SCATTER_SIMD, SCATTER_PREFETCH, SCATTER_FEATURES };

static size_t scatter_workspace(const dfgnn_setting *setting) {
  return workspace(setting, DFGNN_CPU_ROW) + sums_bytes(setting);
}

static const char *scatter_applicable(const dfgnn_setting *setting) {
  if (setting->problem->op == DFGNN_OP_REDUCE_PNA &&
      narrow_storage(setting->problem))
    return "sums in 16-bit gradients would be rounded at every edge";
  return dfgnn__cpu_applicable(setting);
}

static int scatter_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests) {
  return has_moments(setting->problem) ? dfgnn__cpu_views(setting, requests)
                                       : 0;
}

typedef struct scattering {
  const call *call;
  dfgnn_cpu_table sums;
  int64_t slice, slices; /* of a piece */
  int fresh;             /* sums hold nothing yet */
} scattering;

static void clear(const scattering *s, int64_t piece, int64_t first,
                  int64_t count) {
  const call *c = s->call;
  size_t size = dfgnn__cpu_scalar_bytes(c->launch->setting.problem);
  char *to =
      s->sums.base + dfgnn__cpu_piece_at(&s->sums, &c->job.pieces, piece);
  for (int64_t j = 0; j < c->job.columns; j++)
    memset(to + j * s->sums.node + (size_t)first * size, 0,
           (size_t)count * size);
}

static void scatter_slices(void *data, int64_t begin, int64_t end) {
  const scattering *s = data;
  const dfgnn_cpu_reduce *job = &s->call->job;
  int pna = job->op == DFGNN_OP_REDUCE_PNA;
  for (int64_t k = begin; k < end; k++) {
    int64_t piece = k / s->slices, d = k % s->slices * s->slice;
    int64_t dim = job->pieces.dim;
    int64_t last = dim - d < s->slice ? dim : d + s->slice;
    if (s->fresh)
      clear(s, piece, d, last - d);
    if (job->arg_min.base)
      s->call->kernels->scatter(job, &s->sums,
                                pna ? &job->grad_min : &job->grad_out,
                                &job->arg_min, piece, d, last);
    if (job->arg_max.base)
      s->call->kernels->scatter(job, &s->sums,
                                pna ? &job->grad_max : &job->grad_out,
                                &job->arg_max, piece, d, last);
  }
}

static void narrow_columns(void *data, int64_t begin, int64_t end) {
  const scattering *s = data;
  s->call->kernels->narrow(&s->call->job, &s->sums, begin, end);
}

static dfgnn_status scatter_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const int *p = setting->parameter;
  int threads = setting->device->units;
  char *memory = (char *)launch->workspace + records_bytes(setting);
  call c = {.launch = launch,
            .kernels =
                dfgnn__cpu_reduce_kernels(p[SCATTER_SIMD], problem->dtype),
            .algorithm = DFGNN_CPU_SLICED, /* scatter has its parameters */
            .memory = memory + sums_bytes(setting)};
  make_job(&c);
  if (has_moments(problem)) {
    make_records(&c, NULL);
    walk_columns(&c, 1, NULL);
  }
  const dfgnn_cpu_pieces *pieces = &c.job.pieces;
  scattering s = {.call = &c,
                  .sums = c.job.grad_value,
                  .slice = p[SCATTER_FEATURES],
                  .fresh = !has_moments(problem)};
  if (narrow_storage(problem))
    s.sums = dfgnn__cpu_dense(problem, memory, sizeof(float));
  s.slices = (pieces->dim + s.slice - 1) / s.slice;
  dfgnn__cpu_for(threads, pieces->count * s.slices, 1, scatter_slices, &s);
  if (narrow_storage(problem))
    dfgnn__cpu_for(threads, c.job.columns, 1024, narrow_columns, &s);
  return DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

DFGNN_CPU_WALK_ALGORITHMS(workspace, launch)

DFGNN_FAMILIES(reduce_cpu_reduce) = {
    DFGNN_CPU_WALK_FAMILIES("reduce", DFGNN_OPS_REDUCE, "fwd",
                            DFGNN_PASS_FORWARD, DFGNN_CPU_SPMM_CHUNK,
                            split_views),
    DFGNN_CPU_WALK_FAMILIES("reduce", DFGNN_OPS_REDUCE, "bwd",
                            DFGNN_PASS_BACKWARD, DFGNN_CPU_SPMM_CHUNK,
                            split_views),
    {.name = "cpu.reduce.bwd.scatter",
     .algorithm = "scatter",
     .backend = "cpu",
     .ops = DFGNN_BIT(DFGNN_OP_REDUCE_MIN) | DFGNN_BIT(DFGNN_OP_REDUCE_MAX) |
            DFGNN_BIT(DFGNN_OP_REDUCE_PNA),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 1,
     .deterministic = 1,
     .parameters = DFGNN_CPU_SIZED_PARAMETERS("features", 2, {16, 64}),
     .legal = dfgnn__cpu_legal,
     .applicable = scatter_applicable,
     .workspace = scatter_workspace,
     .views = scatter_views,
     .launch = scatter_launch},
    DFGNN_FAMILIES_END,
};
