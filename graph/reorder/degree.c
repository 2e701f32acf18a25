/* degree.c - orders nodes by falling degree: hubs and rows of like work
 * together
 */
#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#include <stdlib.h>

dfgnn_status dfgnn__order_by_key(int32_t *order, const int64_t *key,
                                 int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; i++)
    most = key[i] > most ? key[i] : most;
  int64_t *first = calloc((size_t)most + 2, sizeof *first);
  if (!first)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot sort keys up to %lld",
                       (long long)most);
  for (int64_t i = 0; i < count; i++)
    first[key[i] + 1]++;
  for (int64_t k = 0; k < most; k++)
    first[k + 1] += first[k];
  for (int64_t i = 0; i < count; i++)
    order[first[key[i]]++] = (int32_t)i;
  free(first);
  return DFGNN_OK;
}

static dfgnn_status falling(int32_t *order, int64_t *degree, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; i++)
    most = degree[i] > most ? degree[i] : most;
  for (int64_t i = 0; i < count; i++)
    degree[i] = most - degree[i];
  return dfgnn__order_by_key(order, degree, count);
}

dfgnn_status dfgnn__order_degree(int32_t *order, const dfgnn_csr *csr) {
  int64_t n = csr->destinations;
  int64_t m = csr->sources == n ? 0 : csr->sources;
  int64_t *degree = calloc((size_t)(n + m) + 1, sizeof *degree);
  if (!degree)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot count %lld degrees",
                       (long long)(n + m));
  int64_t *column = m ? degree + n : degree;
  for (int64_t i = 0; i < n; i++)
    degree[i] = dfgnn__csr_offset(csr, i + 1) - dfgnn__csr_offset(csr, i);
  for (int64_t e = 0; e < csr->edges; e++)
    column[dfgnn__csr_index(csr, e)]++;
  dfgnn_status status = falling(order, degree, n);
  if (!status && m)
    status = falling(order + n, degree + n, m);
  for (int64_t p = n; p < n + m && !status; p++)
    order[p] += (int32_t)n;
  free(degree);
  return status;
}
