/* inputs.h - the graphs, devices and problems that the options ask for */
#ifndef DFGNN_TOOLS_INPUTS_H
#define DFGNN_TOOLS_INPUTS_H

#include "lib/context.h"
#include "tools/common.h"

/* The contents of a recording about a graph: its problems, which take the place
 * of those that the options ask for. */
typedef struct tool_recorded {
  dfgnn_problem *problem; /* [count]; NULL: the options' */
  size_t count;
  char *label, *family; /* NULL or "": the file's */
} tool_recorded;

typedef struct tool_graph {
  char *name;
  int listed; /* found in a directory, so may be no graph */
  int line;   /* of the job that names it; 0: none does */
  tool_recorded recorded;
} tool_graph;

/* Graph operands with globs and directories expanded, in order. */
typedef struct tool_graphs {
  size_t count;
  tool_graph *graph;
  const char *job; /* the file that is read, and the line: errors name them */
  int line;
} tool_graphs;

/* The fingerprint of a graph.  Returns an exit status. */
int tool_fingerprint(uint64_t *fingerprint, const char *graph_name);

/* Adds a file by its name alone. */
int tool_graphs_push(tool_graphs *graphs, const char *name);
int tool_graphs_add(tool_graphs *graphs, const char *operand);
int tool_graphs_all(tool_graphs *graphs, int count, char **operands);
void tool_graphs_free(tool_graphs *graphs);
/* The label of "path/to/cora.npz" is "cora"; that of a generator's
 * specification is the specification. */
void tool_graph_label(char *label, size_t size, const char *name);

#define TOOL_MAX_DEVICES 16

/* A context for each device asked for. */
typedef struct tool_contexts {
  int count;
  dfgnn_context *ctx[TOOL_MAX_DEVICES];
  dfgnn_device_info info[TOOL_MAX_DEVICES];
} tool_contexts;

int tool_contexts_open(tool_contexts *contexts, const tool_settings *settings);
void tool_contexts_close(tool_contexts *contexts);

/* The product of the lists; NULL with a message if the library has no such
 * operator and pass. */
dfgnn_problem *tool_problems(size_t *count, const tool_settings *settings);

/* "gt forward f32 8x16", for messages. */
void tool_problem_text(char *text, size_t size, const dfgnn_problem *problem);

/* Calls each(data, ...) for every graph, device and problem until it returns
 * non-zero; graphs that cannot be read are reported and skipped, and are no
 * failure if a directory listed them beside ones that can.  Returns the first
 * non-zero exit status. */
typedef struct tool_case {
  size_t index, total; /* among all cases */
  const char *label;   /* the graph's */
  const dfgnn_csr *csr;
  dfgnn_context *ctx;
  const dfgnn_device_info *info;
  dfgnn_graph *graph;
  const dfgnn_problem *problem;
} tool_case;
typedef int (*tool_case_function)(void *data, const tool_case *each);
int tool_each(const tool_settings *settings, const tool_graphs *graphs,
              tool_case_function each, void *data);

/* Does as tool_each, but does not read graphs of which no case is wanted. */
typedef int (*tool_case_wanted)(void *data, size_t index);
int tool_each_wanted(const tool_settings *settings, const tool_graphs *graphs,
                     tool_case_wanted wanted, tool_case_function each,
                     void *data);

#endif
