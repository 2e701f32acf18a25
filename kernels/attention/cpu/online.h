/* online.h - the chunked online softmax of one row, and the softmax of a block
 * of rows, for families that take one head at a time */
#ifndef DFGNN_ATTENTION_CPU_ONLINE_H
#define DFGNN_ATTENTION_CPU_ONLINE_H

#include "kernels/attention/cpu/attention.h"

/* Bytes of the scores of a chunk, then of the sum, each with its padding; or
 * those of a row's heads. */
static inline size_t dfgnn__cpu_online_bytes(const dfgnn_setting *setting,
                                             int64_t chunk) {
  size_t head =
      (size_t)(chunk + dfgnn__cpu_most_dim(setting->problem)) * sizeof(double) +
      2 * DFGNN_CPU_PADDING;
  size_t all = dfgnn__cpu_across_bytes(setting->problem);
  return head > all ? head : all;
}

static inline void *dfgnn__cpu_online_sum(const dfgnn_cpu_job *job,
                                          int64_t chunk, char *memory) {
  return memory + (size_t)chunk * job->scalar_size + DFGNN_CPU_PADDING;
}

/* Attends to a row by chunks of its edges. */
static inline void dfgnn__cpu_online(const dfgnn_cpu_job *job, int64_t row,
                                     int64_t head, int64_t chunk,
                                     char *memory) {
  const dfgnn_cpu_kernels *kernels = job->kernels;
  const int64_t begin = dfgnn__cpu_offset(job, row);
  const int64_t end = dfgnn__cpu_offset(job, row + 1);
  dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
  void *scores = memory, *sum = dfgnn__cpu_online_sum(job, chunk, memory);
  double after = 0;

  for (int64_t e = begin; e < end; e += chunk) {
    int64_t next = end - e < chunk ? end : e + chunk;
    kernels->score[job->op](job, row, head, e, next, scores);
    dfgnn__cpu_keep(job, head, e, next - e, scores);
    double before = kernels->weigh(scores, next - e, &state);
    dfgnn__cpu_drop(job, head, e, next - e, scores);
    int last = next == end;
    if (last)
      after = dfgnn__cpu_finish(job, row, head, &state);
    if (!last || after != 0)
      kernels->accumulate(job, head, e, next, scores, sum,
                          e == begin ? -1 : before, last ? row : -1, after);
  }
  if (begin == end)
    dfgnn__cpu_finish(job, row, head, &state);
  if (job->weights)
    dfgnn__cpu_normalize(job, head, begin, end, &state);
}

/* Attends to `heads` heads, from `head` on, of the rows begin .. end - 1, for
 * whose scores there is room. */
static inline void dfgnn__cpu_attend_block(const dfgnn_cpu_job *job,
                                           void *scores, void *sum,
                                           int64_t head, int64_t heads,
                                           int64_t begin, int64_t end) {
  void *at = scores;
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = dfgnn__cpu_offset(job, i);
    const int64_t last = dfgnn__cpu_offset(job, i + 1);
    for (int64_t h = head; h < head + heads; h++) {
      job->kernels->score[job->op](job, i, h, first, last, at);
      at = dfgnn__cpu_scalar(job, at, last - first);
    }
  }
  at = scores;
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = dfgnn__cpu_offset(job, i);
    const int64_t last = dfgnn__cpu_offset(job, i + 1);
    for (int64_t h = head; h < head + heads; h++) {
      dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
      job->kernels->weigh(at, last - first, &state);
      dfgnn__cpu_attend(job, i, h, first, last, at, sum, &state);
      at = dfgnn__cpu_scalar(job, at, last - first);
    }
  }
}

#endif
