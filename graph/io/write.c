/* write.c - dfgnn_csr_write: writes the format that a file's name asks for */
#include "dfgnn_graph.h"
#include "graph/io/formats.h"
#include "graph/io/io.h"
#include "graph/io/output.h"
#include "lib/base/error.h"

#include <string.h>

static int ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

typedef dfgnn_status write_function(const dfgnn_csr *csr, const char *path,
                                    const char *temporary);

static const dfgnn_output_kind archive = {.name = "a matrix in an .npz archive",
                                          .is = dfgnn__is_npz_graph},
                               matrix = {.name = "a MatrixMarket file",
                                         .mark = {{0, "%%MatrixMarket"}}},
                               lists = {.name = "a METIS graph",
                                        .is = dfgnn__is_metis},
                               edges = {.name = "a list of edges",
                                        .mark = {{0, "# Nodes: "}}};

static const struct format {
  const char *extension;
  write_function *write;
  const dfgnn_output_kind *kind;
} formats[] = {{".npz", dfgnn__write_npz, &archive},
               {".mtx", dfgnn__write_mtx, &matrix},
               {".mtx.gz", dfgnn__write_mtx, &matrix},
               {".graph", dfgnn__write_metis, &lists},
               {".graph.gz", dfgnn__write_metis, &lists},
               {".txt", dfgnn__write_edges, &edges},
               {".txt.gz", dfgnn__write_edges, &edges},
               {".csv", dfgnn__write_edges, &edges},
               {".csv.gz", dfgnn__write_edges, &edges},
               {".tsv", dfgnn__write_edges, &edges},
               {".tsv.gz", dfgnn__write_edges, &edges}};

static const struct format *find_format(const char *path) {
  for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
    if (ends_with(path, formats[k].extension))
      return &formats[k];
  return NULL;
}

static dfgnn_status write_csr(const void *data, const char *path,
                              const char *temporary) {
  return find_format(path)->write(data, path, temporary);
}

dfgnn_status dfgnn_csr_write(const dfgnn_csr *csr, const char *path) {
  dfgnn_csr whole;
  if (!csr || !path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", csr ? "path" : "csr");
  dfgnn_status status = dfgnn__csr_take(&whole, csr);
  if (status)
    return dfgnn__fail_prefix(status, "%s: ", path);
  const struct format *format = find_format(path);
  if (!format)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found no known extension, expected .npz, or .mtx, "
                       ".graph, .txt, .csv, .tsv, each also with .gz",
                       path);
  return dfgnn__write_whole(path, format->kind, write_csr, &whole);
}
