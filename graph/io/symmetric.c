#include "graph/io/build.h"
#include "graph/io/io.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Makes the transpose of csr, whose rows are sorted. */
static dfgnn_status transpose(dfgnn__parts *parts, const dfgnn_csr *csr) {
  int64_t n = csr->sources;
  int64_t *offsets = calloc((size_t)n + 2, sizeof *offsets);
  int32_t *indices = malloc(((size_t)csr->edges + 1) * sizeof *indices);
  if (!offsets || !indices) {
    free(offsets);
    free(indices);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot transpose %lld edges",
                       (long long)csr->edges);
  }
  for (int64_t e = 0; e < csr->edges; e++)
    offsets[dfgnn__csr_index(csr, e) + 2]++;
  for (int64_t j = 0; j < n; j++)
    offsets[j + 2] += offsets[j + 1];
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++)
      indices[offsets[dfgnn__csr_index(csr, e) + 1]++] = (int32_t)i;
  *parts = (dfgnn__parts){.destinations = n,
                          .sources = csr->destinations,
                          .edges = csr->edges,
                          .offsets = offsets,
                          .indices = indices};
  return DFGNN_OK;
}

int dfgnn__csr_symmetric(const dfgnn_csr *csr) {
  if (csr->destinations != csr->sources)
    return 0;
  dfgnn__parts other;
  DFGNN_TRY(transpose(&other, csr));
  int32_t *row = malloc(2 * ((size_t)csr->edges + 1) * sizeof *row);
  if (!row) {
    dfgnn__parts_free(&other);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot compare %lld edges",
                       (long long)csr->edges);
  }
  int symmetric = 1;
  for (int64_t i = 0; i < csr->destinations && symmetric; i++) {
    int64_t begin = dfgnn__csr_offset(csr, i);
    int64_t count = dfgnn__csr_offset(csr, i + 1) - begin;
    for (int64_t k = 0; k < count; k++)
      row[k] = (int32_t)dfgnn__csr_index(csr, begin + k);
    dfgnn__sort(row, row + count, count);
    symmetric = other.offsets[i] == begin &&
                other.offsets[i + 1] == begin + count &&
                !memcmp(row, other.indices + begin, 4 * (size_t)count);
  }
  free(row);
  dfgnn__parts_free(&other);
  return symmetric;
}
