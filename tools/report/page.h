/* page.h - a growing text of HTML and of JSON in it
 *
 * Text from a store, a file's name or the command line is escaped for the place
 * where it stands; everything else is written by this library.  JSON is written
 * by hand, since the library links no writer of it (the tools use jansson) and
 * a page of some megabytes needs no tree. */
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

/* JSON: a value follows a comma wherever one is due.  key is NULL within an
 * array and is a word of ours; a string is any text, escaped so that neither
 * JSON nor a script element of HTML ends in it; numbers have four digits unless
 * they are whole; NaN and infinities are null. */
void dfgnn__json_open(dfgnn_page *page, const char *key, char bracket);
void dfgnn__json_close(dfgnn_page *page, char bracket);
void dfgnn__json_string(dfgnn_page *page, const char *key, const char *text);
void dfgnn__json_number(dfgnn_page *page, const char *key, double x);
void dfgnn__json_count(dfgnn_page *page, const char *key, int64_t x);
/* An array of numbers, and members of an object that are numbers. */
void dfgnn__json_list(dfgnn_page *page, const char *key, const double *x,
                      size_t count);
typedef struct dfgnn_json_figure {
  const char *key;
  double x;
} dfgnn_json_figure;
void dfgnn__json_figures(dfgnn_page *page, const dfgnn_json_figure *figure,
                         size_t count);

#endif
