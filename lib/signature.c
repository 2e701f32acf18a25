#include "lib/signature.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/host_view.h"
#include "lib/base/error.h"

enum { SMALL_DEGREES = 4096, PARALLEL_EDGES = 1 << 20 };

dfgnn_status dfgnn__check_offsets(const dfgnn_matrix *m) {
  int64_t first = dfgnn__offset_at(m, 0),
          last = dfgnn__offset_at(m, m->destinations);
  if (first != 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "offsets[0] is %lld, expected 0: row 0 is wrong",
                       (long long)first);
  for (int64_t i = 0; i < m->destinations; i++)
    if (dfgnn__offset_at(m, i + 1) < dfgnn__offset_at(m, i))
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "offsets fall at row %lld: %lld after %lld",
                         (long long)i, (long long)dfgnn__offset_at(m, i + 1),
                         (long long)dfgnn__offset_at(m, i));
  if (last != m->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "offsets end at %lld, expected edges = %lld: row %lld "
                       "is wrong",
                       (long long)last, (long long)m->edges,
                       (long long)m->destinations - 1);
  return DFGNN_OK;
}

/* Row of an edge, by bisection. */
static int64_t row_of(const dfgnn_matrix *m, int64_t edge) {
  int64_t low = 0, high = m->destinations;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (dfgnn__offset_at(m, middle) <= edge)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* One pass over the indices: the first out of range, their hash, and the degree
 * of each source. */
static dfgnn_status check_indices(const dfgnn_matrix *m, uint64_t *hash,
                                  uint32_t *degree, int threads) {
  const int32_t *indices = m->indices;
  uint32_t sources = (uint32_t)m->sources;
  uint64_t sum = 0;
  int64_t bad = INT64_MAX;
#pragma omp parallel for num_threads(threads) reduction(+ : sum)              \
    reduction(min : bad) if (m->edges > PARALLEL_EDGES)
  for (int64_t block = 0; block < (m->edges + 4095) / 4096; block++) {
    int64_t begin = block * 4096, end = begin + 4096;
    uint32_t largest = 0;
    end = end < m->edges ? end : m->edges;
    for (int64_t e = begin; e < end; e++) {
      uint32_t j = (uint32_t)indices[e];
      largest = j > largest ? j : largest;
      sum += dfgnn__index_term((uint64_t)e, j);
    }
    if (largest >= sources) {
      for (int64_t e = begin; e < end && bad > e; e++)
        if ((uint32_t)indices[e] >= sources)
          bad = e;
    } else if (m->edges > PARALLEL_EDGES) {
      for (int64_t e = begin; e < end; e++) {
#pragma omp atomic
        degree[indices[e]]++;
      }
    } else {
      for (int64_t e = begin; e < end; e++)
        degree[indices[e]]++;
    }
  }
  *hash = sum;
  if (bad == INT64_MAX)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "indices[%lld] = %d in row %lld is out of range, expected "
                     "0..%lld",
                     (long long)bad, indices[bad], (long long)row_of(m, bad),
                     (long long)m->sources - 1);
}

static int histogram_bin(int64_t degree) {
  int bin = degree ? 64 - __builtin_clzll((unsigned long long)degree) : 0;
  return bin < DFGNN_HISTOGRAM_BINS ? bin : DFGNN_HISTOGRAM_BINS - 1;
}

static int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Degrees below SMALL_DEGREES are counted, the few above are sorted. */
static dfgnn_status degree_statistics(const dfgnn_matrix *m, dfgnn_signature *s,
                                      uint64_t *hash) {
  int64_t n = m->destinations, large_count = 0, large_capacity = 0;
  int64_t *counts = calloc(SMALL_DEGREES, sizeof *counts), *large = NULL;
  dfgnn_status status = DFGNN_OK;
  double squares = 0;
  uint64_t sum = dfgnn__offset_term(0, 0);
  if (!counts)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  const dfgnn_matrix local = *m; /* its width is loop-invariant */
  int64_t begin = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t end = dfgnn__offset_at(&local, i + 1), degree = end - begin;
    begin = end;
    sum += dfgnn__offset_term((uint64_t)i + 1, (uint64_t)end);
    squares += (double)degree * (double)degree;
    s->max_degree = degree > s->max_degree ? degree : s->max_degree;
    if (degree < SMALL_DEGREES) {
      counts[degree]++;
      continue;
    }
    if (large_count == large_capacity) {
      large_capacity = large_capacity ? 2 * large_capacity : 256;
      int64_t *grown = realloc(large, (size_t)large_capacity * sizeof *large);
      if (!grown)
        DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory"));
      large = grown;
    }
    large[large_count++] = degree;
  }
  if (large_count)
    qsort(large, (size_t)large_count, sizeof *large, compare_int64);
  const double percent[] = {0.5, 0.9, 0.99};
  int64_t *const result[] = {&s->p50_degree, &s->p90_degree, &s->p99_degree};
  int64_t rank[3], below = 0;
  for (int p = 0; p < 3; p++)
    rank[p] = n ? (int64_t)floor(percent[p] * (double)(n - 1)) : 0;
  for (int64_t degree = 0, p = 0; degree < SMALL_DEGREES; degree++) {
    below += counts[degree];
    while (p < 3 && n && rank[p] < below)
      *result[p++] = degree;
    s->histogram[histogram_bin(degree)] += (double)counts[degree];
  }
  for (int p = 0; p < 3; p++)
    if (n && rank[p] >= below)
      *result[p] = large[rank[p] - below];
  for (int64_t k = 0; k < large_count; k++)
    s->histogram[histogram_bin(large[k])] += 1;
  for (int b = 0; b < DFGNN_HISTOGRAM_BINS && n; b++)
    s->histogram[b] /= (double)n;
  s->isolated = s->histogram[0];
  s->mean_degree = n ? (double)m->edges / (double)n : 0;
  if (m->edges) {
    double variance = squares / (double)n - s->mean_degree * s->mean_degree;
    s->degree_cv = sqrt(variance > 0 ? variance : 0) / s->mean_degree;
  }
  *hash = sum;
out:
  free(large);
  free(counts);
  return status;
}

/* Distinct values among at most DFGNN_REUSE_EDGES. */
static int64_t count_distinct(const int32_t *values, int64_t count,
                              int32_t *slots) {
  int64_t distinct = 0, size = 64;
  while (size < 4 * count)
    size *= 2;
  memset(slots, 0xff, (size_t)size * sizeof *slots);
  for (int64_t k = 0; k < count; k++) {
    uint32_t h = ((uint32_t)values[k] * 2654435769u) >> 7;
    int64_t s = h & (size - 1);
    while (slots[s] >= 0 && slots[s] != values[k])
      s = (s + 1) & (size - 1);
    distinct += slots[s] < 0;
    slots[s] = values[k];
  }
  return distinct;
}

static double sample_reuse(const dfgnn_matrix *m) {
  int32_t slots[4 * DFGNN_REUSE_EDGES];
  int64_t windows = (m->destinations + 15) / 16;
  int64_t samples =
      windows < DFGNN_REUSE_WINDOWS ? windows : DFGNN_REUSE_WINDOWS;
  int64_t distinct = 0, edges = 0;
  for (int64_t k = 0; k < samples; k++) {
    int64_t first = k * windows / samples * 16;
    int64_t last = first + 16 < m->destinations ? first + 16 : m->destinations;
    int64_t begin = dfgnn__offset_at(m, first);
    int64_t count = dfgnn__offset_at(m, last) - begin;
    count = count < DFGNN_REUSE_EDGES ? count : DFGNN_REUSE_EDGES;
    if (count)
      distinct += count_distinct(m->indices + begin, count, slots);
    edges += count;
  }
  return edges ? (double)distinct / (double)edges : 1;
}

static double sample_locality(const dfgnn_matrix *m) {
  int64_t n = m->destinations;
  int64_t samples = n < DFGNN_LOCALITY_ROWS ? n : DFGNN_LOCALITY_ROWS;
  int64_t near = 0, edges = 0;
  for (int64_t k = 0; k < samples; k++) {
    int64_t i = k * n / samples, begin = dfgnn__offset_at(m, i);
    int64_t degree = dfgnn__offset_at(m, i + 1) - begin;
    for (int which = 0; which < 2 && degree; which++) {
      int64_t j = m->indices[begin + (which ? degree / 2 : 0)];
      int64_t centre = (int64_t)((double)i * (double)m->sources / (double)n);
      near += llabs(centre - j) <= DFGNN_LOCALITY_SPAN;
      edges++;
    }
  }
  return edges ? (double)near / (double)edges : 1;
}

dfgnn_status dfgnn__check_graph_ptr(const dfgnn_matrix *m, int64_t graphs,
                                    const int64_t *ptr) {
  if (!graphs)
    return DFGNN_OK;
  if (m->destinations != m->sources)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "graph_ptr needs a square matrix, found %lld x %lld",
                       (long long)m->destinations, (long long)m->sources);
  if (ptr[0] != 0 || ptr[graphs] != m->destinations)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "graph_ptr goes from %lld to %lld, expected 0 to %lld",
                       (long long)ptr[0], (long long)ptr[graphs],
                       (long long)m->destinations);
  for (int64_t g = 0; g < graphs; g++)
    if (ptr[g + 1] < ptr[g])
      return dfgnn__fail(DFGNN_ERROR_INVALID, "graph_ptr falls at graph %lld",
                         (long long)g);
  return DFGNN_OK;
}

static dfgnn_status given_blocks(const dfgnn_matrix *m, dfgnn_signature *s,
                                 int64_t graphs, const int64_t *ptr) {
  double squares = 0;
  DFGNN_TRY(dfgnn__check_graph_ptr(m, graphs, ptr));
  for (int64_t g = 0; g < graphs; g++) {
    int64_t size = ptr[g + 1] - ptr[g];
    for (int64_t i = ptr[g]; i < ptr[g + 1]; i++)
      for (int64_t e = dfgnn__offset_at(m, i); e < dfgnn__offset_at(m, i + 1);
           e++)
        if (m->indices[e] < ptr[g] || m->indices[e] >= ptr[g + 1])
          return dfgnn__fail(DFGNN_ERROR_INVALID,
                             "edge to %d in row %lld leaves graph %lld, whose "
                             "nodes are %lld..%lld",
                             m->indices[e], (long long)i, (long long)g,
                             (long long)ptr[g], (long long)ptr[g + 1] - 1);
    squares += (double)size * (double)size;
    s->largest_graph = size > s->largest_graph ? size : s->largest_graph;
  }
  s->graphs = graphs;
  s->density = squares > 0 ? (double)m->edges / squares : 0;
  return DFGNN_OK;
}

/* The diagonal blocks of a square matrix.  reach[i] is the smallest column of
 * the rows from i on; a block ends before row i where reach[i] >= i and no row
 * before i has a column >= i. */
static dfgnn_status found_blocks(const dfgnn_matrix *m, dfgnn_signature *s,
                                 int threads) {
  int64_t n = m->destinations;
  s->graphs = 1;
  s->largest_graph = n;
  s->density =
      n && m->sources ? (double)m->edges / ((double)n * (double)m->sources) : 0;
  if (n != m->sources || !m->edges)
    return DFGNN_OK;
  int32_t *reach = malloc((size_t)(n + 1) * 2 * sizeof *reach);
  if (!reach)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  int32_t *furthest = reach + n + 1;
  reach[n] = INT32_MAX;
#pragma omp parallel for num_threads(threads) if (m->edges > (1 << 20))
  for (int64_t i = 0; i < n; i++) {
    int32_t low = INT32_MAX, high = -1;
    for (int64_t e = dfgnn__offset_at(m, i), end = dfgnn__offset_at(m, i + 1);
         e < end; e++) {
      int32_t j = m->indices[e];
      low = j < low ? j : low;
      high = j > high ? j : high;
    }
    reach[i] = low;
    furthest[i] = high;
  }
  for (int64_t i = n - 1; i >= 0; i--)
    reach[i] = reach[i] < reach[i + 1] ? reach[i] : reach[i + 1];
  int64_t graphs = 0, begin = 0, largest = 0;
  double squares = 0;
  int32_t high = -1;
  for (int64_t i = 0; i <= n; i++) {
    int ends = i > begin && reach[i] >= i && high < i;
    /* Consecutive isolated rows stay together. */
    if (ends && i < n && high < begin && furthest[i] < 0)
      ends = 0;
    if (ends || (i == n && i > begin)) {
      int64_t size = i - begin;
      graphs++;
      squares += (double)size * (double)size;
      largest = size > largest ? size : largest;
      begin = i;
    }
    if (i < n && furthest[i] > high)
      high = furthest[i];
  }
  s->graphs = graphs;
  s->largest_graph = largest;
  s->density = (double)m->edges / squares;
  free(reach);
  return DFGNN_OK;
}

dfgnn_status dfgnn__analyze(dfgnn_matrix *matrix, dfgnn_signature *signature,
                            int64_t graphs, const int64_t *graph_ptr,
                            int threads) {
  uint64_t index_hash = 0, offset_hash = 0;
  memset(signature, 0, sizeof *signature);
  signature->struct_size = sizeof *signature;
  signature->destinations = matrix->destinations;
  signature->sources = matrix->sources;
  signature->edges = matrix->edges;
  uint32_t *degree = calloc((size_t)matrix->sources + 1, sizeof *degree);
  if (!degree)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = dfgnn__check_offsets(matrix);
  if (!status)
    status = check_indices(matrix, &index_hash, degree, threads);
  if (!status)
    status = dfgnn__source_statistics(signature, degree);
  free(degree);
  if (!status)
    status = degree_statistics(matrix, signature, &offset_hash);
  if (!status)
    status = graph_ptr && graphs > 0
                 ? given_blocks(matrix, signature, graphs, graph_ptr)
                 : found_blocks(matrix, signature, threads);
  if (status)
    return status;
  signature->reuse = sample_reuse(matrix);
  signature->locality = sample_locality(matrix);
  signature->fingerprint = dfgnn__mix((uint64_t)matrix->destinations) +
                           dfgnn__mix(~(uint64_t)matrix->sources) +
                           offset_hash + index_hash;
  matrix->max_degree = signature->max_degree;
  return DFGNN_OK;
}
