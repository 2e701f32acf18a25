/* records.h - rows of the stores, for show and for moving them */
#ifndef DFGNN_TOOLS_RECORDS_H
#define DFGNN_TOOLS_RECORDS_H

#include "db/store.h"
#include "tools/inputs.h"
#include "tools/report.h"

/* The rows that --best keeps. */
typedef struct tool_winners tool_winners;

typedef struct tool_records {
  dfgnn_rows *rows;
  const dfgnn_measurement *row;         /* owned by rows */
  const dfgnn_measurement **by_problem; /* the rows, once they are decided */
  size_t count;
  uint64_t invalid, unusable;
  dfgnn_decisions *decisions;
  tool_winners *winners;
} tool_records;

/* Loads the stores of the operands or --store, else every store that a context
 * would read, and decides.  Returns an exit status. */
int tool_records_load(tool_records *records, const tool_settings *settings,
                      int count, char **stores);
/* Adds the rows of a store file; call tool_records_decide after the last. */
int tool_records_add(tool_records *records, const char *path);
int tool_records_decide(tool_records *records);
/* The rows of a decided problem, in the order of the stores. */
const dfgnn_measurement *const *
tool_records_of(const tool_records *records, size_t *count,
                const dfgnn_measurement *problem);
void tool_records_free(tool_records *records);

/* 1 if the row passes the problem options that were given. */
int tool_row_wanted(const tool_settings *settings,
                    const dfgnn_measurement *row);

/* The reason why --from-arch, --since or the problem options exclude a row;
 * NULL if they do not. */
const char *tool_row_refusal(const tool_settings *settings,
                             const dfgnn_measurement *row);

/* The path of the store that is written: --store, else the first writable
 * layer.  Returns an exit status. */
int tool_target_path(char *path, size_t size, const tool_settings *settings);

/* Opens that store for writing, which makes it, or with --remove expects it. */
dfgnn_status tool_target_open(dfgnn_store **store,
                              const tool_settings *settings, const char *path);

/* Reports what `put` makes of a store: nothing, if it is missing.  Returns an
 * exit status. */
int tool_list_store(const tool_settings *settings, const char *path,
                    dfgnn_status (*put)(dfgnn_store *store, json_t *rows),
                    const tool_column *columns);

/* Finds the rows of the `best` fastest variants of each problem.  Returns an
 * exit status. */
int tool_records_best(tool_records *records, int best);
void tool_winners_free(tool_winners *winners);
/* 1 if tool_records_best found the row's variant, or it is the anchor that such
 * a variant was compared with. */
int tool_row_wins(const tool_records *records, const dfgnn_measurement *row);

#endif
