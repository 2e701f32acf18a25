/* lookup.h - asks the rules and the stored measurements about a case */
#ifndef DFGNN_TOOLS_LOOKUP_H
#define DFGNN_TOOLS_LOOKUP_H

#include "lib/plan.h"
#include "tools/inputs.h"

typedef struct tool_lookup {
  dfgnn_problem problem; /* complete */
  dfgnn_query query;
  const dfgnn_table *table;       /* valid until the context reloads */
  const dfgnn_decision *decision; /* on exactly this graph and problem, or NULL;
                                   * valid until the context reloads */
} tool_lookup;

dfgnn_status tool_lookup_case(tool_lookup *lookup, const tool_case *each);

/* The choice of the rule, or of the paper's rule; NULL if none applies. */
const dfgnn_variant *tool_lookup_rule(const tool_lookup *lookup);
const dfgnn_variant *tool_lookup_paper(const tool_lookup *lookup,
                                       int64_t capacity);
/* The fastest measured variant of an algorithm, else the rule's choice among
 * its variants. */
const dfgnn_variant *tool_lookup_algorithm(const tool_lookup *lookup,
                                           const char *algorithm);

/* The variant that speed-ups over unfused passes compare with; the plain row
 * loop for operators that have nothing to fuse. */
const dfgnn_variant *tool_lookup_baseline(const tool_lookup *lookup);

/* Time of the variant over the winner's, NaN if not measured. */
double tool_lookup_ratio(const tool_lookup *lookup,
                         const dfgnn_variant *variant);
/* The better of smmf and pmf; NaN if neither is measured. */
double tool_lookup_smmf_pmf(const tool_lookup *lookup);

/* How many candidates a run has, members of the portfolio or, exhaustive, all
 * variants that apply, and how many of them are measured. */
size_t tool_lookup_candidates(size_t *measured, const tool_lookup *lookup,
                              int exhaustive);

#endif
