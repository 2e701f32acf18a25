/* make_axes.c - values of other axes or places: slices, maps, sums along axes,
 * over edges, over everything */
#include "kernels/program/make_inside.h"

/* ---- axes ---------------------------------------------------------------- */

int32_t dfgnn__make_fold(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                         int axis) {
  if (thin(dag, a, axis))
    return a;
  if (op == DFGNN_NODE_FSUM && is_op(dag, a, DFGNN_NODE_MUL) &&
      !dag->as_written) {
    int32_t outside, inside;
    if (dfgnn__make_split(dag, a, thin, axis, &outside, &inside))
      return dfgnn__make_mul(dag, outside,
                             dfgnn__make_fold(dag, op, inside, axis));
  }
  dfgnn_node node = {.op = op, .axis = (uint8_t)axis};
  if (!dfgnn__make_join(dag, &node, 1, &a))
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

int32_t dfgnn__make_slice(dfgnn_dag *dag, int32_t a, int axis, dfgnn_size begin,
                          dfgnn_size size) {
  dfgnn_size whole = at(dag, a)->shape[axis], end, rest;
  if (dfgnn__size_is(begin, 0) && dfgnn__size_same(size, whole))
    return a;
  int fits = dfgnn__size_add(&end, begin, 1, size) &&
             dfgnn__size_add(&rest, whole, -1, end);
  if (!fits || (!dfgnn__size_named(begin) && begin.constant < 0) ||
      (!dfgnn__size_named(size) && size.constant < 1) ||
      (!dfgnn__size_named(rest) && rest.constant < 0)) {
    dfgnn__dag_fail(dag, DFGNN_ERROR_INVALID,
                    "a slice of %s from %s on does not fit into %s",
                    dfgnn__size_text(dag, size), dfgnn__size_text(dag, begin),
                    dfgnn__shape_text(dag, at(dag, a)->shape));
    return 0;
  }
  if (axis != 2) {
    int32_t last = dfgnn__make_swap(dag, a, axis, 2);
    return dfgnn__make_swap(dag, dfgnn__make_slice(dag, last, 2, begin, size),
                            axis, 2);
  }
  if (is_op(dag, a, DFGNN_NODE_CAT)) {
    int32_t part = part_of(dag, a, begin, size);
    if (part >= 0)
      return part;
  }
  dfgnn_node node = {.op = DFGNN_NODE_SLICE, .at = begin};
  if (!dfgnn__make_join(dag, &node, 1, &a))
    return 0;
  node.shape[2] = size;
  return dfgnn__dag_intern(dag, &node, &a);
}

int32_t dfgnn__make_cat(dfgnn_dag *dag, int count, const int32_t *parts) {
  dfgnn_node node = {.op = DFGNN_NODE_CAT, .count = count};
  dfgnn_size total = dfgnn__size(0);
  if (count == 1)
    return parts[0];
  int32_t full[DFGNN_DAG_CAT]; /* without the zeros beside a whole slice */
  int filled = 0;
  for (int i = 0; i < count && count <= DFGNN_DAG_CAT; i++)
    if (!dfgnn__size_is(at(dag, parts[i])->shape[2], 0))
      full[filled++] = parts[i];
  if (filled && filled < count)
    return dfgnn__make_cat(dag, filled, full);
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

int dfgnn__make_squeeze(int8_t where[AXES], const dfgnn_size *from,
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
    where[i] = (int8_t)next++;
  }
  while (next < AXES)
    if (!dfgnn__size_is(from[next++], 1))
      return 0;
  for (int i = 0, left = 0; i < AXES; i++) {
    while (where[i] < 0 && taken >> left & 1)
      left++;
    if (where[i] >= 0)
      continue;
    where[i] = (int8_t)left;
    taken |= 1 << left;
  }
  return 1;
}

/* The node of a, of another shape. */
static int32_t shaped(dfgnn_dag *dag, dfgnn_node node, int32_t a,
                      const dfgnn_size *shape) {
  if (!dfgnn__make_join(dag, &node, 1, &a))
    return 0;
  memcpy(node.shape, shape, sizeof node.shape);
  return dfgnn__dag_intern(dag, &node, &a);
}

/* reshape(f(x, y)) = f(reshape(x), reshape(y)) where only axes of size 1 move
 * and f is of each element: torch's sums drop their axis, and what is computed
 * of them gets it back later.  -1: it is not so. */
static int32_t reshape_inside(dfgnn_dag *dag, int32_t n,
                              const dfgnn_size *shape) {
  const dfgnn_node node = dag->nodes[n];
  int8_t where[AXES];
  int32_t arguments[8];
  if (!dfgnn__make_squeeze(where, node.shape, shape) ||
      (n < dag->derived && dfgnn__node_reduces(node.op)))
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

/* The shape may be that of a node, which moves as the dag grows. */
int32_t dfgnn__make_reshape(dfgnn_dag *dag, int32_t a, const dfgnn_size *to) {
  const dfgnn_node *from = at(dag, a);
  dfgnn_size have, want, shape[AXES];
  if (dfgnn__shape_same(from->shape, to))
    return a;
  memcpy(shape, to, sizeof shape);
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
  return shaped(dag, (dfgnn_node){.op = DFGNN_NODE_RESHAPE}, a, shape);
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
  return shaped(dag, (dfgnn_node){.op = DFGNN_NODE_EXPAND}, a, shape);
}

int32_t dfgnn__make_swap(dfgnn_dag *dag, int32_t a, int first, int second) {
  dfgnn_size shape[AXES];
  const int apart = second - first == 2 && !thin(dag, a, 1);
  if (first > second)
    return dfgnn__make_swap(dag, a, second, first);
  if (first == second || (thin(dag, a, first) && thin(dag, a, second)))
    return a;
  memcpy(shape, at(dag, a)->shape, sizeof shape);
  shape[first] = at(dag, a)->shape[second];
  shape[second] = at(dag, a)->shape[first];
  /* the same elements in order, where one of size 1 passes none */
  if ((thin(dag, a, first) || thin(dag, a, second)) && !apart)
    return dfgnn__make_reshape(dag, a, shape);
  if (is_op(dag, a, DFGNN_NODE_SWAP) && at(dag, a)->axis == first &&
      at(dag, a)->flags == second)
    return arg(dag, a, 0);
  return shaped(dag,
                (dfgnn_node){.op = DFGNN_NODE_SWAP,
                             .axis = (uint8_t)first,
                             .flags = (uint8_t)second},
                a, shape);
}

int32_t dfgnn__make_whole(dfgnn_dag *dag, int32_t a, int count,
                          const int32_t *arguments) {
  dfgnn_node node = {0};
  if (!dfgnn__make_join(dag, &node, count, arguments))
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

/* ---- over edges, and over everything ------------------------------------- */

/* Does a value not vary along the sum that ends at a place: over the edges of
 * a node, or over everything, at PARAM? */
static int stays(const dfgnn_dag *dag, int32_t n, int to) {
  int place = at(dag, n)->place;
  return dfgnn__place_rank(place) < 2 || place == to;
}

static int32_t reduction(dfgnn_dag *dag, int op, int32_t a, int to) {
  dfgnn_node node = {.op = (uint8_t)op};
  if (!dfgnn__make_join(dag, &node, 1, &a))
    return 0;
  node.place = (uint8_t)to;
  return dfgnn__dag_intern(dag, &node, &a);
}

/* sum(w fsum(a f)) = fsum(a sum(w f)) where a leaves the sum: w is what else
 * is in the product, all of size 1 along the axis.  -1: there is no such. */
static int32_t exchange(dfgnn_dag *dag, int32_t n, int to) {
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
    if (!fits ||
        !dfgnn__make_split(dag, arg(dag, dot, 0), stays, to, &outside, &inside))
      continue;
    for (int k = 0; k < count; k++)
      if (k != i)
        inside = dfgnn__make_mul(dag, inside, arg(dag, n, k));
    int32_t sum = dfgnn__make_sum(dag, inside, (dfgnn_place)to);
    outside =
        dfgnn__make_present(dag, outside, (dfgnn_place)to, DFGNN_PLACE_EDGE);
    return dfgnn__make_fold(dag, DFGNN_NODE_FSUM,
                            dfgnn__make_mul(dag, outside, sum), axis);
  }
  return -1;
}

/* A product whose factors that do not vary are outside of the sum; -1: none
 * leaves it. */
static int32_t sum_of_rest(dfgnn_dag *dag, int32_t a, dfgnn_place to,
                           dfgnn_place from) {
  int32_t outside, inside;
  if (!is_op(dag, a, DFGNN_NODE_MUL) ||
      !dfgnn__make_split(dag, a, stays, to, &outside, &inside))
    return -1;
  int32_t sum = to == DFGNN_PLACE_PARAM ? dfgnn__make_sum_all(dag, inside, from)
                                        : dfgnn__make_sum(dag, inside, to);
  return dfgnn__make_mul(dag, dfgnn__make_present(dag, outside, to, from), sum);
}

int32_t dfgnn__make_sum(dfgnn_dag *dag, int32_t a, dfgnn_place to) {
  if (dfgnn__is_number(dag, a, 0))
    return a;
  if (dag->as_written)
    return reduction(dag, DFGNN_NODE_SUM, a, to);
  if (stays(dag, a, to))
    return dfgnn__make_mul(dag,
                           dfgnn__make_present(dag, a, to, DFGNN_PLACE_EDGE),
                           dfgnn__make_degree(dag, to));
  int32_t made = sum_of_rest(dag, a, to, DFGNN_PLACE_EDGE);
  if (made < 0)
    made = exchange(dag, a, to);
  return made >= 0 ? made : reduction(dag, DFGNN_NODE_SUM, a, to);
}

int32_t dfgnn__make_sum_all(dfgnn_dag *dag, int32_t a, dfgnn_place from) {
  const dfgnn_place place = (dfgnn_place)at(dag, a)->place;
  if (dfgnn__is_number(dag, a, 0) || from <= DFGNN_PLACE_PARAM)
    return a;
  if (from == DFGNN_PLACE_EDGE && dfgnn__place_rank(place) == 2) {
    a = dfgnn__make_mul(dag,
                        dfgnn__make_present(dag, a, place, DFGNN_PLACE_EDGE),
                        dfgnn__make_degree(dag, place));
    from = place;
  }
  if (stays(dag, a, DFGNN_PLACE_PARAM))
    return dfgnn__make_mul(dag,
                           dfgnn__make_present(dag, a, DFGNN_PLACE_PARAM, from),
                           dfgnn__make_count(dag, from));
  if (dag->as_written)
    return reduction(dag, DFGNN_NODE_SUM_ALL, a, DFGNN_PLACE_PARAM);
  int32_t made = sum_of_rest(dag, a, DFGNN_PLACE_PARAM, from);
  return made >= 0 ? made
                   : reduction(dag, DFGNN_NODE_SUM_ALL, a, DFGNN_PLACE_PARAM);
}

int32_t dfgnn__make_extreme(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                            dfgnn_place to) {
  if (!stays(dag, a, to) || dag->as_written)
    return reduction(dag, op, a, to);
  if (op == DFGNN_NODE_LSE)
    return dfgnn__make_add(
        dag, dfgnn__make_present(dag, a, to, DFGNN_PLACE_EDGE),
        dfgnn__make_unary(dag, DFGNN_NODE_LOG, dfgnn__make_degree(dag, to), 0));
  return dfgnn__make_where(dag, dfgnn__make_presence(dag, to, DFGNN_PLACE_EDGE),
                           a, 0);
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
  case DFGNN_NODE_ATAN2:
  case DFGNN_NODE_MAX:
  case DFGNN_NODE_LT:
  case DFGNN_NODE_LE:
  case DFGNN_NODE_EQ:
    return dfgnn__make_binary(dag, node->op, a[0], a[1]);
  case DFGNN_NODE_WHERE:
    return dfgnn__make_where(dag, a[0], a[1], a[2]);
  case DFGNN_NODE_SUM:
    return dfgnn__make_sum(dag, a[0], (dfgnn_place)node->place);
  case DFGNN_NODE_SUM_ALL:
    return dfgnn__make_sum_all(dag, a[0], (dfgnn_place)at(dag, a[0])->place);
  case DFGNN_NODE_MAX_EDGES:
  case DFGNN_NODE_LSE:
    return dfgnn__make_extreme(dag, node->op, a[0], (dfgnn_place)node->place);
  default:
    return dfgnn__make_unary(dag, node->op, a[0], node->number);
  }
}
