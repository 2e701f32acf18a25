/* tune_explain.c - dfgnn-tune explain: what a program will run, and why */
#include "base/error.h"
#include "tools/inputs.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <stdlib.h>
#include <string.h>

typedef struct explain {
  const tool_settings *settings;
  json_t *rows;
  int failed;
} explain;

static int one(void *data, const tool_case *each) {
  explain *e = data;
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
  tool_put(row, "variant", why->variant);
  tool_put(row, "source", dfgnn_source_name(why->source));
  tool_put_number(row, "distance", why->distance);
  tool_put(row, "because", why->because);
  for (size_t i = 0; i < why->count; i++) {
    json_t *candidate = json_object();
    tool_put(candidate, "variant", why->candidates[i].variant);
    tool_put(candidate, "reason", why->candidates[i].reason);
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

static int print(const tool_settings *settings, json_t *rows) {
  static const tool_column columns[] = {{"variant", "VARIANT", TOOL_TEXT},
                                        {"reason", "REASON", TOOL_TEXT},
                                        {NULL, NULL, 0}};
  size_t i;
  json_t *row;
  int status = TOOL_DONE;
  json_array_foreach(rows, i, row) {
    double distance = json_number_value(json_object_get(row, "distance"));
    const char *bold = tool_colour(stdout) ? "\033[1m" : "";
    printf("%s%s, %s %s %s, %lld heads x %lld, %s\n", i ? "\n" : "",
           text_of(row, "graph"), text_of(row, "op"), text_of(row, "pass"),
           text_of(row, "dtype"),
           json_integer_value(json_object_get(row, "heads")),
           json_integer_value(json_object_get(row, "dim")),
           text_of(row, "device"));
    printf("  variant   %s%s%s\n  source    %s", bold, text_of(row, "variant"),
           *bold ? "\033[0m" : "", text_of(row, "source"));
    if (distance > 0)
      printf(", distance %.3g", distance);
    printf("\n  because   %s\n\n", text_of(row, "because"));
    status |= tool_report(
        settings, json_incref(json_object_get(row, "candidates")), columns);
  }
  json_decref(rows);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  explain e = {.settings = settings, .rows = json_array()};
  int status = tool_graphs_all(&graphs, count, operands);
  if (!status)
    status = tool_each(settings, &graphs, one, &e);
  tool_graphs_free(&graphs);
  if (status == TOOL_USAGE || (status && !json_array_size(e.rows))) {
    json_decref(e.rows);
    return status;
  }
  int printed = settings->json ? tool_report(settings, e.rows, NULL)
                               : print(settings, e.rows);
  return status ? status : e.failed ? e.failed : printed;
}

const tool_command tune_explain = {
    "explain",
    "GRAPH...",
    1,
    -1,
    "Say what a program will run, and why",
    "For each graph and problem: the variant a plan would use, where the "
    "choice "
    "comes from (exact, similar or nearest measurements, the rule, the paper's "
    "rule, a pin, DFGNN_FORCE_VARIANT), and for each other variant why not.",
    HAS_PROBLEM | HAS(EFFORT) | HAS(THREADS) | HAS(STORE) | HAS_ALWAYS,
    command};
