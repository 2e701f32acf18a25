#include "tools/cover.h"
#include "kernels/common/fingerprint.h"
#include "lib/cell.h"
#include "lib/key.h"
#include "lib/predict.h"
#include "tools/lookup.h"
#include "tools/records.h"
#include "tuner/coverage.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Problems on which the members of the model disagree by more (log2 of a time)
 * are measured up to twice as many graphs. */
#define DISPUTED 0.1

struct tool_cover {
  const tool_settings *settings;
  tool_records records;
  char arch[32]; /* of the device whose rows were counted; "": none yet */
  dfgnn_cover_table table;
  unsigned char *asked; /* [askable] was the entry legal for a problem of this
                         * run? */
  size_t askable;
  const dfgnn_variant **variant;
  const char **name;
  tool_graphs graphs;
  int pass; /* the number of graphs of the present pass */
};

int tool_cover_create(tool_cover **cover, const tool_settings *settings) {
  tool_cover *c = calloc(1, sizeof *c);
  const size_t most = dfgnn__variant_count() + 1;
  *cover = NULL;
  if (c) {
    c->settings = settings;
    c->variant = calloc(most, sizeof *c->variant);
    c->name = calloc(most, sizeof *c->name);
  }
  if (!c || !c->variant || !c->name) {
    tool_cover_free(c);
    return tool_error("out of memory");
  }
  /* A store that is yet to be made has no rows. */
  const int fresh = settings->store && access(settings->store, F_OK);
  const int status =
      fresh ? TOOL_DONE : tool_records_load(&c->records, settings);
  if (status) {
    tool_cover_free(c);
    return status;
  }
  *cover = c;
  return TOOL_DONE;
}

/* The names that a pass points to belong to the run's graphs. */
static void free_order(tool_cover *c) {
  free(c->graphs.name);
  free(c->graphs.listed);
  free(c->graphs.recorded);
  c->graphs = (tool_graphs){0};
}

void tool_cover_free(tool_cover *c) {
  if (!c)
    return;
  tool_records_free(&c->records);
  free_order(c);
  dfgnn__cover_table_free(&c->table);
  free(c->asked);
  free(c->variant);
  free(c->name);
  free(c);
}

int tool_cover_pass(tool_cover *c) {
  const int most = c->settings->cover;
  if (c->pass >= most)
    return 0;
  c->pass = c->pass ? 2 * c->pass : 1;
  if (c->pass > most)
    c->pass = most;
  return c->pass;
}

const tool_graphs *tool_cover_graphs(tool_cover *c, const tool_graphs *graphs) {
  uint64_t lot = dfgnn__mix(c->settings->seed + (uint64_t)c->pass);
  free_order(c);
  c->graphs.name = malloc((graphs->count + 1) * sizeof *c->graphs.name);
  c->graphs.listed = malloc(graphs->count + 1);
  c->graphs.recorded = malloc((graphs->count + 1) * sizeof *c->graphs.recorded);
  if (!c->graphs.name || !c->graphs.listed || !c->graphs.recorded)
    return graphs; /* any order will do */
  for (size_t i = 0; i < graphs->count; i++) {
    const size_t k = (size_t)((lot = dfgnn__mix(lot)) % (i + 1));
    c->graphs.name[i] = c->graphs.name[k];
    c->graphs.listed[i] = c->graphs.listed[k];
    c->graphs.recorded[i] = c->graphs.recorded[k];
    c->graphs.name[k] = graphs->name[i];
    c->graphs.listed[k] = graphs->listed[i];
    c->graphs.recorded[k] = graphs->recorded[i];
  }
  c->graphs.count = graphs->count;
  return &c->graphs;
}

/* ---- the table ----------------------------------------------------------- */

/* Notes that an entry is legal for a problem of this run. */
static void ask(tool_cover *c, size_t entry) {
  if (entry >= c->askable) {
    const size_t room = 2 * entry + 256;
    unsigned char *grown = realloc(c->asked, room);
    if (!grown)
      return;
    memset(grown + c->askable, 0, room - c->askable);
    c->asked = grown;
    c->askable = room;
  }
  c->asked[entry] = 1;
}

/* Counts the stored rows of a device. */
static void count_stored(tool_cover *c, const dfgnn_device_info *device) {
  static const dfgnn_decisions none;
  const dfgnn_decisions *all =
      c->records.decisions ? c->records.decisions : &none;
  dfgnn_decision *own = calloc(all->count + 1, sizeof *own);
  dfgnn_decisions decisions = {.decision = own};
  snprintf(c->arch, sizeof c->arch, "%s", device->arch);
  for (size_t i = 0; own && i < all->count; i++) {
    const dfgnn_measurement *m = &all->decision[i].problem;
    if (!strcmp(m->backend, device->backend) && !strcmp(m->arch, device->arch))
      own[decisions.count++] = all->decision[i];
  }
  /* Without memory less is counted, and more is measured. */
  (void)dfgnn__coverage_count(&c->table, &decisions, NULL);
  free(own);
}

/* Returns the fewest graphs of any family that runs the query; graph: counted
 * for each of them first; NULL: none is. */
static int each_legal(tool_cover *c, const dfgnn_query *query,
                      const uint64_t *graph) {
  const dfgnn_family *last = NULL;
  char cell[DFGNN_CELL_SIZE];
  int least = -1;
  dfgnn__cell(cell, query->setting.problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (v->family == last || !dfgnn__variant_offered(v) ||
        dfgnn__variant_refusal(v, &query->setting))
      continue;
    last = v->family;
    const size_t k = dfgnn__cover_table_find(&c->table, cell, v->family->name);
    if (k == SIZE_MAX)
      continue;
    ask(c, k);
    if (graph)
      (void)dfgnn__cover_table_graph(&c->table, k, *graph);
    if (least < 0 || c->table.entry[k].graphs < least)
      least = c->table.entry[k].graphs;
  }
  return least;
}

static int is_disputed(const tool_case *each, const dfgnn_query *query) {
  dfgnn_context *ctx = each->ctx;
  if (!ctx->model)
    return 0;
  pthread_mutex_lock(&ctx->lock);
  const dfgnn_prediction *p = dfgnn__predict(ctx->model, query);
  const int disputed = p && p->disagreement > DISPUTED;
  pthread_mutex_unlock(&ctx->lock);
  return disputed;
}

const char *const *tool_cover_variants(tool_cover *c, const tool_case *each) {
  tool_lookup lookup;
  if (tool_lookup_case(&lookup, each))
    return NULL;
  if (strcmp(c->arch, each->info->arch))
    count_stored(c, each->info);
  const int least = each_legal(c, &lookup.query, NULL);
  if (least < 0 || (least >= c->pass && (least >= 2 * c->pass ||
                                         !is_disputed(each, &lookup.query))))
    return NULL;
  const size_t count =
      dfgnn__coverage_draw(c->variant, &lookup.query, c->settings->seed);
  for (size_t i = 0; i < count; i++)
    c->name[i] = c->variant[i]->name;
  c->name[count] = NULL;
  return c->name;
}

void tool_cover_measured(tool_cover *c, const tool_case *each) {
  tool_lookup lookup;
  if (!tool_lookup_case(&lookup, each))
    each_legal(c, &lookup.query, &lookup.query.setting.signature->fingerprint);
}

void tool_cover_say(const tool_cover *c, const char *when) {
  size_t asked = 0, empty = 0, thin = 0;
  for (size_t i = 0; i < c->table.count && i < c->askable; i++) {
    const int graphs = c->table.entry[i].graphs;
    asked += c->asked[i];
    empty += c->asked[i] && !graphs;
    thin += c->asked[i] && graphs < DFGNN_COVERED_GRAPHS;
  }
  if (!c->settings->quiet)
    fprintf(stderr,
            "%s: %s: %zu families in cells of these problems, %zu on fewer "
            "than %d graphs, %zu on none\n",
            tool_name, when, asked, thin, DFGNN_COVERED_GRAPHS, empty);
}
