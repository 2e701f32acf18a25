/* attention.c - workspace, norms and packed copies of CPU attention, its tasks
 * for threads, and the end of a row */
#include "kernels/attention/cpu/attention.h"
#include "kernels/attention/cpu/edges.h"
#include "kernels/attention/operators.h"
#include "kernels/common/cpu_tables.h"
#include "kernels/common/cpu_team.h"

#include <math.h>
#include <string.h>

/* ---- instruction sets ---------------------------------------------------- */

DFGNN_CPU_TABLES(dfgnn__cpu_kernels, dfgnn_cpu_kernels, dfgnn__cpu)

/* ---- the workspace of a launch ------------------------------------------- */

size_t dfgnn__cpu_aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t dfgnn__cpu_scalar_size(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

dfgnn_problem dfgnn__cpu_padded(const dfgnn_problem *problem, int simd) {
  const int64_t vector = dfgnn__cpu_kernels(simd, problem->dtype)->vector;
  dfgnn_problem padded = *problem;
  int64_t dim = 1;
  if (problem->dim > vector / 2) {
    dim = (problem->dim + vector - 1) / vector * vector;
  } else {
    while (dim < problem->dim || (dim * problem->heads) % vector)
      dim *= 2;
  }
  padded.dim = dim;
  return padded;
}

dfgnn_problem dfgnn__cpu_fitted(const dfgnn_problem *problem, int simd,
                                int pads) {
  const dfgnn_problem padded = dfgnn__cpu_padded(problem, simd);
  return pads && problem->heads > 1 &&
                 problem->heads <= DFGNN_CPU_NARROW_HEADS &&
                 padded.dim <= DFGNN_CPU_PADDED_DIM
             ? padded
             : *problem;
}

size_t dfgnn__cpu_heads_bytes(const dfgnn_problem *padded, int64_t inner) {
  return dfgnn__cpu_aligned((size_t)(padded->heads * padded->dim * inner) *
                                dfgnn_dtype_size(padded->dtype) +
                            DFGNN_CPU_PADDING);
}

const void *dfgnn__cpu_pad_heads(const dfgnn_problem *problem,
                                 const dfgnn_problem *padded, const void *array,
                                 int64_t inner, char *memory) {
  const size_t size = dfgnn_dtype_size(problem->dtype) * (size_t)inner;
  memset(memory, 0, dfgnn__cpu_heads_bytes(padded, inner));
  for (int64_t h = 0; h < problem->heads; h++)
    memcpy(memory + (size_t)(h * padded->dim) * size,
           (const char *)array + (size_t)(h * problem->dim) * size,
           (size_t)problem->dim * size);
  return memory;
}

/* With heads innermost, the features of a head are not adjacent; with edge
 * features, strides may leave gaps. */
int dfgnn__cpu_packs(const dfgnn_problem *problem, int64_t dim) {
  return (problem->layout == DFGNN_LAYOUT_NDH && problem->heads > 1 &&
          problem->dim > 1) ||
         (problem->edge_dim && !DFGNN_HAS_SCALARS(problem->op)) ||
         dim != problem->dim;
}

int dfgnn__cpu_adjacent(const dfgnn_cpu_job *job, const dfgnn_cpu_tensor *t) {
  const int64_t size = (int64_t)job->element_size;
  return t->feature == size && job->out_dim == job->dim &&
         (!job->term || job->heads == 1 || t->head == job->dim * size);
}

size_t dfgnn__cpu_sum_bytes(const dfgnn_setting *setting) {
  return dfgnn__cpu_aligned((size_t)dfgnn__cpu_most_dim(setting->problem) *
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
  const dfgnn_problem padded =
      dfgnn__cpu_fitted(setting->problem, choice->simd, choice->pads);
  const dfgnn_matrix *matrix = setting->matrix;
  size_t bytes =
      norm_bytes(setting) + dfgnn__cpu_aligned(choice->shared_bytes) +
      (size_t)setting->device->units * dfgnn__cpu_aligned(choice->thread_bytes);
  if (dfgnn__cpu_packs(&padded, setting->problem->dim)) {
    bytes += dfgnn__cpu_att_bytes(&padded) +
             dfgnn__cpu_packed_bytes(&padded, matrix->sources) *
                 (size_t)(1 + DFGNN_HAS_KEY(padded.op));
    if (DFGNN_HAS_QUERY(padded.op))
      bytes += dfgnn__cpu_packed_bytes(&padded, matrix->destinations);
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
      .out_dim = choice->dim ? choice->dim : problem->dim,
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
      .att = choice->att ? choice->att : args->att,
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

static int same_rows(const dfgnn_cpu_tensor *a, const dfgnn_cpu_tensor *b) {
  return a->base == b->base && a->node == b->node && a->head == b->head &&
         a->feature == b->feature;
}

/* Copies the inputs to memory, unless they are adjacent. */
static void pack_inputs(dfgnn_cpu_job *job, const dfgnn_problem *padded,
                        int schedule, char *memory) {
  const int one =
      same_rows(&job->query, &job->value) && job->destinations <= job->sources;
  memory =
      dfgnn__cpu_pack(job, padded, &job->value, job->sources, schedule, memory);
  if (one)
    job->query = job->value;
  else if (DFGNN_HAS_QUERY(job->op))
    memory = dfgnn__cpu_pack(job, padded, &job->query, job->destinations,
                             schedule, memory);
  if (DFGNN_HAS_KEY(job->op))
    dfgnn__cpu_pack(job, padded, &job->key, job->sources, schedule, memory);
}

void *dfgnn__cpu_begin(dfgnn_cpu_job *job, const dfgnn_launch *given,
                       const dfgnn_cpu_choice *chosen) {
  const dfgnn_problem *problem = given->setting.problem;
  const dfgnn_problem padded =
      dfgnn__cpu_fitted(problem, chosen->simd, chosen->pads);
  const dfgnn_matrix *matrix = given->setting.matrix;
  const int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  const int packs = dfgnn__cpu_packs(&padded, problem->dim);
  char *memory = given->workspace;
  dfgnn_launch launch = *given;
  dfgnn_cpu_choice choice = *chosen;

  launch.setting.problem = &padded;
  if (padded.dim != problem->dim) {
    choice.dim = problem->dim;
    choice.att = dfgnn__cpu_pad_att(problem, &padded, given->args->att, memory);
  }
  dfgnn__cpu_describe(job, &launch, &choice);
  job->out_packed = job->out.feature == size;
  const int adjacent =
      dfgnn__cpu_adjacent(job, &job->value) &&
      (!DFGNN_HAS_QUERY(problem->op) ||
       dfgnn__cpu_adjacent(job, &job->query)) &&
      (!DFGNN_HAS_KEY(problem->op) || dfgnn__cpu_adjacent(job, &job->key));
  job->packed = adjacent || packs;
  if (packs) {
    memory += dfgnn__cpu_att_bytes(&padded);
    if (!adjacent)
      pack_inputs(job, &padded, choice.schedule, memory);
    memory += dfgnn__cpu_packed_bytes(&padded, matrix->sources) *
              (size_t)(1 + DFGNN_HAS_KEY(problem->op));
    if (DFGNN_HAS_QUERY(problem->op))
      memory += dfgnn__cpu_packed_bytes(&padded, matrix->destinations);
  }
  if (!DFGNN_HAS_KEY(problem->op))
    job->key = job->value;
  if (DFGNN_HAS_NORMS(problem->op)) {
    job->inverse = memory;
    if (same_rows(&job->query, &job->key) && job->destinations <= job->sources)
      job->own_inverse = memory; /* one array is both */
    dfgnn__cpu_find_norms(job, choice.schedule);
    memory += norm_bytes(&launch.setting);
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

typedef struct tasks {
  const dfgnn_cpu_job *job;
  dfgnn_cpu_body body;
  void *data;
  int64_t parts; /* of rows; 0: tasks are ranges */
} tasks;

static void run_tasks(void *data, int64_t begin, int64_t end) {
  const tasks *t = data;
  const dfgnn_cpu_job *job = t->job;
  if (t->parts) {
    begin = dfgnn__cpu_part(job, begin, t->parts);
    end = dfgnn__cpu_part(job, end, t->parts);
  }
  if (begin < end)
    t->body(job, t->data,
            job->thread_memory +
                (size_t)dfgnn__cpu_thread() * job->thread_bytes,
            begin, end);
}

void dfgnn__cpu_range(const dfgnn_cpu_job *job, int schedule, int64_t count,
                      int64_t step, dfgnn_cpu_body body, void *data) {
  tasks t = {job, body, data, 0};
  dfgnn__cpu_for(schedule == DFGNN_CPU_SERIAL ? 1 : job->threads, count, step,
                 run_tasks, &t);
}

void dfgnn__cpu_rows(const dfgnn_cpu_job *job, int schedule, int64_t rows,
                     dfgnn_cpu_body body, void *data) {
  /* A part of less work than 64 is not worth waking a thread for. */
  int64_t work = job->edges + 2 * job->destinations;
  int64_t parts = work / 64 < 8 * (int64_t)job->threads
                      ? work / 64
                      : 8 * (int64_t)job->threads;
  tasks t = {job, body, data, parts};
  if (schedule != DFGNN_CPU_BALANCED || parts < 2)
    dfgnn__cpu_range(job, schedule, job->destinations, rows, body, data);
  else
    dfgnn__cpu_for(job->threads, parts, 1, run_tasks, &t);
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
