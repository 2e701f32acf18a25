/* scan.c - the words of a text */
#include "kernels/program/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- errors -------------------------------------------------------------- */

void dfgnn__parse_fail(parser *p, const token *at, const char *format, ...) {
  char text[400];
  va_list args;
  if (dfgnn__parse_failed(p))
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dfgnn__dag_fail(p->dag, DFGNN_ERROR_INVALID, "line %d, column %d: %s",
                  at->line, at->column, text);
  p->told = 1;
}

void dfgnn__parse_tell(parser *p, const token *at) {
  if (dfgnn__parse_failed(p) && !p->told)
    dfgnn__fail_prefix(p->dag->status, "line %d, column %d: ", at->line,
                       at->column);
  p->told |= dfgnn__parse_failed(p);
}

const char *dfgnn__token_text(const token *t) {
  static _Thread_local char text[DFGNN_DAG_NAME + 16];
  switch (t->kind) {
  case END:
    return "the end of the text";
  case LINE:
    return "the end of the line";
  case NUMBER:
    snprintf(text, sizeof text, "%g", t->number);
    return text;
  default:
    snprintf(text, sizeof text, "\"%s\"", t->text);
    return text;
  }
}

/* ---- words --------------------------------------------------------------- */

static int is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static int is_digit(char c) { return c >= '0' && c <= '9'; }

static void skip_blanks(parser *p) {
  for (;;) {
    char c = *p->here;
    if (c == '#') {
      while (*p->here && *p->here != '\n')
        p->here++, p->column++;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      p->here++, p->column++;
    } else if (c == '\n' && p->brackets) {
      p->here++, p->line++, p->column = 1;
    } else {
      return;
    }
  }
}

/* Takes `size` characters into the token. */
static void take(parser *p, token *t, size_t size, const char *what) {
  if (size >= sizeof t->text) {
    dfgnn__parse_fail(p, t, "%s of %zu characters, expected at most %d", what,
                      size, DFGNN_DAG_NAME - 1);
    size = 1;
  }
  memcpy(t->text, p->here, size);
  t->text[size] = 0;
  p->here += size;
  p->column += (int)size;
}

static void read_number(parser *p, token *t) {
  size_t size = 0;
  const char *s = p->here;
  while (is_digit(s[size]) || s[size] == '.' ||
         ((s[size] == 'e' || s[size] == 'E') && size) ||
         ((s[size] == '+' || s[size] == '-') && size &&
          (s[size - 1] == 'e' || s[size - 1] == 'E')))
    size++;
  t->kind = NUMBER;
  take(p, t, size, "a number");
  char *end;
  errno = 0;
  t->number = strtod(t->text, &end);
  if (!dfgnn__parse_failed(p) && (*end || isinf(t->number)))
    dfgnn__parse_fail(p, t, "found \"%s\", expected a number of a double",
                      t->text);
}

static void read_sign(parser *p, token *t) {
  static const char *const pairs[] = {"**", "<=", ">=", "==", "!="};
  t->kind = SIGN;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (!strncmp(p->here, pairs[i], 2)) {
      take(p, t, 2, "a sign");
      return;
    }
  if (!strchr("+-*/<>=()[],:", *p->here)) {
    unsigned char c = (unsigned char)*p->here;
    if (isprint(c))
      dfgnn__parse_fail(p, t,
                        "found \"%c\", expected a name, a number or a sign", c);
    else
      dfgnn__parse_fail(
          p, t, "found byte 0x%02x, expected a name, a number or a sign", c);
  }
  take(p, t, 1, "a sign");
}

void dfgnn__parse_advance(parser *p) {
  token *t = &p->next;
  skip_blanks(p);
  *t = (token){.line = p->line, .column = p->column};
  char c = *p->here;
  if (dfgnn__parse_failed(p) || !c) {
    t->kind = END;
  } else if (c == '\n' || c == ';') {
    t->kind = LINE;
    p->here++, p->column++;
    if (c == '\n')
      p->line++, p->column = 1;
  } else if (is_letter(c)) {
    size_t size = 1;
    while (is_letter(p->here[size]) || is_digit(p->here[size]))
      size++;
    t->kind = NAME;
    take(p, t, size, "a name");
  } else if (is_digit(c) || (c == '.' && is_digit(p->here[1]))) {
    read_number(p, t);
  } else {
    read_sign(p, t);
  }
  if (dfgnn__parse_failed(p))
    t->kind = END;
}

int dfgnn__parse_sees(const parser *p, dfgnn_token_kind what,
                      const char *text) {
  return p->next.kind == what && !strcmp(p->next.text, text);
}

int dfgnn__parse_accept(parser *p, const char *sign) {
  if (!dfgnn__parse_sees(p, SIGN, sign))
    return 0;
  if (*sign == '(' || *sign == '[')
    p->brackets++;
  else if (*sign == ')' || *sign == ']')
    p->brackets -= p->brackets > 0;
  dfgnn__parse_advance(p);
  return 1;
}

void dfgnn__parse_expect(parser *p, const char *sign, const char *after) {
  if (!dfgnn__parse_accept(p, sign))
    dfgnn__parse_fail(p, &p->next, "found %s, expected \"%s\" %s",
                      dfgnn__token_text(&p->next), sign, after);
}

/* ---- names ---- */

int dfgnn__token_place(const token *t) {
  for (int i = DFGNN_PLACE_PARAM; t->kind == NAME && i < DFGNN_PLACES; i++)
    if (!strcmp(t->text, dfgnn__place_name(i)))
      return i;
  return -1;
}

int dfgnn__token_is_reserved(const token *t) {
  return dfgnn__token_place(t) >= 0 || !strcmp(t->text, "return") ||
         !strcmp(t->text, "as") || !strcmp(t->text, "inf") ||
         !strcmp(t->text, "nan");
}

token dfgnn__parse_name(parser *p, const char *what) {
  token name = p->next;
  if (name.kind != NAME || dfgnn__token_is_reserved(&name))
    dfgnn__parse_fail(p, &name, "found %s, expected %s",
                      dfgnn__token_text(&name), what);
  dfgnn__parse_advance(p);
  return name;
}
