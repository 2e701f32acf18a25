/* train_rows.h - decisions as rows of features, to which a forest is fitted */
#ifndef DFGNN_TUNER_TRAIN_ROWS_H
#define DFGNN_TUNER_TRAIN_ROWS_H

#include "lib/select.h"
#include "tuner/boost.h"

/* A measured problem. */
typedef struct dfgnn_train_group {
  const dfgnn_decision *decision;
  const dfgnn_signature *signature; /* the graph's own if it is at hand, else
                                     * the decision's */
  dfgnn_device_info device;
  dfgnn_problem problem;
  dfgnn_matrix matrix;
} dfgnn_train_group;

typedef struct dfgnn_train_rows {
  dfgnn_boost_data data;
  const dfgnn_variant **variant; /* [rows] */
  size_t *begin;                 /* [groups + 1]: the first row of each group */
  dfgnn_train_group *group;
  int64_t *score; /* [rows], scratch of judge.c */
} dfgnn_train_rows;

/* Writes the key of a row's forest, such as "cuda sm_90 attention.fwd"; 0 if
 * the row names an operator or type that this library lacks. */
int dfgnn__train_key(char key[64], const dfgnn_measurement *row);

/* Makes the rows of a key, and the features of its forest.  graphs are those of
 * dfgnn__train. */
dfgnn_status dfgnn__train_rows(dfgnn_train_rows **rows, dfgnn_forest *forest,
                               const dfgnn_decisions *decisions,
                               const char *key, const dfgnn_signature *graphs,
                               size_t graph_count);
void dfgnn__train_rows_free(dfgnn_train_rows *rows);

dfgnn_setting dfgnn__train_setting(const dfgnn_train_group *group);

/* The device of a row, with the fields that selection looks at. */
dfgnn_device_info dfgnn__train_device(const dfgnn_measurement *row);

/* Is this a variant of this library, of its present revision? */
int dfgnn__train_usable(void *data, const char *variant, int revision);

#endif
