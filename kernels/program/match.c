#include "kernels/program/match.h"

#include "kernels/program/make.h"

enum {
  MOST_PARTS = 32, /* terms of a sum, factors of a product */
  NOT_SEEN = -1,   /* an input of the pattern */
  MISSING = -2     /* likewise: the program has none, here or elsewhere */
};

/* The inputs and sizes that pattern and program are known to share. */
typedef struct common {
  int32_t input[DFGNN_DAG_INPUTS];   /* of the program, for the pattern's */
  dfgnn_size size[DFGNN_SIZE_NAMES]; /* for the pattern's names */
  uint8_t size_known[DFGNN_SIZE_NAMES];
  uint8_t scale_known, slope_known, dropout_known;
  double scale, scale_power, slope, dropout;
  dfgnn_size scale_size;
  int dropout_index;
} common;

typedef struct matcher {
  const dfgnn_dag *pattern, *dag;
  const uint8_t *optional; /* by input of the pattern */
  common c;
} matcher;

/* The program's axis that each axis of the pattern is. */
typedef struct axes {
  int8_t of[DFGNN_DAG_AXES];
} axes;

static const axes straight = {{0, 1, 2}};

static const dfgnn_node *at(const dfgnn_dag *dag, int32_t n) {
  return &dag->nodes[n];
}

static int32_t argument(const dfgnn_dag *dag, int32_t n, int i) {
  return dfgnn__dag_argument(dag, n, i);
}

static int match(matcher *m, int32_t p, int32_t n, axes x);

/* ---- sizes and axes ------------------------------------------------------ */

/* A size of a pattern is 1, another number, or a name alone. */
static int match_size(matcher *m, dfgnn_size p, dfgnn_size n) {
  if (!dfgnn__size_named(p))
    return dfgnn__size_same(p, n);
  for (int i = 0; i < DFGNN_SIZE_NAMES; i++) {
    if (!p.times[i])
      continue;
    if (m->c.size_known[i])
      return dfgnn__size_same(m->c.size[i], n);
    m->c.size[i] = n;
    m->c.size_known[i] = 1;
  }
  return 1;
}

/* Sizes and, in memory, the order of elements are the same: [D,H] is no [H,D].
 */
static int match_shape(matcher *m, const dfgnn_size *p, const dfgnn_size *n,
                       axes x) {
  int last = -1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++) {
    const int axis = x.of[i];
    if (!match_size(m, p[i], n[axis]))
      return 0;
    if (dfgnn__size_is(n[axis], 1))
      continue;
    if (axis < last)
      return 0;
    last = axis;
  }
  return 1;
}

/* Does a reshape move nothing but axes of size 1?  Then `x`, of its result,
 * becomes what it is of its argument. */
static int is_squeeze(const dfgnn_dag *dag, int32_t n, axes *x) {
  int8_t where[DFGNN_DAG_AXES];
  if (!dfgnn__make_squeeze(where, at(dag, argument(dag, n, 0))->shape,
                           at(dag, n)->shape))
    return 0;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    x->of[i] = where[x->of[i]];
  return 1;
}

/* ---- sums and products --------------------------------------------------- */

typedef struct parts {
  int count;
  double number; /* of a product */
  int32_t part[MOST_PARTS];
} parts;

static int add_terms(parts *to, const dfgnn_dag *dag, int32_t n) {
  if (at(dag, n)->op == DFGNN_NODE_ADD)
    return add_terms(to, dag, argument(dag, n, 0)) &&
           add_terms(to, dag, argument(dag, n, 1));
  if (to->count == MOST_PARTS)
    return 0;
  to->part[to->count++] = n;
  return 1;
}

static int add_factors(parts *to, const dfgnn_dag *dag, int32_t n) {
  const dfgnn_node *node = at(dag, n);
  const int product = node->op == DFGNN_NODE_MUL;
  for (int i = 0; i < (product ? node->count : 1); i++) {
    int32_t f = product ? argument(dag, n, i) : n;
    if (at(dag, f)->op == DFGNN_NODE_NUMBER)
      to->number *= at(dag, f)->number;
    else if (to->count == MOST_PARTS)
      return 0;
    else
      to->part[to->count++] = f;
  }
  return 1;
}

/* Does the program do without a part of the pattern? */
static int miss(matcher *m, int32_t p) {
  const dfgnn_node *node = at(m->pattern, p);
  if (node->op == DFGNN_NODE_WHERE && /* what left a sum */
      dfgnn__is_presence(m->pattern, argument(m->pattern, p, 0)))
    node = at(m->pattern, argument(m->pattern, p, 1));
  if (node->op == DFGNN_NODE_KEEP)
    return 1;
  if (node->op != DFGNN_NODE_INPUT || m->c.input[node->index] >= 0 ||
      !m->optional[node->index])
    return 0;
  m->c.input[node->index] = MISSING;
  return 1;
}

/* Pairs the pattern's parts from `k` on with those of the program that are not
 * taken; all of the program's have to be. */
static int pair_up(matcher *m, const parts *p, const parts *n, int k,
                   uint32_t taken, axes x) {
  if (k == p->count)
    return taken == (uint32_t)((1ull << n->count) - 1);
  for (int i = 0; i < n->count; i++) {
    const common before = m->c;
    if (taken >> i & 1)
      continue;
    if (match(m, p->part[k], n->part[i], x) &&
        pair_up(m, p, n, k + 1, taken | 1u << i, x))
      return 1;
    m->c = before;
  }
  return miss(m, p->part[k]) && pair_up(m, p, n, k + 1, taken, x);
}

static int match_sum(matcher *m, int32_t p, int32_t n, axes x) {
  parts pattern = {0}, program = {0};
  return add_terms(&pattern, m->pattern, p) && add_terms(&program, m->dag, n) &&
         program.count <= pattern.count &&
         pair_up(m, &pattern, &program, 0, 0, x);
}

/* A power of a size, in place of which a program has any number. */
static int is_scale(const dfgnn_dag *pattern, int32_t p) {
  if (at(pattern, p)->op == DFGNN_NODE_POW)
    p = argument(pattern, p, 0);
  return at(pattern, p)->op == DFGNN_NODE_SIZE;
}

/* Takes the number of a product, with a size or a power of one: 1 / sqrt(D). */
static int take_scale(matcher *m, parts *n) {
  common found = m->c;
  found.scale = n->number;
  found.scale_power = 0;
  for (int i = 0; i < n->count; i++) {
    const dfgnn_node *node = at(m->dag, n->part[i]);
    double power = 1;
    if (node->op == DFGNN_NODE_POW) {
      power = node->number;
      node = at(m->dag, argument(m->dag, n->part[i], 0));
    }
    if (node->op != DFGNN_NODE_SIZE)
      continue;
    found.scale_power = power;
    found.scale_size = node->at;
    n->part[i--] = n->part[--n->count];
    break;
  }
  n->number = 1;
  if (m->c.scale_known)
    return m->c.scale == found.scale && m->c.scale_power == found.scale_power &&
           dfgnn__size_same(m->c.scale_size, found.scale_size);
  m->c = found;
  m->c.scale_known = 1;
  return 1;
}

static int match_product(matcher *m, int32_t p, int32_t n, axes x) {
  parts pattern = {.number = 1}, program = {.number = 1};
  if (!add_factors(&pattern, m->pattern, p) ||
      !add_factors(&program, m->dag, n))
    return 0;
  for (int i = 0; i < pattern.count; i++) {
    if (!is_scale(m->pattern, pattern.part[i]))
      continue;
    pattern.part[i] = pattern.part[--pattern.count];
    program.number /= pattern.number;
    pattern.number = 1;
    if (!take_scale(m, &program))
      return 0;
    break;
  }
  return pattern.number == program.number && program.count <= pattern.count &&
         pair_up(m, &pattern, &program, 0, 0, x);
}

/* ---- values -------------------------------------------------------------- */

static int match_input(matcher *m, int32_t p, int32_t n, axes x) {
  const dfgnn_node *pattern = at(m->pattern, p), *node = at(m->dag, n);
  int32_t *bound = &m->c.input[pattern->index];
  if (!match_shape(m, pattern->shape, node->shape, x))
    return 0;
  /* a dense tensor has the same memory in another shape */
  for (; node->op == DFGNN_NODE_RESHAPE; node = at(m->dag, n))
    n = argument(m->dag, n, 0);
  if (node->op != DFGNN_NODE_INPUT || node->place != pattern->place ||
      (*bound != NOT_SEEN && *bound != node->index))
    return 0;
  *bound = node->index;
  return 1;
}

static int match_keep(matcher *m, const dfgnn_node *p, const dfgnn_node *n,
                      axes x) {
  if (n->op != DFGNN_NODE_KEEP || n->place != p->place || n->number >= 1 ||
      m->c.dropout_known || !match_shape(m, p->shape, n->shape, x))
    return 0;
  m->c.dropout_known = 1;
  m->c.dropout = n->number;
  m->c.dropout_index = n->index;
  return 1;
}

static int match_slope(matcher *m, double slope) {
  if (m->c.slope_known)
    return m->c.slope == slope;
  m->c.slope = slope;
  return m->c.slope_known = 1;
}

static int match_arguments(matcher *m, int32_t p, int32_t n, axes x) {
  const int count = at(m->pattern, p)->count;
  if (count != at(m->dag, n)->count)
    return 0;
  for (int swap = 0; swap < (count == 2 ? 2 : 1); swap++) {
    const common before = m->c;
    int same = 1;
    for (int i = 0; same && i < count; i++)
      same = match(m, argument(m->pattern, p, i),
                   argument(m->dag, n, swap ? 1 - i : i), x);
    if (same)
      return 1;
    m->c = before;
    if (at(m->pattern, p)->op != DFGNN_NODE_MAX)
      return 0;
  }
  return 0;
}

/* A sum along an axis: that axis of the argument is the pattern's, whatever
 * axis of size 1 the result has there. */
static int match_fold(matcher *m, int32_t p, int32_t n, axes x) {
  const int axis = at(m->pattern, p)->axis;
  const int8_t to = (int8_t)at(m->dag, n)->axis, from = x.of[axis];
  if (!dfgnn__size_is(at(m->dag, n)->shape[from], 1))
    return 0;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    if (x.of[i] == to)
      x.of[i] = from;
  x.of[axis] = to;
  return match_arguments(m, p, n, x);
}

static int match_node(matcher *m, int32_t p, int32_t n, axes x) {
  const dfgnn_node *pattern = at(m->pattern, p), *node = at(m->dag, n);
  if (pattern->op != node->op || pattern->place != node->place ||
      pattern->flags != node->flags)
    return 0;
  switch (pattern->op) {
  case DFGNN_NODE_NUMBER:
  case DFGNN_NODE_POW:
    return pattern->number == node->number && match_arguments(m, p, n, x);
  case DFGNN_NODE_LEAKY:
    return match_slope(m, node->number) && match_arguments(m, p, n, x);
  case DFGNN_NODE_FSUM:
    return match_fold(m, p, n, x);
  case DFGNN_NODE_MATMUL:
    return x.of[0] == 0 && x.of[1] == 1 && match_arguments(m, p, n, x);
  default:
    return match_arguments(m, p, n, x);
  }
}

static int match(matcher *m, int32_t p, int32_t n, axes x) {
  const dfgnn_node *pattern = at(m->pattern, p);
  if (pattern->op == DFGNN_NODE_INPUT)
    return match_input(m, p, n, x);
  while (at(m->dag, n)->op == DFGNN_NODE_RESHAPE && is_squeeze(m->dag, n, &x))
    n = argument(m->dag, n, 0);
  switch (pattern->op) {
  case DFGNN_NODE_ADD:
    return match_sum(m, p, n, x);
  case DFGNN_NODE_MUL:
    return match_product(m, p, n, x);
  case DFGNN_NODE_KEEP:
    return match_keep(m, pattern, at(m->dag, n), x);
  case DFGNN_NODE_RESHAPE: /* heads of a projected row; one head needs none */
    if (!match_shape(m, pattern->shape, at(m->dag, n)->shape, x))
      return 0;
    if (at(m->dag, n)->op == DFGNN_NODE_RESHAPE)
      n = argument(m->dag, n, 0);
    return match(m, argument(m->pattern, p, 0), n, straight);
  default:
    return match_node(m, p, n, x);
  }
}

/* ---- programs ------------------------------------------------------------ */

/* numbers: the result has no features, so that [H] may stand for [H,1] */
static int match_output(matcher *m, int32_t p, const dfgnn_port *port,
                        int numbers) {
  static const axes tried[] = {{{0, 1, 2}}, {{0, 2, 1}}};
  int32_t n = port->node;
  if (!dfgnn__port_holds(m->dag, port))
    return 0;
  /* the memory of a dense result is the same in another shape */
  while (at(m->dag, n)->op == DFGNN_NODE_RESHAPE)
    n = argument(m->dag, n, 0);
  for (int k = 0; k < 1 + numbers; k++) {
    const common before = m->c;
    if (match(m, p, n, tried[k]))
      return 1;
    m->c = before;
  }
  return 0;
}

static void fill(dfgnn_match *match, const matcher *m) {
  int features = 0;
  match->heads = dfgnn__size(1);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    match->dim[i] = dfgnn__size(1);
  match->edge_dim = dfgnn__size(0);
  for (int i = 0; i < m->pattern->name_count; i++) {
    const char *name = m->pattern->names[i];
    if (!m->c.size_known[i])
      continue;
    if (!strcmp(name, "H"))
      match->heads = m->c.size[i];
    else if (!strcmp(name, "F"))
      match->edge_dim = m->c.size[i];
    else if (strcmp(name, "K") != 0)
      match->dim[features++] = m->c.size[i];
  }
  match->input_count = 0;
  for (int i = 0; i < m->pattern->input_count; i++)
    if (m->c.input[i] >= 0)
      match->inputs[match->input_count++] =
          (dfgnn_match_port){m->pattern->inputs[i].name, m->c.input[i]};
  match->scale = m->c.scale_known ? m->c.scale : 1;
  match->scale_size = m->c.scale_size;
  match->scale_power = m->c.scale_power;
  match->slope = m->c.slope;
  match->dropout = m->c.dropout;
  match->dropout_index = m->c.dropout_known ? m->c.dropout_index : -1;
}

int dfgnn__match_pattern(dfgnn_match *match, const dfgnn_dag *dag,
                         const dfgnn_dag *pattern, const uint8_t *optional) {
  matcher m = {.pattern = pattern, .dag = dag, .optional = optional};
  uint8_t taken[DFGNN_MATCH_PORTS] = {0};
  for (int i = 0; i < DFGNN_DAG_INPUTS; i++)
    m.c.input[i] = NOT_SEEN;
  match->output_count = 0;
  if (dag->output_count > pattern->output_count)
    return 0;
  /* `out` first: it has all inputs */
  for (int k = 0; k < pattern->output_count; k++)
    for (int i = 0; i < dag->output_count; i++) {
      if (taken[i] ||
          !match_output(&m, pattern->outputs[k].node, &dag->outputs[i], k > 0))
        continue;
      taken[i] = 1;
      match->outputs[match->output_count++] =
          (dfgnn_match_port){pattern->outputs[k].name, i};
      break;
    }
  if (match->output_count != dag->output_count || !match->output_count ||
      strcmp(match->outputs[0].argument, "out") != 0)
    return 0;
  fill(match, &m);
  return 1;
}

int dfgnn__match_find(const dfgnn_match_port *ports, int count,
                      const char *argument_name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(ports[i].argument, argument_name))
      return ports[i].port;
  return -1;
}
