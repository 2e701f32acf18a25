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

/* ---- who may lead -------------------------------------------------------- */

#define LEAST_SURE 1.05 /* intervals up to this factor are narrow enough */

static int is_sure(const node *v, const dfgnn_estimate *place, double margin) {
  const double widest = fmax(3 * log1p(margin), log(LEAST_SURE));
  const int is_origin = place->variance == 0;
  return v->samples >= 2 && (is_origin || v->noise != DFGNN_NOISE_DISTURBED) &&
         1.96 * sqrt(place->variance) <= widest;
}

/* Is the whole interval of a below b? */
static int is_below(const dfgnn_estimate *a, const dfgnn_estimate *b) {
  return a->mean + 1.96 * sqrt(a->variance + b->variance) < b->mean;
}

/* The fastest node that may win; count: there is none. */
static size_t fastest_of(const node *nodes, const dfgnn_estimate *place,
                         size_t count) {
  size_t fastest = count;
  for (size_t i = 0; i < count; i++)
    if (nodes[i].may &&
        (fastest == count || place[i].mean < place[fastest].mean))
      fastest = i;
  return fastest;
}

/* Marks the nodes that may win, and returns the fastest of them; count: no node
 * has a place. */
static size_t find_leader(node *nodes, size_t count,
                          const dfgnn_estimate *place, double margin) {
  for (size_t i = 0; i < count; i++)
    nodes[i].may = nodes[i].candidate && place[i].count &&
                   is_sure(&nodes[i], &place[i], margin);
  const size_t sure = fastest_of(nodes, place, count);
  /* Without a sure one all of two samples may, without those all. */
  for (int64_t least = 2; least >= 0; least -= 2) {
    for (size_t i = 0; i < count; i++)
      if (nodes[i].candidate && place[i].count && nodes[i].samples >= least &&
          (sure == count || (nodes[i].noise != DFGNN_NOISE_DISTURBED &&
                             is_below(&place[i], &place[sure]))))
        nodes[i].may = 1;
    if (sure < count || fastest_of(nodes, place, count) < count)
      break;
  }
  return fastest_of(nodes, place, count);
}

size_t dfgnn__rank_nodes(rank *ranks, node *nodes, size_t count,
                         const dfgnn_estimate *place, double margin) {
  size_t n = 0, winner = 0;
  const size_t fastest = find_leader(nodes, count, place, margin);
  for (size_t i = 0; i < count; i++) {
    if (!nodes[i].candidate || !place[i].count)
      continue;
    /* A variant that seems faster than the leader and may not win ties with it.
     */
    double distance = fmax(place[i].mean - place[fastest].mean, 0);
    double variance = place[i].variance + place[fastest].variance;
    ranks[n++] = (rank){&nodes[i], distance, sqrt(place[i].variance),
                        is_tied(distance, variance, margin), nodes[i].may};
  }
  if (n == 0)
    return 0;
  /* Nodes are in the order of their names. */
  while (!ranks[winner].tied || !ranks[winner].sure)
    winner++;
  for (size_t i = winner + 1; i < n; i++)
    if (ranks[i].tied && ranks[i].sure &&
        ranks[i].variant->workspace_bytes <
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
      case DFGNN_FIELD_INT64:
        if (figure)
          dfgnn__field_set_whole(field, slot, 0);
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
                        const char *const *rejected, size_t rejections) {
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
  const char **names = calloc(rejections + 1, sizeof *names);
  if (!ranked || !names) {
    free(ranked);
    free(names);
    return 0;
  }
  decisions[n] = (dfgnn_decision){.count = count,
                                  .ranked = ranked,
                                  .rejections = rejections,
                                  .rejected = names};
  all->public.count++;
  for (size_t i = 0; i < rejections; i++)
    if (!(names[i] = dfgnn__strings_add(all->strings, rejected[i])))
      return 0;
  for (size_t i = 0; i < count; i++) {
    const node *v = ranks[i].variant;
    ranked[i] =
        (dfgnn_ranked){.variant = dfgnn__strings_add(all->strings, v->variant),
                       .revision = v->revision,
                       .log_ratio = ranks[i].distance,
                       .median_ms = v->median_ms,
                       .tied = ranks[i].tied,
                       .samples = v->samples,
                       .error = ranks[i].error,
                       .sure = ranks[i].sure,
                       .noise = v->noise};
    if (!ranked[i].variant)
      return 0;
  }
  return own_problem(all->strings, &decisions[n].problem, newest);
}

void dfgnn__decisions_free(dfgnn_decisions *decisions) {
  if (!decisions)
    return;
  owned_decisions *all = (owned_decisions *)decisions;
  for (size_t i = 0; i < decisions->count; i++) {
    free((void *)decisions->decision[i].ranked);
    free((void *)decisions->decision[i].rejected);
  }
  free((void *)decisions->decision);
  dfgnn__strings_free(all->strings);
  free(all);
}
