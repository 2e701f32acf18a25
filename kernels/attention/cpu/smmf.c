/* smmf.c - DF-GNN's Shared Memory Maximization Fusion on a CPU: the scores
 * of a block of rows stay in a buffer of the thread, in its cache; all rows of
 * the block are scored, then weighed, then summed, so that one table is
 * gathered at a time */
#include "kernels/attention/cpu/families.h"

enum { SIMD, ROWS, PREFETCH, SCHEDULE };
enum { EDGES_A_ROW = 32, FLIGHT_8 = 1 };

/* The scores at which a block of long rows ends before it has ROWS rows.  A row
 * with more is a block of its own, for which the buffer has room. */
static int64_t block_scores(const int *p) {
  return (int64_t)p[ROWS] * EDGES_A_ROW;
}

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  int64_t scores = block_scores(p);
  if (scores < setting->matrix->max_degree)
    scores = setting->matrix->max_degree;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .prefetch = p[PREFETCH],
      .thread_bytes = dfgnn__cpu_sum_bytes(setting) +
                      (size_t)scores * sizeof(double) + DFGNN_CPU_PADDING,
  };
}

DFGNN_CPU_WORKSPACE(smmf, choice)

/* Small blocks go with small tasks. */
static int smmf_legal(const int *p) {
  if (p[SIMD] == 0)
    return p[PREFETCH] == 0 && p[ROWS] == 64;
  if (p[SIMD] == 1)
    return p[ROWS] == 64;
  return p[ROWS] != 16 || p[SCHEDULE] == DFGNN_CPU_DYNAMIC;
}

static void attend_block(const dfgnn_cpu_job *job, char *sum, char *scores,
                         int64_t head, int64_t begin, int64_t end) {
  int64_t base = dfgnn__cpu_offset(job, begin);
  for (int64_t i = begin; i < end; i++) {
    int64_t first = dfgnn__cpu_offset(job, i);
    job->kernels->score[FLIGHT_8][job->op](
        job, i, head, first, dfgnn__cpu_offset(job, i + 1),
        dfgnn__cpu_scalar(job, scores, first - base));
  }
  for (int64_t i = begin; i < end; i++) {
    dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
    int64_t first = dfgnn__cpu_offset(job, i);
    int64_t last = dfgnn__cpu_offset(job, i + 1);
    void *row = dfgnn__cpu_scalar(job, scores, first - base);
    job->kernels->weigh(row, last - first, &state);
    dfgnn__cpu_attend(job, i, head, first, last, row, sum, &state);
  }
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                        int64_t begin, int64_t end) {
  const int *p = data;
  char *sum = memory + job->thread_bytes - job->sum_bytes;
  while (begin < end) {
    int64_t limit = dfgnn__cpu_offset(job, begin) + block_scores(p);
    int64_t next = begin + 1;
    while (next < end && next - begin < p[ROWS] &&
           dfgnn__cpu_offset(job, next + 1) <= limit)
      next++;
    for (int64_t h = 0; h < job->heads; h++)
      attend_block(job, sum, memory, h, begin, next);
    begin = next;
  }
}

static dfgnn_status smmf_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  const int *p = launch->setting.parameter;
  dfgnn_cpu_job job;
  dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, p[ROWS], attend_rows, (void *)p);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_smmf) = {
    {DFGNN_CPU_FORWARD(smmf), .revision = 1, .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD,
                    {"rows", 3, {16, 64, 512}, {0}},
                    DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    DFGNN_FAMILIES_END};
