/* ranker.h - the candidates of one operator and pass as a forest sees them */
#ifndef DFGNN_LIB_RANKER_H
#define DFGNN_LIB_RANKER_H

#include "lib/feature.h"
#include "lib/select.h"
#include "model/forest.h"

typedef struct dfgnn_ranker dfgnn_ranker;

/* All variants of the backend that have the operator and the pass. */
dfgnn_status dfgnn__ranker_create(dfgnn_ranker **ranker,
                                  const dfgnn_forest *forest,
                                  const char *backend, dfgnn_op op,
                                  dfgnn_pass pass);
void dfgnn__ranker_free(dfgnn_ranker *ranker);

size_t dfgnn__ranker_count(const dfgnn_ranker *ranker);
const dfgnn_variant *const *dfgnn__ranker_variants(const dfgnn_ranker *ranker);

/* Scores, [members][count], of those variants that run; *running says how many
 * do, *active which have a score: [words] bits.  Unless all are asked for, the
 * first trees of each member pick the DFGNN_RANKER_SHORT that may be the best,
 * and the others see no more trees. */
enum { DFGNN_RANKER_SHORT = 64 };
dfgnn_status dfgnn__ranker_run(const int32_t **score, const uint64_t **active,
                               size_t *running, dfgnn_ranker *ranker,
                               const dfgnn_query *query, int all);

/* The bins of one variant, of the last query. */
void dfgnn__ranker_bins(uint8_t bins[DFGNN_FOREST_FEATURES],
                        const dfgnn_ranker *ranker, size_t candidate);

#endif
