/* train_rows.h - what a forest is fitted to: decisions as rows of features */
#ifndef DFGNN_TUNER_TRAIN_ROWS_H
#define DFGNN_TUNER_TRAIN_ROWS_H

#include "lib/select.h"
#include "tuner/boost.h"

/* A measured problem. */
typedef struct dfgnn_train_group {
  const dfgnn_decision *decision;
  const dfgnn_signature *signature; /* of the decision, or of the graph itself
                                     * if that is at hand */
  dfgnn_device_info device;
  dfgnn_problem problem;
  dfgnn_matrix matrix;
} dfgnn_train_group;

typedef struct dfgnn_train_rows {
  dfgnn_boost_data data;
  const dfgnn_variant **variant; /* of each row */
  size_t *begin;                 /* [groups + 1] rows of each group */
  dfgnn_train_group *group;
  int64_t *score; /* [rows], for whoever judges */
} dfgnn_train_rows;

/* "cuda sm_90 attention.fwd"; 0 if the row names what this library lacks. */
int dfgnn__train_key(char key[64], const dfgnn_measurement *row);

/* The rows of a key, and the features of its forest.  graphs: as dfgnn__train
 * takes them. */
dfgnn_status dfgnn__train_rows(dfgnn_train_rows **rows, dfgnn_forest *forest,
                               const dfgnn_decisions *decisions,
                               const char *key, const dfgnn_signature *graphs,
                               size_t graph_count);
void dfgnn__train_rows_free(dfgnn_train_rows *rows);

dfgnn_setting dfgnn__train_setting(const dfgnn_train_group *group);

/* The device of a row, as far as choosing looks at it. */
dfgnn_device_info dfgnn__train_device(const dfgnn_measurement *row);

/* A variant of this library, of the revision that it has. */
int dfgnn__train_usable(void *data, const char *variant, int revision);

#endif
