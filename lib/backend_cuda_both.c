/* backend_cuda_both.c - edge lists of few edges become matrices with their
 * transposes
 *
 * Such lists are those of batches, which a step reads in both directions and
 * then forgets: so all arrays are one allocation, made in the order of the
 * caller's stream, and the host need not wait for the checks. */
#include <string.h>

#include "kernels/common/cuda_host.h"
#include "lib/backend_cuda_coo.h"

/* Where the parts of the one allocation are. */
typedef struct places {
  size_t offsets, indices, order, column_offsets, column_rows, column_edges;
  size_t counts, dst, src, workspace, bytes;
} places;

static int64_t keys_of(const dfgnn_edge_list *l) {
  return l->coo->edges + l->loops;
}

static int is_short(const dfgnn_edge_list *l) {
  return dfgnn__cuda_is_short(keys_of(l), l->coo->destinations, l->coo->sources,
                              l->device->shared_bytes);
}

/* Does nobody wait for the checks, nor for how many edges are left beside loops
 * that a short list's kernel adds?  A stream that is captured would make the
 * arrays at each replay. */
static int is_deferred(const dfgnn_edge_list *l) {
  const dfgnn_coo *coo = l->coo;
  int capture = 0;
  return l->deferred && coo->on_device && !coo->trusted &&
         (!l->loops || is_short(l)) && coo->destinations > 0 &&
         coo->sources > 0 && !l->device->waits &&
         !dfgnn__driver()->StreamIsCapturing(l->queue.stream, &capture) &&
         !capture;
}

int dfgnn__cuda_goes_both_ways(const dfgnn_edge_list *l) {
  const dfgnn_coo *coo = l->coo;
  const int waits_for_signature = coo->sorted && !coo->trusted && !l->loops;
  return coo->edges > 0 && keys_of(l) <= DFGNN_FEW_EDGES && !l->graphs &&
         !waits_for_signature && (is_short(l) || is_deferred(l));
}

static places places_of(const dfgnn_edge_list *l) {
  const dfgnn_coo *coo = l->coo;
  const int64_t keys = keys_of(l);
  const size_t number = sizeof(int32_t);
  places p = {0};
  p.offsets = dfgnn__place(&p.bytes, coo->destinations + 1, number);
  p.indices = dfgnn__place(&p.bytes, keys, number);
  p.order = dfgnn__place(&p.bytes, keys, number);
  p.column_offsets = dfgnn__place(&p.bytes, coo->sources + 1, number);
  p.column_rows = dfgnn__place(&p.bytes, keys, number);
  p.column_edges = dfgnn__place(&p.bytes, keys, number);
  p.counts = dfgnn__place(&p.bytes, 1, sizeof(dfgnn_edge_counts));
  if (is_short(l))
    return p;
  p.dst = dfgnn__place(&p.bytes, keys, number);
  p.src = dfgnn__place(&p.bytes, keys, number);
  p.workspace = dfgnn__place(
      &p.bytes, 1,
      dfgnn__cuda_both_ways_bytes(keys, coo->destinations, coo->sources));
  return p;
}

static dfgnn_both_ways arrays_of(char *memory, const places *p) {
  return (dfgnn_both_ways){
      .offsets = (int32_t *)(memory + p->offsets),
      .indices = (int32_t *)(memory + p->indices),
      .order = (int32_t *)(memory + p->order),
      .column_offsets = (int32_t *)(memory + p->column_offsets),
      .column_rows = (int32_t *)(memory + p->column_rows),
      .column_edges = (int32_t *)(memory + p->column_edges)};
}

/* ---- launches ------------------------------------------------------------ */

/* What launches read: the list, where its parts go, and where faults are told
 * if nobody waits for them. */
typedef struct making {
  const dfgnn_edge_list *l;
  places places;
  char *memory;
  dfgnn_edge_counts *counts; /* NULL: nothing is checked */
  dfgnn_edge_fault *fault;   /* NULL: the host waits for the counts */
  uint64_t list;
} making;

static dfgnn_status make_short(const dfgnn_queue *queue, const void *data) {
  const making *m = data;
  const dfgnn_edge_list *l = m->l;
  return dfgnn__cuda_short_list(
      queue,
      (dfgnn_short_list){.dst_from = l->dst,
                         .src_from = l->src,
                         .edges = (int32_t)l->coo->edges,
                         .destinations = (int32_t)l->coo->destinations,
                         .sources = (int32_t)l->coo->sources,
                         .loops = (int32_t)l->loops,
                         .to = arrays_of(m->memory, &m->places),
                         .counts = m->counts,
                         .fault = m->fault,
                         .list = m->list},
      l->wide);
}

static dfgnn_status make_long(const dfgnn_queue *queue, const void *data) {
  const making *m = data;
  const dfgnn_edge_list *l = m->l;
  const dfgnn_coo *coo = l->coo;
  int32_t *dst = (int32_t *)(m->memory + m->places.dst);
  int32_t *src = (int32_t *)(m->memory + m->places.src);
  const dfgnn_both_ways to = arrays_of(m->memory, &m->places);
  const dfgnn_read_edges read = {.src = src,
                                 .dst = dst,
                                 .dst_from = l->dst,
                                 .src_from = l->src,
                                 .edges = coo->edges,
                                 .destinations = coo->destinations,
                                 .sources = coo->sources,
                                 .counts = m->counts,
                                 .fault = m->fault,
                                 .list = m->list};
  DFGNN_TRY(m->counts ? dfgnn__fill(queue, m->counts, 0, sizeof *m->counts)
                      : DFGNN_OK);
  DFGNN_TRY(dfgnn__cuda_read_edges(queue, &read, l->wide));
  return dfgnn__cuda_both_ways(queue, &to, dst, src, coo->edges,
                               coo->destinations, coo->sources,
                               m->memory + m->places.workspace);
}

static dfgnn_status make(const making *m) {
  const dfgnn_edge_list *l = m->l;
  const int is = is_short(l);
  const dfgnn_dry_run run = is ? make_short : make_long;
  DFGNN_TRY(dfgnn__cuda_prepare(l->device,
                                is        ? l->wide ? DFGNN_PREPARED_SHORT64
                                                    : DFGNN_PREPARED_SHORT
                                : l->wide ? DFGNN_PREPARED_BOTH64
                                          : DFGNN_PREPARED_BOTH,
                                run, m));
  return run(&l->queue, m);
}

/* ---- the result ---------------------------------------------------------- */

static void fill(dfgnn_sorted_edges *sorted, const making *m) {
  const dfgnn_both_ways to = arrays_of(m->memory, &m->places);
  const int64_t edges = keys_of(m->l);
  sorted->memory = m->memory;
  sorted->bytes = m->places.bytes;
  sorted->matrix.offsets = sorted->offsets = to.offsets;
  sorted->matrix.indices = sorted->indices = to.indices;
  sorted->matrix.edges = edges;
  sorted->order = to.order;
  sorted->columns = (dfgnn_view){
      .request = {.kind = DFGNN_VIEW_TRANSPOSE},
      .count = m->l->coo->sources,
      .extra = edges,
      .array = {to.column_offsets, to.column_rows, to.column_edges}};
}

dfgnn_status dfgnn__cuda_sort_both_ways(dfgnn_edge_list *l,
                                        dfgnn_sorted_edges *sorted) {
  const dfgnn_coo *coo = l->coo;
  const int deferred = is_deferred(l);
  void *memory = NULL;
  making m = {.l = l, .places = places_of(l)};
  DFGNN_TRY(
      dfgnn__cuda_take_on(l->device, &memory, m.places.bytes, l->queue.stream));
  m.memory = memory;
  if (!coo->trusted || l->loops)
    m.counts = (dfgnn_edge_counts *)(m.memory + m.places.counts);
  if (deferred) {
    m.fault = (dfgnn_edge_fault *)l->device->fault;
    m.list = atomic_fetch_add(&l->device->lists, 1) + 1;
  }
  fill(sorted, &m);
  dfgnn_status status = make(&m);
  l->analyzed = 0;
  l->found = deferred ? NULL : m.counts;
  if (!status)
    status = dfgnn__cuda_list_found(l);
  sorted->matrix.edges -= (int64_t)l->counts.list.left_out;
  sorted->edges_bound = deferred && l->loops;
  if (!l->loops &&
      (l->found ? !l->counts.list.was_unsorted : coo->sorted && coo->trusted))
    sorted->order = NULL;
  if (deferred && !l->loops)
    sorted->was_unsorted = &m.counts->was_unsorted;
  if (status) {
    dfgnn__cuda_retire(l->device, memory, l->queue.stream);
    memset(sorted, 0, sizeof *sorted);
  }
  return status;
}
