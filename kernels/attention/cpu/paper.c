/* paper.c - the algorithms of DF-GNN's paper on a CPU
 *
 *   smmf     Shared Memory Maximization Fusion: the scores of a block of rows
 *            stay in the cache of a thread; a block ends before it has more
 *            scores than 32 edges a row, and a longer row is one of its own
 *   pmf      Parallelism Maximization Fusion: tasks of equally many edges,
 *            however long rows are, write scores to memory; then tasks of rows
 *            do softmax and sum together
 *   unfused  three passes with scores and weights in memory between them, like
 *            a composition of SDDMM, edge softmax and SpMM, but with the inner
 *            loops of the fused families */
#include "kernels/attention/cpu/families.h"
#include "kernels/attention/cpu/online.h"

enum { SIMD, SCHEDULE };
enum { ROWS = 64, EDGES_A_ROW = 32, EDGES = 1024 }; /* EDGES: of a task */

#define PAPER(label, choice_of)                                                \
  DFGNN_CPU_WORKSPACE(label, choice_of)                                        \
  static dfgnn_status label##_launch(const dfgnn_launch *launch)

/* ---- smmf ---------------------------------------------------------------- */

static dfgnn_cpu_choice in_cache(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  int64_t scores = ROWS * EDGES_A_ROW;
  if (scores < setting->matrix->max_degree)
    scores = setting->matrix->max_degree;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .thread_bytes = dfgnn__cpu_sum_bytes(setting) +
                      (size_t)scores * sizeof(double) + DFGNN_CPU_PADDING,
  };
}

static void attend_blocks(const dfgnn_cpu_job *job, void *data, char *memory,
                          int64_t begin, int64_t end) {
  char *sum = memory + job->thread_bytes - job->sum_bytes;
  (void)data;
  while (begin < end) {
    int64_t limit = dfgnn__cpu_offset(job, begin) + ROWS * EDGES_A_ROW;
    int64_t next = begin + 1;
    while (next < end && next - begin < ROWS &&
           dfgnn__cpu_offset(job, next + 1) <= limit)
      next++;
    for (int64_t h = 0; h < job->heads; h++)
      dfgnn__cpu_attend_block(job, memory, sum, h, 1, begin, next);
    begin = next;
  }
}

PAPER(smmf, in_cache) {
  dfgnn_cpu_choice c = in_cache(&launch->setting);
  dfgnn_cpu_job job;
  dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, attend_blocks, NULL);
  return DFGNN_OK;
}

/* ---- scores in memory, [heads, edges] ------------------------------------ */

static dfgnn_cpu_choice in_memory(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .thread_bytes = dfgnn__cpu_sum_bytes(setting),
      .shared_bytes = dfgnn__cpu_score_bytes(setting),
  };
}

static void score_edges(const dfgnn_cpu_job *job, void *scores, char *memory,
                        int64_t begin, int64_t end) {
  int64_t row = dfgnn__cpu_row_of(job, begin);
  (void)memory;
  for (int64_t e = begin; e < end; row++) {
    int64_t last = dfgnn__cpu_offset(job, row + 1);
    int64_t next = last < end ? last : end;
    for (int64_t h = 0; h < job->heads && e < next; h++)
      job->kernels->score[job->op](
          job, row, h, e, next,
          dfgnn__cpu_scalar(job, scores, h * job->edges + e));
    e = next;
  }
}

static void attend_scored(const dfgnn_cpu_job *job, void *data, char *memory,
                          int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t last = dfgnn__cpu_offset(job, i + 1);
      void *scores = dfgnn__cpu_scalar(job, data, h * job->edges + first);
      job->kernels->weigh(scores, last - first, &state);
      dfgnn__cpu_attend(job, i, h, first, last, scores, memory, &state);
    }
}

PAPER(pmf, in_memory) {
  dfgnn_cpu_choice c = in_memory(&launch->setting);
  dfgnn_cpu_job job;
  void *scores = dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_range(&job, c.schedule, job.edges, EDGES, score_edges, scores);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, attend_scored, scores);
  return DFGNN_OK;
}

/* ---- unfused ------------------------------------------------------------- */

static void score_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  (void)memory;
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      int64_t first = dfgnn__cpu_offset(job, i);
      job->kernels->score[job->op](
          job, i, h, first, dfgnn__cpu_offset(job, i + 1),
          dfgnn__cpu_scalar(job, data, h * job->edges + first));
    }
}

static void weigh_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  (void)memory;
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t count = dfgnn__cpu_offset(job, i + 1) - first;
      void *scores = dfgnn__cpu_scalar(job, data, h * job->edges + first);
      job->kernels->weigh(scores, count, &state);
      double after = dfgnn__cpu_finish(job, i, h, &state);
      job->kernels->multiply(scores, count, after);
      dfgnn__cpu_keep(job, h, first, count, scores);
      dfgnn__cpu_drop(job, h, first, count, scores);
    }
}

static void sum_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                     int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t last = dfgnn__cpu_offset(job, i + 1);
      void *weights = dfgnn__cpu_scalar(job, data, h * job->edges + first);
      /* 0 times infinity would spoil a row without weights. */
      if (dfgnn__cpu_all_zero(job, weights, last - first))
        dfgnn__cpu_clear(job, i, h);
      else
        job->kernels->accumulate(job, h, first, last, weights, memory, -1, i,
                                 1);
    }
}

PAPER(unfused, in_memory) {
  dfgnn_cpu_choice c = in_memory(&launch->setting);
  dfgnn_cpu_job job;
  void *scores = dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, score_rows, scores);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, weigh_rows, scores);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, sum_rows, scores);
  return DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

#define PAPER_FAMILY(label)                                                    \
  {                                                                            \
    DFGNN_CPU_FORWARD(label), .revision = 2, .paper = 1,                       \
                              .applicable = dfgnn__cpu_runs, .parameters = {   \
                                DFGNN_CPU_SIMD,                                \
                                DFGNN_CPU_SCHEDULE                             \
                              }                                                \
  }

DFGNN_FAMILIES(attention_cpu_paper) = {PAPER_FAMILY(pmf), PAPER_FAMILY(smmf),
                                       PAPER_FAMILY(unfused),
                                       DFGNN_FAMILIES_END};
