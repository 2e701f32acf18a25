#include "report/svg.h"

#include <math.h>
#include <stdlib.h>

/* ---- axes ---------------------------------------------------------------- */

void dfgnn__axis_fit(dfgnn_axis *axis, const double *value, size_t count) {
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(value[i]) || (axis->logarithmic && value[i] <= 0))
      continue;
    low = fmin(low, value[i]);
    high = fmax(high, value[i]);
  }
  if (!(low <= high))
    low = high = 1;
  if (axis->logarithmic) {
    const double edge = fmax(pow(high / low, 0.04), 1.02);
    axis->low = low / edge;
    axis->high = high * edge;
  } else {
    const double edge =
        fmax(0.04 * (high - low), 1e-3 * fmax(fabs(high), 1e-9));
    axis->low = low >= 0 && low < edge ? 0 : low - edge;
    axis->high = high + edge;
  }
}

double dfgnn__axis_at(const dfgnn_axis *axis, double value) {
  double share = axis->logarithmic
                     ? log(value / axis->low) / log(axis->high / axis->low)
                     : (value - axis->low) / (axis->high - axis->low);
  share = share > 0 ? fmin(share, 1) : 0;
  return axis->from + share * (axis->to - axis->from);
}

static size_t linear_ticks(double *tick, const dfgnn_axis *axis) {
  static const double steps[] = {1, 2, 2.5, 5, 10};
  const double range = axis->high - axis->low;
  const double power = pow(10, floor(log10(range / 5)));
  double step = 10 * power;
  for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
    if (range / (steps[k] * power) <= 7) {
      step = steps[k] * power;
      break;
    }
  size_t count = 0;
  double k = ceil(axis->low / step - 1e-9);
  for (; k * step <= axis->high + 1e-9 * range && count < DFGNN_AXIS_TICKS; k++)
    tick[count++] = k * step + 0.0; /* no -0 */
  return count;
}

static size_t logarithmic_ticks(double *tick, const dfgnn_axis *axis) {
  static const double fine[] = {1,   1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3,
                                3.5, 4,   4.5, 5,   6,   7,   8, 9},
                      middle[] = {1, 2, 3, 5, 7}, coarse[] = {1, 2, 5},
                      tens[] = {1};
  const double decades = log10(axis->high / axis->low);
  const double *digit = decades < 0.7   ? fine
                        : decades < 1.5 ? middle
                        : decades < 4   ? coarse
                                        : tens;
  const size_t digits = digit == fine     ? sizeof fine / sizeof *fine
                        : digit == middle ? sizeof middle / sizeof *middle
                        : digit == coarse ? sizeof coarse / sizeof *coarse
                                          : 1;
  size_t count = 0;
  for (double e = floor(log10(axis->low)); e <= log10(axis->high); e++)
    for (size_t k = 0; k < digits; k++) {
      const double x = digit[k] * pow(10, e);
      if (x >= axis->low * (1 - 1e-9) && x <= axis->high * (1 + 1e-9) &&
          count < DFGNN_AXIS_TICKS)
        tick[count++] = x;
    }
  return count;
}

size_t dfgnn__axis_ticks(double tick[DFGNN_AXIS_TICKS],
                         const dfgnn_axis *axis) {
  size_t count = axis->logarithmic ? logarithmic_ticks(tick, axis) : 0;
  return count >= 2 ? count : linear_ticks(tick, axis);
}

/* ---- charts -------------------------------------------------------------- */

/* The colours of report/page.css, for a picture that stands alone. */
static const char own_style[] =
    "<style>svg{background:#fff;font:13px system-ui,DejaVu Sans,sans-serif}"
    "text{fill:#333}.g{stroke:#ddd}.a{stroke:#888}"
    ".v{stroke:#888;stroke-dasharray:4 3}"
    "path{fill:none}.l{stroke-width:2}.d{stroke-linecap:round}"
    ".c0{stroke:#1b6ca8}.c1{stroke:#d95f02}.c2{stroke:#2a9d4a}"
    ".c3{stroke:#a8327a}.c4{stroke:#8a6d00}.c5{stroke:#5b5bd6}"
    ".c6{stroke:#b03a3a}.c7{stroke:#5f6b73}"
    ".f0{fill:#1b6ca8}.f1{fill:#d95f02}.f2{fill:#2a9d4a}.f3{fill:#a8327a}"
    ".f4{fill:#8a6d00}.f5{fill:#5b5bd6}.f6{fill:#b03a3a}.f7{fill:#5f6b73}"
    "@media(prefers-color-scheme:dark){svg{background:#14181c}"
    "text{fill:#ccd3d9}.g{stroke:#2c343b}"
    ".c0{stroke:#63b3ed}.c1{stroke:#f6a04d}.c2{stroke:#68d391}"
    ".c3{stroke:#e58ac1}.c4{stroke:#d9b73a}.c5{stroke:#a3a3f5}"
    ".c6{stroke:#f08a8a}.c7{stroke:#a6b1b9}"
    ".f0{fill:#63b3ed}.f1{fill:#f6a04d}.f2{fill:#68d391}.f3{fill:#e58ac1}"
    ".f4{fill:#d9b73a}.f5{fill:#a3a3f5}.f6{fill:#f08a8a}.f7{fill:#a6b1b9}}"
    "</style>";

static void label(dfgnn_page *page, double x, double y, const char *anchor,
                  const char *turn, const char *text) {
  dfgnn__page_f(page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y,
                anchor);
  if (turn)
    dfgnn__page_f(page, " transform=\"rotate(%s %.1f %.1f)\"", turn, x, y);
  dfgnn__page_raw(page, ">");
  dfgnn__page_text(page, text);
  dfgnn__page_raw(page, "</text>");
}

static void draw_frame(dfgnn_chart *c) {
  double tick[DFGNN_AXIS_TICKS];
  const size_t rows = dfgnn__axis_ticks(tick, &c->y);
  for (size_t i = 0; i < rows; i++) {
    const double y = dfgnn__axis_at(&c->y, tick[i]);
    dfgnn__page_f(c->page, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>",
                  c->x.from, y, c->x.to);
    dfgnn__page_f(c->page,
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.5g</text>",
                  c->x.from - 6, y + 4, tick[i]);
  }
  const size_t columns = c->no_x_ticks ? 0 : dfgnn__axis_ticks(tick, &c->x);
  for (size_t i = 0; i < columns; i++) {
    const double x = dfgnn__axis_at(&c->x, tick[i]);
    dfgnn__page_f(c->page, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>", x,
                  c->y.from, c->y.to);
    dfgnn__page_f(
        c->page,
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.5g</text>", x,
        c->y.from + 17, tick[i]);
  }
  dfgnn__page_f(c->page, "<path class=\"a\" d=\"M%.1f %.1fV%.1fH%.1f\"/>",
                c->x.from, c->y.to, c->y.from, c->x.to);
  const double middle = (c->x.from + c->x.to) / 2;
  if (c->x_label)
    label(c->page, middle, c->height - 6, "middle", NULL, c->x_label);
  if (c->y_label)
    label(c->page, 14, (c->y.from + c->y.to) / 2, "middle", "-90", c->y_label);
  if (c->alone && c->title)
    label(c->page, c->width / 2.0, 20, "middle", NULL, c->title);
}

void dfgnn__chart_begin(dfgnn_chart *c) {
  c->left = c->left ? c->left : 58;
  c->right = c->right ? c->right : 16;
  c->top = c->top ? c->top : c->alone ? 34 : 10;
  c->bottom = c->bottom ? c->bottom : 42;
  c->x.from = c->left;
  c->x.to = c->width - c->right;
  c->y.from = c->height - c->bottom;
  c->y.to = c->top;
  if (c->alone)
    dfgnn__page_f(c->page,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" y=\"%d\" "
                  "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "role=\"img\">",
                  c->offset, c->width, c->height, c->width, c->height);
  else
    dfgnn__page_f(c->page,
                  "<svg class=\"chart\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "role=\"img\">",
                  c->width, c->height, c->width);
  dfgnn__page_raw(c->page, "<title>");
  dfgnn__page_text(c->page, c->title);
  dfgnn__page_raw(c->page, "</title>");
  if (c->alone)
    dfgnn__page_raw(c->page, own_style);
  draw_frame(c);
}

void dfgnn__chart_end(dfgnn_chart *c) { dfgnn__page_raw(c->page, "</svg>\n"); }

static int is_point(const dfgnn_chart *c, double x, double y) {
  return isfinite(x) && isfinite(y) && !(c->x.logarithmic && x <= 0) &&
         !(c->y.logarithmic && y <= 0);
}

void dfgnn__chart_line(dfgnn_chart *c, int colour, const double *x,
                       const double *y, size_t count) {
  int drawing = 0;
  dfgnn__page_f(c->page, "<path class=\"l c%d\" d=\"", colour);
  for (size_t i = 0; i < count; i++) {
    const int point = is_point(c, x[i], y[i]);
    if (point)
      dfgnn__page_f(c->page, "%s%.1f %.1f", drawing ? "L" : "M",
                    dfgnn__axis_at(&c->x, x[i]), dfgnn__axis_at(&c->y, y[i]));
    drawing = point;
  }
  dfgnn__page_raw(c->page, "\"/>");
}

void dfgnn__chart_dots(dfgnn_chart *c, int colour, double radius,
                       const double *x, const double *y, size_t count) {
  dfgnn__page_f(c->page, "<path class=\"d c%d\" stroke-width=\"%.1f\" d=\"",
                colour, 2 * radius);
  for (size_t i = 0; i < count; i++)
    if (is_point(c, x[i], y[i]))
      dfgnn__page_f(c->page, "M%.1f %.1fh0", dfgnn__axis_at(&c->x, x[i]),
                    dfgnn__axis_at(&c->y, y[i]));
  dfgnn__page_raw(c->page, "\"/>");
}

void dfgnn__chart_bar(dfgnn_chart *c, int colour, double x0, double y0,
                      double x1, double y1) {
  const double left = dfgnn__axis_at(&c->x, x0),
               top = dfgnn__axis_at(&c->y, y1);
  dfgnn__page_f(c->page,
                "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"%.1f\"/>",
                colour, left, top, fmax(dfgnn__axis_at(&c->x, x1) - left, 0.5),
                dfgnn__axis_at(&c->y, y0) - top);
}

void dfgnn__chart_level(dfgnn_chart *c, double y) {
  dfgnn__page_f(c->page, "<path class=\"v\" d=\"M%.1f %.1fH%.1f\"/>", c->x.from,
                dfgnn__axis_at(&c->y, y), c->x.to);
}

void dfgnn__chart_upright(dfgnn_chart *c, double x) {
  dfgnn__page_f(c->page, "<path class=\"v\" d=\"M%.1f %.1fV%.1f\"/>",
                dfgnn__axis_at(&c->x, x), c->y.from, c->y.to);
}

void dfgnn__chart_legend(dfgnn_chart *c, int n, int colour, const char *text) {
  /* right of the plane where there is room for it, else within */
  const double x = c->right > 60 ? c->x.to + 12 : c->x.from + 12;
  const double y = c->y.to + 12 + 18 * n;
  dfgnn__page_f(c->page, "<path class=\"l c%d\" d=\"M%.1f %.1fh18\"/>", colour,
                x, y - 4);
  label(c->page, x + 24, y, "start", NULL, text);
}

/* ---- boxes --------------------------------------------------------------- */

int dfgnn__compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double dfgnn__quantile(const double *sorted, size_t count, double share) {
  if (!count)
    return NAN;
  const double at = share * (double)(count - 1);
  const size_t below = (size_t)at;
  const size_t above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

void dfgnn__svg_box(dfgnn_page *page, int width, const dfgnn_axis *axis,
                    const double *sorted, size_t count) {
  double at[5];
  static const double shares[] = {0.05, 0.25, 0.5, 0.75, 0.95};
  for (int k = 0; k < 5; k++)
    at[k] = dfgnn__axis_at(axis, dfgnn__quantile(sorted, count, shares[k]));
  dfgnn__page_f(page,
                "<svg class=\"box\" viewBox=\"0 0 %d 12\" width=\"%d\" "
                "height=\"12\" aria-hidden=\"true\"><path class=\"a\" "
                "d=\"M%.1f 6H%.1f\"/>",
                width, width, at[0], at[4]);
  dfgnn__page_f(page,
                "<rect class=\"f0\" x=\"%.1f\" y=\"2\" width=\"%.1f\" "
                "height=\"8\"/><path class=\"m\" d=\"M%.1f 1v10\"/></svg>",
                at[1], fmax(at[3] - at[1], 1), at[2]);
}
