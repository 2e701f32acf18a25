/* survey.h - the times of all variants of a problem on a graph
 *
 * A search looks for the fastest variant and leaves the others as soon as it
 * can; a survey measures them all, so that what is chosen by it was compared
 * with everything.  The first round takes one brief sample of each variant.
 * Those within DFGNN_SURVEY_KEPT times the best get DFGNN_SURVEY_ROUNDS more,
 * interleaved, and the best DFGNN_SURVEY_FINALISTS as many full samples. */
#ifndef DFGNN_TUNER_SURVEY_H
#define DFGNN_TUNER_SURVEY_H

#include "tuner/measure.h"

#define DFGNN_SURVEY_KEPT 1.75
#define DFGNN_SURVEY_ROUNDS 2
#define DFGNN_SURVEY_FINALISTS 10
#define DFGNN_SURVEY_FINAL_ROUNDS 5

/* The survey's view of a device, which tests replace. */
typedef struct dfgnn_survey_ops {
  /* Readies a variant; FAILED: it does not run here. */
  dfgnn_sampled (*admit)(void *data, size_t arm);
  /* Samples a variant; brief: as shortly as gives a time at all. */
  dfgnn_sampled (*sample)(void *data, size_t arm, int brief, double *ms);
  /* The variant gets no further samples. */
  void (*finished)(void *data, size_t arm);
  int (*stop)(void *data); /* NULL: never */
} dfgnn_survey_ops;

typedef struct dfgnn_surveyed {
  double ms;  /* the median; NaN: it failed */
  int rounds; /* in which it was sampled; 1: it was too slow for others */
} dfgnn_surveyed;

/* DFGNN_ERROR_INTERRUPTED: stop said so.  DFGNN_ERROR_DEVICE: the device is
 * gone.  Only a survey that returns DFGNN_OK is complete. */
dfgnn_status dfgnn__survey_run(dfgnn_surveyed *result, size_t arms,
                               const dfgnn_survey_ops *ops, void *data,
                               uint64_t seed);
/* Samples all arms in interleaved rounds, whatever they take. */
dfgnn_status dfgnn__survey_rounds(dfgnn_surveyed *result, size_t arms,
                                  int rounds, const dfgnn_survey_ops *ops,
                                  void *data, uint64_t seed);

/* The variants of a problem that run on a graph, those of papers too, and
 * references not. */
typedef struct dfgnn_survey {
  const dfgnn_variant **variant; /* [count] */
  dfgnn_surveyed *result;        /* [count] */
  size_t count;
  char lost[160]; /* the variant that took the device with it, or "" */
} dfgnn_survey;

/* pool: of the context, for inputs of which results are not compared; NULL:
 * they are, and wrong ones count as failed. */
dfgnn_status dfgnn__survey(dfgnn_survey *survey, dfgnn_context *ctx,
                           dfgnn_graph *graph, const dfgnn_problem *problem,
                           dfgnn_harness_pool *pool, uint64_t seed,
                           int (*stop)(void *data), void *data);
/* Times variants of the caller's beside each other in interleaved rounds; pool:
 * of the device. */
dfgnn_status dfgnn__survey_compare(dfgnn_survey *survey, dfgnn_context *ctx,
                                   dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   const dfgnn_variant *const *variant,
                                   size_t count, int rounds,
                                   dfgnn_harness_pool *pool, uint64_t seed);
void dfgnn__survey_free(dfgnn_survey *survey);

/* Lists the variants of a survey in variant[dfgnn__variant_count()]. */
size_t dfgnn__survey_variants(const dfgnn_variant **variant,
                              const dfgnn_setting *setting,
                              const unsigned char *broken);

#endif
