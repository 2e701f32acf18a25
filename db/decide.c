/* decide.c - the rows of each problem become its decision */
#include "db/decide.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All rows of a variant in a problem. */
typedef struct block {
  const item *begin, *end;
  int revision; /* the newest usable one; -1: none */
  int rejected;
  int ok; /* some row of that revision is "ok" */
} block;

/* One "ok" row of a candidate. */
typedef struct evidence {
  const dfgnn_measurement *row;
  const char *anchor;
  int anchor_revision;
  size_t from, to; /* nodes: anchor and variant */
  int loud;        /* one sample, or disturbed */
  dfgnn_estimate estimate;
} evidence;

typedef struct usable_cache {
  dfgnn_usable_function usable;
  void *data;
  struct {
    const char *variant;
    int revision, answer;
  } slot[1024];
} usable_cache;

static int ask(usable_cache *cache, const char *variant, int revision) {
  if (!cache->usable)
    return 1;
  size_t i = ((uintptr_t)variant * 31 + (uintptr_t)revision) % 1024;
  if (cache->slot[i].variant != variant ||
      cache->slot[i].revision != revision) {
    cache->slot[i].variant = variant;
    cache->slot[i].revision = revision;
    cache->slot[i].answer = cache->usable(cache->data, variant, revision) != 0;
  }
  return cache->slot[i].answer;
}

/* ---- order --------------------------------------------------------------- */

static int compare_string(const char *a, const char *b) {
  return a == b ? 0 : strcmp(a, b);
}

static int compare_integer(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_item(const void *x, const void *y) {
  const dfgnn_measurement *a = ((const item *)x)->row;
  const dfgnn_measurement *b = ((const item *)y)->row;
  int c =
      compare_integer(((const item *)x)->problem, ((const item *)y)->problem);
  if (!c)
    c = compare_string(a->variant, b->variant);
  if (!c)
    c = compare_integer(a->revision, b->revision);
  return c ? c : dfgnn__measurement_compare(a, b);
}

/* ---- one problem --------------------------------------------------------- */

static int is(const dfgnn_measurement *row, const char *status) {
  return strcmp(row->status, status) == 0;
}

static block make_block(const item *begin, const item *end) {
  block b = {.begin = begin, .end = end, .revision = -1};
  int64_t ok = -1, failed = -1;
  for (const item *i = begin; i < end; i++)
    if (i->usable && i->row->revision > b.revision)
      b.revision = i->row->revision;
  for (const item *i = begin; i < end; i++) {
    const dfgnn_measurement *row = i->row;
    if (!i->usable || row->revision != b.revision)
      continue;
    if (is(row, "wrong"))
      b.rejected = 1;
    else if (is(row, "ok") && row->time > ok)
      ok = row->time;
    else if (!is(row, "ok") && row->time > failed)
      failed = row->time;
  }
  b.rejected |= failed >= 0 && failed >= ok;
  b.ok = ok >= 0;
  return b;
}

static const block *find_block(const block *blocks, size_t count,
                               const char *variant) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int c = compare_string(variant, blocks[middle].begin->row->variant);
    if (c == 0)
      return &blocks[middle];
    if (c < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

/* The revision of its anchor that a row was measured against. */
static int anchor_revision(const dfgnn_measurement *row, const block *anchor) {
  if (row->anchor_revision > 0 || !anchor)
    return row->anchor_revision;
  for (const item *i = anchor->begin; i < anchor->end; i++)
    if (compare_string(i->row->run, row->run) == 0)
      return i->row->revision;
  return anchor->revision > 0 ? anchor->revision : 0;
}

static double square(double x) { return x * x; }

/* The log ratio that a row gives; 0 if it says nothing about speed. */
static int estimate_row(dfgnn_estimate *estimate,
                        const dfgnn_measurement *row) {
  *estimate =
      (dfgnn_estimate){.variance = square(DFGNN_DECIDE_FLOOR), .count = 1};
  if (!is(row, "ok"))
    return 0;
  if (!*row->anchor)
    return 1;
  if (!(row->ratio > 0) || !(row->ratio_low > 0) ||
      !(row->ratio_high >= row->ratio_low) || !isfinite(row->ratio_high) ||
      !isfinite(row->ratio))
    return 0;
  double error = log(row->ratio_high / row->ratio_low) / (2 * 1.96);
  estimate->mean = log(row->ratio);
  if (error > DFGNN_DECIDE_FLOOR)
    estimate->variance = square(error);
  return 1;
}

static int is_loud(const dfgnn_measurement *row) {
  const dfgnn_noise noise = dfgnn__row_noise(row);
  return noise == DFGNN_NOISE_ALONE || noise == DFGNN_NOISE_DISTURBED;
}

/* Widens the interval of a row that was disturbed, or that has one sample where
 * better ones are to be had. */
static void widen(dfgnn_estimate *estimate, const dfgnn_measurement *row,
                  int better) {
  const double least = log(DFGNN_LOUD_FACTOR) / 1.96;
  if (*row->anchor && strcmp(row->variant, row->anchor) && is_loud(row) &&
      (better || row->samples > 1) && estimate->variance < square(least))
    estimate->variance = square(least);
}

/* Is one of a block's counting rows not loud? */
static int has_calm(const block *b) {
  for (const item *i = b->begin; i < b->end; i++)
    if (i->usable && i->row->revision == b->revision && is(i->row, "ok") &&
        !is_loud(i->row))
      return 1;
  return 0;
}

static size_t collect(evidence *proofs, const block *b, const block *blocks,
                      size_t count) {
  const int calm = has_calm(b);
  size_t n = 0;
  for (const item *i = b->begin; i < b->end && b->ok && !b->rejected; i++) {
    const dfgnn_measurement *row = i->row;
    evidence *e = &proofs[n];
    if (!i->usable || row->revision != b->revision ||
        !estimate_row(&e->estimate, row))
      continue;
    e->row = row;
    e->loud = is_loud(row);
    widen(&e->estimate, row, calm);
    if (*row->anchor) {
      e->anchor = row->anchor;
      e->anchor_revision =
          anchor_revision(row, find_block(blocks, count, row->anchor));
    } else { /* it was alone in its run */
      e->anchor = row->variant;
      e->anchor_revision = row->revision;
    }
    n++;
  }
  return n;
}

static size_t find_node(const node *nodes, size_t count, const char *variant,
                        int revision) {
  node key = {.variant = variant, .revision = revision};
  return (size_t)((const node *)bsearch(&key, nodes, count, sizeof key,
                                        dfgnn__compare_nodes) -
                  nodes);
}

/* The nodes of all evidence, each once, in order. */
static size_t make_nodes(node *nodes, evidence *proofs, size_t count,
                         const block *blocks, size_t block_count,
                         usable_cache *cache) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    nodes[n++] = (node){.variant = proofs[i].row->variant,
                        .revision = proofs[i].row->revision};
    nodes[n++] = (node){.variant = proofs[i].anchor,
                        .revision = proofs[i].anchor_revision};
  }
  qsort(nodes, n, sizeof *nodes, dfgnn__compare_nodes);
  size_t kept = 0;
  for (size_t i = 0; i < n; i++)
    if (i == 0 || dfgnn__compare_nodes(&nodes[i], &nodes[kept - 1]) != 0)
      nodes[kept++] = nodes[i];
  for (size_t i = 0; i < kept; i++) {
    node *v = &nodes[i];
    const block *b = find_block(blocks, block_count, v->variant);
    /* An anchor without a row of its own was measured all the same. */
    v->candidate = b ? !b->rejected && b->ok && b->revision == v->revision
                     : v->revision > 0 && ask(cache, v->variant, v->revision);
  }
  for (size_t i = 0; i < count; i++) {
    evidence *e = &proofs[i];
    e->to = find_node(nodes, kept, e->row->variant, e->row->revision);
    e->from = find_node(nodes, kept, e->anchor, e->anchor_revision);
  }
  return kept;
}

static void add_figures(node *nodes, const evidence *proofs, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *row = proofs[i].row;
    node *v = &nodes[proofs[i].to];
    if (v->samples == 0 || row->workspace_bytes > v->workspace_bytes)
      v->workspace_bytes = row->workspace_bytes;
    const dfgnn_noise noise = dfgnn__row_noise(row);
    if (v->samples == 0 || noise < v->noise)
      v->noise = noise;
    v->samples += row->samples;
    if (v->median_ms == 0 || row->samples >= v->best_samples) {
      v->best_samples = row->samples;
      v->median_ms = row->median_ms;
    }
  }
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *row = proofs[i].row;
    node *v = &nodes[proofs[i].from];
    if (v->samples == 0 && v->median_ms == 0 && row->ratio > 0) {
      v->workspace_bytes = INT64_MAX;
      v->samples = row->samples;
      v->median_ms = row->median_ms / row->ratio;
    }
  }
}

/* Averages evidence into edges: rows of a variant are neighbours in proofs,
 * those with the same anchor are gathered in part, the loud ones only where
 * there are no others. */
static void make_edges(dfgnn_estimate *edge, const size_t *anchor,
                       size_t anchors, size_t nodes, const evidence *proofs,
                       size_t count, dfgnn_estimate *part) {
  for (size_t begin = 0, end; begin < count; begin = end) {
    size_t to = proofs[begin].to;
    for (end = begin; end < count && proofs[end].to == to; end++)
      ;
    for (size_t k = 0; k < anchors; k++) {
      size_t n = 0;
      for (int loud = 0; loud < 2 && n == 0 && anchor[k] != to; loud++)
        for (size_t i = begin; i < end; i++)
          if (proofs[i].from == anchor[k] && proofs[i].loud == loud)
            part[n++] = proofs[i].estimate;
      edge[k * nodes + to] = dfgnn__combine(part, n);
    }
  }
}

/* Estimates every node from the evidence. */
static int estimate_nodes(dfgnn_estimate *place, size_t nodes,
                          const evidence *proofs, size_t count) {
  size_t anchors = 0;
  size_t *anchor = calloc(2 * nodes, sizeof *anchor);
  size_t *rows = anchor + nodes, *seen = NULL;
  dfgnn_estimate *edge = NULL;
  int done = 0;
  if (!anchor || !(seen = calloc(nodes, sizeof *seen)))
    goto out;
  for (size_t i = 0; i < count; i++)
    seen[proofs[i].from]++;
  for (size_t i = 0; i < nodes; i++)
    if (seen[i]) {
      rows[anchors] = seen[i];
      anchor[anchors++] = i;
    }
  size_t cells = anchors * nodes;
  edge = calloc(2 * cells + anchors + count, sizeof *edge);
  if (!edge)
    goto out;
  make_edges(edge, anchor, anchors, nodes, proofs, count,
             edge + 2 * cells + anchors);
  dfgnn__join(place, nodes, anchor, rows, anchors, edge, edge + cells);
  done = 1;
out:
  free(edge);
  free(seen);
  free(anchor);
  return done;
}

/* Adds the decision of one problem by its rows, which are in order; 0 without
 * memory. */
static int decide_problem(owned_decisions *all, const item *begin,
                          const item *end, double margin, usable_cache *cache) {
  size_t count = (size_t)(end - begin), blocks = 0, n = 0, rejected = 0;
  const char **names = calloc(count, sizeof *names);
  int done = 0;
  block *b = calloc(count, sizeof *b);
  evidence *proofs = calloc(count, sizeof *proofs);
  node *nodes = calloc(2 * count, sizeof *nodes);
  dfgnn_estimate *place = calloc(2 * count, sizeof *place);
  rank *ranks = calloc(2 * count, sizeof *ranks);
  if (!names || !b || !proofs || !nodes || !place || !ranks)
    goto out;
  for (const item *i = begin, *next; i < end; i = next) {
    for (next = i;
         next < end && compare_string(next->row->variant, i->row->variant) == 0;
         next++)
      ;
    b[blocks] = make_block(i, next);
    if (b[blocks].rejected)
      names[rejected++] = i->row->variant;
    blocks++;
  }
  for (size_t i = 0; i < blocks; i++)
    n += collect(proofs + n, &b[i], b, blocks);
  done = 1;
  if (n == 0)
    goto out;
  size_t node_count = make_nodes(nodes, proofs, n, b, blocks, cache);
  add_figures(nodes, proofs, n);
  done = estimate_nodes(place, node_count, proofs, n);
  if (!done)
    goto out;
  size_t ranked = dfgnn__rank_nodes(ranks, nodes, node_count, place, margin);
  if (ranked)
    done = dfgnn__add_decision(all, begin, end, ranks, ranked, names, rejected);
out:
  free(names);
  free(ranks);
  free(place);
  free(nodes);
  free(proofs);
  free(b);
  return done;
}

static int compare_decision(const void *problem, const void *decision) {
  return dfgnn__problem_compare(problem,
                                &((const dfgnn_decision *)decision)->problem);
}

const dfgnn_decision *dfgnn__decision_find(const dfgnn_decisions *decisions,
                                           const dfgnn_measurement *problem) {
  return decisions->count
             ? bsearch(problem, decisions->decision, decisions->count,
                       sizeof *decisions->decision, compare_decision)
             : NULL;
}

dfgnn_status dfgnn__decide(dfgnn_decisions **out, uint64_t *unusable,
                           const dfgnn_measurement *rows, size_t count,
                           double margin, dfgnn_usable_function usable,
                           void *data) {
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  uint64_t refused = 0;
  owned_decisions *all = calloc(1, sizeof *all);
  usable_cache *cache = calloc(1, sizeof *cache);
  item *items = calloc(count ? count : 1, sizeof *items);
  if (!all || !cache || !items || !(all->strings = dfgnn__strings_create()))
    goto out;
  cache->usable = usable;
  cache->data = data;
  for (size_t i = 0; i < count; i++) {
    items[i].row = &rows[i];
    items[i].usable = ask(cache, rows[i].variant, rows[i].revision);
    refused += !items[i].usable;
  }
  if (!dfgnn__number_problems(items, count))
    goto out;
  qsort(items, count, sizeof *items, compare_item);
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (i == 0 ||
        dfgnn__measurement_compare(items[i].row, items[kept - 1].row) != 0)
      items[kept++] = items[i];
  for (size_t begin = 0, end; begin < kept; begin = end) {
    for (end = begin; end < kept && items[end].problem == items[begin].problem;
         end++)
      ;
    if (!decide_problem(all, items + begin, items + end, margin, cache))
      goto out;
  }
  if (unusable)
    *unusable += refused;
  *out = &all->public;
  all = NULL;
  status = DFGNN_OK;
out:
  if (all)
    dfgnn__decisions_free(&all->public);
  free(cache);
  free(items);
  return status ? dfgnn__fail(status, "out of memory for decisions") : DFGNN_OK;
}
