/* metis.c - graphs as METIS, KaHIP and the DIMACS challenges write them
 *
 * The first line is "n m [format [weights]]", then there is a line per node
 * with its neighbours, counted from 1; the digits of format tell whether there
 * are node sizes, node weights and edge weights.  Comments start with '%'; an
 * empty line is a node without edges, and so is a line after the last, which
 * editors cut: the number of edges tells whether anything is missing. */
#include "graph/io/formats.h"
#include "graph/io/input.h"
#include "graph/io/io.h"
#include "graph/io/output.h"
#include "lib/base/error.h"

typedef struct header {
  int64_t nodes, edges;
  int64_t before; /* numbers of a node before its neighbours */
  int weighted;   /* each neighbour is followed by a weight */
} header;

static void skip_comments(dfgnn__scanner *s) {
  while (dfgnn__peek(s) == '%')
    dfgnn__skip_line(s);
}

static int at_end(dfgnn__scanner *s) {
  int c = dfgnn__skip_blanks(s);
  return c < 0 || c == '\n';
}

static dfgnn_status out_of_range(const dfgnn__scanner *s, const char *what,
                                 int64_t found, int64_t least, int64_t most) {
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: line %lld: found %s %lld, expected %lld to %lld",
                     s->path, (long long)s->line, what, (long long)found,
                     (long long)least, (long long)most);
}

static dfgnn_status read_header(dfgnn__scanner *s, header *h) {
  int64_t format = 0, weights = 1;
  skip_comments(s);
  DFGNN_TRY(dfgnn__get_integer(s, &h->nodes, "the number of nodes"));
  DFGNN_TRY(dfgnn__get_integer(s, &h->edges, "the number of edges"));
  if (!at_end(s))
    DFGNN_TRY(dfgnn__get_integer(s, &format, "a format such as 011"));
  if (!at_end(s))
    DFGNN_TRY(dfgnn__get_integer(s, &weights, "the number of node weights"));
  if (!at_end(s))
    return dfgnn__scan_fail(s, "the end of the line");
  if (h->nodes < 0 || h->nodes > INT32_MAX)
    return out_of_range(s, "nodes", h->nodes, 0, INT32_MAX);
  if (h->edges < 0 || h->edges > INT64_MAX / 2)
    return out_of_range(s, "edges", h->edges, 0, INT64_MAX / 2);
  int64_t sizes = format / 100, nodes = format / 10 % 10, edges = format % 10;
  if (format < 0 || sizes > 1 || nodes > 1 || edges > 1)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: line %lld: found the format %lld, expected three "
                       "digits 0 or 1",
                       s->path, (long long)s->line, (long long)format);
  if (weights < 0 || weights > 1024)
    return out_of_range(s, "node weights", weights, 0, 1024);
  h->before = sizes + (nodes ? weights : 0);
  h->weighted = (int)edges;
  dfgnn__skip_line(s);
  return s->status;
}

static dfgnn_status read_node(dfgnn__scanner *s, const header *h, int32_t node,
                              dfgnn__edges *edges) {
  dfgnn_status status = DFGNN_OK;
  skip_comments(s);
  if (dfgnn__peek(s) < 0)
    return s->status || !h->before
               ? s->status
               : dfgnn__fail(DFGNN_ERROR_FORMAT,
                             "%s: found the end of the file after %lld "
                             "nodes, expected %lld",
                             s->path, (long long)node, (long long)h->nodes);
  for (int64_t k = 0; k < h->before && !status; k++)
    status = dfgnn__skip_number(s, "a size or weight of the node");
  while (!status && !at_end(s)) {
    int64_t j;
    status = dfgnn__get_integer(s, &j, "a neighbour, a whole number from 1");
    if (!status && (j < 1 || j > h->nodes))
      status = out_of_range(s, "neighbour", j, 1, h->nodes);
    if (!status && h->weighted)
      status = dfgnn__skip_number(s, "the weight of an edge");
    if (!status)
      status = dfgnn__edges_add(edges, node, (int32_t)(j - 1));
  }
  dfgnn__skip_line(s);
  return status ? status : s->status;
}

static int has_edge(const dfgnn__parts *parts, int64_t from, int64_t to) {
  int64_t low = parts->offsets[from], high = parts->offsets[from + 1];
  while (low < high) { /* rows are sorted */
    int64_t middle = low + (high - low) / 2;
    if (parts->indices[middle] < to)
      low = middle + 1;
    else
      high = middle;
  }
  return low < parts->offsets[from + 1] && parts->indices[low] == to;
}

/* Each edge of an undirected graph stands in the lines of both its ends. */
static dfgnn_status check_symmetric(const dfgnn__parts *parts,
                                    const char *path) {
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = csr.sources = parts->destinations;
  csr.edges = parts->edges;
  csr.offsets = parts->offsets;
  csr.indices = parts->indices;
  csr.offset_type = DFGNN_INDEX_I64;
  int symmetric = dfgnn__csr_symmetric(&csr);
  if (symmetric)
    return symmetric < 0 ? (dfgnn_status)symmetric : DFGNN_OK;
  for (int64_t i = 0; i < parts->destinations; i++)
    for (int64_t e = parts->offsets[i]; e < parts->offsets[i + 1]; e++)
      if (!has_edge(parts, parts->indices[e], i))
        return dfgnn__fail(DFGNN_ERROR_FORMAT,
                           "%s: found node %d among the neighbours of node "
                           "%lld, but not the other way, expected an "
                           "undirected graph",
                           path, parts->indices[e] + 1, (long long)i + 1);
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found an edge more often in the line of one of its "
                     "ends than of the other, expected an undirected graph",
                     path);
}

dfgnn_status dfgnn__read_metis(dfgnn__parts *parts, const char *path) {
  dfgnn__scanner s;
  dfgnn__edges edges = {0};
  header h = {0};
  DFGNN_TRY(dfgnn__scanner_open(&s, path));
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_header(&s, &h));
  DFGNN_GO(dfgnn__limit_sizes(path, h.nodes, h.nodes, s.limit));
  for (int64_t i = 0; i < h.nodes && !status; i++)
    status = read_node(&s, &h, (int32_t)i, &edges);
  if (status)
    goto out;
  int c;
  while ((c = dfgnn__skip_blanks(&s)) == '\n' || c == '%')
    dfgnn__skip_line(&s);
  if (c >= 0 || s.status)
    DFGNN_GO(dfgnn__scan_fail(&s, "the end of the file: all nodes are read"));
  if (edges.count != 2 * h.edges)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld neighbours, expected %lld, twice the "
                         "edges of the first line",
                         path, (long long)edges.count,
                         (long long)(2 * h.edges)));
  status = dfgnn__edges_compress(parts, &edges, h.nodes, h.nodes);
  if (!status && (status = check_symmetric(parts, path)))
    dfgnn__parts_free(parts);
out:
  dfgnn__edges_free(&edges);
  dfgnn__scanner_close(&s);
  return status;
}

int dfgnn__is_metis(const char *path, const void *data) {
  dfgnn__scanner s;
  (void)data;
  if (dfgnn__scanner_open(&s, path))
    return 0;
  int c = dfgnn__peek(&s);
  dfgnn__scanner_close(&s);
  return c == '%' || (c >= '0' && c <= '9');
}

dfgnn_status dfgnn__write_metis(const dfgnn_csr *csr, const char *path,
                                const char *temporary) {
  int symmetric =
      csr->destinations == csr->sources ? dfgnn__csr_symmetric(csr) : 0;
  if (symmetric < 0)
    return (dfgnn_status)symmetric;
  if (!symmetric || csr->edges % 2)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found a graph that is %s, expected an undirected "
                       "one in a .graph file",
                       path,
                       symmetric ? "odd in its self loops" : "not symmetric");
  dfgnn__writer w;
  DFGNN_TRY(dfgnn__writer_open(&w, path, temporary));
  dfgnn__put_integer(&w, csr->destinations, ' ');
  dfgnn__put_integer(&w, csr->edges / 2, '\n');
  for (int64_t i = 0; i < csr->destinations; i++) {
    int64_t end = dfgnn__csr_offset(csr, i + 1);
    for (int64_t e = dfgnn__csr_offset(csr, i); e < end; e++)
      dfgnn__put_integer(&w, dfgnn__csr_index(csr, e) + 1,
                         e + 1 < end ? ' ' : '\n');
    if (end == dfgnn__csr_offset(csr, i))
      dfgnn__put_text(&w, "\n");
  }
  return dfgnn__writer_close(&w);
}
