/* report.h - rows of results, printed as a table or as one JSON array */
#ifndef DFGNN_TOOLS_REPORT_H
#define DFGNN_TOOLS_REPORT_H

#include "db/store.h"
#include "tools/common.h"
#include <jansson.h>

typedef enum tool_format {
  TOOL_TEXT,
  TOOL_COUNT,  /* 37700 */
  TOOL_FIGURE, /* three digits */
  TOOL_MS,     /* milliseconds as a time: 8.2 us */
  TOOL_SECONDS,
  TOOL_NS,
  TOOL_BYTES,    /* 1.2 MB */
  TOOL_SHARE,    /* 0.163 as 16.3 %; never clipped */
  TOOL_TIMES,    /* 1.31x */
  TOOL_FLAG,     /* yes or nothing */
  TOOL_VARIANT,  /* a variant's name, which a terminal gets as its alias */
  TOOL_WIDE = 64 /* a bit: no terminal gets the column without --wide */
} tool_format;

typedef struct tool_column {
  const char *key;     /* in the row's object */
  const char *heading; /* NULL ends the list */
  int format;          /* a tool_format, and TOOL_WIDE */
} tool_column;

/* Prints an array of objects and frees it: with --json the whole, else a table.
 * Returns an exit status. */
int tool_report(const tool_settings *settings, json_t *rows,
                const tool_column *columns);

/* Prints the columns that are not empty in every row.  A pipe gets all of them
 * with whole names.  A terminal gets what fits: those that say the same of all
 * rows are a heading, wide ones are left out, variants have their aliases. */
int tool_table(const tool_settings *settings, json_t *rows,
               const tool_column *columns);

/* Refuses a name of --columns that the table does not have.  Who measures for
 * long asks before that. */
int tool_columns_check(const tool_settings *settings,
                       const tool_column *columns);

/* Says on standard error, unless quiet, how often rows have each source under
 * `key`. */
void tool_say_sources(const tool_settings *settings, const json_t *rows,
                      const char *key, const char *what);

/* A JSON number; null for NaN and infinities, which JSON does not have. */
json_t *tool_number(double x);
json_t *tool_text(const char *text);

void tool_put(json_t *row, const char *key, const char *text);
void tool_put_number(json_t *row, const char *key, double x);
void tool_put_count(json_t *row, const char *key, int64_t x);
void tool_put_flag(json_t *row, const char *key, int x);
/* Puts the key fingerprint as 16 hexadecimal digits. */
void tool_put_fingerprint(json_t *row, uint64_t fingerprint);

/* The columns of a problem's options, for tables of problems. */
#define TOOL_FLAG_COLUMNS                                                      \
  {"weights", "WEIGHTS", TOOL_FLAG}, {"bias", "BIAS", TOOL_FLAG},              \
      {"dropout", "DROPOUT", TOOL_FLAG}, {"edge_dim", "EDGE DIM", TOOL_COUNT}, \
      {"edge_use", "EDGE USE", TOOL_TEXT}, {                                   \
    "message", "MESSAGE", TOOL_TEXT                                            \
  }

/* The columns that tables of problems begin with. */
#define TOOL_PROBLEM_COLUMNS                                                   \
  {"graph", "GRAPH", TOOL_TEXT}, {"op", "OP", TOOL_TEXT},                      \
      {"program_name", "PROGRAM", TOOL_TEXT}, {"pass", "PASS", TOOL_TEXT},     \
      {"dtype", "DTYPE", TOOL_TEXT}, {"heads", "HEADS", TOOL_COUNT},           \
      {"dim", "DIM", TOOL_COUNT}, TOOL_FLAG_COLUMNS

/* Puts the keys edge_dim, edge_use, message, program, program_text and, of one
 * that --op takes, program_name of a problem, each only where it is not the
 * default. */
void tool_put_edges(json_t *row, const dfgnn_measurement *problem);

/* Makes a row with the keys that the rows of every tool begin with: graph, the
 * problem's (op, pass, dtype, math, layout, heads, dim, deterministic, weights,
 * bias, dropout, those of tool_put_edges), device, backend, arch. */
json_t *tool_row_of(const dfgnn_measurement *problem);
json_t *tool_row(const char *graph, const dfgnn_problem *problem,
                 const dfgnn_device_info *device);

#endif
