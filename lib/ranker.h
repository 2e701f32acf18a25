/* ranker.h - the candidates of one operator and pass as a forest sees them */
#ifndef DFGNN_LIB_RANKER_H
#define DFGNN_LIB_RANKER_H

#include "lib/feature.h"
#include "lib/select.h"
#include "select/forest.h"

typedef struct dfgnn_ranker dfgnn_ranker;

/* Its candidates are all variants of the backend that have the operator and the
 * pass. */
dfgnn_status dfgnn__ranker_create(dfgnn_ranker **ranker,
                                  const dfgnn_forest *forest,
                                  const char *backend, dfgnn_op op,
                                  dfgnn_pass pass);
void dfgnn__ranker_free(dfgnn_ranker *ranker);

size_t dfgnn__ranker_count(const dfgnn_ranker *ranker);
const dfgnn_variant *const *dfgnn__ranker_variants(const dfgnn_ranker *ranker);

/* Scores the variants that run.  *score is [members][count], *running the
 * number of variants that run; *active has the bits, in [words], of those that
 * have a score.  Unless `all` is set, the first trees of each member pick
 * DFGNN_RANKER_SHORT candidates that may be the best, and only these see the
 * other trees. */
enum { DFGNN_RANKER_SHORT = 64 };
dfgnn_status dfgnn__ranker_run(const int32_t **score, const uint64_t **active,
                               size_t *running, dfgnn_ranker *ranker,
                               const dfgnn_query *query, int all);

/* The bins of one candidate in the last query. */
void dfgnn__ranker_bins(uint8_t bins[DFGNN_FOREST_FEATURES],
                        const dfgnn_ranker *ranker, size_t candidate);

#endif
