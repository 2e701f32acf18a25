/* bench_report.c - dfgnn-bench --report: the page of a benchmark run */
#include "tools/bench_report.h"
#include "db/field.h"
#include "db/internal.h"
#include "lib/base/error.h"
#include <stdlib.h>

struct bench_report {
  dfgnn_strings *strings;
  dfgnn_measurement *row;
  dfgnn_report_note *note;
  size_t count, room;
};

bench_report *bench_report_create(void) {
  bench_report *r = calloc(1, sizeof *r);
  if (r && !(r->strings = dfgnn__strings_create())) {
    free(r);
    return NULL;
  }
  return r;
}

void bench_report_free(bench_report *r) {
  if (!r)
    return;
  dfgnn__strings_free(r->strings);
  free(r->row);
  free(r->note);
  free(r);
}

static int grow(bench_report *r) {
  const size_t room = r->room ? 2 * r->room : 64;
  dfgnn_measurement *row = realloc(r->row, room * sizeof *row);
  if (row)
    r->row = row;
  dfgnn_report_note *note = realloc(r->note, room * sizeof *note);
  if (note)
    r->note = note;
  if (!row || !note)
    return 0;
  r->room = room;
  return 1;
}

/* Copies the strings of a row: its case ends before the page is written. */
static int own(dfgnn_strings *strings, dfgnn_measurement *row) {
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[g].field[i];
      if (field->kind != DFGNN_FIELD_NAME && field->kind != DFGNN_FIELD_TEXT)
        continue;
      const char **slot = dfgnn__field_slot(field, row);
      *slot = dfgnn__strings_add(strings, *slot ? *slot : "");
      if (!*slot)
        return 0;
    }
  return 1;
}

int bench_report_add(bench_report *r, const dfgnn_measurement *row,
                     const dfgnn_report_note *note) {
  if ((r->count == r->room && !grow(r)))
    return tool_error("out of memory");
  r->row[r->count] = *row;
  r->note[r->count] = *note;
  if (!own(r->strings, &r->row[r->count]))
    return tool_error("out of memory");
  r->count++;
  return TOOL_DONE;
}

int bench_report_write(const bench_report *r, const char *path,
                       const char *commit, double gbps) {
  static const char *const from[] = {"a run of dfgnn-bench"};
  const dfgnn_report_input input = {.title = "dfgnn-bench: timed variants",
                                    .command = tool_name,
                                    .commit = commit,
                                    .store = from,
                                    .stores = 1,
                                    .row = r->row,
                                    .count = r->count,
                                    .note = r->note,
                                    .copy_gbps = gbps > 0 ? gbps : 0,
                                    .all = 1};
  dfgnn_page page = {0};
  dfgnn_status status = dfgnn__report_page(&page, &input);
  if (!status)
    status = dfgnn__report_write(path, &page);
  dfgnn__page_free(&page);
  return status ? tool_fail(status) : TOOL_DONE;
}
