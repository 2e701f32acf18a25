#include "tuner/guarded.h"

#include <stdlib.h>
#include <string.h>

#include "dfgnn_program.h"
#include "kernels/common/half.h"
#include "kernels/program/cpu/bodies.h"
#include "lib/base/error.h"
#include "lib/signature.h"
#include "tuner/tensors.h"

enum {
  POISONED = 64 << 20,     /* bytes of a workspace */
  MOST_EDGES_OF_ROW = 4096 /* of a part: more than any variant calls long */
};

dfgnn_status dfgnn__harness_memory(size_t bytes) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY,
                     "harness: cannot allocate %zu bytes on the host", bytes);
}

dfgnn_status dfgnn__harness_copy(dfgnn_context *ctx, void *to, const void *from,
                                 size_t bytes) {
  return bytes ? ctx->backend->copy(ctx->device, to, from, bytes) : DFGNN_OK;
}

/* ---- tensors ------------------------------------------------------------- */

static dfgnn_status fill(dfgnn_context *ctx, void *to, int byte, size_t bytes) {
  return ctx->backend->fill(ctx->device, to, byte, bytes);
}

/* DFGNN_ERROR_WRONG if one of the guard's bytes was written. */
static dfgnn_status guard_check(dfgnn_context *ctx, const char *guard,
                                const char *side, const char *name) {
  unsigned char found[DFGNN_GUARD];
  dfgnn_status status = dfgnn__harness_copy(ctx, found, guard, sizeof found);
  for (int i = 0; i < DFGNN_GUARD && !status; i++)
    if (found[i] != DFGNN_GUARD_BYTE)
      status = dfgnn__fail(DFGNN_ERROR_WRONG,
                           "wrote %s %s: byte %d of the guard is 0x%02x", side,
                           name, i, found[i]);
  return status;
}

dfgnn_status dfgnn__guarded_make(dfgnn_guarded *g, dfgnn_context *ctx,
                                 int on_host) {
  void *memory;
  DFGNN_TRY(ctx->backend->allocate(ctx->device, &memory,
                                   g->bytes + g->shift + 2 * DFGNN_GUARD));
  g->memory = memory;
  if (on_host && !(g->host = malloc(g->bytes + 1)))
    return dfgnn__harness_memory(g->bytes);
  char *data = dfgnn__guarded_data(g);
  DFGNN_TRY(fill(ctx, data - DFGNN_GUARD, DFGNN_GUARD_BYTE, DFGNN_GUARD));
  return fill(ctx, data + g->bytes, DFGNN_GUARD_BYTE, DFGNN_GUARD);
}

void dfgnn__guarded_free(dfgnn_guarded *g, dfgnn_context *ctx) {
  if (g->memory)
    ctx->backend->release(ctx->device, g->memory);
  free(g->host);
  *g = (dfgnn_guarded){0};
}

char *dfgnn__guarded_data(const dfgnn_guarded *g) {
  return g->memory + DFGNN_GUARD + g->shift;
}

void dfgnn__set_number(dfgnn_dtype dtype, void *array, int64_t i, double x) {
  if (dtype == DFGNN_F64)
    ((double *)array)[i] = x;
  else if (dtype == DFGNN_F32)
    ((float *)array)[i] = (float)x;
  else
    ((uint16_t *)array)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_double(x)
                                                : dfgnn__bf16_from_double(x);
}

dfgnn_status dfgnn__guarded_fill(dfgnn_guarded *g, dfgnn_context *ctx,
                                 dfgnn_dtype dtype, uint64_t seed) {
  const int64_t count = (int64_t)(g->bytes / dfgnn_dtype_size(dtype));
#pragma omp parallel for if (count > DFGNN_PARALLEL)
  for (int64_t i = 0; i < count; i++)
    dfgnn__set_number(
        dtype, g->host, i,
        (double)(dfgnn__mix(seed + (uint64_t)i) >> 40) / (1 << 23) - 1);
  return dfgnn__harness_copy(ctx, dfgnn__guarded_data(g), g->host, g->bytes);
}

dfgnn_status dfgnn__guarded_poison(const dfgnn_guarded *g, dfgnn_context *ctx,
                                   int byte) {
  char *data = dfgnn__guarded_data(g);
  DFGNN_TRY(fill(ctx, data - DFGNN_GUARD, DFGNN_GUARD_BYTE,
                 g->bytes + 2 * DFGNN_GUARD));
  return fill(ctx, data, byte, g->bytes);
}

dfgnn_status dfgnn__guarded_check(const dfgnn_guarded *g, dfgnn_context *ctx) {
  const char *data = dfgnn__guarded_data(g);
  DFGNN_TRY(guard_check(ctx, data - DFGNN_GUARD, "before", g->name));
  return guard_check(ctx, data + g->bytes, "beyond", g->name);
}

dfgnn_status dfgnn__guarded_read(const dfgnn_guarded *g, dfgnn_context *ctx) {
  return dfgnn__harness_copy(ctx, g->host, dfgnn__guarded_data(g), g->bytes);
}

dfgnn_status dfgnn__guarded_run(dfgnn_context *ctx, const dfgnn_plan *plan,
                                void *workspace, const dfgnn_args *args) {
  const size_t bytes = dfgnn_plan_workspace(plan);
  char *guard = (char *)workspace + bytes;
  dfgnn_status status = fill(ctx, workspace, DFGNN_POISON_BYTE,
                             bytes < POISONED ? bytes : POISONED);
  if (!status)
    status = fill(ctx, guard, DFGNN_GUARD_BYTE, DFGNN_GUARD);
  dfgnn__bodies_hurry(1); /* what is checked is what will be timed */
  if (!status)
    status = dfgnn_execute(plan, args, workspace, NULL);
  dfgnn__bodies_hurry(-1);
  if (!status)
    status = ctx->backend->synchronize(ctx->device, NULL);
  return status ? status : guard_check(ctx, guard, "beyond", "the workspace");
}

/* ---- graphs -------------------------------------------------------------- */

static dfgnn_status read_relations(dfgnn_host_graph *host, dfgnn_context *ctx,
                                   dfgnn_graph *graph) {
  static const dfgnn_view_request request = {.kind = DFGNN_VIEW_RELATIONS};
  const size_t bytes =
      (size_t)dfgnn__graph_matrix(graph)->edges * sizeof *host->relation;
  const dfgnn_view *view;
  DFGNN_TRY(dfgnn__graph_view(&view, graph, &request));
  host->relation = malloc(bytes + 1);
  return host->relation
             ? dfgnn__harness_copy(ctx, host->relation, view->array[3], bytes)
             : dfgnn__harness_memory(bytes);
}

dfgnn_status dfgnn__host_graph_read(dfgnn_host_graph *host, dfgnn_context *ctx,
                                    dfgnn_graph *graph, int relations) {
  dfgnn_matrix *m = &host->matrix;
  dfgnn__host_graph_free(host);
  *m = *dfgnn__graph_matrix(graph);
  const size_t offsets = (size_t)(m->destinations + 1) * (m->offsets64 ? 8 : 4);
  const size_t indices = (size_t)m->edges * 4;
  host->offsets = malloc(offsets);
  host->indices = malloc(indices + 1);
  if (!host->offsets || !host->indices)
    return dfgnn__harness_memory(offsets + indices);
  dfgnn_status status =
      dfgnn__harness_copy(ctx, host->offsets, m->offsets, offsets);
  if (!status)
    status = dfgnn__harness_copy(ctx, host->indices, m->indices, indices);
  m->offsets = host->offsets;
  m->indices = host->indices;
  m->edge_order = NULL;
  return status || !relations || !m->relations
             ? status
             : read_relations(host, ctx, graph);
}

void dfgnn__host_graph_free(dfgnn_host_graph *host) {
  free(host->offsets);
  free(host->indices);
  free(host->relation);
  *host = (dfgnn_host_graph){.matrix = host->matrix};
}

/* ---- parts --------------------------------------------------------------- */

typedef struct csr {
  int64_t rows, sources, edges;
  int64_t *offsets;
  int32_t *indices;
} csr;

/* Adds a row, cut to `most` edges; sources get numbers as they come. */
static void take_row(csr *part, const dfgnn_matrix *m, int32_t *number,
                     int64_t row, int64_t most) {
  int64_t begin = dfgnn__offset_at(m, row), end = dfgnn__offset_at(m, row + 1);
  for (int64_t e = begin; e < end && e < begin + most; e++) {
    const int32_t source = m->indices[e];
    if (number[source] < 0)
      number[source] = (int32_t)part->sources++;
    part->indices[part->edges++] = number[source];
  }
  part->offsets[++part->rows] = part->edges;
}

static void take_rows(csr *part, const dfgnn_matrix *m, int32_t *number,
                      int64_t most) {
  int64_t longest = 0;
  for (int64_t i = 0; i < m->destinations; i++)
    if (dfgnn__offset_at(m, i + 1) - dfgnn__offset_at(m, i) >
        dfgnn__offset_at(m, longest + 1) - dfgnn__offset_at(m, longest))
      longest = i;
  const int64_t a_row =
      most / 4 < MOST_EDGES_OF_ROW ? most / 4 + 1 : MOST_EDGES_OF_ROW;
  const int64_t mean = 1 + m->edges / (m->destinations + 1);
  const int64_t rows = 1 + most / (1 + mean);
  const int64_t step = 1 + m->destinations / rows;
  take_row(part, m, number, longest, a_row);
  for (int64_t i = 0; i < m->destinations; i += step) {
    int64_t left = most - part->edges - part->rows;
    if (left <= 1)
      break;
    take_row(part, m, number, i, left < a_row ? left : a_row);
  }
}

/* Edges have relations in turn: each relation has some. */
static dfgnn_status relate_part(dfgnn_graph *graph, int64_t relations) {
  const int64_t edges = dfgnn__graph_matrix(graph)->edges;
  int32_t *of_edge = malloc((size_t)(edges + 1) * sizeof *of_edge);
  if (!of_edge)
    return dfgnn__harness_memory((size_t)edges * sizeof *of_edge);
  for (int64_t e = 0; e < edges; e++)
    of_edge[e] = (int32_t)(e % relations);
  dfgnn_status status =
      dfgnn_graph_set_relations(graph, relations, of_edge, 0, NULL);
  free(of_edge);
  return status;
}

dfgnn_status dfgnn__excerpt_create(dfgnn_excerpt *part, dfgnn_context *ctx,
                                   const dfgnn_matrix *host, int64_t most) {
  csr taken = {0};
  dfgnn_csr given = DFGNN_CSR_INIT;
  dfgnn_status status = DFGNN_OK;
  int32_t *number = malloc((size_t)(host->sources + 1) * sizeof *number);
  taken.offsets = calloc((size_t)most + 2, sizeof *taken.offsets);
  taken.indices = malloc((size_t)(most + 1) * sizeof *taken.indices);
  if (!number || !taken.offsets || !taken.indices)
    status = dfgnn__harness_memory((size_t)most * 16);
  if (!status) {
    memset(number, -1, (size_t)(host->sources + 1) * sizeof *number);
    take_rows(&taken, host, number, most);
    given.destinations = taken.rows;
    given.sources = taken.sources + 1; /* one that no edge has */
    given.edges = taken.edges;
    given.offsets = taken.offsets;
    given.indices = taken.indices;
    given.offset_type = DFGNN_INDEX_I64;
    given.index_type = DFGNN_INDEX_I32;
    status = dfgnn_graph_create_csr(&part->graph, ctx, &given, NULL);
  }
  if (!status && host->relations)
    status = relate_part(part->graph, host->relations);
  free(number);
  part->offsets = taken.offsets;
  part->indices = taken.indices;
  return status;
}

void dfgnn__excerpt_free(dfgnn_excerpt *part) {
  dfgnn_graph_destroy(part->graph);
  free(part->offsets);
  free(part->indices);
  *part = (dfgnn_excerpt){0};
}

dfgnn_status dfgnn__excerpt_ready(dfgnn_readied *readied, dfgnn_context *ctx,
                                  const dfgnn_excerpt *part,
                                  const dfgnn_problem *problem,
                                  const char *variant) {
  *readied = (dfgnn_readied){NULL, NULL};
  DFGNN_TRY(dfgnn_plan_create_forced(&readied->plan, ctx, part->graph, problem,
                                     variant));
  return ctx->backend->allocate(ctx->device, &readied->workspace,
                                dfgnn_plan_workspace(readied->plan) +
                                    DFGNN_GUARD);
}

void dfgnn__readied_free(dfgnn_readied *readied, dfgnn_context *ctx) {
  if (readied->workspace)
    ctx->backend->release(ctx->device, readied->workspace);
  dfgnn_plan_destroy(readied->plan);
  *readied = (dfgnn_readied){NULL, NULL};
}
