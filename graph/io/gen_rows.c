/* gen_rows.c - graphs whose rows have given degrees and random columns */
#include "graph/io/generators.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 1024 /* least half width of the local columns */
#define FAR 0.1     /* share of a local row's columns that lie anywhere */

typedef struct row_maker {
  int64_t sources;
  int local;  /* columns near the row */
  int redraw; /* duplicates are drawn again, else dropped */
  uint64_t seed;
} row_maker;

static int64_t local_column(const row_maker *maker, int64_t row, int64_t window,
                            dfgnn__random *random) {
  int64_t n = maker->sources;
  double u = dfgnn__random_unit(random);
  if (dfgnn__random_unit(random) < FAR)
    return dfgnn__random_below(random, n);
  int64_t c = row + (int64_t)floor((2 * u - 1) * (double)window + 0.5);
  c = c < 0 ? -c : c;
  c = c >= n ? 2 * n - 2 - c : c;
  return c < 0 ? 0 : c >= n ? n - 1 : c;
}

/* Takes each column with the probability (still wanted) / (still left), which
 * gives exactly count of them. */
static void select_columns(int32_t *columns, int64_t count, int64_t sources,
                           dfgnn__random *random) {
  int64_t kept = 0;
  for (int64_t j = 0; kept < count; j++)
    if (dfgnn__random_below(random, sources - j) < count - kept)
      columns[kept++] = (int32_t)j;
}

/* Draws the columns of a row, sorted and distinct; returns how many. */
static int64_t make_row(const row_maker *maker, int32_t *columns,
                        int32_t *scratch, int64_t row, int64_t degree) {
  dfgnn__random random = dfgnn__random_stream(maker->seed, (uint64_t)row + 1);
  int64_t window = degree < WINDOW ? WINDOW : degree;
  int64_t count = 0;
  if (maker->redraw && degree > maker->sources / 4) {
    select_columns(columns, degree, maker->sources, &random);
    return degree;
  }
  do {
    for (int64_t k = count; k < degree; k++)
      columns[k] =
          (int32_t)(maker->local
                        ? local_column(maker, row, window, &random)
                        : dfgnn__random_below(&random, maker->sources));
    dfgnn__sort(columns, scratch, degree);
    count = 0;
    for (int64_t k = 0; k < degree; k++)
      if (!count || columns[k] != columns[count - 1])
        columns[count++] = columns[k];
  } while (maker->redraw && count < degree);
  return count;
}

/* Closes the gaps that rows shorter than their room leave. */
static void close_gaps(dfgnn__parts *parts, const int64_t *degree) {
  int64_t to = 0, from = 0;
  for (int64_t i = 0; i < parts->destinations; i++) {
    int64_t room = parts->offsets[i + 1] - from;
    if (to != from)
      memmove(parts->indices + to, parts->indices + from,
              (size_t)degree[i] * sizeof *parts->indices);
    to += degree[i];
    from += room;
    parts->offsets[i + 1] = to;
  }
  parts->edges = to;
}

/* Draws the rows, and frees degree, also on failure. */
static dfgnn_status make_rows(dfgnn__parts *parts, const row_maker *maker,
                              int64_t *degree, int64_t rows) {
  dfgnn_status status = DFGNN_OK;
  int64_t total = 0, longest = 0;
  int failed = 0;
  for (int64_t i = 0; i < rows; i++) {
    total += degree[i];
    longest = degree[i] > longest ? degree[i] : longest;
  }
  *parts = (dfgnn__parts){.destinations = rows, .sources = maker->sources};
  parts->offsets = malloc((size_t)(rows + 1) * sizeof *parts->offsets);
  parts->indices = malloc((size_t)(total + 1) * sizeof *parts->indices);
  if (!parts->offsets || !parts->indices)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld edges",
                         (long long)total));
  parts->offsets[0] = 0;
  for (int64_t i = 0; i < rows; i++)
    parts->offsets[i + 1] = parts->offsets[i] + degree[i];
#pragma omp parallel reduction(| : failed)
  {
    int32_t *scratch = malloc((size_t)(longest + 1) * sizeof *scratch);
    failed = !scratch;
#pragma omp for schedule(dynamic, 256)
    for (int64_t i = 0; i < rows; i++)
      if (!failed)
        degree[i] = make_row(maker, parts->indices + parts->offsets[i], scratch,
                             i, degree[i]);
    free(scratch);
  }
  if (failed)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot sort %lld columns",
                         (long long)longest);
  else
    close_gaps(parts, degree);
out:
  if (status)
    dfgnn__parts_free(parts);
  free(degree);
  return status;
}

/* The sum of i^-a for i = 1 .. n, by Euler and Maclaurin beyond the first
 * terms.
 */
static double power_sum(double a, int64_t n) {
  int64_t exact = n < 512 ? n : 512;
  double sum = 0, x = (double)exact, y = (double)n;
  for (int64_t i = 1; i <= exact; i++)
    sum += pow((double)i, -a);
  if (n > exact) {
    double integral = fabs(a - 1) < 1e-9
                          ? log(y / x)
                          : (pow(y, 1 - a) - pow(x, 1 - a)) / (1 - a);
    sum += integral + (pow(y, -a) - pow(x, -a)) / 2;
  }
  return sum;
}

/* The degree of node i is most i^-a, rounded at random, with a such that the
 * sum is edges; then the nodes are shuffled. */
static void power_degrees(int64_t *degree, int64_t nodes, double edges,
                          double most, uint64_t seed) {
  dfgnn__random random = dfgnn__random_stream(seed, 0);
  double low = 0, high = 16;
  for (int k = 0; k < 60; k++) {
    double a = (low + high) / 2;
    if (most * power_sum(a, nodes) > edges)
      low = a;
    else
      high = a;
  }
  for (int64_t i = 0; i < nodes; i++) {
    /* Steps of 2^-20 make the last bits of pow irrelevant. */
    double w = floor(most * pow((double)(i + 1), -low) * 0x1p20) * 0x1p-20;
    double d = floor(w + dfgnn__random_unit(&random));
    degree[i] = (int64_t)(d > most ? most : d);
  }
  for (int64_t i = nodes - 1; i > 0; i--) {
    int64_t j = dfgnn__random_below(&random, i + 1);
    int64_t swap = degree[i];
    degree[i] = degree[j];
    degree[j] = swap;
  }
}

dfgnn_status dfgnn__generate_powerlaw(dfgnn__parts *parts,
                                      const double *value) {
  enum { NODES, EDGES, MAX_DEGREE, COLUMNS, DUPLICATES, SEED };
  int64_t nodes = (int64_t)value[NODES];
  double edges = value[EDGES], most = value[MAX_DEGREE];
  row_maker maker = {.sources = nodes,
                     .local = value[COLUMNS] == 1,
                     .redraw = value[DUPLICATES] == 0,
                     .seed = (uint64_t)value[SEED]};
  if (most > value[NODES])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found max-degree=%.0f, expected at most nodes=%.0f",
                       most, value[NODES]);
  if (edges < most || edges > most * value[NODES])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found edges=%.0f, expected max-degree=%.0f to "
                       "max-degree x nodes=%.0f",
                       edges, most, most * value[NODES]);
  int64_t *degree = malloc((size_t)nodes * sizeof *degree);
  if (!degree)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld nodes",
                       (long long)nodes);
  power_degrees(degree, nodes, edges, most, maker.seed);
  return make_rows(parts, &maker, degree, nodes);
}

dfgnn_status dfgnn__generate_uniform(dfgnn__parts *parts, const double *value) {
  enum { NODES, SOURCES, EDGES, SEED };
  int64_t nodes = (int64_t)value[NODES];
  int64_t sources = (int64_t)(value[SOURCES] ? value[SOURCES] : value[NODES]);
  row_maker maker = {
      .sources = sources, .redraw = 1, .seed = (uint64_t)value[SEED]};
  if (value[EDGES] > (double)nodes * (double)sources)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found edges=%.0f, expected at most nodes x "
                       "sources=%.0f",
                       value[EDGES], (double)nodes * (double)sources);
  int64_t *degree = calloc((size_t)nodes, sizeof *degree);
  if (!degree)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld nodes",
                       (long long)nodes);
  dfgnn__random random = dfgnn__random_stream(maker.seed, 0);
  for (int64_t e = 0; e < (int64_t)value[EDGES];) {
    int64_t i = dfgnn__random_below(&random, nodes);
    if (degree[i] < sources) { /* a full row is drawn again */
      degree[i]++;
      e++;
    }
  }
  return make_rows(parts, &maker, degree, nodes);
}
