/* boost.c - grows trees one after the other, each for the residual of all
 * before
 */
#include "tuner/boost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/fingerprint.h"
#include "lib/base/error.h"

/* Added to a leaf's weight; the weight of one sure row. */
#define SMOOTHING 1024.0

typedef struct cell {
  int64_t gradient, weight, rows;
} cell;

typedef struct split {
  double gain; /* 0: there is none */
  int feature, bin;
  cell left;
} split;

typedef struct leaf {
  size_t begin, end; /* its part of boost.row */
  int node;
  cell total;
  split best;
  cell *histogram; /* [features][bins] */
} leaf;

/* A node of a growing tree; children are numbers of nodes. */
typedef struct growing {
  int feature, bin, left, right, value;
} growing;

typedef struct boost {
  dfgnn_forest *forest;
  const dfgnn_boost_data *data;
  const uint8_t *bins;
  const dfgnn_boost_options *options;
  uint8_t *in_use;   /* [rows]: does the member see the row? */
  int32_t *score;    /* [rows]: the sum of the member's trees so far */
  int64_t *gradient; /* [rows]: weighted */
  int64_t *centre;   /* [groups]: the weighted sum of the residuals */
  int64_t *weight;   /* [groups]: the sum of the rows' weights */
  uint32_t *row;     /* the rows of the growing tree, leaf after leaf */
  uint32_t *spare;
  uint8_t *seen; /* [features]: does the tree see the feature? */
  leaf leaves[DFGNN_FOREST_LEAVES];
  growing node[DFGNN_FOREST_NODES];
  int leaf_count, node_count;
} boost;

/* A number 0 .. 1023, the same for the same arguments. */
static int draw(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = dfgnn__mix(seed * 0x9e3779b97f4a7c15u + a);
  x = dfgnn__mix(x + b * 0xd1b54a32d192ed03u);
  return (int)(dfgnn__mix(x + c * 0x8cb92ba72f3d8dd7u) >> 54);
}

/* ---- bins ---------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Thresholds lie between neighbouring distinct values; where there are more
 * such places than bins, the chosen ones share the rows evenly. */
static void choose_thresholds(dfgnn_forest_feature *f, const double *sorted,
                              size_t count) {
  const int most = DFGNN_FOREST_BINS - 2;
  size_t distinct = count > 0;
  for (size_t i = 1; i < count; i++)
    distinct += sorted[i] != sorted[i - 1];
  f->thresholds = 0;
  for (size_t i = 1, next = 1; i < count && f->thresholds < most; i++) {
    if (sorted[i] == sorted[i - 1])
      continue;
    if (distinct > (size_t)most + 1 && i < next * count / ((size_t)most + 1))
      continue;
    f->threshold[f->thresholds++] =
        sorted[i - 1] + (sorted[i] - sorted[i - 1]) / 2;
    while (next * count / ((size_t)most + 1) <= i)
      next++;
  }
}

dfgnn_status dfgnn__boost_thresholds(dfgnn_forest *forest,
                                     const dfgnn_boost_data *data) {
  double *sorted = malloc((data->rows + 1) * sizeof *sorted);
  if (!sorted)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int f = 0; f < forest->features; f++) {
    size_t count = 0;
    for (size_t i = 0; i < data->rows; i++) {
      const double x = data->value[(size_t)f * data->rows + i];
      if (x == x)
        sorted[count++] = x;
    }
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    choose_thresholds(&forest->feature[f], sorted, count);
  }
  free(sorted);
  return DFGNN_OK;
}

void dfgnn__boost_bins(uint8_t *bins, const dfgnn_forest *forest,
                       const dfgnn_boost_data *data) {
  for (int f = 0; f < forest->features; f++)
    for (size_t i = 0; i < data->rows; i++)
      bins[(size_t)f * data->rows + i] = dfgnn__forest_bin(
          &forest->feature[f], data->value[(size_t)f * data->rows + i]);
}

/* ---- splits -------------------------------------------------------------- */

static double worth(cell c) {
  return (double)c.gradient * (double)c.gradient /
         ((double)c.weight + SMOOTHING);
}

static cell less(cell a, cell b) {
  return (cell){a.gradient - b.gradient, a.weight - b.weight, a.rows - b.rows};
}

static void count_rows(const boost *b, leaf *l) {
  const int threads = b->options->threads;
  const size_t rows = b->data->rows;
#pragma omp parallel for schedule(dynamic)                                     \
    num_threads(threads) if (threads > 1 && l->end - l->begin > 4096)
  for (int f = 0; f < b->forest->features; f++) {
    cell *h = l->histogram + (size_t)f * DFGNN_FOREST_BINS;
    const uint8_t *bins = b->bins + (size_t)f * rows;
    if (!b->seen[f])
      continue;
    memset(h, 0, DFGNN_FOREST_BINS * sizeof *h);
    for (size_t k = l->begin; k < l->end; k++) {
      const uint32_t i = b->row[k];
      cell *c = &h[bins[i]];
      c->gradient += b->gradient[i];
      c->weight += b->data->weight[i];
      c->rows++;
    }
  }
}

static void find_split(const boost *b, leaf *l) {
  const double whole = worth(l->total);
  l->best = (split){0};
  for (int f = 0; f < b->forest->features; f++) {
    const cell *h = l->histogram + (size_t)f * DFGNN_FOREST_BINS;
    cell left = {0};
    if (!b->seen[f])
      continue;
    for (int bin = 0; bin < b->forest->feature[f].thresholds + 1; bin++) {
      left.gradient += h[bin].gradient;
      left.weight += h[bin].weight;
      left.rows += h[bin].rows;
      const cell right = less(l->total, left);
      if (left.rows < b->options->least)
        continue;
      if (right.rows < b->options->least)
        break;
      const double gain = worth(left) + worth(right) - whole;
      if (gain > l->best.gain)
        l->best = (split){gain, f, bin, left};
    }
  }
}

/* Puts the rows of the left child first, in their order; returns where those of
 * the right child begin. */
static size_t part_rows(boost *b, const leaf *l) {
  const uint8_t *bins = b->bins + (size_t)l->best.feature * b->data->rows;
  size_t left = l->begin, right = 0;
  for (size_t k = l->begin; k < l->end; k++) {
    const uint32_t i = b->row[k];
    if (bins[i] <= l->best.bin)
      b->row[left++] = i;
    else
      b->spare[right++] = i;
  }
  memcpy(b->row + left, b->spare, right * sizeof *b->spare);
  return left;
}

/* The smaller child's histogram is counted; the larger child's is the parent's
 * less the smaller child's. */
static void split_leaf(boost *b, int which) {
  leaf *l = &b->leaves[which], *r = &b->leaves[b->leaf_count++];
  const size_t cells = (size_t)b->forest->features * DFGNN_FOREST_BINS;
  const split s = l->best;
  const size_t middle = part_rows(b, l);
  growing *parent = &b->node[l->node];
  parent->feature = s.feature;
  parent->bin = s.bin;
  parent->left = b->node_count++;
  parent->right = b->node_count++;
  b->forest->feature[s.feature].gain += (uint64_t)(s.gain / (1 << 30));
  r->total = less(l->total, s.left);
  r->begin = middle;
  r->end = l->end;
  r->node = parent->right;
  l->total = s.left;
  l->end = middle;
  l->node = parent->left;
  leaf *small = r->total.rows < l->total.rows ? r : l;
  leaf *large = small == r ? l : r;
  if (large == r) { /* the parent's histogram becomes the larger child's */
    cell *swap = r->histogram;
    r->histogram = l->histogram;
    l->histogram = swap;
  }
  count_rows(b, small);
  for (size_t k = 0; k < cells; k++)
    if (b->seen[k / DFGNN_FOREST_BINS])
      large->histogram[k] = less(large->histogram[k], small->histogram[k]);
  find_split(b, l);
  find_split(b, r);
}

/* ---- trees --------------------------------------------------------------- */

/* A row's gradient is its residual less the mean residual of its group. */
static void find_gradients(boost *b) {
  const dfgnn_boost_data *d = b->data;
  memset(b->centre, 0, d->groups * sizeof *b->centre);
  for (size_t i = 0; i < d->rows; i++)
    if (b->in_use[i])
      b->centre[d->group[i]] +=
          (int64_t)d->weight[i] * (d->target[i] - b->score[i]);
  for (size_t i = 0; i < d->rows; i++)
    if (b->in_use[i]) {
      const uint32_t g = d->group[i];
      b->gradient[i] = d->weight[i] * (d->target[i] - b->score[i] -
                                       b->centre[g] / b->weight[g]);
    }
}

static void start_tree(boost *b, int member, int tree) {
  const dfgnn_boost_options *o = b->options;
  const uint64_t turn = (uint64_t)member << 32 | (uint64_t)tree;
  leaf *l = &b->leaves[0];
  b->leaf_count = b->node_count = 1;
  *l = (leaf){.histogram = l->histogram};
  for (int f = 0; f < b->forest->features; f++)
    b->seen[f] = b->forest->feature[f].thresholds + 1 > 0 &&
                 draw(o->seed, turn, 1, (uint64_t)f) < o->features;
  for (size_t i = 0; i < b->data->rows; i++)
    if (b->in_use[i] && draw(o->seed, turn, 2, i) < o->rows) {
      b->row[l->end++] = (uint32_t)i;
      l->total.gradient += b->gradient[i];
      l->total.weight += b->data->weight[i];
      l->total.rows++;
    }
  count_rows(b, l);
  find_split(b, l);
}

static void grow(boost *b) {
  while (b->leaf_count < b->options->leaves) {
    int best = 0;
    for (int k = 1; k < b->leaf_count; k++)
      if (b->leaves[k].best.gain > b->leaves[best].best.gain)
        best = k;
    if (!(b->leaves[best].best.gain > 0))
      break;
    split_leaf(b, best);
  }
  for (int k = 0; k < b->leaf_count; k++) {
    const leaf *l = &b->leaves[k];
    const double value = (double)l->total.gradient * b->options->rate /
                         ((double)l->total.weight + SMOOTHING) / 1024;
    const double most = INT16_MAX;
    b->node[l->node].feature = DFGNN_FOREST_LEAF;
    b->node[l->node].value = (int)lrint(value > most    ? most
                                        : value < -most ? -most
                                                        : value);
  }
}

/* Appends the subtree in preorder; returns how many nodes it has. */
static int append(dfgnn_forest *forest, size_t first, const growing *node,
                  int which) {
  const growing *g = &node[which];
  const size_t at = forest->nodes++;
  forest->node[at] = (dfgnn_forest_node){.feature = (uint8_t)g->feature};
  if (g->feature == DFGNN_FOREST_LEAF) {
    forest->node[at].value = (int16_t)g->value;
    return 1;
  }
  forest->node[at].bin = (uint8_t)g->bin;
  const int left = append(forest, first, node, g->left);
  forest->node[at].right = (uint8_t)(at - first + 1 + (size_t)left);
  return 1 + left + append(forest, first, node, g->right);
}

static void add_tree(boost *b, size_t tree) {
  dfgnn_forest *forest = b->forest;
  const size_t first = forest->nodes, rows = b->data->rows;
  forest->root[tree] = (uint32_t)first;
  append(forest, first, b->node, 0);
  const dfgnn_forest_node *root = forest->node + first;
  for (size_t i = 0; i < rows; i++) {
    const dfgnn_forest_node *node = root;
    if (!b->in_use[i])
      continue;
    while (node->feature != DFGNN_FOREST_LEAF)
      node = b->bins[node->feature * rows + i] <= node->bin
                 ? node + 1
                 : root + node->right;
    b->score[i] += node->value;
  }
}

static void grow_member(boost *b, int member, const uint8_t *left_out) {
  const dfgnn_boost_data *d = b->data;
  const dfgnn_boost_options *o = b->options;
  memset(b->score, 0, d->rows * sizeof *b->score);
  memset(b->weight, 0, d->groups * sizeof *b->weight);
  for (size_t i = 0; i < d->rows; i++) {
    const uint32_t g = d->group[i];
    b->in_use[i] = d->weight[i] > 0 && !(left_out && left_out[g]) &&
                   draw(o->seed, (uint64_t)member, 3, g) < o->groups;
    if (b->in_use[i])
      b->weight[g] += d->weight[i];
  }
  for (int t = 0; t < o->trees; t++) {
    find_gradients(b);
    start_tree(b, member, t);
    grow(b);
    add_tree(b, (size_t)member * (size_t)o->trees + (size_t)t);
  }
  b->forest->trees[member] = o->trees;
}

static int reserve(boost *b) {
  const size_t rows = b->data->rows + 1, groups = b->data->groups + 1;
  const size_t features = (size_t)b->forest->features + 1;
  const size_t trees =
      (size_t)b->options->members * (size_t)b->options->trees + 1;
  b->in_use = malloc(rows);
  b->score = malloc(rows * sizeof *b->score);
  b->gradient = malloc(rows * sizeof *b->gradient);
  b->centre = malloc(groups * sizeof *b->centre);
  b->weight = malloc(groups * sizeof *b->weight);
  b->row = malloc(rows * sizeof *b->row);
  b->spare = malloc(rows * sizeof *b->spare);
  b->seen = malloc(features);
  b->forest->node =
      malloc(trees * DFGNN_FOREST_NODES * sizeof *b->forest->node);
  b->forest->root = malloc(trees * sizeof *b->forest->root);
  int done = b->in_use && b->score && b->gradient && b->centre && b->weight &&
             b->row && b->spare && b->seen && b->forest->node &&
             b->forest->root;
  for (int k = 0; k < DFGNN_FOREST_LEAVES; k++) {
    b->leaves[k].histogram = calloc(features * DFGNN_FOREST_BINS, sizeof(cell));
    done = done && b->leaves[k].histogram;
  }
  return done;
}

static void release(boost *b) {
  for (int k = 0; k < DFGNN_FOREST_LEAVES; k++)
    free(b->leaves[k].histogram);
  free(b->seen);
  free(b->spare);
  free(b->row);
  free(b->weight);
  free(b->centre);
  free(b->gradient);
  free(b->score);
  free(b->in_use);
  free(b);
}

dfgnn_status dfgnn__boost(dfgnn_forest *forest, const dfgnn_boost_data *data,
                          const uint8_t *bins, const uint8_t *left_out,
                          const dfgnn_boost_options *options) {
  const dfgnn_boost_options *o = options;
  if (o->members < 1 || o->members > DFGNN_FOREST_MEMBERS || o->trees < 1 ||
      o->trees > DFGNN_FOREST_TREES || o->leaves < 2 ||
      o->leaves > DFGNN_FOREST_LEAVES)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "a forest of %d members of %d trees of %d leaves, "
                       "expected at most %d, %d and %d",
                       o->members, o->trees, o->leaves, DFGNN_FOREST_MEMBERS,
                       DFGNN_FOREST_TREES, DFGNN_FOREST_LEAVES);
  boost *b = calloc(1, sizeof *b);
  dfgnn_status status = DFGNN_OK;
  if (!b)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  b->forest = forest;
  b->data = data;
  b->bins = bins;
  b->options = options;
  forest->nodes = 0;
  forest->members = o->members;
  for (int f = 0; f < forest->features; f++)
    forest->feature[f].gain = 0;
  if (reserve(b))
    for (int m = 0; m < o->members; m++)
      grow_member(b, m, left_out);
  else
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  release(b);
  return status;
}
