/* finish.c - the end of a row: its log-sum-exp, and zeros for a row without
 * edges */
#include <math.h>
#include <string.h>

#include "kernels/attention/cpu/attention.h"

void dfgnn__cpu_clear(const dfgnn_cpu_job *job, int64_t row, int64_t head) {
  char *to = job->out.base + row * job->out.node + head * job->out.head;
  if (job->out_packed)
    memset(to, 0, job->element_size * (size_t)job->out_dim);
  else
    for (int64_t d = 0; d < job->out_dim; d++)
      memset(to + d * job->out.feature, 0, job->element_size);
}

static void set_lse(const dfgnn_cpu_job *job, int64_t i, double x) {
  if (!job->lse)
    return;
  if (job->scalar_size == sizeof(double))
    ((double *)job->lse)[i] = x;
  else
    ((float *)job->lse)[i] = (float)x;
}

double dfgnn__cpu_finish(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                         const dfgnn_cpu_softmax *state) {
  if (state->sum == 0) {
    set_lse(job, row * job->heads + head, -INFINITY);
    dfgnn__cpu_clear(job, row, head);
    return 0;
  }
  if (job->lse)
    set_lse(job, row * job->heads + head,
            (state->shift == -INFINITY ? 0 : state->shift) + log(state->sum));
  return 1 / state->sum;
}
