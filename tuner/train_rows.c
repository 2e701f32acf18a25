#include "tuner/train_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/feature.h"
#include "lib/key.h"
#include "lib/predict.h"

/* Beyond a factor of three it does not matter by how much a variant loses. */
#define WORST_TARGET (DFGNN_FOREST_UNIT * 8 / 5)
#define SURE 0.03 /* a standard error that halves a row's weight */

dfgnn_device_info dfgnn__train_device(const dfgnn_measurement *row) {
  dfgnn_device_info d = DFGNN_DEVICE_INFO_INIT;
  snprintf(d.backend, sizeof d.backend, "%s", row->backend);
  snprintf(d.arch, sizeof d.arch, "%s", row->arch);
  snprintf(d.model, sizeof d.model, "%s", row->model);
  d.units = row->units;
  d.cache_bytes = row->cache_bytes;
  d.memory_bytes = row->memory_bytes;
  d.shared_bytes = row->shared_bytes;
  return d;
}

int dfgnn__train_usable(void *data, const char *name, int revision) {
  const dfgnn_variant *v = dfgnn__variant_find(name);
  (void)data;
  return v && dfgnn__variant_offered(v) && v->family->revision == revision;
}

int dfgnn__train_key(char key[64], const dfgnn_measurement *row) {
  dfgnn_problem problem;
  if (dfgnn__key_problem(&problem, row))
    return 0;
  const dfgnn_device_info device = dfgnn__train_device(row);
  dfgnn__model_key(key, 64, &device, problem.op, problem.pass);
  return key[strlen(key) - 1] != ' ';
}

dfgnn_setting dfgnn__train_setting(const dfgnn_train_group *group) {
  return (dfgnn_setting){.problem = &group->problem,
                         .matrix = &group->matrix,
                         .signature = group->signature,
                         .device = &group->device};
}

static const dfgnn_signature *complete_signature(const dfgnn_signature *own,
                                                 const dfgnn_signature *graphs,
                                                 size_t count) {
  for (size_t i = 0; own->edges > 0 && !own->max_source_degree && i < count;
       i++)
    if (graphs[i].fingerprint == own->fingerprint &&
        graphs[i].edges == own->edges)
      return &graphs[i];
  return own;
}

/* Fills a group; 0 if the decision is of another key or ranks less than two. */
static int fill_group(dfgnn_train_group *g, const dfgnn_decision *d,
                      const char *key, const dfgnn_signature *graphs,
                      size_t graph_count) {
  const dfgnn_measurement *row = &d->problem;
  char own[64];
  if (d->count < 2 || !dfgnn__train_key(own, row) || strcmp(own, key) ||
      dfgnn__key_problem(&g->problem, row))
    return 0;
  g->decision = d;
  g->signature = complete_signature(&row->signature, graphs, graph_count);
  g->device = dfgnn__train_device(row);
  g->matrix = (dfgnn_matrix){.destinations = row->signature.destinations,
                             .sources = row->signature.sources,
                             .edges = row->signature.edges,
                             .max_degree = row->signature.max_degree,
                             .offsets64 = !strcmp(row->index, "i64")};
  return 1;
}

/* A whole number, so that the last bit of the C library's logarithm does not
 * matter. */
static int32_t target_of(double log_ratio) {
  const double target = log_ratio * 1.4426950408889634 * DFGNN_FOREST_UNIT;
  return target < WORST_TARGET ? (int32_t)lrint(target) : WORST_TARGET;
}

/* A row counts most if it is near the best and sure.  Over 1540
 * problems of an H200, with graphs left out, the square and 300 trees gave the
 * model a regret of 1.065, the fourth power and 100 trees one of 1.099. */
static int32_t weight_of(int32_t target, double error) {
  const double behind = 1 + 2 * (double)target / DFGNN_FOREST_UNIT;
  const double unsure = error / SURE;
  const double weight = 1024 / (behind * behind) / (1 + unsure * unsure);
  return weight > 1 ? (int32_t)weight : 1;
}

static dfgnn_status fill_groups(dfgnn_train_rows *r,
                                const dfgnn_decisions *decisions,
                                const char *key, const dfgnn_signature *graphs,
                                size_t graph_count) {
  size_t most = 0, rows = 0;
  for (size_t i = 0; i < decisions->count; i++)
    most += decisions->decision[i].count;
  r->group = calloc(decisions->count + 1, sizeof *r->group);
  r->begin = calloc(decisions->count + 2, sizeof *r->begin);
  r->variant = calloc(most + 1, sizeof *r->variant);
  r->score = calloc(most + 1, sizeof *r->score);
  int32_t *target = calloc(most + 1, sizeof *target);
  int32_t *weight = calloc(most + 1, sizeof *weight);
  uint32_t *group = calloc(most + 1, sizeof *group);
  r->data.target = target;
  r->data.weight = weight;
  r->data.group = group;
  if (!r->group || !r->begin || !r->variant || !r->score || !target ||
      !weight || !group)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < decisions->count; i++) {
    const dfgnn_decision *d = &decisions->decision[i];
    const size_t g = r->data.groups;
    double least = INFINITY;
    if (!fill_group(&r->group[g], d, key, graphs, graph_count))
      continue;
    for (size_t k = 0; k < d->count; k++)
      least = fmin(least, d->ranked[k].log_ratio);
    for (size_t k = 0; k < d->count; k++, rows++) {
      r->variant[rows] = dfgnn__variant_find(d->ranked[k].variant);
      target[rows] = target_of(d->ranked[k].log_ratio - least);
      weight[rows] = weight_of(target[rows], d->ranked[k].error);
      group[rows] = (uint32_t)g;
    }
    r->begin[++r->data.groups] = rows;
  }
  r->data.rows = rows;
  return DFGNN_OK;
}

/* ---- features ------------------------------------------------------------ */

static void add_feature(dfgnn_forest *forest, const char *kind,
                        const char *name) {
  char full[sizeof forest->feature->name];
  snprintf(full, sizeof full, "%s%s", kind, name);
  for (int f = 0; f < forest->features; f++)
    if (!strcmp(forest->feature[f].name, full))
      return;
  if (forest->features < DFGNN_FOREST_FEATURES)
    memcpy(forest->feature[forest->features++].name, full, sizeof full);
}

static void list_features(dfgnn_forest *forest, const dfgnn_train_rows *rows) {
  const dfgnn_family *last = NULL;
  for (size_t i = 0; i < dfgnn__problem_feature_count(); i++)
    add_feature(forest, "", dfgnn__problem_feature_name(i));
  for (size_t i = 0; i < dfgnn__pair_feature_count(); i++)
    add_feature(forest, "", dfgnn__pair_feature(i)->name);
  for (size_t i = 0; i < rows->data.rows; i++) {
    const dfgnn_family *family = rows->variant[i]->family;
    if (family == last)
      continue;
    last = family;
    add_feature(forest, "algorithm ", family->algorithm);
    for (int p = 0; p < DFGNN_MAX_PARAMETERS && family->parameters[p].name; p++)
      add_feature(forest, "parameter ", family->parameters[p].name);
  }
}

static double value_of(const dfgnn_forest *forest, int feature,
                       const dfgnn_setting *setting,
                       const dfgnn_variant *variant) {
  const size_t problems = dfgnn__problem_feature_count();
  const size_t pairs = dfgnn__pair_feature_count();
  const size_t f = (size_t)feature;
  if (f < problems)
    return dfgnn__problem_feature(f, setting);
  if (f < problems + pairs) {
    const dfgnn_pair_feature *pair = dfgnn__pair_feature(f - problems);
    int value[DFGNN_PAIR_PARAMETERS];
    return dfgnn__pair_values(value, pair, variant)
               ? pair->number(setting, value)
               : NAN;
  }
  return dfgnn__variant_feature(forest->feature[f].name, variant);
}

static dfgnn_status fill_values(dfgnn_train_rows *r,
                                const dfgnn_forest *forest) {
  const size_t rows = r->data.rows;
  double *value = malloc(((size_t)forest->features * rows + 1) * sizeof *value);
  r->data.value = value;
  if (!value)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t g = 0; g < r->data.groups; g++) {
    const dfgnn_setting setting = dfgnn__train_setting(&r->group[g]);
    for (size_t i = r->begin[g]; i < r->begin[g + 1]; i++)
      for (int f = 0; f < forest->features; f++)
        value[(size_t)f * rows + i] =
            value_of(forest, f, &setting, r->variant[i]);
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__train_rows(dfgnn_train_rows **rows, dfgnn_forest *forest,
                               const dfgnn_decisions *decisions,
                               const char *key, const dfgnn_signature *graphs,
                               size_t graph_count) {
  dfgnn_train_rows *r = calloc(1, sizeof *r);
  *forest = (dfgnn_forest){0};
  if (!r)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  forest->feature = calloc(DFGNN_FOREST_FEATURES, sizeof *forest->feature);
  dfgnn_status status =
      forest->feature ? fill_groups(r, decisions, key, graphs, graph_count)
                      : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status) {
    list_features(forest, r);
    status = fill_values(r, forest);
  }
  if (status) {
    dfgnn__forest_free(forest);
    dfgnn__train_rows_free(r);
    return status;
  }
  *rows = r;
  return DFGNN_OK;
}

void dfgnn__train_rows_free(dfgnn_train_rows *rows) {
  if (!rows)
    return;
  free((void *)rows->data.value);
  free((void *)rows->data.target);
  free((void *)rows->data.weight);
  free((void *)rows->data.group);
  free(rows->variant);
  free(rows->begin);
  free(rows->group);
  free(rows->score);
  free(rows);
}
