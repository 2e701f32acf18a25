/* tune_program.c - dfgnn-tune program: checks and times an edge program */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "kernels/common/half.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/graph.h"
#include "tools/inputs.h"
#include "tools/programs.h"
#include "tools/report.h"
#include "tools/tune.h"

enum { REPEATS = 7 };

/* A program with a tensor for each input and output. */
typedef struct bound {
  const dfgnn_edge_program *program;
  dfgnn_edge_tensor inputs[DFGNN_DAG_INPUTS], outputs[DFGNN_DAG_OUTPUTS];
  int input_count, output_count;
} bound;

static void fill(void *data, dfgnn_dtype dtype, int64_t count, uint64_t seed) {
  uint64_t state = seed;
  for (int64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float x = (float)(state >> 40) / (1 << 23) - 1;
    if (dtype == DFGNN_F64)
      ((double *)data)[i] = x;
    else if (dtype == DFGNN_F32)
      ((float *)data)[i] = x;
    else
      ((uint16_t *)data)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_float(x)
                                                 : dfgnn__bf16_from_float(x);
  }
}

static dfgnn_status make_tensor(dfgnn_edge_tensor *tensor,
                                const dfgnn_port *port,
                                const dfgnn_binding *binding, dfgnn_dtype dtype,
                                uint64_t seed) {
  const dfgnn_extent extent = dfgnn__bind_port(port, binding);
  const int64_t count = extent.all * binding->counts[port->place];
  if (port->kept && dtype != DFGNN_F64)
    dtype = DFGNN_F32;
  *tensor = (dfgnn_edge_tensor){
      .name = port->name, .dtype = dtype, .rank = port->rank};
  for (int k = 0; k < port->rank; k++)
    tensor->axes[k] = extent.axis[DFGNN_DAG_AXES - port->rank + k];
  tensor->data = calloc((size_t)count + 1, dfgnn_dtype_size(dtype));
  if (!tensor->data)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %s", port->name);
  if (seed)
    fill(tensor->data, dtype, count, seed);
  return DFGNN_OK;
}

static dfgnn_status bind(bound *b, const dfgnn_edge_program *program,
                         const dfgnn_binding *binding, dfgnn_dtype dtype) {
  const dfgnn_dag *dag = program->dag;
  dfgnn_status status = DFGNN_OK;
  *b = (bound){.program = program};
  for (int i = 0; !status && i < dag->input_count; i++, b->input_count++)
    status = make_tensor(&b->inputs[i], &dag->inputs[i], binding, dtype,
                         (uint64_t)i + 1);
  for (int i = 0; !status && i < dag->output_count; i++, b->output_count++)
    status = make_tensor(&b->outputs[i], &dag->outputs[i], binding, dtype, 0);
  return status;
}

static void unbind(bound *b) {
  for (int i = 0; i < b->input_count; i++)
    free(b->inputs[i].data);
  for (int i = 0; i < b->output_count; i++)
    free(b->outputs[i].data);
}

/* Puts what forward has read and written where its gradient reads it. */
static void hand_over(bound *gradient, const bound *forward) {
  for (int i = 0; i < gradient->input_count; i++) {
    const dfgnn_port *port = &gradient->program->dag->inputs[i];
    const dfgnn_edge_tensor *from =
        port->role == DFGNN_PORT_INPUT    ? &forward->inputs[port->of]
        : port->role == DFGNN_PORT_OUTPUT ? &forward->outputs[port->of]
                                          : NULL;
    if (!from)
      continue;
    dfgnn_edge_tensor *to = &gradient->inputs[i];
    void *replaced = to->data;
    to->data = from->data; /* lent, and taken back by take_back() */
    to->dtype = from->dtype;
    free(replaced);
  }
}

static void take_back(bound *gradient) {
  for (int i = 0; i < gradient->input_count; i++) {
    dfgnn_port_role role = gradient->program->dag->inputs[i].role;
    if (role == DFGNN_PORT_INPUT || role == DFGNN_PORT_OUTPUT)
      gradient->inputs[i].data = NULL;
  }
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Adds a row: the program's walks, its largest error in bounds, its time. */
static dfgnn_status measure(json_t *rows, const char *label, const char *pass,
                            const bound *b, dfgnn_graph *graph) {
  double times[REPEATS], worst;
  int where = 0, over_rows, over_columns;
  char hash[17];
  dfgnn_status status =
      dfgnn_edge_program_check(&worst, &where, b->program, graph, b->inputs,
                               b->input_count, b->outputs, b->output_count, 1);
  for (int i = 0; !status && i < REPEATS; i++) {
    double begin = seconds();
    status =
        dfgnn_edge_program_execute(b->program, graph, b->inputs, b->input_count,
                                   b->outputs, b->output_count, 1, NULL);
    times[i] = 1e3 * (seconds() - begin);
  }
  if (status)
    return status;
  qsort(times, REPEATS, sizeof *times, by_size);
  dfgnn_edge_program_walks(&over_rows, &over_columns, b->program);
  snprintf(hash, sizeof hash, "%016llx",
           (unsigned long long)dfgnn_edge_program_hash(b->program));
  json_t *row = json_object();
  tool_put(row, "graph", label);
  tool_put(row, "program", hash);
  tool_put(row, "pass", pass);
  tool_put_count(row, "rows", over_rows);
  tool_put_count(row, "columns", over_columns);
  tool_put_number(row, "ms", times[REPEATS / 2]);
  tool_put_number(row, "error", worst);
  tool_put_flag(row, "right", worst <= 1);
  json_array_append_new(rows, row);
  if (worst > 1)
    return dfgnn__fail(DFGNN_ERROR_WRONG,
                       "%s, %s: %s is %g bounds off the evaluation in double",
                       label, pass, b->outputs[where].name, worst);
  return DFGNN_OK;
}

static dfgnn_status both_passes(json_t *rows, const char *label,
                                const dfgnn_edge_program *program,
                                dfgnn_graph *graph,
                                const dfgnn_binding *binding,
                                dfgnn_dtype dtype) {
  dfgnn_edge_program *kept = NULL, *gradient = NULL;
  unsigned char own[DFGNN_DAG_OUTPUTS] = {0};
  bound forward = {0}, backward = {0};
  memset(own, 1, (size_t)program->dag->output_count);
  dfgnn_status status = dfgnn_edge_program_keep(&kept, program, NULL, NULL);
  if (!status)
    status = dfgnn_edge_program_gradient(&gradient, kept, own, NULL);
  if (!status)
    status = bind(&forward, kept, binding, dtype);
  if (!status)
    status = measure(rows, label, "forward", &forward, graph);
  if (!status)
    status = bind(&backward, gradient, binding, dtype);
  if (!status) {
    hand_over(&backward, &forward);
    status = measure(rows, label, "backward", &backward, graph);
    take_back(&backward);
  }
  unbind(&backward);
  unbind(&forward);
  dfgnn_edge_program_destroy(gradient);
  dfgnn_edge_program_destroy(kept);
  return status;
}

static dfgnn_status on_graph(json_t *rows, const tool_settings *s,
                             dfgnn_context *ctx,
                             const dfgnn_edge_program *program,
                             const char *name) {
  dfgnn_csr *csr = NULL;
  dfgnn_graph *graph = NULL;
  char label[256];
  dfgnn_status status = dfgnn__csr_open(&csr, name);
  if (status)
    return status;
  tool_graph_label(label, sizeof label, name);
  dfgnn_binding binding = {0};
  for (int i = 0; i < program->dag->name_count; i++)
    binding.names[i] =
        strcmp(program->dag->names[i], "H") ? s->dim[0] : s->heads[0];
  status = dfgnn_graph_create_csr(&graph, ctx, csr, NULL);
  if (!status)
    status = tool_program_relate(graph, program);
  if (!status)
    dfgnn__program_counts(binding.counts, &graph->matrix);
  if (!status)
    status = both_passes(rows, label, program, graph, &binding, s->dtype[0]);
  dfgnn_graph_destroy(graph);
  dfgnn_csr_free(csr);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {
      {"graph", "GRAPH", TOOL_TEXT},      {"program", "PROGRAM", TOOL_TEXT},
      {"pass", "PASS", TOOL_TEXT},        {"rows", "ROWS", TOOL_COUNT},
      {"columns", "COLUMNS", TOOL_COUNT}, {"ms", "TIME", TOOL_MS},
      {"right", "RIGHT", TOOL_FLAG},      {NULL, NULL, 0}};
  dfgnn_options options = {.struct_size = sizeof options,
                           .device = "cpu",
                           .store = "",
                           .threads = settings->threads};
  dfgnn_edge_program *program = NULL;
  dfgnn_context *ctx = NULL;
  tool_graphs graphs = {0};
  int failed = TOOL_DONE, status = TOOL_DONE;
  dfgnn_status bad = tool_program_read(&program, operands[0]);
  if (!bad)
    bad = dfgnn_context_create(&ctx, &options);
  if (bad)
    return tool_fail(bad);
  json_t *rows = json_array();
  if (!settings->quiet && !settings->json)
    fputs(dfgnn_edge_program_text(program), stdout);
  status = tool_graphs_all(&graphs, count - 1, operands + 1);
  for (size_t i = 0; !status && i < graphs.count; i++)
    if ((bad = on_graph(rows, settings, ctx, program, graphs.name[i])))
      failed = tool_fail(bad);
  if (settings->json || json_array_size(rows))
    status = tool_report(settings, json_incref(rows), columns);
  json_decref(rows);
  tool_graphs_free(&graphs);
  dfgnn_edge_program_destroy(program);
  dfgnn_context_destroy(ctx);
  return failed ? failed : status;
}

const tool_command tune_program = {
    .name = "program",
    .operands = "FILE GRAPH...",
    .least = 2,
    .most = -1,
    .summary = "Check and time an edge program and its gradient",
    .text =
        "Prints the normal form of the program in FILE (dfgnn-program(5)), "
        "runs "
        "it and its gradient on random tensors on each graph, on the CPU, "
        "compares both with an evaluation in double and its error bound, and "
        "shows their walks over the graph and the median of 7 times. Sizes "
        "that are names have the value of --dim, H that of --heads; edges have "
        "one of 8 relations. The comparison takes memory for every value of "
        "every edge.",
    .options = HAS(DIM) | HAS(HEADS) | HAS(DTYPE) | HAS(THREADS) | HAS_ALWAYS,
    .main = command};
