/* community.c - communities by merging, and the order of their dendrogram
 *
 * This is Rabbit Order (Arai et al., IPDPS 2016), sequential: each node in
 * turn, low degrees first, joins the neighbouring community that raises the
 * modularity most.  Its edges go with it, and are added up when the turn of the
 * node that it joined comes.  A node that others joined meanwhile waits for the
 * next round, so that communities grow alike and the trees stay low.  A
 * depth-first walk of the trees, in which a node is the child of the one it
 * joined, puts nested communities next to each other, as suits a hierarchy of
 * caches.
 *
 * Modularity (Newman & Girvan 2004) rises by 2 (w m2 - d e) / m2^2 when two
 * communities of degrees d and e with w between them merge, m2 the sum of all
 * degrees.  The bracket is computed in integers: exact, so equal everywhere. */
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

/* The edges of a merged community; parallel edges are added up. */
typedef struct bundle {
  int64_t count;
  int64_t *weight;
  int32_t *to;
} bundle;

typedef struct forest {
  const dfgnn__adjacency *graph;
  int64_t total;   /* sum of all degrees */
  int64_t *degree; /* [nodes]: for a root, the degree of its community */
  int32_t *parent; /* the node that a node joined; a root has itself */
  int32_t *top;    /* a node nearer to the root; walks shorten the path */
  int32_t *child, *sibling; /* lists of joined nodes, newest first; -1: end */
  int32_t *joined;          /* the round in which a node last joined this one */
  bundle *edges;            /* merged edges; NULL weight: those of the graph */
  int64_t *sum;             /* weight towards each root, while it is added up */
  int32_t *touched;         /* the roots whose sum is not zero */
} forest;

static void forest_free(forest *f) {
  for (int64_t v = 0; f->edges && v < f->graph->nodes; v++)
    free(f->edges[v].weight);
  free(f->degree);
  free(f->parent);
  free(f->top);
  free(f->child);
  free(f->sibling);
  free(f->joined);
  free(f->edges);
  free(f->sum);
  free(f->touched);
}

static dfgnn_status forest_create(forest *f, const dfgnn__adjacency *graph) {
  size_t n = (size_t)graph->nodes + 1;
  *f = (forest){.graph = graph,
                .degree = calloc(n, sizeof *f->degree),
                .parent = malloc(n * sizeof *f->parent),
                .top = malloc(n * sizeof *f->top),
                .child = malloc(n * sizeof *f->child),
                .sibling = malloc(n * sizeof *f->sibling),
                .joined = calloc(n, sizeof *f->joined),
                .edges = calloc(n, sizeof *f->edges),
                .sum = calloc(n, sizeof *f->sum),
                .touched = malloc(n * sizeof *f->touched)};
  if (!f->degree || !f->parent || !f->top || !f->child || !f->sibling ||
      !f->joined || !f->edges || !f->sum || !f->touched) {
    forest_free(f);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                       (long long)graph->nodes);
  }
  for (int32_t v = 0; v < graph->nodes; v++) {
    f->parent[v] = f->top[v] = v;
    f->child[v] = f->sibling[v] = -1;
    for (int64_t k = graph->offsets[v]; k < graph->offsets[v + 1]; k++)
      f->degree[v] += graph->weights[k];
    f->total += f->degree[v];
  }
  return DFGNN_OK;
}

static int32_t root(forest *f, int32_t v) {
  while (f->top[v] != v)
    v = f->top[v] = f->top[f->top[v]];
  return v;
}

static int64_t add(forest *f, int64_t count, int32_t to, int64_t weight) {
  int32_t r = root(f, to);
  if (!f->sum[r])
    f->touched[count++] = r;
  f->sum[r] += weight;
  return count;
}

static int64_t add_edges(forest *f, int64_t count, int32_t v) {
  const dfgnn__adjacency *g = f->graph;
  const bundle *b = &f->edges[v];
  if (b->weight)
    for (int64_t k = 0; k < b->count; k++)
      count = add(f, count, b->to[k], b->weight[k]);
  else
    for (int64_t k = g->offsets[v]; k < g->offsets[v + 1]; k++)
      count = add(f, count, g->neighbors[k], g->weights[k]);
  return count;
}

/* Adds up the edges of v and of all nodes that joined it, by the roots they
 * lead to; returns the number of roots. */
static int64_t gather(forest *f, int32_t v) {
  int64_t count = add_edges(f, 0, v);
  for (int32_t c = f->child[v]; c >= 0; c = f->sibling[c]) {
    count = add_edges(f, count, c);
    free(f->edges[c].weight);
    f->edges[c] = (bundle){0};
  }
  return count;
}

static dfgnn_status keep(forest *f, int32_t v, int64_t count) {
  bundle b = {.count = 0};
  b.weight = malloc(((size_t)count + 1) * (sizeof *b.weight + sizeof *b.to));
  if (!b.weight)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld merged edges",
                       (long long)count);
  b.to = (int32_t *)(b.weight + count + 1);
  for (int64_t k = 0; k < count; k++)
    if (f->touched[k] != v) {
      b.weight[b.count] = f->sum[f->touched[k]];
      b.to[b.count++] = f->touched[k];
    }
  f->edges[v] = b;
  return DFGNN_OK;
}

/* The neighbouring community that v should join, -1 if none is worth it. */
static int32_t best_of(const forest *f, int32_t v, int64_t count) {
  int32_t best = -1;
  wide most = 0;
  for (int64_t k = 0; k < count; k++) {
    int32_t r = f->touched[k];
    wide gain = (wide)f->sum[r] * f->total - (wide)f->degree[v] * f->degree[r];
    if (r != v && (gain > most || (gain == most && best > r))) {
      most = gain;
      best = r;
    }
  }
  return best;
}

static dfgnn_status visit(forest *f, int32_t v, int32_t round) {
  dfgnn_status status = DFGNN_OK;
  int64_t count = gather(f, v);
  int32_t to = best_of(f, v, count);
  if (to >= 0) {
    if (f->child[v] >= 0)
      status = keep(f, v, count);
    f->parent[v] = f->top[v] = to;
    f->sibling[v] = f->child[to];
    f->child[to] = v;
    f->joined[to] = round;
    f->degree[to] += f->degree[v];
  }
  for (int64_t k = 0; k < count; k++)
    f->sum[f->touched[k]] = 0;
  return status;
}

/* Lists the tree below a root, each node before those that joined it. */
static int32_t *walk(const forest *f, int32_t *next, int32_t from) {
  int32_t v = from;
  for (;;) {
    *next++ = v;
    if (f->child[v] >= 0) {
      v = f->child[v];
      continue;
    }
    while (v != from && f->sibling[v] < 0)
      v = f->parent[v];
    if (v == from)
      return next;
    v = f->sibling[v];
  }
}

dfgnn_status dfgnn__order_community(int32_t *order, int32_t *community,
                                    const dfgnn__adjacency *graph) {
  forest f;
  int64_t n = graph->nodes;
  DFGNN_TRY(forest_create(&f, graph));
  dfgnn_status status = DFGNN_OK;
  int64_t *key = calloc((size_t)n + 1, sizeof *key);
  if (!key)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                         (long long)n));
  for (int64_t v = 0; v < n; v++)
    key[v] = graph->offsets[v + 1] - graph->offsets[v];
  status = dfgnn__order_by_key(order, key, n);
  int64_t waiting = status ? 0 : n;
  for (int32_t round = 1; waiting && !status; round++) {
    int64_t count = waiting;
    waiting = 0;
    for (int64_t k = 0; k < count && !status; k++)
      if (f.joined[order[k]] == round)
        order[waiting++] = order[k];
      else
        status = visit(&f, order[k], round);
  }
  if (status)
    goto out;
  int32_t *next = order;
  for (int32_t v = 0; v < n; v++)
    if (f.parent[v] == v)
      next = walk(&f, next, v);
  for (int32_t v = 0; community && v < n; v++)
    community[v] = root(&f, v);
out:
  free(key);
  forest_free(&f);
  return status;
}
