/* online.c - one pass over the rows: the edges of a block of rows are scored,
 * then each row is weighed and summed; a row too long for a block is scored,
 * folded into a running softmax and summed in chunks
 *
 * A block's scores stay in the L1.  Weights that were scored just before would
 * be loaded while their stores are under way. */
#include "kernels/attention/cpu/online.h"
#include "kernels/attention/cpu/families.h"

enum { SIMD, PREFETCH, SCHEDULE };
enum { ROWS = 64, SCORES = 2048, CHUNK = 64 }; /* of a block, of a long row */

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .prefetch = p[PREFETCH],
      .pads = 1,
      .thread_bytes = dfgnn__cpu_online_bytes(setting, SCORES),
  };
}

DFGNN_CPU_WORKSPACE(online, choice)

static int online_legal(const int *p) {
  return dfgnn__cpu_fetches(p[SIMD], p[PREFETCH]);
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                        int64_t begin, int64_t end) {
  (void)data;
  if (job->all_heads) {
    job->kernels->attend(job, begin, end, memory);
    return;
  }
  while (begin < end) {
    const int64_t first = dfgnn__cpu_offset(job, begin);
    int64_t next = begin;
    while (next < end && next - begin < ROWS &&
           (dfgnn__cpu_offset(job, next + 1) - first) * job->heads <= SCORES)
      next++;
    if (next > begin) {
      dfgnn__cpu_attend_block(job, memory,
                              dfgnn__cpu_online_sum(job, SCORES, memory), 0,
                              job->heads, begin, next);
    } else {
      next = begin + 1;
      for (int64_t h = 0; h < job->heads; h++)
        dfgnn__cpu_online(job, begin, h, CHUNK, memory);
    }
    begin = next;
  }
}

static dfgnn_status online_launch(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  dfgnn_cpu_job job;
  dfgnn__cpu_begin(&job, launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, ROWS, attend_rows, NULL);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_online) = {
    {DFGNN_CPU_FORWARD(online), .revision = 5, .legal = online_legal,
     .applicable = dfgnn__cpu_runs,
     .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_PREFETCH_PARAMETER,
                    DFGNN_CPU_SCHEDULE}},
    DFGNN_FAMILIES_END};
