#include "tools/report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct escape {
  char c;
  const char *text;
} escape;

/* Adds text whose characters of the table are replaced, and what is no text,
 * too. */
static void add_escaped(dfgnn_page *page, const char *text,
                        const escape *escapes, size_t count) {
  const unsigned char *at = (const unsigned char *)(text ? text : "");
  while (*at) {
    const size_t size = sequence(at);
    const char *escaped = size ? NULL : "\xef\xbf\xbd";
    for (size_t k = 0; k < count; k++)
      if ((char)*at == escapes[k].c)
        escaped = escapes[k].text;
    if (escaped)
      dfgnn__page_raw(page, escaped);
    else
      append(page, (const char *)at, size);
    at += size ? size : 1;
  }
}

void dfgnn__page_text(dfgnn_page *page, const char *text) {
  static const escape markup[] = {{.c = '&', .text = "&amp;"},
                                  {.c = '<', .text = "&lt;"},
                                  {.c = '>', .text = "&gt;"},
                                  {.c = '"', .text = "&quot;"},
                                  {.c = '\'', .text = "&#39;"}};
  add_escaped(page, text, markup, sizeof markup / sizeof *markup);
}

/* ---- JSON ---------------------------------------------------------------- */

/* Begins a value: after another one comes a comma. */
static void begin(dfgnn_page *page, const char *key) {
  const char last = page->size ? page->text[page->size - 1] : '{';
  if (last != '{' && last != '[' && last != '>')
    append(page, ",", 1);
  if (key) {
    append(page, "\"", 1);
    dfgnn__page_raw(page, key);
    append(page, "\":", 2);
  }
}

void dfgnn__json_open(dfgnn_page *page, const char *key, char bracket) {
  begin(page, key);
  append(page, &bracket, 1);
}

void dfgnn__json_close(dfgnn_page *page, char bracket) {
  append(page, &bracket, 1);
}

void dfgnn__json_string(dfgnn_page *page, const char *key, const char *text) {
  static const escape script[] = {{.c = '"', .text = "\\\""},
                                  {.c = '\\', .text = "\\\\"},
                                  {.c = '<', .text = "\\u003c"},
                                  {.c = '>', .text = "\\u003e"},
                                  {.c = '&', .text = "\\u0026"}};
  begin(page, key);
  append(page, "\"", 1);
  add_escaped(page, text, script, sizeof script / sizeof *script);
  append(page, "\"", 1);
}

void dfgnn__json_number(dfgnn_page *page, const char *key, double x) {
  begin(page, key);
  if (isfinite(x))
    dfgnn__page_f(page, x == rint(x) && fabs(x) < 1e15 ? "%.0f" : "%.4g", x);
  else
    dfgnn__page_raw(page, "null");
}

void dfgnn__json_count(dfgnn_page *page, const char *key, int64_t x) {
  begin(page, key);
  dfgnn__page_f(page, "%lld", (long long)x);
}

void dfgnn__json_list(dfgnn_page *page, const char *key, const double *x,
                      size_t count) {
  dfgnn__json_open(page, key, '[');
  for (size_t i = 0; i < count; i++)
    dfgnn__json_number(page, NULL, x[i]);
  dfgnn__json_close(page, ']');
}

void dfgnn__json_figures(dfgnn_page *page, const dfgnn_json_figure *figure,
                         size_t count) {
  for (size_t i = 0; i < count; i++)
    dfgnn__json_number(page, figure[i].key, figure[i].x);
}
