/* parameter.c - the effect of each parameter, and the variants that ever win */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/registry.h"
#include "report/section.h"
#include "report/svg.h"

/* The least loss on one problem of the variants with one value of a parameter.
 */
typedef struct sample {
  const dfgnn_family *family;
  const dfgnn_parameter *parameter;
  int value;
  size_t problem;
  double loss;
  int won;
} sample;

typedef struct samples {
  sample *list;
  size_t count, room;
} samples;

static int by_problem(const void *a, const void *b) {
  const sample *x = a, *y = b;
  int c = strcmp(x->family->name, y->family->name);
  if (!c)
    c = (x->parameter > y->parameter) - (x->parameter < y->parameter);
  if (!c)
    c = (x->value > y->value) - (x->value < y->value);
  if (!c)
    c = (x->problem > y->problem) - (x->problem < y->problem);
  return c ? c : dfgnn__compare_doubles(&x->loss, &y->loss);
}

static int add(samples *all, sample one) {
  if (all->count == all->room) {
    const size_t room = all->room ? 2 * all->room : 4096;
    sample *grown = realloc(all->list, room * sizeof *grown);
    if (!grown)
      return 0;
    all->list = grown;
    all->room = room;
  }
  all->list[all->count++] = one;
  return 1;
}

static int collect(samples *all, const report_data *d) {
  for (size_t i = 0; i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    for (size_t k = 0; k < p->decision->count; k++) {
      const dfgnn_ranked *r = &p->decision->ranked[k];
      const dfgnn_variant *v = dfgnn__variant_find(r->variant);
      if (!v)
        continue;
      for (int n = 0; n < DFGNN_MAX_PARAMETERS; n++)
        if (v->family->parameters[n].count > 1 &&
            !add(all, (sample){.family = v->family,
                               .parameter = &v->family->parameters[n],
                               .value = v->parameter[n],
                               .problem = i,
                               .loss = exp(r->log_ratio - p->fastest),
                               .won = k == 0}))
          return 0;
    }
  }
  if (!all->count)
    return 1;
  qsort(all->list, all->count, sizeof *all->list, by_problem);
  size_t kept = 0;
  for (size_t i = 0; i < all->count; i++) {
    sample *last = kept ? &all->list[kept - 1] : NULL;
    const sample *one = &all->list[i];
    if (last && last->parameter == one->parameter &&
        last->value == one->value && last->problem == one->problem)
      last->won |= one->won;
    else
      all->list[kept++] = *one;
  }
  all->count = kept;
  return 1;
}

static void value_text(char *text, size_t size, const dfgnn_parameter *p,
                       int value) {
  snprintf(text, size, "%d", value);
  for (int i = 0; i < p->count; i++)
    if (p->values[i] == value && p->labels[i])
      snprintf(text, size, "%s", p->labels[i]);
}

static void put_value(dfgnn_page *page, const sample *begin, size_t count) {
  static const dfgnn_axis axis = {1, 2, 2, 198, 1};
  char text[64];
  size_t won = 0;
  double *loss = malloc(count * sizeof *loss);
  if (!loss) {
    page->failed = 1;
    return;
  }
  for (size_t i = 0; i < count; i++) {
    loss[i] = begin[i].loss;
    won += (size_t)begin[i].won;
  }
  const double mean = dfgnn__report_mean(NULL, loss, count);
  qsort(loss, count, sizeof *loss, dfgnn__compare_doubles);
  value_text(text, sizeof text, begin->parameter, begin->value);
  dfgnn__page_raw(page, "<tr><td>");
  dfgnn__page_text(page, text);
  dfgnn__page_f(page, "<td>%zu<td>%zu<td>%.3f<td>", count, won, mean);
  dfgnn__page_figure(page, loss[count - 1]);
  dfgnn__page_raw(page, "<td>");
  dfgnn__svg_box(page, 200, &axis, loss, count);
  dfgnn__page_raw(page, "\n");
  free(loss);
}

static void put_parameters(dfgnn_page *page, const samples *all) {
  const dfgnn_family *family = NULL;
  const dfgnn_parameter *parameter = NULL;
  for (size_t begin = 0, end; begin < all->count; begin = end) {
    const sample *s = &all->list[begin];
    for (end = begin + 1;
         end < all->count && all->list[end].parameter == s->parameter &&
         all->list[end].value == s->value;
         end++)
      ;
    if (!family || strcmp(s->family->name, family->name)) {
      dfgnn__page_raw(page, family ? "</table></details>\n<details class=f>"
                                   : "<details class=f open>");
      dfgnn__page_raw(page, "<summary><b>");
      dfgnn__page_text(page, s->family->name);
      dfgnn__page_raw(page,
                      "</b></summary><table class=rank><thead><tr><th>value"
                      "<th>problems<th>wins<th>mean<th>worst"
                      "<th>loss, 1 to 2<tbody>\n");
    }
    if (s->parameter != parameter) {
      dfgnn__page_raw(page, "<tr class=h><th colspan=6>");
      dfgnn__page_text(page, s->parameter->name);
    }
    family = s->family;
    parameter = s->parameter;
    put_value(page, s, end - begin);
  }
  if (family)
    dfgnn__page_raw(page, "</table></details>\n");
}

/* ---- winners ------------------------------------------------------------- */

typedef struct winner {
  const char *variant;
  size_t wins, ties, problems;
  double sum; /* the logarithms of its losses */
} winner;

static int by_variant(const void *a, const void *b) {
  return strcmp(((const winner *)a)->variant, ((const winner *)b)->variant);
}

static int by_wins(const void *a, const void *b) {
  const winner *x = a, *y = b;
  if (x->wins != y->wins)
    return x->wins > y->wins ? -1 : 1;
  if (x->ties != y->ties)
    return x->ties > y->ties ? -1 : 1;
  return strcmp(x->variant, y->variant);
}

static winner *winners_of(size_t *count, const report_data *d) {
  size_t arms = 0, kept = 0;
  for (size_t i = 0; i < d->problems; i++)
    arms += d->problem[i].decision->count;
  winner *w = malloc((arms + 1) * sizeof *w);
  *count = 0;
  if (!w)
    return NULL;
  for (size_t i = 0, n = 0; i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    for (size_t k = 0; k < p->decision->count; k++) {
      const dfgnn_ranked *r = &p->decision->ranked[k];
      w[n++] = (winner){.variant = r->variant,
                        .wins = k == 0,
                        .ties = r->tied != 0,
                        .problems = 1,
                        .sum = r->log_ratio - p->fastest};
    }
  }
  qsort(w, arms, sizeof *w, by_variant);
  for (size_t i = 0; i < arms; i++)
    if (kept && !strcmp(w[kept - 1].variant, w[i].variant)) {
      w[kept - 1].wins += w[i].wins;
      w[kept - 1].ties += w[i].ties;
      w[kept - 1].problems++;
      w[kept - 1].sum += w[i].sum;
    } else {
      w[kept++] = w[i];
    }
  qsort(w, kept, sizeof *w, by_wins);
  *count = kept;
  return w;
}

static void put_winners(dfgnn_page *page, const report_data *d) {
  size_t count, winning = 0, tying = 0;
  winner *w = winners_of(&count, d);
  if (!w) {
    page->failed = 1;
    return;
  }
  for (size_t i = 0; i < count; i++) {
    winning += w[i].wins > 0;
    tying += w[i].ties > 0;
  }
  dfgnn__page_f(page,
                "<h3>Variants that win</h3><p>%zu variants win a problem and "
                "%zu are in a tie set, of %zu that are measured here and %zu "
                "that the library has. The mean is of the time over the "
                "fastest's, where the variant is measured.</p>\n",
                winning, tying, count, dfgnn__variant_count());
  dfgnn__page_raw(page, "<div class=\"wide tall\"><table class=\"rank "
                        "sort\"><thead><tr><th>variant<th>wins<th>ties"
                        "<th>problems<th>mean<tbody>\n");
  for (size_t i = 0; i < count && w[i].wins; i++) {
    dfgnn__page_raw(page, "<tr><td class=v>");
    dfgnn__page_text(page, w[i].variant);
    dfgnn__page_f(page, "<td>%zu<td>%zu<td>%zu<td>%.3f\n", w[i].wins, w[i].ties,
                  w[i].problems, exp(w[i].sum / (double)w[i].problems));
  }
  dfgnn__page_raw(page, "</table></div>\n");
  free(w);
}

void dfgnn__report_parameters(dfgnn_page *page, const report_data *d) {
  samples all = {0};
  dfgnn__page_section(page, "parameters", "Parameters");
  dfgnn__page_raw(
      page,
      "<p>The loss where a parameter is held at one value: for each problem "
      "the time of the best variant with that value over the fastest of all. "
      "A box holds the middle half of the problems, its line the middle one, "
      "the whisker nine in ten. Problems where no variant of the value was "
      "measured are left out, so a store that keeps only the best variants "
      "shows smaller losses than there are.</p>\n");
  if (collect(&all, d))
    put_parameters(page, &all);
  else
    page->failed = 1;
  free(all.list);
  put_winners(page, d);
  dfgnn__page_section_end(page);
}
