#include "tools/absent.h"
#include "dfgnn_graph.h"
#include "lib/absent.h"
#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "tools/inputs.h"
#include "tools/records.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tool_absent {
  tool_records records;
  dfgnn_device_info device;
  dfgnn_table *table;
};

int tool_absent_create(tool_absent **absent, const tool_settings *settings) {
  tool_absent *a = calloc(1, sizeof *a);
  *absent = NULL;
  if (!a)
    return tool_error("out of memory");
  int status = tool_records_load(&a->records, settings, 0, NULL);
  if (!status) {
    dfgnn_status found = dfgnn__absent_named(&a->device, settings->absent,
                                             a->records.row, a->records.count);
    if (found)
      status = tool_usage("--for: %s", dfgnn_last_error());
  }
  if (!status) {
    dfgnn_status made =
        dfgnn__table_create(&a->table, NULL, &a->device, a->records.row,
                            a->records.count, a->records.count);
    status = made ? tool_fail(made) : TOOL_DONE;
  }
  if (status)
    tool_absent_free(a);
  else
    *absent = a;
  return status;
}

void tool_absent_free(tool_absent *a) {
  if (!a)
    return;
  dfgnn__table_destroy(a->table);
  tool_records_free(&a->records);
  free(a);
}

/* The time of a variant over the best measured; NaN: it was not measured. */
static double measured_ratio(const dfgnn_decision *d, const char *name) {
  double least = INFINITY, found = NAN;
  for (size_t i = 0; d && i < d->count; i++) {
    least = fmin(least, d->ranked[i].log_ratio);
    if (!strcmp(d->ranked[i].variant, name))
      found = d->ranked[i].log_ratio;
  }
  return exp(found - least);
}

static json_t *candidates_of(const tool_absent *a, const dfgnn_query *query,
                             const dfgnn_variant *chosen) {
  const dfgnn_decision *exact = dfgnn__table_exact(a->table, query);
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double ratio[DFGNN_PORTFOLIO_MOST];
  const size_t count = dfgnn__members(member, ratio, a->table, query);
  json_t *candidates = json_array();
  for (size_t i = 0; i < count; i++) {
    const double measured = measured_ratio(exact, member[i]->name);
    char reason[64] = "not chosen";
    if (member[i] == chosen)
      snprintf(reason, sizeof reason, "chosen");
    else if (measured > 0)
      snprintf(reason, sizeof reason, "measured %.2fx the best", measured);
    else if (ratio[i] > 0)
      snprintf(reason, sizeof reason, "predicted %.2fx the first", ratio[i]);
    json_t *candidate = json_object();
    tool_put(candidate, "variant", member[i]->name);
    tool_put(candidate, "reason", reason);
    if (measured > 0)
      tool_put_number(candidate, "measured", measured);
    if (ratio[i] > 0)
      tool_put_number(candidate, "predicted", ratio[i]);
    json_array_append_new(candidates, candidate);
  }
  return candidates;
}

json_t *tool_absent_row(tool_absent *a, const tool_case *each) {
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_problem problem;
  dfgnn_choice choice;
  dfgnn_status status = dfgnn_graph_signature(&signature, each->graph);
  if (!status)
    status = dfgnn__problem_complete(&problem, each->problem);
  if (status)
    return NULL;
  const dfgnn_matrix matrix = {.destinations = signature.destinations,
                               .sources = signature.sources,
                               .edges = signature.edges,
                               .max_degree = signature.max_degree,
                               .offsets64 = signature.edges > INT32_MAX};
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = &signature,
                                         .device = &a->device},
                             .family =
                                 each->csr->family ? each->csr->family : ""};
  if (problem.effort == DFGNN_EFFORT_PAPER)
    dfgnn__paper_choice(&choice, a->table, &query, DFGNN_PAPER_CAPACITY);
  else
    dfgnn__select(&choice, a->table, &query);
  if (!choice.variant) {
    char text[192];
    dfgnn__key_text(text, sizeof text, &problem);
    dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no variant applies to %s on %s", text,
                a->device.arch);
    return NULL;
  }
  json_t *row = tool_row(each->label, each->problem, &a->device);
  tool_put(row, "variant", choice.variant->name);
  tool_put(row, "source", dfgnn_name(DFGNN_NAMES_SOURCE, choice.source));
  tool_put_number(row, "distance", choice.distance);
  tool_put(row, "because", choice.because);
  json_object_set_new(row, "candidates",
                      candidates_of(a, &query, choice.variant));
  return row;
}
