/* graph.c - each graph: its degrees, its signature, the graphs near it */
#include <math.h>
#include <stdlib.h>

#include "report/section.h"
#include "report/svg.h"

enum { NEAREST = 5 };

/* ---- degrees ------------------------------------------------------------- */

static void put_histogram(dfgnn_page *page, const double *share,
                          const char *what) {
  int last = DFGNN_HISTOGRAM_BINS;
  double most = 0;
  while (last > 1 && share[last - 1] == 0)
    last--;
  for (int k = 0; k < last; k++)
    most = fmax(most, share[k]);
  const int width = 16, height = 84;
  dfgnn__page_f(page,
                "<figure class=hist><svg viewBox=\"0 0 %d %d\" width=%d "
                "role=img><title>",
                width * last + 4, height, width * last + 4);
  dfgnn__page_raw(page, what);
  dfgnn__page_raw(page, "</title>");
  for (int k = 0; k < last; k++) {
    const double bar = most > 0 ? 64 * share[k] / most : 0;
    if (share[k] > 0)
      dfgnn__page_f(page, "<rect class=f0 x=%d y=%.1f width=%d height=%.1f />",
                    2 + width * k, 68 - fmax(bar, 0.7), width - 2,
                    fmax(bar, 0.7));
    if (k == 0)
      dfgnn__page_raw(page, "<text x=9 y=80>0</text>");
    else if (k % 3 == 1)
      dfgnn__page_f(page, "<text x=%d y=80>%d</text>", 9 + width * k,
                    1 << (k - 1));
  }
  dfgnn__page_raw(page, "</svg><figcaption>");
  dfgnn__page_raw(page, what);
  dfgnn__page_raw(page, "</figcaption></figure>\n");
}

/* ---- the signature ------------------------------------------------------- */

static void put_count(dfgnn_page *page, const char *name, int64_t x) {
  dfgnn__page_raw(page, "<tr><th>");
  dfgnn__page_raw(page, name);
  dfgnn__page_f(page, "<td>%lld", (long long)x);
}

static void put_figure(dfgnn_page *page, const char *name, double x) {
  dfgnn__page_raw(page, "<tr><th>");
  dfgnn__page_raw(page, name);
  dfgnn__page_raw(page, "<td>");
  dfgnn__page_figure(page, x);
}

static void put_signature(dfgnn_page *page, const dfgnn_signature *s) {
  dfgnn__page_raw(page, "<table class=facts>");
  put_count(page, "destinations", s->destinations);
  put_count(page, "sources", s->sources);
  put_count(page, "edges", s->edges);
  put_figure(page, "mean degree", s->mean_degree);
  dfgnn__page_f(page,
                "<tr><th>degree: middle, 90 %%, 99 %%, largest<td>"
                "%lld, %lld, %lld, %lld",
                (long long)s->p50_degree, (long long)s->p90_degree,
                (long long)s->p99_degree, (long long)s->max_degree);
  put_figure(page, "variation of degrees", s->degree_cv);
  dfgnn__page_raw(page, "<tr><th>rows without edges<td>");
  dfgnn__page_share(page, s->isolated);
  if (s->max_source_degree > 0 || s->edges == 0)
    dfgnn__page_f(page,
                  "<tr><th>degree of sources: middle, 99 %%, largest<td>"
                  "%lld, %lld, %lld",
                  (long long)s->p50_source_degree,
                  (long long)s->p99_source_degree,
                  (long long)s->max_source_degree);
  dfgnn__page_raw(page, "</table><table class=facts>");
  put_figure(page, "reuse (distinct columns over edges, 16 rows)", s->reuse);
  dfgnn__page_raw(page, "<tr><th>locality (edges near the diagonal)<td>");
  dfgnn__page_share(page, s->locality);
  put_count(page, "graphs in the batch", s->graphs);
  put_count(page, "nodes of the largest", s->largest_graph);
  put_figure(page, "density", s->density);
  dfgnn__page_f(page, "<tr><th>fingerprint<td><code>%016llx</code></table>\n",
                (unsigned long long)s->fingerprint);
}

/* ---- near graphs --------------------------------------------------------- */

typedef struct near {
  size_t graph;
  double distance;
} near;

static int by_distance(const void *a, const void *b) {
  const near *x = a, *y = b;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  return (x->graph > y->graph) - (x->graph < y->graph);
}

/* The graph is looked up as one head of 64 features in f32, on the device of
 * its newest problem. */
static void features_of(double feature[DFGNN_FEATURES],
                        const dfgnn_signature *signature,
                        const report_data *d) {
  dfgnn_device_info none = DFGNN_DEVICE_INFO_INIT;
  dfgnn__features(feature, signature, 1, 64, sizeof(float),
                  d->devices ? &d->device[0].info : &none);
}

static void put_near(dfgnn_page *page, const report_data *d,
                     const dfgnn_signature *signature, size_t self,
                     near *list) {
  double own[DFGNN_FEATURES], other[DFGNN_FEATURES];
  size_t count = 0;
  features_of(own, signature, d);
  for (size_t i = 0; i < d->graphs; i++) {
    if (i == self)
      continue;
    features_of(other, d->graph[i].signature, d);
    list[count++] = (near){i, dfgnn__distance(own, other)};
  }
  qsort(list, count, sizeof *list, by_distance);
  if (count)
    dfgnn__page_raw(page, "<p>Nearest: ");
  for (size_t i = 0; i < count && i < NEAREST; i++) {
    dfgnn__page_raw(page, i ? ", " : "");
    dfgnn__page_f(page, "<a href=#g%zu>", list[i].graph);
    dfgnn__page_text(page, d->graph[list[i].graph].name);
    dfgnn__page_f(page, "</a> %.2f", list[i].distance);
  }
  if (count)
    dfgnn__page_f(page,
                  list[0].distance > dfgnn__trusted_radius
                      ? "; all are beyond the distance %.1f up to which "
                        "near graphs are trusted.\n"
                      : " (trusted up to %.1f).\n",
                  dfgnn__trusted_radius);
}

static void put_links(dfgnn_page *page, const report_data *d, size_t graph) {
  int first = 1;
  dfgnn__page_raw(page, "<p>Measured: ");
  for (size_t i = 0; i < d->problems; i++) {
    if (d->problem[i].graph != graph)
      continue;
    dfgnn__page_raw(page, first ? "" : ", ");
    dfgnn__page_f(page, "<a href=#p%zu>", i);
    dfgnn__page_text(page, d->shape[d->problem[i].shape].text);
    dfgnn__page_raw(page, "</a>");
    first = 0;
  }
  dfgnn__page_raw(page, first ? "nothing.\n" : ".\n");
}

static void put_summary(dfgnn_page *page, const char *name,
                        const dfgnn_signature *s, size_t problems) {
  dfgnn__page_raw(page, "<summary><b>");
  dfgnn__page_text(page, name);
  dfgnn__page_f(page, "</b> <span>%lld nodes, %lld edges, mean degree %.3g",
                (long long)s->destinations, (long long)s->edges,
                s->mean_degree);
  dfgnn__page_f(page, "</span> <em>%zu problems</em></summary>", problems);
}

static void put_pictures(dfgnn_page *page, const dfgnn_signature *s,
                         const double *sources) {
  dfgnn__page_raw(page, "<div class=row>");
  put_histogram(page, s->histogram, "destinations by degree");
  if (sources)
    put_histogram(page, sources, "sources by degree");
  dfgnn__page_raw(page, "</div><div class=row>");
  put_signature(page, s);
  dfgnn__page_raw(page, "</div>");
}

void dfgnn__report_graphs(dfgnn_page *page, const report_data *d) {
  near *list = calloc(d->graphs + 1, sizeof *list);
  const dfgnn_report_input *in = d->input;
  if (!list) {
    page->failed = 1;
    return;
  }
  dfgnn__page_section(page, "graphs", "Graphs");
  dfgnn__page_raw(page,
                  "<p>Degrees are counted by powers of two. A store keeps the "
                  "histogram of destinations; that of sources is shown of "
                  "graphs that were named on the command line. Distances are "
                  "those by which near graphs answer for one another, for one "
                  "head of 64 features in f32.</p>\n");
  for (size_t g = 0; g < in->graphs; g++) {
    size_t known = 0;
    while (known < d->graphs && d->graph[known].given != &in->graph[g])
      known++;
    if (known < d->graphs)
      continue; /* it is shown with its problems below */
    dfgnn__page_raw(page, "<details class=p open>");
    put_summary(page, in->graph[g].name, &in->graph[g].signature, 0);
    dfgnn__page_raw(page, "<div>");
    put_pictures(page, &in->graph[g].signature, in->graph[g].sources);
    put_near(page, d, &in->graph[g].signature, SIZE_MAX, list);
    dfgnn__page_raw(page, "</div></details>\n");
  }
  for (size_t g = 0; g < d->graphs; g++) {
    const report_graph *graph = &d->graph[g];
    dfgnn__page_raw(page, graph->given ? "<details class=p open>"
                                       : "<details class=p>");
    put_summary(page, graph->name, graph->signature, graph->problems);
    dfgnn__page_f(page, "<div id=g%zu>", g);
    put_pictures(page, graph->signature,
                 graph->given ? graph->given->sources : NULL);
    put_near(page, d, graph->signature, g, list);
    put_links(page, d, g);
    dfgnn__page_raw(page, "</div></details>\n");
  }
  free(list);
  dfgnn__page_section_end(page);
}
