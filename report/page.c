#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DASH "\xe2\x80\x93"

void dfgnn__page_free(dfgnn_page *page) {
  free(page->text);
  *page = (dfgnn_page){0};
}

static int reserve(dfgnn_page *page, size_t more) {
  if (page->size + more < page->room)
    return 1;
  size_t room = page->room ? 2 * page->room : 1 << 16;
  while (room <= page->size + more)
    room *= 2;
  char *grown = page->failed ? NULL : realloc(page->text, room);
  if (!grown) {
    page->failed = 1;
    return 0;
  }
  page->text = grown;
  page->room = room;
  return 1;
}

static void append(dfgnn_page *page, const char *text, size_t size) {
  if (!reserve(page, size))
    return;
  memcpy(page->text + page->size, text, size);
  page->size += size;
  page->text[page->size] = 0;
}

void dfgnn__page_raw(dfgnn_page *page, const char *markup) {
  append(page, markup, strlen(markup));
}

void dfgnn__page_f(dfgnn_page *page, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (size < 0 || size >= (int)sizeof text)
    page->failed = 1;
  else
    append(page, text, (size_t)size);
}

/* The bytes of the UTF-8 sequence that text begins with; 0 if it is broken. */
static size_t sequence(const unsigned char *text) {
  static const struct {
    unsigned char low, high, least, most; /* least, most: second byte */
    size_t size;
  } kinds[] = {
      {.low = 0xc2, .high = 0xdf, .least = 0x80, .most = 0xbf, .size = 2},
      {.low = 0xe0, .high = 0xe0, .least = 0xa0, .most = 0xbf, .size = 3},
      {.low = 0xe1, .high = 0xec, .least = 0x80, .most = 0xbf, .size = 3},
      {.low = 0xed, .high = 0xed, .least = 0x80, .most = 0x9f, .size = 3},
      {.low = 0xee, .high = 0xef, .least = 0x80, .most = 0xbf, .size = 3},
      {.low = 0xf0, .high = 0xf0, .least = 0x90, .most = 0xbf, .size = 4},
      {.low = 0xf1, .high = 0xf3, .least = 0x80, .most = 0xbf, .size = 4},
      {.low = 0xf4, .high = 0xf4, .least = 0x80, .most = 0x8f, .size = 4}};
  if (text[0] < 0x80)
    return text[0] >= 0x20 && text[0] != 0x7f;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (text[0] < kinds[k].low || text[0] > kinds[k].high)
      continue;
    if (text[1] < kinds[k].least || text[1] > kinds[k].most)
      return 0;
    for (size_t i = 2; i < kinds[k].size; i++)
      if ((text[i] & 0xc0) != 0x80)
        return 0;
    /* C1 controls */
    return text[0] == 0xc2 && text[1] < 0xa0 ? 0 : kinds[k].size;
  }
  return 0;
}

void dfgnn__page_text(dfgnn_page *page, const char *text) {
  static const struct {
    char c;
    const char *escaped;
  } special[] = {{'&', "&amp;"},
                 {'<', "&lt;"},
                 {'>', "&gt;"},
                 {'"', "&quot;"},
                 {'\'', "&#39;"}};
  const unsigned char *at = (const unsigned char *)(text ? text : "");
  while (*at) {
    const size_t size = sequence(at);
    const char *escaped = size ? NULL : "\xef\xbf\xbd";
    for (size_t k = 0; k < sizeof special / sizeof *special; k++)
      if ((char)*at == special[k].c)
        escaped = special[k].escaped;
    if (escaped)
      dfgnn__page_raw(page, escaped);
    else
      append(page, (const char *)at, size);
    at += size ? size : 1;
  }
}

typedef struct unit {
  double size; /* the unit is used from this value on */
  const char *name;
} unit;

/* units: the largest first; the last one serves all smaller values. */
static void scaled(dfgnn_page *page, double x, const unit *units) {
  if (!isfinite(x)) {
    dfgnn__page_raw(page, DASH);
    return;
  }
  while (units[1].name && fabs(x) < units[0].size)
    units++;
  const double y = x / units[0].size;
  const int digits = fabs(y) < 9.995 ? 2 : fabs(y) < 99.95 ? 1 : 0;
  dfgnn__page_f(page, "%.*f ", digits, y);
  dfgnn__page_raw(page, units[0].name);
}

void dfgnn__page_ms(dfgnn_page *page, double ms) {
  static const unit units[] = {
      {1e3, "s"}, {1, "ms"}, {1e-3, "\xc2\xb5s"}, {1e-6, "ns"}, {0, NULL}};
  scaled(page, ms, units);
}

void dfgnn__page_seconds(dfgnn_page *page, double s) {
  static const unit units[] = {
      {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {0, NULL}};
  scaled(page, s, units);
}

void dfgnn__page_bytes(dfgnn_page *page, double bytes) {
  static const unit units[] = {
      {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}, {0, NULL}};
  if (bytes == 0)
    dfgnn__page_raw(page, "0");
  else
    scaled(page, bytes, units);
}

void dfgnn__page_figure(dfgnn_page *page, double x) {
  if (!isfinite(x))
    dfgnn__page_raw(page, DASH);
  else if (fabs(x) >= 999.5 && fabs(x) < 1e6)
    dfgnn__page_f(page, "%.0f", x);
  else
    dfgnn__page_f(page, "%.3g", x);
}

void dfgnn__page_share(dfgnn_page *page, double share) {
  if (isfinite(share))
    dfgnn__page_f(page, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
  else
    dfgnn__page_raw(page, DASH);
}

void dfgnn__page_day(dfgnn_page *page, int64_t time) {
  struct tm day;
  const time_t t = (time_t)time;
  if (time > 0 && gmtime_r(&t, &day))
    dfgnn__page_f(page, "%04d-%02d-%02d", day.tm_year + 1900, day.tm_mon + 1,
                  day.tm_mday);
  else
    dfgnn__page_raw(page, DASH);
}

void dfgnn__page_section(dfgnn_page *page, const char *id, const char *title) {
  dfgnn__page_raw(page, "\n<section id=\"");
  dfgnn__page_raw(page, id);
  dfgnn__page_raw(page, "\"><h2>");
  dfgnn__page_raw(page, title);
  dfgnn__page_raw(page, "</h2>\n");
}

void dfgnn__page_section_end(dfgnn_page *page) {
  dfgnn__page_raw(page, "</section>\n");
}
