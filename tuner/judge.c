#include "tuner/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/fingerprint.h"

enum { FIRST = 4 }; /* variants that race */

const char *dfgnn__judged_name(dfgnn_judged way) {
  static const char *const names[] = {[DFGNN_JUDGED_CHOICE] = "choice",
                                      [DFGNN_JUDGED_MODEL] = "model",
                                      [DFGNN_JUDGED_RACE] = "race",
                                      [DFGNN_JUDGED_SHAPE] = "shape",
                                      [DFGNN_JUDGED_SHAPE_RACE] = "shape_race",
                                      [DFGNN_JUDGED_NEAREST] = "nearest",
                                      [DFGNN_JUDGED_RULE] = "rule",
                                      [DFGNN_JUDGED_PAPER] = "paper"};
  return way < DFGNN_JUDGED_WAYS ? names[way] : NULL;
}

/* ---- one problem --------------------------------------------------------- */

static double regret_of(const dfgnn_decision *d, const char *variant) {
  double least = INFINITY, found = NAN;
  for (size_t i = 0; i < d->count; i++) {
    least = fmin(least, d->ranked[i].log_ratio);
    if (variant && !strcmp(d->ranked[i].variant, variant))
      found = d->ranked[i].log_ratio;
  }
  return exp(found - least);
}

/* Finds the first few rows of a group by score, then name, best first.  Of rows
 * with the same score only the first by name counts, as when plans race. */
static size_t first_rows(size_t first[FIRST], const dfgnn_train_rows *rows,
                         size_t group, const int64_t *score) {
  const size_t end = rows->begin[group + 1];
  size_t count = 0;
  while (count < FIRST) {
    size_t next = end;
    for (size_t i = rows->begin[group]; i < end; i++)
      if ((count == 0 || score[i] > score[first[count - 1]]) &&
          (next == end || score[i] < score[next] ||
           (score[i] == score[next] &&
            strcmp(rows->variant[i]->name, rows->variant[next]->name) < 0)))
        next = i;
    if (next == end)
      break;
    first[count++] = next;
  }
  return count;
}

/* Sets the regret of two ways: that of the forest's choice, and of the best of
 * its first few. */
static void judge_model(dfgnn_judgement *j, const dfgnn_judge *by,
                        const dfgnn_forest *forest, size_t group,
                        dfgnn_judged model, dfgnn_judged race) {
  const dfgnn_train_rows *rows = by->rows;
  const size_t begin = rows->begin[group], end = rows->begin[group + 1];
  const int members = forest->members;
  int64_t *score = rows->score, lost = 0;
  size_t first[FIRST];
  int32_t least[DFGNN_FOREST_MEMBERS];
  uint8_t bins[DFGNN_FOREST_FEATURES];
  for (int m = 0; m < members; m++)
    least[m] = INT32_MAX;
  for (size_t i = begin; i < end; i++) {
    score[i] = 0;
    for (int f = 0; f < forest->features; f++)
      bins[f] = by->bins[(size_t)f * rows->data.rows + i];
    for (int m = 0; m < members; m++) {
      const int32_t x = dfgnn__forest_score(forest, m, bins);
      least[m] = x < least[m] ? x : least[m];
      score[i] += x;
    }
  }
  const size_t count = first_rows(first, rows, group, score);
  for (int m = 0; m < members; m++)
    lost -= least[m];
  if (model == DFGNN_JUDGED_MODEL)
    j->disagreement = (double)(score[first[0]] + lost) /
                      ((double)members * DFGNN_FOREST_UNIT);
  j->chosen[model] = rows->variant[first[0]]->name;
  for (size_t k = 0; k < count; k++) {
    const char *name = rows->variant[first[k]]->name;
    const double regret = regret_of(j->decision, name);
    if (k == 0)
      j->regret[model] = regret;
    if (k == 0 || regret < j->regret[race]) {
      j->regret[race] = regret;
      j->chosen[race] = name;
    }
  }
}

static void judge_others(dfgnn_judgement *j, const dfgnn_judge *by,
                         size_t group) {
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
                                     near.distance <= dfgnn__near_distance);
  const int trusted = j->disagreement <= dfgnn__trusted_disagreement;
  j->chosen[DFGNN_JUDGED_CHOICE] =
      j->chosen[close || !trusted ? DFGNN_JUDGED_NEAREST : DFGNN_JUDGED_MODEL];
  static const dfgnn_judged ways[] = {DFGNN_JUDGED_CHOICE, DFGNN_JUDGED_NEAREST,
                                      DFGNN_JUDGED_RULE, DFGNN_JUDGED_PAPER};
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
    j->regret[ways[k]] = regret_of(j->decision, j->chosen[ways[k]]);
}

/* ---- left-out problems --------------------------------------------------- */

static int fold_of(const dfgnn_train_group *g, int folds) {
  return (int)(dfgnn__mix(g->signature->fingerprint) % (uint64_t)folds);
}

/* Is this graph in the share that is learned from?  Fingerprints decide. */
static int is_drawn(const dfgnn_train_group *g, double share) {
  const uint64_t lot = dfgnn__mix(g->signature->fingerprint + 1) >> 11;
  return (double)lot / 9007199254740992.0 < share;
}

/* Is a problem related to a shape: has it the same width or, if the shape has
 * several heads, as many heads? */
static int tells_shape(const dfgnn_train_group *g,
                       const dfgnn_train_group *shape) {
  return g->problem.dim == shape->problem.dim ||
         (shape->problem.heads > 1 && g->problem.heads == shape->problem.heads);
}

static int same_shape(const dfgnn_train_group *g,
                      const dfgnn_train_group *shape) {
  return g->problem.dim == shape->problem.dim &&
         g->problem.heads == shape->problem.heads;
}

/* Grows a forest on the problems outside the fold and the shape (NULL: only
 * outside the fold).  If a shape leaves too few, the forest has no trees. */
static dfgnn_status grow_without(dfgnn_forest *forest, const dfgnn_judge *by,
                                 int fold, const dfgnn_train_group *shape) {
  const dfgnn_train_rows *rows = by->rows;
  const dfgnn_train_options *o = by->options;
  uint8_t *left_out = calloc(rows->data.groups + 1, 1);
  dfgnn_status status = DFGNN_OK;
  size_t left = 0;
  *forest = *by->forest;
  forest->node = NULL;
  forest->root = NULL;
  forest->members = 0;
  if (!left_out)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t g = 0; g < rows->data.groups; g++) {
    const dfgnn_train_group *group = &rows->group[g];
    left_out[g] = fold_of(group, o->folds) == fold ||
                  !is_drawn(group, o->share) ||
                  (shape && tells_shape(group, shape));
    left += !left_out[g];
  }
  if (left >= DFGNN_LEAST_GROUPS || !shape)
    status = dfgnn__boost(forest, &rows->data, by->bins, left_out, &o->boost);
  free(left_out);
  return status;
}

static void drop(dfgnn_forest *forest) {
  free(forest->node);
  free(forest->root);
}

/* ---- a fold -------------------------------------------------------------- */

/* Lists the groups that are judged: those of the fold with enough variants. */
static size_t list_judged(size_t *list, const dfgnn_judge *by, int fold) {
  const dfgnn_train_rows *rows = by->rows;
  size_t count = 0;
  for (size_t g = 0; g < rows->data.groups; g++)
    if (fold_of(&rows->group[g], by->options->folds) == fold &&
        rows->begin[g + 1] - rows->begin[g] >= (size_t)by->options->least)
      list[count++] = g;
  return count;
}

/* Judges by forests that know neither the graphs nor the shape. */
static dfgnn_status judge_shapes(dfgnn_judgement *judgement,
                                 const dfgnn_judge *by, int fold,
                                 const size_t *list, size_t count) {
  const dfgnn_train_group *group = by->rows->group;
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < count && !status; i++) {
    const dfgnn_train_group *shape = &group[list[i]];
    dfgnn_forest forest;
    size_t k = 0;
    while (k < i && !same_shape(&group[list[k]], shape))
      k++;
    if (k < i)
      continue;
    status = grow_without(&forest, by, fold, shape);
    for (k = i; k < count && !status && forest.members; k++)
      if (same_shape(&group[list[k]], shape))
        judge_model(&judgement[k], by, &forest, list[k], DFGNN_JUDGED_SHAPE,
                    DFGNN_JUDGED_SHAPE_RACE);
    drop(&forest);
  }
  return status;
}

dfgnn_status dfgnn__judge_fold(dfgnn_trained *t, const dfgnn_judge *by,
                               int fold) {
  const dfgnn_train_rows *rows = by->rows;
  size_t *list = calloc(rows->data.groups + 1, sizeof *list);
  dfgnn_forest forest = {0};
  dfgnn_status status = DFGNN_OK;
  if (!list)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  const size_t count = list_judged(list, by, fold);
  dfgnn_judgement *grown =
      realloc(t->judgement, (t->count + count + 1) * sizeof *grown);
  if (grown)
    t->judgement = grown;
  else
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (count && !status)
    status = grow_without(&forest, by, fold, NULL);
  for (size_t i = 0; i < count && !status; i++) {
    dfgnn_judgement *j = &t->judgement[t->count + i];
    *j = (dfgnn_judgement){.decision = rows->group[list[i]].decision};
    for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
      j->regret[way] = NAN;
    judge_model(j, by, &forest, list[i], DFGNN_JUDGED_MODEL, DFGNN_JUDGED_RACE);
    judge_others(j, by, list[i]);
  }
  if (by->options->shapes && !status)
    status = judge_shapes(t->judgement + t->count, by, fold, list, count);
  if (!status)
    t->count += count;
  drop(&forest);
  free(list);
  return status;
}
