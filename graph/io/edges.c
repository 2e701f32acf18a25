/* edges.c - lists of edges, one "source destination" per line (SNAP, OGB, csv)
 *
 * Numbers count from 0 and are kept: a graph has one node more than the largest
 * of them, or as many as a comment "# Nodes: N" says if that is more. */
#include "graph/io/formats.h"
#include "graph/io/input.h"
#include "graph/io/io.h"
#include "graph/io/output.h"
#include "lib/base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Skips the separator of columns: blanks with at most one comma or semicolon.
 */
static int skip_separator(dfgnn__scanner *s) {
  int c = dfgnn__skip_blanks(s);
  if (c == ',' || c == ';') {
    s->p++;
    c = dfgnn__skip_blanks(s);
  }
  return c;
}

static void read_comment(dfgnn__scanner *s, int64_t *nodes) {
  char text[128];
  long long found;
  dfgnn__get_line(s, text, sizeof text);
  if (sscanf(text, "# Nodes: %lld", &found) == 1 && found > *nodes)
    *nodes = found;
}

static dfgnn_status read_node(dfgnn__scanner *s, const char *what,
                              int64_t *node) {
  char expected[96];
  snprintf(expected, sizeof expected, "the %s, a whole number from 0", what);
  DFGNN_TRY(dfgnn__get_integer(s, node, expected));
  if (*node < 0 || *node >= INT32_MAX)
    return dfgnn__fail(
        DFGNN_ERROR_FORMAT, "%s: line %lld: found %s %lld, expected 0 to %d",
        s->path, (long long)s->line, what, (long long)*node, INT32_MAX - 1);
  return DFGNN_OK;
}

static dfgnn_status read_lines(dfgnn__scanner *s, dfgnn__edges *edges,
                               int64_t *nodes, int header) {
  int c;
  while ((c = dfgnn__skip_blanks(s)) >= 0) {
    if (c == '#' || c == '%') {
      read_comment(s, nodes);
      continue;
    }
    if (c == '\n' || (header && (isalpha(c) || c == '"' || c == '_'))) {
      header &= c == '\n';
      dfgnn__skip_line(s);
      continue;
    }
    header = 0;
    int64_t from, to;
    DFGNN_TRY(read_node(s, "source", &from));
    skip_separator(s);
    DFGNN_TRY(read_node(s, "destination", &to));
    DFGNN_TRY(dfgnn__edges_add(edges, (int32_t)to, (int32_t)from));
    int64_t most = from > to ? from : to;
    if (most >= *nodes)
      *nodes = most + 1;
    dfgnn__skip_line(s); /* weights and times */
  }
  return s->status;
}

static int is_table(const char *path) {
  return strstr(path, ".csv") || strstr(path, ".tsv");
}

dfgnn_status dfgnn__read_edges(dfgnn__parts *parts, const char *path) {
  dfgnn__scanner s;
  dfgnn__edges edges = {0};
  int64_t nodes = 0;
  DFGNN_TRY(dfgnn__scanner_open(&s, path));
  dfgnn_status status = read_lines(&s, &edges, &nodes, is_table(path));
  if (!status)
    status = dfgnn__limit_sizes(path, nodes, nodes, s.limit);
  if (!status)
    status = dfgnn__edges_compress(parts, &edges, nodes, nodes);
  dfgnn__edges_free(&edges);
  dfgnn__scanner_close(&s);
  return status;
}

dfgnn_status dfgnn__write_edges(const dfgnn_csr *csr, const char *path,
                                const char *temporary) {
  if (csr->destinations != csr->sources)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found %lld x %lld nodes, expected a square graph "
                       "in a list of edges; .npz and .mtx hold any",
                       path, (long long)csr->destinations,
                       (long long)csr->sources);
  dfgnn__writer w;
  DFGNN_TRY(dfgnn__writer_open(&w, path, temporary));
  char separator = strstr(path, ".csv") ? ',' : '\t';
  dfgnn__put_text(&w, "# Nodes: ");
  dfgnn__put_integer(&w, csr->destinations, ' ');
  dfgnn__put_text(&w, "Edges: ");
  dfgnn__put_integer(&w, csr->edges, '\n');
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      dfgnn__put_integer(&w, dfgnn__csr_index(csr, e), separator);
      dfgnn__put_integer(&w, i, '\n');
    }
  return dfgnn__writer_close(&w);
}
