#include "tuner/cover_table.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/fingerprint.h"
#include "lib/key.h"

void dfgnn__cover_table_free(dfgnn_cover_table *t) {
  free(t->entry);
  free(t->index);
  free(t->slot);
  *t = (dfgnn_cover_table){.count = 0};
}

/* ---- the set of what was counted ----------------------------------------- */

/* The slot of a key, or the empty one where it belongs. */
static size_t place_of(const dfgnn_cover_table *t, uint64_t key) {
  size_t i = (size_t)dfgnn__mix(key) & (t->slots - 1);
  while (t->slot[i] && t->slot[i] != key)
    i = (i + 1) & (t->slots - 1);
  return i;
}

static int grow(dfgnn_cover_table *t) {
  dfgnn_cover_table larger = {.slots = t->slots ? 2 * t->slots : 1024};
  larger.slot = calloc(larger.slots, sizeof *larger.slot);
  if (!larger.slot)
    return 0;
  for (size_t i = 0; i < t->slots; i++)
    if (t->slot[i])
      larger.slot[place_of(&larger, t->slot[i])] = t->slot[i];
  free(t->slot);
  t->slot = larger.slot;
  t->slots = larger.slots;
  return 1;
}

/* Adds a key to the set; *fresh: it was not there.  0 without memory. */
static int add(dfgnn_cover_table *t, int *fresh, uint64_t key) {
  key = key ? key : 1;
  if (2 * t->used >= t->slots && !grow(t))
    return 0;
  uint64_t *slot = &t->slot[place_of(t, key)];
  *fresh = !*slot;
  t->used += *fresh != 0;
  *slot = key;
  return 1;
}

/* ---- entries ------------------------------------------------------------- */

/* The place in the index of a cell and family, or the empty one where they
 * belong. */
static uint32_t *indexed(const dfgnn_cover_table *t, const char *cell,
                         const char *family) {
  const size_t mask = 2 * t->room - 1;
  size_t i = (size_t)dfgnn__fold_text(dfgnn__fold_text(0, cell), family) & mask;
  for (; t->index[i]; i = (i + 1) & mask) {
    const dfgnn_forest_cover *e = &t->entry[t->index[i] - 1];
    if (!strcmp(e->family, family) && !strcmp(e->cell, cell))
      break;
  }
  return &t->index[i];
}

/* Makes room for twice as many entries. */
static int widen(dfgnn_cover_table *t) {
  const size_t room = t->room ? 2 * t->room : 256;
  dfgnn_forest_cover *entry = realloc(t->entry, room * sizeof *entry);
  if (entry)
    t->entry = entry;
  uint32_t *index = calloc(2 * room, sizeof *index);
  if (!entry || !index) {
    free(index);
    return 0;
  }
  free(t->index);
  t->index = index;
  t->room = room;
  for (size_t i = 0; i < t->count; i++)
    *indexed(t, t->entry[i].cell, t->entry[i].family) = (uint32_t)i + 1;
  return 1;
}

size_t dfgnn__cover_table_find(dfgnn_cover_table *t, const char *cell,
                               const char *family) {
  if (t->count == t->room && !widen(t))
    return SIZE_MAX;
  uint32_t *place = indexed(t, cell, family);
  if (!*place) {
    dfgnn_forest_cover *e = &t->entry[t->count++];
    *e = (dfgnn_forest_cover){.graphs = 0};
    strncpy(e->cell, cell, sizeof e->cell - 1);
    strncpy(e->family, family, sizeof e->family - 1);
    *place = (uint32_t)t->count;
  }
  return *place - 1;
}

enum { MOST = 65535 }; /* as files of models keep counts */
enum { OF_GRAPHS = 1, OF_SETTINGS };

/* Counts a value of a kind for an entry, once. */
static int count(dfgnn_cover_table *t, size_t entry, uint64_t kind,
                 uint64_t value, int *counter) {
  const dfgnn_forest_cover *e = &t->entry[entry];
  uint64_t key = dfgnn__fold_text(dfgnn__fold(kind, value), e->cell);
  int fresh = 0;
  key = dfgnn__fold_text(key, e->family);
  if (!add(t, &fresh, key))
    return 0;
  *counter += fresh && *counter < MOST;
  return 1;
}

int dfgnn__cover_table_graph(dfgnn_cover_table *t, size_t entry,
                             uint64_t fingerprint) {
  return count(t, entry, OF_GRAPHS, fingerprint, &t->entry[entry].graphs);
}

int dfgnn__cover_table_setting(dfgnn_cover_table *t, size_t entry,
                               size_t variant) {
  return count(t, entry, OF_SETTINGS, variant, &t->entry[entry].settings);
}

static int by_name(const void *a, const void *b) {
  return dfgnn__forest_cover_order(a, b);
}

void dfgnn__cover_table_sort(dfgnn_cover_table *t) {
  free(t->index);
  t->index = NULL;
  if (t->count)
    qsort(t->entry, t->count, sizeof *t->entry, by_name);
}
