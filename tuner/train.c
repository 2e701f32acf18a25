/* train.c - makes forests of decisions */
#include "tuner/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"
#include "tuner/coverage.h"
#include "tuner/judge.h"

static void report(const dfgnn_train_options *o, double done,
                   const char *what) {
  if (o->progress)
    o->progress(o->data, done, what);
}

/* ---- a forest ------------------------------------------------------------ */

static void describe(dfgnn_forest *forest, const dfgnn_train_rows *rows) {
  size_t graphs = 0;
  for (size_t g = 0; g < rows->data.groups; g++) {
    size_t k = 0;
    while (k < g && rows->group[k].signature->fingerprint !=
                        rows->group[g].signature->fingerprint)
      k++;
    graphs += k == g;
  }
  snprintf(forest->origin, sizeof forest->origin,
           "%zu measurements of %zu problems on %zu graphs, %s",
           rows->data.rows, rows->data.groups, graphs,
           rows->group[0].device.model);
  for (char *c = forest->origin; *c; c++)
    if (*c < 0x20 || *c > 0x7e)
      *c = '?';
}

/* The input that the forests of all keys share. */
typedef struct training {
  const dfgnn_measurement *rows;
  size_t row_count;
  const dfgnn_signature *graphs;
  size_t graph_count;
  const dfgnn_train_options *options;
} training;

static dfgnn_status train_key(dfgnn_trained *t, const char *key,
                              const training *given, const dfgnn_table *table,
                              double done, double share) {
  const dfgnn_train_options *o = given->options;
  dfgnn_forest *forest = &t->forests.forest[t->forests.count];
  dfgnn_train_rows *rows;
  uint8_t *bins = NULL;
  dfgnn_status status = dfgnn__train_rows(&rows, forest, t->decisions, key,
                                          given->graphs, given->graph_count);
  if (status)
    return status;
  if (rows->data.groups < DFGNN_LEAST_GROUPS)
    goto out;
  snprintf(forest->key, sizeof forest->key, "%.63s", key);
  describe(forest, rows);
  bins = malloc((size_t)forest->features * rows->data.rows + 1);
  status = bins ? dfgnn__boost_thresholds(forest, &rows->data)
                : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status)
    goto out;
  dfgnn__boost_bins(bins, forest, &rows->data);
  const dfgnn_judge by = {rows, forest, bins, table, o};
  for (int fold = 0; fold < o->folds && !status; fold++) {
    report(o, done + share * fold / (o->folds + 1), key);
    status = dfgnn__judge_fold(t, &by, fold);
  }
  if (!status && o->shapes)
    status = dfgnn__judge_unmeasured(t, &by);
  if (!status)
    status = dfgnn__boost(forest, &rows->data, bins, NULL, &o->boost);
  if (!status)
    status =
        dfgnn__coverage(&forest->cover, &forest->covers, t->decisions, key);
  if (!status) {
    t->forests.count++;
    forest = NULL;
  }
out:
  if (forest)
    dfgnn__forest_free(forest);
  free(bins);
  dfgnn__train_rows_free(rows);
  return status;
}

/* A key of a forest, and a row of its device. */
typedef struct kind {
  char key[64];
  const dfgnn_measurement *row;
} kind;

enum { MOST_KINDS = 64 };

static size_t list_kinds(kind *kinds, const dfgnn_decisions *decisions) {
  size_t count = 0;
  for (size_t i = 0; i < decisions->count; i++) {
    kind own = {.row = &decisions->decision[i].problem};
    size_t k = 0;
    if (!dfgnn__train_key(own.key, own.row))
      continue;
    while (k < count && strcmp(kinds[k].key, own.key))
      k++;
    if (k == count && count < MOST_KINDS)
      kinds[count++] = own;
  }
  return count;
}

dfgnn_status dfgnn__train(dfgnn_trained *trained, const dfgnn_measurement *rows,
                          size_t count, const dfgnn_signature *graphs,
                          size_t graph_count,
                          const dfgnn_train_options *options) {
  const training given = {rows, count, graphs, graph_count, options};
  kind kinds[MOST_KINDS];
  dfgnn_trained t = {0};
  dfgnn_status status = dfgnn__decide(&t.decisions, NULL, rows, count, 0.015,
                                      dfgnn__train_usable, NULL);
  if (status)
    return status;
  const size_t keys = list_kinds(kinds, t.decisions);
  t.forests.forest = calloc(keys + 1, sizeof *t.forests.forest);
  if (!t.forests.forest)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t k = 0; k < keys && !status; k++) {
    const dfgnn_device_info device = dfgnn__train_device(kinds[k].row);
    dfgnn_table *table = NULL;
    if (options->folds > 0)
      status = dfgnn__table_create(&table, NULL, &device, rows, count);
    if (!status)
      status = train_key(&t, kinds[k].key, &given, table,
                         (double)k / (double)keys, 1 / (double)keys);
    dfgnn__table_destroy(table);
  }
  if (!status && !t.forests.count)
    status = dfgnn__fail(DFGNN_ERROR_NOT_TUNED,
                         "no kind of operator has %d measured problems, which "
                         "a model needs; 'dfgnn-tune run' measures",
                         DFGNN_LEAST_GROUPS);
  if (status)
    dfgnn__trained_free(&t);
  else
    *trained = t;
  return status;
}

void dfgnn__trained_free(dfgnn_trained *trained) {
  dfgnn__forests_free(&trained->forests);
  dfgnn__decisions_free(trained->decisions);
  free(trained->judgement);
  *trained = (dfgnn_trained){0};
}
