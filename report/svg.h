/* svg.h - charts as SVG, in a page or as a file of their own
 *
 * Colours are classes: c0 to c7 for lines (stroke) and f0 to f7 for areas
 * (fill). report/page.css gives them in light and dark; a picture that is a
 * file of its own carries such a style. */
#ifndef DFGNN_REPORT_SVG_H
#define DFGNN_REPORT_SVG_H

#include "report/page.h"

enum { DFGNN_SVG_COLOURS = 8, DFGNN_AXIS_TICKS = 32 };

typedef struct dfgnn_axis {
  double low, high; /* the range of values, low < high */
  double from, to;  /* pixels that low and high are drawn at */
  int logarithmic;
} dfgnn_axis;

/* Sets low and high to the range of the values and a little more; values that
 * are not finite, or not above zero on a logarithmic axis, are ignored. */
void dfgnn__axis_fit(dfgnn_axis *axis, const double *value, size_t count);
/* The pixel at which a value is drawn; values beyond the axis are at its end.
 */
double dfgnn__axis_at(const dfgnn_axis *axis, double value);
/* Finds round values within the axis, rising; returns how many. */
size_t dfgnn__axis_ticks(double tick[DFGNN_AXIS_TICKS], const dfgnn_axis *axis);

typedef struct dfgnn_chart {
  dfgnn_page *page;
  int width, height;
  int left, right, top, bottom; /* margins; 0: the default */
  const char *title, *x_label, *y_label;
  int alone;       /* 1: a file of its own, with title and style */
  int offset;      /* if alone: y of its place within another picture */
  dfgnn_axis x, y; /* pixels are filled in by begin */
  int no_x_ticks;  /* 1: the caller labels the axis */
} dfgnn_chart;

/* Opens the picture and draws its frame. */
void dfgnn__chart_begin(dfgnn_chart *chart);
void dfgnn__chart_end(dfgnn_chart *chart);
/* Draws a line, which values that are not finite interrupt. */
void dfgnn__chart_line(dfgnn_chart *chart, int colour, const double *x,
                       const double *y, size_t count);
/* Draws dots as one path; radius is in pixels. */
void dfgnn__chart_dots(dfgnn_chart *chart, int colour, double radius,
                       const double *x, const double *y, size_t count);
/* Draws a rectangle between two points of the plane. */
void dfgnn__chart_bar(dfgnn_chart *chart, int colour, double x0, double y0,
                      double x1, double y1);
/* Draw a dashed line across the plane, at a value of y, or of x. */
void dfgnn__chart_level(dfgnn_chart *chart, double y);
void dfgnn__chart_upright(dfgnn_chart *chart, double x);
/* Draws the n-th entry of the legend. */
void dfgnn__chart_legend(dfgnn_chart *chart, int n, int colour,
                         const char *label);

/* Draws a small box plot of sorted values, without axes, for a table's cell. */
void dfgnn__svg_box(dfgnn_page *page, int width, const dfgnn_axis *axis,
                    const double *sorted, size_t count);

/* The value below which a share of the sorted values lies. */
double dfgnn__quantile(const double *sorted, size_t count, double share);
/* Compares two doubles, for qsort. */
int dfgnn__compare_doubles(const void *a, const void *b);

#endif
