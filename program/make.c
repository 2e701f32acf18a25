#include "program/make.h"

#include <math.h>
#include <stdlib.h>

#define AXES DFGNN_DAG_AXES

/* ---- small things -------------------------------------------------------- */

static const dfgnn_node *at(const dfgnn_dag *dag, int32_t n) {
  return &dag->nodes[n];
}

static int32_t arg(const dfgnn_dag *dag, int32_t n, int i) {
  return dfgnn__dag_argument(dag, n, i);
}

static int is_op(const dfgnn_dag *dag, int32_t n, int op) {
  return dag->nodes[n].op == op;
}

int dfgnn__is_number(const dfgnn_dag *dag, int32_t n, double x) {
  return is_op(dag, n, DFGNN_NODE_NUMBER) && at(dag, n)->number == x;
}

int dfgnn__place_join(int a, int b) {
  if (a != b && dfgnn__place_rank(a) == 2 && dfgnn__place_rank(b) == 2)
    return DFGNN_PLACE_EDGE;
  return dfgnn__place_rank(a) >= dfgnn__place_rank(b) ? a : b;
}

static void set_numbers(dfgnn_node *node) {
  for (int i = 0; i < AXES; i++)
    node->shape[i] = dfgnn__size(1);
}

/* A node whose place and shape are those where all arguments meet. */
static int join(dfgnn_dag *dag, dfgnn_node *node, int count,
                const int32_t *arguments) {
  set_numbers(node);
  node->count = count;
  for (int i = 0; i < count; i++) {
    const dfgnn_node *a = at(dag, arguments[i]);
    node->place = (uint8_t)dfgnn__place_join(node->place, a->place);
    for (int axis = 0; axis < AXES; axis++) {
      if (dfgnn__size_is(a->shape[axis], 1) ||
          dfgnn__size_same(a->shape[axis], node->shape[axis]))
        continue;
      if (!dfgnn__size_is(node->shape[axis], 1)) {
        dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                        "%s and %s do not go together: expected axes that are "
                        "equal or 1",
                        dfgnn__shape_text(dag, node->shape),
                        dfgnn__shape_text(dag, a->shape));
        return 0;
      }
      node->shape[axis] = a->shape[axis];
    }
  }
  return !dag->status;
}

static int32_t joined(dfgnn_dag *dag, dfgnn_node node, int count,
                      const int32_t *arguments) {
  if (!join(dag, &node, count, arguments))
    return 0;
  return dfgnn__dag_intern(dag, &node, arguments);
}

static int compare(double a, double b) { return (a > b) - (a < b); }

/* A reduction comes after the inputs, where a gradient has it as an input that
 * was kept. */
static double rank(const dfgnn_node *x) {
  return dfgnn__node_reduces(x->op) ? DFGNN_NODE_INPUT + .5 : x->op;
}

static int by_themselves(const dfgnn_node *x, const dfgnn_node *y) {
  const double pairs[][2] = {{rank(x), rank(y)},
                             {x->index, y->index},
                             {x->op, y->op},
                             {x->place, y->place},
                             {x->count, y->count},
                             {x->number, y->number},
                             {x->axis, y->axis},
                             {x->flags, y->flags},
                             {x->at.constant, y->at.constant}};
  int found = 0;
  for (size_t i = 0; !found && i < sizeof pairs / sizeof *pairs; i++)
    found = compare(pairs[i][0], pairs[i][1]);
  return found;
}

/* The order of factors and terms.  It looks at the order of inputs and not at
 * their numbers, so that a gradient, which has some of them alone, multiplies
 * as its program does: what it compares with an extreme has the same bits. */
int dfgnn__make_order(const dfgnn_dag *dag, int32_t a, int32_t b) {
  while (a != b) {
    const dfgnn_node *x = at(dag, a), *y = at(dag, b);
    int found = by_themselves(x, y), i = 0;
    if (found)
      return found;
    while (i < x->count && arg(dag, a, i) == arg(dag, b, i))
      i++;
    if (i == x->count)
      return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1)
                                : (a > b) - (a < b);
    a = arg(dag, a, i);
    b = arg(dag, b, i);
  }
  return 0;
}

/* ---- numbers ------------------------------------------------------------- */

int32_t dfgnn__make_number(dfgnn_dag *dag, double x) {
  dfgnn_node node = {.op = DFGNN_NODE_NUMBER, .number = x == 0 ? 0 : x};
  set_numbers(&node);
  return dfgnn__dag_intern(dag, &node, NULL);
}

int32_t dfgnn__make_size(dfgnn_dag *dag, dfgnn_size size) {
  if (!dfgnn__size_named(size))
    return dfgnn__make_number(dag, size.constant);
  dfgnn_node node = {.op = DFGNN_NODE_SIZE, .at = size};
  set_numbers(&node);
  return dfgnn__dag_intern(dag, &node, NULL);
}

int32_t dfgnn__make_count(dfgnn_dag *dag, dfgnn_place place) {
  dfgnn_node node = {.op = DFGNN_NODE_COUNT, .index = place};
  set_numbers(&node);
  return dfgnn__dag_intern(dag, &node, NULL);
}

int32_t dfgnn__make_degree(dfgnn_dag *dag, dfgnn_place place) {
  dfgnn_node node = {.op = DFGNN_NODE_DEGREE, .place = place};
  set_numbers(&node);
  return dfgnn__dag_intern(dag, &node, NULL);
}

int32_t dfgnn__make_keep(dfgnn_dag *dag, int index, double p, dfgnn_place place,
                         const dfgnn_size *shape) {
  dfgnn_node node = {
      .op = DFGNN_NODE_KEEP, .place = place, .index = index, .number = p};
  memcpy(node.shape, shape, sizeof node.shape);
  if (index >= dag->dropouts)
    dag->dropouts = index + 1;
  return dfgnn__dag_intern(dag, &node, NULL);
}

/* ---- products ------------------------------------------------------------ */

/* Factors without their number, which is returned. */
static double factors(const dfgnn_dag *dag, int32_t n, const int32_t **list,
                      int *count, int32_t *self) {
  if (is_op(dag, n, DFGNN_NODE_NUMBER)) {
    *count = 0;
    return at(dag, n)->number;
  }
  if (!is_op(dag, n, DFGNN_NODE_MUL)) {
    *self = n;
    *list = self;
    *count = 1;
    return 1;
  }
  *list = dag->arguments + at(dag, n)->first;
  *count = at(dag, n)->count;
  if (!is_op(dag, **list, DFGNN_NODE_NUMBER))
    return 1;
  double number = at(dag, **list)->number;
  ++*list;
  --*count;
  return number;
}

/* The product of factors, none of which is a product or number. */
static int32_t product(dfgnn_dag *dag, double number, int32_t *list,
                       int count) {
  if (number == 0 || dag->status)
    return 0;
  for (int i = 1; i < count; i++) {
    int32_t x = list[i];
    int k = i;
    for (; k > 0 && dfgnn__make_order(dag, list[k - 1], x) > 0; k--)
      list[k] = list[k - 1];
    list[k] = x;
  }
  int32_t first = dfgnn__make_number(dag, number);
  if (!count)
    return first;
  if (number == 1 && count == 1)
    return list[0];
  int32_t *all = malloc(((size_t)count + 1) * sizeof *all);
  if (!all) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_MEMORY, "out of memory");
    return 0;
  }
  int skip = number == 1;
  all[0] = first;
  memcpy(all + !skip, list, (size_t)count * sizeof *all);
  int32_t made =
      joined(dag, (dfgnn_node){.op = DFGNN_NODE_MUL}, count + !skip, all);
  free(all);
  return made;
}

int32_t dfgnn__make_mul(dfgnn_dag *dag, int32_t a, int32_t b) {
  const int32_t *x = NULL, *y = NULL;
  int32_t self_x, self_y;
  int m, n;
  double number = factors(dag, a, &x, &m, &self_x);
  number *= factors(dag, b, &y, &n, &self_y);
  int32_t *list = malloc(((size_t)m + (size_t)n + 1) * sizeof *list);
  if (!list) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_MEMORY, "out of memory");
    return 0;
  }
  if (m)
    memcpy(list, x, (size_t)m * sizeof *list);
  if (n)
    memcpy(list + m, y, (size_t)n * sizeof *list);
  int32_t made = product(dag, number, list, m + n);
  free(list);
  return made;
}

/* Splits a product: factors for which leaves() is true come out of the sum,
 * and the others stay inside.  Returns how many of them left. */
typedef int (*leaves_function)(const dfgnn_dag *dag, int32_t n, int which);
static int split(dfgnn_dag *dag, int32_t n, leaves_function leaves, int which,
                 int32_t *outside, int32_t *inside) {
  const int count = at(dag, n)->count;
  int left = 0;
  *outside = *inside = dfgnn__make_number(dag, 1);
  for (int i = 0; i < count; i++) {
    int32_t f = arg(dag, n, i);
    int out = leaves(dag, f, which);
    int32_t *to = out ? outside : inside;
    *to = dfgnn__make_mul(dag, *to, f);
    left += out;
  }
  return left;
}

/* ---- sums of two --------------------------------------------------------- */

/* The sum if a and b are multiples of one value, else -1. */
static int32_t add_alike(dfgnn_dag *dag, int32_t a, int32_t b) {
  const int32_t *x = NULL, *y = NULL;
  int32_t self_x, self_y;
  int m, n;
  double p = factors(dag, a, &x, &m, &self_x);
  double q = factors(dag, b, &y, &n, &self_y);
  if (m != n || (m && memcmp(x, y, (size_t)m * sizeof *x)))
    return -1;
  int32_t list[64];
  if (m > 64)
    return -1;
  if (m)
    memcpy(list, x, (size_t)m * sizeof *x);
  return product(dag, p + q, list, m);
}

/* where(c, x, 0) + where(c, 0, y) = where(c, x, y); -1: not that. */
static int32_t add_choices(dfgnn_dag *dag, int32_t a, int32_t b) {
  if (!is_op(dag, a, DFGNN_NODE_WHERE) || !is_op(dag, b, DFGNN_NODE_WHERE) ||
      arg(dag, a, 0) != arg(dag, b, 0))
    return -1;
  int32_t c = arg(dag, a, 0);
  if (arg(dag, a, 2) == 0 && arg(dag, b, 1) == 0)
    return dfgnn__make_where(dag, c, arg(dag, a, 1), arg(dag, b, 2));
  if (arg(dag, a, 1) == 0 && arg(dag, b, 2) == 0)
    return dfgnn__make_where(dag, c, arg(dag, b, 1), arg(dag, a, 2));
  return -1;
}

int32_t dfgnn__make_add(dfgnn_dag *dag, int32_t a, int32_t b) {
  if (dfgnn__is_number(dag, a, 0))
    return b;
  if (dfgnn__is_number(dag, b, 0))
    return a;
  int32_t alike = add_alike(dag, a, b);
  if (alike >= 0)
    return alike;
  int32_t chosen = add_choices(dag, a, b);
  if (chosen >= 0)
    return chosen;
  int32_t pair[2] = {a, b};
  if (dfgnn__make_order(dag, a, b) > 0) {
    pair[0] = b;
    pair[1] = a;
  }
  return joined(dag, (dfgnn_node){.op = DFGNN_NODE_ADD}, 2, pair);
}

int32_t dfgnn__make_neg(dfgnn_dag *dag, int32_t a) {
  return dfgnn__make_mul(dag, dfgnn__make_number(dag, -1), a);
}

int32_t dfgnn__make_sub(dfgnn_dag *dag, int32_t a, int32_t b) {
  return dfgnn__make_add(dag, a, dfgnn__make_neg(dag, b));
}

int32_t dfgnn__make_div(dfgnn_dag *dag, int32_t a, int32_t b) {
  return dfgnn__make_mul(dag, a, dfgnn__make_pow(dag, b, -1));
}

/* ---- of each element ----------------------------------------------------- */

int32_t dfgnn__make_pow(dfgnn_dag *dag, int32_t a, double exponent) {
  if (exponent == 1)
    return a;
  if (exponent == 0)
    return dfgnn__make_number(dag, 1);
  if (exponent == 2)
    return dfgnn__make_mul(dag, a, a);
  if (is_op(dag, a, DFGNN_NODE_NUMBER))
    return dfgnn__make_number(dag, pow(at(dag, a)->number, exponent));
  if (is_op(dag, a, DFGNN_NODE_POW) && exponent == -1 &&
      fabs(at(dag, a)->number) == 0.5) /* 1 / sqrt(x) is rsqrt(x) */
    return dfgnn__make_pow(dag, arg(dag, a, 0), -at(dag, a)->number);
  return joined(dag, (dfgnn_node){.op = DFGNN_NODE_POW, .number = exponent}, 1,
                &a);
}

static double fold_unary(int op, double a, double x) {
  switch (op) {
  case DFGNN_NODE_EXP:
    return exp(a);
  case DFGNN_NODE_EXPM1:
    return expm1(a);
  case DFGNN_NODE_LOG:
    return log(a);
  case DFGNN_NODE_LOG1P:
    return log1p(a);
  case DFGNN_NODE_TANH:
    return tanh(a);
  case DFGNN_NODE_SIGMOID:
    return 1 / (1 + exp(-a));
  case DFGNN_NODE_SOFTPLUS:
    return fmax(a, 0) + log1p(exp(-fabs(a)));
  case DFGNN_NODE_ERF:
    return erf(a);
  case DFGNN_NODE_SIN:
    return sin(a);
  case DFGNN_NODE_COS:
    return cos(a);
  case DFGNN_NODE_ABS:
    return fabs(a);
  case DFGNN_NODE_SIGN:
    return (a > 0) - (a < 0);
  case DFGNN_NODE_RELU:
    return a > 0 ? a : 0;
  case DFGNN_NODE_LEAKY:
    return a > 0 ? a : a * x;
  default: /* DETACH */
    return a;
  }
}

int32_t dfgnn__make_unary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                          double x) {
  if (is_op(dag, a, DFGNN_NODE_NUMBER))
    return dfgnn__make_number(dag, fold_unary(op, at(dag, a)->number, x));
  return joined(dag, (dfgnn_node){.op = op, .number = x}, 1, &a);
}

int32_t dfgnn__make_binary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                           int32_t b) {
  if (a == b && op == DFGNN_NODE_MAX)
    return a;
  if (is_op(dag, a, DFGNN_NODE_NUMBER) && is_op(dag, b, DFGNN_NODE_NUMBER)) {
    double x = at(dag, a)->number, y = at(dag, b)->number;
    double made = op == DFGNN_NODE_MAX  ? fmax(x, y)
                  : op == DFGNN_NODE_LT ? x < y
                  : op == DFGNN_NODE_LE ? x <= y
                                        : x == y;
    return dfgnn__make_number(dag, made);
  }
  int32_t pair[2] = {a, b};
  int either = op == DFGNN_NODE_MAX || op == DFGNN_NODE_EQ;
  if (either && dfgnn__make_order(dag, a, b) > 0) {
    pair[0] = b;
    pair[1] = a;
  }
  return joined(dag, (dfgnn_node){.op = op}, 2, pair);
}

int32_t dfgnn__make_where(dfgnn_dag *dag, int32_t c, int32_t a, int32_t b) {
  if (is_op(dag, c, DFGNN_NODE_NUMBER))
    return at(dag, c)->number != 0 ? a : b;
  if (is_op(dag, a, DFGNN_NODE_WHERE) && arg(dag, a, 0) == c)
    a = arg(dag, a, 1);
  if (is_op(dag, b, DFGNN_NODE_WHERE) && arg(dag, b, 0) == c)
    b = arg(dag, b, 2);
  if (a == b)
    return a;
  int32_t list[3] = {c, a, b};
  return joined(dag, (dfgnn_node){.op = DFGNN_NODE_WHERE}, 3, list);
}

/* ---- axes ---------------------------------------------------------------- */

static int thin(const dfgnn_dag *dag, int32_t n, int axis) {
  return dfgnn__size_is(at(dag, n)->shape[axis], 1);
}

int32_t dfgnn__make_fold(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                         int axis) {
  if (thin(dag, a, axis))
    return a;
  if (op == DFGNN_NODE_FSUM && is_op(dag, a, DFGNN_NODE_MUL)) {
    int32_t outside, inside;
    if (split(dag, a, thin, axis, &outside, &inside))
      return dfgnn__make_mul(dag, outside,
                             dfgnn__make_fold(dag, op, inside, axis));
  }
  dfgnn_node node = {.op = op, .axis = (uint8_t)axis};
  if (!join(dag, &node, 1, &a))
    return 0;
  node.shape[axis] = dfgnn__size(1);
  return dfgnn__dag_intern(dag, &node, &a);
}

/* The part of a cat that a slice is; -1: none. */
static int32_t part_of(dfgnn_dag *dag, int32_t cat, dfgnn_size begin,
                       dfgnn_size size) {
  dfgnn_size here = dfgnn__size(0);
  for (int i = 0; i < at(dag, cat)->count; i++) {
    int32_t part = arg(dag, cat, i);
    if (dfgnn__size_same(here, begin) &&
        dfgnn__size_same(at(dag, part)->shape[2], size))
      return part;
    if (!dfgnn__size_add(&here, here, 1, at(dag, part)->shape[2]))
      break;
  }
  return -1;
}

int32_t dfgnn__make_slice(dfgnn_dag *dag, int32_t a, dfgnn_size begin,
                          dfgnn_size size) {
  dfgnn_size whole = at(dag, a)->shape[2], end, rest;
  if (dfgnn__size_is(begin, 0) && dfgnn__size_same(size, whole))
    return a;
  int fits = dfgnn__size_add(&end, begin, 1, size) &&
             dfgnn__size_add(&rest, whole, -1, end);
  if (!fits || begin.constant < 0 ||
      (!dfgnn__size_named(size) && size.constant < 1) ||
      (!dfgnn__size_named(rest) && rest.constant < 0)) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "a slice of %s from %s on does not fit into %s",
                    dfgnn__size_text(dag, size), dfgnn__size_text(dag, begin),
                    dfgnn__shape_text(dag, at(dag, a)->shape));
    return 0;
  }
  if (is_op(dag, a, DFGNN_NODE_CAT)) {
    int32_t part = part_of(dag, a, begin, size);
    if (part >= 0)
      return part;
  }
  dfgnn_node node = {.op = DFGNN_NODE_SLICE, .at = begin};
  if (!join(dag, &node, 1, &a))
    return 0;
  node.shape[2] = size;
  return dfgnn__dag_intern(dag, &node, &a);
}

int32_t dfgnn__make_cat(dfgnn_dag *dag, int count, const int32_t *parts) {
  dfgnn_node node = {.op = DFGNN_NODE_CAT, .count = count};
  dfgnn_size total = dfgnn__size(0);
  if (count == 1)
    return parts[0];
  set_numbers(&node);
  for (int i = 0; i < count; i++) {
    const dfgnn_node *part = at(dag, parts[i]);
    if (!dfgnn__size_add(&total, total, 1, part->shape[2])) {
      dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                      "cat makes a row of more than %d", DFGNN_SIZE_MAX);
      return 0;
    }
    node.place = (uint8_t)dfgnn__place_join(node.place, part->place);
    for (int axis = 0; axis < 2; axis++) {
      if (dfgnn__size_is(part->shape[axis], 1) ||
          dfgnn__size_same(part->shape[axis], node.shape[axis]))
        continue;
      if (!dfgnn__size_is(node.shape[axis], 1)) {
        dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                        "cat of %s and %s: expected axes before the last that "
                        "are equal or 1",
                        dfgnn__shape_text(dag, at(dag, parts[0])->shape),
                        dfgnn__shape_text(dag, part->shape));
        return 0;
      }
      node.shape[axis] = part->shape[axis];
    }
  }
  node.shape[2] = total;
  return dfgnn__dag_intern(dag, &node, parts);
}

/* The size of all elements as a product; 0 if it is no linear form. */
static int elements(dfgnn_size *product, const dfgnn_size *shape) {
  dfgnn_size x = dfgnn__size(1);
  for (int i = 0; i < AXES; i++) {
    dfgnn_size zero = dfgnn__size(0);
    const dfgnn_size *named = dfgnn__size_named(x) ? &x : &shape[i];
    const dfgnn_size *plain = dfgnn__size_named(x) ? &shape[i] : &x;
    if (dfgnn__size_named(*plain) ||
        !dfgnn__size_add(&x, zero, plain->constant, *named))
      return 0;
  }
  *product = x;
  return 1;
}

/* Where each axis of `to` comes from if all that a reshape does is to move axes
 * of size 1; 0 if it does more. */
static int is_squeeze(int *where, const dfgnn_size *from,
                      const dfgnn_size *to) {
  int taken = 0, next = 0;
  for (int i = 0; i < AXES; i++) {
    where[i] = -1;
    if (dfgnn__size_is(to[i], 1))
      continue;
    while (next < AXES && dfgnn__size_is(from[next], 1))
      next++;
    if (next == AXES || !dfgnn__size_same(from[next], to[i]))
      return 0;
    taken |= 1 << next;
    where[i] = next++;
  }
  while (next < AXES)
    if (!dfgnn__size_is(from[next++], 1))
      return 0;
  for (int i = 0, left = 0; i < AXES; i++) {
    while (where[i] < 0 && taken >> left & 1)
      left++;
    if (where[i] >= 0)
      continue;
    where[i] = left;
    taken |= 1 << left;
  }
  return 1;
}

/* reshape(f(x, y)) = f(reshape(x), reshape(y)) where only axes of size 1 move
 * and f is of each element: torch's sums drop their axis, and what is computed
 * of them gets it back later.  -1: it is not so. */
static int32_t reshape_inside(dfgnn_dag *dag, int32_t n,
                              const dfgnn_size *shape) {
  const dfgnn_node node = dag->nodes[n];
  int where[AXES];
  int32_t arguments[8];
  if (!is_squeeze(where, node.shape, shape))
    return -1;
  if (node.op == DFGNN_NODE_KEEP)
    return dfgnn__make_keep(dag, node.index, node.number,
                            (dfgnn_place)node.place, shape);
  if (node.op < DFGNN_NODE_ADD || node.count > 8 ||
      (node.op > DFGNN_NODE_WHERE && !dfgnn__node_reduces(node.op)))
    return -1;
  for (int i = 0; i < node.count; i++) {
    arguments[i] = arg(dag, n, i);
    dfgnn_size to[AXES];
    for (int axis = 0; axis < AXES; axis++)
      to[axis] = at(dag, arguments[i])->shape[where[axis]];
    arguments[i] = dfgnn__make_reshape(dag, arguments[i], to);
  }
  return dfgnn__make_alike(dag, &node, arguments);
}

int32_t dfgnn__make_reshape(dfgnn_dag *dag, int32_t a,
                            const dfgnn_size *shape) {
  const dfgnn_node *from = at(dag, a);
  dfgnn_size have, want;
  int same = 1;
  for (int i = 0; i < AXES; i++)
    same &= dfgnn__size_same(from->shape[i], shape[i]);
  if (same)
    return a;
  /* Two names multiplied are known when tensors are bound. */
  if (elements(&have, from->shape) && elements(&want, shape) &&
      !dfgnn__size_same(have, want)) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "%s cannot be reshaped to %s: expected as many elements",
                    dfgnn__shape_text(dag, from->shape),
                    dfgnn__shape_text(dag, shape));
    return 0;
  }
  if (is_op(dag, a, DFGNN_NODE_RESHAPE))
    return dfgnn__make_reshape(dag, arg(dag, a, 0), shape);
  int32_t inside = reshape_inside(dag, a, shape);
  if (inside >= 0)
    return inside;
  dfgnn_node node = {.op = DFGNN_NODE_RESHAPE};
  if (!join(dag, &node, 1, &a))
    return 0;
  memcpy(node.shape, shape, sizeof node.shape);
  return dfgnn__dag_intern(dag, &node, &a);
}

int32_t dfgnn__make_expand(dfgnn_dag *dag, int32_t a, const dfgnn_size *shape) {
  int same = 1;
  for (int i = 0; i < AXES; i++) {
    int equal = dfgnn__size_same(at(dag, a)->shape[i], shape[i]);
    if (!equal && !thin(dag, a, i)) {
      dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                      "%s cannot be spread to %s: expected axes that are "
                      "equal or 1",
                      dfgnn__shape_text(dag, at(dag, a)->shape),
                      dfgnn__shape_text(dag, shape));
      return 0;
    }
    same &= equal;
  }
  if (same)
    return a;
  dfgnn_node node = {.op = DFGNN_NODE_EXPAND};
  if (!join(dag, &node, 1, &a))
    return 0;
  memcpy(node.shape, shape, sizeof node.shape);
  return dfgnn__dag_intern(dag, &node, &a);
}

int32_t dfgnn__make_whole(dfgnn_dag *dag, int32_t a, int count,
                          const int32_t *arguments) {
  dfgnn_node node = {0};
  if (!join(dag, &node, count, arguments))
    return 0;
  return dfgnn__make_expand(dag, a, node.shape);
}

int32_t dfgnn__make_matmul(dfgnn_dag *dag, int32_t a, int32_t b, int flags) {
  const dfgnn_node *x = at(dag, a), *y = at(dag, b);
  int first = !!(flags & DFGNN_MATMUL_FIRST);
  int second = !!(flags & DFGNN_MATMUL_SECOND);
  if (dfgnn__is_number(dag, a, 0) || dfgnn__is_number(dag, b, 0))
    return 0;
  int batches = dfgnn__size_same(x->shape[0], y->shape[0]) || thin(dag, a, 0) ||
                thin(dag, b, 0);
  if (!batches ||
      !dfgnn__size_same(x->shape[2 - first], y->shape[1 + second])) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "a linear map of %s by %s%s: expected as many columns as "
                    "rows",
                    dfgnn__shape_text(dag, x->shape),
                    dfgnn__shape_text(dag, y->shape),
                    second ? " transposed" : "");
    return 0;
  }
  int32_t pair[2] = {a, b};
  dfgnn_node node = {.op = DFGNN_NODE_MATMUL, .flags = (uint8_t)flags};
  node.count = 2;
  node.place = (uint8_t)dfgnn__place_join(x->place, y->place);
  node.shape[0] = thin(dag, a, 0) ? y->shape[0] : x->shape[0];
  node.shape[1] = x->shape[1 + first];
  node.shape[2] = y->shape[2 - second];
  return dfgnn__dag_intern(dag, &node, pair);
}

/* ---- over edges ---------------------------------------------------------- */

/* Does a value not vary along the sum? */
static int stays(const dfgnn_dag *dag, int32_t n, int op) {
  int place = at(dag, n)->place;
  if (dfgnn__place_rank(place) < 2)
    return 1;
  if (op == DFGNN_NODE_SUM_ALL)
    return 0;
  int in = op == DFGNN_NODE_SUM_IN || op == DFGNN_NODE_MAX_IN ||
           op == DFGNN_NODE_LSE_IN;
  return place == (in ? DFGNN_PLACE_DST : DFGNN_PLACE_SRC);
}

static int32_t reduction(dfgnn_dag *dag, int op, int32_t a) {
  dfgnn_node node = {.op = (uint8_t)op};
  if (!join(dag, &node, 1, &a))
    return 0;
  switch (op) {
  case DFGNN_NODE_SUM_ALL:
    node.place = DFGNN_PLACE_PARAM;
    break;
  case DFGNN_NODE_SUM_OUT:
  case DFGNN_NODE_MAX_OUT:
  case DFGNN_NODE_LSE_OUT:
    node.place = DFGNN_PLACE_SRC;
    break;
  default:
    node.place = DFGNN_PLACE_DST;
  }
  return dfgnn__dag_intern(dag, &node, &a);
}

static int32_t sum_constant(dfgnn_dag *dag, int op, int32_t a,
                            dfgnn_place from) {
  int32_t times;
  if (op == DFGNN_NODE_SUM_ALL)
    times = dfgnn__make_count(dag, from);
  else
    times = dfgnn__make_degree(dag, op == DFGNN_NODE_SUM_IN ? DFGNN_PLACE_DST
                                                            : DFGNN_PLACE_SRC);
  return dfgnn__make_mul(dag, a, times);
}

/* sum(w fsum(a f)) = fsum(a sum(w f)) where a leaves the sum: w is what else
 * is in the product, all of size 1 along the axis.  -1: there is no such. */
static int32_t exchange(dfgnn_dag *dag, int op, int32_t n) {
  int product = is_op(dag, n, DFGNN_NODE_MUL);
  int count = product ? at(dag, n)->count : 1;
  for (int i = 0; i < count; i++) {
    int32_t dot = product ? arg(dag, n, i) : n;
    if (!is_op(dag, dot, DFGNN_NODE_FSUM) ||
        !is_op(dag, arg(dag, dot, 0), DFGNN_NODE_MUL))
      continue;
    int axis = at(dag, dot)->axis, fits = 1;
    for (int k = 0; k < count; k++)
      fits &= k == i || thin(dag, arg(dag, n, k), axis);
    int32_t outside, inside;
    if (!fits || !split(dag, arg(dag, dot, 0), stays, op, &outside, &inside))
      continue;
    for (int k = 0; k < count; k++)
      if (k != i)
        inside = dfgnn__make_mul(dag, inside, arg(dag, n, k));
    int32_t sum = dfgnn__make_sum(dag, op, inside, DFGNN_PLACE_EDGE);
    return dfgnn__make_fold(dag, DFGNN_NODE_FSUM,
                            dfgnn__make_mul(dag, outside, sum), axis);
  }
  return -1;
}

int32_t dfgnn__make_sum(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                        dfgnn_place from) {
  int place = at(dag, a)->place;
  if (dfgnn__is_number(dag, a, 0))
    return a;
  if (op == DFGNN_NODE_SUM_ALL && from == DFGNN_PLACE_EDGE &&
      dfgnn__place_rank(place) == 2) {
    a = dfgnn__make_mul(dag, a, dfgnn__make_degree(dag, place));
    from = place;
  }
  if (stays(dag, a, op))
    return sum_constant(dag, op, a, from);
  if (is_op(dag, a, DFGNN_NODE_MUL)) {
    int32_t outside, inside;
    if (split(dag, a, stays, op, &outside, &inside))
      return dfgnn__make_mul(dag, outside,
                             dfgnn__make_sum(dag, op, inside, from));
  }
  if (op != DFGNN_NODE_SUM_ALL) {
    int32_t exchanged = exchange(dag, op, a);
    if (exchanged >= 0)
      return exchanged;
  }
  return reduction(dag, op, a);
}

int32_t dfgnn__make_extreme(dfgnn_dag *dag, dfgnn_node_op op, int32_t a) {
  int out = op == DFGNN_NODE_MAX_OUT || op == DFGNN_NODE_LSE_OUT;
  if (!stays(dag, a, op))
    return reduction(dag, op, a);
  int32_t degree =
      dfgnn__make_degree(dag, out ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST);
  if (op == DFGNN_NODE_LSE_IN || op == DFGNN_NODE_LSE_OUT)
    return dfgnn__make_add(dag, a,
                           dfgnn__make_unary(dag, DFGNN_NODE_LOG, degree, 0));
  int32_t some = dfgnn__make_binary(dag, DFGNN_NODE_LT, 0, degree);
  return dfgnn__make_where(dag, some, a, 0);
}

int32_t dfgnn__make_alike(dfgnn_dag *dag, const dfgnn_node *node,
                          const int32_t *a) {
  int32_t made;
  switch (node->op) {
  case DFGNN_NODE_ADD:
    return dfgnn__make_add(dag, a[0], a[1]);
  case DFGNN_NODE_MUL:
    made = a[0];
    for (int i = 1; i < node->count; i++)
      made = dfgnn__make_mul(dag, made, a[i]);
    return made;
  case DFGNN_NODE_POW:
    return dfgnn__make_pow(dag, a[0], node->number);
  case DFGNN_NODE_MAX:
  case DFGNN_NODE_LT:
  case DFGNN_NODE_LE:
  case DFGNN_NODE_EQ:
    return dfgnn__make_binary(dag, node->op, a[0], a[1]);
  case DFGNN_NODE_WHERE:
    return dfgnn__make_where(dag, a[0], a[1], a[2]);
  case DFGNN_NODE_SUM_IN:
  case DFGNN_NODE_SUM_OUT:
    return dfgnn__make_sum(dag, node->op, a[0], DFGNN_PLACE_EDGE);
  case DFGNN_NODE_SUM_ALL:
    return dfgnn__make_sum(dag, node->op, a[0],
                           (dfgnn_place)at(dag, a[0])->place);
  case DFGNN_NODE_MAX_IN:
  case DFGNN_NODE_MAX_OUT:
  case DFGNN_NODE_LSE_IN:
  case DFGNN_NODE_LSE_OUT:
    return dfgnn__make_extreme(dag, node->op, a[0]);
  default:
    return dfgnn__make_unary(dag, node->op, a[0], node->number);
  }
}
