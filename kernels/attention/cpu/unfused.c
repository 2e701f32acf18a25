/* unfused.c - three passes with scores and weights in memory between them, like
 * a composition of SDDMM, edge softmax and SpMM, but with the inner loops of
 * the fused families */
#include "kernels/attention/cpu/attention.h"

enum { SIMD, FLIGHT, PREFETCH, SCHEDULE };
enum { ROWS = 64 }; /* of a task */

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

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_choice c = choice(setting);
  return dfgnn__cpu_workspace(setting, &c);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
}

static int legal(const int *p) {
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

static dfgnn_status launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  const int *parameter = launch->setting.parameter;
  dfgnn_cpu_job job;
  pass p = {dfgnn__cpu_begin(&job, launch, &c), parameter[FLIGHT]};
  dfgnn__cpu_rows(&job, c.schedule, ROWS, score_rows, &p);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, weigh_rows, &p);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, sum_rows, &p);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_unfused) = {
    {
        .name = "cpu.attention.fwd.unfused",
        .algorithm = "unfused",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GAT),
        .parameters = {DFGNN_CPU_SIMD,
                       {"flight", 2, {4, 8}, {0}},
                       {"prefetch", 2, {0, 24}, {0}},
                       DFGNN_CPU_SCHEDULE},
        .legal = legal,
        .applicable = applicable,
        .workspace = workspace,
        .launch = launch,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
