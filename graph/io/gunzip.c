#include "graph/io/gunzip.h"
#include "lib/base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_BYTES (1 << 16)
#define GZIP_WINDOW (15 + 16) /* zlib.h: the largest, with a gzip header */

dfgnn_status dfgnn__gunzip_open(dfgnn__gunzip *g, int fd, const char *path) {
  *g = (dfgnn__gunzip){.fd = fd, .packed = -1, .input = malloc(INPUT_BYTES)};
  return g->input ? DFGNN_OK
                  : dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot buffer", path);
}

void dfgnn__gunzip_close(dfgnn__gunzip *g) {
  if (g->packed == 1)
    inflateEnd(&g->stream);
  if (g->fd >= 0)
    close(g->fd);
  free(g->input);
  *g = (dfgnn__gunzip){.fd = -1, .packed = -1};
}

/* Appends bytes of the file to the unused input; *added is 0 at its end. */
static dfgnn_status refill(dfgnn__gunzip *g, size_t *added, const char *path) {
  size_t kept = g->stream.avail_in;
  if (kept)
    memmove(g->input, g->stream.next_in, kept);
  ssize_t n;
  do
    n = read(g->fd, g->input + kept, INPUT_BYTES - kept);
  while (n < 0 && errno == EINTR);
  if (n < 0)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot read: %s", path,
                       strerror(errno));
  g->stream.next_in = g->input;
  g->stream.avail_in = (unsigned)(kept + (size_t)n);
  *added = (size_t)n;
  return DFGNN_OK;
}

static int is_gzip(const dfgnn__gunzip *g) {
  return g->stream.avail_in >= 2 && g->stream.next_in[0] == 0x1f &&
         g->stream.next_in[1] == 0x8b;
}

static dfgnn_status look_at_start(dfgnn__gunzip *g, const char *path) {
  size_t added = 1;
  while (added && g->stream.avail_in < 2)
    DFGNN_TRY(refill(g, &added, path));
  g->packed = is_gzip(g);
  if (g->packed && inflateInit2(&g->stream, GZIP_WINDOW) != Z_OK) {
    g->packed = 0;
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot unpack", path);
  }
  return DFGNN_OK;
}

/* Skips the padding zeros behind a member; after them comes another member or
 * the end. */
static dfgnn_status next_member(dfgnn__gunzip *g, int *over, const char *path) {
  size_t added = 1;
  *over = 0;
  for (;;) {
    while (g->stream.avail_in && !*g->stream.next_in) {
      g->stream.next_in++;
      g->stream.avail_in--;
    }
    if (g->stream.avail_in >= 2 || !added)
      break;
    DFGNN_TRY(refill(g, &added, path));
  }
  if (!g->stream.avail_in) {
    *over = 1;
    return DFGNN_OK;
  }
  if (!is_gzip(g))
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found bytes behind the gzip stream (0x%02x ...), "
                       "expected the end of the file",
                       path, *g->stream.next_in);
  g->ended = 0;
  inflateReset(&g->stream);
  return DFGNN_OK;
}

static dfgnn_status damaged(const char *path, int64_t bytes, const char *why) {
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found a damaged gzip stream after %lld bytes (%s), "
                     "expected a whole one",
                     path, (long long)bytes, why);
}

static dfgnn_status unpack(dfgnn__gunzip *g, const char *path, int64_t before,
                           size_t size) {
  z_stream *z = &g->stream;
  while (z->avail_out) {
    size_t added = 1;
    int over = 0;
    dfgnn_status status = DFGNN_OK;
    if (g->ended && (status = next_member(g, &over, path)))
      return status;
    if (over)
      return DFGNN_OK;
    if (!z->avail_in && (status = refill(g, &added, path)))
      return status;
    int64_t there = before + (int64_t)(size - z->avail_out);
    if (!added)
      return damaged(path, there, "it ends too early");
    int code = inflate(z, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END)
      return damaged(path, there, z->msg ? z->msg : zError(code));
    g->ended = code == Z_STREAM_END;
  }
  return DFGNN_OK;
}

static dfgnn_status pass(dfgnn__gunzip *g, unsigned char *to, size_t size,
                         size_t *got, const char *path) {
  size_t added = 1;
  for (*got = 0; *got < size && added;) {
    size_t n = g->stream.avail_in;
    if (!n) {
      DFGNN_TRY(refill(g, &added, path));
      continue;
    }
    n = n < size - *got ? n : size - *got;
    memcpy(to + *got, g->stream.next_in, n);
    g->stream.next_in += n;
    g->stream.avail_in -= (unsigned)n;
    *got += n;
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__gunzip_read(dfgnn__gunzip *g, void *to, size_t size,
                                size_t *got, const char *path, int64_t before) {
  dfgnn_status status = DFGNN_OK;
  *got = 0;
  if (g->packed < 0 && (status = look_at_start(g, path)))
    return status;
  if (!g->packed)
    return pass(g, to, size, got, path);
  g->stream.next_out = to;
  g->stream.avail_out = (unsigned)size;
  status = unpack(g, path, before, size);
  if (!status)
    *got = size - g->stream.avail_out;
  return status;
}
