/* problem.c - a program as a problem: what its families look at */
#include <string.h>

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

int dfgnn__program_is_double(const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  int some = 0;
  for (int i = 0; i < dag->input_count; i++)
    some |= job->inputs[i].dtype == DFGNN_F64;
  for (int i = 0; i < dag->output_count; i++)
    some |= job->outputs[i].dtype == DFGNN_F64;
  return some;
}

void dfgnn__program_counts(int64_t counts[DFGNN_PLACES],
                           const dfgnn_matrix *matrix) {
  counts[DFGNN_PLACE_CONST] = counts[DFGNN_PLACE_PARAM] = 1;
  counts[DFGNN_PLACE_DST] = matrix->destinations;
  counts[DFGNN_PLACE_SRC] = matrix->sources;
  counts[DFGNN_PLACE_EDGE] = matrix->edges;
  counts[DFGNN_PLACE_REL] = matrix->relations;
}

void dfgnn__program_take_views(dfgnn_program_job *job, const dfgnn_matrix *rows,
                               const dfgnn_view *const *views) {
  for (; *views; views++) {
    if ((*views)->request.kind == DFGNN_VIEW_TRANSPOSE) {
      job->columns = dfgnn__transposed(rows, *views);
      job->column_edges = (*views)->array[2];
    } else {
      job->relations = dfgnn__by_relation(rows, *views);
      job->relation_edges = (*views)->array[2];
      job->relation_of = (*views)->array[3];
    }
  }
}

void dfgnn__program_job_of(dfgnn_program_job *job, dfgnn_binding *binding,
                           const dfgnn_setting *setting,
                           const dfgnn_view *const *views) {
  const dfgnn_matrix *m = setting->matrix;
  *job = *setting->program;
  *binding = *job->binding;
  dfgnn__program_counts(binding->counts, m);
  job->binding = binding;
  job->threads = setting->device->units > 0 ? setting->device->units : 1;
  job->rows = job->columns = job->relations = *m;
  job->columns.destinations = m->sources;
  job->columns.sources = m->destinations;
  job->relations.destinations = m->relations;
  job->relations.sources = m->destinations;
  if (views) {
    dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
    const dfgnn_view *given[DFGNN_MAX_VIEWS + 1] = {NULL};
    memcpy(given, views,
           (size_t)dfgnn__program_views(setting, requests) * sizeof *given);
    dfgnn__program_take_views(job, m, given);
  }
}

/* Does any walk go over columns, or need their degrees? */
static int program_needs_columns(const dfgnn_lowered *lowered) {
  int needs = 0;
  for (int i = 0; i < lowered->walk_count; i++)
    needs |= lowered->walks[i].own == DFGNN_PLACE_SRC;
  for (int32_t n = 0; n < lowered->dag->count; n++)
    needs |= lowered->needed[n] &&
             lowered->dag->nodes[n].op == DFGNN_NODE_DEGREE &&
             lowered->dag->nodes[n].place == DFGNN_PLACE_SRC;
  return needs;
}

int dfgnn__program_views_of(const dfgnn_lowered *lowered, int columns,
                            dfgnn_view_request *requests) {
  int count = 0;
  if (columns || program_needs_columns(lowered))
    requests[count++].kind = DFGNN_VIEW_TRANSPOSE;
  if (dfgnn__program_needs_relations(lowered))
    requests[count++].kind = DFGNN_VIEW_RELATIONS;
  return count;
}

int dfgnn__program_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests) {
  return dfgnn__program_views_of(setting->program->lowered, 0, requests);
}
