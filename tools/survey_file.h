/* survey_file.h - the CSV of a survey
 *
 *   cell,graph,variant,ms,rounds,variants,revision,device
 *
 * A graph's rows of a cell are one block, the fastest variant first; `variants`
 * says how many rows the block has: one that was cut off is passed over.
 * rounds is 1 where a variant was too slow to be sampled again. */
#ifndef DFGNN_TOOLS_SURVEY_FILE_H
#define DFGNN_TOOLS_SURVEY_FILE_H

#include "tuner/survey.h"

typedef struct tool_surveyed {
  char variant[160];
  double ms;
  int rounds, revision;
} tool_surveyed;

/* A complete block. */
typedef struct tool_block {
  char cell[64], graph[192], device[128];
  tool_surveyed *row;
  size_t count, of; /* equal, once the block is read */
} tool_block;

typedef struct tool_survey_file {
  tool_block *block;
  size_t count;
  int64_t complete; /* bytes up to the end of the last complete block */
} tool_survey_file;

/* Reads a file; one that is not there is empty.  The last of several blocks of
 * a graph and cell counts.  Returns an exit status. */
int tool_survey_read(tool_survey_file *file, const char *path);
void tool_survey_free(tool_survey_file *file);
/* NULL: there is no complete block. */
const tool_block *tool_survey_find(const tool_survey_file *file,
                                   const char *cell, const char *graph);

/* Was the block measured with the kernels of today?  Variants that have left
 * the library since do not matter. */
int tool_survey_current(const tool_block *block);

/* Makes the file with its header, or cuts off what is incomplete at its end,
 * also beside other processes that append. */
int tool_survey_begin(const char *path);
/* Appends a block at once, also beside other processes that do. */
int tool_survey_append(const char *path, const char *cell, const char *graph,
                       const char *device, const dfgnn_survey *survey);

#endif
