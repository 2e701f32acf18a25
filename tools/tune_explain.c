/* tune_explain.c - dfgnn-tune explain: the variant that a program will run, and
 * why */
#include "db/field.h"
#include "lib/base/error.h"
#include "lib/collect.h"
#include "lib/plan_race.h"
#include "tools/absent.h"
#include "tools/layers.h"
#include "tools/lock.h"
#include "tools/recorded.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct explain {
  const tool_settings *settings;
  tool_absent *absent; /* NULL: the choice is for a device that is here */
  json_t *rows;
  int failed;
} explain;

static void add_path(void *stores, const char *path) {
  json_array_append_new(stores, tool_text(path));
}

/* The stores that hold the pin or the rows behind the choice. */
static json_t *stores_of(const tool_case *each, const dfgnn_plan *plan) {
  json_t *stores = json_array();
  tool_layers_of(each, &plan->choice, add_path, stores);
  return stores;
}

/* Registers, memory and code size of a plan's compiled GPU programs. */
static json_t *kernels_of(const tool_case *each, const dfgnn_plan *given) {
  const dfgnn_plan *plan = dfgnn__race_current(given);
  const dfgnn_context *ctx = each->ctx;
  json_t *kernels = json_array();
  dfgnn_programs *programs = NULL;
  dfgnn_engine *engine =
      ctx->backend->engine ? ctx->backend->engine(ctx->device) : NULL;
  const dfgnn_setting setting = dfgnn__setting(plan->graph, &plan->problem);
  if (!engine || dfgnn__programs_create(&programs))
    return kernels;
  (void)dfgnn__collect_programs(programs, plan->variant, &setting, plan->views,
                                0);
  for (size_t i = 0; i < dfgnn__programs_count(programs); i++) {
    const dfgnn_program *program = dfgnn__programs_get(programs, i);
    dfgnn_kernel_info info;
    char text[512];
    if (!dfgnn__engine_kernel_info(&info, engine, program))
      continue;
    json_t *kernel = json_object();
    dfgnn__program_text(text, sizeof text, program);
    tool_put(kernel, "kernel", text);
    tool_put_count(kernel, "registers", info.registers);
    tool_put_count(kernel, "local_bytes", info.local_bytes);
    tool_put_count(kernel, "shared_bytes", info.shared_bytes);
    tool_put_count(kernel, "code_bytes", info.code_bytes);
    json_array_append_new(kernels, kernel);
  }
  dfgnn__programs_destroy(programs);
  return kernels;
}

/* Adds the row of a case, or says why there is none. */
static int one_absent(explain *e, const tool_case *each) {
  json_t *row = tool_absent_row(e->absent, each);
  if (row) {
    json_array_append_new(e->rows, row);
    return TOOL_DONE;
  }
  dfgnn__fail_prefix(DFGNN_ERROR_UNSUPPORTED, "%s: ", each->label);
  e->failed = tool_fail(DFGNN_ERROR_UNSUPPORTED);
  return TOOL_DONE;
}

static int one(void *data, const tool_case *each) {
  explain *e = data;
  if (e->absent)
    return one_absent(e, each);
  dfgnn_plan *plan = NULL;
  dfgnn_explanation *why = NULL;
  dfgnn_status status =
      dfgnn_plan_create(&plan, each->ctx, each->graph, each->problem);
  if (!status)
    status = dfgnn_plan_explain(&why, plan);
  if (status) {
    char text[128];
    tool_problem_text(text, sizeof text, each->problem);
    dfgnn__fail_prefix(status, "%s, %s: ", each->label, text);
    e->failed = tool_fail(status);
    dfgnn_plan_destroy(plan);
    return TOOL_DONE;
  }
  json_t *row = tool_row(each->label, each->problem, each->info);
  json_t *candidates = json_array();
  tool_put_fingerprint(row, each->graph->signature.fingerprint);
  tool_put(row, "variant", why->variant);
  tool_put_count(row, "revision",
                 dfgnn__variant_find(why->variant)->family->revision);
  tool_put(row, "source", dfgnn_name(DFGNN_NAMES_SOURCE, why->source));
  tool_put_number(row, "distance", why->distance);
  tool_put(row, "because", why->because);
  if (*why->portfolio)
    tool_put(row, "portfolio", why->portfolio);
  json_object_set_new(row, "stores", stores_of(each, plan));
  json_object_set_new(row, "kernels", kernels_of(each, plan));
  for (size_t i = 0; i < why->count; i++) {
    json_t *candidate = json_object();
    tool_put(candidate, "variant", why->candidates[i].variant);
    tool_put(candidate, "reason", why->candidates[i].reason);
    if (why->candidates[i].measured > 0)
      tool_put_number(candidate, "measured", why->candidates[i].measured);
    if (why->candidates[i].predicted > 0)
      tool_put_number(candidate, "predicted", why->candidates[i].predicted);
    json_array_append_new(candidates, candidate);
  }
  json_object_set_new(row, "candidates", candidates);
  json_array_append_new(e->rows, row);
  dfgnn_explanation_free(why);
  dfgnn_plan_destroy(plan);
  return TOOL_DONE;
}

static const char *text_of(json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text ? text : "";
}

static void add_extra(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_extra(char *text, size_t size, const char *format, ...) {
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  length += (size_t)snprintf(text + length, size - length, "%s",
                             length ? " and " : " with ");
  if (length < size)
    vsnprintf(text + length, size - length, format, arguments);
  va_end(arguments);
}

/* Writes the problem's options, as in " with bias and dropout". */
static void extras_of(char *text, size_t size, json_t *row) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  *text = 0;
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    json_t *value = json_object_get(row, field->name);
    if (!field->in_problem || !strcmp(field->name, "deterministic"))
      continue;
    if (json_is_true(value))
      add_extra(text, size, "%s", field->word);
    else if (field->optional && json_is_integer(value))
      add_extra(text, size, "%s of %lld", field->word,
                json_integer_value(value));
    else if (field->optional && json_is_string(value))
      add_extra(text, size, "%s %s", field->word, json_string_value(value));
  }
  if (*text_of(row, "program"))
    add_extra(text, size, "hash %s", text_of(row, "program"));
}

/* Adds a line about the choice, unless the text is empty. */
static void put_fact(json_t *facts, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put_fact(json_t *facts, const char *name, const char *format, ...) {
  char text[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!*text)
    return;
  json_t *fact = json_object();
  tool_put(fact, "name", name);
  tool_put(fact, "value", text);
  json_array_append_new(facts, fact);
}

static int print_one(const tool_settings *settings, json_t *row) {
  static const tool_column columns[] = {{"variant", "VARIANT", TOOL_VARIANT},
                                        {"reason", "REASON", TOOL_TEXT},
                                        {"measured", "MEASURED", TOOL_TIMES},
                                        {"predicted", "PREDICTED", TOOL_TIMES},
                                        {NULL, NULL, 0}};
  double distance = json_number_value(json_object_get(row, "distance"));
  json_t *candidates = json_object_get(row, "candidates"), *store, *kernel;
  size_t i;
  static const tool_column fact_columns[] = {
      {"name", "", TOOL_TEXT}, {"value", "", TOOL_TEXT}, {NULL, NULL, 0}};
  char extras[160];
  extras_of(extras, sizeof extras, row);
  int64_t heads = json_integer_value(json_object_get(row, "heads"));
  json_t *facts = json_array();
  put_fact(facts, "graph", "%s", text_of(row, "graph"));
  put_fact(facts, "problem", "%s %s %s, %lld head%s x %lld%s",
           text_of(row, "op"), text_of(row, "pass"), text_of(row, "dtype"),
           (long long)heads, heads == 1 ? "" : "s",
           json_integer_value(json_object_get(row, "dim")), extras);
  put_fact(facts, "device", "%s", text_of(row, "device"));
  put_fact(facts, "variant", "%s", text_of(row, "variant"));
  if (distance > 0)
    put_fact(facts, "source", "%s, distance %.3g", text_of(row, "source"),
             distance);
  else
    put_fact(facts, "source", "%s", text_of(row, "source"));
  put_fact(facts, "because", "%s", text_of(row, "because"));
  put_fact(facts, "program", "%s", text_of(row, "program_text"));
  put_fact(facts, "portfolio", "%s", text_of(row, "portfolio"));
  json_array_foreach(json_object_get(row, "stores"), i, store)
      put_fact(facts, "stored in", "%s", json_string_value(store));
  json_array_foreach(json_object_get(row, "kernels"), i, kernel) put_fact(
      facts, "kernel",
      "%s: %lld registers, %lld bytes of local and %lld of shared memory, %lld "
      "of code",
      text_of(kernel, "kernel"),
      json_integer_value(json_object_get(kernel, "registers")),
      json_integer_value(json_object_get(kernel, "local_bytes")),
      json_integer_value(json_object_get(kernel, "shared_bytes")),
      json_integer_value(json_object_get(kernel, "code_bytes")));
  tool_settings whole = *settings; /* --columns are those of the candidates */
  whole.columns = NULL;
  const int status = tool_table(&whole, facts, fact_columns);
  json_decref(facts);
  if (status)
    return status;
  putchar('\n');
  return tool_report(settings, json_incref(candidates), columns);
}

static int print(const tool_settings *settings, json_t *rows) {
  size_t i;
  json_t *row;
  int status = TOOL_DONE;
  json_array_foreach(rows, i, row) {
    if (i)
      putchar('\n');
    status |= print_one(settings, row);
  }
  json_decref(rows);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  explain e = {.settings = settings, .rows = json_array()};
  int status = tool_recorded_check(settings, count);
  if (!status)
    status = tool_graphs_all(&graphs, count, operands);
  if (!status && settings->recorded)
    status = tool_recorded_read(&graphs, settings, settings->recorded);
  if (!status && !graphs.count)
    status = tool_usage("no graph, expected GRAPH operands or --recorded");
  if (!status && settings->absent) {
    settings->device = "cpu"; /* which looks at the graphs */
    status = tool_absent_create(&e.absent, settings);
  }
  if (!status)
    status = tool_each(settings, &graphs, one, &e);
  tool_absent_free(e.absent);
  tool_graphs_free(&graphs);
  if (status == TOOL_USAGE || (status && !json_array_size(e.rows))) {
    json_decref(e.rows);
    return status;
  }
  if (!status && !e.failed && (settings->lock || settings->locked)) {
    status = settings->lock ? tool_lock_write(settings->lock, e.rows)
                            : tool_lock_check(settings->locked, e.rows);
    json_decref(e.rows);
    return status;
  }
  int printed = settings->json ? tool_report(settings, e.rows, NULL)
                               : print(settings, e.rows);
  return status ? status : e.failed ? e.failed : printed;
}

const tool_command tune_explain = {
    .name = "explain",
    .operands = "[GRAPH...]",
    .summary = "Say what a program will run, and why",
    .text =
        "Shows for each graph and problem the variant a plan would use, where "
        "the choice comes from (DFGNN_FORCE_VARIANT, a pin, exact or near "
        "measurements, the model, the rule, the paper's rule), the stores that "
        "hold the rows behind the choice, and the members of the problem's "
        "portfolio with the reason why each was not chosen. With --for it says "
        "what a GPU that is not here would run, by the stores in use, on a "
        "machine without one.\n"
        "\n"
        "--lock FILE writes the choices, of a model with --recorded, and "
        "prints "
        "their digest; --check FILE says later, or elsewhere, which of them "
        "are others now, with exit status 1 if any is.",
    .options = HAS_PROBLEM | HAS(EFFORT) | HAS(THREADS) | HAS(STORE) |
               HAS(FOR) | HAS(RECORDED) | HAS(LOCK) | HAS(LOCKED) | HAS_TABLE,
    .main = command};
