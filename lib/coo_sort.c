/* coo_sort.c - sorts an edge list in host memory by destinations */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/coo.h"

static int64_t node_at(const dfgnn_coo *coo, const void *array, int64_t e) {
  return coo->index_type == DFGNN_INDEX_I64 ? ((const int64_t *)array)[e]
                                            : ((const int32_t *)array)[e];
}

static dfgnn_status refuse(const dfgnn_coo *coo, int64_t e, int dst) {
  return dfgnn__fail(
      DFGNN_ERROR_INVALID, "%s[%lld] = %lld is out of range, expected 0..%lld",
      dst ? "destination" : "source", (long long)e,
      (long long)node_at(coo, dst ? coo->destination : coo->source, e),
      (long long)(dst ? coo->destinations : coo->sources) - 1);
}

static dfgnn_status check_edges(const dfgnn_coo *coo, int *unsorted) {
  int64_t previous = 0;
  *unsorted = 0;
  for (int64_t e = 0; e < coo->edges; e++) {
    int64_t i = node_at(coo, coo->destination, e),
            j = node_at(coo, coo->source, e);
    if (i < 0 || i >= coo->destinations)
      return refuse(coo, e, 1);
    if (j < 0 || j >= coo->sources)
      return refuse(coo, e, 0);
    if (i < previous && coo->sorted)
      return dfgnn__fail(
          DFGNN_ERROR_INVALID,
          "destination[%lld] = %lld comes after %lld, but the list was "
          "said to be sorted",
          (long long)e, (long long)i, (long long)previous);
    *unsorted |= i < previous;
    previous = i;
  }
  return DFGNN_OK;
}

static void set_wide(void *array, int wide, int64_t k, int64_t x) {
  if (wide)
    ((int64_t *)array)[k] = x;
  else
    ((int32_t *)array)[k] = (int32_t)x;
}

static int left_out(const dfgnn_coo *coo, int64_t e) {
  return coo->self_loops &&
         node_at(coo, coo->destination, e) == node_at(coo, coo->source, e);
}

/* next[i + 1] becomes the end of row i; returns the largest degree. */
static int64_t count_rows(int64_t *next, const dfgnn_coo *coo, int64_t loops) {
  int64_t most = 0;
  for (int64_t e = 0; e < coo->edges; e++)
    if (!left_out(coo, e))
      next[node_at(coo, coo->destination, e) + 1]++;
  for (int64_t i = 0; i < coo->destinations; i++) {
    next[i + 1] += i < loops;
    most = next[i + 1] > most ? next[i + 1] : most;
    next[i + 1] += next[i];
  }
  return most;
}

static void narrow_sources(int32_t *to, const dfgnn_coo *coo) {
  const int64_t *from = coo->source;
  if (coo->index_type == DFGNN_INDEX_I32)
    memmove(to, coo->edges ? coo->source : to, (size_t)coo->edges * sizeof *to);
  else
    for (int64_t e = 0; e < coo->edges; e++)
      to[e] = (int32_t)from[e];
}

int64_t dfgnn__coo_loops(const dfgnn_coo *coo) {
  const int64_t nodes =
      coo->destinations < coo->sources ? coo->destinations : coo->sources;
  return coo->self_loops ? nodes : 0;
}

dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo) {
  const int64_t loops = dfgnn__coo_loops(coo), most = coo->edges + loops;
  int wide = most > INT32_MAX, unsorted = !coo->sorted;
  size_t width = wide ? sizeof(int64_t) : sizeof(int32_t);
  size_t rows = (size_t)coo->destinations + 1, edges = (size_t)most;
  int64_t *next = NULL;
  dfgnn_status status = DFGNN_OK;
  memset(sorted, 0, sizeof *sorted);
  if (!coo->trusted)
    status = check_edges(coo, &unsorted);
  if (status)
    return status;
  unsorted |= coo->self_loops;
  next = calloc(rows + 1, sizeof *next);
  sorted->offsets = malloc(rows * width);
  sorted->indices = malloc(edges * sizeof(int32_t) + 1);
  if (unsorted)
    sorted->order = malloc(edges * width + 1);
  if (!next || !sorted->offsets || !sorted->indices ||
      (unsorted && !sorted->order)) {
    free(sorted->offsets);
    free(sorted->indices);
    free(sorted->order);
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %lld edges",
                         (long long)most);
    goto out;
  }
  sorted->matrix = (dfgnn_matrix){.destinations = coo->destinations,
                                  .sources = coo->sources,
                                  .offsets64 = wide,
                                  .offsets = sorted->offsets,
                                  .indices = sorted->indices,
                                  .max_degree = count_rows(next, coo, loops)};
  sorted->matrix.edges = next[coo->destinations];
  for (size_t i = 0; i < rows; i++)
    set_wide(sorted->offsets, wide, (int64_t)i, next[i]);
  if (!unsorted)
    narrow_sources(sorted->indices, coo);
  for (int64_t e = 0; unsorted && e < most; e++) {
    const int64_t loop = e - coo->edges;
    if (loop < 0 && left_out(coo, e))
      continue;
    int64_t k = next[loop < 0 ? node_at(coo, coo->destination, e) : loop]++;
    ((int32_t *)sorted->indices)[k] =
        (int32_t)(loop < 0 ? node_at(coo, coo->source, e) : loop);
    set_wide(sorted->order, wide, k, e);
  }
out:
  free(next);
  return status;
}
