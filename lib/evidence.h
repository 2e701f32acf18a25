/* evidence.h - when the prediction of a model is believed
 *
 * Contexts (lib/predict.c) and the judge of models (tuner/judge.c) ask the same
 * questions of the same scores. */
#ifndef DFGNN_LIB_EVIDENCE_H
#define DFGNN_LIB_EVIDENCE_H

#include <stddef.h>
#include <stdint.h>

/* The evidence for a candidate against the rule's choice. */
typedef struct dfgnn_evidence {
  int graphs;          /* on which the candidate's family was measured in the
                        * problem's cell; -1: the model does not say */
  double disagreement; /* log2 of what the candidate loses against a member's
                        * own best, the mean over members */
  double gain;         /* log2 of the predicted time of the rule's choice over
                        * the candidate's, the mean over members; NaN: the
                        * choice's family was not measured in the cell, or the
                        * choice is the candidate */
  double spread;       /* of the gain: the standard deviation over members */
} dfgnn_evidence;

/* A family that was measured on fewer graphs in a cell is poorly covered
 * there. */
enum { DFGNN_COVERED_GRAPHS = 8 };

/* If its members disagree by more, a prediction is unsure. */
extern const double dfgnn__trusted_disagreement;
/* A candidate replaces the rule's choice only if it gains this much (log2 of a
 * time) beyond half the spread, or beyond the spread where coverage is poor or
 * members disagree. */
extern const double dfgnn__gain_margin;

/* A gain within its spread may be a loss: the rule's choice stays.  Over 1004
 * problems of an H200, each on a graph that the model was not fitted to, this
 * took the mean from 1.068 to 1.067 times the best, the worst choice from 63
 * times the rule's to 4, and those that are slower by 2 % or more from 142 to
 * 90; over 42 of a CPU the mean from 1.091 to 1.075, and those from 13 to 3. */
int dfgnn__evidence_suffices(const dfgnn_evidence *evidence);

/* The scores of candidates by a forest: log2 of their times in units of
 * 1 / DFGNN_FOREST_UNIT, up to a constant. */
typedef struct dfgnn_scores {
  int members;
  size_t count;          /* of candidates */
  const int32_t *member; /* [members][count] */
  const int64_t *sum;    /* [count], over the members; INT64_MAX: the candidate
                          * does not apply */
} dfgnn_scores;

/* How much a candidate loses, by a member's own scores, against that member's
 * best: the mean over members, log2 of a time. */
double dfgnn__scores_disagreement(const dfgnn_scores *scores, size_t candidate);

/* Sets how much a candidate gains on the rule's choice, and the spread of it.
 * rule: its candidate; count or beyond: it is none of them. */
void dfgnn__scores_gain(dfgnn_evidence *evidence, const dfgnn_scores *scores,
                        size_t candidate, size_t rule);

#endif
