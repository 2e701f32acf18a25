/* attention.c - workspace, norms and packed copies of CPU attention, its tasks
 * for threads, and the end of a row */
#include "kernels/attention/cpu/attention.h"
#include "kernels/attention/cpu/edges.h"
#include "kernels/attention/operators.h"
#include "kernels/common/cpu_tables.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- instruction sets ---------------------------------------------------- */

DFGNN_CPU_TABLES(dfgnn__cpu_kernels, dfgnn_cpu_kernels, dfgnn__cpu)

/* ---- the workspace of a launch ------------------------------------------- */

size_t dfgnn__cpu_aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t dfgnn__cpu_scalar_size(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

/* With heads innermost, the features of a head are not adjacent; with edge
 * features, strides may leave gaps. */
int dfgnn__cpu_packs(const dfgnn_problem *problem) {
  return (problem->layout == DFGNN_LAYOUT_NDH && problem->heads > 1 &&
          problem->dim > 1) ||
         (problem->edge_dim && !DFGNN_HAS_SCALARS(problem->op));
}

int dfgnn__cpu_adjacent(const dfgnn_cpu_job *job, const dfgnn_cpu_tensor *t) {
  const int64_t size = (int64_t)job->element_size;
  return t->feature == size &&
         (!job->term || (job->out_dim == job->dim &&
                         (job->heads == 1 || t->head == job->dim * size)));
}

size_t dfgnn__cpu_sum_bytes(const dfgnn_setting *setting) {
  return dfgnn__cpu_aligned((size_t)setting->problem->dim *
                                dfgnn__cpu_scalar_size(setting->problem) +
                            DFGNN_CPU_PADDING);
}

size_t dfgnn__cpu_score_bytes(const dfgnn_setting *setting) {
  return (size_t)(setting->matrix->edges * setting->problem->heads) *
         dfgnn__cpu_scalar_size(setting->problem);
}

size_t dfgnn__cpu_packed_bytes(const dfgnn_problem *problem, int64_t nodes) {
  return dfgnn__cpu_aligned((size_t)(nodes * problem->heads * problem->dim) *
                            dfgnn_dtype_size(problem->dtype));
}

static size_t norm_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  return !DFGNN_HAS_NORMS(problem->op)
             ? 0
             : dfgnn__cpu_aligned(
                   (size_t)(setting->matrix->sources * problem->heads) *
                   dfgnn__cpu_scalar_size(problem));
}

size_t dfgnn__cpu_workspace(const dfgnn_setting *setting,
                            const dfgnn_cpu_choice *choice) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *matrix = setting->matrix;
  size_t bytes =
      norm_bytes(setting) + dfgnn__cpu_aligned(choice->shared_bytes) +
      (size_t)setting->device->units * dfgnn__cpu_aligned(choice->thread_bytes);
  if (dfgnn__cpu_packs(problem)) {
    bytes += dfgnn__cpu_packed_bytes(problem, matrix->sources) *
             (size_t)(1 + DFGNN_HAS_KEY(problem->op));
    if (DFGNN_HAS_QUERY(problem->op))
      bytes += dfgnn__cpu_packed_bytes(problem, matrix->destinations);
  }
  return bytes;
}

dfgnn_cpu_tensor dfgnn__cpu_tensor_of(const dfgnn_problem *problem,
                                      const void *base,
                                      const dfgnn_strides *strides) {
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  return (dfgnn_cpu_tensor){(char *)base, strides->node * size,
                            strides->head * size,
                            problem->dim == 1 ? size : strides->feature * size};
}

typedef struct packing {
  dfgnn_cpu_tensor to, from;
} packing;

static void pack_nodes(const dfgnn_cpu_job *job, void *data,
                       char *thread_memory, int64_t begin, int64_t end) {
  packing *p = data;
  (void)thread_memory;
  job->kernels->pack(job, &p->to, &p->from, begin, end);
}

char *dfgnn__cpu_pack(const dfgnn_cpu_job *job, const dfgnn_problem *problem,
                      dfgnn_cpu_tensor *t, int64_t nodes, int schedule,
                      char *memory) {
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  packing p = {
      {memory, problem->heads * problem->dim * size, problem->dim * size, size},
      *t};
  dfgnn__cpu_range(job, schedule, nodes, 256, pack_nodes, &p);
  *t = p.to;
  return memory + dfgnn__cpu_packed_bytes(problem, nodes);
}

static void find_norms(const dfgnn_cpu_job *job, void *data,
                       char *thread_memory, int64_t begin, int64_t end) {
  (void)data, (void)thread_memory;
  job->kernels->norms(job, begin, end);
}

void dfgnn__cpu_find_norms(const dfgnn_cpu_job *job, int schedule) {
  dfgnn__cpu_range(job, schedule, job->sources, 256, find_norms, NULL);
}

static double beta_of(const dfgnn_problem *problem, const dfgnn_args *args) {
  if (!args->beta)
    return 1;
  return problem->dtype == DFGNN_F64 ? *(const double *)args->beta
                                     : (double)*(const float *)args->beta;
}

void dfgnn__cpu_describe(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                         const dfgnn_cpu_choice *choice) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);

  *job = (dfgnn_cpu_job){
      .kernels = dfgnn__cpu_kernels(choice->simd, problem->dtype),
      .op = problem->op,
      .destinations = matrix->destinations,
      .sources = matrix->sources,
      .edges = matrix->edges,
      .heads = problem->heads,
      .dim = problem->dim,
      .out_dim = choice->term ? choice->term->dim : problem->dim,
      .term = choice->term,
      .element_size = (size_t)size,
      .scalar_size = dfgnn__cpu_scalar_size(problem),
      .threads = dfgnn__cpu_threads(&launch->setting),
      .offsets64 = matrix->offsets64,
      .offsets = matrix->offsets,
      .indices = matrix->indices,
      .query = dfgnn__cpu_tensor_of(problem, args->query, &args->query_strides),
      .key = dfgnn__cpu_tensor_of(problem, args->key, &args->key_strides),
      .value = dfgnn__cpu_tensor_of(problem, args->value, &args->value_strides),
      .out = dfgnn__cpu_tensor_of(problem, args->out, &args->out_strides),
      .score_dst = args->score_dst,
      .score_src = args->score_src,
      .att = choice->term ? choice->term->att : args->att,
      .score_edge = DFGNN_HAS_SCALARS(problem->op) && problem->edge_dim
                        ? args->score_edge
                        : NULL,
      .lse = args->lse,
      .grad_lse = args->grad_lse,
      .weights = problem->weights ? args->weights : NULL,
      .scale =
          DFGNN_HAS_NORMS(problem->op) ? beta_of(problem, args) : args->scale,
      .slope = args->slope,
      .bias = problem->bias ? args->bias : NULL,
      .drops = problem->dropout && args->dropout > 0,
      .drawn = args->edge_number,
      .prefetch = choice->prefetch,
      .thread_bytes = dfgnn__cpu_aligned(choice->thread_bytes),
      .sum_bytes = dfgnn__cpu_sum_bytes(&launch->setting),
  };
  if (job->drops) {
    job->drop_key =
        dfgnn__dropout_key(args->seed ? *args->seed : args->seed_value);
    job->drop_threshold = dfgnn__dropout_threshold(args->dropout);
    job->drop_scale = 1 / (1 - args->dropout);
  }
}

void *dfgnn__cpu_begin(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                       const dfgnn_cpu_choice *choice) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  char *memory = launch->workspace;

  dfgnn__cpu_describe(job, launch, choice);
  job->out_packed = job->out.feature == size;
  int adjacent =
      dfgnn__cpu_adjacent(job, &job->value) &&
      (!DFGNN_HAS_QUERY(problem->op) ||
       dfgnn__cpu_adjacent(job, &job->query)) &&
      (!DFGNN_HAS_KEY(problem->op) || dfgnn__cpu_adjacent(job, &job->key));
  job->packed = adjacent || dfgnn__cpu_packs(problem);
  if (dfgnn__cpu_packs(problem)) {
    if (!adjacent) {
      char *to = memory;
      to = dfgnn__cpu_pack(job, problem, &job->value, matrix->sources,
                           choice->schedule, to);
      if (DFGNN_HAS_QUERY(problem->op))
        to = dfgnn__cpu_pack(job, problem, &job->query, matrix->destinations,
                             choice->schedule, to);
      if (DFGNN_HAS_KEY(problem->op))
        dfgnn__cpu_pack(job, problem, &job->key, matrix->sources,
                        choice->schedule, to);
    }
    memory += dfgnn__cpu_packed_bytes(problem, matrix->sources) *
              (size_t)(1 + DFGNN_HAS_KEY(problem->op));
    if (DFGNN_HAS_QUERY(problem->op))
      memory += dfgnn__cpu_packed_bytes(problem, matrix->destinations);
  }
  if (!DFGNN_HAS_KEY(problem->op))
    job->key = job->value;
  if (DFGNN_HAS_NORMS(problem->op)) {
    job->inverse = memory;
    const dfgnn_cpu_tensor *q = &job->query, *k = &job->key;
    if (q->base == k->base && q->node == k->node && q->head == k->head &&
        q->feature == k->feature && job->destinations <= job->sources)
      job->own_inverse = memory; /* one array is both */
    dfgnn__cpu_find_norms(job, choice->schedule);
    memory += norm_bytes(&launch->setting);
  }
  job->all_heads = job->kernels->spans_heads(job);
  job->thread_memory = memory;
  return memory + (size_t)job->threads * job->thread_bytes;
}

/* ---- work shared out to threads ------------------------------------------ */

/* The first row before which lies `work` or more: 1 an edge, 2 a row. */
static int64_t row_after(const dfgnn_cpu_job *job, int64_t work) {
  int64_t low = 0, high = job->destinations;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (dfgnn__cpu_offset(job, middle) + 2 * middle < work)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

int64_t dfgnn__cpu_part(const dfgnn_cpu_job *job, int64_t part, int64_t parts) {
  int64_t work = job->edges + 2 * job->destinations;
  return part == parts ? job->destinations
                       : row_after(job, work / parts * part);
}

int64_t dfgnn__cpu_row_of(const dfgnn_cpu_job *job, int64_t e) {
  int64_t low = 0, high = job->destinations;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (dfgnn__cpu_offset(job, middle) <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static char *slice(const dfgnn_cpu_job *job) {
#ifdef _OPENMP
  return job->thread_memory + (size_t)omp_get_thread_num() * job->thread_bytes;
#else
  return job->thread_memory;
#endif
}

void dfgnn__cpu_range(const dfgnn_cpu_job *job, int schedule, int64_t count,
                      int64_t step, dfgnn_cpu_body body, void *data) {
  if (schedule == DFGNN_CPU_SERIAL || job->threads == 1 || count <= step) {
    if (count > 0)
      body(job, data, job->thread_memory, 0, count);
    return;
  }
  int64_t tasks = (count + step - 1) / step;
#pragma omp parallel for num_threads(job->threads) schedule(dynamic)
  for (int64_t task = 0; task < tasks; task++) {
    int64_t begin = task * step;
    int64_t end = count - begin < step ? count : begin + step;
    body(job, data, slice(job), begin, end);
  }
}

void dfgnn__cpu_rows(const dfgnn_cpu_job *job, int schedule, int64_t rows,
                     dfgnn_cpu_body body, void *data) {
  /* A part of less work than 64 is not worth waking a thread for. */
  int64_t work = job->edges + 2 * job->destinations;
  int64_t parts = work / 64 < 8 * (int64_t)job->threads
                      ? work / 64
                      : 8 * (int64_t)job->threads;
  if (schedule != DFGNN_CPU_BALANCED || job->threads == 1 || parts < 2) {
    dfgnn__cpu_range(job, schedule, job->destinations, rows, body, data);
    return;
  }
#pragma omp parallel for num_threads(job->threads) schedule(dynamic)
  for (int64_t part = 0; part < parts; part++) {
    int64_t begin = dfgnn__cpu_part(job, part, parts);
    int64_t end = dfgnn__cpu_part(job, part + 1, parts);
    if (begin < end)
      body(job, data, slice(job), begin, end);
  }
}

/* ---- after a row --------------------------------------------------------- */

void dfgnn__cpu_attend(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                       int64_t begin, int64_t end, void *weights, void *sum,
                       const dfgnn_cpu_softmax *state) {
  double after = dfgnn__cpu_finish(job, row, head, state);
  if (job->weights) {
    job->kernels->multiply(weights, end - begin, after);
    dfgnn__cpu_keep(job, head, begin, end - begin, weights);
  }
  dfgnn__cpu_drop(job, head, begin, end - begin, weights);
  if (after != 0)
    job->kernels->accumulate(job, head, begin, end, weights, sum, -1, row,
                             job->weights ? 1 : after);
}

int dfgnn__cpu_all_zero(const dfgnn_cpu_job *job, const void *scalars,
                        int64_t count) {
  if (job->scalar_size == sizeof(double)) {
    for (int64_t i = 0; i < count; i++)
      if (((const double *)scalars)[i] != 0)
        return 0;
  } else {
    for (int64_t i = 0; i < count; i++)
      if (((const float *)scalars)[i] != 0)
        return 0;
  }
  return 1;
}
