/* mtx.c - Matrix Market coordinate files (Boisvert, Pozo & Remington 1996)
 *
 * Values are skipped: every stored entry is an edge, a stored zero too. */
#include "graph/io/formats.h"
#include "graph/io/input.h"
#include "graph/io/output.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct header {
  int values;   /* numbers after row and column */
  int mirrored; /* entry (i, j) stands for (j, i) as well */
  int diagonal; /* entries (i, i) are allowed */
} header;

static dfgnn_status bad_header(const dfgnn__scanner *s, const char *found,
                               const char *expected) {
  return s->status ? s->status
                   : dfgnn__fail(DFGNN_ERROR_FORMAT,
                                 "%s: line 1: found '%.40s', expected %s",
                                 s->path, found, expected);
}

static dfgnn_status read_header(dfgnn__scanner *s, header *h) {
  static const struct {
    const char *name;
    int values;
  } fields[] = {{"pattern", 0}, {"real", 1},
                {"double", 1},  {"integer", 1},
                {"complex", 2}, {"unsigned-integer", 1}, /* of scipy */
                {NULL, 0}};
  static const struct {
    const char *name;
    int mirrored, diagonal;
  } symmetries[] = {{.name = "general", .diagonal = 1},
                    {.name = "symmetric", .mirrored = 1, .diagonal = 1},
                    {.name = "hermitian", .mirrored = 1, .diagonal = 1},
                    {.name = "skew-symmetric", .mirrored = 1},
                    {.name = NULL}};
  char line[256], banner[64] = "", object[64] = "", layout[64] = "";
  char field[64] = "", symmetry[64] = "";
  dfgnn__get_line(s, line, sizeof line);
  sscanf(line, "%63s %63s %63s %63s %63s", banner, object, layout, field,
         symmetry);
  if (strcasecmp(banner, "%%MatrixMarket") &&
      strcasecmp(banner, "%MatrixMarket"))
    return bad_header(s, line,
                      "'%%MatrixMarket matrix coordinate FIELD SYMMETRY'");
  if (strcasecmp(object, "matrix"))
    return bad_header(s, object, "matrix");
  if (strcasecmp(layout, "coordinate"))
    return bad_header(s, layout, "coordinate, the sparse layout");
  int f = 0, y = 0;
  while (fields[f].name && strcasecmp(field, fields[f].name))
    f++;
  if (!fields[f].name)
    return bad_header(s, field,
                      "pattern, real, integer, unsigned-integer or complex");
  while (symmetries[y].name && strcasecmp(symmetry, symmetries[y].name))
    y++;
  if (!symmetries[y].name)
    return bad_header(s, symmetry,
                      "general, symmetric, hermitian or skew-symmetric");
  *h = (header){fields[f].values, symmetries[y].mirrored,
                symmetries[y].diagonal};
  return DFGNN_OK;
}

/* Goes to the next line that is neither empty nor a comment; 0 at the end. */
static int next_entry(dfgnn__scanner *s) {
  int c;
  while ((c = dfgnn__skip_blanks(s)) == '\n' || c == '%')
    dfgnn__skip_line(s);
  return c >= 0;
}

static dfgnn_status end_line(dfgnn__scanner *s) {
  int c = dfgnn__skip_blanks(s);
  if (c >= 0 && c != '\n')
    return dfgnn__scan_fail(s, "the end of the line");
  dfgnn__skip_line(s);
  return s->status;
}

static dfgnn_status read_size(dfgnn__scanner *s, int64_t size[3]) {
  static const char *const what[] = {
      "the number of rows", "the number of columns", "the number of entries"};
  static const int64_t most[] = {INT32_MAX, INT32_MAX, INT64_MAX};
  next_entry(s);
  for (int k = 0; k < 3; k++) {
    DFGNN_TRY(dfgnn__get_integer(s, &size[k], what[k]));
    if (size[k] < 0 || size[k] > most[k])
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: line %lld: found %lld as %s, expected 0 to %lld",
                         s->path, (long long)s->line, (long long)size[k],
                         what[k], (long long)most[k]);
  }
  return end_line(s);
}

static dfgnn_status read_position(dfgnn__scanner *s, int64_t *value,
                                  const char *what, int64_t most) {
  char expected[64];
  snprintf(expected, sizeof expected, "the %s, a whole number from 1", what);
  DFGNN_TRY(dfgnn__get_integer(s, value, expected));
  if (*value < 1 || *value > most)
    return dfgnn__fail(
        DFGNN_ERROR_FORMAT, "%s: line %lld: found %s %lld, expected 1 to %lld",
        s->path, (long long)s->line, what, (long long)*value, (long long)most);
  return DFGNN_OK;
}

static dfgnn_status read_entry(dfgnn__scanner *s, const header *h,
                               const int64_t size[3], dfgnn__edges *edges) {
  int64_t row, column;
  DFGNN_TRY(read_position(s, &row, "row", size[0]));
  DFGNN_TRY(read_position(s, &column, "column", size[1]));
  for (int v = 0; v < h->values; v++)
    DFGNN_TRY(dfgnn__skip_number(s, "a value"));
  if (!h->diagonal && row == column)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: line %lld: found the diagonal entry %lld, "
                       "expected none in a skew-symmetric matrix",
                       s->path, (long long)s->line, (long long)row);
  DFGNN_TRY(end_line(s));
  DFGNN_TRY(dfgnn__edges_add(edges, (int32_t)(row - 1), (int32_t)(column - 1)));
  if (h->mirrored && row != column)
    DFGNN_TRY(
        dfgnn__edges_add(edges, (int32_t)(column - 1), (int32_t)(row - 1)));
  return DFGNN_OK;
}

dfgnn_status dfgnn__read_mtx(dfgnn__parts *parts, const char *path) {
  dfgnn__scanner s;
  dfgnn__edges edges = {0};
  header h = {0};
  int64_t size[3] = {0};
  DFGNN_TRY(dfgnn__scanner_open(&s, path));
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_header(&s, &h));
  DFGNN_GO(read_size(&s, size));
  DFGNN_GO(dfgnn__limit_sizes(path, size[0], size[1], s.limit));
  if (h.mirrored && size[0] != size[1])
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld rows and %lld columns, expected as "
                         "many in a symmetric matrix",
                         path, (long long)size[0], (long long)size[1]));
  for (int64_t k = 0; k < size[2] && !status; k++) {
    if (next_entry(&s))
      status = read_entry(&s, &h, size, &edges);
    else
      status = s.status ? s.status
                        : dfgnn__fail(DFGNN_ERROR_FORMAT,
                                      "%s: found the end of the file after "
                                      "%lld entries, expected %lld",
                                      path, (long long)k, (long long)size[2]);
  }
  if (status)
    goto out;
  if (next_entry(&s))
    DFGNN_GO(dfgnn__scan_fail(&s, "the end of the file: all entries are read"));
  DFGNN_GO(s.status);
  status = dfgnn__edges_compress(parts, &edges, size[0], size[1]);
out:
  dfgnn__edges_free(&edges);
  dfgnn__scanner_close(&s);
  return status;
}

dfgnn_status dfgnn__write_mtx(const dfgnn_csr *csr, const char *path,
                              const char *temporary) {
  dfgnn__writer w;
  DFGNN_TRY(dfgnn__writer_open(&w, path, temporary));
  dfgnn__put_text(&w, "%%MatrixMarket matrix coordinate pattern general\n");
  dfgnn__put_integer(&w, csr->destinations, ' ');
  dfgnn__put_integer(&w, csr->sources, ' ');
  dfgnn__put_integer(&w, csr->edges, '\n');
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      dfgnn__put_integer(&w, i + 1, ' ');
      dfgnn__put_integer(&w, dfgnn__csr_index(csr, e) + 1, '\n');
    }
  return dfgnn__writer_close(&w);
}
