#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "io/input.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 16)
#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

dfgnn_status dfgnn__limit(int64_t *limit, int64_t size) {
  const char *text = getenv("DFGNN_MAX_FILE");
  if (!text || !*text) {
    int64_t most = 64 * GIB;
    *limit = size < 0 || size > most / 256 ? most : 64 * MIB + 256 * size;
    return DFGNN_OK;
  }
  static const char suffixes[] = "KMGT";
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  const char *suffix = *end ? strchr(suffixes, *end) : NULL;
  int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
  if (errno || end == text || value <= 0 || end[suffix != NULL] ||
      value > INT64_MAX >> shift)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "DFGNN_MAX_FILE is '%s', expected bytes such as "
                       "1000000, 512M or 100G",
                       text);
  *limit = (int64_t)value << shift;
  return DFGNN_OK;
}

dfgnn_status dfgnn__limit_rows(const char *path, int64_t rows, int64_t limit) {
  if (rows < limit / 8)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found %lld rows, expected fewer than %lld in a file "
                     "of its size; DFGNN_MAX_FILE raises the limit",
                     path, (long long)rows, (long long)(limit / 8));
}

dfgnn_status dfgnn__scanner_open(dfgnn__scanner *s, const char *path) {
  *s = (dfgnn__scanner){.path = path, .line = 1};
  struct stat about;
  dfgnn_status status = DFGNN_OK;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &about)) {
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    goto out;
  }
  if (S_ISDIR(about.st_mode)) {
    status = dfgnn__fail(DFGNN_ERROR_IO,
                         "%s: found a directory, expected a graph file", path);
    goto out;
  }
  int64_t size = S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1;
  if ((status = dfgnn__limit(&s->limit, size)))
    goto out;
  s->buffer = malloc(BUFFER_BYTES);
  s->file = s->buffer ? gzdopen(fd, "rb") : NULL;
  if (!s->file) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot buffer", path);
    goto out;
  }
  fd = -1;
  gzbuffer(s->file, BUFFER_BYTES);
  s->p = s->end = s->buffer;
out:
  if (fd >= 0)
    close(fd);
  if (status)
    dfgnn__scanner_close(s);
  return status;
}

void dfgnn__scanner_close(dfgnn__scanner *s) {
  if (s->file)
    gzclose(s->file);
  free(s->buffer);
  s->file = NULL;
  s->buffer = NULL;
  s->p = s->end = NULL;
}

int dfgnn__scanner_fill(dfgnn__scanner *s) {
  if (s->status)
    return 0;
  int n = gzread(s->file, s->buffer, BUFFER_BYTES);
  int code = Z_OK;
  if (n < BUFFER_BYTES) {
    const char *why = gzerror(s->file, &code);
    if (n < 0 || code == Z_BUF_ERROR) {
      if (code == Z_ERRNO)
        s->status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot read: %s", s->path,
                                strerror(errno));
      else
        s->status =
            dfgnn__fail(DFGNN_ERROR_FORMAT,
                        "%s: found a damaged gzip stream after %lld bytes "
                        "(%s), expected a whole one",
                        s->path, (long long)s->total, why);
      n = 0;
    }
  }
  s->total += n;
  if (n > 0 && s->total > s->limit) {
    s->status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                            "%s: found more than %lld bytes of text, expected "
                            "fewer in a file of its size; DFGNN_MAX_FILE "
                            "raises the limit",
                            s->path, (long long)s->limit);
    n = 0;
  }
  s->p = s->buffer;
  s->end = s->buffer + n;
  return n > 0;
}

void dfgnn__skip_line(dfgnn__scanner *s) {
  while (dfgnn__peek(s) >= 0) {
    const char *newline = memchr(s->p, '\n', (size_t)(s->end - s->p));
    if (newline) {
      s->p = newline + 1;
      s->line++;
      return;
    }
    s->p = s->end;
  }
}

void dfgnn__get_line(dfgnn__scanner *s, char *text, size_t size) {
  size_t n = 0;
  int c;
  while ((c = dfgnn__peek(s)) >= 0 && c != '\n') {
    s->p++;
    if (n + 1 < size && c != '\r')
      text[n++] = (char)c;
  }
  text[n] = 0;
  if (c == '\n') {
    s->p++;
    s->line++;
  }
}

static int ends_token(int c) {
  return c < 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' ||
         c == ';';
}

dfgnn_status dfgnn__get_integer(dfgnn__scanner *s, int64_t *value,
                                const char *expected) {
  int c = dfgnn__skip_blanks(s);
  int negative = c == '-';
  if (c == '-' || c == '+') {
    s->p++;
    c = dfgnn__peek(s);
  }
  if (c < '0' || c > '9')
    return dfgnn__scan_fail(s, expected);
  int64_t v = 0;
  do {
    if (v > (INT64_MAX - 9) / 10)
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: line %lld: found an integer beyond 64 bits, "
                         "expected %s",
                         s->path, (long long)s->line, expected);
    v = 10 * v + (c - '0');
    s->p++;
    c = dfgnn__peek(s);
  } while (c >= '0' && c <= '9');
  if (!ends_token(c))
    return dfgnn__scan_fail(s, expected);
  *value = negative ? -v : v;
  return DFGNN_OK;
}

dfgnn_status dfgnn__skip_number(dfgnn__scanner *s, const char *expected) {
  static const char allowed[] = "0123456789+-.eEdDnaifNAIF";
  int c = dfgnn__skip_blanks(s);
  if (ends_token(c))
    return dfgnn__scan_fail(s, expected);
  for (; !ends_token(c); c = dfgnn__peek(s)) {
    if (!c || !strchr(allowed, c))
      return dfgnn__scan_fail(s, expected);
    s->p++;
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__scan_fail(dfgnn__scanner *s, const char *expected) {
  char found[64] = "";
  size_t n = 0;
  int c = dfgnn__peek(s);
  if (s->status)
    return s->status;
  if (c < 0)
    snprintf(found, sizeof found, "the end of the file");
  else if (c == '\n')
    snprintf(found, sizeof found, "the end of the line");
  else if (c < ' ' || c > '~')
    snprintf(found, sizeof found, "the byte 0x%02x", c);
  else {
    found[n++] = '\'';
    while (n < 32 && !ends_token(c = dfgnn__peek(s)) && c >= ' ' && c <= '~') {
      found[n++] = (char)c;
      s->p++;
    }
    if (n == 1) /* a lone separator */
      found[n++] = (char)c;
    snprintf(found + n, sizeof found - n, "'");
  }
  return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: line %lld: found %s, expected %s",
                     s->path, (long long)s->line, found, expected);
}
