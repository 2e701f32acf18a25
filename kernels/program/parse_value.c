/* parse_value.c - names, sizes and values of a text */
#include "kernels/program/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names --------------------------------------------------------------- */

variable *dfgnn__parse_find(const parser *p, const char *name) {
  for (int i = p->count - 1; i >= 0; i--)
    if (!strcmp(p->variables[i].name, name))
      return &p->variables[i];
  return NULL;
}

void dfgnn__parse_define(parser *p, const token *name, int32_t node) {
  if (dfgnn__parse_failed(p))
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

/* ---- sizes --------------------------------------------------------------- */

static int whole(parser *p, const token *t) {
  if (!(t->number >= 0 && t->number <= DFGNN_SIZE_MAX &&
        t->number == floor(t->number)))
    dfgnn__parse_fail(p, t, "found %s, expected a whole number of at most %d",
                      dfgnn__token_text(t), DFGNN_SIZE_MAX);
  return dfgnn__parse_failed(p) ? 0 : (int)t->number;
}

static dfgnn_size size_term(parser *p, int sign) {
  token t = p->next;
  dfgnn_size size = dfgnn__size(0), name = dfgnn__size(0);
  int factor = sign;
  dfgnn__parse_advance(p);
  if (t.kind == NUMBER) {
    factor *= whole(p, &t);
    if (!dfgnn__parse_accept(p, "*"))
      return dfgnn__size(factor);
    t = p->next;
    dfgnn__parse_advance(p);
  }
  if (t.kind != NAME || dfgnn__token_is_reserved(&t)) {
    dfgnn__parse_fail(p, &t, "found %s, expected a size: a number or a name",
                      dfgnn__token_text(&t));
    return size;
  }
  if (dfgnn__parse_find(p, t.text))
    dfgnn__parse_fail(p, &t, "\"%s\" is a value, expected the name of a size",
                      t.text);
  name.times[dfgnn__dag_name(p->dag, t.text)] = 1;
  if (!dfgnn__size_add(&size, size, factor, name))
    dfgnn__parse_fail(p, &t, "a multiple of %s by %d, expected at most 127",
                      t.text, factor);
  dfgnn__parse_tell(p, &t);
  return size;
}

static dfgnn_size dfgnn__parse_size(parser *p) {
  token at = p->next;
  int sign = dfgnn__parse_accept(p, "-") ? -1 : 1;
  dfgnn_size size = size_term(p, sign);
  while (!dfgnn__parse_failed(p) &&
         (dfgnn__parse_sees(p, SIGN, "+") || dfgnn__parse_sees(p, SIGN, "-"))) {
    sign = dfgnn__parse_accept(p, "+") ? 1 : (dfgnn__parse_accept(p, "-"), -1);
    if (!dfgnn__size_add(&size, size, 1, size_term(p, sign)))
      dfgnn__parse_fail(p, &at, "a size that is larger than %d",
                        DFGNN_SIZE_MAX);
  }
  return size;
}

int dfgnn__parse_shape(parser *p, dfgnn_size *shape, int least) {
  dfgnn_size sizes[DFGNN_DAG_AXES];
  int rank = 0;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    shape[i] = dfgnn__size(1);
  if (!dfgnn__parse_accept(p, "["))
    return 0;
  do {
    token at = p->next;
    if (rank == DFGNN_DAG_AXES) {
      dfgnn__parse_fail(p, &at, "found a fourth axis, expected at most %d",
                        DFGNN_DAG_AXES);
      break;
    }
    sizes[rank] = dfgnn__parse_size(p);
    if (!dfgnn__size_named(sizes[rank]) && sizes[rank].constant < least)
      dfgnn__parse_fail(p, &at,
                        "found an axis of size %d, expected at least %d",
                        sizes[rank].constant, least);
    rank++;
  } while (!dfgnn__parse_failed(p) && dfgnn__parse_accept(p, ","));
  dfgnn__parse_expect(p, "]", "after a shape");
  for (int i = 0; i < rank; i++)
    shape[DFGNN_DAG_AXES - rank + i] = sizes[i];
  return rank;
}

/* ---- values -------------------------------------------------------------- */

static dfgnn_word word_of(parser *p) {
  dfgnn_word word = {.place = dfgnn__token_place(&p->next)};
  if (word.place >= 0 || dfgnn__parse_sees(p, SIGN, "[")) {
    if (word.place >= 0)
      dfgnn__parse_advance(p);
    word.is_shape = 1;
    word.rank = dfgnn__parse_shape(p, word.shape, 0);
    return word;
  }
  word.node = dfgnn__parse_value(p);
  const dfgnn_node *node = &p->dag->nodes[word.node];
  word.is_number = node->op == DFGNN_NODE_NUMBER;
  word.number = node->number;
  return word;
}

static void check_words(parser *p, const token *at, const dfgnn_function *f,
                        const dfgnn_word *words, int count) {
  int most = (int)strlen(f->kinds);
  if (count < f->least)
    dfgnn__parse_fail(p, at, "%s with %d argument%s, expected %s%d", f->name,
                      count, count == 1 ? "" : "s",
                      f->least < most ? "at least " : "", f->least);
  for (int i = 0; i < count && !dfgnn__parse_failed(p); i++) {
    const dfgnn_word *w = &words[i];
    const char *wants = NULL;
    if (f->kinds[i] == 's' && !w->is_shape)
      wants = "a place or shape";
    else if (f->kinds[i] == 'v' && w->is_shape)
      wants = "a value";
    else if (f->kinds[i] == 'n' && (w->is_shape || !w->is_number))
      wants = "a number";
    if (wants)
      dfgnn__parse_fail(
          p, at, "argument %d of %s is %s, expected %s", i + 1, f->name,
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
    dfgnn__parse_fail(p, name, "there is no function \"%s\"", name->text);
    return 0;
  }
  const int most = (int)strlen(f->kinds);
  dfgnn__parse_accept(p, "(");
  while (!dfgnn__parse_failed(p) && !dfgnn__parse_sees(p, SIGN, ")")) {
    token at = p->next;
    if (count == most) {
      dfgnn__parse_fail(p, &at, "argument %d of %s, expected at most %d",
                        count + 1, f->name, most);
      break;
    }
    words[count++] = word_of(p);
    if (!dfgnn__parse_accept(p, ","))
      break;
  }
  dfgnn__parse_expect(p, ")", "after the arguments of a function");
  check_words(p, name, f, words, count);
  if (dfgnn__parse_failed(p))
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
  dfgnn__parse_tell(p, name);
  return made;
}

typedef int32_t (*make_of_two)(dfgnn_dag *dag, int32_t a, int32_t b);

static int32_t two(parser *p, make_of_two make, int32_t a, int32_t b) {
  return dfgnn__make_whole(p->dag, make(p->dag, a, b), 2, (int32_t[2]){a, b});
}

static int32_t primary(parser *p) {
  token t = p->next;
  int32_t node;
  if (dfgnn__parse_accept(p, "(")) {
    node = dfgnn__parse_value(p);
    dfgnn__parse_expect(p, ")", "after a value in brackets");
    return node;
  }
  dfgnn__parse_advance(p);
  if (t.kind == NUMBER)
    return dfgnn__make_number(p->dag, t.number);
  if (t.kind == NAME && !strcmp(t.text, "inf"))
    return dfgnn__make_number(p->dag, INFINITY);
  if (t.kind == NAME && !strcmp(t.text, "nan"))
    return dfgnn__make_number(p->dag, NAN);
  if (t.kind != NAME || dfgnn__token_is_reserved(&t)) {
    dfgnn__parse_fail(p, &t, "found %s, expected a value",
                      dfgnn__token_text(&t));
    return 0;
  }
  if (dfgnn__parse_sees(p, SIGN, "("))
    return call(p, &t);
  const variable *v = dfgnn__parse_find(p, t.text);
  if (!v)
    dfgnn__parse_fail(p, &t, "\"%s\" is not declared", t.text);
  return v ? v->node : 0;
}

typedef struct range {
  dfgnn_size begin, end;
  int is_open; /* it goes on to the end of the axis */
} range;

/* 3, :3, D:, 3:6 or : */
static range range_of(parser *p) {
  range r = {.begin = dfgnn__size(0)};
  if (!dfgnn__parse_sees(p, SIGN, ":")) {
    r.begin = dfgnn__parse_size(p);
    dfgnn__size_add(&r.end, r.begin, 1, dfgnn__size(1));
  }
  if (dfgnn__parse_accept(p, ":")) {
    r.is_open =
        dfgnn__parse_sees(p, SIGN, "]") || dfgnn__parse_sees(p, SIGN, ",");
    if (!r.is_open)
      r.end = dfgnn__parse_size(p);
  }
  return r;
}

/* x[3:6] of the last axis, x[0, 3:6] of the last two. */
static int32_t slice(parser *p, int32_t node, const token *at) {
  range ranges[DFGNN_DAG_AXES];
  int count = 0;
  do {
    if (count == DFGNN_DAG_AXES)
      dfgnn__parse_fail(p, &p->next, "found a fourth axis, expected at most %d",
                        DFGNN_DAG_AXES);
    else
      ranges[count++] = range_of(p);
  } while (!dfgnn__parse_failed(p) && dfgnn__parse_accept(p, ","));
  dfgnn__parse_expect(p, "]", "after a slice");
  for (int i = 0; i < count && !dfgnn__parse_failed(p); i++) {
    const int axis = DFGNN_DAG_AXES - count + i;
    const range *r = &ranges[i];
    dfgnn_size size,
        end = r->is_open ? p->dag->nodes[node].shape[axis] : r->end;
    if (!dfgnn__size_add(&size, end, -1, r->begin))
      dfgnn__parse_fail(p, at, "a slice that is larger than %d",
                        DFGNN_SIZE_MAX);
    else
      node = dfgnn__make_slice(p->dag, node, axis, r->begin, size);
    dfgnn__parse_tell(p, at);
  }
  return dfgnn__parse_failed(p) ? 0 : node;
}

static int32_t unary(parser *p);

static int32_t power(parser *p) {
  token at = p->next;
  int32_t node = primary(p);
  while (!dfgnn__parse_failed(p) && dfgnn__parse_accept(p, "["))
    node = slice(p, node, &at);
  token sign = p->next;
  if (dfgnn__parse_accept(p, "**")) {
    int32_t exponent = unary(p);
    if (p->dag->nodes[exponent].op != DFGNN_NODE_NUMBER)
      dfgnn__parse_fail(
          p, &sign, "an exponent that is no number; exp(y * log(x)) has one");
    else if (!dfgnn__parse_failed(p))
      node = dfgnn__make_whole(
          p->dag, dfgnn__make_pow(p->dag, node, p->dag->nodes[exponent].number),
          1, &node);
    dfgnn__parse_tell(p, &sign);
  }
  return node;
}

static int32_t unary(parser *p) {
  token at = p->next;
  int32_t node = 0;
  if (++p->depth > DFGNN_DAG_DEPTH)
    dfgnn__parse_fail(p, &at,
                      "found brackets or signs %d deep, expected at most %d",
                      p->depth, DFGNN_DAG_DEPTH);
  else if (dfgnn__parse_accept(p, "-"))
    node = dfgnn__make_neg(p->dag, unary(p));
  else
    node = power(p);
  p->depth--;
  return node;
}

/* One of two operations between parts, from left to right. */
typedef struct operation {
  const char *sign;
  make_of_two make;
} operation;

static int32_t chain(parser *p, int32_t (*part)(parser *p),
                     const operation of[2]) {
  int32_t node = part(p);
  while (!dfgnn__parse_failed(p)) {
    token at = p->next;
    int k = 0;
    while (k < 2 && !dfgnn__parse_accept(p, of[k].sign))
      k++;
    if (k == 2)
      break;
    node = two(p, of[k].make, node, part(p));
    dfgnn__parse_tell(p, &at);
  }
  return node;
}

static int32_t term(parser *p) {
  static const operation products[] = {{"*", dfgnn__make_mul},
                                       {"/", dfgnn__make_div}};
  return chain(p, unary, products);
}

static int32_t sum(parser *p) {
  static const operation sums[] = {{"+", dfgnn__make_add},
                                   {"-", dfgnn__make_sub}};
  return chain(p, term, sums);
}

int32_t dfgnn__parse_value(parser *p) {
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
    if (!dfgnn__parse_accept(p, signs[i].sign))
      continue;
    const int32_t first = a, b = sum(p);
    a = signs[i].swapped ? dfgnn__make_binary(p->dag, signs[i].op, b, a)
                         : dfgnn__make_binary(p->dag, signs[i].op, a, b);
    a = dfgnn__make_whole(p->dag, a, 2, (int32_t[2]){first, b});
    if (signs[i].negated)
      a = dfgnn__make_sub(p->dag, dfgnn__make_number(p->dag, 1), a);
    dfgnn__parse_tell(p, &at);
    break;
  }
  return a;
}
