#include "lib/predict.h"

#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/cell.h"
#include "lib/operator.h"
#include "lib/ranker.h"

enum {
  MOST_FILES = 16,
  KINDS = DFGNN_OP_COUNT + 2 /* and programs, and MLPs */
};

typedef struct model_file {
  const dfgnn_forests *forests;
  dfgnn_forests own; /* read by the model; else forests are the caller's */
  char name[256];
} model_file;

struct dfgnn_model {
  model_file file[MOST_FILES];
  size_t files;
  dfgnn_ranker *ranker[KINDS][DFGNN_PASS_COUNT];
  const char *ranker_file[KINDS][DFGNN_PASS_COUNT];
  const dfgnn_forest *forest[KINDS][DFGNN_PASS_COUNT];
  int looked[KINDS][DFGNN_PASS_COUNT];
  int64_t *score;
  size_t scores;
  dfgnn_prediction prediction;
};

/* ---- files --------------------------------------------------------------- */

static dfgnn_status add_file(dfgnn_model *m, const char *path) {
  model_file *f = &m->file[m->files];
  if (m->files == MOST_FILES)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: the %d-th model, expected at most %d", path,
                       MOST_FILES + 1, MOST_FILES);
  dfgnn_status status = dfgnn__forests_load(&f->own, path);
  if (status)
    return status;
  snprintf(f->name, sizeof f->name, "%.255s", path);
  f->forests = &f->own;
  m->files++;
  return DFGNN_OK;
}

/* "a.model:b.model"; "" and "none" name no file. */
static dfgnn_status add_named(dfgnn_model *m, const char *list) {
  dfgnn_status status = DFGNN_OK;
  while (*list && strcmp(list, "none") && !status) {
    char path[4096];
    const size_t length = strcspn(list, ":");
    snprintf(path, sizeof path, "%.*s", (int)length, list);
    if (length)
      status = add_file(m, path);
    list += length + (list[length] == ':');
  }
  return status ? dfgnn__fail_prefix(status, "DFGNN_MODEL: ") : status;
}

char *dfgnn__model_user_path(void) {
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  char path[4096] = "";
  if (data && data[0] == '/')
    snprintf(path, sizeof path, "%s/dfgnn/tuning.model", data);
  else if (home && home[0] == '/')
    snprintf(path, sizeof path, "%s/.local/share/dfgnn/tuning.model", home);
  return path[0] ? strdup(path) : NULL;
}

static void add_user(dfgnn_model *m, dfgnn_model_log log, void *data) {
  char *path = dfgnn__model_user_path();
  if (path && !access(path, F_OK) && add_file(m, path) && log)
    log(data, dfgnn_last_error());
  free(path);
}

static void add_embedded(dfgnn_model *m, dfgnn_model_log log, void *data) {
  const void *bytes;
  const char *name;
  size_t size;
  for (size_t i = 0; (bytes = dfgnn__forests_embedded(i, &name, &size)); i++) {
    model_file *f = &m->file[m->files];
    if (m->files == MOST_FILES)
      return;
    if (dfgnn__forests_read(&f->own, name, bytes, size)) {
      if (log)
        log(data, dfgnn_last_error());
      continue;
    }
    snprintf(f->name, sizeof f->name, "%s", name);
    f->forests = &f->own;
    m->files++;
  }
}

dfgnn_status dfgnn__model_open(dfgnn_model **model, dfgnn_model_log log,
                               void *data) {
  const char *named = getenv("DFGNN_MODEL");
  dfgnn_status status = DFGNN_OK;
  dfgnn_model *m = calloc(1, sizeof *m);
  if (!m)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (named) {
    status = add_named(m, named);
  } else {
    add_user(m, log, data);
    add_embedded(m, log, data);
  }
  if (status) {
    dfgnn__model_close(m);
    return status;
  }
  *model = m;
  return DFGNN_OK;
}

dfgnn_status dfgnn__model_of(dfgnn_model **model,
                             const dfgnn_forests *forests) {
  dfgnn_model *m = calloc(1, sizeof *m);
  if (!m)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  m->file[0].forests = forests;
  m->files = 1;
  *model = m;
  return DFGNN_OK;
}

void dfgnn__model_close(dfgnn_model *m) {
  if (!m)
    return;
  for (int kind = 0; kind < KINDS; kind++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
      dfgnn__ranker_free(m->ranker[kind][pass]);
  for (size_t i = 0; i < m->files; i++)
    dfgnn__forests_free(&m->file[i].own);
  free(m->score);
  free(m);
}

void dfgnn__model_digest(char *text, size_t size, const dfgnn_model *m) {
  *text = 0;
  for (size_t i = 0, at = 0; m && i < m->files && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s ",
                           m->file[i].forests->digest);
}

const dfgnn_forests *dfgnn__model_file(const dfgnn_model *m, size_t i,
                                       const char **name) {
  if (i >= m->files)
    return NULL;
  *name = m->file[i].name;
  return m->file[i].forests;
}

void dfgnn__model_key(char *key, size_t size, const dfgnn_device_info *device,
                      dfgnn_op op, dfgnn_pass pass) {
  const dfgnn_operator *o = dfgnn__operator(op, pass);
  snprintf(key, size, "%s %s %s", device->backend, device->arch,
           o ? o->kind : "");
}

/* ---- predictions --------------------------------------------------------- */

static int kind_of(dfgnn_op op) {
  return op == DFGNN_OP_PROGRAM ? DFGNN_OP_COUNT
         : op == DFGNN_OP_MLP   ? DFGNN_OP_COUNT + 1
                                : (int)op;
}

/* The ranker of a problem, of the first file that has a forest for its kind;
 * made when it is first asked for. */
static dfgnn_ranker *ranker_of(dfgnn_model *m, const dfgnn_query *q) {
  const dfgnn_problem *p = q->setting.problem;
  const dfgnn_device_info *device = q->setting.device;
  const int kind = kind_of(p->op);
  dfgnn_ranker **ranker = &m->ranker[kind][p->pass];
  char key[64];
  if (m->looked[kind][p->pass])
    return *ranker;
  m->looked[kind][p->pass] = 1;
  dfgnn__model_key(key, sizeof key, device, p->op, p->pass);
  for (size_t i = 0; i < m->files; i++) {
    const dfgnn_forest *forest = dfgnn__forests_find(m->file[i].forests, key);
    if (!forest)
      continue;
    m->forest[kind][p->pass] = forest;
    m->ranker_file[kind][p->pass] = m->file[i].name;
    if (dfgnn__ranker_create(ranker, forest, device->backend, p->op, p->pass))
      *ranker = NULL;
    break;
  }
  return *ranker;
}

static int is_active(const uint64_t *active, size_t i) {
  return (int)(active[i / 64] >> i % 64 & 1);
}

static dfgnn_scores scores_of(const dfgnn_prediction *p) {
  return (dfgnn_scores){.members = p->forest->members,
                        .count = p->count,
                        .member = p->member,
                        .sum = p->score};
}

static const dfgnn_prediction *predict(dfgnn_model *m, const dfgnn_query *query,
                                       int all) {
  const dfgnn_problem *problem = query->setting.problem;
  dfgnn_prediction *p = &m->prediction;
  const uint64_t *active;
  const int32_t *score;
  dfgnn_ranker *ranker = ranker_of(m, query);
  if (!ranker || !dfgnn__ranker_count(ranker)) /* no variant computes it */
    return NULL;
  const int kind = kind_of(problem->op);
  *p = (dfgnn_prediction){.forest = m->forest[kind][problem->pass],
                          .file = m->ranker_file[kind][problem->pass],
                          .count = dfgnn__ranker_count(ranker),
                          .variant = dfgnn__ranker_variants(ranker)};
  if (p->count > m->scores) {
    int64_t *grown = realloc(m->score, p->count * sizeof *grown);
    if (!grown)
      return NULL;
    m->score = grown;
    m->scores = p->count;
  }
  if (dfgnn__ranker_run(&score, &active, &p->running, ranker, query, all) ||
      !p->running)
    return NULL;
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < p->count; i++) {
    m->score[i] = INT64_MAX;
    if (!is_active(active, i))
      continue;
    m->score[i] = 0;
    for (int k = 0; k < p->forest->members; k++)
      m->score[i] += score[(size_t)k * p->count + i];
    if (m->score[i] < least ||
        (m->score[i] == least &&
         strcmp(p->variant[i]->name, p->variant[p->best]->name) < 0)) {
      least = m->score[i];
      p->best = i;
    }
  }
  p->score = m->score;
  p->member = score;
  const dfgnn_scores scores = scores_of(p);
  p->disagreement = dfgnn__scores_disagreement(&scores, p->best);
  return p;
}

const dfgnn_prediction *dfgnn__predict(dfgnn_model *m,
                                       const dfgnn_query *query) {
  return predict(m, query, 0);
}

const dfgnn_prediction *dfgnn__predict_all(dfgnn_model *m,
                                           const dfgnn_query *query) {
  return predict(m, query, 1);
}

static double ratio_of(const dfgnn_prediction *p, size_t i) {
  return exp2((double)(p->score[i] - p->score[p->best]) /
              ((double)p->forest->members * DFGNN_FOREST_UNIT));
}

double dfgnn__predicted_ratio(const dfgnn_prediction *p,
                              const dfgnn_variant *variant) {
  for (size_t i = 0; i < p->count; i++)
    if (p->variant[i] == variant)
      return p->score[i] < INT64_MAX ? ratio_of(p, i) : 0;
  return 0;
}

static int before(const dfgnn_prediction *p, size_t a, size_t b) {
  if (p->score[a] != p->score[b])
    return p->score[a] < p->score[b];
  return strcmp(p->variant[a]->name, p->variant[b]->name) < 0;
}

/* Candidates that share a score differ in nothing that the model knows: the
 * first by name stands for them. */
size_t dfgnn__predicted_first(const dfgnn_variant **variant, size_t most,
                              const dfgnn_prediction *p) {
  size_t count = 0, last = p->best;
  while (count < most) {
    size_t next = p->count;
    for (size_t i = 0; i < p->count; i++)
      if (p->score[i] < INT64_MAX &&
          (count == 0 || p->score[i] > p->score[last]) &&
          (next == p->count || before(p, i, next)))
        next = i;
    if (next == p->count)
      break;
    variant[count++] = p->variant[next];
    last = next;
  }
  return count;
}

/* Is there a candidate of the same family before the n-th of the list? */
static int has_family(const dfgnn_variant *const *list, size_t n,
                      const dfgnn_family *family) {
  for (size_t i = 0; i < n; i++)
    if (list[i]->family == family)
      return 1;
  return 0;
}

size_t dfgnn__predicted_entrants(const dfgnn_variant **variant, size_t most,
                                 const dfgnn_prediction *p,
                                 const dfgnn_variant *rule) {
  size_t count = 0;
  if (rule && count < most)
    variant[count++] = rule;
  for (;;) {
    size_t next = p->count;
    for (size_t i = 0; i < p->count; i++)
      if (p->score[i] < INT64_MAX && (next == p->count || before(p, i, next)) &&
          !has_family(variant, count, p->variant[i]->family))
        next = i;
    if (next == p->count || count == most)
      break;
    variant[count++] = p->variant[next];
  }
  const dfgnn_variant *first[16];
  const size_t firsts = dfgnn__predicted_first(first, most < 16 ? most : 16, p);
  for (size_t k = 0; k < firsts && count < most; k++) {
    size_t i = 0;
    while (i < count && variant[i] != first[k])
      i++;
    if (i == count)
      variant[count++] = first[k];
  }
  return count;
}

/* ---- the features that decided ------------------------------------------- */

/* Adds up, by the feature at which the two candidates part in a tree, how much
 * more the tree gives the other candidate than the best. */
static void add_partings(int64_t *sum, const dfgnn_forest *f,
                         const uint8_t *best, const uint8_t *other) {
  size_t trees = 0;
  for (int m = 0; m < f->members; m++)
    trees += (size_t)f->trees[m];
  for (size_t t = 0; t < trees; t++) {
    const dfgnn_forest_node *root = f->node + f->root[t], *a = root, *b = root;
    int parted = -1;
    while (a->feature != DFGNN_FOREST_LEAF || b->feature != DFGNN_FOREST_LEAF) {
      const dfgnn_forest_node *x = a, *y = b;
      if (a->feature != DFGNN_FOREST_LEAF)
        x = best[a->feature] <= a->bin ? a + 1 : root + a->right;
      if (b->feature != DFGNN_FOREST_LEAF)
        y = other[b->feature] <= b->bin ? b + 1 : root + b->right;
      if (parted < 0 && x != y)
        parted = a->feature;
      a = x;
      b = y;
    }
    if (parted >= 0)
      sum[parted] += b->value - a->value;
  }
}

enum { COMPARED = 8, NAMED = 3 };

void dfgnn__prediction_text(char *text, size_t size, dfgnn_model *m,
                            const dfgnn_query *query) {
  const dfgnn_prediction *p = dfgnn__predict(m, query);
  const dfgnn_variant *first[COMPARED];
  int64_t sum[DFGNN_FOREST_FEATURES] = {0};
  uint8_t best[DFGNN_FOREST_FEATURES], other[DFGNN_FOREST_FEATURES];
  *text = 0;
  if (!p)
    return;
  const dfgnn_ranker *ranker = ranker_of(m, query);
  const size_t count = dfgnn__predicted_first(first, COMPARED, p);
  dfgnn__ranker_bins(best, ranker, p->best);
  for (size_t i = 0; i < p->count; i++)
    for (size_t k = 1; k < count; k++)
      if (p->variant[i] == first[k]) {
        dfgnn__ranker_bins(other, ranker, i);
        add_partings(sum, p->forest, best, other);
      }
  size_t at = (size_t)snprintf(
      text, size, "%s ranks %zu candidates; its members disagree by %.0f %%",
      p->file, p->running, 100 * (exp2(p->disagreement) - 1));
  for (int n = 0; n < NAMED; n++) {
    int most = 0;
    for (int f = 1; f < p->forest->features; f++)
      if (sum[f] > sum[most])
        most = f;
    if (sum[most] <= 0 || at >= size)
      break;
    at += (size_t)snprintf(
        text + at, size - at, "%s%s",
        n ? ", " : "; features that decided: ", p->forest->feature[most].name);
    sum[most] = 0;
  }
}

/* ---- the choice ---------------------------------------------------------- */

/* The graphs on which a variant's family was measured; -1: the model does not
 * say. */
static int graphs_of(const dfgnn_forest *forest, const char *cell,
                     const dfgnn_variant *variant) {
  const dfgnn_forest_cover *c =
      dfgnn__forest_cover_of(forest, cell, variant->family->name);
  return !forest->covers ? -1 : c ? c->graphs : 0;
}

/* The candidate of least score whose family was measured in the cell;
 * p->count: there is none. */
static size_t best_measured(const dfgnn_prediction *p, const char *cell) {
  size_t best = p->count;
  for (size_t i = 0; i < p->count; i++)
    if (p->score[i] < INT64_MAX && (best == p->count || before(p, i, best)) &&
        graphs_of(p->forest, cell, p->variant[i]) != 0)
      best = i;
  return best;
}

static size_t position_of(const dfgnn_prediction *p,
                          const dfgnn_variant *variant) {
  size_t i = 0;
  while (i < p->count && p->variant[i] != variant)
    i++;
  return i;
}

/* Finds how much a candidate gains on the rule's choice; it is not compared
 * with a family that was not measured in the cell. */
static dfgnn_evidence evidence_for(const dfgnn_prediction **p, size_t *best,
                                   const char *cell, dfgnn_model *m,
                                   const dfgnn_query *query,
                                   const dfgnn_variant *rule) {
  const dfgnn_variant *const candidate = (*p)->variant[*best];
  size_t other = position_of(*p, rule);
  if (other < (*p)->count && (*p)->score[other] == INT64_MAX) {
    *p = dfgnn__predict_all(m, query); /* the rule's was not among the first */
    *best = position_of(*p, candidate);
  }
  const dfgnn_scores scores = scores_of(*p);
  dfgnn_evidence e = {.graphs = graphs_of((*p)->forest, cell, candidate),
                      .disagreement =
                          dfgnn__scores_disagreement(&scores, *best)};
  if (!rule || !graphs_of((*p)->forest, cell, rule))
    other = (*p)->count;
  dfgnn__scores_gain(&e, &scores, *best, other);
  return e;
}

static double percent(double log2_ratio) {
  return 100 * (exp2(log2_ratio) - 1);
}

/* Says why the evidence for a variant does not suffice. */
static void say_doubt(dfgnn_choice *choice, const dfgnn_evidence *e,
                      const char *cell, const dfgnn_variant *best) {
  char *text = choice->because;
  const size_t size = sizeof choice->because;
  const int covered = e->graphs < 0 || e->graphs >= DFGNN_COVERED_GRAPHS;
  if (covered && e->disagreement > dfgnn__trusted_disagreement)
    snprintf(text, size, "the model abstains: its members disagree by %.0f %%",
             percent(e->disagreement));
  else if (covered)
    snprintf(
        text, size,
        "the model abstains: the gain of %s, %.1f %%, is unsure by %.1f %%",
        best->family->algorithm, percent(e->gain), percent(e->spread));
  else if (isnan(e->gain))
    snprintf(text, size,
             "the model abstains: %s was measured on %d graphs for %s, the "
             "rule's family on none",
             best->family->algorithm, e->graphs, cell);
  else
    snprintf(text, size,
             "the model abstains: %s was measured on %d graphs for %s, and its "
             "gain of %.0f %% is unsure by %.0f %%",
             best->family->algorithm, e->graphs, cell, percent(e->gain),
             percent(e->spread));
}

int dfgnn__model_choice(dfgnn_choice *choice, dfgnn_model *m,
                        const dfgnn_query *query) {
  const dfgnn_prediction *p = m ? dfgnn__predict(m, query) : NULL;
  char cell[DFGNN_CELL_SIZE];
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_MODEL, .distance = -1};
  if (!p) {
    snprintf(choice->because, sizeof choice->because,
             "no model for this kind of problem on %s",
             query->setting.device->arch);
    return 0;
  }
  dfgnn__cell(cell, query->setting.problem);
  /* A family that was not measured, as a new one, may have driven others out of
   * the ranking. */
  if (!graphs_of(p->forest, cell, p->variant[p->best]))
    p = dfgnn__predict_all(m, query);
  size_t best = best_measured(p, cell);
  if (best == p->count) {
    snprintf(choice->because, sizeof choice->because,
             "the model abstains: no family that runs was measured for %s",
             cell);
    return 1;
  }
  dfgnn_choice rule;
  dfgnn__rule_choice(&rule, query);
  const dfgnn_evidence evidence =
      evidence_for(&p, &best, cell, m, query, rule.variant);
  if (p->variant[best] != rule.variant &&
      !dfgnn__evidence_suffices(&evidence)) {
    say_doubt(choice, &evidence, cell, p->variant[best]);
    return 1;
  }
  choice->variant = p->variant[best];
  snprintf(choice->because, sizeof choice->because,
           "least predicted time of %zu variants that run", p->running);
  if (evidence.graphs >= 0) {
    const size_t length = strlen(choice->because);
    snprintf(choice->because + length, sizeof choice->because - length,
             "; %s was measured on %d graphs for %s",
             choice->variant->family->algorithm, evidence.graphs, cell);
  }
  return 1;
}
