/* parse.c - the text of a program
 *
 *   text       statement { (newline | ";") statement }       # comments
 *   statement  place item { "," item }          dst q[H,D], x
 *            | name "=" value
 *            | "return" result { "," result }   the last value, without one
 *   result     name [ "=" value ] [ "as" place shape ]
 *   shape      "[" size { "," size } "]"        at most three
 *   size       [ number "*" ] name | number, added or subtracted
 *   value      comparisons, + -, * /, -, **, as in Python; name(...);
 *              value[begin:end] of the last axis
 * Newlines inside brackets, and after a comma of a list, count for nothing. */
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "program/functions.h"

typedef enum kind { END, LINE, NAME, NUMBER, SIGN } kind;

typedef struct token {
  kind kind;
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
  variable *variables;
  int count, capacity;
  int declared; /* variables that are inputs */
  int returned;
} parser;

/* ---- errors -------------------------------------------------------------- */

static int failed(const parser *p) { return p->dag->status != DFGNN_OK; }

__attribute__((format(printf, 3, 4))) static void
fail(parser *p, const token *at, const char *format, ...) {
  char text[400];
  va_list args;
  if (failed(p))
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dfgnn__dag_fail(p->dag, DFGNN_ERROR_INVALID, "line %d, column %d: %s",
                  at->line, at->column, text);
  p->told = 1;
}

/* Says where it was, if making a value failed. */
static void tell(parser *p, const token *at) {
  if (failed(p) && !p->told)
    dfgnn__fail_prefix(p->dag->status, "line %d, column %d: ", at->line,
                       at->column);
  p->told |= failed(p);
}

static const char *found(const token *t) {
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
    fail(p, t, "%s of %zu characters, expected at most %d", what, size,
         DFGNN_DAG_NAME - 1);
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
  if (!failed(p) && (*end || isinf(t->number)))
    fail(p, t, "found \"%s\", expected a number of a double", t->text);
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
      fail(p, t, "found \"%c\", expected a name, a number or a sign", c);
    else
      fail(p, t, "found byte 0x%02x, expected a name, a number or a sign", c);
  }
  take(p, t, 1, "a sign");
}

static void advance(parser *p) {
  token *t = &p->next;
  skip_blanks(p);
  *t = (token){.line = p->line, .column = p->column};
  char c = *p->here;
  if (failed(p) || !c) {
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
  if (failed(p))
    t->kind = END;
}

static int is(const parser *p, kind what, const char *text) {
  return p->next.kind == what && !strcmp(p->next.text, text);
}

static int accept(parser *p, const char *sign) {
  if (!is(p, SIGN, sign))
    return 0;
  if (*sign == '(' || *sign == '[')
    p->brackets++;
  else if (*sign == ')' || *sign == ']')
    p->brackets -= p->brackets > 0;
  advance(p);
  return 1;
}

static void expect(parser *p, const char *sign, const char *after) {
  if (!accept(p, sign))
    fail(p, &p->next, "found %s, expected \"%s\" %s", found(&p->next), sign,
         after);
}

/* ---- names --------------------------------------------------------------- */

static variable *find(const parser *p, const char *name) {
  for (int i = p->count - 1; i >= 0; i--)
    if (!strcmp(p->variables[i].name, name))
      return &p->variables[i];
  return NULL;
}

static void define(parser *p, const token *name, int32_t node) {
  if (failed(p))
    return;
  if (p->count == p->capacity) {
    int capacity = p->capacity ? 2 * p->capacity : 64;
    variable *grown = NULL;
    if (capacity <= DFGNN_DAG_NODES)
      grown = realloc(p->variables, (size_t)capacity * sizeof *grown);
    if (!grown) {
      dfgnn__dag_fail(p->dag, DFGNN_ERROR_UNSUPPORTED,
                      "the program has more than %d names", DFGNN_DAG_NODES);
      return;
    }
    p->variables = grown;
    p->capacity = capacity;
  }
  variable *made = &p->variables[p->count++];
  snprintf(made->name, sizeof made->name, "%s", name->text);
  made->node = node;
}

/* The place that a word names; -1: none. */
static int place_named(const token *t) {
  for (int i = DFGNN_PLACE_PARAM; t->kind == NAME && i < DFGNN_PLACES; i++)
    if (!strcmp(t->text, dfgnn__place_name(i)))
      return i;
  return -1;
}

static int is_reserved(const token *t) {
  return place_named(t) >= 0 || !strcmp(t->text, "return") ||
         !strcmp(t->text, "as") || !strcmp(t->text, "inf") ||
         !strcmp(t->text, "nan");
}

static token name_of(parser *p, const char *what) {
  token name = p->next;
  if (name.kind != NAME || is_reserved(&name))
    fail(p, &name, "found %s, expected %s", found(&name), what);
  advance(p);
  return name;
}

/* ---- sizes --------------------------------------------------------------- */

static int whole(parser *p, const token *t) {
  if (!(t->number >= 0 && t->number <= DFGNN_SIZE_MAX &&
        t->number == floor(t->number)))
    fail(p, t, "found %s, expected a whole number of at most %d", found(t),
         DFGNN_SIZE_MAX);
  return failed(p) ? 0 : (int)t->number;
}

static dfgnn_size size_term(parser *p, int sign) {
  token t = p->next;
  dfgnn_size size = dfgnn__size(0), name = dfgnn__size(0);
  int factor = sign;
  advance(p);
  if (t.kind == NUMBER) {
    factor *= whole(p, &t);
    if (!accept(p, "*"))
      return dfgnn__size(factor);
    t = p->next;
    advance(p);
  }
  if (t.kind != NAME || is_reserved(&t)) {
    fail(p, &t, "found %s, expected a size: a number or a name", found(&t));
    return size;
  }
  if (find(p, t.text))
    fail(p, &t, "\"%s\" is a value, expected the name of a size", t.text);
  name.times[dfgnn__dag_name(p->dag, t.text)] = 1;
  if (!dfgnn__size_add(&size, size, factor, name))
    fail(p, &t, "a multiple of %s by %d, expected at most 127", t.text, factor);
  tell(p, &t);
  return size;
}

static dfgnn_size size_of(parser *p) {
  token at = p->next;
  int sign = accept(p, "-") ? -1 : 1;
  dfgnn_size size = size_term(p, sign);
  while (!failed(p) && (is(p, SIGN, "+") || is(p, SIGN, "-"))) {
    sign = accept(p, "+") ? 1 : (accept(p, "-"), -1);
    if (!dfgnn__size_add(&size, size, 1, size_term(p, sign)))
      fail(p, &at, "a size that is larger than %d", DFGNN_SIZE_MAX);
  }
  return size;
}

/* [H,D] after a name or place, or nothing. */
static int shape_of(parser *p, dfgnn_size *shape) {
  dfgnn_size sizes[DFGNN_DAG_AXES];
  int rank = 0;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    shape[i] = dfgnn__size(1);
  if (!accept(p, "["))
    return 0;
  do {
    token at = p->next;
    if (rank == DFGNN_DAG_AXES) {
      fail(p, &at, "found a fourth axis, expected at most %d", DFGNN_DAG_AXES);
      break;
    }
    sizes[rank] = size_of(p);
    if (!dfgnn__size_named(sizes[rank]) && sizes[rank].constant < 1)
      fail(p, &at, "found an axis of size %d, expected at least 1",
           sizes[rank].constant);
    rank++;
  } while (!failed(p) && accept(p, ","));
  expect(p, "]", "after a shape");
  for (int i = 0; i < rank; i++)
    shape[DFGNN_DAG_AXES - rank + i] = sizes[i];
  return rank;
}

/* ---- values -------------------------------------------------------------- */

static int32_t value(parser *p);

static dfgnn_word word_of(parser *p) {
  dfgnn_word word = {.place = place_named(&p->next)};
  if (word.place >= 0 || is(p, SIGN, "[")) {
    if (word.place >= 0)
      advance(p);
    word.is_shape = 1;
    word.rank = shape_of(p, word.shape);
    return word;
  }
  word.node = value(p);
  const dfgnn_node *node = &p->dag->nodes[word.node];
  word.is_number = node->op == DFGNN_NODE_NUMBER;
  word.number = node->number;
  return word;
}

static void check_words(parser *p, const token *at, const dfgnn_function *f,
                        const dfgnn_word *words, int count) {
  int most = (int)strlen(f->kinds);
  if (count < f->least)
    fail(p, at, "%s with %d argument%s, expected %s%d", f->name, count,
         count == 1 ? "" : "s", f->least < most ? "at least " : "", f->least);
  for (int i = 0; i < count && !failed(p); i++) {
    const dfgnn_word *w = &words[i];
    const char *wants = NULL;
    if (f->kinds[i] == 's' && !w->is_shape)
      wants = "a place or shape";
    else if (f->kinds[i] == 'v' && w->is_shape)
      wants = "a value";
    else if (f->kinds[i] == 'n' && (w->is_shape || !w->is_number))
      wants = "a number";
    if (wants)
      fail(p, at, "argument %d of %s is %s, expected %s", i + 1, f->name,
           w->is_shape    ? "a shape"
           : w->is_number ? "a number"
                          : "a value that differs from place to place",
           wants);
  }
}

static int32_t call(parser *p, const token *name) {
  dfgnn_word words[DFGNN_DAG_CAT];
  const dfgnn_function *f = dfgnn__function(name->text);
  int count = 0;
  if (!f) {
    fail(p, name, "there is no function \"%s\"", name->text);
    return 0;
  }
  const int most = (int)strlen(f->kinds);
  accept(p, "(");
  while (!failed(p) && !is(p, SIGN, ")")) {
    token at = p->next;
    if (count == most) {
      fail(p, &at, "argument %d of %s, expected at most %d", count + 1, f->name,
           most);
      break;
    }
    words[count++] = word_of(p);
    if (!accept(p, ","))
      break;
  }
  expect(p, ")", "after the arguments of a function");
  check_words(p, name, f, words, count);
  if (failed(p))
    return 0;
  int32_t made = f->make(p->dag, f, words, count);
  if (dfgnn__function_is_elementwise(f)) {
    int32_t values[DFGNN_DAG_CAT];
    int found = 0;
    for (int i = 0; i < count; i++)
      if (f->kinds[i] == 'v')
        values[found++] = words[i].node;
    made = dfgnn__make_whole(p->dag, made, found, values);
  }
  tell(p, name);
  return made;
}

typedef int32_t (*make_of_two)(dfgnn_dag *dag, int32_t a, int32_t b);

static int32_t two(parser *p, make_of_two make, int32_t a, int32_t b) {
  return dfgnn__make_whole(p->dag, make(p->dag, a, b), 2, (int32_t[2]){a, b});
}

static int32_t primary(parser *p) {
  token t = p->next;
  int32_t node;
  if (accept(p, "(")) {
    node = value(p);
    expect(p, ")", "after a value in brackets");
    return node;
  }
  advance(p);
  if (t.kind == NUMBER)
    return dfgnn__make_number(p->dag, t.number);
  if (t.kind == NAME && !strcmp(t.text, "inf"))
    return dfgnn__make_number(p->dag, INFINITY);
  if (t.kind == NAME && !strcmp(t.text, "nan"))
    return dfgnn__make_number(p->dag, NAN);
  if (t.kind != NAME || is_reserved(&t)) {
    fail(p, &t, "found %s, expected a value", found(&t));
    return 0;
  }
  if (is(p, SIGN, "("))
    return call(p, &t);
  const variable *v = find(p, t.text);
  if (!v)
    fail(p, &t, "\"%s\" is not declared", t.text);
  return v ? v->node : 0;
}

/* x[3], x[:3], x[D:], x[3:6] */
static int32_t slice(parser *p, int32_t node, const token *at) {
  dfgnn_size begin = dfgnn__size(0), end = p->dag->nodes[node].shape[2], size;
  if (!is(p, SIGN, ":")) {
    begin = size_of(p);
    end = dfgnn__size(0);
    dfgnn__size_add(&end, begin, 1, dfgnn__size(1));
  }
  if (accept(p, ":"))
    end = is(p, SIGN, "]") ? p->dag->nodes[node].shape[2] : size_of(p);
  expect(p, "]", "after a slice");
  if (!dfgnn__size_add(&size, end, -1, begin))
    fail(p, at, "a slice that is larger than %d", DFGNN_SIZE_MAX);
  if (failed(p))
    return 0;
  node = dfgnn__make_slice(p->dag, node, begin, size);
  tell(p, at);
  return node;
}

static int32_t unary(parser *p);

static int32_t power(parser *p) {
  token at = p->next;
  int32_t node = primary(p);
  while (!failed(p) && accept(p, "["))
    node = slice(p, node, &at);
  token sign = p->next;
  if (accept(p, "**")) {
    int32_t exponent = unary(p);
    if (p->dag->nodes[exponent].op != DFGNN_NODE_NUMBER)
      fail(p, &sign, "an exponent that is no number; exp(y * log(x)) has one");
    else if (!failed(p))
      node = dfgnn__make_pow(p->dag, node, p->dag->nodes[exponent].number);
    tell(p, &sign);
  }
  return node;
}

static int32_t unary(parser *p) {
  token at = p->next;
  int32_t node = 0;
  if (++p->depth > DFGNN_DAG_DEPTH)
    fail(p, &at, "found brackets or signs %d deep, expected at most %d",
         p->depth, DFGNN_DAG_DEPTH);
  else if (accept(p, "-"))
    node = dfgnn__make_neg(p->dag, unary(p));
  else
    node = power(p);
  p->depth--;
  return node;
}

static int32_t term(parser *p) {
  int32_t node = unary(p);
  while (!failed(p)) {
    token at = p->next;
    if (accept(p, "*"))
      node = two(p, dfgnn__make_mul, node, unary(p));
    else if (accept(p, "/"))
      node = two(p, dfgnn__make_div, node, unary(p));
    else
      break;
    tell(p, &at);
  }
  return node;
}

static int32_t sum(parser *p) {
  int32_t node = term(p);
  while (!failed(p)) {
    token at = p->next;
    if (accept(p, "+"))
      node = two(p, dfgnn__make_add, node, term(p));
    else if (accept(p, "-"))
      node = two(p, dfgnn__make_sub, node, term(p));
    else
      break;
    tell(p, &at);
  }
  return node;
}

static int32_t value(parser *p) {
  static const struct {
    const char *sign;
    dfgnn_node_op op;
    int swapped, negated;
  } signs[] = {{"<", DFGNN_NODE_LT, 0, 0},  {"<=", DFGNN_NODE_LE, 0, 0},
               {">", DFGNN_NODE_LT, 1, 0},  {">=", DFGNN_NODE_LE, 1, 0},
               {"==", DFGNN_NODE_EQ, 0, 0}, {"!=", DFGNN_NODE_EQ, 0, 1}};
  int32_t a = sum(p);
  token at = p->next;
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
    if (!accept(p, signs[i].sign))
      continue;
    const int32_t first = a, b = sum(p);
    a = signs[i].swapped ? dfgnn__make_binary(p->dag, signs[i].op, b, a)
                         : dfgnn__make_binary(p->dag, signs[i].op, a, b);
    a = dfgnn__make_whole(p->dag, a, 2, (int32_t[2]){first, b});
    if (signs[i].negated)
      a = dfgnn__make_sub(p->dag, dfgnn__make_number(p->dag, 1), a);
    tell(p, &at);
    break;
  }
  return a;
}

/* ---- statements ---------------------------------------------------------- */

/* A comma, after which the list may go on in the next line. */
static int more(parser *p) {
  if (failed(p) || !accept(p, ","))
    return 0;
  while (p->next.kind == LINE)
    advance(p);
  return 1;
}

static void declare(parser *p, dfgnn_place place) {
  advance(p);
  do {
    token name = name_of(p, "the name of an input");
    dfgnn_port port = {.place = place};
    memcpy(port.name, name.text, sizeof port.name);
    port.rank = shape_of(p, port.shape);
    if (failed(p))
      return;
    int32_t node = dfgnn__dag_input(p->dag, &port);
    tell(p, &name);
    define(p, &name, node);
  } while (more(p));
}

static void spread_output(parser *p, dfgnn_port *port, const token *at) {
  dfgnn_place place = port->place;
  int declared = place_named(&p->next);
  dfgnn_size shape[DFGNN_DAG_AXES];
  if (declared < 0) {
    fail(p, &p->next, "found %s, expected param, dst, src or edge",
         found(&p->next));
    return;
  }
  advance(p);
  port->rank = shape_of(p, shape);
  if (failed(p))
    return;
  if (dfgnn__place_join(place, declared) != declared)
    fail(p, at, "\"%s\" is a value of %s, which %s does not hold", port->name,
         dfgnn__place_name(place), dfgnn__place_name(declared));
  dfgnn__make_expand(p->dag, port->node, shape);
  tell(p, at);
  port->place = (dfgnn_place)declared;
  memcpy(port->shape, shape, sizeof port->shape);
}

static void results(parser *p) {
  advance(p);
  do {
    token name = name_of(p, "the name of a result");
    int32_t node = 0;
    if (accept(p, "=")) {
      node = value(p);
    } else if (!failed(p)) {
      const variable *v = find(p, name.text);
      if (!v)
        fail(p, &name, "\"%s\" has no value", name.text);
      node = v ? v->node : 0;
    }
    if (failed(p))
      return;
    dfgnn_port port = dfgnn__dag_port(p->dag, name.text, 0, node);
    if (is(p, NAME, "as")) {
      advance(p);
      spread_output(p, &port, &name);
    }
    dfgnn__dag_output(p->dag, &port);
    tell(p, &name);
  } while (more(p));
  p->returned = 1;
}

static void assign(parser *p) {
  token name = name_of(p, "a declaration, a value or return");
  if (find(p, name.text))
    fail(p, &name, "\"%s\" has a value already; give this one another name",
         name.text);
  expect(p, "=", "after the name of a value");
  int32_t node = value(p);
  define(p, &name, node);
}

static void statement(parser *p) {
  int place = place_named(&p->next);
  if (p->returned)
    fail(p, &p->next, "found %s after return, expected the end of the text",
         found(&p->next));
  else if (place >= 0)
    declare(p, (dfgnn_place)place);
  else if (is(p, NAME, "return"))
    results(p);
  else
    assign(p);
  if (!failed(p) && p->next.kind != LINE && p->next.kind != END)
    fail(p, &p->next, "found %s, expected the end of the statement",
         found(&p->next));
}

/* Without return the last value is the result. */
static void finish(parser *p) {
  if (failed(p) || p->returned)
    return;
  if (p->count == p->dag->input_count) {
    fail(p, &p->next, "the program has no value to return");
    return;
  }
  const variable *last = &p->variables[p->count - 1];
  dfgnn_port port = dfgnn__dag_port(p->dag, last->name, 0, last->node);
  dfgnn__dag_output(p->dag, &port);
}

/* ---- the whole ----------------------------------------------------------- */

static locale_t c_locale;
static void make_locale(void) {
  c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

dfgnn_status dfgnn__dag_parse(dfgnn_dag **dag, const char *text) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (strnlen(text, DFGNN_DAG_TEXT + 1) > DFGNN_DAG_TEXT)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the text of a program has more than %d bytes",
                       DFGNN_DAG_TEXT);
  parser p = {.dag = dfgnn__dag_new(), .here = text, .line = 1, .column = 1};
  if (!p.dag)
    return DFGNN_ERROR_MEMORY;
  pthread_once(&once, make_locale);
  locale_t before = uselocale(c_locale);
  advance(&p);
  while (!failed(&p) && p.next.kind != END) {
    if (p.next.kind != LINE)
      statement(&p);
    else
      advance(&p);
  }
  finish(&p);
  uselocale(before);
  dfgnn_status status = p.dag->status;
  if (!status && !(*dag = dfgnn__dag_compact(p.dag)))
    status = DFGNN_ERROR_MEMORY;
  dfgnn__dag_free(p.dag);
  free(p.variables);
  return status;
}
