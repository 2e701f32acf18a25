/* edge_rows.c - the steps that the backward walks of GT's and GATv2's rows with
 * edge features share */
#include "kernels/attention/cpu/edge_backward.h"

void dfgnn__cpu_edge_load_row(const dfgnn_cpu_edge_backward *w, char *to,
                              const dfgnn_cpu_tensor *t, int64_t node) {
  const dfgnn_problem *p = w->problem;
  for (int64_t h = 0; h < p->heads; h++)
    w->edges.loops->load(dfgnn__cpu_at(&w->edges, to, h * p->dim),
                         t->base + node * t->node + h * t->head, t->feature,
                         p->dim);
}

void dfgnn__cpu_edge_terms(const dfgnn_cpu_edge_backward *w, int64_t row,
                           int64_t begin, int64_t end) {
  const dfgnn_cpu_side *rows = &w->nodes.rows;
  const dfgnn_cpu_job *job = &rows->job;
  for (int64_t h = 0; h < job->heads; h++) {
    char *gradients = dfgnn__cpu_edge_gradients(w, h, begin);
    job->kernels->terms(job, row, h, begin, end - begin,
                        dfgnn__cpu_edge_weights(w, h, begin), gradients);
    if (rows->grad_bias)
      job->kernels->keep(
          dfgnn__cpu_scalar(job, rows->grad_bias, begin * job->heads + h),
          gradients, end - begin, job->heads);
  }
}
