/* edge_program_cuda.c - generated kernels of programs, and their runs */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/sources.h"
#include "kernels/program/cuda/run.h"
#include "lib/edge_program.h"
#include "lib/graph.h"

/* The source depends on the program and on this. */
typedef struct code_key {
  int64_t names[DFGNN_SIZE_NAMES];
  dfgnn_program_tuning tuning;
  int degree; /* of the graph, by powers of two */
  uint8_t types[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
} code_key;

struct dfgnn_edge_code {
  struct dfgnn_edge_code *next;
  code_key key;
  dfgnn_generated *generated;
  const char *source;
};

void dfgnn__edge_codes_free(struct dfgnn_edge_code *code) {
  while (code) {
    struct dfgnn_edge_code *next = code->next;
    dfgnn__generated_free(code->generated);
    free(code);
    code = next;
  }
}

/* The most features that a lane may load at once: tensors lie at multiples of
 * that many. */
static int vector_of(const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  int vector = 4;
  for (int i = 0; i < dag->input_count + dag->output_count; i++) {
    const dfgnn_program_array *array =
        i < dag->input_count ? &job->inputs[i]
                             : &job->outputs[i - dag->input_count];
    while ((uintptr_t)array->data %
           ((uintptr_t)vector * dfgnn_dtype_size(array->dtype)))
      vector /= 2;
  }
  return vector;
}

static code_key key_of(const dfgnn_program_job *job,
                       const dfgnn_program_tuning *tuning) {
  const dfgnn_dag *dag = job->lowered->dag;
  const dfgnn_matrix *m = &job->rows;
  int64_t nodes = m->destinations + m->sources;
  code_key key;
  memset(&key, 0, sizeof key);
  memcpy(key.names, job->binding->names, sizeof key.names);
  key.tuning = *tuning;
  if (!key.tuning.vector)
    key.tuning.vector = vector_of(job);
  for (int64_t d = nodes ? m->edges / nodes : 0; d; d /= 2)
    key.degree++;
  for (int i = 0; i < dag->input_count; i++)
    key.types[i] = (uint8_t)job->inputs[i].dtype;
  for (int i = 0; i < dag->output_count; i++)
    key.types[dag->input_count + i] = (uint8_t)job->outputs[i].dtype;
  return key;
}

static dfgnn_status make_code(struct dfgnn_edge_code **made,
                              const code_key *key,
                              const dfgnn_program_job *job) {
  struct dfgnn_edge_code *code = calloc(1, sizeof *code);
  if (!code)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  code->key = *key;
  dfgnn_status status =
      dfgnn__program_generate(&code->generated, job, &key->tuning);
  if (!status &&
      !(code->source = dfgnn__source_generated(code->generated->text)))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status)
    dfgnn__edge_codes_free(code);
  else
    *made = code;
  return status;
}

static dfgnn_status find_code(const struct dfgnn_edge_code **found,
                              dfgnn_edge_program *program,
                              const dfgnn_program_job *job,
                              const dfgnn_program_tuning *tuning) {
  const code_key key = key_of(job, tuning);
  dfgnn_status status = DFGNN_OK;
  struct dfgnn_edge_code *code;
  pthread_mutex_lock(&program->lock);
  for (code = program->codes; code; code = code->next)
    if (!memcmp(&code->key, &key, sizeof key))
      break;
  if (!code && !(status = make_code(&code, &key, job))) {
    code->next = program->codes;
    program->codes = code;
  }
  pthread_mutex_unlock(&program->lock);
  *found = code;
  return status;
}

static int units_of(const dfgnn_context *ctx) {
  return ctx->info.units > 0 ? ctx->info.units : 1;
}

dfgnn_status dfgnn__edge_program_cuda_room(size_t *bytes,
                                           const dfgnn_edge_program *program,
                                           const dfgnn_graph *graph,
                                           const dfgnn_program_job *job,
                                           const dfgnn_program_tuning *tuning) {
  const struct dfgnn_edge_code *code;
  dfgnn_status status =
      find_code(&code, (dfgnn_edge_program *)program, job, tuning);
  if (!status)
    *bytes = dfgnn__program_cuda_workspace(job, code->generated,
                                           units_of(graph->ctx));
  return status;
}

dfgnn_status dfgnn__edge_program_cuda(const dfgnn_edge_program *program,
                                      dfgnn_graph *graph,
                                      const dfgnn_program_job *job,
                                      const dfgnn_program_tuning *tuning,
                                      void *workspace, void *stream) {
  dfgnn_context *ctx = graph->ctx;
  const struct dfgnn_edge_code *code;
  dfgnn_status status =
      find_code(&code, (dfgnn_edge_program *)program, job, tuning);
  if (status)
    return status;
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(ctx),
                             .stream = stream};
  const int units = units_of(ctx);
  if (stream)
    atomic_store(&graph->elsewhere, 1);
  pthread_mutex_lock(&ctx->lock);
  int previous = dfgnn__context_enter(ctx);
  if (!workspace)
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

dfgnn_status dfgnn__edge_program_source(const char **text,
                                        const dfgnn_edge_program *program,
                                        const dfgnn_program_job *job,
                                        const dfgnn_program_tuning *tuning) {
  const struct dfgnn_edge_code *code;
  dfgnn_status status =
      find_code(&code, (dfgnn_edge_program *)program, job, tuning);
  if (!status)
    *text = code->generated->text;
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
  const struct dfgnn_edge_code *code;
  dfgnn_program_array inputs[DFGNN_DAG_INPUTS], outputs[DFGNN_DAG_OUTPUTS];
  dfgnn_binding binding = {
      .counts = {1, 1, matrix->destinations, matrix->sources, matrix->edges}};
  dfgnn_program_job job = {.lowered = program->lowered,
                           .binding = &binding,
                           .rows = *matrix,
                           .columns = *matrix,
                           .inputs = inputs,
                           .outputs = outputs};
  const dfgnn_dtype sums = dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
  dfgnn_extent *extents = calloc((size_t)dag->count, sizeof *extents);
  if (!extents)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  memcpy(binding.names, names, sizeof binding.names);
  job.extents = extents;
  job.columns.destinations = matrix->sources;
  job.columns.sources = matrix->destinations;
  for (int i = 0; i < dag->input_count; i++)
    inputs[i] = (dfgnn_program_array){.dtype = dtype};
  for (int i = 0; i < dag->output_count; i++)
    outputs[i] =
        (dfgnn_program_array){.dtype = dag->outputs[i].kept ? sums : dtype};
  dfgnn_status status = dfgnn__bind_nodes(extents, dag, &binding);
  if (!status)
    status = find_code(&code, (dfgnn_edge_program *)program, &job, &by_rule);
  if (!status)
    status = dfgnn__program_cuda(&job, code->generated, code->source, &queue,
                                 units, NULL);
  free(extents);
  return status;
}
