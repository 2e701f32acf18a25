/* dfgnn-plot.c - draws figures as SVG, by the code of the report
 *
 *   dfgnn-plot lines|bars [-x] [-y] TITLE X-LABEL Y-LABEL FILE... >OUT.svg
 *
 * -x and -y make an axis logarithmic.  A file of lines has, for each line, its
 * name in double quotes and then its points, "x y" on a line each.  A file of
 * bars has a word and the names of the bars in its first line; each further
 * line is a group: its name and a number for each bar, "nan" or "-" for none.
 * The bars of several files are drawn one below the other. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/svg.h"

enum { MOST_LINES = 16, MOST_POINTS = 4096, MOST_GROUPS = 256, NAME = 128 };

typedef struct line {
  char name[NAME];
  double *x, *y;
  size_t count;
} line;

typedef struct group {
  char name[NAME];
  double value[MOST_LINES];
} group;

static const char *const
    *labels; /* the title, the label of x, the label of y */
static int logarithmic_x, logarithmic_y;

static void die(const char *file, const char *what) {
  fprintf(stderr, "dfgnn-plot: %s: %s\n", file, what);
  exit(1);
}

static FILE *open_file(const char *name) {
  FILE *in = fopen(name, "r");
  if (!in)
    die(name, strerror(errno));
  return in;
}

/* The next word of a line, or the text between double quotes; NULL at the end.
 */
static char *next_word(char **at) {
  char *word = *at + strspn(*at, " \t\r\n");
  if (!*word)
    return NULL;
  const int quoted = *word == '"';
  word += quoted;
  char *end = word + strcspn(word, quoted ? "\"" : " \t\r\n");
  *at = end + (*end != 0);
  *end = 0;
  return word;
}

static double number_of(const char *word) {
  char *end;
  const double x = word ? strtod(word, &end) : NAN;
  return word && end != word && !*end ? x : NAN;
}

/* ---- lines --------------------------------------------------------------- */

static size_t read_lines(line *lines, const char *file) {
  char text[4096];
  size_t count = 0;
  FILE *in = open_file(file);
  while (fgets(text, sizeof text, in)) {
    char *at = text;
    if (*text == '"') {
      if (count == MOST_LINES)
        die(file, "too many lines");
      line *l = &lines[count++];
      *l = (line){.x = calloc(2 * MOST_POINTS, sizeof *l->x)};
      if (!l->x)
        die(file, "out of memory");
      l->y = l->x + MOST_POINTS;
      snprintf(l->name, NAME, "%s", next_word(&at));
      continue;
    }
    char *x = next_word(&at);
    if (!x)
      continue;
    if (!count)
      die(file, "points before a name in double quotes");
    line *l = &lines[count - 1];
    if (l->count == MOST_POINTS)
      die(file, "too many points");
    l->x[l->count] = number_of(x);
    l->y[l->count++] = number_of(next_word(&at));
  }
  fclose(in);
  if (!count)
    die(file, "found no line, expected a name in double quotes");
  return count;
}

static void fit(dfgnn_axis *axis, const line *lines, size_t count, int of_y) {
  double *all = calloc(count * MOST_POINTS, sizeof *all);
  size_t n = 0;
  if (!all)
    die("axis", "out of memory");
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < lines[i].count; k++)
      if (!logarithmic_x || lines[i].x[k] > 0) /* is drawn */
        all[n++] = of_y ? lines[i].y[k] : lines[i].x[k];
  dfgnn__axis_fit(axis, all, n);
  free(all);
}

static void draw_lines(dfgnn_page *page, const char *file) {
  static line lines[MOST_LINES];
  const size_t count = read_lines(lines, file);
  dfgnn_chart chart = {.page = page,
                       .width = 800,
                       .height = 460,
                       .right = 190,
                       .alone = 1,
                       .title = labels[0],
                       .x_label = labels[1],
                       .y_label = labels[2],
                       .x = {.logarithmic = logarithmic_x},
                       .y = {.logarithmic = logarithmic_y}};
  fit(&chart.x, lines, count, 0);
  fit(&chart.y, lines, count, 1);
  dfgnn__chart_begin(&chart);
  for (size_t i = 0; i < count; i++) {
    const line *l = &lines[i];
    const int colour = (int)(i % DFGNN_SVG_COLOURS);
    dfgnn__chart_line(&chart, colour, l->x, l->y, l->count);
    if (l->count < 40)
      dfgnn__chart_dots(&chart, colour, 3, l->x, l->y, l->count);
    dfgnn__chart_legend(&chart, (int)i, colour, l->name);
    free(l->x);
  }
  dfgnn__chart_end(&chart);
}

/* ---- bars ---------------------------------------------------------------- */

static size_t read_bars(char names[][NAME], size_t *bars, group *groups,
                        const char *file) {
  char text[4096], *word;
  size_t count = 0;
  FILE *in = open_file(file);
  *bars = 0;
  while (fgets(text, sizeof text, in)) {
    char *at = text;
    if (!(word = next_word(&at)))
      continue;
    if (!*bars) { /* the first line has the names */
      while ((word = next_word(&at)) && *bars < MOST_LINES)
        snprintf(names[(*bars)++], NAME, "%s", word);
      continue;
    }
    if (count == MOST_GROUPS)
      die(file, "too many groups");
    snprintf(groups[count].name, NAME, "%s", word);
    for (size_t k = 0; k < *bars; k++)
      groups[count].value[k] = number_of(next_word(&at));
    count++;
  }
  fclose(in);
  if (!count)
    die(file, "found no group of bars");
  return count;
}

static void name_group(const dfgnn_chart *c, double x, const char *name) {
  const double at = dfgnn__axis_at(&c->x, x);
  dfgnn__page_f(c->page,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" "
                "transform=\"rotate(-30 %.1f %.1f)\">",
                at, c->y.from + 14, at, c->y.from + 14);
  dfgnn__page_text(c->page, name);
  dfgnn__page_raw(c->page, "</text>");
}

static void draw_panel(dfgnn_page *page, const char *file, const char *title,
                       int y, int width, int height) {
  static char names[MOST_LINES][NAME];
  static group groups[MOST_GROUPS];
  static double all[MOST_GROUPS * MOST_LINES];
  size_t bars, n = 0;
  const size_t count = read_bars(names, &bars, groups, file);
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < bars; k++)
      all[n++] = groups[i].value[k];
  dfgnn_chart chart = {.page = page,
                       .width = width,
                       .height = height,
                       .right = 190,
                       .bottom = 84,
                       .offset = y,
                       .alone = 1,
                       .title = title,
                       .x_label = *labels[1] ? labels[1] : NULL,
                       .y_label = labels[2],
                       .no_x_ticks = 1,
                       .x = {.low = -0.6, .high = (double)count - 0.4},
                       .y = {.logarithmic = logarithmic_y}};
  all[n] = 1; /* the level that bars are compared with */
  dfgnn__axis_fit(&chart.y, all, n + 1);
  if (!logarithmic_y)
    chart.y.low = 0;
  dfgnn__chart_begin(&chart);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < bars; k++) {
      const double value = groups[i].value[k], base = logarithmic_y ? 1 : 0;
      const double left = (double)i - 0.4 + 0.8 * (double)k / (double)bars;
      if (isfinite(value))
        dfgnn__chart_bar(&chart, (int)(k % DFGNN_SVG_COLOURS), left,
                         fmin(value, base), left + 0.74 / (double)bars,
                         fmax(value, base));
    }
    name_group(&chart, (double)i, groups[i].name);
  }
  dfgnn__chart_level(&chart, 1);
  for (size_t k = 0; k < bars; k++)
    dfgnn__chart_legend(&chart, (int)k, (int)(k % DFGNN_SVG_COLOURS), names[k]);
  dfgnn__chart_end(&chart);
}

/* Several files stand one below the other, each under its name. */
static void draw_bars(dfgnn_page *page, int files, char **file) {
  enum { WIDTH = 1100, HEIGHT = 400 };
  char title[512];
  if (files > 1)
    dfgnn__page_f(page,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                  "height=\"%d\" viewBox=\"0 0 %d %d\">",
                  WIDTH, files * HEIGHT, WIDTH, files * HEIGHT);
  for (int i = 0; i < files; i++) {
    const char *slash = strrchr(file[i], '/');
    snprintf(title, sizeof title, "%s%s%s", labels[0], files > 1 ? ": " : "",
             files == 1 ? ""
             : slash    ? slash + 1
                        : file[i]);
    draw_panel(page, file[i], title, i * HEIGHT, WIDTH, HEIGHT);
  }
  if (files > 1)
    dfgnn__page_raw(page, "</svg>\n");
}

int main(int argc, char **argv) {
  dfgnn_page page = {0};
  int first = 2;
  for (; first < argc && *argv[first] == '-' && argv[first][1]; first++) {
    logarithmic_x |= !strcmp(argv[first], "-x");
    logarithmic_y |= !strcmp(argv[first], "-y");
  }
  const int lines = argc > 1 && !strcmp(argv[1], "lines");
  if (argc < first + 4 || (!lines && strcmp(argv[1], "bars"))) {
    fprintf(stderr, "usage: dfgnn-plot lines|bars [-x] [-y] TITLE X-LABEL "
                    "Y-LABEL FILE... >OUT.svg\n");
    return 2;
  }
  labels = (const char *const *)argv + first;
  if (lines)
    draw_lines(&page, argv[first + 3]);
  else
    draw_bars(&page, argc - first - 3, argv + first + 3);
  const int good = !page.failed &&
                   fwrite(page.text, 1, page.size, stdout) == page.size &&
                   !fflush(stdout);
  dfgnn__page_free(&page);
  return good ? 0 : 1;
}
