/* build.c - builds matrices from lists of edges; matrices that own their arrays
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "graph/io/build.h"
#include "dfgnn_graph.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct owned {
  dfgnn_csr csr; /* the first member: dfgnn_csr_free casts to owned */
  dfgnn__parts parts;
  char *name;
} owned;

void dfgnn__parts_free(dfgnn__parts *parts) {
  free(parts->offsets);
  free(parts->indices);
  free(parts->graph_ptr);
  free(parts->edge_attr);
  *parts = (dfgnn__parts){0};
}

const float *dfgnn__csr_edge_attr(const dfgnn_csr *csr) {
  return ((const owned *)csr)->parts.edge_attr;
}

void dfgnn_csr_free(dfgnn_csr *csr) {
  if (!csr)
    return;
  owned *own = (owned *)csr;
  dfgnn__parts_free(&own->parts);
  free(own->name);
  free(own);
}

/* Makes offsets 32 bits wide in place, front to back: entry i is written at or
 * before its old place. */
static void narrow(int64_t *offsets, int64_t count) {
  char *to = (char *)offsets;
  for (int64_t i = 0; i < count; i++) {
    int64_t wide;
    memcpy(&wide, (char *)offsets + 8 * i, 8);
    int32_t small = (int32_t)wide;
    memcpy(to + 4 * i, &small, 4);
  }
}

dfgnn_status dfgnn__csr_own(dfgnn_csr **csr, dfgnn__parts *parts,
                            const char *name) {
  owned *own = calloc(1, sizeof *own);
  if (own)
    own->name = strdup(name);
  if (!own || !own->name) {
    free(own);
    dfgnn__parts_free(parts);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot allocate a graph", name);
  }
  dfgnn_index_type type = DFGNN_INDEX_I64;
  if (parts->edges <= INT32_MAX) {
    narrow(parts->offsets, parts->destinations + 1);
    void *less = realloc(parts->offsets, 4 * ((size_t)parts->destinations + 1));
    if (less)
      parts->offsets = less;
    type = DFGNN_INDEX_I32;
  }
  own->parts = *parts;
  own->csr.struct_size = sizeof own->csr;
  own->csr.destinations = parts->destinations;
  own->csr.sources = parts->sources;
  own->csr.edges = parts->edges;
  own->csr.offsets = parts->offsets;
  own->csr.indices = parts->indices;
  own->csr.offset_type = type;
  own->csr.index_type = DFGNN_INDEX_I32;
  own->csr.graphs = parts->graphs;
  own->csr.graph_ptr = parts->graph_ptr;
  own->csr.name = own->name;
  *parts = (dfgnn__parts){0};
  *csr = &own->csr;
  return DFGNN_OK;
}

dfgnn_status dfgnn__csr_own_path(dfgnn_csr **csr, dfgnn__parts *parts,
                                 const char *path) {
  static const char *const extensions[] = {".gz",  ".npz", ".mtx", ".graph",
                                           ".txt", ".csv", ".tsv", NULL};
  const char *slash = strrchr(path, '/');
  char name[256];
  const char *base = slash ? slash + 1 : path;
  size_t length = strnlen(base, sizeof name - 1);
  memcpy(name, base, length);
  name[length] = 0;
  for (const char *const *x = extensions; *x; x++) {
    size_t n = strlen(*x);
    if (length > n && !strcmp(name + length - n, *x)) {
      name[length -= n] = 0;
    }
  }
  return dfgnn__csr_own(csr, parts, name);
}

dfgnn_status dfgnn__edges_grow(dfgnn__edges *edges) {
  int64_t capacity = edges->capacity ? 2 * edges->capacity : 4096;
  dfgnn__edge *more =
      realloc(edges->edge, (size_t)capacity * sizeof *edges->edge);
  if (!more)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld edges",
                       (long long)capacity);
  edges->edge = more;
  edges->capacity = capacity;
  return DFGNN_OK;
}

void dfgnn__edges_free(dfgnn__edges *edges) {
  free(edges->edge);
  *edges = (dfgnn__edges){0};
}

dfgnn_status dfgnn__edges_compress(dfgnn__parts *parts, dfgnn__edges *edges,
                                   int64_t destinations, int64_t sources) {
  dfgnn_status status = DFGNN_OK;
  int64_t count = edges->count;
  int64_t *offsets = calloc((size_t)destinations + 2, sizeof *offsets);
  int32_t *indices = malloc((size_t)(count ? count : 1) * sizeof *indices);
  if (!offsets || !indices) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY,
                         "cannot allocate %lld rows and %lld edges",
                         (long long)destinations, (long long)count);
    free(offsets);
    free(indices);
    goto out;
  }
  /* Counts are shifted by one, so that the scatter leaves the offsets in place.
   */
  int64_t *next = offsets + 1;
  for (int64_t e = 0; e < count; e++)
    offsets[edges->edge[e].row + 2]++;
  for (int64_t i = 0; i < destinations; i++)
    offsets[i + 2] += offsets[i + 1];
  for (int64_t e = 0; e < count; e++)
    indices[next[edges->edge[e].row]++] = edges->edge[e].column;
  *parts = (dfgnn__parts){.destinations = destinations,
                          .sources = sources,
                          .edges = count,
                          .offsets = offsets,
                          .indices = indices};
out:
  dfgnn__edges_free(edges);
  if (!status && (status = dfgnn__sort_rows(parts)))
    dfgnn__parts_free(parts);
  return status;
}

#define INSERTION 40
#define DIGIT 256

static void insertion_sort(int32_t *keys, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    int32_t key = keys[i];
    int64_t j = i;
    for (; j > 0 && keys[j - 1] > key; j--)
      keys[j] = keys[j - 1];
    keys[j] = key;
  }
}

/* Radix sort by bytes, as many as the largest key needs. */
void dfgnn__sort(int32_t *keys, int32_t *scratch, int64_t count) {
  if (count <= INSERTION) {
    insertion_sort(keys, count);
    return;
  }
  uint32_t bits = 0;
  int sorted = 1;
  for (int64_t i = 0; i < count; i++) {
    bits |= (uint32_t)keys[i];
    sorted &= i == 0 || keys[i - 1] <= keys[i];
  }
  if (sorted)
    return;
  int32_t *from = keys, *to = scratch;
  for (int shift = 0; shift < 32 && bits >> shift; shift += 8) {
    int64_t start[DIGIT + 1] = {0};
    for (int64_t i = 0; i < count; i++)
      start[(((uint32_t)from[i] >> shift) & (DIGIT - 1)) + 1]++;
    for (int d = 0; d < DIGIT; d++)
      start[d + 1] += start[d];
    for (int64_t i = 0; i < count; i++)
      to[start[((uint32_t)from[i] >> shift) & (DIGIT - 1)]++] = from[i];
    int32_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != keys)
    memcpy(keys, from, (size_t)count * sizeof *keys);
}

dfgnn_status dfgnn__sort_rows(dfgnn__parts *parts) {
  const int64_t *offsets = parts->offsets;
  int64_t longest = 0;
  for (int64_t i = 0; i < parts->destinations; i++)
    if (offsets[i + 1] - offsets[i] > longest)
      longest = offsets[i + 1] - offsets[i];
  int failed = 0;
#pragma omp parallel reduction(| : failed) if (parts->edges > 100000)
  {
    int32_t *scratch = malloc((size_t)(longest + 1) * sizeof *scratch);
    failed = !scratch;
#pragma omp for schedule(dynamic, 256)
    for (int64_t i = 0; i < parts->destinations; i++)
      if (!failed)
        dfgnn__sort(parts->indices + offsets[i], scratch,
                    offsets[i + 1] - offsets[i]);
    free(scratch);
  }
  if (failed)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot sort a row of %lld edges",
                       (long long)longest);
  return DFGNN_OK;
}
