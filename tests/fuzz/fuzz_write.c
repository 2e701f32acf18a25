/* Writers: arrays that are no matrix are refused, and a graph that is written
 * reads back as it was.  The bytes are a format, sizes, offsets and indices. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dfgnn_graph.h"
#include "graph/io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const extensions[] = {".graph", ".graph.gz", ".mtx",
                                         ".txt",   ".csv",      ".npz"};
enum { FORMATS = sizeof extensions / sizeof *extensions };
static char folder[64];

static void remove_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  if (system(command))
    perror(folder);
}

static int64_t edges_between(const dfgnn_csr *csr, int64_t row,
                             int64_t column) {
  int64_t count = 0;
  for (int64_t e = dfgnn__csr_offset(csr, row);
       e < dfgnn__csr_offset(csr, row + 1); e++)
    count += dfgnn__csr_index(csr, e) == column;
  return count;
}

/* Asserts that two graphs have the same edges, in any order within a row. */
static void check_same(const dfgnn_csr *a, const dfgnn_csr *b) {
  if (a->destinations != b->destinations || a->sources != b->sources ||
      a->edges != b->edges)
    abort();
  for (int64_t i = 0; i < a->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(a, i); e < dfgnn__csr_offset(a, i + 1);
         e++) {
      int64_t j = dfgnn__csr_index(a, e);
      if (edges_between(a, i, j) != edges_between(b, i, j))
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[128];
  if (!*folder) {
    snprintf(folder, sizeof folder, "%s/dfgnn-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
      abort();
    atexit(remove_folder);
  }
  if (size < 4)
    return 0;
  dfgnn_csr csr = DFGNN_CSR_INIT, *back = NULL;
  csr.destinations = data[1] % 32;
  csr.sources = data[2] & 0x80 ? data[2] % 32 : csr.destinations;
  csr.edges = data[3];
  size_t numbers = (size_t)csr.destinations + 1 + (size_t)csr.edges;
  if (size < 4 + numbers)
    return 0;
  /* arrays without spare room, so that an access beyond them is found */
  int32_t *offsets = malloc(((size_t)csr.destinations + 1) * sizeof *offsets);
  int64_t *indices = malloc(((size_t)csr.edges + 1) * sizeof *indices);
  const uint8_t *next = data + 4;
  for (int64_t i = 0; i <= csr.destinations; i++)
    offsets[i] = *next++;
  for (int64_t e = 0; e < csr.edges; e++)
    indices[e] = (int8_t)*next++;
  csr.offsets = offsets;
  csr.indices = indices;
  csr.index_type = DFGNN_INDEX_I64;
  snprintf(path, sizeof path, "%s/a%s", folder, extensions[data[0] % FORMATS]);
  int valid = !dfgnn__csr_check(&csr);
  dfgnn_status status = dfgnn_csr_write(&csr, path);
  if (!status && !valid)
    abort();
  if (status && (access(path, F_OK) == 0 || !*dfgnn_last_error()))
    abort();
  if (!status) {
    if (dfgnn_csr_read(&back, path))
      abort();
    check_same(&csr, back);
    dfgnn_csr_free(back);
    unlink(path);
  }
  free(offsets);
  free(indices);
  return 0;
}
