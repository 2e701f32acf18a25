/* input.h - bytes and text of a graph file, plain or gzip, within a limit
 *
 * The limit is DFGNN_MAX_FILE (bytes, with K, M, G or T), by default the lower
 * of 64 GiB and 64 MiB + 256 times the size of the file.  It bounds what a file
 * unpacks to and the arrays that its numbers ask for, so that neither a gzip
 * bomb nor a lying header can fill the memory. */
#ifndef DFGNN_IO_INPUT_H
#define DFGNN_IO_INPUT_H

#include "dfgnn.h"
#include "graph/io/gunzip.h"

/* The limit for a file of size bytes, -1 where that is not known. */
dfgnn_status dfgnn__limit(int64_t *limit, int64_t size);

/* Fails unless rows + 1 offsets fit the limit, and as many for columns, by
 * which a graph is walked, too. */
dfgnn_status dfgnn__limit_sizes(const char *path, int64_t rows, int64_t columns,
                                int64_t limit);

typedef struct dfgnn__scanner {
  const char *path;
  dfgnn__gunzip file;
  int64_t limit, total; /* bytes */
  int64_t line;         /* number of the line at p, from 1 */
  dfgnn_status status;  /* of reading; after a failure text seems to end */
  int after_return;     /* the last byte was a carriage return */
  char *buffer;         /* every end of a line is a newline alone */
  const char *p, *end;
} dfgnn__scanner;

dfgnn_status dfgnn__scanner_open(dfgnn__scanner *s, const char *path);
void dfgnn__scanner_close(dfgnn__scanner *s);

/* Reads the next bytes; 0 at the end of the file or on failure (see status). */
int dfgnn__scanner_fill(dfgnn__scanner *s);

/* The next byte, -1 at the end. */
static inline int dfgnn__peek(dfgnn__scanner *s) {
  return s->p < s->end || dfgnn__scanner_fill(s) ? (unsigned char)*s->p : -1;
}

/* Skips spaces and tabs, and returns the byte after. */
static inline int dfgnn__skip_blanks(dfgnn__scanner *s) {
  int c;
  while ((c = dfgnn__peek(s)) == ' ' || c == '\t')
    s->p++;
  return c;
}

/* Skips to the first byte of the next line. */
void dfgnn__skip_line(dfgnn__scanner *s);

/* Copies the rest of the line, without its end, cut to size - 1 bytes. */
void dfgnn__get_line(dfgnn__scanner *s, char *text, size_t size);

/* Reads a decimal integer, which a blank, a comma, a semicolon or the end of
 * the line must follow, and leaves p after it.  expected says what it means,
 * for the message. */
dfgnn_status dfgnn__get_integer(dfgnn__scanner *s, int64_t *value,
                                const char *expected);

/* Skips one token that must read as a real number. */
dfgnn_status dfgnn__skip_number(dfgnn__scanner *s, const char *expected);

/* "PATH: line N: found 'token', expected ...", or the failure of reading. */
dfgnn_status dfgnn__scan_fail(dfgnn__scanner *s, const char *expected);

#endif
