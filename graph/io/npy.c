#include "graph/io/npy.h"
#include "lib/base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

size_t dfgnn__npy_header_size(const unsigned char preamble[12]) {
  if (memcmp(preamble, "\x93NUMPY", 6))
    return 0;
  if (preamble[6] == 1)
    return 10 + ((size_t)preamble[8] | (size_t)preamble[9] << 8);
  if (preamble[6] == 2 || preamble[6] == 3)
    return 12 + ((size_t)preamble[8] | (size_t)preamble[9] << 8 |
                 (size_t)preamble[10] << 16 | (size_t)preamble[11] << 24);
  return 0;
}

typedef struct cursor {
  const char *p;
} cursor;

static void blanks(cursor *c) {
  while (*c->p == ' ' || *c->p == '\n' || *c->p == '\t')
    c->p++;
}

static int take(cursor *c, char wanted) {
  blanks(c);
  if (*c->p != wanted)
    return 0;
  c->p++;
  return 1;
}

/* Reads a quoted word into text; 0 if there is none or it does not fit. */
static int word(cursor *c, char *text, size_t size) {
  blanks(c);
  char quote = *c->p;
  if (quote != '\'' && quote != '"')
    return 0;
  const char *end = strchr(c->p + 1, quote);
  if (!end || (size_t)(end - c->p) > size)
    return 0;
  size_t n = (size_t)(end - c->p) - 1;
  memcpy(text, c->p + 1, n);
  text[n] = 0;
  c->p = end + 1;
  return 1;
}

/* Reads a tuple of up to two lengths; 0 if there is none. */
static int tuple(cursor *c, dfgnn__npy *npy) {
  if (!take(c, '('))
    return 0;
  npy->dimensions = 0;
  npy->count = 1;
  while (!take(c, ')')) {
    blanks(c);
    if (!isdigit((unsigned char)*c->p) || npy->dimensions == 2)
      return 0;
    char *end;
    long long length = strtoll(c->p, &end, 10); /* saturates */
    c->p = end + (*end == 'L');
    npy->shape[npy->dimensions++] = length;
    if (__builtin_mul_overflow(npy->count, length, &npy->count))
      return 0;
    if (!take(c, ',')) {
      if (!take(c, ')'))
        return 0;
      break;
    }
  }
  return 1;
}

dfgnn_status dfgnn__npy_parse(dfgnn__npy *npy, const char *header, size_t size,
                              const char *what) {
  char text[DFGNN__NPY_HEADER + 1], key[16] = "";
  int have_type = 0, have_shape = 0, ordered = 0;
  size_t begin = header[6] == 1 ? 10 : 12;
  memcpy(text, header + begin, size - begin);
  text[size - begin] = 0;
  cursor c = {text};
  *npy = (dfgnn__npy){.header = size};
  if (!take(&c, '{'))
    goto bad;
  while (!take(&c, '}')) {
    if (!word(&c, key, sizeof key) || !take(&c, ':'))
      goto bad;
    if (!strcmp(key, "descr")) {
      blanks(&c);
      if (!word(&c, npy->type, sizeof npy->type))
        return dfgnn__fail(DFGNN_ERROR_FORMAT,
                           "%s: found a structured type, expected '<i4' or "
                           "'<i8'",
                           what);
      have_type = 1;
    } else if (!strcmp(key, "fortran_order")) {
      blanks(&c);
      const char *value = !strncmp(c.p, "False", 5)  ? "False"
                          : !strncmp(c.p, "True", 4) ? "True"
                                                     : NULL;
      if (!value)
        goto bad;
      c.p += strlen(value);
      ordered = 1;
    } else if (!strcmp(key, "shape")) {
      if (!tuple(&c, npy))
        return dfgnn__fail(DFGNN_ERROR_FORMAT,
                           "%s: found a shape that is no tuple of at most two "
                           "lengths, expected one",
                           what);
      have_shape = 1;
    } else
      goto bad;
    if (!take(&c, ',')) {
      if (!take(&c, '}'))
        goto bad;
      break;
    }
  }
  if (!have_type || !have_shape || !ordered)
    goto bad;
  if (strchr(npy->type, 'O'))
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found a pickled array of Python objects, which is "
                       "never loaded, expected '<i4' or '<i8'",
                       what);
  return DFGNN_OK;
bad:
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found a NumPy header that cannot be parsed, expected "
                     "descr, fortran_order and shape",
                     what);
}
