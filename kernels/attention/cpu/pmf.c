/* pmf.c - DF-GNN's Parallelism Maximization Fusion on a CPU: tasks of equally
 * many edges, however long rows are, write scores to memory; then tasks of rows
 * do softmax and sum together */
#include "kernels/attention/cpu/attention.h"

enum { SIMD, EDGES, PREFETCH, SCHEDULE };
enum { ROWS = 64, FLIGHT_8 = 1 };

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
  if (p[EDGES] != 1024 && (p[SCHEDULE] == DFGNN_CPU_SERIAL || p[SIMD] != 2))
    return 0;
  return p[SIMD] != 0 || p[PREFETCH] == 0;
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

static dfgnn_status launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  dfgnn_cpu_job job;
  void *scores = dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_range(&job, c.schedule, job.edges,
                   launch->setting.parameter[EDGES], score_edges, scores);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, attend_rows, scores);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_pmf) = {
    {
        .name = "cpu.attention.fwd.pmf",
        .algorithm = "pmf",
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
                       {"edges", 2, {1024, 8192}, {0}},
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
