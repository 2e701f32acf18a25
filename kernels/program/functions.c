#include "kernels/program/functions.h"

#include <math.h>
#include <string.h>

#define MAKE(name)                                                             \
  static int32_t name(dfgnn_dag *dag, const dfgnn_function *f,                 \
                      const dfgnn_word *w, int count)
#define UNUSED (void)f, (void)count

static int32_t number(dfgnn_dag *dag, double x) {
  return dfgnn__make_number(dag, x);
}

static int32_t apply(dfgnn_dag *dag, dfgnn_node_op op, int32_t a) {
  return dfgnn__make_unary(dag, op, a, 0);
}

/* ---- of each element ----------------------------------------------------- */

MAKE(unary) {
  (void)count;
  return apply(dag, f->op, w[0].node);
}

MAKE(power) {
  UNUSED;
  return dfgnn__make_pow(dag, w[0].node, w[1].number);
}

MAKE(root) { /* sqrt, rsqrt, reciprocal, square */
  (void)count;
  static const double exponents[] = {.5, -.5, -1, 2};
  return dfgnn__make_pow(dag, w[0].node, exponents[f->op]);
}

MAKE(negative) {
  UNUSED;
  return dfgnn__make_neg(dag, w[0].node);
}

MAKE(leaky_relu) {
  (void)f;
  return dfgnn__make_unary(dag, DFGNN_NODE_LEAKY, w[0].node,
                           count > 1 ? w[1].number : .01);
}

MAKE(silu) {
  UNUSED;
  return dfgnn__make_mul(dag, w[0].node,
                         apply(dag, DFGNN_NODE_SIGMOID, w[0].node));
}

MAKE(gelu) {
  UNUSED;
  int32_t scaled = dfgnn__make_mul(dag, w[0].node, number(dag, M_SQRT1_2));
  int32_t sum =
      dfgnn__make_add(dag, number(dag, 1), apply(dag, DFGNN_NODE_ERF, scaled));
  return dfgnn__make_mul(dag, dfgnn__make_mul(dag, w[0].node, number(dag, .5)),
                         sum);
}

/* expm1 of what is not positive, so that no infinity meets a zero. */
MAKE(elu) {
  (void)f;
  int32_t x = w[0].node;
  int32_t positive = dfgnn__make_binary(dag, DFGNN_NODE_LT, 0, x);
  int32_t low = dfgnn__make_where(dag, positive, 0, x);
  int32_t curve = dfgnn__make_mul(dag, apply(dag, DFGNN_NODE_EXPM1, low),
                                  number(dag, count > 1 ? w[1].number : 1));
  return dfgnn__make_where(dag, positive, x, curve);
}

MAKE(largest) {
  (void)count;
  if (f->op == 0)
    return dfgnn__make_binary(dag, DFGNN_NODE_MAX, w[0].node, w[1].node);
  return dfgnn__make_neg(dag,
                         dfgnn__make_binary(dag, DFGNN_NODE_MAX,
                                            dfgnn__make_neg(dag, w[0].node),
                                            dfgnn__make_neg(dag, w[1].node)));
}

MAKE(angle) { /* atan2(y, x) */
  UNUSED;
  return dfgnn__make_binary(dag, DFGNN_NODE_ATAN2, w[0].node, w[1].node);
}

MAKE(clamp) {
  UNUSED;
  int32_t x = w[0].node, low = number(dag, w[1].number);
  int32_t high = number(dag, w[2].number);
  int32_t below = dfgnn__make_binary(dag, DFGNN_NODE_LT, x, low);
  int32_t above = dfgnn__make_binary(dag, DFGNN_NODE_LT, high, x);
  return dfgnn__make_where(dag, below, low,
                           dfgnn__make_where(dag, above, high, x));
}

MAKE(where) {
  UNUSED;
  return dfgnn__make_where(dag, w[0].node, w[1].node, w[2].node);
}

MAKE(dropout) {
  UNUSED;
  const dfgnn_node x = dag->nodes[w[0].node];
  if (!(w[1].number >= 0 && w[1].number <= 1)) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "dropout of probability %g, expected 0 to 1", w[1].number);
    return 0;
  }
  int32_t keep = dfgnn__make_keep(dag, dag->dropouts, w[1].number,
                                  (dfgnn_place)x.place, x.shape);
  return dfgnn__make_mul(dag, w[0].node, keep);
}

/* keep(2, 0.5, edge[H]): the mask of dropout 2. */
MAKE(keep) {
  UNUSED;
  if (!(w[0].number >= 0 && w[0].number < 1024 &&
        w[0].number == floor(w[0].number) && w[1].number >= 0 &&
        w[1].number <= 1 && w[2].place > DFGNN_PLACE_CONST)) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "keep wants a number below 1024, a probability and a "
                    "place with a shape, as keep(0, 0.5, edge[D])");
    return 0;
  }
  return dfgnn__make_keep(dag, (int)w[0].number, w[1].number,
                          (dfgnn_place)w[2].place, w[2].shape);
}

/* ---- axes ---------------------------------------------------------------- */

/* The axis that word i gives from the end, -1 if it is left out; -1: wrong. */
static int axis_of(dfgnn_dag *dag, const dfgnn_function *f, const dfgnn_word *w,
                   int count, int i) {
  double axis = count > i ? w[i].number : -1;
  if (axis == -1 || axis == -2 || axis == -3)
    return DFGNN_DAG_AXES + (int)axis;
  dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                  "axis %g of %s, expected -1 (the last), -2 or -3", axis,
                  f->name);
  return -1;
}

static int32_t minus_log(dfgnn_dag *dag, int32_t x, int axis) {
  int32_t m = apply(dag, DFGNN_NODE_DETACH,
                    dfgnn__make_fold(dag, DFGNN_NODE_FMAX, x, axis));
  int32_t e = apply(dag, DFGNN_NODE_EXP, dfgnn__make_sub(dag, x, m));
  int32_t s = dfgnn__make_fold(dag, DFGNN_NODE_FSUM, e, axis);
  return dfgnn__make_add(dag, m, apply(dag, DFGNN_NODE_LOG, s));
}

enum { SUM, MEAN, AMAX, AMIN, LOGSUMEXP, SOFTMAX };

MAKE(along) {
  int axis = axis_of(dag, f, w, count, 1);
  int32_t x = w[0].node;
  if (axis < 0)
    return 0;
  switch (f->op) {
  case SUM:
    return dfgnn__make_fold(dag, DFGNN_NODE_FSUM, x, axis);
  case MEAN:
    return dfgnn__make_div(dag, dfgnn__make_fold(dag, DFGNN_NODE_FSUM, x, axis),
                           dfgnn__make_size(dag, dag->nodes[x].shape[axis]));
  case AMAX:
    return dfgnn__make_fold(dag, DFGNN_NODE_FMAX, x, axis);
  case AMIN:
    return dfgnn__make_neg(
        dag,
        dfgnn__make_fold(dag, DFGNN_NODE_FMAX, dfgnn__make_neg(dag, x), axis));
  case LOGSUMEXP:
    return minus_log(dag, x, axis);
  default: { /* SOFTMAX */
    int32_t m = apply(dag, DFGNN_NODE_DETACH,
                      dfgnn__make_fold(dag, DFGNN_NODE_FMAX, x, axis));
    int32_t e = apply(dag, DFGNN_NODE_EXP, dfgnn__make_sub(dag, x, m));
    return dfgnn__make_div(dag, e,
                           dfgnn__make_fold(dag, DFGNN_NODE_FSUM, e, axis));
  }
  }
}

MAKE(dot) {
  UNUSED;
  return dfgnn__make_fold(dag, DFGNN_NODE_FSUM,
                          dfgnn__make_mul(dag, w[0].node, w[1].node), 2);
}

MAKE(cat) {
  (void)f;
  int32_t parts[DFGNN_DAG_CAT];
  for (int i = 0; i < count; i++)
    parts[i] = w[i].node;
  return dfgnn__make_cat(dag, count, parts);
}

MAKE(reshape) {
  (void)count;
  return (f->op ? dfgnn__make_expand : dfgnn__make_reshape)(dag, w[0].node,
                                                            w[1].shape);
}

MAKE(transpose) { /* transpose(x, -2, -1) */
  const int first = axis_of(dag, f, w, count, 1);
  const int second = axis_of(dag, f, w, count, 2);
  return first < 0 || second < 0
             ? 0
             : dfgnn__make_swap(dag, w[0].node, first, second);
}

/* linear(x, W, b) is x W' + b as in torch; matmul(a, b) is a b, and the
 * numbers after them say that the first, or the second, is transposed. */
MAKE(linear) {
  (void)f;
  int32_t y =
      dfgnn__make_matmul(dag, w[0].node, w[1].node, DFGNN_MATMUL_SECOND);
  return count > 2 ? dfgnn__make_add(dag, y, w[2].node) : y;
}

MAKE(matmul) {
  (void)f;
  int flags = (count > 2 && w[2].number != 0 ? DFGNN_MATMUL_FIRST : 0) |
              (count > 3 && w[3].number != 0 ? DFGNN_MATMUL_SECOND : 0);
  return dfgnn__make_matmul(dag, w[0].node, w[1].node, flags);
}

MAKE(size) {
  UNUSED;
  return dfgnn__make_size(dag, w[0].shape[2]);
}

MAKE(count_of) { /* count(dst), degree(dst) */
  (void)count;
  int place = w[0].place;
  if (f->op ? dfgnn__place_rank(place < 0 ? 0 : place) != 2 : place < 2) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID, "%s wants %s", f->name,
                    f->op ? "dst, src or rel" : "dst, src, rel or edge");
    return 0;
  }
  return f->op ? dfgnn__make_degree(dag, (dfgnn_place)place)
               : dfgnn__make_count(dag, (dfgnn_place)place);
}

/* ---- over edges ---------------------------------------------------------- */

enum { OVER_SUM, OVER_MEAN, OVER_MAX, OVER_MIN, OVER_LSE, OVER_SOFTMAX };
/* Which edges go together: those of a destination, a source or a relation. */
enum {
  IN = DFGNN_PLACE_DST << 3,
  OUT = DFGNN_PLACE_SRC << 3,
  REL = DFGNN_PLACE_REL << 3
};

/* One divided by the degree, or by 1. */
static int32_t by_degree(dfgnn_dag *dag, int32_t x, dfgnn_place of) {
  int32_t degree = dfgnn__make_degree(dag, of);
  return dfgnn__make_div(
      dag, x, dfgnn__make_binary(dag, DFGNN_NODE_MAX, degree, number(dag, 1)));
}

MAKE(over_edges) {
  (void)count;
  const dfgnn_place of = (dfgnn_place)(f->op >> 3);
  int32_t x = w[0].node;
  switch (f->op & 7) {
  case OVER_SUM:
    return dfgnn__make_sum(dag, x, of);
  case OVER_MEAN:
    return by_degree(dag, dfgnn__make_sum(dag, x, of), of);
  case OVER_MAX:
    return dfgnn__make_extreme(dag, DFGNN_NODE_MAX_EDGES, x, of);
  case OVER_MIN:
    return dfgnn__make_neg(dag,
                           dfgnn__make_extreme(dag, DFGNN_NODE_MAX_EDGES,
                                               dfgnn__make_neg(dag, x), of));
  case OVER_LSE:
    return dfgnn__make_extreme(dag, DFGNN_NODE_LSE, x, of);
  default: /* Equal scores need no logsumexp, which is infinite without edges;
            * 0 * x is NaN where they are not finite. */
    if (dfgnn__place_join(dag->nodes[x].place, of) == (int)of)
      return dfgnn__make_add(dag, by_degree(dag, number(dag, 1), of),
                             dfgnn__make_mul(dag, number(dag, 0), x));
    return apply(dag, DFGNN_NODE_EXP,
                 dfgnn__make_sub(
                     dag, x, dfgnn__make_extreme(dag, DFGNN_NODE_LSE, x, of)));
  }
}

MAKE(sum_all) {
  UNUSED;
  return dfgnn__make_sum_all(dag, w[0].node,
                             (dfgnn_place)dag->nodes[w[0].node].place);
}

/* ---- the table ----------------------------------------------------------- */

#define OVER_EDGES(ending, of)                                                 \
  {"sum_" ending, "v", 1, of + OVER_SUM, over_edges},                          \
      {"mean_" ending, "v", 1, of + OVER_MEAN, over_edges},                    \
      {"max_" ending, "v", 1, of + OVER_MAX, over_edges},                      \
      {"min_" ending, "v", 1, of + OVER_MIN, over_edges},                      \
      {"logsumexp_" ending, "v", 1, of + OVER_LSE, over_edges}, {              \
    "softmax_" ending, "v", 1, of + OVER_SOFTMAX, over_edges                   \
  }
static const dfgnn_function functions[] = {
    {"exp", "v", 1, DFGNN_NODE_EXP, unary},
    {"expm1", "v", 1, DFGNN_NODE_EXPM1, unary},
    {"log", "v", 1, DFGNN_NODE_LOG, unary},
    {"log1p", "v", 1, DFGNN_NODE_LOG1P, unary},
    {"tanh", "v", 1, DFGNN_NODE_TANH, unary},
    {"sigmoid", "v", 1, DFGNN_NODE_SIGMOID, unary},
    {"softplus", "v", 1, DFGNN_NODE_SOFTPLUS, unary},
    {"erf", "v", 1, DFGNN_NODE_ERF, unary},
    {"sin", "v", 1, DFGNN_NODE_SIN, unary},
    {"cos", "v", 1, DFGNN_NODE_COS, unary},
    {"abs", "v", 1, DFGNN_NODE_ABS, unary},
    {"sign", "v", 1, DFGNN_NODE_SIGN, unary},
    {"relu", "v", 1, DFGNN_NODE_RELU, unary},
    {"detach", "v", 1, DFGNN_NODE_DETACH, unary},
    {"leaky_relu", "vn", 1, 0, leaky_relu},
    {"elu", "vn", 1, 0, elu},
    {"silu", "v", 1, 0, silu},
    {"gelu", "v", 1, 0, gelu},
    {"neg", "v", 1, 0, negative},
    {"pow", "vn", 2, 0, power},
    {"sqrt", "v", 1, 0, root},
    {"rsqrt", "v", 1, 1, root},
    {"reciprocal", "v", 1, 2, root},
    {"square", "v", 1, 3, root},
    {"atan2", "vv", 2, 0, angle},
    {"max", "vv", 2, 0, largest},
    {"min", "vv", 2, 1, largest},
    {"clamp", "vnn", 3, 0, clamp},
    {"where", "vvv", 3, 0, where},
    {"dropout", "vn", 2, 0, dropout},
    {"keep", "nns", 3, 0, keep},
    {"sum", "vn", 1, SUM, along},
    {"mean", "vn", 1, MEAN, along},
    {"amax", "vn", 1, AMAX, along},
    {"amin", "vn", 1, AMIN, along},
    {"logsumexp", "vn", 1, LOGSUMEXP, along},
    {"softmax", "vn", 1, SOFTMAX, along},
    {"dot", "vv", 2, 0, dot},
    {"cat", "vvvvvvvvvvvvvvvv", 1, 0, cat},
    {"reshape", "vs", 2, 0, reshape},
    {"expand", "vs", 2, 1, reshape},
    {"transpose", "vnn", 3, 0, transpose},
    {"linear", "vvv", 2, 0, linear},
    {"matmul", "vvnn", 2, 0, matmul},
    {"size", "s", 1, 0, size},
    {"count", "s", 1, 0, count_of},
    {"degree", "s", 1, 1, count_of},
    OVER_EDGES("in", IN),
    OVER_EDGES("out", OUT),
    OVER_EDGES("rel", REL),
    {"sum_all", "v", 1, 0, sum_all}};

const dfgnn_function *dfgnn__function(const char *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name))
      return &functions[i];
  return NULL;
}

int dfgnn__function_is_elementwise(const dfgnn_function *function) {
  static int32_t (*const others[])(dfgnn_dag *, const dfgnn_function *,
                                   const dfgnn_word *, int) = {
      dot,    cat,  reshape,  transpose, linear,
      matmul, size, count_of, keep,      sum_all};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (function->make == others[i])
      return 0;
  return function->make != along || function->op == SOFTMAX;
}
