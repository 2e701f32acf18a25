#include "kernels/program/make_inside.h"

#include <math.h>
#include <stdlib.h>

/* ---- small things -------------------------------------------------------- */

int dfgnn__is_number(const dfgnn_dag *dag, int32_t n, double x) {
  return is_op(dag, n, DFGNN_NODE_NUMBER) && at(dag, n)->number == x;
}

int dfgnn__place_join(int a, int b) {
  if (a != b && dfgnn__place_rank(a) == 2 && dfgnn__place_rank(b) == 2)
    return DFGNN_PLACE_EDGE;
  return dfgnn__place_rank(a) >= dfgnn__place_rank(b) ? a : b;
}

int dfgnn__make_join(dfgnn_dag *dag, dfgnn_node *node, int count,
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
  if (!dfgnn__make_join(dag, &node, count, arguments))
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
static int make_order(const dfgnn_dag *dag, int32_t a, int32_t b) {
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

/* A value that is a number everywhere. */
static int32_t number_of(dfgnn_dag *dag, dfgnn_node node) {
  set_numbers(&node);
  return dfgnn__dag_intern(dag, &node, NULL);
}

int32_t dfgnn__make_number(dfgnn_dag *dag, double x) {
  return number_of(
      dag, (dfgnn_node){.op = DFGNN_NODE_NUMBER, .number = x == 0 ? 0 : x});
}

int32_t dfgnn__make_size(dfgnn_dag *dag, dfgnn_size size) {
  if (!dfgnn__size_named(size))
    return dfgnn__make_number(dag, size.constant);
  return number_of(dag, (dfgnn_node){.op = DFGNN_NODE_SIZE, .at = size});
}

int32_t dfgnn__make_count(dfgnn_dag *dag, dfgnn_place place) {
  return number_of(dag, (dfgnn_node){.op = DFGNN_NODE_COUNT, .index = place});
}

int32_t dfgnn__make_degree(dfgnn_dag *dag, dfgnn_place place) {
  return number_of(dag, (dfgnn_node){.op = DFGNN_NODE_DEGREE, .place = place});
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

void dfgnn__make_sort(const dfgnn_dag *dag, int32_t *list, int count) {
  for (int i = 1; i < count; i++) {
    int32_t x = list[i];
    int k = i;
    for (; k > 0 && make_order(dag, list[k - 1], x) > 0; k--)
      list[k] = list[k - 1];
    list[k] = x;
  }
}

/* A factor that occurs more than twice is a power. */
enum { TWICE = 2, MOST_EQUAL = 1 << 20 };

/* The value of which a factor is a power, and how often it is there. */
static int32_t base_of(const dfgnn_dag *dag, int32_t factor, double *times) {
  const dfgnn_node *node = at(dag, factor);
  *times = 1;
  if (node->op != DFGNN_NODE_POW || node->number <= TWICE ||
      node->number != floor(node->number))
    return factor;
  *times = node->number;
  return arg(dag, factor, 0);
}

/* Takes the factors that are powers of list[i] out of the rest of the list;
 * returns how often it is there. */
static double take_equal(const dfgnn_dag *dag, int32_t *list, int *count,
                         int i) {
  double all, times;
  const int32_t base = base_of(dag, list[i], &all);
  int kept = i + 1;
  for (int k = kept; k < *count; k++)
    if (base_of(dag, list[k], &times) == base)
      all += times;
    else
      list[kept++] = list[k];
  *count = kept;
  return all;
}

/* x * x * x * x is pow(x, 4), so that a product has no more factors than there
 * are values.  The list has room for the factors: no more than before. */
static int gather_powers(dfgnn_dag *dag, int32_t *list, int count) {
  for (int i = 0; i < count; i++) {
    const int before = count;
    double own;
    const int32_t base = base_of(dag, list[i], &own);
    const double times = take_equal(dag, list, &count, i);
    if (times > MOST_EQUAL) {
      dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                      "a value multiplied %g times by itself, expected %d at "
                      "most",
                      times, MOST_EQUAL);
      return 0;
    }
    if (times > TWICE && before - count > 0)
      list[i] = joined(dag, (dfgnn_node){.op = DFGNN_NODE_POW, .number = times},
                       1, &base);
    else if (times == TWICE) {
      memmove(&list[i + 2], &list[i + 1],
              (size_t)(count - i - 1) * sizeof *list);
      list[++i] = base;
      count++;
    }
  }
  dfgnn__make_sort(dag, list, count);
  return count;
}

static int all_finite(const dfgnn_dag *dag, const int32_t *list, int count) {
  int all = 1;
  for (int i = 0; i < count; i++)
    all &= at(dag, list[i])->finite;
  return all;
}

/* The product of factors, none of which is a product or number.  0 * x is NaN
 * where x is not finite; what a gradient multiplies by 0 does not matter. */
static int32_t product(dfgnn_dag *dag, double number, int32_t *list,
                       int count) {
  if (dag->status ||
      (number == 0 && (dag->derived || all_finite(dag, list, count))))
    return 0;
  count = gather_powers(dag, list, count);
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

int dfgnn__make_split(dfgnn_dag *dag, int32_t n, dfgnn_leaves leaves, int which,
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
  dfgnn__make_sort(dag, pair, 2);
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

double dfgnn__unary_number(int op, double a, double x) {
  switch (op) {
  case DFGNN_NODE_POW:
    return pow(a, x);
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
    return a < 0 ? 0 : a;
  case DFGNN_NODE_LEAKY:
    return a > 0 ? a : a * x;
  default: /* DETACH, EXPAND and their like */
    return a;
  }
}

int32_t dfgnn__make_unary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                          double x) {
  if (is_op(dag, a, DFGNN_NODE_NUMBER))
    return dfgnn__make_number(dag,
                              dfgnn__unary_number(op, at(dag, a)->number, x));
  return joined(dag, (dfgnn_node){.op = op, .number = x}, 1, &a);
}

int32_t dfgnn__make_binary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                           int32_t b) {
  if (a == b && op == DFGNN_NODE_MAX)
    return a;
  if (is_op(dag, a, DFGNN_NODE_NUMBER) && is_op(dag, b, DFGNN_NODE_NUMBER)) {
    double x = at(dag, a)->number, y = at(dag, b)->number;
    double made = op == DFGNN_NODE_ATAN2 ? atan2(x, y)
                  : op == DFGNN_NODE_MAX ? fmax(x, y)
                  : op == DFGNN_NODE_LT  ? x < y
                  : op == DFGNN_NODE_LE  ? x <= y
                                         : x == y;
    return dfgnn__make_number(dag, made);
  }
  int32_t pair[2] = {a, b};
  if (op == DFGNN_NODE_MAX || op == DFGNN_NODE_EQ)
    dfgnn__make_sort(dag, pair, 2);
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
