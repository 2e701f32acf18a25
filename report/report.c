/* report.c - makes the page of its sections, and writes it to a file */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "report/report.h"

#include <locale.h>
#include <string.h>

#include "base/error.h"
#include "base/output.h"
#include "report/section.h"

/* report/page.css and report/page.js, as build-aux/text.sh writes them. */
static const char style[] =
#include "report/page.css.inc"
    ;
static const char script[] =
#include "report/page.js.inc"
    ;

static const struct {
  const char *id, *title;
  report_section write;
  int of_problems; /* 1: shown only if there are problems */
} sections[] = {
    {"against", "Against another store", dfgnn__report_against, 0},
    {"map", "Map", dfgnn__report_map, 1},
    {"problems", "Problems", dfgnn__report_problems, 1},
    {"parameters", "Parameters", dfgnn__report_parameters, 1},
    {"graphs", "Graphs", dfgnn__report_graphs, 0},
    {"cost", "Cost", dfgnn__report_cost, 1},
    {"unseen", "Unseen", dfgnn__report_unseen, 1},
};

static int is_shown(const report_data *d, size_t i) {
  if (sections[i].write == dfgnn__report_against)
    return d->input->other != NULL;
  if (sections[i].write == dfgnn__report_graphs)
    return d->graphs + d->input->graphs > 0;
  return !sections[i].of_problems || d->problems;
}

static void put_page(dfgnn_page *page, const report_data *d) {
  dfgnn__page_raw(page,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
                  "charset=\"utf-8\"><meta name=\"viewport\" content=\"width="
                  "device-width,initial-scale=1\"><meta name=\"color-scheme\" "
                  "content=\"light dark\"><meta http-equiv=\"Content-Security-"
                  "Policy\" content=\"default-src 'none';style-src "
                  "'unsafe-inline';script-src 'unsafe-inline'\"><title>");
  dfgnn__page_text(page, d->input->title);
  dfgnn__page_raw(page, "</title>\n<style>");
  dfgnn__page_raw(page, style);
  dfgnn__page_raw(page, "</style></head><body>\n<nav><a href=\"#head\">dfgnn"
                        "</a>");
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (is_shown(d, i)) {
      dfgnn__page_raw(page, "<a href=\"#");
      dfgnn__page_raw(page, sections[i].id);
      dfgnn__page_raw(page, "\">");
      dfgnn__page_raw(page, sections[i].title);
      dfgnn__page_raw(page, "</a>");
    }
  dfgnn__page_raw(page, "</nav>\n<main>\n");
  dfgnn__report_head(page, d);
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (is_shown(d, i))
      sections[i].write(page, d);
  dfgnn__page_raw(page, "</main>\n<script>");
  dfgnn__page_raw(page, script);
  dfgnn__page_raw(page, "</script></body></html>\n");
}

dfgnn_status dfgnn__report_page(dfgnn_page *page,
                                const dfgnn_report_input *input) {
  report_data data;
  /* Decimal points, not commas, whatever the program's locale. */
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  locale_t before = plain ? uselocale(plain) : (locale_t)0;
  dfgnn_status status = dfgnn__report_data_make(&data, input, 0);
  if (!status) {
    put_page(page, &data);
    dfgnn__report_data_free(&data);
    if (page->failed)
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  }
  if (plain) {
    uselocale(before);
    freelocale(plain);
  }
  return status;
}

dfgnn_status dfgnn__report_write(const char *path, const dfgnn_page *page) {
  return dfgnn__write_bytes(path, NULL, page->text, page->size);
}
