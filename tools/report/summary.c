/* summary.c - what a page says first: how much tuning gained, and what to tune
 * next */
#include <math.h>
#include <stdlib.h>

#include "lib/base/error.h"
#include "tools/report/data.h"

enum { MOST_CELLS = 4000 }; /* beyond, nothing is foretold */

typedef double (*figure_of)(const report_problem *p);
static double over_rule(const report_problem *p) {
  return p->noisy ? NAN : p->over_rule;
}
static double over_unfused(const report_problem *p) {
  return p->noisy ? NAN : p->over_unfused;
}

static void fill_mean(report_mean *mean, const report_data *d, double *room,
                      figure_of figure) {
  for (size_t i = 0; i < d->problems; i++)
    room[i] = figure(&d->problem[i]);
  mean->value =
      dfgnn__report_mean(&mean->count, &mean->error, room, d->problems);
}

/* Says what a shape's measured problems tell of a graph that was not measured.
 */
typedef struct shape_sums {
  double ms, edges, log_gain;
  size_t gains;
} shape_sums;

static shape_sums *sums_of_shapes(const report_data *d) {
  shape_sums *sums = calloc(d->shapes + 1, sizeof *sums);
  for (size_t i = 0; sums && i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    shape_sums *s = &sums[p->shape];
    s->ms += p->best_ms;
    s->edges += (double)d->graph[p->graph].signature->edges;
    if (p->over_rule > 0 && isfinite(p->over_rule)) {
      s->log_gain += log(p->over_rule);
      s->gains++;
    }
  }
  return sums;
}

/* The time a call would save if the shape's mean gain held on the graph. */
static double worth(const shape_sums *s, const report_graph *graph) {
  if (!s->gains || !(s->edges > 0))
    return 0;
  const double ms = s->ms / s->edges * (double)graph->signature->edges;
  return ms * fmax(expm1(s->log_gain / (double)s->gains), 0);
}

/* Lists the choices for graphs and shapes that were not measured together, and
 * the one of them whose measurement is worth most. */
static void foretell(report_summary *s, const report_data *d,
                     const shape_sums *sums) {
  double most = 0;
  if (d->graphs * d->shapes > MOST_CELLS) {
    s->unmeasured = d->graphs * d->shapes - d->problems;
    return;
  }
  for (size_t g = 0; g < d->graphs; g++)
    for (size_t k = 0; k < d->shapes; k++) {
      dfgnn_choice choice;
      if (dfgnn__report_find(d, g, k))
        continue;
      s->unmeasured++;
      dfgnn__report_foretell(&choice, d, &d->graph[g], &d->shape[k]);
      if (!choice.variant)
        continue;
      s->cell[s->cells++] = (report_cell){g, k, choice.source};
      const double gain = worth(&sums[k], &d->graph[g]);
      if (gain > most) {
        most = gain;
        s->next = &s->cell[s->cells - 1];
      }
    }
}

dfgnn_status dfgnn__report_summary_make(report_summary *s,
                                        const report_data *d) {
  *s = (report_summary){.tied = 0};
  const size_t cells = d->graphs * d->shapes;
  double *room = malloc((d->problems + 1) * sizeof *room);
  shape_sums *sums = sums_of_shapes(d);
  s->cell = calloc((cells <= MOST_CELLS ? cells : 0) + 1, sizeof *s->cell);
  if (!room || !sums || !s->cell) {
    free(room);
    free(sums);
    dfgnn__report_summary_free(s);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  }
  fill_mean(&s->over_rule, d, room, over_rule);
  fill_mean(&s->over_unfused, d, room, over_unfused);
  for (size_t i = 0; i < d->problems; i++) {
    const dfgnn_decision *decision = d->problem[i].decision;
    s->noisy += d->problem[i].noisy;
    s->tied += decision->count > 1 &&
               (decision->ranked[1].tied || decision->ranked[0].log_ratio > 0);
  }
  foretell(s, d, sums);
  free(room);
  free(sums);
  return DFGNN_OK;
}

void dfgnn__report_summary_free(report_summary *s) {
  free(s->cell);
  s->cell = NULL;
}
