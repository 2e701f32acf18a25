/* lookup.c - asks the rules and the stored measurements about a case */
#include "tools/lookup.h"
#include <math.h>
#include <string.h>

dfgnn_status tool_lookup_case(tool_lookup *lookup, const tool_case *each) {
  DFGNN_TRY(dfgnn__problem_complete(&lookup->problem, each->problem));
  lookup->query =
      (dfgnn_query){.setting = dfgnn__setting(each->graph, &lookup->problem),
                    .family = each->graph->family,
                    .broken = each->ctx->broken};
  lookup->table = each->ctx->table;
  lookup->decision = dfgnn__table_exact(each->ctx->table, &lookup->query);
  return DFGNN_OK;
}

const dfgnn_variant *tool_lookup_rule(const tool_lookup *lookup) {
  dfgnn_choice choice = {0};
  dfgnn__rule_choice(&choice, lookup->table, &lookup->query);
  return choice.variant;
}

const dfgnn_variant *tool_lookup_paper(const tool_lookup *lookup,
                                       int64_t capacity) {
  dfgnn_choice choice = {0};
  dfgnn__paper_choice(&choice, NULL, &lookup->query, capacity);
  return choice.variant;
}

const dfgnn_variant *tool_lookup_algorithm(const tool_lookup *lookup,
                                           const char *algorithm) {
  const dfgnn_variant *best = NULL;
  double least = INFINITY;
  for (size_t i = 0; lookup->decision && i < lookup->decision->count; i++) {
    const dfgnn_ranked *ranked = &lookup->decision->ranked[i];
    const dfgnn_variant *variant = dfgnn__variant_find(ranked->variant);
    if (variant && !strcmp(variant->family->algorithm, algorithm) &&
        ranked->log_ratio < least) {
      best = variant;
      least = ranked->log_ratio;
    }
  }
  return best ? best : dfgnn__algorithm_choice(NULL, &lookup->query, algorithm);
}

const dfgnn_variant *tool_lookup_baseline(const tool_lookup *lookup) {
  const dfgnn_problem *p = &lookup->problem;
  const dfgnn_variant *unfused = tool_lookup_algorithm(lookup, "unfused");
  return unfused ? unfused
                 : tool_lookup_algorithm(
                       lookup, dfgnn__operator(p->op, p->pass)->paper[0]);
}

double tool_lookup_ratio(const tool_lookup *lookup,
                         const dfgnn_variant *variant) {
  for (size_t i = 0; variant && lookup->decision && i < lookup->decision->count;
       i++)
    if (!strcmp(lookup->decision->ranked[i].variant, variant->name))
      return exp(lookup->decision->ranked[i].log_ratio -
                 lookup->decision->ranked[0].log_ratio);
  return NAN;
}

double tool_lookup_smmf_pmf(const tool_lookup *lookup) {
  return fmin(tool_lookup_ratio(lookup, tool_lookup_algorithm(lookup, "smmf")),
              tool_lookup_ratio(lookup, tool_lookup_algorithm(lookup, "pmf")));
}

size_t tool_lookup_candidates(size_t *measured, const tool_lookup *lookup,
                              int exhaustive) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const size_t members =
      dfgnn__members(member, NULL, lookup->table, &lookup->query);
  size_t count = 0;
  *measured = 0;
  for (size_t i = 0; i < (exhaustive ? dfgnn__variant_count() : members); i++) {
    const dfgnn_variant *variant = exhaustive ? dfgnn__variant(i) : member[i];
    if ((exhaustive && !dfgnn__variant_offered(variant)) ||
        dfgnn__variant_refusal(variant, &lookup->query.setting))
      continue;
    count++;
    *measured += isfinite(tool_lookup_ratio(lookup, variant));
  }
  return count;
}
