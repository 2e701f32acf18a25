/* derive.c - gradients of programs, which are programs again
 *
 * The adjoint of spreading is a sum and that of a sum is spreading, so the set
 * of operations is closed and gradients can be taken as often as wanted.
 * Where a function has no derivative the gradient is torch's:
 *   relu, leaky_relu, abs, sign at 0    0, slope, 0, 0
 *   elu at 0                            that of x < 0
 *   max(a, b), min(a, b), a = b         one half to each
 *   amax, amin, max_in, min_in          shared by those that are equal
 *   clamp at its ends                   1
 *   atan2(0, 0)                         0
 *   comparisons, dropout's mask         0
 *   a row without edges                 contributes nothing: sums, means and
 *                                       extremes of it are 0, logsumexp -inf;
 *                                       the gradient of what is used on edges
 *                                       alone is 0 there, whatever its slope */
#include <math.h>
#include <stdlib.h>

#include "kernels/program/make.h"

#define AXES DFGNN_DAG_AXES

static int32_t number(dfgnn_dag *dag, double x) {
  return dfgnn__make_number(dag, x);
}

static int32_t mul(dfgnn_dag *dag, int32_t a, int32_t b) {
  return dfgnn__make_mul(dag, a, b);
}

static int32_t unary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a) {
  return dfgnn__make_unary(dag, op, a, 0);
}

/* ---- down: from where a value was spread to where it lives --------------- */

/* The shapes may be those of nodes, which move as the dag grows. */
static int32_t sum_axes(dfgnn_dag *dag, int32_t g, const dfgnn_size *of,
                        const dfgnn_size *wanted) {
  dfgnn_size from[AXES], to[AXES];
  memcpy(from, of, sizeof from);
  memcpy(to, wanted, sizeof to);
  for (int axis = 0; axis < AXES; axis++) {
    if (!dfgnn__size_is(to[axis], 1) || dfgnn__size_is(from[axis], 1))
      continue;
    if (dfgnn__size_is(dag->nodes[g].shape[axis], 1))
      g = mul(dag, g, dfgnn__make_size(dag, from[axis]));
    else
      g = dfgnn__make_fold(dag, DFGNN_NODE_FSUM, g, axis);
  }
  return g;
}

static int32_t sum_places(dfgnn_dag *dag, int32_t g, int from, int to) {
  if (from == to || dfgnn__place_rank(from) <= dfgnn__place_rank(to))
    return g;
  return dfgnn__place_rank(to) == 2
             ? dfgnn__make_sum(dag, g, (dfgnn_place)to)
             : dfgnn__make_sum_all(dag, g, (dfgnn_place)from);
}

/* ---- the derivative of each operation ------------------------------------ */

/* The term that node n contributes: its cotangent g, argument i being a. */
typedef struct step {
  int32_t n, a, g;
  int i;
} step;

/* The derivative of an elementwise function of one argument; -1: not one. */
static int32_t slope(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n];
  int32_t a = s.a, one = number(dag, 1);
  switch (n.op) {
  case DFGNN_NODE_POW:
    return mul(dag, number(dag, n.number),
               dfgnn__make_pow(dag, a, n.number - 1));
  case DFGNN_NODE_EXP:
    return s.n;
  case DFGNN_NODE_EXPM1:
    return unary(dag, DFGNN_NODE_EXP, a);
  case DFGNN_NODE_LOG:
    return dfgnn__make_pow(dag, a, -1);
  case DFGNN_NODE_LOG1P:
    return dfgnn__make_pow(dag, dfgnn__make_add(dag, a, one), -1);
  case DFGNN_NODE_TANH:
    return dfgnn__make_sub(dag, one, mul(dag, s.n, s.n));
  case DFGNN_NODE_SIGMOID:
    return mul(dag, s.n, dfgnn__make_sub(dag, one, s.n));
  case DFGNN_NODE_SOFTPLUS:
    return unary(dag, DFGNN_NODE_SIGMOID, a);
  case DFGNN_NODE_ERF:
    return mul(
        dag, number(dag, M_2_SQRTPI),
        unary(dag, DFGNN_NODE_EXP, dfgnn__make_neg(dag, mul(dag, a, a))));
  case DFGNN_NODE_SIN:
    return unary(dag, DFGNN_NODE_COS, a);
  case DFGNN_NODE_COS:
    return dfgnn__make_neg(dag, unary(dag, DFGNN_NODE_SIN, a));
  case DFGNN_NODE_ABS:
    return unary(dag, DFGNN_NODE_SIGN, a);
  case DFGNN_NODE_RELU:
    return dfgnn__make_binary(dag, DFGNN_NODE_LT, 0, a);
  case DFGNN_NODE_LEAKY:
    return dfgnn__make_where(dag, dfgnn__make_binary(dag, DFGNN_NODE_LT, 0, a),
                             one, number(dag, n.number));
  default:
    return -1;
  }
}

static int32_t of_product(dfgnn_dag *dag, step s) {
  int32_t made = s.g;
  for (int k = 0; k < dag->nodes[s.n].count; k++)
    if (k != s.i)
      made = mul(dag, made, dfgnn__dag_argument(dag, s.n, k));
  return made;
}

static int32_t of_max(dfgnn_dag *dag, step s) {
  int32_t other = dfgnn__dag_argument(dag, s.n, 1 - s.i);
  int32_t above = dfgnn__make_binary(dag, DFGNN_NODE_LT, other, s.a);
  int32_t equal = dfgnn__make_binary(dag, DFGNN_NODE_EQ, s.a, other);
  int32_t share = dfgnn__make_add(dag, above, mul(dag, number(dag, .5), equal));
  return mul(dag, s.g, share);
}

/* atan2(y, x): x / (x^2 + y^2) of y, -y / (x^2 + y^2) of x. */
static int32_t of_atan2(dfgnn_dag *dag, step s) {
  int32_t other = dfgnn__dag_argument(dag, s.n, 1 - s.i);
  int32_t length =
      dfgnn__make_add(dag, mul(dag, s.a, s.a), mul(dag, other, other));
  int32_t origin =
      dfgnn__make_binary(dag, DFGNN_NODE_EQ, length, number(dag, 0));
  int32_t inverse =
      dfgnn__make_pow(dag, dfgnn__make_add(dag, length, origin), -1);
  int32_t made =
      mul(dag, mul(dag, s.g, other),
          mul(dag, inverse, dfgnn__make_sub(dag, number(dag, 1), origin)));
  return s.i ? dfgnn__make_neg(dag, made) : made;
}

static int32_t of_where(dfgnn_dag *dag, step s) {
  int32_t c = dfgnn__dag_argument(dag, s.n, 0);
  if (s.i == 0)
    return 0;
  return dfgnn__make_where(dag, c, s.i == 1 ? s.g : 0, s.i == 2 ? s.g : 0);
}

/* Zeros beside a slice; -1: there is nothing there. */
static int32_t zeros(dfgnn_dag *dag, const dfgnn_size *like, dfgnn_size size) {
  dfgnn_size shape[AXES] = {like[0], like[1], size};
  return dfgnn__size_is(size, 0) ? -1 : dfgnn__make_expand(dag, 0, shape);
}

static int32_t of_slice(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n], a = dag->nodes[s.a];
  dfgnn_size rest = dfgnn__size(0);
  dfgnn__size_add(&rest, a.shape[2], -1, n.at);
  dfgnn__size_add(&rest, rest, -1, n.shape[2]);
  int32_t parts[3];
  int count = 0;
  int32_t before = zeros(dag, n.shape, n.at);
  int32_t after = zeros(dag, n.shape, rest);
  if (before >= 0)
    parts[count++] = before;
  parts[count++] = dfgnn__make_expand(dag, s.g, n.shape);
  if (after >= 0)
    parts[count++] = after;
  return dfgnn__make_cat(dag, count, parts);
}

static int32_t of_cat(dfgnn_dag *dag, step s) {
  dfgnn_size at = dfgnn__size(0);
  for (int k = 0; k < s.i; k++) {
    int32_t part = dfgnn__dag_argument(dag, s.n, k);
    dfgnn__size_add(&at, at, 1, dag->nodes[part].shape[2]);
  }
  if (dfgnn__size_is(dag->nodes[s.g].shape[2], 1))
    return s.g;
  return dfgnn__make_slice(dag, s.g, 2, at, dag->nodes[s.a].shape[2]);
}

static int32_t of_matmul(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n];
  int first = n.flags & DFGNN_MATMUL_FIRST;
  int second = n.flags & DFGNN_MATMUL_SECOND;
  int32_t g = dfgnn__make_expand(dag, s.g, n.shape);
  int32_t other = dfgnn__dag_argument(dag, s.n, 1 - s.i);
  const int F = DFGNN_MATMUL_FIRST, S = DFGNN_MATMUL_SECOND;
  if (s.i == 0 && !first) /* g B' */
    return dfgnn__make_matmul(dag, g, other, second ? 0 : S);
  if (s.i == 0) /* B g', or B' g' */
    return dfgnn__make_matmul(dag, other, g, (second ? F : 0) | S);
  if (!second) /* A' g */
    return dfgnn__make_matmul(dag, other, g, first ? 0 : F);
  return dfgnn__make_matmul(dag, g, other, F | (first ? S : 0)); /* g' A */
}

/* An extreme along an axis or over edges: equal ones share. */
static int32_t of_extreme(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n];
  int32_t equal = dfgnn__make_binary(dag, DFGNN_NODE_EQ, s.a, s.n);
  int32_t how_many;
  if (n.op == DFGNN_NODE_FMAX)
    how_many = dfgnn__make_fold(dag, DFGNN_NODE_FSUM, equal, n.axis);
  else
    how_many = dfgnn__make_sum(dag, equal, (dfgnn_place)n.place);
  /* a row without edges has none: what leaves the sum must not be 1 / 0 */
  how_many = dfgnn__make_binary(dag, DFGNN_NODE_MAX, how_many, number(dag, 1));
  return mul(dag, mul(dag, s.g, equal), dfgnn__make_pow(dag, how_many, -1));
}

/* The contribution of n's cotangent to argument i, not yet brought down. */
static int32_t partial(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n];
  int32_t f = slope(dag, s);
  if (f >= 0)
    return mul(dag, s.g, f);
  switch (n.op) {
  case DFGNN_NODE_MUL:
    return of_product(dag, s);
  case DFGNN_NODE_ATAN2:
    return of_atan2(dag, s);
  case DFGNN_NODE_MAX:
    return of_max(dag, s);
  case DFGNN_NODE_WHERE:
    return of_where(dag, s);
  case DFGNN_NODE_SLICE:
    return of_slice(dag, s);
  case DFGNN_NODE_CAT:
    return of_cat(dag, s);
  case DFGNN_NODE_MATMUL:
    return of_matmul(dag, s);
  case DFGNN_NODE_RESHAPE:
    s.g = dfgnn__make_expand(dag, s.g, n.shape);
    return dfgnn__make_reshape(dag, s.g, dag->nodes[s.a].shape);
  case DFGNN_NODE_SWAP:
    return dfgnn__make_swap(dag, s.g, n.axis, n.flags);
  case DFGNN_NODE_FMAX:
  case DFGNN_NODE_MAX_EDGES:
    return of_extreme(dag, s);
  case DFGNN_NODE_LSE:
    return mul(dag, s.g,
               unary(dag, DFGNN_NODE_EXP, dfgnn__make_sub(dag, s.a, s.n)));
  case DFGNN_NODE_ADD:
  case DFGNN_NODE_EXPAND:
  case DFGNN_NODE_FSUM: /* spreading undoes sums */
  case DFGNN_NODE_SUM:
  case DFGNN_NODE_SUM_ALL:
    return s.g;
  default: /* comparisons, SIGN */
    return 0;
  }
}

/* The place and shape over which argument a of n is spread. */
static void spread_of(const dfgnn_dag *dag, step s, int *place,
                      dfgnn_size *shape) {
  const dfgnn_node *n = &dag->nodes[s.n], *a = &dag->nodes[s.a];
  *place = n->place;
  if (n->op == DFGNN_NODE_SUM_ALL)
    *place = a->place;
  else if (dfgnn__node_reduces(n->op))
    *place = DFGNN_PLACE_EDGE;
  memcpy(shape, n->shape, AXES * sizeof *shape);
  switch (n->op) {
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_FMAX:
  case DFGNN_NODE_RESHAPE:
  case DFGNN_NODE_SWAP:
  case DFGNN_NODE_SLICE:
    memcpy(shape, a->shape, AXES * sizeof *shape);
    break;
  case DFGNN_NODE_CAT:
    shape[2] = a->shape[2];
    break;
  case DFGNN_NODE_MATMUL:
    shape[1] = a->shape[1];
    shape[2] = a->shape[2];
    break;
  default:
    break;
  }
}

/* Is what a contribution multiplies its cotangent by finite, or nothing? */
static int multiplies_by_finite(dfgnn_dag *dag, step s) {
  const dfgnn_node n = dag->nodes[s.n];
  int all = 1;
  switch (n.op) {
  case DFGNN_NODE_ADD:
  case DFGNN_NODE_WHERE:
  case DFGNN_NODE_SLICE:
  case DFGNN_NODE_CAT:
  case DFGNN_NODE_RESHAPE:
  case DFGNN_NODE_EXPAND:
  case DFGNN_NODE_SWAP:
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_SUM:
  case DFGNN_NODE_SUM_ALL:
    return 1;
  case DFGNN_NODE_MUL:
    for (int k = 0; k < n.count; k++)
      all &= k == s.i || dag->nodes[dfgnn__dag_argument(dag, s.n, k)].finite;
    return all;
  default: {
    const int32_t f = slope(dag, s);
    return f >= 0 && dag->nodes[f].finite;
  }
  }
}

/* Does what n contributes to a come from edges alone?  of_edges: of the nodes
 * whose cotangents do. */
static int comes_from_edges(const dfgnn_dag *dag, step s,
                            const uint8_t *of_edges) {
  const dfgnn_node *n = &dag->nodes[s.n], *a = &dag->nodes[s.a];
  if (dfgnn__place_rank(a->place) != 2 || n->op == DFGNN_NODE_SUM_ALL)
    return 0;
  if (n->place != a->place || dfgnn__node_reduces(n->op))
    return 1;
  return of_edges[s.n] ||
         (n->op == DFGNN_NODE_WHERE && s.i == 1 &&
          dfgnn__dag_argument(dag, s.n, 2) == 0 &&
          dfgnn__is_presence(dag, dfgnn__dag_argument(dag, s.n, 0)));
}

static int32_t bring_down(dfgnn_dag *dag, step s, int32_t t) {
  int place;
  dfgnn_size shape[AXES];
  spread_of(dag, s, &place, shape);
  t = sum_axes(dag, t, shape, dag->nodes[s.a].shape);
  return sum_places(dag, t, place, dag->nodes[s.a].place);
}

void dfgnn__dag_gradients(dfgnn_dag *dag, const int32_t *cotangents,
                          const int32_t *wanted, int count,
                          int32_t *gradients) {
  const int32_t nodes = dag->count;
  int32_t *bar = calloc((size_t)nodes, sizeof *bar); /* 0 is the number 0 */
  uint8_t *leads = calloc((size_t)nodes, 1);         /* to a wanted node */
  /* Cotangents that are 0 at nodes without edges, and stay so where they are
   * multiplied by an infinite slope. */
  uint8_t *of_edges = calloc((size_t)nodes, 1);
  if (!bar || !leads || !of_edges) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_MEMORY, "out of memory");
    goto out;
  }
  dag->derived = nodes;
  for (int i = 0; i < count; i++)
    leads[wanted[i]] = 1;
  for (int32_t n = 0; n < nodes; n++)
    for (int i = 0; i < dag->nodes[n].count; i++)
      leads[n] |= leads[dfgnn__dag_argument(dag, n, i)];
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_port *port = &dag->outputs[i];
    if (cotangents[i] < 0)
      continue;
    const dfgnn_node *n = &dag->nodes[port->node];
    int32_t g = sum_axes(dag, cotangents[i], port->shape, n->shape);
    g = sum_places(dag, g, port->place, dag->nodes[port->node].place);
    of_edges[port->node] =
        port->place == DFGNN_PLACE_EDGE &&
        dfgnn__place_rank(dag->nodes[port->node].place) == 2 &&
        (!bar[port->node] || of_edges[port->node]);
    bar[port->node] = dfgnn__make_add(dag, bar[port->node], g);
  }
  for (int32_t n = nodes - 1; n >= 0 && !dag->status; n--) {
    if (!leads[n] || !bar[n])
      continue;
    for (int i = 0; i < dag->nodes[n].count; i++) {
      step s = {n, dfgnn__dag_argument(dag, n, i), bar[n], i};
      if (!leads[s.a])
        continue;
      int32_t t = partial(dag, s);
      if (!t)
        continue;
      if (of_edges[n] && !multiplies_by_finite(dag, s))
        t = dfgnn__make_present(dag, t, (dfgnn_place)dag->nodes[n].place,
                                DFGNN_PLACE_EDGE);
      of_edges[s.a] =
          comes_from_edges(dag, s, of_edges) && (!bar[s.a] || of_edges[s.a]);
      bar[s.a] = dfgnn__make_add(dag, bar[s.a], bring_down(dag, s, t));
    }
  }
  for (int i = 0; i < count; i++)
    gradients[i] = dag->status ? 0 : bar[wanted[i]];
out:
  free(bar);
  free(leads);
  free(of_edges);
}
