/* forest.c - scores of candidates by a forest */
#include "select/forest.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

uint8_t dfgnn__forest_bin(const dfgnn_forest_feature *feature, double x) {
  int low = 0, high = feature->thresholds;
  if (x != x)
    return 0;
  while (low < high) { /* counts the thresholds below x */
    int middle = (low + high) / 2;
    if (feature->threshold[middle] < x)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint8_t)(low + 1);
}

int32_t dfgnn__forest_score(const dfgnn_forest *forest, int member,
                            const uint8_t *bins) {
  const uint32_t *root = forest->root;
  int32_t sum = 0;
  for (int m = 0; m < member; m++)
    root += forest->trees[m];
  for (int t = 0; t < forest->trees[member]; t++) {
    const dfgnn_forest_node *tree = forest->node + root[t], *node = tree;
    while (node->feature != DFGNN_FOREST_LEAF)
      node = bins[node->feature] <= node->bin ? node + 1 : tree + node->right;
    sum += node->value;
  }
  return sum;
}

/* ---- all candidates at once ----------------------------------------------
 *
 * Most nodes ask of a feature of the problem, with one answer for all
 * candidates.  The others split the set of candidates, kept as bits; how a
 * threshold of a feature splits them is found once for each call. */

enum { MASKS = 1024 };

typedef struct workspace {
  size_t words, capacity;
  uint16_t slot[DFGNN_FOREST_FEATURES][DFGNN_FOREST_BINS]; /* 0: not known */
  int masks;
  uint64_t *mask; /* [MASKS + 1][words]: the candidates up to the bin */
  uint64_t *sets; /* [leaves of a tree][words] */
} workspace;

typedef struct walk {
  const dfgnn_forest *forest;
  const dfgnn_ranking *ranking;
  workspace *space;
  int32_t *score;
} walk;

/* The candidates whose bin is at most the node's.  Once all masks are in use,
 * the first, which no slot names, serves. */
static const uint64_t *mask_of(const walk *w, const dfgnn_forest_node *node) {
  workspace *s = w->space;
  const dfgnn_ranking_feature *f = &w->ranking->feature[node->feature];
  uint16_t *slot = &s->slot[node->feature][node->bin];
  if (*slot)
    return s->mask + *slot * s->words;
  *slot = (uint16_t)(s->masks < MASKS ? ++s->masks : 0);
  uint64_t *mask = s->mask + *slot * s->words;
  memset(mask, 0, s->words * sizeof *mask);
  for (int k = 0; k < f->classes; k++)
    if (f->bin[k] <= node->bin)
      for (size_t i = 0; i < s->words; i++)
        mask[i] |= f->set[(size_t)k * s->words + i];
  return mask;
}

static void add(int32_t *score, const uint64_t *set, size_t words,
                int32_t value) {
  for (size_t word = 0; word < words; word++)
    for (uint64_t bits = set[word]; bits; bits &= bits - 1)
      score[word * 64 + (size_t)__builtin_ctzll(bits)] += value;
}

/* Adds to the candidates of a set the values of the leaves that they reach.
 * The set of a left child lies behind its parent's, which becomes that of the
 * right child. */
static void descend(const walk *w, const dfgnn_forest_node *tree,
                    const dfgnn_forest_node *node, uint64_t *set) {
  const size_t words = w->space->words;
  while (node->feature != DFGNN_FOREST_LEAF) {
    const dfgnn_ranking_feature *f = &w->ranking->feature[node->feature];
    if (!f->classes) {
      node = f->bin[0] <= node->bin ? node + 1 : tree + node->right;
      continue;
    }
    const uint64_t *mask = mask_of(w, node);
    uint64_t *left = set + words, some = 0, others = 0;
    for (size_t i = 0; i < words; i++) {
      left[i] = set[i] & mask[i];
      set[i] &= ~mask[i];
      some |= left[i];
      others |= set[i];
    }
    if (some && others)
      descend(w, tree, node + 1, left);
    if (!others)
      memcpy(set, left, words * sizeof *set);
    node = others ? tree + node->right : node + 1;
  }
  add(w->score, set, words, node->value);
}

static workspace *prepare(dfgnn_ranking *ranking) {
  workspace *s = ranking->memory;
  const size_t words = ranking->words;
  if (!s && !(ranking->memory = s = calloc(1, sizeof *s)))
    return NULL;
  if (words > s->capacity) {
    free(s->mask);
    free(s->sets);
    s->mask = calloc((MASKS + 1) * words, sizeof *s->mask);
    s->sets = calloc((DFGNN_FOREST_LEAVES + 1) * words, sizeof *s->sets);
    s->capacity = s->mask && s->sets ? words : 0;
    if (!s->capacity)
      return NULL;
  }
  s->words = words;
  s->masks = 0;
  memset(s->slot, 0, sizeof s->slot);
  return s;
}

dfgnn_status dfgnn__forest_rank(const dfgnn_forest *forest,
                                dfgnn_ranking *ranking) {
  const size_t count = ranking->count;
  const uint32_t *root = forest->root;
  if (!count)
    return DFGNN_OK;
  workspace *s = prepare(ranking);
  if (!s)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  memset(ranking->score, 0,
         (size_t)forest->members * count * sizeof *ranking->score);
  for (int m = 0; m < forest->members; m++) {
    const walk w = {forest, ranking, s, ranking->score + (size_t)m * count};
    const int all = forest->trees[m];
    const int trees =
        ranking->trees && ranking->trees < all ? ranking->trees : all;
    for (int t = 0; t < trees; t++) {
      const dfgnn_forest_node *tree = forest->node + root[t];
      memcpy(s->sets, ranking->active, s->words * sizeof *s->sets);
      descend(&w, tree, tree, s->sets);
    }
    root += all;
  }
  return DFGNN_OK;
}

void dfgnn__ranking_free(dfgnn_ranking *ranking) {
  workspace *s = ranking->memory;
  if (s) {
    free(s->mask);
    free(s->sets);
    free(s);
  }
  ranking->memory = NULL;
}

int dfgnn__forest_cover_order(const dfgnn_forest_cover *a,
                              const dfgnn_forest_cover *b) {
  const int cells = strcmp(a->cell, b->cell);
  return cells ? cells : strcmp(a->family, b->family);
}

const dfgnn_forest_cover *dfgnn__forest_cover_of(const dfgnn_forest *forest,
                                                 const char *cell,
                                                 const char *family) {
  size_t low = 0, high = forest->covers;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const dfgnn_forest_cover *c = &forest->cover[middle];
    const int cells = strcmp(c->cell, cell);
    const int order = cells ? cells : strcmp(c->family, family);
    if (!order)
      return c;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

void dfgnn__forest_free(dfgnn_forest *forest) {
  free(forest->cover);
  free(forest->feature);
  free(forest->node);
  free(forest->root);
  *forest = (dfgnn_forest){0};
}
