/* reference.c - programs in double, plainly, with a running error bound
 *
 * bound[i] is how far an evaluation in sums of unit roundoff u may be from
 * value[i]: what its operands may be off, times the derivative, and u for each
 * rounding (8 u for functions, n u for a sum of n) and what may become 0
 * because it is too small, or of a type of 16 bits in which a sum reads what it
 * adds.  A comparison that rounding could turn has a bound of 1, a number that
 * is too large none. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/common/dropout.h"
#include "kernels/common/host_view.h"
#include "kernels/program/job.h"
#include "kernels/program/make.h"

#define AXES DFGNN_DAG_AXES

typedef struct number {
  double x, e;
} number;

typedef struct reference {
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  dfgnn_extent *extents;
  number **values;
  int64_t *row; /* destination of each edge */
  double u;
  double least, most; /* of the numbers of such sums; less may become 0 */
  const uint8_t *term_types; /* of the terms of sums, that are rounded */
} reference;

/* ---- functions of numbers ------------------------------------------------ */

static number rounded(const reference *r, double x, double e, double times) {
  return (number){x, fabs(x) + e > r->most
                         ? INFINITY
                         : e + times * r->u * (fabs(x) + e) + r->least};
}

/* The error of y = f(a) where the derivative is at most `slope` near a. */
static number through(const reference *r, number a, double y, double slope) {
  return rounded(r, y, a.e * fabs(slope), 8);
}

/* The error of a steep function, y = f(a): how far its values lie apart at both
 * ends of a's interval. */
static number between(const reference *r, int op, number a, double c,
                      double y) {
  double low = dfgnn__unary_number(op, a.x - a.e, c);
  double high = dfgnn__unary_number(op, a.x + a.e, c);
  double e = fmax(fabs(low - y), fabs(high - y));
  return rounded(r, y, isnan(e) && !isnan(y) ? INFINITY : e, 8);
}

/* The constant of a function, which a kernel may round to float. */
static number constant(const reference *r, double c) {
  return (number){c, (double)(float)c == c ? 0 : r->u * fabs(c)};
}

static number unary(const reference *r, const dfgnn_node *node, number a) {
  const number c = constant(r, node->number);
  const double y = dfgnn__unary_number(node->op, a.x, c.x);
  number steep;
  switch (node->op) {
  case DFGNN_NODE_POW:
    steep = between(r, node->op, a, c.x, y);
    if (c.e > 0 && a.x > 0)
      steep.e += c.e * fabs(y * log(a.x));
    return steep;
  case DFGNN_NODE_EXP:
  case DFGNN_NODE_EXPM1:
  case DFGNN_NODE_LOG:
  case DFGNN_NODE_LOG1P:
  case DFGNN_NODE_SIGMOID:
    return between(r, node->op, a, 0, y);
  case DFGNN_NODE_TANH:
  case DFGNN_NODE_SOFTPLUS:
  case DFGNN_NODE_SIN:
  case DFGNN_NODE_COS:
    return through(r, a, y, 1);
  case DFGNN_NODE_ERF:
    return through(r, a, y, M_2_SQRTPI);
  case DFGNN_NODE_SIGN:
    return (number){y, a.x && fabs(a.x) <= a.e ? 2 : 0};
  case DFGNN_NODE_LEAKY:
    return rounded(r, y, a.e * fmax(1, fabs(c.x)) + c.e * fabs(a.x), 1);
  default: /* ABS, RELU, DETACH, EXPAND and their like */
    return (number){y, a.e};
  }
}

static number compared(int true_, number a, number b) {
  double apart = fabs(a.x - b.x), off = a.e + b.e;
  return (number){true_, apart != 0 && apart <= off ? 1 : 0};
}

/* atan2 has a slope of 1 / length, and jumps where the second argument is
 * negative and the first changes its sign. */
static number angle(const reference *r, number y, number x) {
  const double length = hypot(x.x, y.x), off = x.e + y.e;
  const int jumps = x.x <= x.e && fabs(y.x) <= y.e && off > 0;
  double e = off > 0 ? off / fmax(length - off, 0) : 0;
  if (jumps || !(e < 2 * M_PI))
    e = 2 * M_PI;
  return rounded(r, atan2(y.x, x.x), e, 8);
}

static number binary(const reference *r, int op, number a, number b) {
  switch (op) {
  case DFGNN_NODE_ADD:
    return rounded(r, a.x + b.x, a.e + b.e, 1);
  case DFGNN_NODE_MUL:
    return rounded(r, a.x * b.x, fabs(a.x) * b.e + fabs(b.x) * a.e + a.e * b.e,
                   1);
  case DFGNN_NODE_ATAN2:
    return angle(r, a, b);
  case DFGNN_NODE_MAX:
    return a.x > b.x || isnan(a.x) ? (number){a.x, fmax(a.e, b.e)}
                                   : (number){b.x, fmax(a.e, b.e)};
  case DFGNN_NODE_LT:
    return compared(a.x < b.x, a, b);
  case DFGNN_NODE_LE:
    return compared(a.x <= b.x, a, b);
  default:
    return compared(a.x == b.x, a, b);
  }
}

/* ---- where an argument's element is -------------------------------------- */

static int64_t item_of(const reference *r, int from, int to, int64_t item) {
  if (from <= DFGNN_PLACE_PARAM)
    return 0;
  if (from == to)
    return item;
  return from == DFGNN_PLACE_DST   ? r->row[item]
         : from == DFGNN_PLACE_SRC ? r->job->rows.indices[item]
                                   : r->job->relation_of[item];
}

static int64_t spread(const dfgnn_extent *e, const int64_t *at) {
  int64_t offset = 0;
  for (int axis = 0; axis < AXES; axis++)
    offset = offset * e->axis[axis] + (e->axis[axis] == 1 ? 0 : at[axis]);
  return offset;
}

/* Element `at` of an argument for an item of place `to`. */
static number get(const reference *r, int32_t a, int to, int64_t item,
                  const int64_t *at) {
  const dfgnn_extent *e = &r->extents[a];
  int64_t row = item_of(r, r->dag->nodes[a].place, to, item);
  return r->values[a][row * e->all + spread(e, at)];
}

static int64_t items_of(const reference *r, int place) {
  return r->job->binding->counts[place];
}

/* ---- nodes --------------------------------------------------------------- */

static number along(const reference *r, int32_t n, int64_t item,
                    const int64_t *at) {
  const dfgnn_node *node = &r->dag->nodes[n];
  int32_t a = dfgnn__dag_argument(r->dag, n, 0);
  int64_t here[AXES] = {at[0], at[1], at[2]};
  const int64_t length = r->extents[a].axis[node->axis];
  number y = {0, 0};
  double sizes = 0;
  for (int64_t i = 0; i < length; i++) {
    here[node->axis] = i;
    number x = get(r, a, node->place, item, here);
    if (node->op == DFGNN_NODE_FMAX) {
      y = i ? binary(r, DFGNN_NODE_MAX, y, x) : x;
      continue;
    }
    y.x += x.x;
    y.e += x.e;
    sizes += fabs(x.x);
  }
  y.e += (double)length * r->u * (sizes + y.e);
  return y;
}

static number product(const reference *r, int32_t n, int64_t item,
                      const int64_t *at) {
  const dfgnn_node *node = &r->dag->nodes[n];
  int32_t a = dfgnn__dag_argument(r->dag, n, 0);
  int32_t b = dfgnn__dag_argument(r->dag, n, 1);
  const int first = node->flags & DFGNN_MATMUL_FIRST;
  const int second = node->flags & DFGNN_MATMUL_SECOND;
  const int64_t inner = r->extents[a].axis[first ? 1 : 2];
  number y = {0, 0};
  double sizes = 0;
  for (int64_t k = 0; k < inner; k++) {
    int64_t p[AXES] = {at[0], first ? k : at[1], first ? at[1] : k};
    int64_t q[AXES] = {at[0], second ? at[2] : k, second ? k : at[2]};
    number x = binary(r, DFGNN_NODE_MUL, get(r, a, node->place, item, p),
                      get(r, b, node->place, item, q));
    y.x += x.x;
    y.e += x.e;
    sizes += fabs(x.x);
  }
  y.e += (double)inner * r->u * (sizes + y.e);
  return y;
}

static number element(const reference *r, int32_t n, int64_t item, int64_t i,
                      const int64_t *at) {
  const dfgnn_node *node = &r->dag->nodes[n];
  number a[DFGNN_DAG_AXES];
  int64_t here[AXES] = {at[0], at[1], at[2]};
  switch (node->op) {
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_FMAX:
    return along(r, n, item, at);
  case DFGNN_NODE_MATMUL:
    return product(r, n, item, at);
  case DFGNN_NODE_SLICE:
    here[2] += dfgnn__size_value(node->at, r->job->binding->names);
    return get(r, dfgnn__dag_argument(r->dag, n, 0), node->place, item, here);
  case DFGNN_NODE_SWAP:
    here[node->axis] = at[node->flags];
    here[node->flags] = at[node->axis];
    return get(r, dfgnn__dag_argument(r->dag, n, 0), node->place, item, here);
  case DFGNN_NODE_CAT:
    for (int k = 0;; k++) {
      int32_t part = dfgnn__dag_argument(r->dag, n, k);
      if (here[2] < r->extents[part].axis[2])
        return get(r, part, node->place, item, here);
      here[2] -= r->extents[part].axis[2];
    }
  case DFGNN_NODE_RESHAPE: {
    int32_t from = dfgnn__dag_argument(r->dag, n, 0);
    return r->values[from][item * r->extents[from].all + i];
  }
  default:
    break;
  }
  if (node->op == DFGNN_NODE_MUL && node->count > 2) {
    number y = get(r, dfgnn__dag_argument(r->dag, n, 0), node->place, item, at);
    for (int k = 1; k < node->count; k++)
      y = binary(
          r, DFGNN_NODE_MUL, y,
          get(r, dfgnn__dag_argument(r->dag, n, k), node->place, item, at));
    return y;
  }
  for (int k = 0; k < node->count; k++)
    a[k] = get(r, dfgnn__dag_argument(r->dag, n, k), node->place, item, at);
  if (node->op == DFGNN_NODE_WHERE) {
    number chosen = a[0].x != 0 ? a[1] : a[2];
    if (a[0].e > 0)
      chosen.e = fmax(a[1].e, a[2].e) + fabs(a[1].x - a[2].x);
    return chosen;
  }
  return node->count == 2 ? binary(r, node->op, a[0], a[1])
                          : unary(r, node, a[0]);
}

static number leaf(const reference *r, int32_t n, int64_t item, int64_t i) {
  const dfgnn_node *node = &r->dag->nodes[n];
  const int64_t all = r->extents[n].all;
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    return (number){node->number, r->u * fabs(node->number)};
  case DFGNN_NODE_SIZE:
    return (number){(double)dfgnn__size_value(node->at, r->job->binding->names),
                    0};
  case DFGNN_NODE_COUNT:
    return rounded(r, (double)items_of(r, node->index), 0, 1);
  case DFGNN_NODE_INPUT: {
    const dfgnn_program_array *from = &r->job->inputs[node->index];
    return (number){dfgnn__number_at(from->dtype, from->data, item * all + i),
                    0};
  }
  default: { /* KEEP */
    uint64_t key = dfgnn__dropout_key(r->job->seed + (uint64_t)node->index);
    if (node->number >= 1 ||
        dfgnn__dropped(key, item, all, i,
                       dfgnn__dropout_threshold(node->number)))
      return (number){0, 0};
    return rounded(r, 1 / (1 - node->number), 0, 1);
  }
  }
}

/* Which item of a reduction's result an edge, or another item, goes to. */
static int64_t target(const reference *r, int place, int64_t item) {
  if (place <= DFGNN_PLACE_PARAM)
    return 0;
  return item_of(r, place, DFGNN_PLACE_EDGE, item);
}

/* A number that is read from a tensor of a type. */
static number stored(dfgnn_dtype dtype, number a) {
  const double most = fabs(a.x) + a.e;
  a.e = isinf(dfgnn__in_range(dtype, most))
            ? INFINITY
            : a.e + dfgnn__rounding(dtype, most);
  return a;
}

/* Sums, extremes and logsumexp: the maximum first, then what needs it. */
static void reduce(reference *r, int32_t n) {
  const dfgnn_node *node = &r->dag->nodes[n];
  const int op = node->op;
  int32_t a = dfgnn__dag_argument(r->dag, n, 0);
  const int from =
      op == DFGNN_NODE_SUM_ALL ? r->dag->nodes[a].place : DFGNN_PLACE_EDGE;
  const int64_t all = r->extents[n].all, count = items_of(r, node->place);
  const int max = op == DFGNN_NODE_MAX_EDGES;
  const int lse = op == DFGNN_NODE_LSE;
  const uint8_t type = r->term_types ? r->term_types[n] : 0;
  double *top = malloc((size_t)(count * all + 1) * sizeof *top);
  double *sizes = calloc((size_t)(count * all + 1), sizeof *sizes);
  int64_t *terms = calloc((size_t)count + 1, sizeof *terms);
  number *y = r->values[n];
  if (!top || !sizes || !terms)
    goto out;
  for (int64_t i = 0; i < count * all; i++) {
    top[i] = -INFINITY;
    y[i] = (number){0, 0};
  }
  for (int64_t item = 0; item < items_of(r, from); item++) {
    const int64_t to = target(r, node->place, item);
    const int64_t row = item_of(r, r->dag->nodes[a].place, from, item);
    terms[to]++;
    for (int64_t i = 0; i < all; i++) {
      number x = r->values[a][row * all + i];
      if (type)
        x = stored((dfgnn_dtype)type, x);
      number *sum = &y[to * all + i];
      if (x.x > top[to * all + i] || isnan(x.x))
        top[to * all + i] = x.x;
      sum->e = max || lse ? fmax(sum->e, x.e) : sum->e + x.e;
      sum->x += x.x;
      sizes[to * all + i] += fabs(x.x);
    }
  }
  for (int64_t i = 0; (max || lse) && i < count * all; i++)
    y[i].x = max ? (terms[i / all] ? top[i] : 0) : 0;
  for (int64_t item = 0; lse && item < items_of(r, from); item++) {
    const int64_t to = target(r, node->place, item);
    const int64_t row = item_of(r, r->dag->nodes[a].place, from, item);
    for (int64_t i = 0; i < all; i++) {
      double t = isinf(top[to * all + i]) ? 0 : top[to * all + i];
      y[to * all + i].x += exp(r->values[a][row * all + i].x - t);
    }
  }
  for (int64_t i = 0; i < count * all; i++) {
    const double n_u = ((double)terms[i / all] + 8) * r->u;
    if (lse) {
      double t = isinf(top[i]) ? 0 : top[i];
      y[i].x = t + log(y[i].x);
      y[i].e += n_u + r->u * (fabs(t) + fabs(y[i].x)) * 4;
    } else if (!max) {
      y[i].e += n_u * (sizes[i] + y[i].e);
    }
  }
out:
  free(top);
  free(sizes);
  free(terms);
}

static void fill(reference *r, int32_t n) {
  const dfgnn_node *node = &r->dag->nodes[n];
  const dfgnn_extent *e = &r->extents[n];
  const dfgnn_matrix *m = dfgnn__program_matrix(r->job, node->place);
  for (int64_t item = 0, k = 0; item < items_of(r, node->place); item++)
    for (int64_t i = 0; i < e->all; i++, k++) {
      int64_t at[AXES] = {i / (e->axis[1] * e->axis[2]),
                          i / e->axis[2] % e->axis[1], i % e->axis[2]};
      if (node->op == DFGNN_NODE_DEGREE)
        r->values[n][k] = (number){
            (double)(dfgnn__offset_at(m, item + 1) - dfgnn__offset_at(m, item)),
            0};
      else if (node->op < DFGNN_NODE_ADD)
        r->values[n][k] = leaf(r, n, item, i);
      else
        r->values[n][k] = element(r, n, item, i, at);
    }
}

static void write_output(const reference *r, const dfgnn_port *port,
                         double *values, double *bounds) {
  const dfgnn_extent e = dfgnn__bind_port(port, r->job->binding);
  for (int64_t item = 0, k = 0; item < items_of(r, port->place); item++)
    for (int64_t i = 0; i < e.all; i++, k++) {
      int64_t at[AXES] = {i / (e.axis[1] * e.axis[2]),
                          i / e.axis[2] % e.axis[1], i % e.axis[2]};
      number y = get(r, port->node, port->place, item, at);
      values[k] = y.x;
      bounds[k] = y.e;
    }
}

dfgnn_status dfgnn__program_reference(const dfgnn_program_job *job,
                                      const dfgnn_dag *dag, dfgnn_dtype dtype,
                                      const uint8_t *types, double **values,
                                      double **bounds) {
  reference r = {.job = job,
                 .dag = dag,
                 .term_types = types,
                 .u = dtype == DFGNN_F64 ? DBL_EPSILON / 2 : FLT_EPSILON / 2,
                 .least = dtype == DFGNN_F64 ? DBL_MIN : FLT_MIN,
                 .most = dtype == DFGNN_F64 ? DBL_MAX : FLT_MAX};
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  r.extents = calloc((size_t)dag->count, sizeof *r.extents);
  r.values = calloc((size_t)dag->count, sizeof *r.values);
  r.row = malloc(((size_t)job->rows.edges + 1) * sizeof *r.row);
  if (!r.extents || !r.values || !r.row)
    goto out;
  for (int64_t row = 0; row < job->rows.destinations; row++)
    for (int64_t e = dfgnn__offset_at(&job->rows, row);
         e < dfgnn__offset_at(&job->rows, row + 1); e++)
      r.row[e] = row;
  if ((status = dfgnn__bind_nodes(r.extents, dag, job->binding)))
    goto out;
  status = DFGNN_ERROR_MEMORY;
  for (int32_t n = 0; n < dag->count; n++) {
    int64_t elements = items_of(&r, dag->nodes[n].place) * r.extents[n].all;
    r.values[n] = malloc(((size_t)elements + 1) * sizeof *r.values[n]);
    if (!r.values[n])
      goto out;
    if (dfgnn__node_reduces(dag->nodes[n].op))
      reduce(&r, n);
    else
      fill(&r, n);
  }
  for (int i = 0; i < dag->output_count; i++)
    write_output(&r, &dag->outputs[i], values[i], bounds[i]);
  status = DFGNN_OK;
out:
  if (status == DFGNN_ERROR_MEMORY)
    dfgnn__fail(status, "out of memory for the reference");
  for (int32_t n = 0; r.values && n < dag->count; n++)
    free(r.values[n]);
  free(r.values);
  free(r.extents);
  free(r.row);
  return status;
}
