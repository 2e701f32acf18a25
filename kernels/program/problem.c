/* problem.c - a program as a problem: what its families look at */
#include "kernels/program/job.h"

enum { MOST_WIDEST = 2048 }; /* elements of a row that lanes share */

dfgnn_extent dfgnn__program_widest(const dfgnn_lowered *lowered,
                                   const dfgnn_extent *extents) {
  dfgnn_extent widest = {.axis = {1, 1, 1}, .all = 1};
  for (int32_t n = 0; n < lowered->dag->count; n++)
    if (lowered->needed[n] &&
        lowered->dag->nodes[n].place > DFGNN_PLACE_PARAM &&
        extents[n].all > widest.all && extents[n].all <= MOST_WIDEST)
      widest = extents[n];
  return widest;
}

void dfgnn__program_job_of(dfgnn_program_job *job, dfgnn_binding *binding,
                           const dfgnn_setting *setting,
                           const dfgnn_view *const *views) {
  const dfgnn_matrix *m = setting->matrix;
  *job = *setting->program;
  *binding = *job->binding;
  binding->counts[DFGNN_PLACE_CONST] = binding->counts[DFGNN_PLACE_PARAM] = 1;
  binding->counts[DFGNN_PLACE_DST] = m->destinations;
  binding->counts[DFGNN_PLACE_SRC] = m->sources;
  binding->counts[DFGNN_PLACE_EDGE] = m->edges;
  job->binding = binding;
  job->threads = setting->device->units > 0 ? setting->device->units : 1;
  job->rows = job->columns = *m;
  job->columns.destinations = m->sources;
  job->columns.sources = m->destinations;
  if (views && dfgnn__program_needs_columns(job->lowered)) {
    job->columns = dfgnn__transposed(m, views[0]);
    job->column_edges = views[0]->array[2];
  }
}

int dfgnn__program_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests) {
  const int columns = dfgnn__program_needs_columns(setting->program->lowered);
  if (columns)
    requests[0].kind = DFGNN_VIEW_TRANSPOSE;
  return columns;
}
