/* records.h - rows of the stores, for show and for moving them */
#ifndef DFGNN_TOOLS_RECORDS_H
#define DFGNN_TOOLS_RECORDS_H

#include "db/store.h"
#include "tools/inputs.h"

/* Which rows --best and --only-winners keep. */
typedef struct tool_winners tool_winners;

typedef struct tool_records {
  dfgnn_rows *rows;
  const dfgnn_measurement *row; /* owned by rows */
  size_t count;
  uint64_t invalid, unusable;
  dfgnn_decisions *decisions;
  tool_winners *winners;
} tool_records;

/* Loads --store, else every store that a context would read, and decides.
 * Returns an exit status. */
int tool_records_load(tool_records *records, const tool_settings *settings);
/* Loads one store file more; dfgnn__decide is left to tool_records_decide. */
int tool_records_add(tool_records *records, const char *path);
int tool_records_decide(tool_records *records);
void tool_records_free(tool_records *records);

/* 1 if the row passes the problem options that were given. */
int tool_row_wanted(const tool_settings *settings,
                    const dfgnn_measurement *row);

/* Why a row is passed over by the options --from-arch, --since and those of the
 * problem; NULL if it is not. */
const char *tool_row_refusal(const tool_settings *settings,
                             const dfgnn_measurement *row);

/* The path of the store that is written: --store, else the first writable
 * layer.  Returns an exit status. */
int tool_target_path(char *path, size_t size, const tool_settings *settings);

/* Finds the rows of the `best` fastest variants of each problem.  Returns an
 * exit status. */
int tool_records_best(tool_records *records, int best);
void tool_winners_free(tool_winners *winners);
/* 1 if the row is of one of those, or of the anchor it was compared with. */
int tool_row_wins(const tool_records *records, const dfgnn_measurement *row);

#endif
