/* map.c - a table of graphs by shapes of problems: the gain of tuning, and the
 * source of the choice where nothing was measured */
#include <math.h>
#include <stdlib.h>

#include "report/section.h"
#include "report/svg.h"

enum { MOST_CELLS = 4000 }; /* beyond, unmeasured cells stay empty */

/* The CSS class of a source, which gives its colour. */
static char source_class(dfgnn_source source) {
  switch (source) {
  case DFGNN_SOURCE_EXACT:
  case DFGNN_SOURCE_PINNED:
  case DFGNN_SOURCE_FORCED:
    return 'x';
  case DFGNN_SOURCE_SIMILAR:
  case DFGNN_SOURCE_NEAREST:
    return 'n';
  case DFGNN_SOURCE_MODEL:
    return 'm';
  default:
    return 'r';
  }
}

static const char *source_text(dfgnn_source source) {
  switch (source_class(source)) {
  case 'n':
    return "near";
  case 'm':
    return "model";
  case 'r':
    return "rule";
  default:
    return "exact";
  }
}

/* The darkness of a cell: 0 for no gain, 6 for eight times as fast. */
static int shade(double gain) {
  if (!isfinite(gain) || gain < 1.02)
    return 0;
  const int step = 1 + (int)(2 * log2(gain) - 0.2);
  return step < 1 ? 1 : step > 6 ? 6 : step;
}

static void put_measured(dfgnn_page *page, const report_data *d,
                         const report_problem *p) {
  const double gain = p->over_rule, share = p->floor_ms / p->best_ms;
  dfgnn__page_f(page, "<td class=\"%c g%d\"><a href=\"#p%zu\">",
                source_class(p->source), shade(gain), (size_t)(p - d->problem));
  if (isfinite(gain))
    dfgnn__page_f(page, gain < 9.95 ? "%.2f" : "%.0f", gain);
  else
    dfgnn__page_raw(page, "\xc2\xb7");
  dfgnn__page_raw(page, "<small>");
  if (isfinite(p->over_unfused))
    dfgnn__page_f(page, p->over_unfused < 9.95 ? "%.1f" : "%.0f",
                  p->over_unfused);
  else
    dfgnn__page_raw(page, "\xc2\xb7");
  if (isfinite(share))
    dfgnn__page_f(page, " %.0f%%", 100 * share);
  dfgnn__page_raw(page, "</small></a>");
}

static void put_foretold(dfgnn_page *page, const report_data *d,
                         const report_graph *graph, const report_shape *shape,
                         size_t *counts) {
  dfgnn_choice choice;
  dfgnn__report_foretell(&choice, d, graph, shape);
  if (!choice.variant) {
    dfgnn__page_raw(page, "<td>");
    return;
  }
  counts[choice.source]++;
  dfgnn__page_f(page, "<td class=%c>", source_class(choice.source));
  dfgnn__page_raw(page, source_text(choice.source));
}

static void put_table(dfgnn_page *page, const report_data *d,
                      size_t counts[DFGNN_SOURCE_MODEL + 1]) {
  const int foretell = d->graphs * d->shapes <= MOST_CELLS;
  dfgnn__page_raw(page, "<div class=\"wide\"><table class=\"map\"><thead><tr>"
                        "<th>graph</th>");
  for (size_t s = 0; s < d->shapes; s++) {
    dfgnn__page_raw(page, "<th class=\"up\"><span>");
    dfgnn__page_text(page, d->shape[s].text);
    if (d->devices > 1) {
      dfgnn__page_raw(page, " ");
      dfgnn__page_text(page, d->shape[s].row->arch);
    }
    dfgnn__page_raw(page, "</span></th>");
  }
  dfgnn__page_raw(page, "</tr></thead><tbody>\n");
  for (size_t g = 0; g < d->graphs; g++) {
    dfgnn__page_f(page, "<tr><th scope=\"row\"><a href=\"#g%zu\">", g);
    dfgnn__page_text(page, d->graph[g].name);
    dfgnn__page_raw(page, "</a></th>");
    for (size_t s = 0; s < d->shapes; s++) {
      const report_problem *p = dfgnn__report_find(d, g, s);
      if (p) {
        counts[p->source]++;
        put_measured(page, d, p);
      } else if (foretell) {
        put_foretold(page, d, &d->graph[g], &d->shape[s], counts);
      } else {
        dfgnn__page_raw(page, "<td>");
      }
    }
    dfgnn__page_raw(page, "</tr>\n");
  }
  dfgnn__page_raw(page, "</tbody></table></div>\n");
}

/* A histogram of the problems' gains, in steps of a quarter of a doubling. */
static void put_gains(dfgnn_page *page, const report_data *d) {
  enum { STEPS = 20 };
  size_t count[STEPS] = {0}, most = 1, known = 0;
  for (size_t i = 0; i < d->problems; i++) {
    const double gain = d->problem[i].over_rule;
    if (!isfinite(gain))
      continue;
    int step = (int)floor(4 * log2(gain) + 1e-9);
    step = step < 0 ? 0 : step >= STEPS ? STEPS - 1 : step;
    most = ++count[step] > most ? count[step] : most;
    known++;
  }
  if (!known)
    return;
  dfgnn_chart chart = {.page = page,
                       .width = 640,
                       .height = 200,
                       .title = "Problems by the tuned choice's speed-up over "
                                "the rule's",
                       .x_label = "times as fast as the rule's choice",
                       .y_label = "problems",
                       .x = {.low = 1, .high = 32, .logarithmic = 1},
                       .y = {.low = 0, .high = 1.05 * (double)most}};
  dfgnn__page_raw(page, "<figure>");
  dfgnn__chart_begin(&chart);
  for (int k = 0; k < STEPS; k++)
    if (count[k])
      dfgnn__chart_bar(&chart, 0, exp2(k / 4.0), 0, exp2((k + 0.9) / 4),
                       (double)count[k]);
  dfgnn__chart_end(&chart);
  dfgnn__page_f(page,
                "<figcaption>How much the tuned choice gains over the rule's, "
                "where both are measured: %zu of %zu problems.</figcaption>"
                "</figure>\n",
                known, d->problems);
}

void dfgnn__report_map(dfgnn_page *page, const report_data *d) {
  static const struct {
    dfgnn_source source[3];
    const char *what;
  } legend[] = {
      {{DFGNN_SOURCE_EXACT, DFGNN_SOURCE_PINNED, DFGNN_SOURCE_FORCED},
       "measured"},
      {{DFGNN_SOURCE_SIMILAR, DFGNN_SOURCE_NEAREST, DFGNN_SOURCE_NEAREST},
       "near: a measured graph like it, or this one for a problem like it"},
      {{DFGNN_SOURCE_MODEL, DFGNN_SOURCE_MODEL, DFGNN_SOURCE_MODEL},
       "the model's prediction"},
      {{DFGNN_SOURCE_RULE, DFGNN_SOURCE_PAPER, DFGNN_SOURCE_PAPER},
       "the rule"}};
  size_t counts[DFGNN_SOURCE_MODEL + 1] = {0};
  dfgnn__page_section(page, "map", "Graphs and problems");
  dfgnn__page_raw(
      page,
      "<p>A cell gives how many times as fast as the rule's choice the tuned "
      "one is; below it the same over unfused passes, and the share of its "
      "time that the compulsory floor takes (each input read and each output "
      "written once, at the copy bandwidth). A dot stands for a figure that "
      "was not measured. Darker is a larger gain; the colour tells the "
      "source of the choice. Cells without a figure were not measured: they "
      "name the source of the choice that a program would get.</p>\n");
  put_gains(page, d);
  put_table(page, d, counts);
  dfgnn__page_raw(page, "<ul class=\"legend\">");
  for (size_t k = 0; k < sizeof legend / sizeof *legend; k++) {
    size_t count = 0;
    for (int i = 0; i < 3; i++)
      if (i == 0 || legend[k].source[i] != legend[k].source[i - 1])
        count += counts[legend[k].source[i]];
    dfgnn__page_f(page, "<li><i class=\"%c\"></i>",
                  source_class(legend[k].source[0]));
    dfgnn__page_raw(page, legend[k].what);
    dfgnn__page_f(page, ": %zu cells</li>", count);
  }
  dfgnn__page_raw(page, "</ul>\n");
  dfgnn__page_section_end(page);
}
