#include "kernels/program/cuda/run.h"

#include <string.h>

#include "kernels/common/cuda_host.h"
#include "kernels/program/cuda/params.h"

enum {
  WARPS = 4,         /* of a block */
  SHARED = 48 << 10, /* bytes of a block */
  WAVES = 8,         /* blocks for each multiprocessor where sums over
                      * everything are a slot for each warp, or that share the
                      * pieces of hubs */
  PIECE = 4          /* times the edges that make a row long has a piece */
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

/* ---- long rows ----------------------------------------------------------- */

/* Edges of a piece of a hub.  A block takes about as long for them as the
 * device for 200 times as many (H200, GT 1 x 128, survey of 61 graphs). */
static int64_t piece_of(int64_t long_row, int64_t edges, int units) {
  int64_t piece = PIECE * long_row;
  while (piece && piece <= edges / units / 4)
    piece *= 2;
  return piece;
}

static int walks_over(const dfgnn_lowered *lowered, dfgnn_place own) {
  int some = 0;
  for (int w = 0; w < lowered->walk_count; w++)
    some |= lowered->walks[w].own == own && lowered->walks[w].edges;
  return some;
}

int dfgnn__program_long_views(dfgnn_view_request *requests,
                              const dfgnn_program_job *job, int64_t long_row,
                              int64_t longest_row, int64_t longest_column,
                              int units) {
  const int64_t sizes[] = {long_row,
                           piece_of(long_row, job->rows.edges, units)};
  int count = 0;
  for (int by_column = 0; long_row > 0 && by_column < 2; by_column++) {
    const int64_t longest = by_column ? longest_column : longest_row;
    for (int k = 0;
         k < 2 && walks_over(job->lowered,
                             by_column ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST);
         k++)
      if (longest > sizes[k])
        requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                                 .parameter = sizes[k],
                                                 .transposed = by_column};
  }
  return count;
}

int dfgnn__program_order_views(dfgnn_view_request *requests,
                               const dfgnn_program_job *job) {
  int count = 0;
  for (int by_column = 0; by_column < 2; by_column++)
    if (walks_over(job->lowered, by_column ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST))
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER,
                                               .transposed = by_column};
  return count;
}

void dfgnn__program_take_rows(dfgnn_program_job *job, int64_t long_row,
                              const dfgnn_view *const *views, int count) {
  for (int i = 0; i < count; i++) {
    const dfgnn_view_request *r = &views[i]->request;
    const int place = r->transposed ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST;
    if (r->kind == DFGNN_VIEW_DEGREE_ORDER)
      job->order[place] = views[i];
    else if (r->parameter == long_row)
      job->long_rows[place] = views[i];
    else
      job->hubs[place] = views[i];
  }
}

/* The rows that blocks take, and those of them that are cut. */
typedef struct long_rows {
  int64_t piece; /* 0: no row is long */
  int64_t light, longs, hubs;
  const int32_t *long_list, *hub_list;
} long_rows;

static long_rows long_rows_of(const dfgnn_program_job *job,
                              const dfgnn_generated *g, int walk, int units) {
  const dfgnn_walk *w = &job->lowered->walks[walk];
  const dfgnn_view *longs = job->long_rows[w->own], *hubs = job->hubs[w->own];
  const int cuts = g->walks[walk].cut >= 0;
  long_rows l = {.light = matrix_of(job, walk)->destinations};
  if (!w->edges || !g->long_row)
    return l;
  l.piece = piece_of(g->long_row, job->rows.edges, units);
  if (w->own == DFGNN_PLACE_REL) { /* they are few, and most are long */
    l.light = 0;
    *(cuts ? &l.hubs : &l.longs) = job->relations.destinations;
    return l;
  }
  if (longs) {
    l.longs = longs->extra;
    l.long_list = longs->array[3];
  }
  if (hubs && cuts) {
    l.hubs = hubs->extra;
    l.hub_list = hubs->array[3];
  }
  return l;
}

/* ---- launches ------------------------------------------------------------ */

typedef struct shape {
  int64_t blocks, long_blocks, hub_blocks; /* hub_blocks: of each hub */
  int warps;
  size_t shared;
} shape;

/* Shared memory that a warp's values take, and numbers that a block joins. */
static size_t warp_bytes(const dfgnn_generated *g, int walk, int joins) {
  const dfgnn_generated_walk *w = &g->walks[walk];
  return number_bytes(g) * ((size_t)w->own_shared * (size_t)(32 / w->group) +
                            (size_t)w->edge_shared * (size_t)(32 / w->lanes) +
                            (joins ? 2 * 32 : 0));
}

static shape shape_of(const dfgnn_program_job *job, const dfgnn_generated *g,
                      int walk, int units) {
  const long_rows l = long_rows_of(job, g, walk, units);
  const dfgnn_matrix *m = matrix_of(job, walk);
  const int64_t most = (int64_t)units * WAVES;
  const size_t bytes = warp_bytes(g, walk, l.longs || l.hubs);
  const int limited = g->walks[walk].totals > 0;
  shape s = {.warps = WARPS};
  while (s.warps > 1 && bytes * (size_t)s.warps > SHARED)
    s.warps /= 2;
  s.shared = bytes * (size_t)s.warps;
  s.blocks = dfgnn__ceil_div(l.light, s.warps * (32 / g->walks[walk].group));
  s.blocks = least(s.blocks < 1 ? 1 : s.blocks, limited ? most : 1 << 30);
  s.long_blocks = limited ? least(l.longs, most) : l.longs;
  if (l.hubs) {
    s.hub_blocks =
        least(dfgnn__ceil_div(m->max_degree, l.piece), most / l.hubs);
    s.hub_blocks = s.hub_blocks < 1 ? 1 : s.hub_blocks;
  }
  s.blocks += s.long_blocks + l.hubs * s.hub_blocks;
  return s;
}

/* A block for each hub. */
static shape shape_of_merge(const dfgnn_program_job *job,
                            const dfgnn_generated *g, int walk, int units) {
  shape s = shape_of(job, g, walk, units);
  s.blocks = long_rows_of(job, g, walk, units).hubs;
  return s;
}

/* A state has the numbers of a side's lanes. */
static size_t state_bytes(const dfgnn_generated_walk *w,
                          const dfgnn_generated *g) {
  return (size_t)w->state * (size_t)w->lanes * number_bytes(g);
}

static size_t array_bytes(const dfgnn_program_job *job,
                          const dfgnn_generated *g, int32_t n) {
  const dfgnn_node *node = &job->lowered->dag->nodes[n];
  const int64_t items =
      node->place <= DFGNN_PLACE_PARAM ? 1 : job->binding->counts[node->place];
  return dfgnn__align256((size_t)(items * job->extents[n].all) *
                         number_bytes(g));
}

/* A bound of the hubs, whatever the graph is. */
static int64_t most_hubs(const dfgnn_program_job *job, const dfgnn_generated *g,
                         int walk, int units) {
  const int64_t piece = piece_of(g->long_row, job->rows.edges, units);
  if (!piece || g->walks[walk].cut < 0)
    return 0;
  return job->lowered->walks[walk].own == DFGNN_PLACE_REL
             ? job->relations.destinations
             : job->rows.edges / piece;
}

/* Bounds of what shape_of() says: blocks of rows, long rows and hubs, and of
 * the merge. */
static size_t totals_bytes(const dfgnn_program_job *job,
                           const dfgnn_generated *g, int walk, int units) {
  const int64_t blocks =
      3 * (int64_t)units * WAVES + 2 * most_hubs(job, g, walk, units);
  return dfgnn__align256((size_t)(blocks * WARPS) *
                         (size_t)g->walks[walk].totals * number_bytes(g));
}

/* The states of pieces, of which as many as hubs are not full. */
static size_t states_bytes(const dfgnn_program_job *job,
                           const dfgnn_generated *g, int walk, int units) {
  const int64_t hubs = most_hubs(job, g, walk, units);
  if (!hubs)
    return 0;
  const int64_t piece = piece_of(g->long_row, job->rows.edges, units);
  return (size_t)(job->rows.edges / piece + hubs + 1) *
         state_bytes(&g->walks[walk], g);
}

size_t dfgnn__program_cuda_workspace(const dfgnn_program_job *job,
                                     const dfgnn_generated *g, int units) {
  size_t bytes = 0, most = 0;
  for (int32_t n = 0; n < job->lowered->dag->count; n++)
    if (g->array_of[n] >= 0)
      bytes += array_bytes(job, g, n);
  for (int w = 0; w < job->lowered->walk_count; w++) {
    size_t partial =
        totals_bytes(job, g, w, units) + states_bytes(job, g, w, units);
    most = partial > most ? partial : most;
  }
  return bytes + dfgnn__align256(most);
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
                           .shared = (unsigned)s.shared,
                           .overlaps = 1};
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

static dfgnn_status add_totals(const run *r, int walk, int64_t slots) {
  dfgnn_status status = DFGNN_OK;
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
                             .threads = 256,
                             .overlaps = 1};
    status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  }
  return status;
}

static dfgnn_status run_walk(const run *r, int walk) {
  const shape rows = shape_of(r->job, r->g, walk, r->units);
  const shape merge = shape_of_merge(r->job, r->g, walk, r->units);
  const long_rows l = long_rows_of(r->job, r->g, walk, r->units);
  const dfgnn_view *order = r->job->order[r->job->lowered->walks[walk].own];
  program_walk p = params_of(r, walk);
  p.light_rows = l.light;
  p.order = order ? order->array[0] : NULL;
  p.long_row = l.longs || l.hubs ? r->g->long_row : INT64_MAX;
  p.piece = l.piece;
  p.long_rows = l.long_list;
  p.hubs = l.hub_list;
  p.long_count = l.longs;
  p.hub_count = l.hubs;
  p.long_blocks = rows.long_blocks;
  p.hub_blocks = rows.hub_blocks;
  p.states = r->partial + totals_bytes(r->job, r->g, walk, r->units);
  dfgnn_status status = launch(r, "dfgnn::edge_program_rows", walk, rows, &p);
  p.first_slot = rows.blocks * rows.warps;
  if (!status && merge.blocks)
    status = launch(r, "dfgnn::edge_program_merge", walk, merge, &p);
  return status
             ? status
             : add_totals(r, walk, (rows.blocks + merge.blocks) * rows.warps);
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
