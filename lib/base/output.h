/* output.h - files that the user names to be written
 *
 * Output goes into a file of its own first and gets its name when it
 * is whole, so that a name holds the old content or the new.  One rule for
 * every output of library and tools:
 *
 *   a regular file, or none      replaced by rename, if it is of the kind
 *   a symbolic link              followed, and what it names is treated so
 *   a character device or FIFO   written to, as /dev/stdout and a pipe are
 *   anything else                refused, and what it is is said            */
#ifndef DFGNN_BASE_OUTPUT_H
#define DFGNN_BASE_OUTPUT_H

#include <sys/types.h>

#include "dfgnn.h"

/* An output replaces a file of its own kind, or an empty one.  One of the marks
 * says that a file is of the kind, in what gzip or xz packed, too; or, if there
 * is none, `is` says so. */
typedef struct dfgnn_output_kind {
  const char *name; /* "a tuning store" */
  struct {
    int at; /* byte of the file */
    const char *bytes;
  } mark[2]; /* bytes NULL: there is none */
  int (*is)(const char *path, const void *data);
  const void *data;
} dfgnn_output_kind;

typedef struct dfgnn_output {
  char *path;   /* as it was given, for messages */
  char *place;  /* that path with its links followed */
  char *folder; /* holds `made` where it cannot lie beside `place`, or NULL */
  char *made;   /* an empty file, to be written */
  int replaces; /* a file is there */
  int target;   /* what the bytes are copied into in place of a rename, or -1 */
  mode_t mode;  /* of the file that is replaced or made */
} dfgnn_output;

/* Makes the file output->made.  A file of another kind is DFGNN_ERROR_INVALID
 * and stays as it is; DFGNN_ERROR_IO if path cannot be written. */
dfgnn_status dfgnn__output_open(dfgnn_output *output, const char *path,
                                const dfgnn_output_kind *kind);

/* Brings what was written to its name, if `keep`; whatever happens, no other
 * file is left.  Frees what output holds. */
dfgnn_status dfgnn__output_close(dfgnn_output *output, int keep);

/* Writes data to temporary; path is for messages. */
typedef dfgnn_status dfgnn__file_writer(const void *data, const char *path,
                                        const char *temporary);

/* Opens, writes and closes an output. */
dfgnn_status dfgnn__write_whole(const char *path, const dfgnn_output_kind *kind,
                                dfgnn__file_writer *write, const void *data);

/* The same with bytes that are there already. */
dfgnn_status dfgnn__write_bytes(const char *path, const dfgnn_output_kind *kind,
                                const void *bytes, size_t count);

#endif
