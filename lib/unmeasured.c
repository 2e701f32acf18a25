#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lib/unmeasured.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/field.h"
#include "dfgnn_graph.h"
#include "lib/base/error.h"
#include "lib/decided.h"
#include "lib/describe.h"

/* A sampler makes a graph each step, all of them alike: those that share a
 * rounded signature are noted once, and no more than these in a process. */
enum { MOST_PROBLEMS = 256, MOST_GRAPHS = 64 };

static struct {
  pthread_mutex_t lock;
  pid_t process;
  uint64_t problem[MOST_PROBLEMS], graph[MOST_GRAPHS];
  size_t problems, graphs;
  int failed;
} noted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int has(const uint64_t *list, size_t count, uint64_t key) {
  for (size_t i = 0; i < count; i++)
    if (list[i] == key)
      return 1;
  return 0;
}

/* ---- lines --------------------------------------------------------------- */

static void write_text(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
      fprintf(file, "\\u%04x", (unsigned char)*text);
    else
      fputc(*text, file);
  fputc('"', file);
}

/* The fields of a problem are names, texts and whole numbers. */
static void write_problem(FILE *file, const dfgnn_measurement *row) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  const char *comma = "";
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *value = dfgnn__field_get(field, row);
    if (dfgnn__field_is_left_out(field, row))
      continue;
    fprintf(file, "%s\"%s\":", comma, field->json ? field->json : field->name);
    if (field->kind == DFGNN_FIELD_INT || field->kind == DFGNN_FIELD_INT64)
      fprintf(file, "%" PRId64, dfgnn__field_whole(field, value));
    else
      write_text(file, *(const char *const *)value ? *(const char *const *)value
                                                   : "");
    comma = ",";
  }
}

static dfgnn_status write_line(const char *folder,
                               const dfgnn_measurement *row) {
  char host[65] = "", *path;
  gethostname(host, sizeof host - 1);
  if (asprintf(&path, "%s/%s-%ld.jsonl", folder, host, (long)getpid()) < 0)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  FILE *file = fopen(path, "ae");
  dfgnn_status status = DFGNN_OK;
  if (file) {
    fprintf(file, "{\"file\":\"%016" PRIx64 ".npz\",\"name\":",
            row->signature.fingerprint);
    write_text(file, row->graph ? row->graph : "");
    fputs(",\"family\":", file);
    write_text(file, row->family ? row->family : "");
    fputs(",\"problem\":{", file);
    write_problem(file, row);
    fputs("}}\n", file);
  }
  if (!file || fclose(file))
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, strerror(errno));
  free(path);
  return status;
}

/* ---- graphs -------------------------------------------------------------- */

/* Copies the arrays of a matrix to the host, as a graph to be written. */
static dfgnn_status copy_arrays(dfgnn_csr *csr, dfgnn_graph *graph) {
  const dfgnn_matrix *m = dfgnn__graph_matrix(graph);
  const dfgnn_context *ctx = graph->ctx;
  const size_t offsets = (size_t)(m->destinations + 1) * (m->offsets64 ? 8 : 4);
  const size_t indices = (size_t)m->edges * sizeof(int32_t);
  csr->destinations = m->destinations;
  csr->sources = m->sources;
  csr->edges = m->edges;
  csr->offset_type = m->offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  csr->index_type = DFGNN_INDEX_I32;
  csr->offsets = malloc(offsets);
  csr->indices = malloc(indices + 1);
  if (!csr->offsets || !csr->indices)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = ctx->backend->copy(ctx->device, (void *)csr->offsets,
                                           m->offsets, offsets);
  return status || !indices
             ? status
             : ctx->backend->copy(ctx->device, (void *)csr->indices, m->indices,
                                  indices);
}

/* Another process may write the same file at the same time: each takes its name
 * whole. */
static dfgnn_status write_graph(const char *folder, dfgnn_graph *graph) {
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_status status = DFGNN_OK;
  char *path;
  if (asprintf(&path, "%s/%016" PRIx64 ".npz", folder,
               graph->signature.fingerprint) < 0)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (access(path, F_OK)) {
    status = dfgnn__graph_settle(graph);
    if (!status)
      status = copy_arrays(&csr, graph);
    if (!status)
      status = dfgnn_csr_write(&csr, path);
    free((void *)csr.offsets);
    free((void *)csr.indices);
  }
  free(path);
  return status;
}

/* ---- noting -------------------------------------------------------------- */

static dfgnn_status note(const char *folder, dfgnn_graph *graph,
                         const dfgnn_problem *problem) {
  const dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                             .family = graph->family};
  const uint64_t key =
      dfgnn__decided_by_signature(&query, dfgnn__problem_hash(problem));
  const uint64_t fingerprint = graph->signature.fingerprint;
  dfgnn_measurement row;
  dfgnn_status status = DFGNN_OK;
  if (has(noted.problem, noted.problems, key) ||
      noted.problems == MOST_PROBLEMS)
    return DFGNN_OK;
  const int fresh = !has(noted.graph, noted.graphs, fingerprint);
  if (fresh && noted.graphs == MOST_GRAPHS)
    return DFGNN_OK;
  if (mkdir(folder, 0777) && errno != EEXIST)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", folder, strerror(errno));
  dfgnn__describe(&row, graph->ctx, graph, problem);
  if (fresh)
    status = write_graph(folder, graph);
  if (!status)
    status = write_line(folder, &row);
  if (status)
    return status;
  noted.problem[noted.problems++] = key;
  if (fresh)
    noted.graph[noted.graphs++] = fingerprint;
  return DFGNN_OK;
}

void dfgnn__note_unmeasured(dfgnn_graph *graph, const dfgnn_problem *problem,
                            const dfgnn_choice *choice) {
  const char *folder = getenv("DFGNN_RECORD");
  if (!folder || !*folder || graph->matrix.refilled ||
      choice->source == DFGNN_SOURCE_EXACT ||
      choice->source == DFGNN_SOURCE_PINNED ||
      choice->source == DFGNN_SOURCE_FORCED ||
      choice->source == DFGNN_SOURCE_PAPER || dfgnn__graph_know(graph) ||
      graph->ctx->backend->capturing(graph->ctx->device, NULL))
    return;
  pthread_mutex_lock(&noted.lock);
  if (noted.process != getpid()) { /* a fork has a file of its own */
    noted.process = getpid();
    noted.problems = noted.graphs = 0;
    noted.failed = 0;
  }
  if (!noted.failed && note(folder, graph, problem)) {
    noted.failed = 1;
    dfgnn__log(graph->ctx, DFGNN_LOG_WARN, "DFGNN_RECORD: %s",
               dfgnn_last_error());
  }
  pthread_mutex_unlock(&noted.lock);
}
