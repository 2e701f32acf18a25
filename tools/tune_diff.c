/* tune_diff.c - dfgnn-tune diff: the problems that two stores decide
 * differently
 */
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <math.h>
#include <string.h>

static const dfgnn_decision *find(const tool_records *records,
                                  const dfgnn_measurement *problem) {
  const dfgnn_decision *d = dfgnn__decision_find(records->decisions, problem);
  return d && d->count ? d : NULL;
}

/* The time of a variant over the winner's, as a store measured them. */
static double loss(const dfgnn_decision *d, const char *variant) {
  for (size_t i = 0; d && variant && i < d->count; i++)
    if (!strcmp(d->ranked[i].variant, variant))
      return exp(d->ranked[i].log_ratio - d->ranked[0].log_ratio);
  return NAN;
}

static void put(json_t *rows, const dfgnn_decision *a,
                const dfgnn_decision *b) {
  const dfgnn_measurement *p = a ? &a->problem : &b->problem;
  const char *first = a ? a->ranked[0].variant : NULL;
  const char *second = b ? b->ranked[0].variant : NULL;
  json_t *row = tool_row_of(p);
  tool_put(row, "a", first);
  tool_put(row, "b", second);
  tool_put_number(row, "a_loss_in_b", loss(b, first));
  tool_put_number(row, "b_loss_in_a", loss(a, second));
  json_array_append_new(rows, row);
}

static int wanted(const tool_settings *settings, const dfgnn_decision *d) {
  return d->count && !tool_row_refusal(settings, &d->problem);
}

static int command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {
      TOOL_PROBLEM_COLUMNS,     {"device", "DEVICE", TOOL_TEXT},
      {"a", "A", TOOL_VARIANT}, {"a_loss_in_b", "IN B", TOOL_TIMES},
      {"b", "B", TOOL_VARIANT}, {"b_loss_in_a", "IN A", TOOL_TIMES},
      {NULL, NULL, 0}};
  tool_records a = {0}, b = {0};
  size_t same = 0;
  (void)count;
  int status = tool_records_add(&a, operands[0]);
  if (!status)
    status = tool_records_add(&b, operands[1]);
  if (!status)
    status = tool_records_decide(&a);
  if (!status)
    status = tool_records_decide(&b);
  json_t *rows = json_array();
  for (size_t i = 0; !status && i < a.decisions->count; i++) {
    const dfgnn_decision *d = &a.decisions->decision[i];
    if (!wanted(settings, d))
      continue;
    const dfgnn_decision *e = find(&b, &d->problem);
    if (e && !strcmp(d->ranked[0].variant, e->ranked[0].variant))
      same++;
    else
      put(rows, d, e);
  }
  for (size_t i = 0; !status && i < b.decisions->count; i++) {
    const dfgnn_decision *e = &b.decisions->decision[i];
    if (wanted(settings, e) && !find(&a, &e->problem))
      put(rows, NULL, e);
  }
  tool_records_free(&a);
  tool_records_free(&b);
  if (status) {
    json_decref(rows);
    return status;
  }
  const size_t differ = json_array_size(rows);
  tool_note(settings, "%zu problems differ, %zu are decided alike", differ,
            same);
  DFGNN_TRY(tool_report(settings, rows, columns));
  return differ ? TOOL_FAILED : TOOL_DONE;
}

const tool_command tune_diff = {
    .name = "diff",
    .operands = "A B",
    .summary = "Show what two stores decide differently, and by how much",
    .text =
        "Prints a line for each problem that only one store decides, or that "
        "both decide differently: the choice of each, and its time over that "
        "of the other store's choice as the other store measured it. Exits "
        "with "
        "1 if there is any.",
    .options = HAS_PROBLEM | HAS(FROM_ARCH) | HAS_TABLE,
    .selects = 1,
    .main = command};
