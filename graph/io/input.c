#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "graph/io/input.h"
#include "lib/base/error.h"
#include "lib/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

dfgnn_status dfgnn__limit_sizes(const char *path, int64_t rows, int64_t columns,
                                int64_t limit) {
  if (rows < limit / 8 && columns < limit / 8)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found %lld %s, expected fewer than %lld in a file "
                     "of its size; DFGNN_MAX_FILE raises the limit",
                     path, (long long)(rows < limit / 8 ? columns : rows),
                     rows < limit / 8 ? "columns" : "rows",
                     (long long)(limit / 8));
}

dfgnn_status dfgnn__scanner_open(dfgnn__scanner *s, const char *path) {
  int64_t size;
  int fd;
  *s = (dfgnn__scanner){.path = path, .file = {.fd = -1}, .line = 1};
  DFGNN_TRY(dfgnn__file_open(&fd, &size, path, "a graph file"));
  dfgnn_status status = dfgnn__gunzip_open(&s->file, fd, path);
  if (!status)
    status = dfgnn__limit(&s->limit, size);
  if (!status && !(s->buffer = malloc(BUFFER_BYTES)))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot buffer", path);
  s->p = s->end = s->buffer;
  if (status)
    dfgnn__scanner_close(s);
  return status;
}

void dfgnn__scanner_close(dfgnn__scanner *s) {
  dfgnn__gunzip_close(&s->file);
  free(s->buffer);
  s->buffer = NULL;
  s->p = s->end = NULL;
}

/* Makes one newline of each end of a line, be it LF, CR LF or CR, as old Macs
 * have it; returns the bytes left. */
static size_t end_lines(dfgnn__scanner *s, size_t n) {
  char *to = s->buffer;
  if (!s->after_return && !memchr(s->buffer, '\r', n))
    return n;
  for (const char *from = s->buffer; from < s->buffer + n; from++) {
    const int skipped = s->after_return && *from == '\n';
    s->after_return = *from == '\r';
    if (!skipped)
      *to++ = s->after_return ? '\n' : *from;
  }
  return (size_t)(to - s->buffer);
}

int dfgnn__scanner_fill(dfgnn__scanner *s) {
  static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, by spreadsheets */
  size_t n = 0;
  int first = !s->total;
  if (s->status)
    return 0;
  s->status = dfgnn__gunzip_read(&s->file, s->buffer, BUFFER_BYTES, &n, s->path,
                                 s->total);
  s->total += (int64_t)n;
  if (!s->status && n && s->total > s->limit)
    s->status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                            "%s: found more than %lld bytes of text, expected "
                            "fewer in a file of its size; DFGNN_MAX_FILE "
                            "raises the limit",
                            s->path, (long long)s->limit);
  if (s->status)
    n = 0;
  const int any = n > 0;
  n = end_lines(s, n);
  s->p = s->buffer;
  s->end = s->buffer + n;
  if (first && n >= sizeof mark - 1 && !memcmp(s->p, mark, sizeof mark - 1)) {
    s->p += sizeof mark - 1;
    return s->p < s->end || dfgnn__scanner_fill(s);
  }
  return n > 0 || (any && dfgnn__scanner_fill(s));
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
    if (n + 1 < size)
      text[n++] = (char)c;
  }
  text[n] = 0;
  if (c == '\n') {
    s->p++;
    s->line++;
  }
}

static int ends_token(int c) {
  return c < 0 || c == ' ' || c == '\t' || c == '\n' || c == ',' || c == ';';
}

/* The failure of a token whose first bytes are read already. */
static dfgnn_status wrong_token(dfgnn__scanner *s, const char *begun,
                                const char *expected) {
  char found[64];
  size_t n = strlen(begun) < 40 ? strlen(begun) : 40;
  int c = dfgnn__peek(s);
  memcpy(found, begun, n);
  for (; n < 40 && c > ' ' && c <= '~' && !ends_token(c); c = dfgnn__peek(s)) {
    found[n++] = (char)c;
    s->p++;
  }
  found[n] = 0;
  if (s->status)
    return s->status;
  const int odd = !ends_token(c) && (c < ' ' || c > '~');
  return n && !odd ? dfgnn__fail(DFGNN_ERROR_FORMAT,
                                 "%s: line %lld: found '%s', expected %s",
                                 s->path, (long long)s->line, found, expected)
                   : dfgnn__scan_fail(s, expected);
}

dfgnn_status dfgnn__get_integer(dfgnn__scanner *s, int64_t *value,
                                const char *expected) {
  char begun[48];
  size_t n = 0;
  int c = dfgnn__skip_blanks(s), beyond = 0;
  int64_t v = 0;
  if (c == '-' || c == '+') {
    begun[n++] = (char)c;
    s->p++;
    c = dfgnn__peek(s);
  }
  int negative = n && *begun == '-', any = c >= '0' && c <= '9';
  for (; c >= '0' && c <= '9'; c = dfgnn__peek(s)) {
    beyond |= __builtin_mul_overflow(v, 10, &v) ||
              __builtin_add_overflow(v, c - '0', &v);
    if (n + 1 < sizeof begun)
      begun[n++] = (char)c;
    s->p++;
  }
  begun[n] = 0;
  if (!any || !ends_token(c))
    return wrong_token(s, begun, expected);
  if (beyond)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: line %lld: found an integer beyond 64 bits (%s), "
                       "expected %s",
                       s->path, (long long)s->line, begun, expected);
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
