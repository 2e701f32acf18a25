/* sample.c - the nodes of a large graph whose results are checked
 *
 * The float64 reference of all edges may take longer than the measurement.
 * Then a sample stands for the graph, the same in every process: the node of
 * most edges, the first and the last without edges, the others of most edges
 * that a quarter of the sample has room for, runs of neighbours at both ends,
 * and runs that are spread evenly between.  A run has all places that a node
 * may have in a block of a kernel's. */
#include "tuner/sample.h"

#include <stdlib.h>
#include <string.h>

#include "lib/signature.h"

enum {
  RUN = 64,        /* nodes of a run, unless they have too many edges */
  LEAST_RUNS = 16, /* between the ends */
  LONG_SHARE = 4,  /* of the sample, for nodes of many edges */
  END_SHARE = 16   /* of the sample, for a run at an end */
};

typedef struct sampler {
  const dfgnn_matrix *matrix;
  unsigned char *taken; /* by node */
  int64_t count;
  double left; /* edges and nodes that it may still take */
} sampler;

static double cost(int64_t edges) { return 1 + (double)edges; }

static void take(sampler *s, int64_t node) {
  if (s->taken[node])
    return;
  s->taken[node] = 1;
  s->count++;
  s->left -= cost(dfgnn__edge_count(s->matrix, node));
}

/* Takes neighbours from a node on, of so much cost, but one at least. */
static void take_run(sampler *s, int64_t first, double most) {
  int64_t n = s->matrix->destinations;
  for (int64_t k = first; k < n && k < first + RUN && most > 0; k++) {
    most -= cost(dfgnn__edge_count(s->matrix, k));
    take(s, k);
  }
}

/* Takes the extremes, and returns the largest degree. */
static int64_t take_extremes(sampler *s) {
  int64_t n = s->matrix->destinations, heaviest = 0, empty[2] = {-1, -1};
  for (int64_t i = 0; i < n; i++) {
    if (dfgnn__edge_count(s->matrix, i) >
        dfgnn__edge_count(s->matrix, heaviest))
      heaviest = i;
    if (dfgnn__edge_count(s->matrix, i) == 0)
      empty[empty[0] >= 0] = i;
  }
  take(s, heaviest);
  for (int k = 0; k < 2; k++)
    if (empty[k] >= 0)
      take(s, empty[k]);
  take(s, 0);
  take(s, n - 1);
  return dfgnn__edge_count(s->matrix, heaviest);
}

/* Takes all nodes of a degree and above, the least for which they cost no more
 * than `most`. */
static int take_long(sampler *s, int64_t largest, double most) {
  int64_t n = s->matrix->destinations, least = largest + 1;
  int64_t *count = calloc((size_t)largest + 1, sizeof *count);
  if (!count)
    return 0;
  for (int64_t i = 0; i < n; i++)
    count[dfgnn__edge_count(s->matrix, i)]++;
  while (least > 1 && (most -= (double)count[least - 1] * cost(least - 1)) >= 0)
    least--;
  for (int64_t i = 0; i < n; i++)
    if (dfgnn__edge_count(s->matrix, i) >= least)
      take(s, i);
  free(count);
  return 1;
}

static void take_spread(sampler *s) {
  const int64_t n = s->matrix->destinations;
  const double mean = cost(s->matrix->edges / n);
  double runs = s->left / (RUN * mean);
  runs = runs < LEAST_RUNS ? LEAST_RUNS : runs;
  const double all = s->left, step = (double)n / runs;
  for (int64_t k = 0; k < (int64_t)runs && s->left > 0; k++) {
    const double place =
        (double)(dfgnn__mix((uint64_t)k) >> 11) / 9007199254740992.0;
    take_run(s, (int64_t)(((double)k + place) * step), all / runs);
  }
}

int dfgnn__sample_nodes(dfgnn_checked *nodes, const dfgnn_matrix *matrix,
                        double most) {
  const int64_t n = matrix->destinations;
  sampler s = {.matrix = matrix, .left = most};
  *nodes = (dfgnn_checked){NULL, n};
  if (!n || cost(matrix->edges) + (double)n <= most)
    return 1;
  s.taken = calloc((size_t)n, 1);
  if (!s.taken)
    return 0;
  const int64_t largest = take_extremes(&s);
  int ready = take_long(&s, largest, most / LONG_SHARE);
  take_run(&s, 0, most / END_SHARE);
  take_run(&s, n > RUN ? n - RUN : 0, most / END_SHARE);
  take_spread(&s);
  nodes->index = malloc((size_t)s.count * sizeof *nodes->index);
  ready = ready && nodes->index;
  nodes->count = 0;
  for (int64_t i = 0; i < n && ready; i++)
    if (s.taken[i])
      nodes->index[nodes->count++] = i;
  free(s.taken);
  return ready;
}
