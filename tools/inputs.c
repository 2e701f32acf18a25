/* inputs.c - the graphs, devices and problems that the options ask for */
#include "tools/inputs.h"
#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "tools/programs.h"
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- graphs ------------------------------------------------------------- */

int tool_fingerprint(uint64_t *fingerprint, const char *graph_name) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_context *ctx = NULL;
  dfgnn_graph *graph = NULL;
  dfgnn_csr *csr = NULL;
  options.device = "cpu";
  options.store = "";
  dfgnn_status status = dfgnn_context_create(&ctx, &options);
  if (!status)
    status = dfgnn__csr_open(&csr, graph_name);
  if (!status)
    status = dfgnn_graph_create_csr(&graph, ctx, csr, NULL);
  if (!status)
    status = dfgnn_graph_signature(&signature, graph);
  *fingerprint = signature.fingerprint;
  dfgnn_graph_destroy(graph);
  if (csr)
    dfgnn_csr_free(csr);
  dfgnn_context_destroy(ctx);
  return status ? tool_fail(status) : TOOL_DONE;
}

static const char *const suffixes[] = {
    ".mtx",    ".npz",    ".graph",    ".txt",    ".csv",    ".tsv",
    ".mtx.gz", ".txt.gz", ".graph.gz", ".csv.gz", ".tsv.gz", NULL};

static size_t suffix_length(const char *name) {
  size_t length = strlen(name), found = 0;
  for (int i = 0; suffixes[i]; i++) {
    size_t n = strlen(suffixes[i]);
    if (length > n && !strcmp(name + length - n, suffixes[i]) && n > found)
      found = n;
  }
  return found;
}

static int push(tool_graphs *graphs, const char *name, int listed) {
  tool_graph *grown =
      realloc(graphs->graph, (graphs->count + 1) * sizeof *grown);
  char *copy = strdup(name);
  if (grown)
    graphs->graph = grown;
  if (!grown || !copy) {
    free(copy);
    return tool_error("out of memory");
  }
  grown[graphs->count++] =
      (tool_graph){.name = copy, .listed = listed, .line = graphs->line};
  return TOOL_DONE;
}

/* Reports the thread's error, and where the job names the graph. */
static int refuse(const tool_graphs *graphs, int line, dfgnn_status failed) {
  if (line)
    dfgnn__fail_prefix(failed, "%s:%d: ", graphs->job, line);
  return tool_fail(failed);
}

int tool_graphs_push(tool_graphs *graphs, const char *name) {
  return push(graphs, name, 0);
}

static int add_directory(tool_graphs *graphs, const char *path) {
  struct dirent **entries;
  size_t before = graphs->count;
  int status = TOOL_DONE, n = scandir(path, &entries, NULL, alphasort);
  if (n < 0)
    return refuse(
        graphs, graphs->line,
        dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be read as a directory", path));
  for (int i = 0; i < n; i++) {
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
    if (!status && suffix_length(entries[i]->d_name))
      status = push(graphs, name, 1);
    free(entries[i]);
  }
  free(entries);
  if (!status && graphs->count == before)
    status = refuse(graphs, graphs->line,
                    dfgnn__fail(DFGNN_ERROR_IO,
                                "%s: the directory has no graph files", path));
  return status;
}

int tool_graphs_add(tool_graphs *graphs, const char *operand) {
  struct stat info;
  if (!stat(operand, &info))
    return S_ISDIR(info.st_mode) ? add_directory(graphs, operand)
                                 : push(graphs, operand, 0);
  if (!strpbrk(operand, "*?["))
    return push(graphs, operand, 0);
  glob_t found;
  int status = TOOL_DONE;
  if (glob(operand, 0, NULL, &found))
    return refuse(graphs, graphs->line,
                  dfgnn__fail(DFGNN_ERROR_IO, "%s: no file matches", operand));
  for (size_t i = 0; i < found.gl_pathc && !status; i++)
    status = push(graphs, found.gl_pathv[i], 0);
  globfree(&found);
  return status;
}

int tool_graphs_all(tool_graphs *graphs, int count, char **operands) {
  int status = TOOL_DONE;
  for (int i = 0; i < count && !status; i++)
    status = tool_graphs_add(graphs, operands[i]);
  return status;
}

void tool_graphs_free(tool_graphs *graphs) {
  for (size_t i = 0; i < graphs->count; i++) {
    tool_graph *graph = &graphs->graph[i];
    free(graph->name);
    free(graph->recorded.problem);
    free(graph->recorded.label);
    free(graph->recorded.family);
  }
  free(graphs->graph);
  *graphs = (tool_graphs){0};
}

void tool_graph_label(char *label, size_t size, const char *name) {
  const char *slash = strrchr(name, '/');
  size_t cut = suffix_length(name);
  if (cut && slash)
    name = slash + 1;
  snprintf(label, size, "%.*s", (int)(strlen(name) - cut), name);
}

/* ---- devices ------------------------------------------------------------ */

static int gpu_count(void) { return dfgnn__backend_cuda.device_count(); }

static dfgnn_status open_one(tool_contexts *contexts, const char *device,
                             const tool_settings *settings) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  options.device = device;
  options.store = settings->store;
  options.effort = settings->effort;
  options.threads = settings->threads;
  options.log = tool_log;
  if (contexts->count == TOOL_MAX_DEVICES)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "more than %d devices",
                       TOOL_MAX_DEVICES);
  int i = contexts->count;
  dfgnn_status status = dfgnn_context_create(&contexts->ctx[i], &options);
  if (!status) {
    contexts->info[i] = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
    dfgnn_context_device(&contexts->info[i], contexts->ctx[i]);
    contexts->count++;
  }
  return status;
}

int tool_contexts_open(tool_contexts *contexts, const tool_settings *settings) {
  char *list = strdup(settings->device), *rest = list, *item;
  dfgnn_status status =
      list ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  contexts->count = 0;
  while (!status && (item = strsep(&rest, ","))) {
    int all = !strcmp(item, "all");
    status = open_one(contexts, all ? "cpu" : item, settings);
    for (int i = 0; all && !status && i < gpu_count(); i++) {
      char name[32];
      snprintf(name, sizeof name, "cuda:%d", i);
      status = open_one(contexts, name, settings);
    }
  }
  free(list);
  if (!status)
    return TOOL_DONE;
  int code = tool_fail(status);
  tool_contexts_close(contexts);
  return code;
}

void tool_contexts_close(tool_contexts *contexts) {
  while (contexts->count)
    dfgnn_context_destroy(contexts->ctx[--contexts->count]);
}

/* ---- problems ----------------------------------------------------------- */

static int known_operators(const tool_settings *s) {
  for (int o = 0; o < s->op_count; o++)
    if (s->op[o] == DFGNN_OP_PROGRAM)
      return tool_usage("--op: found program, expected --program FILE or the "
                        "name of a program");
  for (int o = 0; o < s->op_count; o++)
    for (int p = 0; p < s->pass_count; p++)
      if (!tool_is_named(s->op[o]) && !dfgnn__operator(s->op[o], s->pass[p]))
        return tool_usage("the library has no %s of %s",
                          dfgnn_name(DFGNN_NAMES_PASS, s->pass[p]),
                          dfgnn_name(DFGNN_NAMES_OP, s->op[o]));
  for (int o = 0; o < s->op_count; o++)
    if (!tool_is_named(s->op[o]) && !(DFGNN_OPS_ATTENTION >> s->op[o] & 1) &&
        (s->bias || s->dropout))
      return tool_usage("--%s: found operator %s, expected gt, agnn, gat or "
                        "gatv2, which have attention scores",
                        s->bias ? "bias" : "dropout", tool_op_name(s->op[o]));
  return TOOL_DONE;
}

/* Checks that edge features and messages go with the operator. */
static int known_problem(const dfgnn_problem *problem) {
  dfgnn_problem complete;
  return dfgnn__problem_complete(&complete, problem)
             ? tool_usage("%s", dfgnn_last_error())
             : TOOL_DONE;
}

static dfgnn_problem *operator_problems(size_t *count, const tool_settings *s) {
  if (known_operators(s))
    return NULL;
  *count = 0;
  size_t total = 1;
#define TIMES(NAME, member, type, of_operators)                                \
  total *= (size_t)s->member##_count;
  TOOL_LISTS(TIMES)
#undef TIMES
  dfgnn_problem *problems = malloc(total * sizeof *problems);
  if (!problems) {
    tool_error("out of memory");
    return NULL;
  }
  for (size_t i = 0; i < total; i++) {
    size_t each = total;
    dfgnn_problem p = DFGNN_PROBLEM_INIT;
#define TAKE(NAME, member, type, of_operators)                                 \
  each /= (size_t)s->member##_count;                                           \
  p.member = s->member[i / each % (size_t)s->member##_count];
    TOOL_LISTS(TAKE)
#undef TAKE
    p.deterministic = s->deterministic;
    p.weights = s->weights;
    p.bias = s->bias;
    p.dropout = s->dropout;
    p.cold = s->cold;
    p.effort = s->effort;
    if (tool_is_named(p.op))
      continue;
    problems[(*count)++] = p;
    if ((p.edge_dim || p.edge_use || p.message) && known_problem(&p)) {
      free(problems);
      return NULL;
    }
  }
  return problems;
}

/* The option that is set although a program's text says all of that; NULL:
 * none. */
static const char *unfit_option(const tool_settings *s) {
#define SETS(NAME, member, type, of_operators)                                 \
  for (int i = 0; of_operators && i < s->member##_count; i++)                  \
    if (s->member[i])                                                          \
      return tool_options[OPTION_##NAME].name;
  TOOL_LISTS(SETS)
#undef SETS
  return s->bias ? "bias" : s->dropout ? "dropout" : s->weights ? "weights" : 0;
}

dfgnn_problem *tool_problems(size_t *count, const tool_settings *s) {
  const char *program = s->program, *unfit = unfit_option(s);
  for (int i = 0; i < s->op_count && !program; i++)
    if (tool_is_named(s->op[i]))
      program = tool_op_name(s->op[i]);
  if (program && unfit) {
    (void)tool_usage(
        "--%s: found program %s, expected operators of the library "
        "alone, which have it",
        unfit, program);
    return NULL;
  }
  if (s->program)
    return tool_program_problems(count, s);
  dfgnn_problem *problems = operator_problems(count, s), *named = NULL;
  if (!problems || !program)
    return problems;
  size_t more;
  dfgnn_problem *all = NULL;
  if ((named = tool_program_problems(&more, s))) {
    all = realloc(problems, (*count + more) * sizeof *problems);
    if (!all)
      tool_error("out of memory");
  }
  if (all) {
    const size_t operators = *count;
    for (size_t i = 0; i < more; i++)
      if (!tool_program_repeats(all, operators, &named[i]))
        all[(*count)++] = named[i];
  } else {
    free(problems);
  }
  free(named);
  return all;
}

void tool_problem_text(char *text, size_t size, const dfgnn_problem *p) {
  char extras[160];
  dfgnn__key_extras(extras, sizeof extras, p);
  if (p->program)
    snprintf(extras, sizeof extras, " %016llx",
             (unsigned long long)dfgnn_edge_program_hash(p->program));
  snprintf(
      text, size, "%s %s %s%s %lldx%lld%s%s", dfgnn_name(DFGNN_NAMES_OP, p->op),
      dfgnn_name(DFGNN_NAMES_PASS, p->pass),
      dfgnn_name(DFGNN_NAMES_DTYPE, p->dtype),
      p->math == DFGNN_MATH_TF32 ? "/tf32" : "", (long long)p->heads,
      (long long)p->dim, p->layout == DFGNN_LAYOUT_NDH ? " ndh" : "", extras);
}

/* ---- cases -------------------------------------------------------------- */

typedef struct walk {
  const tool_settings *settings;
  const tool_contexts *contexts;
  const dfgnn_problem *problems;
  size_t problem_count;
  tool_case_wanted wanted; /* NULL: every case is wanted */
  tool_case_function each;
  void *data;
  tool_case current;
  size_t read; /* graphs that could be read */
  int unread;  /* exit status of the first graph that could not */
} walk;

/* Sets *stop if a case asks for it. */
static int on_device(walk *w, dfgnn_csr *csr, int device, int *stop) {
  int status = TOOL_DONE;
  w->current.ctx = w->contexts->ctx[device];
  w->current.info = &w->contexts->info[device];
  dfgnn_status failed =
      dfgnn_graph_create_csr(&w->current.graph, w->current.ctx, csr, NULL);
  for (size_t p = 0; p < w->problem_count && !failed; p++)
    failed = tool_program_relate(w->current.graph, w->problems[p].program);
  if (failed) {
    dfgnn__fail_prefix(failed, "%s: ", w->current.label);
    w->current.index += w->problem_count;
    return tool_fail(failed);
  }
  for (size_t p = 0; p < w->problem_count && !*stop; p++) {
    w->current.problem = &w->problems[p];
    status = w->each(w->data, &w->current);
    *stop = status != 0;
    w->current.index++;
  }
  dfgnn_graph_destroy(w->current.graph);
  return status;
}

static int is_wanted(const walk *w, size_t cases) {
  for (size_t i = 0; w->wanted && i < cases; i++)
    if (w->wanted(w->data, w->current.index + i))
      return 1;
  return !w->wanted;
}

static int on_graph(walk *w, const tool_graphs *graphs, size_t i, int *stop) {
  const tool_graph *graph = &graphs->graph[i];
  const tool_recorded *recorded = &graph->recorded;
  char label[256];
  dfgnn_csr *csr;
  int status = TOOL_DONE;
  size_t cases = w->problem_count * (size_t)w->contexts->count;
  if (!is_wanted(w, cases)) {
    w->current.index += cases;
    return TOOL_DONE;
  }
  dfgnn_status failed = dfgnn__csr_open(&csr, graph->name);
  if (failed) {
    w->current.index += cases;
    int code = refuse(graphs, graph->line, failed);
    w->unread = w->unread ? w->unread : code;
    return graph->listed ? TOOL_DONE : code;
  }
  w->read++;
  tool_graph_label(label, sizeof label, graph->name);
  if (recorded->label && *recorded->label)
    snprintf(label, sizeof label, "%s", recorded->label);
  dfgnn_csr named = *csr;
  if (recorded->family && *recorded->family)
    named.family = recorded->family;
  named.name = w->settings->anonymous ? NULL : label;
  if (w->settings->anonymous)
    named.family = NULL;
  w->current.label = label;
  w->current.csr = &named;
  for (int d = 0; d < w->contexts->count && !*stop; d++) {
    int code = on_device(w, &named, d, stop);
    if (!status || *stop)
      status = code ? code : status;
  }
  dfgnn_csr_free(csr);
  return status;
}

int tool_each(const tool_settings *settings, const tool_graphs *graphs,
              tool_case_function each, void *data) {
  return tool_each_wanted(settings, graphs, NULL, each, data);
}

int tool_each_wanted(const tool_settings *settings, const tool_graphs *graphs,
                     tool_case_wanted wanted, tool_case_function each,
                     void *data) {
  tool_contexts contexts;
  walk w = {.settings = settings,
            .contexts = &contexts,
            .wanted = wanted,
            .each = each,
            .data = data};
  dfgnn_problem *problems = tool_problems(&w.problem_count, settings);
  if (!problems)
    return TOOL_USAGE;
  int stop = 0, status = tool_contexts_open(&contexts, settings);
  if (status) {
    free(problems);
    return status;
  }
  const size_t asked = w.problem_count;
  for (size_t i = 0; i < graphs->count; i++)
    w.current.total +=
        (size_t)contexts.count * (graphs->graph[i].recorded.problem
                                      ? graphs->graph[i].recorded.count
                                      : asked);
  for (size_t i = 0; i < graphs->count && !stop; i++) {
    const tool_recorded *recorded = &graphs->graph[i].recorded;
    w.problems = recorded->problem ? recorded->problem : problems;
    w.problem_count = recorded->problem ? recorded->count : asked;
    int code = on_graph(&w, graphs, i, &stop);
    if (code && (!status || stop))
      status = code;
  }
  tool_contexts_close(&contexts);
  free(problems);
  return status || w.read ? status : w.unread;
}
