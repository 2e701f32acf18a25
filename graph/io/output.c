/* output.c - text of graph files, buffered */
#include "graph/io/output.h"
#include "lib/base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
