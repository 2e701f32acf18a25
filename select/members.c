/* members.c - the members of a portfolio that may run, and the rule's */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "select/select.h"

int dfgnn__may_run(const dfgnn_variant *v, const dfgnn_table *table,
                   const dfgnn_query *q) {
  return !dfgnn__table_bans(table, v) &&
         dfgnn__variant_runs(v, &q->setting, q->broken);
}

/* The first variant of the registry that may run; a paper's only if no other
 * may. */
static const dfgnn_variant *first_usable(const dfgnn_table *table,
                                         const dfgnn_query *query) {
  for (int paper = 0; paper < 2; paper++)
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (v->family->paper == paper && dfgnn__may_run(v, table, query))
        return v;
    }
  return NULL;
}

typedef struct ranked_member {
  const dfgnn_variant *variant;
  double log_ratio;
  size_t place;
} ranked_member;

static int by_ratio(const void *a, const void *b) {
  const ranked_member *x = a, *y = b;
  if (x->log_ratio != y->log_ratio)
    return x->log_ratio < y->log_ratio ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static const dfgnn_test_member *test_members;

void dfgnn__members_for_tests(const dfgnn_test_member *members) {
  test_members = members;
}

static int list_portfolio(const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST],
                          const dfgnn_query *query) {
  int count = 0;
  if (!test_members)
    return dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST, &query->setting,
                            query->broken);
  for (const dfgnn_test_member *t = test_members; t->name; t++) {
    const dfgnn_variant *v = dfgnn__variant_find(t->name);
    if (v && !dfgnn__variant_refusal(v, &query->setting))
      member[count++] = v;
  }
  return count;
}

/* Predicts the logarithms of members' times; 0: the model knows nothing. */
static int predict(double predicted[DFGNN_PORTFOLIO_MOST],
                   const dfgnn_variant *const *member, int count,
                   const dfgnn_query *query) {
  if (!test_members)
    return count &&
           dfgnn__portfolio_rank(predicted, member, count, &query->setting);
  for (int i = 0; i < count; i++)
    for (const dfgnn_test_member *t = test_members; t->name; t++)
      if (!strcmp(member[i]->name, t->name))
        predicted[i] = t->log_ratio;
  return count && !isnan(predicted[0]);
}

size_t dfgnn__members(const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST],
                      double ratio[DFGNN_PORTFOLIO_MOST],
                      const dfgnn_table *table, const dfgnn_query *query) {
  const dfgnn_variant *all[DFGNN_PORTFOLIO_MOST];
  double predicted[DFGNN_PORTFOLIO_MOST];
  ranked_member ranked[DFGNN_PORTFOLIO_MOST];
  const int listed = list_portfolio(all, query);
  const int knows = ratio && predict(predicted, all, listed, query);
  size_t count = 0;
  for (int i = 0; i < listed; i++)
    if (dfgnn__may_run(all[i], table, query)) {
      ranked[count] = (ranked_member){all[i], knows ? predicted[i] : 0, count};
      count++;
    }
  if (!count && (all[0] = first_usable(table, query)))
    ranked[count++] = (ranked_member){all[0], INFINITY, 0};
  qsort(ranked, count, sizeof *ranked, by_ratio);
  for (size_t i = 0; i < count; i++) {
    member[i] = ranked[i].variant;
    if (ratio)
      ratio[i] = knows && isfinite(ranked[i].log_ratio)
                     ? exp(ranked[i].log_ratio - ranked[0].log_ratio)
                     : 0;
  }
  return count;
}

void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_table *table,
                        const dfgnn_query *query) {
  const char *because = "";
  const dfgnn_variant *v =
      test_members
          ? NULL
          : dfgnn__portfolio_default(&query->setting, query->broken, &because);
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_RULE, .distance = -1};
  if (!v || !dfgnn__may_run(v, table, query)) {
    const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
    v = dfgnn__members(member, NULL, table, query) ? member[0] : NULL;
    because = "the first member of the portfolio that may run";
  }
  choice->variant = v;
  snprintf(choice->because, sizeof choice->because, "%s", because);
}
