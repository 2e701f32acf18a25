/* recorded.c - the problems that a step of a model met */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/recorded.h"
#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "tools/jsonl.h"
#include "tools/mlps.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
  tool_recorded *recorded = &r->graphs->recorded[r->graphs->count - 1];
  recorded->label = strdup(text_of(graph, "name"));
  recorded->family = strdup(text_of(graph, "family"));
  return recorded->label && recorded->family ? TOOL_DONE
                                             : tool_error("out of memory");
}

static int add_problem(const recording *r, size_t k, const json_t *item) {
  const json_t *number = json_object_get(item, "graph");
  const json_int_t graph = json_integer_value(number);
  const size_t graphs = r->graphs->count - r->first;
  dfgnn_measurement row;
  dfgnn_problem named, problem;
  if (!json_is_integer(number) || graph < 0 || (size_t)graph >= graphs)
    return tool_error("%s: problem %zu: 'graph' must be a number from 0 to "
                      "%zu",
                      r->path, k, graphs - 1);
  dfgnn_status status =
      tool_problem_parse(&row, json_object_get(item, "problem"));
  if (!status)
    status = tool_mlp_name(&row);
  if (!status)
    status = dfgnn__key_problem(&named, &row);
  named.cold = r->settings->cold;
  named.effort = r->settings->effort;
  if (!status)
    status = dfgnn__problem_complete(&problem, &named);
  if (status)
    return tool_error("%s: problem %zu: %s", r->path, k, dfgnn_last_error());
  tool_recorded *recorded = &r->graphs->recorded[r->first + (size_t)graph];
  dfgnn_problem *grown =
      realloc(recorded->problem, (recorded->count + 1) * sizeof *grown);
  if (!grown)
    return tool_error("out of memory");
  recorded->problem = grown;
  recorded->problem[recorded->count++] = named;
  return TOOL_DONE;
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
      status = add_problem(r, k, item);
  }
  return status;
}

int tool_recorded_read(tool_graphs *graphs, const tool_settings *settings,
                       const char *path) {
  struct stat info;
  json_error_t error;
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
  int status;
  if (!stat(file, &info) && info.st_size > MOST_BYTES)
    status = tool_error("%s: found %lld bytes, expected at most %d", file,
                        (long long)info.st_size, MOST_BYTES);
  else {
    json_t *root = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    status = root ? read_all(&r, root)
                  : tool_error("%s: line %d: %s", file, error.line, error.text);
    json_decref(root);
  }
  free(file);
  return status;
}
