/* select.c - the one question: which variant computes a problem on a graph */
#include "select/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/operator.h"

static int may_run(const dfgnn_variant *v, const dfgnn_table *table,
                   const dfgnn_query *q) {
  return !(q->broken && q->broken[dfgnn__variant_index(v)]) &&
         !dfgnn__table_bans(table, v) &&
         !dfgnn__variant_refusal(v, &q->setting);
}

/* The first variant of the registry that applies; a paper's only if no other
 * does. */
static const dfgnn_variant *first_usable(const dfgnn_table *table,
                                         const dfgnn_query *query) {
  for (int paper = 0; paper < 2; paper++)
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (!v->family->reference && v->family->paper == paper &&
          may_run(v, table, query))
        return v;
    }
  return NULL;
}

/* ---- members ------------------------------------------------------------- */

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
    return count && dfgnn__portfolio_rank(predicted, member, count,
                                          &query->setting);
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
    if (may_run(all[i], table, query)) {
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

/* ---- the model and the rule ---------------------------------------------- */

void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_table *table,
                        const dfgnn_query *query) {
  const char *because = "";
  const dfgnn_variant *v =
      test_members
          ? NULL
          : dfgnn__portfolio_default(&query->setting, query->broken, &because);
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_RULE, .distance = -1};
  if (!v || !may_run(v, table, query)) {
    const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
    v = dfgnn__members(member, NULL, table, query) ? member[0] : NULL;
    because = "the first member of the portfolio that may run";
  }
  choice->variant = v;
  snprintf(choice->because, sizeof choice->because, "%s", because);
}

/* Chooses the member of least predicted time; 0: the model knows nothing of
 * such problems on this device. */
static int choose_predicted(dfgnn_choice *choice, const dfgnn_table *table,
                            const dfgnn_query *query) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double ratio[DFGNN_PORTFOLIO_MOST];
  const size_t count = dfgnn__members(member, ratio, table, query);
  if (!count || ratio[0] == 0)
    return 0;
  *choice = (dfgnn_choice){.variant = member[0],
                           .source = DFGNN_SOURCE_MODEL,
                           .distance = -1};
  snprintf(choice->because, sizeof choice->because,
           "least predicted time of %zu members of the portfolio", count);
  return 1;
}

void dfgnn__select(dfgnn_choice *choice, const dfgnn_table *table,
                   const dfgnn_query *query) {
  dfgnn_choice otherwise;
  if (table) {
    dfgnn__select_measured(choice, table, query, NULL);
    if (choice->variant && choice->source <= DFGNN_SOURCE_EXACT)
      return;
  }
  if (!choose_predicted(&otherwise, table, query))
    dfgnn__rule_choice(&otherwise, table, query);
  if (table)
    dfgnn__select_measured(choice, table, query, otherwise.variant);
  if (!table || !choice->variant)
    *choice = otherwise;
}

/* ---- the paper's rule ---------------------------------------------------- */

/* The widest vectors come last in a family's list of them. */
static int vectors_of(const dfgnn_variant *v) {
  for (int p = 0; p < DFGNN_MAX_PARAMETERS && v->family->parameters[p].name;
       p++)
    if (!strcmp(v->family->parameters[p].name, "simd"))
      return v->parameter[p];
  return 0;
}

const dfgnn_variant *dfgnn__algorithm_choice(const dfgnn_query *query,
                                             const char *algorithm) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const int count = dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST,
                                     &query->setting, query->broken);
  for (int i = 0; i < count; i++)
    if (!strcmp(member[i]->family->algorithm, algorithm) &&
        may_run(member[i], NULL, query))
      return member[i];
  const dfgnn_variant *best = NULL;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!strcmp(v->family->algorithm, algorithm) && may_run(v, NULL, query) &&
        (!best || vectors_of(v) > vectors_of(best)))
      best = v;
  }
  return best;
}

void dfgnn__paper_choice(dfgnn_choice *choice, const dfgnn_query *query,
                         int64_t capacity) {
  const dfgnn_problem *p = query->setting.problem;
  const int64_t limit = capacity / (int64_t)dfgnn_dtype_size(p->dtype);
  const int64_t max_degree = query->setting.signature->max_degree;
  const int super = max_degree >= limit;
  const char *const *paper = dfgnn__operator(p->op, p->pass)->paper;
  const char *algorithm = paper[super];
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_PAPER, .distance = -1};
  choice->variant = dfgnn__algorithm_choice(query, algorithm);
  snprintf(choice->because, sizeof choice->because,
           "max degree %lld %s capacity %lld%s: %s", (long long)max_degree,
           super ? ">=" : "<", (long long)limit,
           super && paper[0] == paper[1] ? " but the score is no dot product"
                                         : "",
           algorithm);
}
