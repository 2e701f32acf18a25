/* problems.c - which rows are of one problem, and the order of problems
 *
 * Comparing two rows looks at two dozen fields.  A hash of these finds the rows
 * of a problem, of which only one is then compared with those of others. */
#include "db/decide.h"
#include "db/field.h"

#include <stdlib.h>
#include <string.h>

typedef struct problem {
  const dfgnn_measurement *row;
  uint32_t number; /* in the order of the rows */
} problem;

static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return mix(h, length);
}

/* The same for equal fields. */
static uint64_t mix_field(uint64_t h, const dfgnn_field *field,
                          const dfgnn_measurement *row) {
  const void *value = dfgnn__field_get(field, row);
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT: {
    const char *text = dfgnn__field_string(field, row);
    return mix_text(h, text,
                    field->key == DFGNN_KEY_WORD ? strcspn(text, ",")
                                                 : strlen(text));
  }
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64:
  case DFGNN_FIELD_UINT64:
    return mix(h, (uint64_t)dfgnn__field_whole(field, value));
  default:
    return h;
  }
}

static uint64_t hash_of(const dfgnn_measurement *row) {
  uint64_t h = 1;
  for (int group = 0; group < DFGNN_GROUP_MEASUREMENT; group++)
    for (size_t i = 0; i < dfgnn__fields[group].count; i++)
      if (dfgnn__fields[group].field[i].key != DFGNN_KEY_NONE)
        h = mix_field(h, &dfgnn__fields[group].field[i], row);
  return h;
}

static int compare_problems(const void *x, const void *y) {
  return dfgnn__problem_compare(((const problem *)x)->row,
                                ((const problem *)y)->row);
}

/* Gives each item the number of its problem, in the order of the items. */
static size_t find_problems(problem *found, item *items, size_t count,
                            uint32_t *slot, size_t slots) {
  size_t problems = 0;
  for (size_t i = 0; i < count; i++) {
    size_t at = (size_t)hash_of(items[i].row) & (slots - 1);
    while (slot[at] &&
           !dfgnn__same_problem(found[slot[at] - 1].row, items[i].row))
      at = (at + 1) & (slots - 1);
    if (!slot[at]) {
      found[problems] = (problem){items[i].row, (uint32_t)problems};
      slot[at] = (uint32_t)++problems;
    }
    items[i].problem = slot[at] - 1;
  }
  return problems;
}

int dfgnn__number_problems(item *items, size_t count) {
  size_t slots = 16;
  while (slots < 2 * count)
    slots *= 2;
  problem *found = malloc((count + 1) * sizeof *found);
  uint32_t *slot = calloc(slots, sizeof *slot);
  uint32_t *place = malloc((count + 1) * sizeof *place);
  const int ready = found && slot && place && count < UINT32_MAX;
  if (ready) {
    const size_t problems = find_problems(found, items, count, slot, slots);
    qsort(found, problems, sizeof *found, compare_problems);
    for (size_t k = 0; k < problems; k++)
      place[found[k].number] = (uint32_t)k;
    for (size_t i = 0; i < count; i++)
      items[i].problem = place[items[i].problem];
  }
  free(place);
  free(slot);
  free(found);
  return ready;
}
