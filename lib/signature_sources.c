/* signature_sources.c - the numbers of a signature on the degrees of sources */
#include <math.h>
#include <stdlib.h>

#include "lib/base/error.h"
#include "lib/signature.h"

double dfgnn__variation(uint64_t squares, int64_t edges, int64_t nodes) {
  const double n = (double)nodes, mean = (double)edges / n;
  const double variance = (double)squares / n - mean * mean;
  return sqrt(variance > 0 ? variance : 0) / mean;
}

static int code_of(uint64_t degree) {
  if (degree < DFGNN_DEGREE_EXACT)
    return (int)degree;
  const int octave = 63 - __builtin_clzll(degree);
  return DFGNN_DEGREE_EXACT +
         (octave - DFGNN_DEGREE_EXACT_BITS) * DFGNN_DEGREE_SHARES +
         (int)(degree >> (octave - 5) & (DFGNN_DEGREE_SHARES - 1));
}

/* The degree of the code in which the rank falls. */
static int64_t degree_of_rank(const uint64_t *count, int64_t rank) {
  uint64_t below = 0;
  int code = 0;
  while (code < DFGNN_DEGREE_CODES - 1 &&
         (below += count[code]) <= (uint64_t)rank)
    code++;
  return (int64_t)dfgnn__first_of_code(code);
}

dfgnn_status dfgnn__source_statistics(dfgnn_signature *s,
                                      const uint32_t *degree) {
  const int64_t m = s->sources;
  uint64_t squares = 0;
  uint32_t largest = 0;
  if (!s->edges) {
    s->isolated_sources = m > 0;
    return DFGNN_OK;
  }
  uint64_t *count = calloc(DFGNN_DEGREE_CODES, sizeof *count);
  if (!count)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int64_t j = 0; j < m; j++) {
    const uint64_t d = degree[j];
    squares += d * d;
    largest = degree[j] > largest ? degree[j] : largest;
    count[code_of(d)]++;
  }
  s->max_source_degree = largest;
  s->p50_source_degree =
      degree_of_rank(count, (int64_t)(0.5 * (double)(m - 1)));
  s->p99_source_degree =
      degree_of_rank(count, (int64_t)(0.99 * (double)(m - 1)));
  s->isolated_sources = (double)count[0] / (double)m;
  s->source_cv = dfgnn__variation(squares, s->edges, m);
  free(count);
  return DFGNN_OK;
}
