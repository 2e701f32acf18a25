/* select.c - the one question: which variant computes a problem on a graph */
#include "select/select.h"

#include <stdio.h>
#include <string.h>

#include "lib/operator.h"

/* Chooses the member of least predicted time; 0: the model knows nothing of
 * such problems on this device. */
static int choose_predicted(dfgnn_choice *choice, const dfgnn_table *table,
                            const dfgnn_query *query) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double ratio[DFGNN_PORTFOLIO_MOST];
  const size_t count = dfgnn__members(member, ratio, table, query);
  if (!count || ratio[0] == 0)
    return 0;
  *choice = (dfgnn_choice){
      .variant = member[0], .source = DFGNN_SOURCE_MODEL, .distance = -1};
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

const dfgnn_variant *dfgnn__algorithm_choice(const dfgnn_table *table,
                                             const dfgnn_query *query,
                                             const char *algorithm) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const int count = dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST,
                                     &query->setting, query->broken);
  for (int i = 0; i < count; i++)
    if (!strcmp(member[i]->family->algorithm, algorithm) &&
        dfgnn__may_run(member[i], table, query))
      return member[i];
  const dfgnn_variant *best = NULL;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!strcmp(v->family->algorithm, algorithm) &&
        dfgnn__may_run(v, table, query) &&
        (!best || vectors_of(v) > vectors_of(best)))
      best = v;
  }
  return best;
}

void dfgnn__paper_choice(dfgnn_choice *choice, const dfgnn_table *table,
                         const dfgnn_query *query, int64_t capacity) {
  const dfgnn_problem *p = query->setting.problem;
  const int64_t limit = capacity / (int64_t)dfgnn_dtype_size(p->dtype);
  const int64_t max_degree = query->setting.signature->max_degree;
  const int super = max_degree >= limit;
  const char *const *paper = dfgnn__operator(p->op, p->pass)->paper;
  const char *algorithm = paper[super];
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_PAPER, .distance = -1};
  choice->variant = dfgnn__algorithm_choice(table, query, algorithm);
  snprintf(choice->because, sizeof choice->because,
           "max degree %lld %s capacity %lld%s: %s", (long long)max_degree,
           super ? ">=" : "<", (long long)limit,
           super && paper[0] == paper[1] ? " but the score is no dot product"
                                         : "",
           algorithm);
}
