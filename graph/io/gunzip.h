/* gunzip.h - the bytes of a file, unpacked if it is a gzip stream
 *
 * zlib's own gzread silently ignores bytes behind a stream; here they are an
 * error, as they are for Python's gzip and so for SciPy. */
#ifndef DFGNN_IO_GUNZIP_H
#define DFGNN_IO_GUNZIP_H

#include "dfgnn.h"

#include <zlib.h>

typedef struct dfgnn__gunzip {
  int fd;
  int packed; /* -1: not known before the first bytes; else 0 or 1 */
  int ended;  /* a member of the stream is over */
  unsigned char *input;
  z_stream stream; /* its input is the unused part of `input` */
} dfgnn__gunzip;

/* Takes the descriptor over, whatever it returns. */
dfgnn_status dfgnn__gunzip_open(dfgnn__gunzip *g, int fd, const char *path);
void dfgnn__gunzip_close(dfgnn__gunzip *g);

/* Reads up to size bytes into `to`; *got is 0 at the end of the file alone.
 * `before` is how many bytes were unpacked until now, for messages. */
dfgnn_status dfgnn__gunzip_read(dfgnn__gunzip *g, void *to, size_t size,
                                size_t *got, const char *path, int64_t before);

#endif
