#include "lib/ranker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"

/* The source of a feature of the forest. */
typedef enum source {
  FROM_NOTHING, /* this library has no such feature: missing */
  FROM_PROBLEM,
  FROM_PAIR,
  FROM_VARIANT
} source;

typedef struct column {
  source source;
  size_t which;      /* problem or pair feature */
  int *value;        /* of a pair: [classes][DFGNN_PAIR_PARAMETERS] */
  uint8_t *class_of; /* [count] of the candidates */
  uint64_t *set;
  uint8_t *bin;
} column;

struct dfgnn_ranker {
  const dfgnn_forest *forest;
  size_t count, words;
  const dfgnn_variant **variant;
  column *column;
  dfgnn_ranking_feature *feature;
  uint64_t *active, *short_list; /* bits: runs; runs and has a score */
  int32_t *score;
  uint64_t state; /* hash of the query whose scores these are; 0: none */
  dfgnn_ranking ranking;

  /* the candidates that the first trees leave */
  uint16_t chosen[DFGNN_RANKER_SHORT];
  uint64_t *few_sets; /* [features][255], as sets of one word */
  dfgnn_ranking_feature *few_feature;
  int32_t few_score[DFGNN_FOREST_MEMBERS * DFGNN_RANKER_SHORT];
  dfgnn_ranking few;
};

enum { FIRST_TREES = 12, MOST_CLASSES = 255 };

static int serves(const dfgnn_variant *v, const char *backend, dfgnn_op op,
                  dfgnn_pass pass) {
  return dfgnn__variant_offered(v) && !strcmp(v->family->backend, backend) &&
         v->family->ops & DFGNN_BIT(op) && v->family->passes & DFGNN_BIT(pass);
}

static dfgnn_status list_variants(dfgnn_ranker *r, const char *backend,
                                  dfgnn_op op, dfgnn_pass pass) {
  const size_t all = dfgnn__variant_count();
  r->variant = calloc(all + 1, sizeof *r->variant);
  if (!r->variant)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < all; i++)
    if (serves(dfgnn__variant(i), backend, op, pass))
      r->variant[r->count++] = dfgnn__variant(i);
  r->words = (r->count + 63) / 64;
  return DFGNN_OK;
}

static source find_source(size_t *which, const char *name) {
  for (*which = 0; *which < dfgnn__problem_feature_count(); ++*which)
    if (!strcmp(name, dfgnn__problem_feature_name(*which)))
      return FROM_PROBLEM;
  for (*which = 0; *which < dfgnn__pair_feature_count(); ++*which)
    if (!strcmp(name, dfgnn__pair_feature(*which)->name))
      return FROM_PAIR;
  if (!strncmp(name, "parameter ", 10) || !strncmp(name, "algorithm ", 10))
    return FROM_VARIANT;
  return FROM_NOTHING;
}

/* Puts the candidate into the class of its key, a new one if it is the first.
 */
static int join_class(dfgnn_ranker *r, column *c, int *classes,
                      size_t candidate, const int *key) {
  int k = 0;
  while (k < *classes && memcmp(c->value + k * DFGNN_PAIR_PARAMETERS, key,
                                DFGNN_PAIR_PARAMETERS * sizeof *key))
    k++;
  if (k == MOST_CLASSES)
    return -1;
  if (k == *classes) {
    const size_t n = (size_t)k + 1;
    int *value = realloc(c->value, n * DFGNN_PAIR_PARAMETERS * sizeof *value);
    c->value = value ? value : c->value;
    uint64_t *set = realloc(c->set, n * r->words * sizeof *set);
    c->set = set ? set : c->set;
    uint8_t *bin = realloc(c->bin, n);
    c->bin = bin ? bin : c->bin;
    if (!value || !set || !bin)
      return -1;
    memcpy(value + k * DFGNN_PAIR_PARAMETERS, key,
           DFGNN_PAIR_PARAMETERS * sizeof *key);
    memset(set + (size_t)k * r->words, 0, r->words * sizeof *set);
    ++*classes;
  }
  c->set[(size_t)k * r->words + candidate / 64] |= (uint64_t)1
                                                   << candidate % 64;
  c->class_of[candidate] = (uint8_t)k;
  return k;
}

static const int lacking[DFGNN_PAIR_PARAMETERS] = {-1, -1, -1};

/* Candidates that lack a parameter are a class of their own, whose bin is 0. */
static int class_pairs(dfgnn_ranker *r, column *c, int *classes) {
  const dfgnn_pair_feature *pair = dfgnn__pair_feature(c->which);
  for (size_t i = 0; i < r->count; i++) {
    int key[DFGNN_PAIR_PARAMETERS] = {0};
    if (!dfgnn__pair_values(key, pair, r->variant[i]))
      memcpy(key, lacking, sizeof key);
    if (join_class(r, c, classes, i, key) < 0)
      return 0;
  }
  return 1;
}

static int class_variants(dfgnn_ranker *r, column *c, int *classes,
                          const dfgnn_forest_feature *feature) {
  for (size_t i = 0; i < r->count; i++) {
    const double x = dfgnn__variant_feature(feature->name, r->variant[i]);
    const uint8_t bin = dfgnn__forest_bin(feature, x);
    const int key[DFGNN_PAIR_PARAMETERS] = {bin};
    const int k = join_class(r, c, classes, i, key);
    if (k < 0)
      return 0;
    c->bin[k] = bin;
  }
  return 1;
}

static dfgnn_status make_columns(dfgnn_ranker *r) {
  const dfgnn_forest *forest = r->forest;
  r->column = calloc((size_t)forest->features + 1, sizeof *r->column);
  r->feature = calloc((size_t)forest->features + 1, sizeof *r->feature);
  int done = r->column && r->feature;
  for (int f = 0; f < forest->features && done; f++) {
    column *c = &r->column[f];
    int classes = 0;
    c->source = find_source(&c->which, forest->feature[f].name);
    c->class_of = calloc(r->count + 1, 1);
    if (!c->class_of)
      done = 0;
    else if (c->source == FROM_PAIR)
      done = class_pairs(r, c, &classes);
    else if (c->source == FROM_VARIANT)
      done = class_variants(r, c, &classes, &forest->feature[f]);
    else
      done = (c->bin = calloc(1, 1)) != NULL;
    r->feature[f] = (dfgnn_ranking_feature){classes, c->set, c->bin};
  }
  return done ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
}

dfgnn_status dfgnn__ranker_create(dfgnn_ranker **ranker,
                                  const dfgnn_forest *forest,
                                  const char *backend, dfgnn_op op,
                                  dfgnn_pass pass) {
  dfgnn_ranker *r = calloc(1, sizeof *r);
  if (!r)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  r->forest = forest;
  dfgnn_status status = list_variants(r, backend, op, pass);
  if (!status)
    status = make_columns(r);
  if (!status) {
    const size_t scores = (size_t)forest->members * r->count;
    r->active = calloc(r->words + 1, sizeof *r->active);
    r->short_list = calloc(r->words + 1, sizeof *r->active);
    r->score = calloc(scores + 1, sizeof *r->score);
    const size_t features = (size_t)forest->features + 1;
    r->few_sets = calloc(features * MOST_CLASSES, sizeof *r->few_sets);
    r->few_feature = calloc(features, sizeof *r->few_feature);
    if (!r->active || !r->short_list || !r->score || !r->few_sets ||
        !r->few_feature)
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  if (status) {
    dfgnn__ranker_free(r);
    return status;
  }
  r->ranking = (dfgnn_ranking){.count = r->count,
                               .words = r->words,
                               .feature = r->feature,
                               .active = r->active,
                               .score = r->score};
  *ranker = r;
  return DFGNN_OK;
}

void dfgnn__ranker_free(dfgnn_ranker *ranker) {
  if (!ranker)
    return;
  for (int f = 0; ranker->column && f < ranker->forest->features; f++) {
    free(ranker->column[f].class_of);
    free(ranker->column[f].value);
    free(ranker->column[f].set);
    free(ranker->column[f].bin);
  }
  dfgnn__ranking_free(&ranker->ranking);
  dfgnn__ranking_free(&ranker->few);
  free(ranker->few_sets);
  free(ranker->few_feature);
  free(ranker->variant);
  free(ranker->column);
  free(ranker->feature);
  free(ranker->active);
  free(ranker->short_list);
  free(ranker->score);
  free(ranker);
}

size_t dfgnn__ranker_count(const dfgnn_ranker *ranker) { return ranker->count; }

const dfgnn_variant *const *dfgnn__ranker_variants(const dfgnn_ranker *ranker) {
  return ranker->variant;
}

/* ---- one query ----------------------------------------------------------- */

static size_t list_running(dfgnn_ranker *r, const dfgnn_query *q) {
  size_t running = 0;
  memset(r->active, 0, r->words * sizeof *r->active);
  for (size_t i = 0; i < r->count; i++) {
    const dfgnn_variant *v = r->variant[i];
    const int runs = !(q->broken && q->broken[dfgnn__variant_index(v)]) &&
                     !dfgnn__variant_refusal(v, &q->setting);
    running += (size_t)runs;
    r->active[i / 64] |= (uint64_t)runs << i % 64;
  }
  return running;
}

/* Fills the bins that the query decides; returns a hash of all of them. */
static uint64_t fill_bins(dfgnn_ranker *r, const dfgnn_setting *s) {
  uint64_t state = 1;
  for (int f = 0; f < r->forest->features; f++) {
    const dfgnn_forest_feature *feature = &r->forest->feature[f];
    column *c = &r->column[f];
    const int classes = r->feature[f].classes;
    if (c->source == FROM_PROBLEM)
      *c->bin = dfgnn__forest_bin(feature, dfgnn__problem_feature(c->which, s));
    for (int k = 0; c->source == FROM_PAIR && k < classes; k++) {
      const int *value = c->value + k * DFGNN_PAIR_PARAMETERS;
      c->bin[k] =
          memcmp(value, lacking, sizeof lacking)
              ? dfgnn__forest_bin(
                    feature, dfgnn__pair_feature(c->which)->number(s, value))
              : 0;
    }
    if (c->source == FROM_PROBLEM || c->source == FROM_PAIR)
      for (int k = 0; k < (classes ? classes : 1); k++)
        state = state * 0x9e3779b97f4a7c15u + c->bin[k];
  }
  for (size_t i = 0; i < r->words; i++)
    state = dfgnn__fold(state, r->active[i]);
  return state ? state : 1;
}

/* Lists the candidates of least score in r->chosen; returns their number. */
static size_t choose_few(dfgnn_ranker *r) {
  int64_t score[DFGNN_RANKER_SHORT];
  size_t count = 0;
  for (size_t i = 0; i < r->count; i++) {
    int64_t sum = 0;
    if (!(r->active[i / 64] >> i % 64 & 1))
      continue;
    for (int m = 0; m < r->forest->members; m++)
      sum += r->score[(size_t)m * r->count + i];
    size_t k = count;
    if (count == DFGNN_RANKER_SHORT) {
      if (sum >= score[count - 1])
        continue;
      k--;
    } else {
      count++;
    }
    for (; k > 0 && score[k - 1] > sum; k--) {
      score[k] = score[k - 1];
      r->chosen[k] = r->chosen[k - 1];
    }
    score[k] = sum;
    r->chosen[k] = (uint16_t)i;
  }
  return count;
}

static dfgnn_status rank_few(dfgnn_ranker *r) {
  const size_t count = choose_few(r);
  const int features = r->forest->features, members = r->forest->members;
  const uint64_t every = count < 64 ? (UINT64_C(1) << count) - 1 : ~UINT64_C(0);
  for (int f = 0; f < features; f++) {
    const int classes = r->feature[f].classes;
    uint64_t *set = r->few_sets + (size_t)f * MOST_CLASSES;
    r->few_feature[f] = (dfgnn_ranking_feature){classes, set, r->column[f].bin};
    if (!classes)
      continue;
    memset(set, 0, (size_t)classes * sizeof *set);
    for (size_t k = 0; k < count; k++)
      set[r->column[f].class_of[r->chosen[k]]] |= UINT64_C(1) << k;
  }
  r->few.count = count;
  r->few.words = 1;
  r->few.feature = r->few_feature;
  r->few.active = &every;
  r->few.score = r->few_score;
  const dfgnn_status status = dfgnn__forest_rank(r->forest, &r->few);
  memset(r->active, 0, r->words * sizeof *r->active);
  for (size_t k = 0; k < count; k++) {
    const size_t i = r->chosen[k];
    r->active[i / 64] |= UINT64_C(1) << i % 64;
    for (int m = 0; m < members; m++)
      r->score[(size_t)m * r->count + i] = r->few_score[(size_t)m * count + k];
  }
  return status;
}

dfgnn_status dfgnn__ranker_run(const int32_t **score, const uint64_t **active,
                               size_t *running, dfgnn_ranker *r,
                               const dfgnn_query *query, int all) {
  dfgnn_status status = DFGNN_OK;
  *running = list_running(r, query);
  const uint64_t state = fill_bins(r, &query->setting) * 2 + (all != 0);
  r->ranking.trees = all ? 0 : FIRST_TREES;
  if (state == r->state) { /* the scores are those of the last query */
    memcpy(r->active, r->short_list, r->words * sizeof *r->active);
  } else {
    status = dfgnn__forest_rank(r->forest, &r->ranking);
    if (!status && !all)
      status = rank_few(r);
    memcpy(r->short_list, r->active, r->words * sizeof *r->active);
  }
  r->state = status ? 0 : state;
  *score = r->score;
  *active = r->active;
  return status;
}

void dfgnn__ranker_bins(uint8_t bins[DFGNN_FOREST_FEATURES],
                        const dfgnn_ranker *r, size_t candidate) {
  for (int f = 0; f < r->forest->features; f++) {
    const dfgnn_ranking_feature *feature = &r->feature[f];
    bins[f] = feature->bin[0];
    for (int k = 0; k < feature->classes; k++)
      if (feature->set[(size_t)k * r->words + candidate / 64] >>
              candidate % 64 &
          1)
        bins[f] = feature->bin[k];
  }
}
