/* stored.c - two families that keep the scores of all edges in memory
 *
 *   pmf      DF-GNN's Parallelism Maximization Fusion on a CPU: tasks of
 *            equally many edges, however long rows are, write scores; then
 *            tasks of rows do softmax and sum together
 *   unfused  three passes with scores and weights in memory between them, like
 *            a composition of SDDMM, edge softmax and SpMM, but with the inner
 *            loops of the fused families */
#include "kernels/attention/cpu/families.h"

enum { SIMD, EDGES, FLIGHT = EDGES, PREFETCH, SCHEDULE };
enum { ROWS = 64, FLIGHT_8 = 1 }; /* ROWS: of a task */

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .prefetch = p[PREFETCH],
      .thread_bytes = dfgnn__cpu_sum_bytes(setting),
      .shared_bytes = dfgnn__cpu_score_bytes(setting),
  };
}

DFGNN_CPU_WORKSPACE(pmf, choice)
DFGNN_CPU_WORKSPACE(unfused, choice)

/* ---- pmf ----------------------------------------------------------------- */

static int pmf_legal(const int *p) {
  if (p[EDGES] != 1024 && (p[SCHEDULE] == DFGNN_CPU_SERIAL || p[SIMD] != 2))
    return 0;
  return dfgnn__cpu_fetches(p[SIMD], p[PREFETCH]);
}

static void score_edges(const dfgnn_cpu_job *job, void *scores, char *memory,
                        int64_t begin, int64_t end) {
  int64_t row = dfgnn__cpu_row_of(job, begin);
  (void)memory;
  for (int64_t e = begin; e < end; row++) {
    int64_t last = dfgnn__cpu_offset(job, row + 1);
    int64_t next = last < end ? last : end;
    for (int64_t h = 0; h < job->heads && e < next; h++)
      job->kernels->score[FLIGHT_8][job->op](
          job, row, h, e, next,
          dfgnn__cpu_scalar(job, scores, h * job->edges + e));
    e = next;
  }
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
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

static dfgnn_status pmf_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  dfgnn_cpu_job job;
  void *scores = dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_range(&job, c.schedule, job.edges,
                   launch->setting.parameter[EDGES], score_edges, scores);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, attend_rows, scores);
  return DFGNN_OK;
}

/* ---- unfused ------------------------------------------------------------- */

static int unfused_legal(const int *p) {
  if (p[SIMD] == 0)
    return p[FLIGHT] == 4 && p[PREFETCH] == 0;
  return p[FLIGHT] == 8 || p[PREFETCH] == 0;
}

typedef struct pass {
  void *scores; /* [heads, edges] */
  int flight;
} pass;

static void score_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  const pass *p = data;
  (void)memory;
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t last = dfgnn__cpu_offset(job, i + 1);
      job->kernels->score[p->flight == 8][job->op](
          job, i, h, first, last,
          dfgnn__cpu_scalar(job, p->scores, h * job->edges + first));
    }
}

static void weigh_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  const pass *p = data;
  (void)memory;
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t count = dfgnn__cpu_offset(job, i + 1) - first;
      void *scores = dfgnn__cpu_scalar(job, p->scores, h * job->edges + first);
      job->kernels->weigh(scores, count, &state);
      double after = dfgnn__cpu_finish(job, i, h, &state);
      job->kernels->multiply(scores, count, after);
      dfgnn__cpu_keep(job, h, first, count, scores);
      dfgnn__cpu_drop(job, h, first, count, scores);
    }
}

static void sum_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                     int64_t begin, int64_t end) {
  const pass *p = data;
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t last = dfgnn__cpu_offset(job, i + 1);
      void *weights = dfgnn__cpu_scalar(job, p->scores, h * job->edges + first);
      /* 0 times infinity would spoil a row without weights. */
      if (dfgnn__cpu_all_zero(job, weights, last - first))
        dfgnn__cpu_clear(job, i, h);
      else
        job->kernels->accumulate(job, h, first, last, weights, memory, -1, i,
                                 1);
    }
}

static dfgnn_status unfused_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  const int *parameter = launch->setting.parameter;
  dfgnn_cpu_job job;
  pass p = {dfgnn__cpu_begin(&job, launch, &c), parameter[FLIGHT]};
  dfgnn__cpu_rows(&job, c.schedule, ROWS, score_rows, &p);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, weigh_rows, &p);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, sum_rows, &p);
  return DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

DFGNN_FAMILIES(attention_cpu_stored) = {
    {DFGNN_CPU_FORWARD(pmf), .revision = 1, .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD,
                    {"edges", 2, {1024, 8192}, {0}},
                    DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    {DFGNN_CPU_FORWARD(unfused), .revision = 1, .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD,
                    {"flight", 2, {4, 8}, {0}},
                    DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    DFGNN_FAMILIES_END};
