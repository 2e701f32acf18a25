/* portfolio_rank.c - times of members on a graph, from those on other graphs
 *
 * Extremely randomised trees (Geurts, Ernst and Wehenkel, 2006): a tree parts
 * the graphs that were measured by one quantity after the other, each time by
 * the best of one random threshold a quantity, until the members' times are
 * alike or a graph stands alone.  Graphs that share the leaf of a new one say
 * what its times are, each as often as it does, squared: those that seldom do
 * say little (select/make_portfolio.py's cells, each family of graphs left out:
 * 1.085 times the best for 1.092).  The trees of
 * a cell grow when it is first asked, from its times alone, in some 10 ms, and
 * are the same in every process. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "select/portfolio_table.h"

enum {
  TREES = 150,
  FEWEST = 8,    /* graphs, of which trees grow */
  SLOWEST = 208, /* times beyond eight times the best are alike */
  LEAF = 255
};

typedef struct node {
  unsigned char quantity; /* LEAF: the node has graphs, not children */
  int16_t right;          /* its second child; the first is the next node */
  int16_t begin, end;     /* of a leaf: its graphs, in `order` */
  double threshold;       /* the first child's values are at most this */
} node;

typedef struct tree {
  node *node;     /* [2 graphs - 1] */
  int16_t *order; /* [graphs] */
} tree;

typedef struct dfgnn_grove {
  int graphs, members, quantities;
  const dfgnn_quantity *quantity;
  double *value; /* [quantities][graphs] */
  int32_t *time; /* [graphs][members]; the mean of those that are known in
                  * place of one that is not */
  unsigned char *known; /* [graphs][members] */
  tree tree[TREES];
} dfgnn_grove;

/* A logarithm to base 2 that is linear between powers of two: comparisons and
 * differences are all that trees need. */
static double rough_log(double x) {
  int exponent;
  if (!(x > 1e-6))
    x = 1e-6;
  const double mantissa = frexp(x, &exponent);
  return exponent + 2 * mantissa;
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double random_below_1(uint64_t *state) {
  return (double)(next_random(state) >> 11) * 0x1p-53;
}

typedef struct growth {
  dfgnn_grove *grove;
  tree *tree;
  int nodes;
  uint64_t random;
} growth;

/* The sum over members of the squares of both sides' total times, over their
 * graphs: the more, the less times vary within the sides.  -1: a side is
 * empty. */
static double worth(const growth *g, const double *value, double threshold,
                    int begin, int end, const int64_t *total) {
  const int members = g->grove->members;
  int64_t left[DFGNN_CELL_MEMBERS] = {0};
  int count = 0;
  for (int i = begin; i < end; i++) {
    const int16_t graph = g->tree->order[i];
    if (value[graph] > threshold)
      continue;
    const int32_t *time = g->grove->time + graph * members;
    count++;
    for (int m = 0; m < members; m++)
      left[m] += time[m];
  }
  if (count == 0 || count == end - begin)
    return -1;
  double sum_left = 0, sum_right = 0;
  for (int m = 0; m < members; m++) {
    const double right = (double)(total[m] - left[m]);
    sum_left += (double)left[m] * (double)left[m];
    sum_right += right * right;
  }
  return sum_left / count + sum_right / (end - begin - count);
}

/* Do all members take as long on all these graphs? */
static int are_alike(const growth *g, int begin, int end) {
  const int members = g->grove->members;
  const int32_t *first = g->grove->time + g->tree->order[begin] * members;
  for (int i = begin + 1; i < end; i++)
    if (memcmp(first, g->grove->time + g->tree->order[i] * members,
               (size_t)members * sizeof *first))
      return 0;
  return 1;
}

/* Finds the node's quantity and threshold; 0: none parts its graphs. */
static int find_split(growth *g, node *n, int begin, int end) {
  const dfgnn_grove *grove = g->grove;
  int64_t total[DFGNN_CELL_MEMBERS] = {0};
  double best = -1;
  for (int i = begin; i < end; i++)
    for (int m = 0; m < grove->members; m++)
      total[m] += grove->time[g->tree->order[i] * grove->members + m];
  for (int q = 0; q < grove->quantities; q++) {
    const double *value = grove->value + q * grove->graphs;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (int i = begin; i < end; i++) {
      const double x = value[g->tree->order[i]];
      least = x < least ? x : least;
      most = x > most ? x : most;
    }
    const double threshold =
        least + (most - least) * random_below_1(&g->random);
    const double w = worth(g, value, threshold, begin, end, total);
    if (w > best) {
      best = w;
      n->quantity = (unsigned char)q;
      n->threshold = threshold;
    }
  }
  return best >= 0;
}

static int part(growth *g, const node *n, int begin, int end) {
  const double *value = g->grove->value + n->quantity * g->grove->graphs;
  int middle = begin;
  for (int i = begin; i < end; i++) {
    const int16_t graph = g->tree->order[i];
    if (value[graph] <= n->threshold) {
      g->tree->order[i] = g->tree->order[middle];
      g->tree->order[middle++] = graph;
    }
  }
  return middle;
}

static void grow_node(growth *g, int begin, int end) {
  node *n = &g->tree->node[g->nodes++];
  *n = (node){.quantity = LEAF, .begin = (int16_t)begin, .end = (int16_t)end};
  if (end - begin < 2 || are_alike(g, begin, end) ||
      !find_split(g, n, begin, end))
    return;
  const int middle = part(g, n, begin, end);
  grow_node(g, begin, middle);
  n->right = (int16_t)g->nodes;
  grow_node(g, middle, end);
}

void dfgnn__grove_free(dfgnn_grove *grove) {
  if (!grove)
    return;
  for (int t = 0; t < TREES; t++) {
    free(grove->tree[t].node);
    free(grove->tree[t].order);
  }
  free(grove->value);
  free(grove->time);
  free(grove->known);
  free(grove);
}

static void set_values(dfgnn_grove *grove, int row, const dfgnn_cell *cell,
                       const dfgnn_signature *signature) {
  const dfgnn_setting known = {.problem = &cell->problem,
                               .signature = signature,
                               .device = &cell->device->info};
  for (int q = 0; q < grove->quantities; q++)
    grove->value[q * grove->graphs + row] =
        rough_log(dfgnn__quantity(&grove->quantity[q], &known));
}

/* A member that does not run on a graph has no part in where trees part. */
static void set_times(dfgnn_grove *grove, const dfgnn_cell *cell,
                      int leave_out) {
  for (int m = 0; m < grove->members; m++) {
    int32_t *time = grove->time + m;
    unsigned char *known = grove->known + m;
    int sum = 0, count = 0;
    for (int i = 0, row = 0; i < cell->graphs; i++) {
      if (cell->graph[i] == leave_out)
        continue;
      const int t = cell->member[m].time[i], at = row++ * grove->members;
      known[at] = t != DFGNN_TIME_NONE;
      time[at] = t < SLOWEST ? t : SLOWEST;
      sum += known[at] ? time[at] : 0;
      count += known[at];
    }
    for (int row = 0; row < grove->graphs; row++)
      if (!known[row * grove->members])
        time[row * grove->members] = count ? sum / count : 0;
  }
}

/* NULL without memory, or with too few graphs. */
static dfgnn_grove *grow(const dfgnn_cell *cell, const dfgnn_portfolios *all,
                         int leave_out) {
  const int members = cell->members;
  dfgnn_grove *grove = calloc(1, sizeof *grove);
  if (!grove)
    return NULL;
  for (int i = 0; i < cell->graphs; i++)
    grove->graphs += cell->graph[i] != leave_out;
  grove->members = members;
  grove->quantities = cell->device->quantities;
  grove->quantity = cell->device->quantity;
  const size_t graphs = (size_t)grove->graphs;
  if (grove->graphs < FEWEST)
    goto fail;
  grove->value =
      calloc((size_t)grove->quantities * graphs + 1, sizeof *grove->value);
  grove->time = calloc(graphs * (size_t)members, sizeof *grove->time);
  grove->known = calloc(graphs, (size_t)members);
  if (!grove->value || !grove->time || !grove->known)
    goto fail;
  set_times(grove, cell, leave_out);
  for (int i = 0, row = 0; i < cell->graphs; i++) {
    if (cell->graph[i] == leave_out)
      continue;
    set_values(grove, row++, cell, &all->graph[cell->graph[i]].signature);
  }
  for (int t = 0; t < TREES; t++) {
    growth g = {.grove = grove, .tree = &grove->tree[t], .random = (uint64_t)t};
    g.tree->node = calloc(2 * graphs, sizeof *g.tree->node);
    g.tree->order = calloc(graphs, sizeof *g.tree->order);
    if (!g.tree->node || !g.tree->order)
      goto fail;
    for (int i = 0; i < grove->graphs; i++)
      g.tree->order[i] = (int16_t)i;
    grow_node(&g, 0, grove->graphs);
  }
  return grove;
fail:
  dfgnn__grove_free(grove);
  return NULL;
}

/* A member that ran on none of the graphs is as slow as any.  0: no memory. */
static int ask(double *log_ratio, const dfgnn_grove *grove,
               const dfgnn_setting *setting) {
  double value[DFGNN_QUANTITIES];
  double sum[DFGNN_CELL_MEMBERS] = {0}, weight[DFGNN_CELL_MEMBERS] = {0};
  double *alike = calloc((size_t)grove->graphs, sizeof *alike);
  if (!alike)
    return 0;
  for (int q = 0; q < grove->quantities; q++)
    value[q] = rough_log(dfgnn__quantity(&grove->quantity[q], setting));
  for (int t = 0; t < TREES; t++) {
    const node *first = grove->tree[t].node, *n = first;
    while (n->quantity != LEAF)
      n = value[n->quantity] <= n->threshold ? n + 1 : first + n->right;
    for (int i = n->begin; i < n->end; i++)
      alike[grove->tree[t].order[i]] += 1.0 / (n->end - n->begin);
  }
  for (int g = 0; g < grove->graphs; g++)
    for (int m = 0; m < grove->members; m++) {
      const int at = g * grove->members + m;
      const double share = grove->known[at] ? alike[g] * alike[g] : 0;
      sum[m] += share * grove->time[at];
      weight[m] += share;
    }
  free(alike);
  for (int m = 0; m < grove->members; m++)
    log_ratio[m] = (weight[m] > 0 ? sum[m] / weight[m] : SLOWEST) / 100;
  return 1;
}

int dfgnn__cell_predict(double *log_ratio, dfgnn_cell *cell,
                        const dfgnn_portfolios *all,
                        const dfgnn_setting *setting, int leave_out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  dfgnn_grove *grove;
  if (leave_out >= 0) {
    grove = grow(cell, all, leave_out);
  } else {
    pthread_mutex_lock(&lock);
    if (!cell->grove)
      cell->grove = grow(cell, all, -1);
    grove = cell->grove;
    pthread_mutex_unlock(&lock);
  }
  const int answers = grove && ask(log_ratio, grove, setting);
  if (leave_out >= 0)
    dfgnn__grove_free(grove);
  return answers;
}
