/* output.c - text of graph files is buffered, and files are replaced whole */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "io/output.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 18)
#define MARGIN 32 /* the longest integer and the byte after it */

dfgnn_status dfgnn__writer_open(dfgnn__writer *w, const char *path,
                                const char *temporary) {
  *w = (dfgnn__writer){.path = path, .buffer = malloc(BUFFER_BYTES + MARGIN)};
  if (!w->buffer)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot buffer", path);
  size_t n = strlen(path);
  int packed = n > 3 && !strcmp(path + n - 3, ".gz");
  w->file = gzopen(temporary, packed ? "wbe6" : "wbeT");
  if (!w->file) {
    free(w->buffer);
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", path,
                       strerror(errno));
  }
  gzbuffer(w->file, BUFFER_BYTES);
  return DFGNN_OK;
}

static void flush(dfgnn__writer *w) {
  if (!w->status && w->used &&
      gzwrite(w->file, w->buffer, (unsigned)w->used) != (int)w->used)
    w->status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", w->path,
                            strerror(errno));
  w->used = 0;
}

dfgnn_status dfgnn__writer_close(dfgnn__writer *w) {
  flush(w);
  if (gzclose(w->file) != Z_OK && !w->status)
    w->status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", w->path,
                            strerror(errno));
  free(w->buffer);
  return w->status;
}

void dfgnn__put_text(dfgnn__writer *w, const char *text) {
  for (; *text; text++) {
    w->buffer[w->used++] = *text;
    if (w->used >= BUFFER_BYTES)
      flush(w);
  }
}

void dfgnn__put_integer(dfgnn__writer *w, int64_t value, char after) {
  char digits[24];
  int n = 0;
  uint64_t v = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do
    digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  if (value < 0)
    digits[n++] = '-';
  while (n)
    w->buffer[w->used++] = digits[--n];
  w->buffer[w->used++] = after;
  if (w->used >= BUFFER_BYTES)
    flush(w);
}

/* The new file is on the disk before it takes the old one's name. */
static dfgnn_status replace(const char *path, const char *temporary) {
  int fd = open(temporary, O_RDONLY | O_CLOEXEC);
  int failed = fd < 0 || fsync(fd);
  if (fd >= 0)
    close(fd);
  if (failed || rename(temporary, path))
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot replace: %s", path,
                       strerror(errno));
  return DFGNN_OK;
}

dfgnn_status dfgnn__write_whole(const char *path, dfgnn__file_writer *write,
                                const void *data) {
  char *temporary;
  if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot name a file", path);
  dfgnn_status status = DFGNN_OK;
  int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) {
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", path,
                         strerror(errno));
    goto out;
  }
  mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  close(fd);
  status = write(data, path, temporary);
  if (!status)
    status = replace(path, temporary);
  if (status)
    unlink(temporary);
out:
  free(temporary);
  return status;
}
