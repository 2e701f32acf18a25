/* recorded.c - the problems that a step of a model met, or that processes with
 * DFGNN_RECORD found unmeasured */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/recorded.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "tools/jsonl.h"
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, MOST_BYTES = 1 << 26 };

typedef struct recording {
  const char *path; /* of recording.json */
  size_t folder;    /* length of its folder's name, with the slash */
  const tool_settings *settings;
  tool_graphs *graphs;
  size_t first; /* graphs that were there before */
} recording;

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* A graph's file stands beside recording.json. */
static int add_graph(const recording *r, size_t k, const json_t *graph) {
  const char *file = text_of(graph, "file");
  char *path;
  if (!*file || strchr(file, '/') || !strcmp(file, ".."))
    return tool_error("%s: graph %zu: found the file '%s', expected the name "
                      "of one beside it",
                      r->path, k, file);
  if (asprintf(&path, "%.*s%s", (int)r->folder, r->path, file) < 0)
    return tool_error("out of memory");
  int status = tool_graphs_push(r->graphs, path);
  free(path);
  if (status)
    return status;
  tool_recorded *recorded = &r->graphs->graph[r->graphs->count - 1].recorded;
  recorded->label = strdup(text_of(graph, "name"));
  recorded->family = strdup(text_of(graph, "family"));
  return recorded->label && recorded->family ? TOOL_DONE
                                             : tool_error("out of memory");
}

/* The padding of complete problems is zero, so their bytes can be compared. */
static int is_listed(const tool_recorded *recorded,
                     const dfgnn_problem *problem) {
  for (size_t i = 0; i < recorded->count; i++)
    if (!memcmp(&recorded->problem[i], problem, sizeof *problem))
      return 1;
  return 0;
}

/* Adds the problem of an item, the k-th of a file, to a graph that has not got
 * it yet. */
static int add_problem(const recording *r, size_t k, const json_t *item,
                       size_t graph) {
  dfgnn_measurement row;
  dfgnn_problem named, problem;
  dfgnn_status status =
      tool_problem_parse(&row, json_object_get(item, "problem"));
  if (!status)
    status = dfgnn__key_problem(&named, &row);
  named.cold = r->settings->cold;
  named.effort = r->settings->effort;
  if (!status)
    status = dfgnn__problem_complete(&problem, &named);
  if (status)
    return tool_error("%s: problem %zu: %s", r->path, k, dfgnn_last_error());
  tool_recorded *recorded = &r->graphs->graph[graph].recorded;
  if (is_listed(recorded, &problem))
    return TOOL_DONE;
  dfgnn_problem *grown =
      realloc(recorded->problem, (recorded->count + 1) * sizeof *grown);
  if (!grown)
    return tool_error("out of memory");
  recorded->problem = grown;
  recorded->problem[recorded->count++] = problem;
  return TOOL_DONE;
}

/* ---- recording.json ------------------------------------------------------ */

static int add_numbered(const recording *r, size_t k, const json_t *item) {
  const json_t *number = json_object_get(item, "graph");
  const json_int_t graph = json_integer_value(number);
  const size_t graphs = r->graphs->count - r->first;
  if (!json_is_integer(number) || graph < 0 || (size_t)graph >= graphs)
    return tool_error("%s: problem %zu: 'graph' must be a number from 0 to "
                      "%zu",
                      r->path, k, graphs - 1);
  return add_problem(r, k, item, r->first + (size_t)graph);
}

static int read_all(const recording *r, const json_t *root) {
  const json_t *graphs = json_object_get(root, "graphs");
  const json_t *problems = json_object_get(root, "problems"), *item;
  size_t k;
  int status = TOOL_DONE;
  if (json_integer_value(json_object_get(root, "dfgnn_recording")) != FORMAT ||
      !json_array_size(graphs) || !json_array_size(problems))
    return tool_error("%s: found no recording of format %d, which "
                      "dfgnn.record(model, *inputs).save(folder) of Python "
                      "makes",
                      r->path, FORMAT);
  json_array_foreach(graphs, k, item) {
    if (!status)
      status = add_graph(r, k, item);
  }
  json_array_foreach(problems, k, item) {
    if (!status)
      status = add_numbered(r, k, item);
  }
  return status;
}

/* Reads the recording that Python saved. */
static int read_saved(const recording *r) {
  struct stat info;
  json_error_t error;
  FILE *file;
  if (dfgnn__file_or_pipe_stream(&file, r->path, "a recording"))
    return tool_error("%s", dfgnn_last_error());
  if (!fstat(fileno(file), &info) && info.st_size > MOST_BYTES) {
    fclose(file);
    return tool_error("%s: found %lld bytes, expected at most %d", r->path,
                      (long long)info.st_size, MOST_BYTES);
  }
  json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
  fclose(file);
  int status =
      root ? read_all(r, root)
           : tool_error("%s: line %d: %s", r->path, error.line, error.text);
  json_decref(root);
  return status;
}

/* ---- the lines of processes with DFGNN_RECORD ---------------------------- */

/* The graph of a line's file; it is added if no line before had it. */
static int find_graph(size_t *graph, const recording *r, size_t line,
                      const json_t *item) {
  const char *file = text_of(item, "file");
  const size_t length = strlen(file);
  for (*graph = r->first; *graph < r->graphs->count; ++*graph) {
    const char *name = r->graphs->graph[*graph].name;
    const size_t whole = strlen(name);
    if (whole == r->folder + length && !strcmp(name + r->folder, file))
      return TOOL_DONE;
  }
  return add_graph(r, line, item);
}

/* A process that was killed may leave half a line at the end. */
static int read_lines(const recording *r) {
  FILE *file;
  char *text = NULL;
  size_t room = 0, line = 0, graph = 0;
  int status = TOOL_DONE;
  if (dfgnn__file_or_pipe_stream(&file, r->path, "a recording"))
    return tool_error("%s", dfgnn_last_error());
  for (ssize_t n; !status && (n = getline(&text, &room, file)) > 0; line++) {
    json_error_t error;
    json_t *item = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (!item && text[n - 1] != '\n')
      break;
    status =
        item ? find_graph(&graph, r, line, item)
             : tool_error("%s: line %zu: %s", r->path, line + 1, error.text);
    if (!status)
      status = add_problem(r, line, item, graph);
    json_decref(item);
  }
  free(text);
  fclose(file);
  return status;
}

/* Reads the files of all processes, in the order of their names. */
static int read_folder(const recording *r, const char *folder) {
  glob_t found = {0};
  char *pattern;
  int status = TOOL_DONE;
  if (asprintf(&pattern, "%s/*.jsonl", folder) < 0)
    return tool_error("out of memory");
  if (glob(pattern, 0, NULL, &found) || !found.gl_pathc)
    status = tool_error("%s: found neither recording.json, which dfgnn.record("
                        "model, *inputs).save(folder) of Python makes, nor "
                        "*.jsonl, which processes with DFGNN_RECORD make",
                        folder);
  for (size_t i = 0; !status && i < found.gl_pathc; i++) {
    recording each = *r;
    each.path = found.gl_pathv[i];
    status = read_lines(&each);
  }
  globfree(&found);
  free(pattern);
  return status;
}

int tool_recorded_read(tool_graphs *graphs, const tool_settings *settings,
                       const char *path) {
  struct stat info;
  char *file;
  const int is_folder = !stat(path, &info) && S_ISDIR(info.st_mode);
  if (asprintf(&file, "%s%s", path, is_folder ? "/recording.json" : "") < 0)
    return tool_error("out of memory");
  const char *slash = strrchr(file, '/');
  const recording r = {.path = file,
                       .folder = slash ? (size_t)(slash + 1 - file) : 0,
                       .settings = settings,
                       .graphs = graphs,
                       .first = graphs->count};
  int status =
      is_folder && access(file, F_OK) ? read_folder(&r, path) : read_saved(&r);
  if (!status && graphs->count == r.first)
    status =
        tool_error("%s: found no problem, expected one that was met", path);
  free(file);
  return status;
}

int tool_recorded_check(const tool_settings *settings, int count) {
  const tool_option_set others =
      (HAS_PROBLEM & ~(HAS(DEVICE) | HAS(COLD) | HAS(NO_DETERMINISTIC))) |
      HAS(JOB);
  if (settings->recorded && (count || settings->given & others))
    return tool_usage("--recorded brings graphs and problems: found %s beside "
                      "it",
                      count ? "a GRAPH" : "options of problems");
  return TOOL_DONE;
}
