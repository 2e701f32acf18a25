/* winners.c - the rows that decide: those of the fastest variants of each
 * problem, of its portfolio's members, without which it is not exact, and of
 * the anchors they were compared with */
#include "select/select.h"
#include "tools/records.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A variant whose rows of a problem are kept; an anchor's only of one run. */
typedef struct kept {
  const dfgnn_measurement *problem;
  const char *variant, *run; /* run "": any */
} kept;

struct tool_winners {
  size_t count, room;
  kept *list;
};

static int compare(const void *x, const void *y) {
  const kept *a = x, *b = y;
  int c = dfgnn__problem_compare(a->problem, b->problem);
  if (!c)
    c = strcmp(a->variant, b->variant);
  return c ? c : strcmp(a->run, b->run);
}

static int has(const tool_winners *w, const dfgnn_measurement *row,
               const char *run) {
  kept key = {.problem = row, .variant = row->variant, .run = run};
  return bsearch(&key, w->list, w->count, sizeof key, compare) != NULL;
}

static int add(tool_winners *w, kept one) {
  if (w->count == w->room) {
    size_t room = w->room ? 2 * w->room : 256;
    kept *grown = realloc(w->list, room * sizeof *grown);
    if (!grown)
      return 0;
    w->list = grown;
    w->room = room;
  }
  w->list[w->count++] = one;
  return 1;
}

static void sort(tool_winners *w) {
  if (w->count)
    qsort(w->list, w->count, sizeof *w->list, compare);
}

static int add_members(tool_winners *w, const dfgnn_decision *d) {
  const dfgnn_measurement *row = &d->problem;
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  dfgnn_device_info device = DFGNN_DEVICE_INFO_INIT;
  dfgnn_row_query asked;
  int done = 1;
  snprintf(device.backend, sizeof device.backend, "%s", row->backend);
  snprintf(device.arch, sizeof device.arch, "%s", row->arch);
  device.units = row->units;
  device.cache_bytes = row->cache_bytes;
  device.shared_bytes = row->shared_bytes;
  const size_t count = dfgnn__row_query(&asked, row, &device)
                           ? dfgnn__members(member, NULL, NULL, &asked.query)
                           : 0;
  for (size_t i = 0; i < count && done; i++)
    done = add(w, (kept){row, member[i]->name, ""});
  return done;
}

static int fill(tool_winners *w, const tool_records *records, size_t best) {
  tool_winners anchors = {0};
  int done = 1;
  for (size_t i = 0; i < records->decisions->count && done; i++) {
    const dfgnn_decision *d = &records->decisions->decision[i];
    for (size_t k = 0; k < d->count && k < best && done; k++)
      done = add(w, (kept){&d->problem, d->ranked[k].variant, ""});
    done = done && add_members(w, d);
  }
  sort(w);
  for (size_t i = 0; i < records->count && done; i++) {
    const dfgnn_measurement *row = &records->row[i];
    if (*row->anchor && has(w, row, ""))
      done = add(&anchors, (kept){row, row->anchor, row->run});
  }
  for (size_t i = 0; i < anchors.count && done; i++)
    done = add(w, anchors.list[i]);
  sort(w);
  free(anchors.list);
  return done;
}

int tool_records_best(tool_records *records, int best) {
  tool_winners *w = calloc(1, sizeof *w);
  if (!w || !fill(w, records, (size_t)best)) {
    tool_winners_free(w);
    return tool_error("out of memory");
  }
  tool_winners_free(records->winners);
  records->winners = w;
  return TOOL_DONE;
}

int tool_row_wins(const tool_records *records, const dfgnn_measurement *row) {
  return has(records->winners, row, "") ||
         (!strcmp(row->status, "ok") && has(records->winners, row, row->run));
}

void tool_winners_free(tool_winners *winners) {
  if (winners)
    free(winners->list);
  free(winners);
}
