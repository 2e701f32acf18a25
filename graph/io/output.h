/* output.h - text of a graph file, plain or gzip */
#ifndef DFGNN_IO_OUTPUT_H
#define DFGNN_IO_OUTPUT_H

#include "dfgnn.h"
#include "graph/io/io.h"
#include "lib/base/output.h"

#include <zlib.h>

typedef struct dfgnn__writer {
  const char *path; /* for messages */
  gzFile file;
  dfgnn_status status; /* the first failure */
  char *buffer;
  size_t used;
} dfgnn__writer;

/* Opens temporary; compressed if path ends in ".gz". */
dfgnn_status dfgnn__writer_open(dfgnn__writer *w, const char *path,
                                const char *temporary);
/* Writes the rest of the buffer; returns the first failure. */
dfgnn_status dfgnn__writer_close(dfgnn__writer *w);

void dfgnn__put_text(dfgnn__writer *w, const char *text);
/* Writes the number and one byte after it. */
void dfgnn__put_integer(dfgnn__writer *w, int64_t value, char after);

#endif
