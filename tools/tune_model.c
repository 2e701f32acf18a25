/* tune_model.c - dfgnn-tune model: fits a model to measurements, judges it and
 * shows its contents */
#include "lib/base/filesystem.h"
#include "lib/cell.h"
#include "lib/key.h"
#include "tools/model_material.h"
#include "tools/report.h"
#include "tools/tune.h"
#include "tuner/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the report ---------------------------------------------------------- */

typedef struct tally {
  double sum, worst;
  size_t count;
} tally;

static void add_regret(tally *t, double regret) {
  if (!isfinite(regret))
    return;
  t->sum += log(regret);
  t->worst = fmax(t->worst, regret);
  t->count++;
}

static void put_tally(json_t *row, const char *name, const tally *t) {
  char key[64];
  tool_put_number(row, name, t->count ? exp(t->sum / (double)t->count) : NAN);
  snprintf(key, sizeof key, "%s_worst", name);
  tool_put_number(row, key, t->count ? t->worst : NAN);
}

static int alike(const dfgnn_measurement *a, const dfgnn_measurement *b) {
  return !strcmp(a->backend, b->backend) && !strcmp(a->arch, b->arch) &&
         !strcmp(a->op, b->op) && !strcmp(a->pass, b->pass) &&
         !strcmp(a->dtype, b->dtype) && a->heads == b->heads &&
         a->dim == b->dim;
}

static void put_problem(json_t *row, const dfgnn_measurement *p) {
  tool_put(row, "op", p->op);
  tool_put(row, "pass", p->pass);
  tool_put(row, "dtype", p->dtype);
  tool_put_count(row, "heads", p->heads);
  tool_put_count(row, "dim", p->dim);
  tool_put(row, "arch", p->arch);
}

/* A row with the regrets of the problems like p, or of all if p is NULL. */
static json_t *summarize(const dfgnn_trained *t, const dfgnn_measurement *p) {
  tally tallies[DFGNN_JUDGED_WAYS] = {{0}};
  int64_t count = 0;
  json_t *row = json_object();
  for (size_t i = 0; i < t->count; i++) {
    const dfgnn_judgement *j = &t->judgement[i];
    if (p && !alike(p, &j->decision->problem))
      continue;
    count++;
    for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
      add_regret(&tallies[way], j->regret[way]);
  }
  if (p)
    put_problem(row, p);
  else
    tool_put(row, "op", "all");
  tool_put_count(row, "problems", count);
  for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
    put_tally(row, dfgnn__judged_name((dfgnn_judged)way), &tallies[way]);
  return row;
}

static int by_regret(const void *a, const void *b) {
  const dfgnn_judgement *x = *(const dfgnn_judgement *const *)a;
  const dfgnn_judgement *y = *(const dfgnn_judgement *const *)b;
  const double p = x->regret[DFGNN_JUDGED_MODEL];
  const double q = y->regret[DFGNN_JUDGED_MODEL];
  return (p < q) - (p > q);
}

enum { WORST = 10 };

static json_t *put_graph(const dfgnn_judgement *j) {
  json_t *row = json_object();
  const dfgnn_measurement *p = &j->decision->problem;
  put_problem(row, p);
  tool_put(row, "graph", p->graph);
  for (int way = 0; way < DFGNN_JUDGED_WAYS; way++)
    tool_put_number(row, dfgnn__judged_name((dfgnn_judged)way), j->regret[way]);
  tool_put_number(row, "distance", j->distance);
  tool_put_number(row, "disagreement", exp2(j->disagreement) - 1);
  tool_put_count(row, "graphs", j->evidence.graphs);
  tool_put_number(row, "gain", exp2(j->evidence.gain) - 1);
  tool_put_number(row, "spread", exp2(j->evidence.spread) - 1);
  tool_put(row, "variant", j->chosen[DFGNN_JUDGED_MODEL]);
  return row;
}

/* A row for each shape of problem, then one for all. */
static json_t *shapes_of(const dfgnn_trained *t) {
  json_t *rows = json_array();
  for (size_t i = 0; i < t->count; i++) {
    const dfgnn_measurement *p = &t->judgement[i].decision->problem;
    size_t k = 0;
    while (k < i && !alike(p, &t->judgement[k].decision->problem))
      k++;
    if (k == i)
      json_array_append_new(rows, summarize(t, p));
  }
  if (t->count)
    json_array_append_new(rows, summarize(t, NULL));
  return rows;
}

typedef struct cell_row {
  char cell[DFGNN_CELL_SIZE];
  tally choice, race, rule, over_rule, unknown_cell, unknown_family;
  int64_t problems, covered;
} cell_row;

static int by_worst(const void *a, const void *b) {
  const cell_row *x = a, *y = b;
  const double p = x->over_rule.worst, q = y->over_rule.worst;
  return p != q ? (p < q) - (p > q) : strcmp(x->cell, y->cell);
}

static void add_to_cell(cell_row *c, const dfgnn_judgement *j) {
  const double rule = j->regret[DFGNN_JUDGED_RULE];
  c->problems++;
  c->covered += j->covered;
  add_regret(&c->choice, j->regret[DFGNN_JUDGED_CHOICE]);
  add_regret(&c->race, j->regret[DFGNN_JUDGED_RACE]);
  add_regret(&c->rule, rule);
  add_regret(&c->over_rule, j->regret[DFGNN_JUDGED_CHOICE] / rule);
  add_regret(&c->unknown_cell, j->regret[DFGNN_JUDGED_CELL] / rule);
  add_regret(&c->unknown_family, j->regret[DFGNN_JUDGED_FAMILY] / rule);
}

/* Adds a row for each cell of problems, first those in which the choice loses
 * most against the rule. */
static int add_cells(json_t *rows, const dfgnn_trained *t) {
  cell_row *cells = calloc(t->count + 1, sizeof *cells);
  size_t count = 0;
  if (!cells)
    return tool_error("out of memory");
  for (size_t i = 0; i < t->count; i++) {
    dfgnn_problem problem;
    char cell[DFGNN_CELL_SIZE];
    size_t k = 0;
    if (dfgnn__key_problem(&problem, &t->judgement[i].decision->problem))
      continue;
    dfgnn__cell(cell, &problem);
    while (k < count && strcmp(cells[k].cell, cell))
      k++;
    if (k == count)
      memcpy(cells[count++].cell, cell, sizeof cell);
    add_to_cell(&cells[k], &t->judgement[i]);
  }
  qsort(cells, count, sizeof *cells, by_worst);
  for (size_t k = 0; k < count; k++) {
    const cell_row *c = &cells[k];
    json_t *row = json_object();
    tool_put(row, "op", c->cell);
    tool_put_flag(row, "is_cell", 1);
    tool_put_count(row, "problems", c->problems);
    tool_put_count(row, "covered", c->covered);
    put_tally(row, "choice", &c->choice);
    put_tally(row, "race", &c->race);
    put_tally(row, "rule", &c->rule);
    put_tally(row, "over_rule", &c->over_rule);
    put_tally(row, "cell", &c->unknown_cell);
    put_tally(row, "family", &c->unknown_family);
    json_array_append_new(rows, row);
  }
  free(cells);
  return TOOL_DONE;
}

/* The rows of shapes_of, then the graphs on which the model does worst (with
 * --all: every graph). */
static json_t *report_of(const dfgnn_trained *t, int all) {
  json_t *rows = shapes_of(t);
  if (!t->count)
    return rows;
  const dfgnn_judgement **order = calloc(t->count, sizeof *order);
  if (!order)
    return rows;
  for (size_t i = 0; i < t->count; i++)
    order[i] = &t->judgement[i];
  qsort(order, t->count, sizeof *order, by_regret);
  for (size_t i = 0; i < t->count && (all || i < WORST); i++)
    json_array_append_new(rows, put_graph(order[i]));
  free(order);
  return rows;
}

/* ---- train --------------------------------------------------------------- */

static void progress(void *data, double done, const char *what) {
  const tool_settings *settings = data;
  tool_progress(settings, done, -1, "leaving graphs out: %s", what);
}

/* A failure shows when the file is written. */
static void make_folder(const char *path) {
  char folder[PATH_MAX];
  dfgnn__directory_of(folder, path);
  (void)dfgnn__make_folders(folder);
}

static int save(const dfgnn_trained *t, const tool_settings *settings) {
  char *own = settings->output ? NULL : dfgnn__model_user_path();
  const char *path = settings->output ? settings->output : own;
  int status = TOOL_FAILED;
  if (!path) {
    tool_error("there is no home for the model; name a file with --output");
  } else {
    make_folder(path);
    dfgnn_status saved = dfgnn__forests_save(&t->forests, path);
    status = saved ? tool_fail(saved) : TOOL_DONE;
    if (!saved && !settings->quiet)
      fprintf(stderr, "%s: %s holds %zu forest%s, one a kind of operator\n",
              tool_name, path, t->forests.count,
              t->forests.count == 1 ? "" : "s");
  }
  free(own);
  return status;
}

#define JUDGED(key, label)                                                     \
  {key, label, TOOL_FIGURE}, { key "_worst", "WORST", TOOL_FIGURE }

/* Fits a model to the material, and judges it, by the options. */
static int fit(dfgnn_trained *trained, const tool_material *m,
               const tool_settings *settings, dfgnn_train_options *options) {
  options->boost.threads = settings->threads > 0 ? settings->threads : 1;
  options->boost.seed = settings->seed;
  options->progress = settings->quiet ? NULL : progress;
  options->data = (void *)settings;
  dfgnn_status done = dfgnn__train(trained, m->records.row, m->records.count,
                                   m->graph, m->graphs, options);
  tool_progress_end(settings);
  return done ? tool_fail(done) : TOOL_DONE;
}

static int train(const tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"op", "OP", TOOL_TEXT},
                                        {"pass", "PASS", TOOL_TEXT},
                                        {"dtype", "DTYPE", TOOL_TEXT},
                                        {"heads", "HEADS", TOOL_COUNT},
                                        {"dim", "DIM", TOOL_COUNT},
                                        {"graph", "GRAPH", TOOL_TEXT},
                                        {"problems", "PROBLEMS", TOOL_COUNT},
                                        JUDGED("choice", "CHOICE"),
                                        JUDGED("model", "MODEL"),
                                        JUDGED("race", "RACE"),
                                        JUDGED("nearest", "NEAREST"),
                                        JUDGED("rule", "RULE"),
                                        JUDGED("over_rule", "OVER RULE"),
                                        JUDGED("paper", "PAPER"),
                                        {"distance", "DISTANCE", TOOL_FIGURE},
                                        {NULL, NULL, 0}};
  tool_material m = {0};
  dfgnn_train_options options = DFGNN_TRAIN_OPTIONS_INIT;
  dfgnn_trained trained;
  int status = tool_material_gather(&m, settings, count, operands);
  if (settings->no_check)
    options.folds = 0;
  if (!status)
    status = fit(&trained, &m, settings, &options);
  if (!status) {
    status = save(&trained, settings);
    json_t *rows = report_of(&trained, settings->all);
    const int counted = add_cells(rows, &trained);
    const int printed = tool_report(settings, rows, columns);
    status = status ? status : counted ? counted : printed;
    if (!trained.count && !settings->quiet && !settings->no_check)
      fprintf(stderr,
              "%s: nothing is judged: no problem has %d measured variants, "
              "as stores that keep winners alone have fewer\n",
              tool_name, options.least);
    dfgnn__trained_free(&trained);
  }
  tool_material_free(&m);
  return status;
}

/* ---- judge --------------------------------------------------------------- */

enum { CURVE = 4 }; /* shares 1/4, 2/4, 3/4 of the graphs, besides all */

/* Adds rows of the regret after learning from a share of the graphs. */
static int add_curve(json_t *rows, const tool_material *m,
                     const tool_settings *settings) {
  int status = TOOL_DONE;
  for (int k = 1; k < CURVE && !status; k++) {
    dfgnn_train_options options = DFGNN_TRAIN_OPTIONS_INIT;
    dfgnn_trained trained;
    options.share = (double)k / CURVE;
    status = fit(&trained, m, settings, &options);
    if (status)
      break;
    json_t *row = summarize(&trained, NULL);
    tool_put_number(row, "share", options.share);
    json_array_append_new(rows, row);
    dfgnn__trained_free(&trained);
  }
  return status;
}

static int judge(const tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"op", "OP", TOOL_TEXT},
                                        {"pass", "PASS", TOOL_TEXT},
                                        {"dtype", "DTYPE", TOOL_TEXT},
                                        {"heads", "HEADS", TOOL_COUNT},
                                        {"dim", "DIM", TOOL_COUNT},
                                        {"share", "OF GRAPHS", TOOL_SHARE},
                                        {"problems", "PROBLEMS", TOOL_COUNT},
                                        {"covered", "COVERED", TOOL_COUNT},
                                        JUDGED("choice", "CHOICE"),
                                        JUDGED("model", "MODEL"),
                                        JUDGED("race", "RACE"),
                                        JUDGED("shape", "SHAPE"),
                                        JUDGED("shape_race", "RACE"),
                                        JUDGED("rule", "RULE"),
                                        JUDGED("over_rule", "OVER RULE"),
                                        JUDGED("cell", "NO CELL"),
                                        JUDGED("family", "NO FAMILY"),
                                        {NULL, NULL, 0}};
  tool_material m = {0};
  dfgnn_train_options options = DFGNN_TRAIN_OPTIONS_INIT;
  dfgnn_trained trained;
  int status = tool_material_gather(&m, settings, count, operands);
  options.shapes = 1;
  if (!status)
    status = fit(&trained, &m, settings, &options);
  if (!status) {
    json_t *rows = settings->all ? report_of(&trained, 1) : shapes_of(&trained);
    status = trained.count ? add_curve(rows, &m, settings) : TOOL_DONE;
    if (!status)
      status = add_cells(rows, &trained);
    const int printed = tool_report(settings, rows, columns);
    status = status ? status : printed;
    dfgnn__trained_free(&trained);
  }
  tool_material_free(&m);
  return status;
}

/* ---- show ---------------------------------------------------------------- */

enum { MOST_IMPORTANT = 8 };

static int by_gain(const void *a, const void *b) {
  const dfgnn_forest_feature *x = *(const dfgnn_forest_feature *const *)a;
  const dfgnn_forest_feature *y = *(const dfgnn_forest_feature *const *)b;
  return x->gain != y->gain ? (x->gain < y->gain ? 1 : -1)
                            : strcmp(x->name, y->name);
}

static void put_forest(json_t *rows, const char *file, const char *digest,
                       const dfgnn_forest *f, int all) {
  const dfgnn_forest_feature *order[DFGNN_FOREST_FEATURES];
  double total = 0;
  for (int k = 0; k < f->features; k++) {
    order[k] = &f->feature[k];
    total += (double)f->feature[k].gain;
  }
  qsort(order, (size_t)f->features, sizeof *order, by_gain);
  for (int k = 0; k < f->features && (all || k < MOST_IMPORTANT); k++) {
    json_t *row = json_object();
    tool_put(row, "model", f->key);
    tool_put(row, "feature", order[k]->name);
    tool_put_number(row, "importance",
                    total > 0 ? (double)order[k]->gain / total : 0);
    tool_put(row, "fitted_to", f->origin);
    tool_put_count(row, "members", f->members);
    tool_put_count(row, "trees", f->trees[0]);
    tool_put(row, "file", file);
    tool_put(row, "digest", digest);
    json_array_append_new(rows, row);
  }
}

static int show(const tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {
      {"model", "MODEL", TOOL_TEXT},
      {"feature", "FEATURE", TOOL_TEXT},
      {"importance", "IMPORTANCE", TOOL_SHARE},
      {NULL, NULL, 0}};
  json_t *rows = json_array();
  dfgnn_model *model = NULL;
  const dfgnn_forests *forests;
  dfgnn_forests own;
  const char *name;
  dfgnn_status status = DFGNN_OK;
  if (count) {
    status = dfgnn__forests_load(&own, operands[0]);
    for (size_t k = 0; !status && k < own.count; k++)
      put_forest(rows, operands[0], own.digest, &own.forest[k], settings->all);
    if (!status)
      dfgnn__forests_free(&own);
  } else {
    status = dfgnn__model_open(&model, NULL, NULL);
    for (size_t i = 0;
         !status && (forests = dfgnn__model_file(model, i, &name)); i++)
      for (size_t k = 0; k < forests->count; k++)
        put_forest(rows, name, forests->digest, &forests->forest[k],
                   settings->all);
    dfgnn__model_close(model);
  }
  if (status) {
    json_decref(rows);
    return tool_fail(status);
  }
  const char *last = "";
  for (size_t i = 0; i < json_array_size(rows) && !settings->json; i++) {
    json_t *row = json_array_get(rows, i);
    const char *key = json_string_value(json_object_get(row, "model"));
    if (strcmp(last, key))
      printf("%s: %s, fitted to %s\n",
             json_string_value(json_object_get(row, "file")), key,
             json_string_value(json_object_get(row, "fitted_to")));
    last = key;
  }
  return tool_report(settings, rows, columns);
}

static int command(tool_settings *settings, int count, char **operands) {
  if (!strcmp(operands[0], "train"))
    return train(settings, count - 1, operands + 1);
  if (!strcmp(operands[0], "judge"))
    return judge(settings, count - 1, operands + 1);
  if (!strcmp(operands[0], "show") && count <= 2)
    return show(settings, count - 1, operands + 1);
  if (!strcmp(operands[0], "coverage"))
    return tool_model_coverage(settings, count - 1, operands + 1);
  return tool_usage(
      "'%s' is no command of model, expected train, judge, coverage or show",
      operands[0]);
}

const tool_command tune_model = {
    .name = "model",
    .operands = "train|judge|coverage|show [FILE...]",
    .least = 1,
    .most = -1,
    .summary = "Fit the model that ranks variants on graphs nobody measured",
    .text =
        "'model train [STORE.db|GRAPH]...' fits boosted trees to the "
        "measurements of the stores named, or of all that are in use, and "
        "writes them to --output (default tuning.model beside the user's "
        "store, where contexts find it before the package's). GRAPHs complete "
        "rows that were stored before the degrees of sources were part of a "
        "graph's signature. Its report leaves graphs out, an eighth of them "
        "at a time: the geometric mean and the worst of the time chosen over "
        "the best measured, by the choice of a context, by the model alone, "
        "by the best of its first four (--effort race), by near graphs, by "
        "the rule and by that of the DF-GNN paper; then the graphs on which "
        "the model does worst (--all: every graph). A way whose choice was "
        "not measured on a graph is not judged on it.\n"
        "\n"
        "'model judge [STORE.db|GRAPH]...' writes no model. It also leaves "
        "out, with the graphs, all problems of the judged width and number of "
        "heads (SHAPE, and the best of that model's first four), and shows "
        "how the regret falls with the share of the graphs that are learned "
        "from. It fits a forest for each of these, which takes minutes. Rows "
        "by cell of problems follow, first those in which the choice loses "
        "most against the rule (OVER RULE), with the choice over the rule of a "
        "model that knows nothing of the cell (NO CELL), and of one that never "
        "saw the family of the best variant (NO FAMILY); COVERED counts the "
        "problems of which every family was measured, so that no model led "
        "the measurements away from the best.\n"
        "\n"
        "'model coverage [FILE.model|STORE.db...]' lists every family that is "
        "legal in a cell of problems, and on how many graphs it was measured: "
        "on the GPU that --for names, else on the devices that the model "
        "ranks for, or on an sm_90; the exit status is 1 if one was on none.\n"
        "\n"
        "'model show [FILE]' lists what the models in use, or a file's, were "
        "fitted to, and how much each feature explains.",
    .options = HAS(STORE) | HAS(FOR) | HAS(OUTPUT) | HAS(THREADS) | HAS(SEED) |
               HAS(ALL) | HAS(NO_CHECK) | HAS_ALWAYS,
    .main = command};
