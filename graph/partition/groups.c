/* groups.c - makes a graph smaller before METIS, which would take several times
 * the memory of the graph itself */
#include "graph/partition/partition.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, GROUPS_A_PART = 64, COARSER = 4 };

/* Counts by kind, a group or part; `met` lists the kinds whose count is not
 * zero, so that clearing is cheap. */
typedef struct tally {
  int32_t *count, *met;
  int64_t used;
} tally;

static int tally_make(tally *t, int64_t kinds) {
  t->count = calloc((size_t)kinds + 1, sizeof *t->count);
  t->met = malloc(((size_t)kinds + 1) * sizeof *t->met);
  t->used = 0;
  return t->count && t->met;
}

static void tally_free(tally *t) {
  free(t->count);
  free(t->met);
}

static void tally_add(tally *t, int32_t kind, int32_t times) {
  if (!t->count[kind])
    t->met[t->used++] = kind;
  t->count[kind] += times;
}

static void tally_clear(tally *t) {
  while (t->used)
    t->count[t->met[--t->used]] = 0;
}

static dfgnn_status no_memory(const dfgnn_csr *csr) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition %lld nodes",
                     (long long)csr->destinations);
}

/* Moves each row to the kind of most of its neighbours, if that has room:
 * load[kind] stays at most `most`.  Of kinds with as many neighbours the row's
 * own wins, then the lowest.  Returns how many rows moved. */
static int64_t propagate(int32_t *kind, int64_t *load, tally *t,
                         const dfgnn_csr *csr, int64_t most) {
  int64_t moved = 0;
  for (int64_t i = 0; i < csr->destinations; i++) {
    int64_t work = dfgnn__row_work(csr, i);
    int32_t own = kind[i], best = own;
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++)
      tally_add(t, kind[dfgnn__csr_index(csr, e)], 1);
    for (int64_t k = 0; k < t->used; k++) {
      int32_t other = t->met[k];
      int32_t more = t->count[other] - t->count[best];
      if (other != own && load[other] + work <= most &&
          (more > 0 || (more == 0 && best != own && other < best)))
        best = other;
    }
    tally_clear(t);
    if (best != own) {
      load[own] -= work;
      load[best] += work;
      kind[i] = best;
      moved++;
    }
  }
  return moved;
}

/* Numbers the groups that have nodes from 0 on, in the order of their first
 * nodes. */
static void number_groups(dfgnn__groups *g, int64_t nodes, int32_t *number) {
  memset(number, -1, (size_t)nodes * sizeof *number);
  g->count = 0;
  for (int64_t i = 0; i < nodes; i++) {
    int32_t *n = &number[g->group[i]];
    if (*n < 0)
      *n = (int32_t)g->count++;
    g->group[i] = *n;
  }
}

/* ---- the graph of the groups --------------------------------------------- */

/* The rows of each group, one group after the other. */
typedef struct members {
  int64_t *begin; /* [count + 1] */
  int32_t *row;   /* [nodes] */
} members;

static int list_members(members *m, const dfgnn__groups *g, int64_t nodes) {
  m->begin = calloc((size_t)g->count + 2, sizeof *m->begin);
  m->row = malloc(((size_t)nodes + 1) * sizeof *m->row);
  if (!m->begin || !m->row)
    return 0;
  for (int64_t i = 0; i < nodes; i++)
    m->begin[g->group[i] + 2]++;
  for (int64_t c = 1; c <= g->count; c++)
    m->begin[c + 1] += m->begin[c];
  for (int64_t i = 0; i < nodes; i++)
    m->row[m->begin[g->group[i] + 1]++] = (int32_t)i;
  return 1;
}

static void count_ends(tally *t, const dfgnn__groups *g, const members *m,
                       const dfgnn_csr *csr, int32_t c) {
  for (int64_t k = m->begin[c]; k < m->begin[c + 1]; k++)
    for (int64_t e = dfgnn__csr_offset(csr, m->row[k]);
         e < dfgnn__csr_offset(csr, m->row[k] + 1); e++) {
      int32_t other = g->group[dfgnn__csr_index(csr, e)];
      if (other != c)
        tally_add(t, other, 1);
    }
}

/* Counts the ends of each group, or writes them once the graph has arrays.  Two
 * groups with edges in both directions are listed twice, and united later. */
static void fill_graph(dfgnn__adjacency *graph, int64_t *next, tally *t,
                       const dfgnn__groups *g, const members *m,
                       const dfgnn_csr *csr) {
  for (int32_t c = 0; c < g->count; c++) {
    count_ends(t, g, m, csr, c);
    for (int64_t k = 0; k < t->used; k++) {
      int32_t other = t->met[k], times = t->count[other];
      if (!graph->neighbors) {
        graph->offsets[c + 1]++;
        graph->offsets[other + 1]++;
        continue;
      }
      graph->neighbors[next[c]] = other;
      graph->weights[next[c]++] = times;
      graph->neighbors[next[other]] = c;
      graph->weights[next[other]++] = times;
    }
    tally_clear(t);
  }
}

static void unite(dfgnn__adjacency *graph, tally *t) {
  int64_t used = 0, begin = 0;
  for (int64_t c = 0; c < graph->nodes; c++) {
    int64_t end = graph->offsets[c + 1];
    for (int64_t k = begin; k < end; k++)
      tally_add(t, graph->neighbors[k], graph->weights[k]);
    graph->offsets[c] = used;
    for (int64_t k = 0; k < t->used; k++) {
      graph->neighbors[used] = t->met[k];
      graph->weights[used++] = t->count[t->met[k]];
    }
    tally_clear(t);
    begin = end;
  }
  graph->offsets[graph->nodes] = used;
}

/* Makes the graph of the groups; *fits becomes 0, and nothing is kept, if it
 * would take more than `bytes`. */
static dfgnn_status join_groups(dfgnn__groups *g, int *fits,
                                const dfgnn_csr *csr, int64_t bytes) {
  dfgnn__adjacency *graph = &g->graph;
  dfgnn_status status = DFGNN_OK;
  members m = {0};
  tally t = {0};
  int64_t *next = NULL;
  *fits = 1;
  *graph = (dfgnn__adjacency){.nodes = g->count};
  graph->offsets = calloc((size_t)g->count + 1, sizeof *graph->offsets);
  next = malloc(((size_t)g->count + 1) * sizeof *next);
  if (!list_members(&m, g, csr->destinations) || !tally_make(&t, g->count) ||
      !graph->offsets || !next)
    DFGNN_GO(no_memory(csr));
  fill_graph(graph, NULL, &t, g, &m, csr);
  for (int64_t c = 0; c < g->count; c++)
    graph->offsets[c + 1] += graph->offsets[c];
  int64_t ends = graph->offsets[g->count];
  *fits = ends * 8 <= bytes && ends <= INT32_MAX;
  if (!*fits)
    goto out;
  memcpy(next, graph->offsets, (size_t)g->count * sizeof *next);
  graph->neighbors = malloc(((size_t)ends + 1) * sizeof *graph->neighbors);
  graph->weights = malloc(((size_t)ends + 1) * sizeof *graph->weights);
  if (!graph->neighbors || !graph->weights)
    DFGNN_GO(no_memory(csr));
  fill_graph(graph, next, &t, g, &m, csr);
  unite(graph, &t);
out:
  if (status || !*fits)
    dfgnn__adjacency_free(graph);
  tally_free(&t);
  free(next);
  free(m.begin);
  free(m.row);
  return status;
}

/* ---- groups -------------------------------------------------------------- */

void dfgnn__groups_free(dfgnn__groups *groups) {
  free(groups->group);
  free(groups->work);
  dfgnn__adjacency_free(&groups->graph);
  *groups = (dfgnn__groups){0};
}

dfgnn_status dfgnn__groups_build(dfgnn__groups *g, const dfgnn_csr *csr,
                                 int parts, int64_t bytes) {
  int64_t n = csr->destinations;
  int64_t total = csr->edges + n * DFGNN_PARTITION_NODE, most = total / n * 32;
  dfgnn_status status = DFGNN_OK;
  tally t = {0};
  int fits = 0;
  *g = (dfgnn__groups){.count = n};
  g->group = malloc((size_t)n * sizeof *g->group);
  g->work = malloc((size_t)n * sizeof *g->work);
  if (!g->group || !g->work || !tally_make(&t, n))
    DFGNN_GO(no_memory(csr));
  for (int64_t i = 0; i < n; i++)
    g->group[i] = (int32_t)i;
  while (!fits) {
    int64_t least = (int64_t)parts * GROUPS_A_PART;
    int last = most >= total / least;
    most = last ? total / least + 1 : most;
    memset(g->work, 0, (size_t)n * sizeof *g->work);
    for (int64_t i = 0; i < n; i++)
      g->work[g->group[i]] += dfgnn__row_work(csr, i);
    for (int round = 0; round < ROUNDS; round++)
      if (!propagate(g->group, g->work, &t, csr, most))
        break;
    number_groups(g, n, t.met);
    DFGNN_GO(join_groups(g, &fits, csr, last ? INT64_MAX : bytes));
    if (last && !fits)
      DFGNN_GO(dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                           "%lld groups of nodes have 2^31 edges or more; "
                           "expected a graph that METIS can index",
                           (long long)g->count));
    most *= COARSER;
  }
  memset(g->work, 0, (size_t)g->count * sizeof *g->work);
  for (int64_t i = 0; i < n; i++)
    g->work[g->group[i]] += dfgnn__row_work(csr, i);
out:
  tally_free(&t);
  if (status)
    dfgnn__groups_free(g);
  return status;
}

dfgnn_status dfgnn__refine(int32_t *owner, const dfgnn_csr *csr, int parts) {
  int64_t *load = calloc((size_t)parts, sizeof *load), total = 0;
  dfgnn_status status = DFGNN_OK;
  tally t = {0};
  if (!load || !tally_make(&t, parts))
    DFGNN_GO(no_memory(csr));
  for (int64_t i = 0; i < csr->destinations; i++) {
    load[owner[i]] += dfgnn__row_work(csr, i);
    total += dfgnn__row_work(csr, i);
  }
  for (int round = 0; round < ROUNDS; round++)
    if (!propagate(owner, load, &t, csr, total / parts + total / parts / 32))
      break;
out:
  tally_free(&t);
  free(load);
  return status;
}
