/* write.c - dfgnn_csr_write: writes the format that a file's name asks for */
#include "base/error.h"
#include "io/formats.h"
#include "io/io.h"
#include "io/output.h"

#include <string.h>

static int ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

typedef dfgnn_status write_function(const dfgnn_csr *csr, const char *path,
                                    const char *temporary);

static write_function *find_writer(const char *path) {
  static const struct {
    const char *extension;
    write_function *write;
  } table[] = {
      {".npz", dfgnn__write_npz},        {".mtx", dfgnn__write_mtx},
      {".mtx.gz", dfgnn__write_mtx},     {".graph", dfgnn__write_metis},
      {".graph.gz", dfgnn__write_metis}, {".txt", dfgnn__write_edges},
      {".txt.gz", dfgnn__write_edges},   {".csv", dfgnn__write_edges},
      {".csv.gz", dfgnn__write_edges},   {".tsv", dfgnn__write_edges},
      {".tsv.gz", dfgnn__write_edges},   {NULL, NULL}};
  int k = 0;
  while (table[k].extension && !ends_with(path, table[k].extension))
    k++;
  return table[k].write;
}

static dfgnn_status write_csr(const void *data, const char *path,
                              const char *temporary) {
  return find_writer(path)(data, path, temporary);
}

dfgnn_status dfgnn_csr_write(const dfgnn_csr *csr, const char *path) {
  dfgnn_csr whole;
  if (!csr || !path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", csr ? "path" : "csr");
  dfgnn_status status = dfgnn__csr_take(&whole, csr);
  if (status)
    return dfgnn__fail_prefix(status, "%s: ", path);
  if (!find_writer(path))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found no known extension, expected .npz, or .mtx, "
                       ".graph, .txt, .csv, .tsv, each also with .gz",
                       path);
  return dfgnn__write_whole(path, NULL, write_csr, &whole);
}
