#include "tools/programs.h"
#include "db/store.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/edge_program.h"
#include "lib/graph.h"
#include "lib/key.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PROBLEMS = 4096, MOST_PATH = 4096 };

/* The programs that are tuned for a text. */
typedef struct family {
  struct family *next;
  char *source; /* a file, or "--op NAME" */
  dfgnn_edge_program *plain, *kept, *gradient;
} family;

static family *families;

typedef struct list {
  const tool_settings *settings;
  dfgnn_problem *problems;
  size_t count;
} list;

/* Reads a program's file; messages begin with its name. */
static dfgnn_status read_program(dfgnn_edge_program **program,
                                 const char *path) {
  static char text[DFGNN_DAG_TEXT + 2];
  FILE *file;
  DFGNN_TRY(dfgnn__file_or_pipe_stream(&file, path, "a program"));
  size_t size = fread(text, 1, sizeof text - 1, file);
  const int error = ferror(file) ? errno : 0;
  fclose(file);
  if (error)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, strerror(error));
  text[size] = 0;
  if (memchr(text, 0, size))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: has a NUL, expected a text",
                       path);
  dfgnn_status status = dfgnn_edge_program_create(program, text);
  return status ? dfgnn__fail_prefix(status, "%s: ", path) : status;
}

static dfgnn_status derive(family *f) {
  unsigned char own[DFGNN_DAG_OUTPUTS] = {0};
  memset(own, 1, (size_t)f->plain->dag->output_count);
  dfgnn_status status = dfgnn_edge_program_keep(&f->kept, f->plain, own, NULL);
  if (!status)
    status = dfgnn_edge_program_gradient(&f->gradient, f->kept, own, NULL);
  return status ? dfgnn__fail_prefix(status, "%s: ", f->source) : status;
}

/* name: of a program, whose source is then no file. */
static dfgnn_status find(family **found, const char *source, const char *name) {
  for (family *f = families; f; f = f->next)
    if (!strcmp(f->source, source)) {
      *found = f;
      return DFGNN_OK;
    }
  family *f = calloc(1, sizeof *f);
  if (!f || !(f->source = strdup(source))) {
    free(f);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  dfgnn_status status = name ? dfgnn_edge_program_named(&f->plain, name)
                             : read_program(&f->plain, source);
  if (!status)
    status = derive(f);
  if (status) {
    dfgnn_edge_program_destroy(f->plain);
    dfgnn_edge_program_destroy(f->kept);
    free(f->source);
    free(f);
    return status;
  }
  f->next = families;
  families = f;
  *found = f;
  return DFGNN_OK;
}

/* The program that a problem has for --heads and --dim; it stays with the
 * program that it is made of. */
static dfgnn_status size_of(const dfgnn_edge_program **sized,
                            const dfgnn_edge_program *program, int64_t heads,
                            int64_t dim) {
  int64_t names[DFGNN_SIZE_NAMES] = {0};
  for (int i = 0; i < program->dag->name_count; i++)
    names[i] = strcmp(program->dag->names[i], "H") ? dim : heads;
  return dfgnn__edge_program_for(sized, program, names);
}

static int same(const dfgnn_problem *a, const dfgnn_problem *b) {
  dfgnn_measurement x = {0}, y = {0};
  dfgnn__key_fill(&x, a, 0);
  dfgnn__key_fill(&y, b, 0);
  return dfgnn__same_problem(&x, &y);
}

int tool_program_repeats(const dfgnn_problem *problems, size_t count,
                         const dfgnn_problem *problem) {
  for (size_t i = 0; i < count; i++)
    if (same(&problems[i], problem))
      return 1;
  return 0;
}

static dfgnn_status add(list *l, const dfgnn_edge_program *program,
                        dfgnn_dtype dtype, int64_t heads, int64_t dim) {
  const tool_settings *s = l->settings;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  const dfgnn_edge_program *sized;
  DFGNN_TRY(size_of(&sized, program, heads, dim));
  DFGNN_TRY(dfgnn_edge_program_problem(&problem, sized, dtype));
  problem.deterministic = s->deterministic;
  problem.cold = s->cold;
  problem.effort = s->effort;
  if (tool_program_repeats(l->problems, l->count, &problem))
    return DFGNN_OK;
  if (l->count == MOST_PROBLEMS)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "more than %d problems of programs",
                       MOST_PROBLEMS);
  l->problems[l->count++] = problem;
  return DFGNN_OK;
}

static dfgnn_status add_pass(list *l, const family *f, dfgnn_pass pass,
                             dfgnn_dtype dtype, int64_t heads, int64_t dim) {
  if (pass == DFGNN_PASS_FORWARD)
    return add(l, f->plain, dtype, heads, dim);
  dfgnn_status status = add(l, f->kept, dtype, heads, dim);
  return status ? status : add(l, f->gradient, dtype, heads, dim);
}

static int has_heads(const dfgnn_dag *dag) {
  int found = 0;
  for (int i = 0; i < dag->name_count; i++)
    found |= !strcmp(dag->names[i], "H");
  return found;
}

static dfgnn_status add_family(void *data, const family *f) {
  list *l = data;
  const tool_settings *s = l->settings;
  dfgnn_status status = DFGNN_OK;
  if (s->given & HAS(HEADS) && !has_heads(f->plain->dag))
    tool_note(s, "%s: the program has no size H, which --heads would be",
              f->source);
  for (int p = 0; p < s->pass_count; p++)
    for (int t = 0; !status && t < s->dtype_count; t++)
      for (int h = 0; !status && h < s->heads_count; h++)
        for (int d = 0; !status && d < s->dim_count; d++)
          if ((status = add_pass(l, f, s->pass[p], s->dtype[t], s->heads[h],
                                 s->dim[d])))
            dfgnn__fail_prefix(status, "%s: ", f->source);
  return status;
}

/* Does the action with each program that the settings name. */
static dfgnn_status each_family(const tool_settings *s,
                                dfgnn_status (*action)(void *, const family *),
                                void *data) {
  dfgnn_status status = DFGNN_OK;
  family *f = NULL;
  for (const char *p = s->program; p && !status && *p;) {
    char path[MOST_PATH];
    const size_t length = strcspn(p, ",");
    snprintf(path, sizeof path, "%.*s", (int)length, p);
    if (length && !(status = find(&f, path, NULL)))
      status = action(data, f);
    p += length + (p[length] == ',');
  }
  if (!status && s->program && !f)
    status = dfgnn__fail(DFGNN_ERROR_INVALID, "--program names no file");
  for (int i = 0; i < s->op_count && !s->program && !status; i++) {
    const char *name = tool_op_name(s->op[i]);
    char source[96];
    snprintf(source, sizeof source, "--op %s", name);
    if (tool_is_named(s->op[i]) && !(status = find(&f, source, name)))
      status = action(data, f);
  }
  return status;
}

dfgnn_problem *tool_program_problems(size_t *count, const tool_settings *s) {
  list l = {.settings = s,
            .problems = malloc(MOST_PROBLEMS * sizeof *l.problems)};
  dfgnn_status status = l.problems
                            ? each_family(s, add_family, &l)
                            : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status) {
    free(l.problems);
    (void)tool_fail(status);
    return NULL;
  }
  for (size_t i = 0; i < l.count; i++)
    if (!l.problems[i].program)
      tool_note(s, "the program is operator %s, %s: that is meant",
                dfgnn_name(DFGNN_NAMES_OP, l.problems[i].op),
                dfgnn_name(DFGNN_NAMES_PASS, l.problems[i].pass));
  *count = l.count;
  return l.problems;
}

dfgnn_status tool_program_relate(dfgnn_graph *graph,
                                 const dfgnn_edge_program *program) {
  enum { RELATIONS = 8 };
  if (graph->matrix.relations || !program ||
      !dfgnn__program_needs_relations(program->lowered))
    return DFGNN_OK;
  const int64_t edges = graph->matrix.edges;
  int32_t *of_edge = malloc((size_t)(edges + 1) * sizeof *of_edge);
  if (!of_edge)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for relations");
  for (int64_t e = 0; e < edges; e++)
    of_edge[e] = (int32_t)((uint64_t)e * 0x9e3779b97f4a7c15u >> 61);
  dfgnn_status status =
      dfgnn_graph_set_relations(graph, RELATIONS, of_edge, 0, NULL);
  free(of_edge);
  return status;
}

/* The program with the sizes that a row has: those of the inputs of its own or,
 * of a row without a text, its heads and width. */
static dfgnn_status size_as(const dfgnn_edge_program **sized,
                            const dfgnn_edge_program *program,
                            const dfgnn_measurement *row, dfgnn_pass pass) {
  const dfgnn_edge_program *of_row;
  dfgnn_binding binding = {0};
  if (dfgnn__edge_program_known(&of_row, row->program, row->program_text, pass))
    return size_of(sized, program, row->heads, row->dim);
  const dfgnn_dag *dag = program->dag;
  if (dag->input_count != of_row->dag->input_count)
    return DFGNN_ERROR_INVALID;
  for (int i = 0; i < dag->input_count; i++)
    DFGNN_TRY(dfgnn__bind_input(
        &binding, dag, &dag->inputs[i],
        dfgnn__bind_port(&of_row->dag->inputs[i], &binding).axis));
  return dfgnn__edge_program_for(sized, program, binding.names);
}

/* Is the row of the program, whatever its sizes are? */
static int is_of(const dfgnn_edge_program *program,
                 const dfgnn_measurement *row) {
  const dfgnn_edge_program *sized;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_measurement own = *row;
  int pass, dtype;
  if (dfgnn_parse(&pass, DFGNN_NAMES_PASS, row->pass) ||
      dfgnn_parse(&dtype, DFGNN_NAMES_DTYPE, row->dtype) ||
      size_as(&sized, program, row, (dfgnn_pass)pass) ||
      dfgnn_edge_program_problem(&problem, sized, (dfgnn_dtype)dtype))
    return 0;
  problem.deterministic = row->deterministic;
  dfgnn__key_fill(&own, &problem, 0);
  own.index = row->index;
  own.protocol = row->protocol;
  own.program_text = row->program_text;
  return dfgnn__same_problem(&own, row);
}

typedef struct search {
  const dfgnn_measurement *row;
  int found;
} search;

static dfgnn_status look(void *data, const family *f) {
  search *s = data;
  if (!s->found)
    s->found = is_of(f->plain, s->row) || is_of(f->kept, s->row) ||
               is_of(f->gradient, s->row);
  return DFGNN_OK;
}

int tool_program_wanted(const tool_settings *s, const dfgnn_measurement *row) {
  search of = {.row = row};
  const dfgnn_status status = each_family(s, look, &of);
  if (status) {
    (void)tool_fail(status);
    exit(TOOL_USAGE);
  }
  return of.found;
}

const char *tool_program_name(const dfgnn_measurement *row) {
  static char last[32]; /* rows of a program stand together */
  static const char *name;
  search of = {.row = row};
  if (!strcmp(last, row->program))
    return name;
  snprintf(last, sizeof last, "%s", row->program);
  for (int i = 0; (name = dfgnn_edge_program_name(NULL, i)); i++) {
    char source[96];
    family *f;
    snprintf(source, sizeof source, "--op %s", name);
    if (!find(&f, source, name) && !look(&of, f) && of.found)
      break;
  }
  return name;
}
