/* read.c - finds the format of a graph file and reads it */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dfgnn_graph.h"
#include "graph/io/formats.h"
#include "graph/io/input.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"

#include <string.h>
#include <strings.h>

static const struct {
  const char *extension;
  dfgnn__format format;
} extensions[] = {
    {".npz", DFGNN__FORMAT_NPZ},     {".mtx", DFGNN__FORMAT_MTX},
    {".graph", DFGNN__FORMAT_METIS}, {".txt", DFGNN__FORMAT_EDGES},
    {".csv", DFGNN__FORMAT_EDGES},   {".tsv", DFGNN__FORMAT_EDGES},
};

dfgnn__format dfgnn__format_by_name(const char *path) {
  size_t length = strlen(path);
  if (length > 3 && !strcmp(path + length - 3, ".gz"))
    length -= 3;
  for (size_t k = 0; k < sizeof extensions / sizeof *extensions; k++) {
    size_t n = strlen(extensions[k].extension);
    if (length > n && !strncmp(path + length - n, extensions[k].extension, n))
      return extensions[k].format;
  }
  return DFGNN__FORMAT_AUTO;
}

/* Finds the format by the first bytes, else by the name. */
static dfgnn_status find_format(dfgnn__format *format, const char *path) {
  static const char banner[] = "%MatrixMarket"; /* with one % or two */
  dfgnn__scanner s;
  DFGNN_TRY(dfgnn__scanner_open(&s, path));
  dfgnn_status status = DFGNN_OK;
  dfgnn__peek(&s);
  size_t n = (size_t)(s.end - s.p);
  *format = dfgnn__format_by_name(path);
  if (s.status)
    status = s.status;
  else if (n >= 4 && (!memcmp(s.p, "PK\3\4", 4) || !memcmp(s.p, "PK\5\6", 4)))
    *format = DFGNN__FORMAT_NPZ;
  else if ((n >= sizeof banner - 1 &&
            !strncasecmp(s.p, banner, sizeof banner - 1)) ||
           (n >= sizeof banner &&
            !strncasecmp(s.p + 1, banner, sizeof banner - 1)))
    *format = DFGNN__FORMAT_MTX;
  else if (*format == DFGNN__FORMAT_NPZ)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found no zip archive, expected one in an .npz "
                         "file",
                         path);
  else if (*format == DFGNN__FORMAT_AUTO)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found neither a known name nor known content, "
                         "expected .npz, or .mtx, .graph, .txt, .csv, .tsv, "
                         "each also with .gz",
                         path);
  dfgnn__scanner_close(&s);
  return status;
}

dfgnn_status dfgnn__csr_read_as(dfgnn_csr **csr, const char *path,
                                dfgnn__format format) {
  static dfgnn_status (*const readers[])(dfgnn__parts *, const char *) = {
      [DFGNN__FORMAT_MTX] = dfgnn__read_mtx,
      [DFGNN__FORMAT_NPZ] = dfgnn__read_npz,
      [DFGNN__FORMAT_METIS] = dfgnn__read_metis,
      [DFGNN__FORMAT_EDGES] = dfgnn__read_edges,
  };
  dfgnn__parts parts = {0};
  dfgnn_status status = DFGNN_OK;
  if (format == DFGNN__FORMAT_AUTO)
    status = find_format(&format, path);
  if (!status)
    status = readers[format](&parts, path);
  return status ? status : dfgnn__csr_own_path(csr, &parts, path);
}

dfgnn_status dfgnn_csr_read(dfgnn_csr **csr, const char *path) {
  if (!csr || !path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", csr ? "path" : "csr");
  dfgnn__fork_prepare();
  return dfgnn__csr_read_as(csr, path, DFGNN__FORMAT_AUTO);
}
