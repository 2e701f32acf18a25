/* xla_program.c - edge programs as custom calls of XLA
 *
 * The attribute `program` is a text and, for a program that is derived, the
 * steps of its derivation: lines "# gradient OUTPUTS INPUTS" or "# keep OUTPUTS
 * INPUTS" at its end, with a 1 or 0 for each.  So a compiled call means the
 * same in another process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/xla_call.h"

/* ---- programs by name ---------------------------------------------------- */

enum { MOST = 1024 }; /* programs that are kept; more are parsed each time */

typedef struct known {
  struct known *next;
  char *name;
  dfgnn_edge_program *program;
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *all;
static int count;

static const char step_mark[] = "\n# ";

/* Takes a word of 0s and 1s, one for each of `most` values. */
static dfgnn_status read_flags(unsigned char **flags, const char *word,
                               int most) {
  const size_t length = word ? strspn(word, "01") : 0;
  *flags = NULL;
  if (!word || word[length] || length != (size_t)most)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: a step of the program has \"%.60s\", "
                       "expected %d of 0 and 1",
                       word ? word : "", most);
  if (!(*flags = malloc(length + 1)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < length; i++)
    (*flags)[i] = word[i] == '1';
  return DFGNN_OK;
}

/* Replaces the program by what a step makes of it. */
static dfgnn_status derive(dfgnn_edge_program **program, char *step) {
  char *rest = step, *how = strsep(&rest, " "), *outputs = strsep(&rest, " "),
       *inputs = rest;
  unsigned char *present = NULL, *wanted = NULL;
  dfgnn_edge_program *made = NULL;
  dfgnn_status status = DFGNN_OK;
  const int is_gradient = !strcmp(how, "gradient");
  if (!is_gradient && strcmp(how, "keep"))
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "XLA call: a step of the program is \"%.60s\", "
                         "expected gradient or keep",
                         how);
  if (!status)
    status = read_flags(&present, outputs,
                        dfgnn_edge_program_output_count(*program));
  if (!status)
    status =
        read_flags(&wanted, inputs, dfgnn_edge_program_input_count(*program));
  if (!status)
    status = (is_gradient
                  ? dfgnn_edge_program_gradient
                  : dfgnn_edge_program_keep)(&made, *program, present, wanted);
  free(present);
  free(wanted);
  dfgnn_edge_program_destroy(*program);
  *program = made;
  return status;
}

static dfgnn_status make_program(dfgnn_edge_program **program,
                                 const char *name) {
  char *text = strdup(name), *next;
  *program = NULL;
  if (!text)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  char *step = strstr(text, step_mark);
  if (step)
    *step = 0;
  dfgnn_status status = dfgnn_edge_program_create(program, text);
  for (; step && !status; step = next) {
    step += strlen(step_mark);
    if ((next = strstr(step, step_mark)))
      *next = 0;
    status = derive(program, step);
  }
  free(text);
  return status;
}

static const known *find_known(const char *name) {
  for (const known *k = all; k; k = k->next)
    if (!strcmp(k->name, name))
      return k;
  return NULL;
}

/* Notes the program, if there is room for it. */
static void keep(const char *name, const dfgnn_edge_program *program) {
  known *k = count < MOST ? malloc(sizeof *k) : NULL;
  if (k && (k->name = strdup(name))) {
    k->program = dfgnn__edge_program_hold(program);
    k->next = all;
    all = k;
    count++;
  } else {
    free(k);
  }
}

/* The caller destroys the program. */
static dfgnn_status find_program(dfgnn_edge_program **program,
                                 const char *name) {
  pthread_mutex_lock(&lock);
  const known *found = find_known(name);
  if (found)
    *program = dfgnn__edge_program_hold(found->program);
  pthread_mutex_unlock(&lock);
  if (found)
    return DFGNN_OK;
  DFGNN_TRY(make_program(program, name));
  pthread_mutex_lock(&lock);
  if (!find_known(name))
    keep(name, *program);
  pthread_mutex_unlock(&lock);
  return DFGNN_OK;
}

/* ---- tensors ------------------------------------------------------------- */

typedef struct tensors {
  const dfgnn_csr *csr;
  const dfgnn_port *ports;
  int expected, count;
  dfgnn_edge_tensor *list;
} tensors;

static int dtype_of(const xla_buffer *buffer) {
  switch (buffer->type) {
  case XLA_F32:
    return DFGNN_F32;
  case XLA_F16:
    return DFGNN_F16;
  case XLA_BF16:
    return DFGNN_BF16;
  case XLA_F64:
    return DFGNN_F64;
  default:
    return -1;
  }
}

/* Edges beyond the last row are padding. */
static dfgnn_status check_rows(const dfgnn_port *port, int64_t rows,
                               const dfgnn_csr *csr) {
  const int of_edges = port->place == DFGNN_PLACE_EDGE;
  const int64_t expected = of_edges                         ? csr->edges
                           : port->place == DFGNN_PLACE_SRC ? csr->sources
                                                            : csr->destinations;
  if (of_edges ? rows < expected : rows != expected)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s has %lld rows, expected %lld%s",
                       port->name, (long long)rows, (long long)expected,
                       of_edges ? " at least" : "");
  return DFGNN_OK;
}

static dfgnn_status take_tensor(void *taker, const char *name,
                                const xla_buffer *buffer) {
  tensors *t = taker;
  const int place = dfgnn__dag_find(t->ports, t->expected, name);
  if (place < 0 || t->count == t->expected)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the program has no %.64s", name);
  const dfgnn_port *port = &t->ports[place];
  const int rows = port->place != DFGNN_PLACE_PARAM;
  const int64_t rank = buffer->rank - rows;
  const int dtype = dtype_of(buffer);
  if (dtype < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s is of type %d of XLA, expected a real "
                       "number",
                       name, buffer->type);
  if (rank < 0 || rank > DFGNN_DAG_AXES)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s has %lld axes, expected %d to %d", name,
                       (long long)buffer->rank, rows, rows + DFGNN_DAG_AXES);
  DFGNN_TRY(rows ? check_rows(port, buffer->dims[0], t->csr) : DFGNN_OK);
  dfgnn_edge_tensor *tensor = &t->list[t->count++];
  *tensor = (dfgnn_edge_tensor){.name = port->name,
                                .data = buffer->data,
                                .dtype = dtype,
                                .rank = (int)rank};
  for (int64_t k = 0; k < rank; k++)
    tensor->axes[k] = buffer->dims[rows + k];
  return DFGNN_OK;
}

/* ---- the call ------------------------------------------------------------ */

typedef struct execution {
  const dfgnn_edge_program *program;
  dfgnn_graph *graph;
  tensors inputs, outputs;
  dfgnn_args args; /* whose seed is in memory of the device */
  dfgnn_plan *plan;
  int64_t tf32; /* whether a program that is an operator may round to it */
} execution;

/* The third argument is two words of 32 bits, as JAX's keys are. */
static dfgnn_status take_seed(const uint64_t **seed, const dfgnn_xla *c) {
  const xla_buffers *arguments = &c->frame->arguments;
  const xla_buffer *words = arguments->count > 2 ? arguments->buffers[2] : NULL;
  if (!words || words->type != XLA_U32 || words->rank != 1 ||
      words->dims[0] != 2)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the third argument must be the seed, two "
                       "numbers of uint32");
  *seed = words->data;
  return DFGNN_OK;
}

static dfgnn_status execute(const void *subject, void *workspace,
                            void *stream) {
  const execution *x = subject;
  return dfgnn_execute(x->plan, &x->args, workspace, stream);
}

static dfgnn_status plan_and_execute(execution *x, const dfgnn_xla *c,
                                     int as_program) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_status status = dfgnn_edge_program_call(
      &problem, &x->args, x->program, x->graph, x->inputs.list, x->inputs.count,
      x->outputs.list, x->outputs.count, as_program);
  if (x->tf32 && problem.op != DFGNN_OP_PROGRAM)
    problem.math = DFGNN_MATH_TF32;
  if (!status)
    status = dfgnn_plan_create(&x->plan, c->ctx, x->graph, &problem);
  if (!status)
    status = dfgnn__xla_in_room(c, dfgnn_plan_workspace(x->plan), execute, x);
  dfgnn_plan_destroy(x->plan);
  x->plan = NULL;
  return status == DFGNN_ERROR_UNSUPPORTED && problem.op != DFGNN_OP_PROGRAM
             ? plan_and_execute(x, c, 1)
             : status;
}

static dfgnn_status run(execution *x, const dfgnn_xla *c) {
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__xla_each(c, "arguments", &c->frame->arguments, 3, take_tensor,
                           &x->inputs));
  DFGNN_GO(dfgnn__xla_each(c, "results", &c->frame->results, 0, take_tensor,
                           &x->outputs));
  DFGNN_GO(take_seed(&x->args.seed, c));
  DFGNN_GO(dfgnn__xla_integer(&x->tf32, c, "tf32"));
  DFGNN_GO(dfgnn_graph_create_csr(&x->graph, c->ctx, &c->csr, c->stream));
  status = plan_and_execute(x, c, 0);
out:
  dfgnn_graph_destroy_on(x->graph, c->stream);
  return status;
}

dfgnn_status dfgnn__xla_run_program(dfgnn_xla *c) {
  char *name;
  dfgnn_edge_program *program = NULL;
  dfgnn_status status = dfgnn__xla_text(&name, c, "program");
  if (!status)
    status = find_program(&program, name);
  free(name);
  if (status)
    return status;
  const dfgnn_dag *dag = program->lowered->dag;
  execution x = {.program = program,
                 .args = DFGNN_ARGS_INIT,
                 .inputs = {.csr = &c->csr,
                            .ports = dag->inputs,
                            .expected = dag->input_count},
                 .outputs = {.csr = &c->csr,
                             .ports = dag->outputs,
                             .expected = dag->output_count}};
  x.inputs.list = calloc((size_t)dag->input_count + 1, sizeof *x.inputs.list);
  x.outputs.list =
      calloc((size_t)dag->output_count + 1, sizeof *x.outputs.list);
  status = x.inputs.list && x.outputs.list
               ? run(&x, c)
               : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  free(x.inputs.list);
  free(x.outputs.list);
  dfgnn_edge_program_destroy(program);
  return status;
}
