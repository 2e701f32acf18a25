#include "kernels/program/cuda/run.h"

#include <string.h>

#include "kernels/program/cuda/params.h"
#include "lib/base/error.h"

enum {
  WARPS = 4,         /* of a block */
  LONG_WARPS = 8,    /* of a block that has a long row */
  WHOLE = 4,         /* times the edges of an item has a row that a block takes,
                      * where rows cannot be cut */
  STATES = 64 << 20, /* bytes of the states of items; longer items need less */
  SHARED = 48 << 10, /* bytes of a block */
  WAVES = 8,         /* blocks for each multiprocessor where sums over
                      * everything are a slot for each warp */
  ALIGNMENT = 256
};

typedef struct run {
  const dfgnn_program_job *job;
  const dfgnn_generated *g;
  const char *source;
  const dfgnn_queue *queue;
  int units;
  char *partial;
  unsigned long long arrays[DFGNN_GENERATED_ARRAYS];
} run;

static size_t number_bytes(const dfgnn_generated *g) {
  return g->is_double ? 8 : 4;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static const dfgnn_matrix *matrix_of(const dfgnn_program_job *job, int walk) {
  return dfgnn__program_matrix(job, job->lowered->walks[walk].own);
}

/* ---- launches ------------------------------------------------------------ */

typedef struct shape {
  int64_t blocks;
  int warps;
  size_t shared;
} shape;

/* Shared memory that a warp's values take. */
static size_t warp_bytes(const dfgnn_generated *g, int walk) {
  const dfgnn_generated_walk *w = &g->walks[walk];
  return number_bytes(g) * ((size_t)w->own_shared * (size_t)(32 / w->group) +
                            (size_t)w->edge_shared * (size_t)(32 / w->lanes));
}

static shape shape_of_rows(const dfgnn_program_job *job,
                           const dfgnn_generated *g, int walk, int units) {
  const size_t bytes = warp_bytes(g, walk);
  shape s = {.warps = WARPS};
  while (s.warps > 1 && bytes * (size_t)s.warps > SHARED)
    s.warps /= 2;
  s.shared = bytes * (size_t)s.warps;
  const int64_t rows = s.warps * (32 / g->walks[walk].group);
  s.blocks = (matrix_of(job, walk)->destinations + rows - 1) / rows;
  if (g->walks[walk].totals)
    s.blocks = least(s.blocks, (int64_t)units * WAVES);
  s.blocks = s.blocks < 1 ? 1 : least(s.blocks, 1 << 30);
  return s;
}

/* Shared memory of a warp of a long row's block, and as many warps as have it.
 */
static size_t long_bytes(const dfgnn_generated *g, int walk) {
  return warp_bytes(g, walk) + 32 * number_bytes(g);
}
static int long_warps(const dfgnn_generated *g, int walk) {
  int warps = LONG_WARPS;
  while (warps > 1 && long_bytes(g, walk) * (size_t)warps > SHARED)
    warps /= 2;
  return warps;
}

/* A state has the numbers of a side's lanes. */
static size_t state_bytes(const dfgnn_generated_walk *w,
                          const dfgnn_generated *g) {
  return (size_t)w->state * (size_t)w->lanes * number_bytes(g);
}

/* The number of pieces of `edges` edges. */
static int64_t pieces_of(const dfgnn_matrix *m, int64_t edges) {
  return (m->edges + edges - 1) / edges;
}

/* Edges of an item; 0: rows are not cut.  A block merges a row's items only if
 * it has two sides or more. */
static int64_t item_of(const dfgnn_program_job *job, const dfgnn_generated *g,
                       int walk) {
  const dfgnn_generated_walk *w = &g->walks[walk];
  const dfgnn_matrix *m = matrix_of(job, walk);
  int64_t item = g->long_row;
  if (w->cut < 0 || long_warps(g, walk) * 32 / w->lanes < 2)
    return 0;
  const int64_t most = STATES / (int64_t)(2 * state_bytes(w, g) + 1) + 1;
  if (pieces_of(m, item) > most)
    item = (m->edges + most - 1) / most;
  return item;
}

/* Rows of more edges are long. */
static int64_t long_row(const dfgnn_program_job *job, const dfgnn_generated *g,
                        int walk) {
  const int64_t item = item_of(job, g, walk);
  return item ? item : (int64_t)WHOLE * g->long_row;
}

/* No blocks: there is no long row. */
static shape shape_of_long(const dfgnn_program_job *job,
                           const dfgnn_generated *g, int walk, int units) {
  const size_t bytes = long_bytes(g, walk);
  const dfgnn_matrix *m = matrix_of(job, walk);
  shape s = {.warps = long_warps(g, walk)};
  if (!job->lowered->walks[walk].edges ||
      m->max_degree <= long_row(job, g, walk))
    return s;
  s.shared = bytes * (size_t)s.warps;
  s.blocks = least(m->destinations, 2 * units);
  return s;
}

/* Groups of lanes for all items; no blocks: no row is cut. */
static shape shape_of_items(const dfgnn_program_job *job,
                            const dfgnn_generated *g, int walk, int units) {
  const int64_t item = item_of(job, g, walk);
  shape s = shape_of_rows(job, g, walk, units);
  const int64_t rows = s.warps * (32 / g->walks[walk].group);
  if (!item || !shape_of_long(job, g, walk, units).blocks)
    return (shape){.warps = s.warps};
  s.blocks = (2 * pieces_of(matrix_of(job, walk), item) + rows - 1) / rows;
  if (g->walks[walk].totals)
    s.blocks = least(s.blocks, (int64_t)units * WAVES);
  return s;
}

static size_t aligned(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t array_bytes(const dfgnn_program_job *job,
                          const dfgnn_generated *g, int32_t n) {
  const dfgnn_node *node = &job->lowered->dag->nodes[n];
  const int64_t items =
      node->place <= DFGNN_PLACE_PARAM ? 1 : job->binding->counts[node->place];
  return aligned((size_t)(items * job->extents[n].all) * number_bytes(g));
}

static int64_t slots_of(const dfgnn_program_job *job, const dfgnn_generated *g,
                        int walk, int units) {
  const shape rows = shape_of_rows(job, g, walk, units);
  const shape items = shape_of_items(job, g, walk, units);
  const shape longs = shape_of_long(job, g, walk, units);
  return rows.blocks * rows.warps + items.blocks * items.warps +
         longs.blocks * longs.warps;
}

/* The states of a walk's items. */
static size_t states_of(const dfgnn_program_job *job, const dfgnn_generated *g,
                        int walk, int units) {
  if (!shape_of_items(job, g, walk, units).blocks)
    return 0;
  return 2 * (size_t)pieces_of(matrix_of(job, walk), item_of(job, g, walk)) *
         state_bytes(&g->walks[walk], g);
}

size_t dfgnn__program_cuda_workspace(const dfgnn_program_job *job,
                                     const dfgnn_generated *g, int units) {
  size_t bytes = 0, most = 0;
  for (int32_t n = 0; n < job->lowered->dag->count; n++)
    if (g->array_of[n] >= 0)
      bytes += array_bytes(job, g, n);
  for (int w = 0; w < job->lowered->walk_count; w++) {
    size_t partial = aligned((size_t)slots_of(job, g, w, units) *
                             (size_t)g->walks[w].totals * number_bytes(g)) +
                     states_of(job, g, w, units);
    most = partial > most ? partial : most;
  }
  return bytes + aligned(most);
}

/* ---- running ------------------------------------------------------------- */

static void place_arrays(run *r, char *workspace) {
  const dfgnn_dag *dag = r->job->lowered->dag;
  for (int i = 0; i < dag->input_count; i++)
    r->arrays[i] = (uintptr_t)r->job->inputs[i].data;
  for (int i = 0; i < dag->output_count; i++)
    r->arrays[dag->input_count + i] = (uintptr_t)r->job->outputs[i].data;
  for (int32_t n = 0; n < dag->count; n++) {
    if (r->g->array_of[n] < 0)
      continue;
    r->arrays[r->g->array_of[n]] = (uintptr_t)workspace;
    workspace += array_bytes(r->job, r->g, n);
  }
  r->partial = workspace;
}

static program_walk params_of(const run *r, int walk) {
  const dfgnn_program_job *job = r->job;
  const dfgnn_place own = walk < job->lowered->walk_count
                              ? job->lowered->walks[walk].own
                              : DFGNN_PLACE_DST;
  const dfgnn_matrix *m = dfgnn__program_matrix(job, own);
  program_walk p = {.offsets = m->offsets,
                    .degrees = {[DFGNN_PLACE_DST] = job->rows.offsets,
                                [DFGNN_PLACE_SRC] = job->columns.offsets,
                                [DFGNN_PLACE_REL] = job->relations.offsets},
                    .indices = m->indices,
                    .sources = job->rows.indices,
                    .relations = job->relation_of,
                    .edge_ids = dfgnn__program_edges(job, own),
                    .rows = m->destinations,
                    .seed = job->device_seed,
                    .seed_value = job->seed,
                    .partial = r->partial,
                    .wide = m->offsets64};
  memcpy(p.counts, job->binding->counts, sizeof p.counts);
  return p;
}

static dfgnn_status launch(const run *r, const char *name, int number, shape s,
                           const program_walk *p) {
  const dfgnn_program program = {
      .source = r->source, .name = name, .count = 1, .constant = {number}};
  const dfgnn_grid grid = {.blocks = {(unsigned)s.blocks},
                           .threads = (unsigned)s.warps * 32,
                           .shared = (unsigned)s.shared};
  void *arguments[] = {(void *)p, (void *)r->arrays};
  return dfgnn__launch(r->queue, &program, grid, arguments);
}

/* Are there values of no place to compute before a walk, or to write at the
 * end? */
static int has_values(const run *r, int before) {
  const dfgnn_lowered *l = r->job->lowered;
  int some = 0;
  for (int32_t n = 0; n < l->dag->count; n++)
    some |= r->g->array_of[n] >= 0 && !l->stored[n] && l->before[n] == before &&
            l->dag->nodes[n].op != DFGNN_NODE_SUM_ALL;
  for (int i = 0; before == l->walk_count && i < l->dag->output_count; i++)
    some |= l->dag->outputs[i].place == DFGNN_PLACE_PARAM;
  return some;
}

static dfgnn_status run_values(const run *r, int before) {
  const program_walk p = params_of(r, before);
  if (!has_values(r, before))
    return DFGNN_OK;
  return launch(r, "dfgnn::edge_program_values", before,
                (shape){.blocks = 1, .warps = 8}, &p);
}

static dfgnn_status add_totals(const run *r, int walk) {
  dfgnn_status status = DFGNN_OK;
  const int64_t slots = slots_of(r->job, r->g, walk, r->units);
  const dfgnn_generated_walk *w = &r->g->walks[walk];
  for (int k = 0; !status && k < w->total_count; k++) {
    const dfgnn_program_total *t = &r->g->totals[w->total_first + k];
    const program_totals p = {
        .partial = r->partial + (size_t)t->first * number_bytes(r->g),
        .to = (void *)(uintptr_t)r->arrays[r->g->array_of[t->node]],
        .slots = slots,
        .totals = w->totals};
    const dfgnn_program program = {
        .source = r->source, .name = "dfgnn::edge_program_totals", .count = 1};
    const dfgnn_grid grid = {.blocks = {(unsigned)r->job->extents[t->node].all},
                             .threads = 256};
    status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  }
  return status;
}

static dfgnn_status run_walk(const run *r, int walk) {
  const shape rows = shape_of_rows(r->job, r->g, walk, r->units);
  const shape items = shape_of_items(r->job, r->g, walk, r->units);
  const shape longs = shape_of_long(r->job, r->g, walk, r->units);
  const int64_t slots = slots_of(r->job, r->g, walk, r->units);
  program_walk p = params_of(r, walk);
  p.long_row = longs.blocks ? long_row(r->job, r->g, walk) : INT64_MAX;
  p.item_slots = rows.blocks * rows.warps;
  p.long_slots = p.item_slots + items.blocks * items.warps;
  p.item = p.long_row;
  p.items = items.blocks ? 2 * pieces_of(matrix_of(r->job, walk), p.item) : 0;
  p.states =
      r->partial + aligned((size_t)slots * (size_t)r->g->walks[walk].totals *
                           number_bytes(r->g));
  dfgnn_status status = launch(r, "dfgnn::edge_program_rows", walk, rows, &p);
  if (!status && items.blocks)
    status = launch(r, "dfgnn::edge_program_items", walk, items, &p);
  if (!status && longs.blocks)
    status = launch(r,
                    items.blocks ? "dfgnn::edge_program_merge"
                                 : "dfgnn::edge_program_long",
                    walk, longs, &p);
  return status ? status : add_totals(r, walk);
}

dfgnn_status dfgnn__program_cuda(const dfgnn_program_job *job,
                                 const dfgnn_generated *generated,
                                 const char *source, const dfgnn_queue *queue,
                                 int units, void *workspace) {
  run r = {.job = job,
           .g = generated,
           .source = source,
           .queue = queue,
           .units = units};
  dfgnn_status status = DFGNN_OK;
  place_arrays(&r, workspace);
  for (int w = 0; !status && w < job->lowered->walk_count; w++) {
    status = run_values(&r, w);
    if (!status)
      status = run_walk(&r, w);
  }
  return status ? status : run_values(&r, job->lowered->walk_count);
}
