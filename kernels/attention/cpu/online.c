/* online.c - one pass over the edges: chunks of a row are scored, folded
 * into a running softmax and summed while their rows are still in the L1 */
#include "kernels/attention/cpu/online.h"
#include "kernels/attention/cpu/families.h"

enum { SIMD, CHUNK, FLIGHT, PREFETCH, SCHEDULE, ROWS };

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .prefetch = p[PREFETCH],
      .thread_bytes = dfgnn__cpu_online_bytes(setting, p[CHUNK]),
  };
}

DFGNN_CPU_WORKSPACE(online, choice)

/* The product of all values would be hundreds of variants.  ROWS, the rows of a
 * task, matters only to the schedule dynamic; narrower instruction sets have
 * registers for four edges in flight. */
static int online_legal(const int *p) {
  if (p[ROWS] != 64 && (p[SCHEDULE] != DFGNN_CPU_DYNAMIC || p[CHUNK] != 64 ||
                        p[FLIGHT] != 8 || p[SIMD] == 0))
    return 0;
  if (p[SIMD] == 0)
    return p[CHUNK] == 64 && p[FLIGHT] == 4 && p[PREFETCH] == 0;
  return p[SIMD] == 2 || (p[CHUNK] == 64 && p[FLIGHT] == 4);
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                        int64_t begin, int64_t end) {
  const int *p = data;
  if (job->all_heads) {
    job->kernels->attend(job, begin, end, memory);
    return;
  }
  for (int64_t i = begin; i < end; i++)
    for (int64_t h = 0; h < job->heads; h++) {
      dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
      int64_t first = dfgnn__cpu_offset(job, i);
      int64_t last = dfgnn__cpu_offset(job, i + 1);
      dfgnn__cpu_online(job, i, h, first, last, p[CHUNK], p[FLIGHT], memory,
                        &state, 1);
    }
}

static dfgnn_status online_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  const int *p = launch->setting.parameter;
  dfgnn_cpu_job job;
  dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_rows(&job, p[SCHEDULE], p[ROWS], attend_rows, (void *)p);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_online) = {
    {DFGNN_CPU_FORWARD(online), .revision = 4, .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD,
                    {"chunk", 2, {64, 512}, {0}},
                    {"flight", 2, {4, 8}, {0}},
                    DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE,
                    {"rows", 2, {16, 64}, {0}}}},
    DFGNN_FAMILIES_END};
