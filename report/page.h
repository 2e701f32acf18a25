/* page.h - a growing text of HTML and SVG
 *
 * Text from a store, a file's name or the command line is escaped; everything
 * else is written by this library. */
#ifndef DFGNN_REPORT_PAGE_H
#define DFGNN_REPORT_PAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct dfgnn_page {
  char *text; /* ends with a NUL once something was written */
  size_t size, room;
  int failed; /* 1: memory ran out, and the text is not whole */
} dfgnn_page;

void dfgnn__page_free(dfgnn_page *page);

/* Adds markup as it is. */
void dfgnn__page_raw(dfgnn_page *page, const char *markup);
/* Adds markup with numbers in it; no argument may be text that is not ours. */
void dfgnn__page_f(dfgnn_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds any text: characters of markup are escaped, control characters and
 * broken UTF-8 become U+FFFD.  It serves in elements and in attributes between
 * double quotes.  NULL is "". */
void dfgnn__page_text(dfgnn_page *page, const char *text);

/* Numbers as people read them; a dash for NaN and infinities. */
void dfgnn__page_ms(dfgnn_page *page, double ms);       /* 8.2 us */
void dfgnn__page_seconds(dfgnn_page *page, double s);   /* 8.2 s, 1.5 h */
void dfgnn__page_bytes(dfgnn_page *page, double bytes); /* 1.2 MB */
void dfgnn__page_figure(dfgnn_page *page, double x);    /* three digits */
void dfgnn__page_share(dfgnn_page *page, double share); /* 16 % */
void dfgnn__page_day(dfgnn_page *page, int64_t time);   /* 2026-11-30, in UTC */

/* Begins and ends a section, which the table of contents leads to. */
void dfgnn__page_section(dfgnn_page *page, const char *id, const char *title);
void dfgnn__page_section_end(dfgnn_page *page);

#endif
