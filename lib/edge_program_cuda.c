/* edge_program_cuda.c - runs of generated kernels whose parameters are given */
#include <stdlib.h>
#include <string.h>

#include "kernels/program/cuda/codes.h"
#include "kernels/program/cuda/run.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/graph.h"

/* Gives a job the views of its long rows. */
static dfgnn_status take_long(dfgnn_program_job *job, dfgnn_graph *graph,
                              int64_t long_row, int units) {
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const dfgnn_view *views[DFGNN_MAX_VIEWS];
  dfgnn_status status = DFGNN_OK;
  const int count =
      dfgnn__program_long_views(requests, job, long_row, job->rows.max_degree,
                                job->columns.max_degree, units);
  for (int i = 0; i < count && !status; i++)
    status = dfgnn__graph_view(&views[i], graph, &requests[i]);
  if (!status)
    dfgnn__program_take_long(job, long_row, views, count);
  return status;
}

dfgnn_status dfgnn__edge_program_cuda(dfgnn_graph *graph,
                                      const dfgnn_program_job *given,
                                      const dfgnn_program_tuning *tuning,
                                      void *stream) {
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_program_code *code;
  void *workspace = NULL;
  dfgnn_program_job taken = *given, *const job = &taken;
  dfgnn_status status = dfgnn__program_code(&code, job, tuning);
  const int units = ctx->info.units > 0 ? ctx->info.units : 1;
  if (!status)
    status = take_long(job, graph, code->generated->long_row, units);
  if (status)
    return status;
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(ctx),
                             .stream = stream};
  dfgnn__graph_used(graph, stream);
  pthread_mutex_lock(&ctx->lock);
  int previous = dfgnn__context_enter(ctx);
  status = dfgnn__context_reserve(
      &workspace, ctx,
      dfgnn__program_cuda_workspace(job, code->generated, units), stream);
  if (!status)
    status = dfgnn__graph_follow(graph, stream);
  if (!status)
    status = dfgnn__program_cuda(job, code->generated, code->source, &queue,
                                 units, workspace);
  dfgnn__context_leave(ctx, previous);
  pthread_mutex_unlock(&ctx->lock);
  return status;
}

dfgnn_status dfgnn__edge_program_collect(dfgnn_programs *list,
                                         const dfgnn_edge_program *program,
                                         const dfgnn_matrix *matrix,
                                         const int64_t *names,
                                         dfgnn_dtype dtype, int units) {
  static const dfgnn_program_tuning by_rule;
  const dfgnn_dag *dag = program->lowered->dag;
  const dfgnn_queue queue = {.list = list};
  const dfgnn_program_code *code;
  const dfgnn_view some = {.extra = 1};
  dfgnn_program_array inputs[DFGNN_DAG_INPUTS], outputs[DFGNN_DAG_OUTPUTS];
  dfgnn_binding binding = {0};
  dfgnn_program_job job = {
      .lowered = program->lowered,
      .codes = &((dfgnn_edge_program *)program)->codes,
      .binding = &binding,
      .rows = *matrix,
      .columns = *matrix,
      .relations = *matrix,
      .hubs = {[DFGNN_PLACE_DST] = &some, [DFGNN_PLACE_SRC] = &some},
      .inputs = inputs,
      .outputs = outputs};
  const dfgnn_dtype sums = dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
  dfgnn_extent *extents = calloc((size_t)dag->count, sizeof *extents);
  if (!extents)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn__program_counts(binding.counts, matrix);
  memcpy(binding.names, names, sizeof binding.names);
  job.extents = extents;
  job.columns.destinations = matrix->sources;
  job.columns.sources = matrix->destinations;
  job.relations.destinations = matrix->relations;
  for (int i = 0; i < dag->input_count; i++)
    inputs[i] = (dfgnn_program_array){.dtype = dtype};
  for (int i = 0; i < dag->output_count; i++)
    outputs[i] =
        (dfgnn_program_array){.dtype = dag->outputs[i].kept ? sums : dtype};
  dfgnn_status status = dfgnn__bind_nodes(extents, dag, &binding);
  if (!status)
    status = dfgnn__program_code(&code, &job, &by_rule);
  if (!status)
    status = dfgnn__program_cuda(&job, code->generated, code->source, &queue,
                                 units, NULL);
  free(extents);
  return status;
}
