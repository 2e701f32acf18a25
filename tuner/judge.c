#include "tuner/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/fingerprint.h"
#include "lib/base/error.h"
#include "lib/cell.h"
#include "lib/plan_race.h"
#include "tuner/coverage.h"

enum { ENTRANTS = DFGNN_RACE_ENTRANTS };

const char *dfgnn__judged_name(dfgnn_judged way) {
  static const char *const names[] = {[DFGNN_JUDGED_CHOICE] = "choice",
                                      [DFGNN_JUDGED_MODEL] = "model",
                                      [DFGNN_JUDGED_RACE] = "race",
                                      [DFGNN_JUDGED_SHAPE] = "shape",
                                      [DFGNN_JUDGED_SHAPE_RACE] = "shape_race",
                                      [DFGNN_JUDGED_CELL] = "cell",
                                      [DFGNN_JUDGED_FAMILY] = "family",
                                      [DFGNN_JUDGED_NEAREST] = "nearest",
                                      [DFGNN_JUDGED_RULE] = "rule",
                                      [DFGNN_JUDGED_PAPER] = "paper"};
  return way < DFGNN_JUDGED_WAYS ? names[way] : NULL;
}

/* ---- the scores of one problem ------------------------------------------- */

/* The measured variants of a problem with a forest's scores. */
typedef struct scores {
  const dfgnn_judge *by;
  const dfgnn_forest *forest;
  size_t group, count;
  const dfgnn_variant *const *variant; /* [count] */
  int64_t *sum;                        /* [count], over members */
  int32_t *member;                     /* [members][count] */
  size_t rule; /* the position of the rule's choice; count: not measured */
} scores;

/* The score of a variant that is refused today, though it was measured once. */
#define REFUSED INT64_MAX

static dfgnn_status score(scores *s, const dfgnn_judge *by,
                          const dfgnn_forest *forest, size_t group,
                          const dfgnn_variant *rule) {
  const dfgnn_train_rows *rows = by->rows;
  const size_t begin = rows->begin[group];
  const dfgnn_setting setting = dfgnn__train_setting(&rows->group[group]);
  uint8_t bins[DFGNN_FOREST_FEATURES];
  *s = (scores){.by = by,
                .forest = forest,
                .group = group,
                .count = rows->begin[group + 1] - begin,
                .variant = rows->variant + begin,
                .sum = rows->score + begin};
  s->member = malloc((size_t)forest->members * s->count * sizeof *s->member);
  if (!s->member)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < s->count; i++) {
    s->sum[i] = 0;
    for (int f = 0; f < forest->features; f++)
      bins[f] = by->bins[(size_t)f * rows->data.rows + begin + i];
    for (int m = 0; m < forest->members; m++) {
      const int32_t x = dfgnn__forest_score(forest, m, bins);
      s->member[(size_t)m * s->count + i] = x;
      s->sum[i] += x;
    }
    if (dfgnn__variant_refusal(s->variant[i], &setting))
      s->sum[i] = REFUSED;
  }
  while (s->rule < s->count && s->variant[s->rule] != rule)
    s->rule++;
  return DFGNN_OK;
}

static int before(const scores *s, size_t a, size_t b) {
  if (s->sum[a] != s->sum[b])
    return s->sum[a] < s->sum[b];
  return strcmp(s->variant[a]->name, s->variant[b]->name) < 0;
}

/* The graphs on which a variant's family was measured in the problem's cell,
 * by the rows that the forest was fitted to. */
static int graphs_of(const scores *s, size_t i) {
  char cell[DFGNN_CELL_SIZE];
  dfgnn__cell(cell, &s->by->rows->group[s->group].problem);
  const dfgnn_forest_cover *c =
      dfgnn__forest_cover_of(s->forest, cell, s->variant[i]->family->name);
  return c ? c->graphs : 0;
}

/* The variant of least score, of those whose family was measured in the cell
 * unless all are asked for; count: there is none. */
static size_t best_of(const scores *s, int all) {
  size_t best = s->count;
  for (size_t i = 0; i < s->count; i++)
    if (s->sum[i] != REFUSED && (best == s->count || before(s, i, best)) &&
        (all || graphs_of(s, i)))
      best = i;
  return best;
}

static dfgnn_scores scores_of(const scores *s) {
  return (dfgnn_scores){.members = s->forest->members,
                        .count = s->count,
                        .member = s->member,
                        .sum = s->sum};
}

/* The variant that the model chooses, as dfgnn__model_choice would, and the
 * evidence for it; NULL: it abstains. */
static const char *believed(dfgnn_evidence *e, const scores *s) {
  const dfgnn_scores all = scores_of(s);
  const size_t best = best_of(s, 0);
  if (best == s->count)
    return NULL;
  *e = (dfgnn_evidence){.graphs = graphs_of(s, best),
                        .disagreement = dfgnn__scores_disagreement(&all, best)};
  const int known = s->rule < s->count && graphs_of(s, s->rule);
  dfgnn__scores_gain(e, &all, best, known ? s->rule : s->count);
  return dfgnn__evidence_suffices(e) ? s->variant[best]->name : NULL;
}

/* Lists the variants that race, as dfgnn__predicted_entrants does. */
static size_t list_entrants(size_t entrant[ENTRANTS], const scores *s) {
  size_t count = 0;
  if (s->rule < s->count)
    entrant[count++] = s->rule;
  for (int families = 1; families >= 0; families--)
    while (count < ENTRANTS) {
      size_t next = s->count;
      for (size_t i = 0; i < s->count; i++) {
        int taken = s->sum[i] == REFUSED;
        for (size_t k = 0; k < count; k++)
          taken |= families
                       ? s->variant[entrant[k]]->family == s->variant[i]->family
                       : s->sum[entrant[k]] == s->sum[i];
        if (!taken && (next == s->count || before(s, i, next)))
          next = i;
      }
      if (next == s->count)
        break;
      entrant[count++] = next;
    }
  return count;
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

static void judge_way(dfgnn_judgement *j, dfgnn_judged way,
                      const char *variant) {
  j->chosen[way] = variant;
  j->regret[way] = regret_of(j->decision, variant);
}

static dfgnn_query query_of(const dfgnn_judge *by, size_t group) {
  return (dfgnn_query){.setting = dfgnn__train_setting(&by->rows->group[group]),
                       .family = ""};
}

/* Sets the regret of two ways: that of the forest's best, and of the best of
 * those that race; *choice is the variant that the model chooses, NULL if it
 * abstains. */
static dfgnn_status judge_model(dfgnn_judgement *j, const char **choice,
                                const dfgnn_judge *by,
                                const dfgnn_forest *forest, dfgnn_judged model,
                                dfgnn_judged race) {
  const dfgnn_query query = query_of(by, j->group);
  dfgnn_choice rule;
  size_t entrant[ENTRANTS];
  dfgnn_evidence other;
  scores s;
  dfgnn__rule_choice(&rule, &query);
  dfgnn_status status = score(&s, by, forest, j->group, rule.variant);
  if (status)
    return status;
  const size_t best = best_of(&s, 1), entrants = list_entrants(entrant, &s);
  const int runs = best < s.count; /* does any measured variant run today? */
  judge_way(j, model, runs ? s.variant[best]->name : NULL);
  const dfgnn_scores all = scores_of(&s);
  if (model == DFGNN_JUDGED_MODEL && runs)
    j->disagreement = dfgnn__scores_disagreement(&all, best);
  for (size_t k = 0; k < entrants; k++) {
    const char *name = s.variant[entrant[k]]->name;
    if (k == 0 || regret_of(j->decision, name) < j->regret[race])
      judge_way(j, race, name);
  }
  *choice = believed(model == DFGNN_JUDGED_MODEL ? &j->evidence : &other, &s);
  free(s.member);
  return DFGNN_OK;
}

/* chosen: by the model; NULL: it abstains. */
static void judge_others(dfgnn_judgement *j, const dfgnn_judge *by,
                         const char *chosen) {
  const dfgnn_query query = query_of(by, j->group);
  dfgnn_choice near, rule, paper;
  dfgnn__table_select(&near, by->table, &query,
                      query.setting.signature->fingerprint);
  dfgnn__rule_choice(&rule, &query);
  dfgnn__paper_choice(&paper, &query, DFGNN_PAPER_CAPACITY);
  j->distance = near.distance;
  judge_way(j, DFGNN_JUDGED_RULE, rule.variant ? rule.variant->name : NULL);
  judge_way(j, DFGNN_JUDGED_PAPER, paper.variant ? paper.variant->name : NULL);
  judge_way(j, DFGNN_JUDGED_NEAREST,
            near.variant ? near.variant->name : j->chosen[DFGNN_JUDGED_RULE]);
  const int close = near.variant && (near.source != DFGNN_SOURCE_NEAREST ||
                                     near.distance <= dfgnn__near_distance);
  judge_way(j, DFGNN_JUDGED_CHOICE,
            close    ? near.variant->name
            : chosen ? chosen
                     : j->chosen[DFGNN_JUDGED_RULE]);
}

/* Is each family that somebody measured in the problem's cell here with two
 * variants at least? */
static int is_covered(const dfgnn_judge *by, size_t group) {
  const dfgnn_train_rows *rows = by->rows;
  const dfgnn_query query = query_of(by, group);
  for (size_t v = 0; v < dfgnn__variant_count(); v++) {
    const dfgnn_family *family = dfgnn__variant(v)->family;
    int measured = 0;
    if (family->reference || family->paper ||
        strcmp(family->backend, query.setting.device->backend) ||
        (v && dfgnn__variant(v - 1)->family == family))
      continue;
    for (size_t i = rows->begin[group]; i < rows->begin[group + 1]; i++)
      measured += rows->variant[i]->family == family;
    if (measured >= 2)
      continue;
    int legal = 0;
    for (size_t k = v; k < dfgnn__variant_count() && legal <= measured &&
                       dfgnn__variant(k)->family == family;
         k++)
      legal += !dfgnn__variant_refusal(dfgnn__variant(k), &query.setting);
    if (legal > measured)
      return 0;
  }
  return 1;
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

static int same_cell(const dfgnn_train_group *g,
                     const dfgnn_train_group *other) {
  char a[DFGNN_CELL_SIZE], b[DFGNN_CELL_SIZE];
  dfgnn__cell(a, &g->problem);
  dfgnn__cell(b, &other->problem);
  return !strcmp(a, b);
}

/* Grows a forest on the problems that are not left out, with their coverage. */
static dfgnn_status grow(dfgnn_forest *forest, const dfgnn_judge *by,
                         const dfgnn_boost_data *data,
                         const uint8_t *left_out) {
  const dfgnn_train_rows *rows = by->rows;
  dfgnn_decision *left = calloc(rows->data.groups + 1, sizeof *left);
  dfgnn_decisions decisions = {.decision = left};
  if (!left)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t g = 0; g < rows->data.groups; g++)
    if (!left_out || !left_out[g])
      left[decisions.count++] = *rows->group[g].decision;
  dfgnn_status status =
      dfgnn__coverage(&forest->cover, &forest->covers, &decisions, NULL);
  free(left);
  return status ? status
                : dfgnn__boost(forest, data, by->bins, left_out,
                               &by->options->boost);
}

static void start(dfgnn_forest *forest, const dfgnn_judge *by) {
  *forest = *by->forest;
  forest->node = NULL;
  forest->root = NULL;
  forest->cover = NULL;
  forest->covers = 0;
  forest->members = 0;
}

static void drop(dfgnn_forest *forest) {
  free(forest->node);
  free(forest->root);
  free(forest->cover);
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
  start(forest, by);
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
    status = grow(forest, by, &rows->data, left_out);
  free(left_out);
  return status;
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
                                 size_t count) {
  const dfgnn_train_group *group = by->rows->group;
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < count && !status; i++) {
    const dfgnn_train_group *shape = &group[judgement[i].group];
    dfgnn_forest forest;
    const char *choice;
    size_t k = 0;
    while (k < i && !same_shape(&group[judgement[k].group], shape))
      k++;
    if (k < i)
      continue;
    status = grow_without(&forest, by, fold, shape);
    for (k = i; k < count && !status && forest.members; k++)
      if (same_shape(&group[judgement[k].group], shape))
        status = judge_model(&judgement[k], &choice, by, &forest,
                             DFGNN_JUDGED_SHAPE, DFGNN_JUDGED_SHAPE_RACE);
    drop(&forest);
  }
  return status;
}

static dfgnn_status judge_group(dfgnn_judgement *j, const dfgnn_judge *by,
                                const dfgnn_forest *forest, size_t group) {
  const char *choice;
  *j = (dfgnn_judgement){.decision = by->rows->group[group].decision,
                         .group = group,
                         .covered = is_covered(by, group)};
  for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
    j->regret[way] = NAN;
  dfgnn_status status = judge_model(j, &choice, by, forest, DFGNN_JUDGED_MODEL,
                                    DFGNN_JUDGED_RACE);
  if (!status)
    judge_others(j, by, choice);
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
  for (size_t i = 0; i < count && !status; i++)
    status = judge_group(&t->judgement[t->count + i], by, &forest, list[i]);
  if (by->options->shapes && !status)
    status = judge_shapes(t->judgement + t->count, by, fold, count);
  if (!status)
    t->count += count;
  drop(&forest);
  free(list);
  return status;
}

/* ---- cells and families that nobody measured ----------------------------- */

/* Judges the choice by a forest: what the model chooses, else the rule. */
static dfgnn_status judge_choice(dfgnn_judgement *j, const dfgnn_judge *by,
                                 const dfgnn_forest *forest, dfgnn_judged way) {
  const dfgnn_query query = query_of(by, j->group);
  dfgnn_choice rule;
  dfgnn_evidence evidence;
  scores s;
  dfgnn__rule_choice(&rule, &query);
  dfgnn_status status = score(&s, by, forest, j->group, rule.variant);
  if (status)
    return status;
  const char *chosen = believed(&evidence, &s);
  judge_way(j, way, chosen ? chosen : j->chosen[DFGNN_JUDGED_RULE]);
  free(s.member);
  return DFGNN_OK;
}

/* Judges the judgements begin .. end - 1 whose problems are in the cell of the
 * first by a forest that does not know the cell. */
static dfgnn_status judge_cell(dfgnn_judgement *judgement, size_t begin,
                               size_t end, const dfgnn_judge *by) {
  const dfgnn_train_rows *rows = by->rows;
  const dfgnn_train_group *cell = &rows->group[judgement[begin].group];
  uint8_t *left_out = calloc(rows->data.groups + 1, 1);
  dfgnn_status status = DFGNN_OK;
  dfgnn_forest forest;
  size_t left = 0;
  start(&forest, by);
  if (!left_out)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t g = 0; g < rows->data.groups; g++) {
    left_out[g] = (uint8_t)same_cell(&rows->group[g], cell);
    left += !left_out[g];
  }
  if (left >= DFGNN_LEAST_GROUPS)
    status = grow(&forest, by, &rows->data, left_out);
  for (size_t k = begin; k < end && !status && forest.members; k++)
    if (same_cell(&rows->group[judgement[k].group], cell))
      status = judge_choice(&judgement[k], by, &forest, DFGNN_JUDGED_CELL);
  drop(&forest);
  free(left_out);
  return status;
}

static const dfgnn_family *best_family(const dfgnn_judgement *j) {
  const dfgnn_ranked *best = &j->decision->ranked[0];
  for (size_t i = 1; i < j->decision->count; i++)
    if (j->decision->ranked[i].log_ratio < best->log_ratio)
      best = &j->decision->ranked[i];
  return dfgnn__variant_find(best->variant)->family;
}

/* Judges the judgements begin .. end - 1 whose best variant is of the family of
 * the first one's by a forest that never saw the family. */
static dfgnn_status judge_family(dfgnn_judgement *judgement, size_t begin,
                                 size_t end, const dfgnn_judge *by) {
  const dfgnn_train_rows *rows = by->rows;
  const dfgnn_family *family = best_family(&judgement[begin]);
  int32_t *weight = malloc((rows->data.rows + 1) * sizeof *weight);
  dfgnn_boost_data data = rows->data;
  dfgnn_status status = DFGNN_OK;
  dfgnn_forest forest;
  size_t kept = 0;
  start(&forest, by);
  if (!weight)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < data.rows; i++)
    weight[i] = rows->variant[i]->family == family ? 0 : rows->data.weight[i];
  data.weight = weight;
  status = grow(&forest, by, &data, NULL);
  for (size_t i = 0; !status && i < forest.covers; i++)
    if (strcmp(forest.cover[i].family, family->name))
      forest.cover[kept++] = forest.cover[i];
  forest.covers = kept;
  for (size_t k = begin; k < end && !status; k++)
    if (best_family(&judgement[k]) == family)
      status = judge_choice(&judgement[k], by, &forest, DFGNN_JUDGED_FAMILY);
  drop(&forest);
  free(weight);
  return status;
}

dfgnn_status dfgnn__judge_unmeasured(dfgnn_trained *t, const dfgnn_judge *by) {
  const dfgnn_train_group *group = by->rows->group;
  const size_t end = t->count;
  size_t begin = end;
  dfgnn_status status = DFGNN_OK;
  /* Judgements before these are of other rows, and so are their groups. */
  while (begin && t->judgement[begin - 1].group < by->rows->data.groups &&
         group[t->judgement[begin - 1].group].decision ==
             t->judgement[begin - 1].decision)
    begin--;
  for (size_t i = begin; i < end && !status; i++) {
    int cell = 1, family = 1; /* is this the first of its cell, family? */
    for (size_t k = begin; k < i; k++) {
      cell &= !same_cell(&group[t->judgement[k].group],
                         &group[t->judgement[i].group]);
      family &= best_family(&t->judgement[k]) != best_family(&t->judgement[i]);
    }
    if (cell)
      status = judge_cell(t->judgement, i, end, by);
    if (family && !status)
      status = judge_family(t->judgement, i, end, by);
  }
  return status;
}
