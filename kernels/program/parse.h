/* parse.h - a text that is read: its words, and the values that it names */
#ifndef DFGNN_PROGRAM_PARSE_H
#define DFGNN_PROGRAM_PARSE_H

#include "kernels/program/functions.h"

typedef enum dfgnn_token_kind {
  END,
  LINE,
  NAME,
  NUMBER,
  SIGN
} dfgnn_token_kind;

typedef struct token {
  dfgnn_token_kind kind;
  char text[DFGNN_DAG_NAME]; /* a name, or a sign */
  double number;
  int line, column;
} token;

typedef struct variable {
  char name[DFGNN_DAG_NAME];
  int32_t node;
} variable;

typedef struct parser {
  dfgnn_dag *dag;
  const char *here;
  int line, column, brackets, depth, told;
  token next;
  variable *variables; /* inputs, too */
  int count, capacity;
  int returned;
} parser;

/* ---- scan.c: words ------------------------------------------------------- */

static inline int dfgnn__parse_failed(const parser *p) {
  return p->dag->status != DFGNN_OK;
}
/* Fails with the line and column of a word. */
void dfgnn__parse_fail(parser *p, const token *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says where it was, if making a value failed. */
void dfgnn__parse_tell(parser *p, const token *at);
/* The words for a token in a message. */
const char *dfgnn__token_text(const token *t);
/* Reads the next word. */
void dfgnn__parse_advance(parser *p);
int dfgnn__parse_sees(const parser *p, dfgnn_token_kind kind, const char *text);
/* Passes over a sign, if it comes next. */
int dfgnn__parse_accept(parser *p, const char *sign);
void dfgnn__parse_expect(parser *p, const char *sign, const char *after);

/* The place that a word names; -1: none. */
int dfgnn__token_place(const token *t);
int dfgnn__token_is_reserved(const token *t);
/* A name that is not reserved; what: what the message expects. */
token dfgnn__parse_name(parser *p, const char *what);

/* ---- parse_value.c: values, sizes and shapes ----------------------------- */

/* The value of a name; NULL: it has none. */
variable *dfgnn__parse_find(const parser *p, const char *name);
void dfgnn__parse_define(parser *p, const token *name, int32_t node);
/* [H,D] after a name or place, or nothing: returns the number of axes, of which
 * none is smaller than `least`. */
int dfgnn__parse_shape(parser *p, dfgnn_size *shape, int least);
int32_t dfgnn__parse_value(parser *p);

#endif
