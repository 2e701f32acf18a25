/* lookup.h - what the rules and the stored measurements say of a case */
#ifndef DFGNN_TOOLS_LOOKUP_H
#define DFGNN_TOOLS_LOOKUP_H

#include "lib/plan.h"
#include "tools/inputs.h"

typedef struct tool_lookup {
  dfgnn_problem problem; /* complete */
  dfgnn_query query;
  const dfgnn_decision *decision; /* of exactly this graph and problem, or NULL;
                                   * valid until the context reloads */
} tool_lookup;

dfgnn_status tool_lookup_case(tool_lookup *lookup, const tool_case *each);

/* NULL if none applies. */
const dfgnn_variant *tool_lookup_rule(const tool_lookup *lookup);
const dfgnn_variant *tool_lookup_paper(const tool_lookup *lookup,
                                       int64_t capacity);
/* The fastest measured variant of an algorithm, else the rule's one of it. */
const dfgnn_variant *tool_lookup_algorithm(const tool_lookup *lookup,
                                           const char *algorithm);

/* What speed-ups over unfused passes compare with: where nothing is fused, the
 * plain algorithm. */
const dfgnn_variant *tool_lookup_baseline(const tool_lookup *lookup);

/* Time of the variant over the winner's, NaN if not measured. */
double tool_lookup_ratio(const tool_lookup *lookup,
                         const dfgnn_variant *variant);
/* The better of smmf and pmf; NaN if neither is measured. */
double tool_lookup_smmf_pmf(const tool_lookup *lookup);

/* How many variants apply, and how many of them are measured. */
size_t tool_lookup_candidates(size_t *measured, const tool_lookup *lookup);

#endif
