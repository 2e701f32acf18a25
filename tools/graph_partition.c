/* graph_partition.c - dfgnn-graph partition: a graph divided among ranks */
#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tools/graph.h"
#include "tools/inputs.h"
#include "tools/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Features of a node in the report's memory: one f32 tensor of this width. */
enum { WIDTH = 128 };

/* Reads a line's number, the part of node *node, if the line has something. */
static dfgnn_status read_line(int32_t *owner, int64_t *node,
                              const dfgnn_csr *csr, int parts, char *line,
                              const char *path, long long number) {
  char *end;
  line[strcspn(line, "\r\n")] = 0;
  if (!line[strspn(line, " \t")])
    return DFGNN_OK;
  errno = 0;
  const long long part = strtoll(line, &end, 10);
  if (end == line || end[strspn(end, " \t")] || errno || part < 0 ||
      part >= parts)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: line %lld: found '%.40s', expected a part, 0..%d",
                       path, number, line, parts - 1);
  if (*node == csr->destinations)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: line %lld: found one more number, expected %lld, "
                       "one a node",
                       path, number, (long long)csr->destinations);
  owner[(*node)++] = (int32_t)part;
  return DFGNN_OK;
}

/* Reads the part of each node, one number per line, as gpmetis writes it. */
static dfgnn_status read_owner(int32_t *owner, const dfgnn_csr *csr, int parts,
                               const char *path) {
  FILE *in;
  char *line = NULL;
  size_t room = 0;
  int64_t node = 0;
  DFGNN_TRY(dfgnn__file_or_pipe_stream(&in, path, "the parts of nodes"));
  dfgnn_status status = DFGNN_OK;
  for (long long n = 1; !status && getline(&line, &room, in) > 0; n++)
    status = read_line(owner, &node, csr, parts, line, path, n);
  if (!status && node < csr->destinations)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld numbers, expected the part of each "
                         "of %lld nodes",
                         path, (long long)node, (long long)csr->destinations);
  free(line);
  fclose(in);
  return status;
}

static dfgnn_status find_owner(int32_t *owner, const dfgnn_csr *csr, int parts,
                               const char *by) {
  dfgnn_partitioning how = DFGNN_PARTITION_METIS;
  if (!by || !dfgnn_parse((int *)&how, DFGNN_NAMES_PARTITIONING, by))
    return dfgnn_csr_partition(owner, csr, parts, how);
  const dfgnn_status status = read_owner(owner, csr, parts, by);
  return status ? dfgnn__fail_prefix(
                      status, "--by is neither metis nor range, but a file: ")
                : DFGNN_OK;
}

/* The bytes of both matrices of a part with their transposes, and of a tensor.
 */
static int64_t memory_of(const dfgnn_part *p) {
  return 2 * 4 * p->edges + 8 * (2 * p->nodes + p->boundary + p->halo) +
         4 * WIDTH * (p->nodes + p->halo);
}

static json_t *row_of(const char *label, const dfgnn_part *p) {
  json_t *row = json_object();
  double mean = (double)p->total_edges / p->parts;
  tool_put(row, "graph", label);
  tool_put_count(row, "part", p->rank);
  tool_put_count(row, "nodes", p->nodes);
  tool_put_count(row, "edges", p->edges);
  tool_put_count(row, "cut", p->cut);
  tool_put_number(row, "cut_share",
                  p->edges ? (double)p->cut / (double)p->edges : 0);
  tool_put_count(row, "boundary", p->boundary);
  tool_put_count(row, "halo", p->halo);
  tool_put_count(row, "sends", p->sends);
  tool_put_number(row, "balance", mean > 0 ? (double)p->edges / mean : 1);
  tool_put_count(row, "bytes", memory_of(p));
  return row;
}

static const tool_column columns[] = {{"part", "PART", TOOL_COUNT},
                                      {"nodes", "NODES", TOOL_COUNT},
                                      {"edges", "EDGES", TOOL_COUNT},
                                      {"cut_share", "CUT", TOOL_SHARE},
                                      {"halo", "HALO", TOOL_COUNT},
                                      {"sends", "SENDS", TOOL_COUNT},
                                      {"balance", "BALANCE", TOOL_TIMES},
                                      {"bytes", "MEMORY", TOOL_BYTES},
                                      {NULL, NULL, TOOL_TEXT}};

static dfgnn_status write_parts(json_t *rows, const char *label,
                                const dfgnn_csr *csr, const int32_t *owner,
                                int parts, const char *folder) {
  if (mkdir(folder, 0777) && errno != EEXIST)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", folder, strerror(errno));
  for (int r = 0; r < parts; r++) {
    char path[4096];
    dfgnn_part *part;
    if (snprintf(path, sizeof path, "%s/part-%d-of-%d.npz", folder, r, parts) >=
        (int)sizeof path)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "%s: the name is too long",
                         folder);
    dfgnn_status status = dfgnn_part_create(&part, csr, owner, parts, r);
    if (!status)
      status = dfgnn_part_write(part, path);
    else
      return status;
    json_array_append_new(rows, row_of(label, part));
    dfgnn_part_free(part);
    if (status)
      return status;
  }
  return DFGNN_OK;
}

/* Reads a number of parts; 0 if the text is none. */
static int parts_of(const char *text) {
  char *end;
  long parts = strtol(text, &end, 10);
  return *end || parts < 1 || parts > DFGNN_PARTS_MAX ? 0 : (int)parts;
}

static void say_peak(const tool_settings *settings, const dfgnn_csr *csr) {
  struct rusage usage;
  double graph =
      8.0 * (double)(csr->destinations + 1) +
      (csr->index_type == DFGNN_INDEX_I32 ? 4.0 : 8.0) * (double)csr->edges;
  if (getrusage(RUSAGE_SELF, &usage))
    return;
  tool_note(settings, "the graph takes %.3g MB, the process took %.3g MB",
            graph / 1e6, (double)usage.ru_maxrss * 1024 / 1e6);
}

int graph_partition(tool_settings *settings, int count, char **operands) {
  (void)count;
  char label[256];
  int parts = parts_of(operands[1]), code = TOOL_DONE;
  dfgnn_csr *csr;
  if (!parts)
    return tool_usage("found '%s', expected a number of parts, 1..%d",
                      operands[1], DFGNN_PARTS_MAX);
  dfgnn_status status = dfgnn__csr_open(&csr, operands[0]);
  if (status)
    return graph_fail(status);
  tool_graph_label(label, sizeof label, operands[0]);
  json_t *rows = json_array();
  int32_t *owner = malloc(((size_t)csr->destinations + 1) * sizeof *owner);
  status = owner ? find_owner(owner, csr, parts, settings->by)
                 : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status)
    status = write_parts(rows, label, csr, owner, parts, operands[2]);
  if (status) {
    code = graph_fail(status);
  } else {
    say_peak(settings, csr);
    code = tool_report(settings, json_incref(rows), columns);
  }
  json_decref(rows);
  free(owner);
  dfgnn_csr_free(csr);
  return code;
}
