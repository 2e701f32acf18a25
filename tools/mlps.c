#include "tools/mlps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_mlp.h"

enum { MOST_PROBLEMS = 4096, MOST_TEXT = 4096 };

typedef struct list {
  const tool_settings *settings;
  dfgnn_problem *problems;
  size_t count;
} list;

static dfgnn_status add(list *l, const char *text, dfgnn_pass pass,
                        dfgnn_dtype dtype, dfgnn_math math) {
  const tool_settings *s = l->settings;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_status status = dfgnn_edge_mlp_parse(&problem, text, dtype, math, pass);
  if (status)
    return status;
  problem.deterministic = s->deterministic;
  problem.cold = s->cold;
  problem.effort = s->effort;
  for (size_t i = 0; i < l->count; i++)
    if (l->problems[i].mlp == problem.mlp)
      return DFGNN_OK;
  if (l->count == MOST_PROBLEMS)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "more than %d problems of MLPs",
                       MOST_PROBLEMS);
  l->problems[l->count++] = problem;
  return DFGNN_OK;
}

static dfgnn_status add_text(list *l, const char *text) {
  const tool_settings *s = l->settings;
  dfgnn_status status = DFGNN_OK;
  for (int p = 0; !status && p < s->pass_count; p++)
    for (int t = 0; !status && t < s->dtype_count; t++)
      for (int m = 0; !status && m < s->math_count; m++)
        status = add(l, text, s->pass[p], s->dtype[t], s->math[m]);
  return status;
}

/* A text on each line; a line that begins with # is a comment. */
static dfgnn_status add_file(list *l, const char *path) {
  char line[MOST_TEXT];
  int number = 0;
  FILE *file = fopen(path, "r");
  if (!file)
    return dfgnn__fail(DFGNN_ERROR_IO,
                       "%s: cannot be opened, and it is no text of an MLP, "
                       "such as edge=128,width=128x128,activation=silu",
                       path);
  dfgnn_status status = DFGNN_OK;
  while (!status && fgets(line, sizeof line, file)) {
    number++;
    line[strcspn(line, "\r\n")] = 0;
    if (*line && *line != '#' && (status = add_text(l, line)))
      dfgnn__fail_prefix(status, "%s, line %d: ", path, number);
  }
  if (!status && ferror(file))
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, strerror(errno));
  fclose(file);
  return status;
}

/* Up to the comma that no further word of the same text follows: a text begins
 * with "edge=", a file's name has no "=". */
static size_t length_of(const char *from) {
  size_t length = strcspn(from, ",");
  const int is_text = strcspn(from, "=") < length;
  while (is_text && from[length] == ',') {
    const char *next = from + length + 1;
    const size_t word = strcspn(next, ",");
    if (!strncmp(next, "edge=", 5) || strcspn(next, "=") >= word)
      break;
    length += 1 + word;
  }
  return length;
}

static dfgnn_status add_all(list *l) {
  dfgnn_status status = DFGNN_OK;
  for (const char *p = l->settings->mlp; !status && *p;) {
    char item[MOST_TEXT];
    const size_t length = length_of(p);
    snprintf(item, sizeof item, "%.*s", (int)length, p);
    if (length)
      status = strchr(item, '=') ? add_text(l, item) : add_file(l, item);
    p += length + (p[length] == ',');
  }
  return status;
}

dfgnn_problem *tool_mlp_problems(size_t *count, const tool_settings *s) {
  list l = {.settings = s,
            .problems = malloc(MOST_PROBLEMS * sizeof *l.problems)};
  dfgnn_status status = l.problems
                            ? add_all(&l)
                            : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status && !l.count)
    status = dfgnn__fail(DFGNN_ERROR_INVALID, "--mlp names no MLP");
  if (status) {
    free(l.problems);
    (void)tool_fail(status);
    return NULL;
  }
  *count = l.count;
  return l.problems;
}

dfgnn_status tool_mlp_name(dfgnn_measurement *row) {
  int dtype, math, pass;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  if (!row->op || strcmp(row->op, "edge_mlp") || !row->program_text)
    return DFGNN_OK;
  dfgnn_status status = dfgnn_parse(&dtype, DFGNN_NAMES_DTYPE, row->dtype);
  if (!status)
    status = dfgnn_parse(&math, DFGNN_NAMES_MATH, row->math);
  if (!status)
    status = dfgnn_parse(&pass, DFGNN_NAMES_PASS, row->pass);
  if (!status)
    status =
        dfgnn_edge_mlp_parse(&problem, row->program_text, (dfgnn_dtype)dtype,
                             (dfgnn_math)math, (dfgnn_pass)pass);
  if (!status)
    row->program = problem.mlp->name;
  return status;
}

int tool_mlp_wanted(const tool_settings *s, const dfgnn_measurement *row) {
  static dfgnn_problem *problems; /* of the settings, which never change */
  static size_t count;
  if (!s->mlp)
    return 1;
  if (!problems && !(problems = tool_mlp_problems(&count, s)))
    exit(TOOL_USAGE);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(row->op, "edge_mlp") &&
        !strcmp(problems[i].mlp->name, row->program))
      return 1;
  return 0;
}
