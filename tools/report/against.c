/* against.c - compares two stores: what a release, a driver or a machine
 * changed
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "tools/report/write.h"

/* Pairs and devices that a page lists. */
enum { MOST_PAIRS = 1000, MOST_DEVICES = 16 };

typedef enum verdict { FASTER, SLOWER, SAME, AMBIGUOUS, VERDICTS } verdict;
static const char *const verdict_names[VERDICTS] = {"faster", "slower", "same",
                                                    "ambiguous"};

/* The winner of a problem in both stores. */
typedef struct pair {
  const report_problem *here, *there;
  double ratio, low, high; /* time here over time there */
  double kept; /* the other store's winner: its time here over there */
  verdict verdict;
} pair;

static int by_problem(const void *a, const void *b) {
  const report_problem *p = *(const report_problem *const *)a;
  const report_problem *q = *(const report_problem *const *)b;
  return dfgnn__problem_compare(&p->decision->problem, &q->decision->problem);
}

/* Faster or slower: the interval of the ratio is beyond the margin.  Same: all
 * of it is within the margin.  Else it is ambiguous. */
static verdict judge(double low, double high) {
  if (high < 1)
    return high * (1 + DFGNN_REPORT_MARGIN) < 1 ? FASTER : AMBIGUOUS;
  if (low > 1)
    return low > 1 + DFGNN_REPORT_MARGIN ? SLOWER : AMBIGUOUS;
  return low * (1 + DFGNN_REPORT_MARGIN) >= 1 && high <= 1 + DFGNN_REPORT_MARGIN
             ? SAME
             : AMBIGUOUS;
}

static const dfgnn_measurement *row_of(const report_problem *p,
                                       const char *variant) {
  for (size_t i = 0; i < p->decision->count; i++)
    if (!strcmp(p->arm[i].ranked->variant, variant))
      return p->arm[i].row;
  return NULL;
}

static int compare(pair *out, const report_problem *here,
                   const report_problem *there) {
  const dfgnn_measurement *a = here->arm[0].row, *b = there->arm[0].row;
  *out = (pair){.here = here, .there = there, .kept = NAN};
  if (!a || !b || !(a->median_ms > 0) || !(b->median_ms > 0) ||
      !(b->ci_low_ms > 0))
    return 0;
  out->ratio = a->median_ms / b->median_ms;
  out->low = a->ci_low_ms / b->ci_high_ms;
  out->high = a->ci_high_ms / b->ci_low_ms;
  out->verdict = judge(out->low, out->high);
  const dfgnn_measurement *kept =
      row_of(here, there->decision->ranked[0].variant);
  if (kept && kept->median_ms > 0)
    out->kept = kept->median_ms / b->median_ms;
  return 1;
}

static int by_change(const void *a, const void *b) {
  const pair *x = a, *y = b;
  const double p = fabs(log(x->ratio)), q = fabs(log(y->ratio));
  if (x->verdict != y->verdict)
    return x->verdict < y->verdict ? -1 : 1;
  if (p != q)
    return p > q ? -1 : 1;
  return (x->here > y->here) - (x->here < y->here);
}

static int changed(const pair *x) {
  return strcmp(x->here->decision->ranked[0].variant,
                x->there->decision->ranked[0].variant) != 0;
}

static pair *pairs_of(size_t *count, size_t *shared, const report_data *here,
                      const report_data *there) {
  pair *list = malloc((here->problems + 1) * sizeof *list);
  const report_problem **sorted =
      malloc((there->problems + 1) * sizeof *sorted);
  *count = *shared = 0;
  if (!list || !sorted) {
    free(list);
    free(sorted);
    return NULL;
  }
  for (size_t i = 0; i < there->problems; i++)
    sorted[i] = &there->problem[i];
  qsort(sorted, there->problems, sizeof *sorted, by_problem);
  for (size_t i = 0; i < here->problems; i++) {
    const report_problem *key = &here->problem[i];
    const report_problem **found =
        bsearch(&key, sorted, there->problems, sizeof *sorted, by_problem);
    *shared += found != NULL;
    *count += found && compare(&list[*count], key, *found);
  }
  free(sorted);
  qsort(list, *count, sizeof *list, by_change);
  return list;
}

/* [verdict, problem in the page or -1, graph, shape, ms here, ms there, ratio,
 * low, high, kept, winner here, winner there] */
static void put_pair(report_writer *w, const pair *x) {
  const report_problem *here = x->here;
  const int64_t graph = dfgnn__report_graph(w, here->graph);
  const int64_t shape = dfgnn__report_shape(w, here->shape);
  const double figures[] = {
      x->verdict,
      (double)w->problem[here - w->data->problem] - 1,
      (double)graph,
      (double)shape,
      here->arm[0].row->median_ms,
      x->there->arm[0].row->median_ms,
      x->ratio,
      x->low,
      x->high,
      x->kept,
      (double)dfgnn__report_name(w, here->arm[0].row->variant),
      (double)dfgnn__report_name(w, x->there->arm[0].row->variant),
  };
  dfgnn__json_list(w->page, NULL, figures, sizeof figures / sizeof *figures);
}

static void put_environments(report_writer *w, const report_data *other) {
  dfgnn__json_open(w->page, "devices", '[');
  for (size_t i = 0; i < other->devices && i < MOST_DEVICES; i++) {
    const dfgnn_measurement *row = other->device[i].row;
    dfgnn__json_open(w->page, NULL, '{');
    dfgnn__json_string(w->page, "model", *row->model ? row->model : row->arch);
    dfgnn__json_string(w->page, "driver", row->driver);
    dfgnn__json_string(w->page, "runtime", row->runtime);
    dfgnn__json_string(w->page, "library", row->library);
    dfgnn__json_count(w->page, "problems", (int64_t)other->device[i].problems);
    dfgnn__json_close(w->page, '}');
  }
  dfgnn__json_close(w->page, ']');
}

static dfgnn_status put_all(report_writer *w, const report_data *other) {
  const report_data *d = w->data;
  size_t count, shared, number[VERDICTS] = {0}, winners = 0;
  pair *list = pairs_of(&count, &shared, d, other);
  double *ratio = malloc((count + 1) * sizeof *ratio);
  if (!list || !ratio) {
    free(list);
    free(ratio);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  }
  for (size_t i = 0; i < count; i++) {
    number[list[i].verdict]++;
    winners += (size_t)changed(&list[i]);
    ratio[i] = list[i].ratio;
  }
  report_mean mean;
  mean.value = dfgnn__report_mean(&mean.count, &mean.error, ratio, count);
  dfgnn__json_open(w->page, "against", '{');
  for (int v = 0; v < VERDICTS; v++)
    dfgnn__json_count(w->page, verdict_names[v], (int64_t)number[v]);
  const dfgnn_json_figure figures[] = {
      {"winners", (double)winners},
      {"shared", (double)shared},
      {"compared", (double)count},
      {"here", (double)(d->problems - shared)},
      {"there", (double)(other->problems - shared)},
      {"rows", (double)d->input->other_count},
      {"mean", mean.value},
      {"error", mean.error},
  };
  dfgnn__json_figures(w->page, figures, sizeof figures / sizeof *figures);
  put_environments(w, other);
  dfgnn__json_open(w->page, "pairs", '[');
  for (size_t i = 0; i < count && i < MOST_PAIRS; i++)
    put_pair(w, &list[i]);
  dfgnn__json_close(w->page, ']');
  dfgnn__json_close(w->page, '}');
  free(ratio);
  free(list);
  return DFGNN_OK;
}

dfgnn_status dfgnn__report_against(report_writer *w) {
  report_data other;
  const dfgnn_report_input input = {.row = w->data->input->other_row,
                                    .count = w->data->input->other_count};
  dfgnn_status status = dfgnn__report_data_make(&other, &input, 1);
  if (status)
    return status;
  status = put_all(w, &other);
  dfgnn__report_data_free(&other);
  return status;
}
