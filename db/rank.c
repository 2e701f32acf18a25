/* rank.c - ranks nodes by their places on one scale, for callers to keep */
#include "db/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int dfgnn__compare_nodes(const void *x, const void *y) {
  const node *a = x, *b = y;
  int c = strcmp(a->variant, b->variant);
  return c ? c : (a->revision > b->revision) - (a->revision < b->revision);
}

static int compare_rank(const void *x, const void *y) {
  const rank *a = x, *b = y;
  if (a->distance != b->distance)
    return a->distance < b->distance ? -1 : 1;
  return dfgnn__compare_nodes(a->variant, b->variant);
}

static int is_tied(double distance, double variance, double margin) {
  double near = log1p(margin);
  return distance <= near ||
         (distance <= 3 * near && distance <= 1.96 * sqrt(variance));
}

size_t dfgnn__rank_nodes(rank *ranks, const node *nodes, size_t count,
                         const dfgnn_estimate *place, double margin) {
  size_t n = 0, fastest = count, winner = 0;
  for (size_t i = 0; i < count; i++)
    if (nodes[i].candidate && place[i].count &&
        (fastest == count || place[i].mean < place[fastest].mean))
      fastest = i;
  if (fastest == count)
    return 0;
  for (size_t i = 0; i < count; i++) {
    if (!nodes[i].candidate || !place[i].count)
      continue;
    double distance = place[i].mean - place[fastest].mean;
    double variance = place[i].variance + place[fastest].variance;
    ranks[n++] = (rank){&nodes[i], distance, sqrt(place[i].variance),
                        is_tied(distance, variance, margin)};
  }
  /* Nodes are in the order of their names. */
  while (!ranks[winner].tied)
    winner++;
  for (size_t i = winner + 1; i < n; i++)
    if (ranks[i].tied && ranks[i].variant->workspace_bytes <
                             ranks[winner].variant->workspace_bytes)
      winner = i;
  rank first = ranks[winner];
  memmove(ranks + 1, ranks, winner * sizeof *ranks);
  ranks[0] = first;
  qsort(ranks + 1, n - 1, sizeof *ranks, compare_rank);
  return n;
}

static int own_problem(dfgnn_strings *strings, dfgnn_measurement *problem,
                       const dfgnn_measurement *row) {
  *problem = *row;
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[g].field[i];
      void *slot = dfgnn__field_slot(field, problem);
      int figure = g == DFGNN_GROUP_MEASUREMENT;
      switch (field->kind) {
      case DFGNN_FIELD_NAME:
      case DFGNN_FIELD_TEXT:
        *(const char **)slot = dfgnn__strings_add(
            strings, figure || !*(const char **)slot ? "" : *(char **)slot);
        if (!*(const char **)slot)
          return 0;
        break;
      case DFGNN_FIELD_INT:
        if (figure)
          *(int *)slot = 0;
        break;
      case DFGNN_FIELD_INT64:
        if (figure)
          *(int64_t *)slot = 0;
        break;
      case DFGNN_FIELD_REAL:
        if (figure)
          *(double *)slot = 0;
        break;
      default:
        break;
      }
    }
  return 1;
}

int dfgnn__add_decision(owned_decisions *all, const item *begin,
                        const item *end, const rank *ranks, size_t count,
                        size_t rejected) {
  size_t n = all->public.count;
  dfgnn_decision *decisions = (dfgnn_decision *)all->public.decision;
  if (n == all->room) {
    size_t room = n ? 2 * n : 16;
    decisions = realloc(decisions, room * sizeof *decisions);
    if (!decisions)
      return 0;
    all->public.decision = decisions;
    all->room = room;
  }
  const dfgnn_measurement *newest = begin->row;
  for (const item *i = begin; i < end; i++)
    if (i->row->time > newest->time ||
        (i->row->time == newest->time &&
         dfgnn__measurement_compare(i->row, newest) > 0))
      newest = i->row;
  dfgnn_ranked *ranked = calloc(count, sizeof *ranked);
  if (!ranked)
    return 0;
  decisions[n] =
      (dfgnn_decision){.count = count, .ranked = ranked, .rejected = rejected};
  all->public.count++;
  for (size_t i = 0; i < count; i++) {
    const node *v = ranks[i].variant;
    ranked[i] =
        (dfgnn_ranked){.variant = dfgnn__strings_add(all->strings, v->variant),
                       .revision = v->revision,
                       .log_ratio = ranks[i].distance,
                       .median_ms = v->median_ms,
                       .tied = ranks[i].tied,
                       .samples = v->samples,
                       .error = ranks[i].error};
    if (!ranked[i].variant)
      return 0;
  }
  return own_problem(all->strings, &decisions[n].problem, newest);
}

void dfgnn__decisions_free(dfgnn_decisions *decisions) {
  if (!decisions)
    return;
  owned_decisions *all = (owned_decisions *)decisions;
  for (size_t i = 0; i < decisions->count; i++)
    free((void *)decisions->decision[i].ranked);
  free((void *)decisions->decision);
  dfgnn__strings_free(all->strings);
  free(all);
}
