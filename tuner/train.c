/* train.c - from decisions to forests */
#include "tuner/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/fingerprint.h"
#include "lib/feature.h"
#include "lib/key.h"
#include "tuner/train_rows.h"

enum { LEAST_GROUPS = 8, FIRST = 4 };

/* A graph nearer than this is believed before the model. */
#define NEAR 0.3

const char *dfgnn__judged_name(dfgnn_judged way) {
  static const char *const names[] = {"choice",  "model", "race",
                                      "nearest", "rule",  "paper"};
  return way < DFGNN_JUDGED_WAYS ? names[way] : NULL;
}

static void report(const dfgnn_train_options *o, double done,
                   const char *what) {
  if (o->progress)
    o->progress(o->data, done, what);
}

/* ---- judging ------------------------------------------------------------- */

typedef struct judge {
  const dfgnn_train_rows *rows;
  const dfgnn_forest *forest;
  const uint8_t *bins;
  const dfgnn_table *table;
} judge;

static double regret_of(const dfgnn_decision *d, const char *variant) {
  double least = INFINITY, found = NAN;
  for (size_t i = 0; i < d->count; i++) {
    least = fmin(least, d->ranked[i].log_ratio);
    if (variant && !strcmp(d->ranked[i].variant, variant))
      found = d->ranked[i].log_ratio;
  }
  return exp(found - least);
}

/* The rows of a group by score, then name: the first few, best first. */
static size_t first_rows(size_t first[FIRST], const dfgnn_train_rows *rows,
                         size_t group, const int64_t *score) {
  size_t count = 0;
  for (size_t i = rows->begin[group]; i < rows->begin[group + 1]; i++) {
    size_t k = count < FIRST ? count++ : FIRST;
    for (; k > 0 && (score[i] < score[first[k - 1]] ||
                     (score[i] == score[first[k - 1]] &&
                      strcmp(rows->variant[i]->name,
                             rows->variant[first[k - 1]]->name) < 0));
         k--)
      if (k < FIRST)
        first[k] = first[k - 1];
    if (k < FIRST)
      first[k] = i;
  }
  return count;
}

static void judge_model(dfgnn_judgement *j, const judge *by, size_t group) {
  const dfgnn_train_rows *rows = by->rows;
  const size_t begin = rows->begin[group], end = rows->begin[group + 1];
  const int members = by->forest->members;
  int64_t *score = rows->score, lost = 0;
  size_t first[FIRST];
  int32_t least[DFGNN_FOREST_MEMBERS];
  uint8_t bins[DFGNN_FOREST_FEATURES];
  for (int m = 0; m < members; m++)
    least[m] = INT32_MAX;
  for (size_t i = begin; i < end; i++) {
    score[i] = 0;
    for (int f = 0; f < by->forest->features; f++)
      bins[f] = by->bins[(size_t)f * rows->data.rows + i];
    for (int m = 0; m < members; m++) {
      const int32_t x = dfgnn__forest_score(by->forest, m, bins);
      least[m] = x < least[m] ? x : least[m];
      score[i] += x;
    }
  }
  const size_t count = first_rows(first, rows, group, score);
  for (int m = 0; m < members; m++)
    lost -= least[m];
  j->disagreement =
      (double)(score[first[0]] + lost) / ((double)members * DFGNN_FOREST_UNIT);
  j->chosen[DFGNN_JUDGED_MODEL] = rows->variant[first[0]]->name;
  for (size_t k = 0; k < count; k++) {
    const char *name = rows->variant[first[k]]->name;
    const double regret = regret_of(j->decision, name);
    if (k == 0)
      j->regret[DFGNN_JUDGED_MODEL] = regret;
    if (k == 0 || regret < j->regret[DFGNN_JUDGED_RACE]) {
      j->regret[DFGNN_JUDGED_RACE] = regret;
      j->chosen[DFGNN_JUDGED_RACE] = name;
    }
  }
}

static void judge_others(dfgnn_judgement *j, const judge *by, size_t group) {
  const dfgnn_train_group *g = &by->rows->group[group];
  const dfgnn_query query = {.setting = dfgnn__train_setting(g), .family = ""};
  dfgnn_choice near, rule, paper;
  dfgnn__table_select(&near, by->table, &query, g->signature->fingerprint);
  dfgnn__rule_choice(&rule, &query);
  dfgnn__paper_choice(&paper, &query, DFGNN_PAPER_CAPACITY);
  j->distance = near.distance;
  if (rule.variant)
    j->chosen[DFGNN_JUDGED_RULE] = rule.variant->name;
  if (paper.variant)
    j->chosen[DFGNN_JUDGED_PAPER] = paper.variant->name;
  j->chosen[DFGNN_JUDGED_NEAREST] =
      near.variant ? near.variant->name : j->chosen[DFGNN_JUDGED_RULE];
  const int close = near.variant && (near.source != DFGNN_SOURCE_NEAREST ||
                                     near.distance <= NEAR);
  const int trusted = j->disagreement <= dfgnn__trusted_disagreement;
  j->chosen[DFGNN_JUDGED_CHOICE] =
      j->chosen[close || !trusted ? DFGNN_JUDGED_NEAREST : DFGNN_JUDGED_MODEL];
  for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
    if (way != DFGNN_JUDGED_MODEL && way != DFGNN_JUDGED_RACE)
      j->regret[way] = regret_of(j->decision, j->chosen[way]);
}

static int fold_of(const dfgnn_train_group *g, int folds) {
  return (int)(dfgnn__mix(g->signature->fingerprint) % (uint64_t)folds);
}

static dfgnn_status judge_fold(dfgnn_trained *t, const judge *by, int fold,
                               const dfgnn_train_options *o) {
  const dfgnn_train_rows *rows = by->rows;
  uint8_t *left_out = calloc(rows->data.groups + 1, 1);
  dfgnn_forest forest = *by->forest;
  judge own = *by;
  dfgnn_status status = DFGNN_OK;
  size_t some = 0;
  forest.node = NULL;
  forest.root = NULL;
  if (!left_out)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t g = 0; g < rows->data.groups; g++) {
    const dfgnn_train_group *group = &rows->group[g];
    const uint64_t lot = dfgnn__mix(group->signature->fingerprint + 1) >> 11;
    left_out[g] = fold_of(group, o->folds) == fold;
    some += left_out[g] != 0;
    if ((double)lot / 9007199254740992.0 >= o->share)
      left_out[g] = 1;
  }
  if (some)
    status = dfgnn__boost(&forest, &rows->data, by->bins, left_out, &o->boost);
  own.forest = &forest;
  for (size_t g = 0; g < rows->data.groups && some && !status; g++) {
    const dfgnn_train_group *group = &rows->group[g];
    if (fold_of(group, o->folds) != fold ||
        rows->begin[g + 1] - rows->begin[g] < (size_t)o->least)
      continue;
    dfgnn_judgement *grown =
        realloc(t->judgement, (t->count + 1) * sizeof *grown);
    if (!grown) {
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
      break;
    }
    t->judgement = grown;
    dfgnn_judgement *j = &grown[t->count++];
    *j = (dfgnn_judgement){.decision = group->decision};
    judge_model(j, &own, g);
    judge_others(j, &own, g);
  }
  free(forest.node);
  free(forest.root);
  free(left_out);
  return status;
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

/* What the forests of all keys share. */
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
  if (rows->data.groups < LEAST_GROUPS)
    goto out;
  snprintf(forest->key, sizeof forest->key, "%.63s", key);
  describe(forest, rows);
  bins = malloc((size_t)forest->features * rows->data.rows + 1);
  status = bins ? dfgnn__boost_thresholds(forest, &rows->data)
                : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status)
    goto out;
  dfgnn__boost_bins(bins, forest, &rows->data);
  const judge by = {rows, forest, bins, table};
  for (int fold = 0; fold < o->folds && !status; fold++) {
    report(o, done + share * fold / (o->folds + 1), key);
    status = judge_fold(t, &by, fold, o);
  }
  if (!status)
    status = dfgnn__boost(forest, &rows->data, bins, NULL, &o->boost);
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

/* A key, and a row of its device. */
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
                         LEAST_GROUPS);
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
