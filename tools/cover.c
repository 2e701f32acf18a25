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
  dfgnn_forest_cover *entry;
  size_t count, room;
  int *asked;     /* [count] was the entry legal for a problem of this run? */
  uint64_t *seen; /* hashes of cells and graphs that are counted already */
  size_t seen_count, seen_room;
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
  free(c->entry);
  free(c->asked);
  free(c->seen);
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

/* The number of an entry, which is made if need be; c->count: no memory. */
static size_t find(tool_cover *c, const char *cell, const char *family) {
  for (size_t i = 0; i < c->count; i++)
    if (!strcmp(c->entry[i].family, family) && !strcmp(c->entry[i].cell, cell))
      return i;
  if (c->count == c->room) {
    const size_t room = c->room ? 2 * c->room : 256;
    dfgnn_forest_cover *entry = realloc(c->entry, room * sizeof *entry);
    if (entry)
      c->entry = entry;
    int *asked = realloc(c->asked, room * sizeof *asked);
    if (asked)
      c->asked = asked;
    if (!entry || !asked)
      return c->count;
    c->room = room;
  }
  dfgnn_forest_cover *e = &c->entry[c->count];
  *e = (dfgnn_forest_cover){.graphs = 0};
  snprintf(e->cell, sizeof e->cell, "%s", cell);
  snprintf(e->family, sizeof e->family, "%s", family);
  c->asked[c->count] = 0;
  return c->count++;
}

/* Notes that a cell is counted on a graph; 0 if it was before. */
static int note(tool_cover *c, const char *cell, uint64_t fingerprint) {
  const uint64_t key = dfgnn__fold_text(fingerprint, cell);
  for (size_t i = 0; i < c->seen_count; i++)
    if (c->seen[i] == key)
      return 0;
  if (c->seen_count == c->seen_room) {
    const size_t room = c->seen_room ? 2 * c->seen_room : 256;
    uint64_t *grown = realloc(c->seen, room * sizeof *grown);
    if (!grown)
      return 0;
    c->seen = grown;
    c->seen_room = room;
  }
  c->seen[c->seen_count++] = key;
  return 1;
}

/* Counts the stored rows of a device. */
static void count_stored(tool_cover *c, const dfgnn_device_info *device) {
  static const dfgnn_decisions none;
  const dfgnn_decisions *all =
      c->records.decisions ? c->records.decisions : &none;
  dfgnn_decision *own = calloc(all->count + 1, sizeof *own);
  dfgnn_decisions decisions = {.decision = own};
  dfgnn_forest_cover *cover;
  size_t count;
  snprintf(c->arch, sizeof c->arch, "%s", device->arch);
  for (size_t i = 0; own && i < all->count; i++) {
    const dfgnn_measurement *m = &all->decision[i].problem;
    dfgnn_problem problem;
    char cell[DFGNN_CELL_SIZE];
    if (strcmp(m->backend, device->backend) || strcmp(m->arch, device->arch) ||
        dfgnn__key_problem(&problem, m))
      continue;
    own[decisions.count++] = all->decision[i];
    dfgnn__cell(cell, &problem);
    note(c, cell, m->signature.fingerprint);
  }
  if (own && !dfgnn__coverage(&cover, &count, &decisions, NULL)) {
    for (size_t i = 0; i < count; i++) {
      const size_t k = find(c, cover[i].cell, cover[i].family);
      if (k < c->count)
        c->entry[k].graphs = cover[i].graphs;
    }
    free(cover);
  }
  free(own);
}

/* Calls the function for the entry of each family that runs the query, and
 * returns the fewest graphs of any. */
static int each_legal(tool_cover *c, const dfgnn_query *query, int add) {
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
    const size_t k = find(c, cell, v->family->name);
    if (k == c->count)
      continue;
    c->asked[k] = 1;
    c->entry[k].graphs += add;
    if (least < 0 || c->entry[k].graphs < least)
      least = c->entry[k].graphs;
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
  const int least = each_legal(c, &lookup.query, 0);
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
  char cell[DFGNN_CELL_SIZE];
  if (tool_lookup_case(&lookup, each))
    return;
  dfgnn__cell(cell, &lookup.problem);
  const uint64_t graph = lookup.query.setting.signature->fingerprint;
  each_legal(c, &lookup.query, note(c, cell, graph));
}

void tool_cover_say(const tool_cover *c, const char *when) {
  size_t asked = 0, empty = 0, thin = 0;
  for (size_t i = 0; i < c->count; i++) {
    asked += c->asked[i] != 0;
    empty += c->asked[i] && !c->entry[i].graphs;
    thin += c->asked[i] && c->entry[i].graphs < DFGNN_COVERED_GRAPHS;
  }
  if (!c->settings->quiet)
    fprintf(stderr,
            "%s: %s: %zu families in cells of these problems, %zu on fewer "
            "than %d graphs, %zu on none\n",
            tool_name, when, asked, thin, DFGNN_COVERED_GRAPHS, empty);
}
