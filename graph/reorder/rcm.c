/* rcm.c - reverse Cuthill-McKee: neighbours get near numbers
 *
 * Each component is numbered breadth-first from a node at its rim, the
 * neighbours of a node by rising degree; the numbering is reversed at the end.
 */
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct rcm {
  const dfgnn__adjacency *graph;
  int32_t *seen; /* [nodes]: the last search that met the node */
  int32_t search;
  int32_t *other;    /* the numbering of a second start */
  int64_t *position; /* [nodes]: in a numbering */
  uint64_t *key;     /* degree and node of the neighbours to sort */
} rcm;

static int64_t degree(const rcm *r, int64_t i) {
  return r->graph->offsets[i + 1] - r->graph->offsets[i];
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Appends the neighbours of a node that are new to queue[end]. */
static int64_t append(rcm *r, int32_t *queue, int64_t end, int32_t node,
                      int sorted) {
  int64_t count = 0;
  for (int64_t k = r->graph->offsets[node]; k < r->graph->offsets[node + 1];
       k++) {
    int32_t j = r->graph->neighbors[k];
    if (r->seen[j] == r->search)
      continue;
    r->seen[j] = r->search;
    if (sorted)
      r->key[count++] = (uint64_t)degree(r, j) << 32 | (uint32_t)j;
    else
      queue[end++] = j;
  }
  if (count > 1)
    qsort(r->key, (size_t)count, sizeof *r->key, ascending);
  for (int64_t k = 0; k < count; k++)
    queue[end++] = (int32_t)(uint32_t)r->key[k];
  return end;
}

/* Numbers the component of start into queue; rim becomes the node of least
 * degree on the outermost level, depth the number of that level.  Returns how
 * many nodes there are. */
static int64_t search(rcm *r, int32_t *queue, int32_t start, int32_t *rim,
                      int64_t *depth, int sorted) {
  int64_t end = 1, level = 0, next = 1, k = 0;
  queue[0] = start;
  r->seen[start] = r->search;
  *depth = 0;
  for (; k < end; k++) {
    if (k == next) {
      level = next;
      next = end;
      ++*depth;
    }
    end = append(r, queue, end, queue[k], sorted);
  }
  *rim = queue[level];
  for (k = level; k < end; k++)
    if (degree(r, queue[k]) < degree(r, *rim))
      *rim = queue[k];
  return end;
}

/* Finds a node from which the component is deep (George & Liu 1979). */
static int32_t peripheral(rcm *r, int32_t *queue, int32_t start) {
  int32_t rim;
  int64_t depth, deeper;
  r->search++;
  search(r, queue, start, &rim, &depth, 0);
  for (;;) {
    int32_t next;
    r->search++;
    search(r, queue, rim, &next, &deeper, 0);
    if (deeper <= depth)
      return start;
    depth = deeper;
    start = rim;
    rim = next;
  }
}

/* The largest distance of neighbours in a numbered component. */
static int64_t bandwidth(rcm *r, const int32_t *queue, int64_t count) {
  int64_t most = 0;
  for (int64_t p = 0; p < count; p++)
    r->position[queue[p]] = p;
  for (int64_t p = 0; p < count; p++)
    for (int64_t k = r->graph->offsets[queue[p]];
         k < r->graph->offsets[queue[p] + 1]; k++) {
      int64_t span = p - r->position[r->graph->neighbors[k]];
      most = span > most ? span : most;
    }
  return most;
}

/* Numbers the component of a node of least degree from there and from a node at
 * the rim, and keeps the narrower numbering. */
static int64_t component(rcm *r, int32_t *queue, int32_t seed) {
  int32_t rim;
  int64_t depth;
  int32_t start = peripheral(r, queue, seed);
  r->search++;
  int64_t count = search(r, queue, start, &rim, &depth, 1);
  if (start == seed)
    return count;
  r->search++;
  search(r, r->other, seed, &rim, &depth, 1);
  if (bandwidth(r, r->other, count) < bandwidth(r, queue, count))
    memcpy(queue, r->other, (size_t)count * sizeof *queue);
  return count;
}

static dfgnn_status rcm_create(rcm *r, const dfgnn__adjacency *graph) {
  size_t n = (size_t)graph->nodes + 1;
  int64_t longest = 0;
  *r = (rcm){.graph = graph};
  for (int64_t i = 0; i < graph->nodes; i++)
    if (degree(r, i) > longest)
      longest = degree(r, i);
  r->seen = calloc(n, sizeof *r->seen);
  r->other = calloc(n, sizeof *r->other);
  r->position = calloc(n, sizeof *r->position);
  r->key = calloc((size_t)longest + 1, sizeof *r->key);
  if (r->seen && r->other && r->position && r->key)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                     (long long)graph->nodes);
}

static void rcm_free(rcm *r) {
  free(r->key);
  free(r->position);
  free(r->other);
  free(r->seen);
}

dfgnn_status dfgnn__order_rcm(int32_t *order, const dfgnn__adjacency *graph) {
  rcm r;
  int64_t n = graph->nodes, done = 0;
  int32_t *seed = calloc((size_t)n + 1, sizeof *seed);
  dfgnn_status status = rcm_create(&r, graph);
  if (!status && !seed)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                         (long long)n);
  if (status)
    goto out;
  for (int64_t i = 0; i < n; i++)
    r.position[i] = degree(&r, i);
  DFGNN_GO(dfgnn__order_by_key(seed, r.position, n));
  for (int64_t s = 0; s < n; s++)
    if (!r.seen[seed[s]])
      done += component(&r, order + done, seed[s]);
  for (int64_t p = 0; p < n / 2; p++) {
    int32_t swap = order[p];
    order[p] = order[n - 1 - p];
    order[n - 1 - p] = swap;
  }
out:
  free(seed);
  rcm_free(&r);
  return status;
}
