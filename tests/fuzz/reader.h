/* reader.h - feeds bytes to the reader of one format, through a file in memory
 *
 * A matrix that a reader accepts must be a graph, which check_graph asserts. */
#ifndef DFGNN_TESTS_FUZZ_READER_H
#define DFGNN_TESTS_FUZZ_READER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dfgnn_graph.h"
#include "graph/io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_graph(const dfgnn_csr *csr) {
  int64_t last = 0;
  for (int64_t i = 0; i <= csr->destinations; i++) {
    int64_t offset = dfgnn__csr_offset(csr, i);
    if (offset < last || (i == 0 && offset))
      abort();
    last = offset;
  }
  if (last != csr->edges)
    abort();
  for (int64_t e = 0; e < csr->edges; e++)
    if (dfgnn__csr_index(csr, e) < 0 ||
        dfgnn__csr_index(csr, e) >= csr->sources)
      abort();
  if (csr->graph_ptr && csr->graph_ptr[csr->graphs] != csr->destinations)
    abort();
}

static int read_bytes(const uint8_t *data, size_t size, dfgnn__format format) {
  static int file = -1;
  static char path[64];
  if (file < 0) {
    setenv("DFGNN_MAX_FILE", "4M", 1);
    file = memfd_create("graph", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  }
  if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
    abort();
  dfgnn_csr *csr = NULL;
  dfgnn_status status = dfgnn__csr_read_as(&csr, path, format);
  if (!status)
    check_graph(csr);
  else if (csr || !*dfgnn_last_error())
    abort();
  dfgnn_csr_free(csr);
  return 0;
}

#endif
