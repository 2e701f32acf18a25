#define _GNU_SOURCE /* open_memstream */
#include "kernels/program/cuda/generate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/dropout.h"
#include "kernels/program/cuda/plan.h"

enum { MOST_TEXTS = 4096 };

/* What is being written. */
typedef struct writer {
  FILE *to;
  walk_plan *p; /* of the walk; without one, values of no place */
  dfgnn_generated *g;
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  uint8_t *written; /* fused products of the function that is written */
  char **texts;     /* of expressions, freed together */
  int text_count;
} writer;

/* Where an expression is evaluated: the class of its result, and its element.
 */
typedef struct place {
  value_class c;
  int level;
  const char *axis[DFGNN_DAG_AXES], *flat;
} place;

static const char *text(writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const char *text(writer *w, const char *format, ...) {
  va_list args;
  char *made = NULL;
  if (w->text_count == MOST_TEXTS) { /* those of earlier statements */
    for (int i = 0; i < MOST_TEXTS / 2; i++)
      free(w->texts[i]);
    memmove(w->texts, w->texts + MOST_TEXTS / 2,
            MOST_TEXTS / 2 * sizeof *w->texts);
    w->text_count = MOST_TEXTS / 2;
  }
  va_start(args, format);
  if (vasprintf(&made, format, args) < 0)
    made = NULL;
  va_end(args);
  w->texts[w->text_count++] = made;
  return made ? made : "";
}

#define P(...) fprintf(w->to, __VA_ARGS__)

static const dfgnn_node *at(const writer *w, int32_t n) {
  return &w->dag->nodes[n];
}
static int32_t argument(const writer *w, int32_t n, int i) {
  return dfgnn__dag_argument(w->dag, n, i);
}
static const dfgnn_extent *extent(const writer *w, int32_t n) {
  return &w->job->extents[n];
}

static const char *type_name(dfgnn_dtype dtype) {
  static const char *const names[] = {"float", "half_t", "bfloat_t", "double"};
  return names[dtype];
}

static const char *number(writer *w, double x) {
  if (isnan(x))
    return "A(NAN)";
  if (isinf(x))
    return x < 0 ? "(-A(INFINITY))" : "A(INFINITY)";
  return text(w, "A(%.17g)", x);
}

/* ---- operands ------------------------------------------------------------ */

/* The offset of the element at these axes in a value of this extent. */
static const char *offset(writer *w, const dfgnn_extent *e,
                          const char *const *axis) {
  const char *sum = NULL;
  int64_t stride = 1;
  for (int i = DFGNN_DAG_AXES - 1; i >= 0; i--) {
    if (e->axis[i] != 1) {
      const char *term =
          stride == 1 ? text(w, "(%s)", axis[i])
                      : text(w, "(%s) * %lld", axis[i], (long long)stride);
      sum = sum ? text(w, "%s + %s", term, sum) : term;
    }
    stride *= e->axis[i];
  }
  return sum ? sum : "0";
}

/* The row of a leaf's array: of the walk, of the edge's other end, its id. */
static const char *item_of(const writer *w, int place) {
  if (place <= DFGNN_PLACE_PARAM)
    return "0";
  if (place == DFGNN_PLACE_EDGE)
    return "x.id";
  return dfgnn__level(place, w->p->walk->columns) == DFGNN_LEVEL_OWN ? "row"
                                                                     : "x.far";
}

static const char *array_type(const writer *w, int32_t n) {
  return at(w, n)->op == DFGNN_NODE_INPUT
             ? type_name(w->job->inputs[at(w, n)->index].dtype)
             : "A";
}

static int array_of(const writer *w, int32_t n) {
  return at(w, n)->op == DFGNN_NODE_INPUT ? at(w, n)->index : w->g->array_of[n];
}

static const char *mask(writer *w, int32_t n, const char *off) {
  const dfgnn_node *node = at(w, n);
  if (node->number >= 1)
    return "A(0)";
  return text(
      w, "keep<A>(dfgnn__dropout_key(p.seed + %d), %s, %lld, %s, %uu, %s)",
      node->index, item_of(w, node->place), (long long)extent(w, n)->all, off,
      dfgnn__dropout_threshold(node->number),
      number(w, 1 / (1 - node->number)));
}

static const char *degree(const writer *w, int32_t n) {
  return w->p && dfgnn__level(at(w, n)->place, w->p->walk->columns) ==
                     DFGNN_LEVEL_OWN
             ? "A(degree)"
             : "far_degree(x.far)";
}

static int in_registers(const writer *w, int32_t n) {
  return w->p->made[n] || w->p->kept[n] || w->p->loaded[n];
}

/* Element `off` of a value in memory, or in a lane's registers where it is
 * there; aligned: that lane's own. */
static const char *element(writer *w, int32_t n, const place *x,
                           const char *off, int aligned) {
  const dfgnn_node *node = at(w, n);
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    return number(w, node->number);
  case DFGNN_NODE_SIZE:
    return number(w,
                  (double)dfgnn__size_value(node->at, w->job->binding->names));
  case DFGNN_NODE_COUNT:
    return text(w, "A(p.counts[%d])", node->index);
  case DFGNN_NODE_DEGREE:
    return degree(w, n);
  case DFGNN_NODE_KEEP:
    return mask(w, n, off);
  default:
    break;
  }
  if (!w->p)
    return text(w, "read<A>(here.in<%s>(%d), %s)", array_type(w, n),
                array_of(w, n), off);
  const value_class c = plan_class(w->p, n);
  const int made = w->p->made[n];
  const char *owner = !made && w->p->loaded[n] ? "x." : "";
  if (c == CLASS_ONE && in_registers(w, n))
    return text(w, "%sn%d", owner, n);
  if (aligned && in_registers(w, n))
    return text(w, "%sn%d[%s]", owner, n,
                c == CLASS_HEADS ? "c" : "c * M::VEC + i");
  if (made)
    return text(w, "%s_shared[%d + %s]",
                made == 1 + DFGNN_LEVEL_OWN ? "own" : "edge", w->p->slot[n],
                off);
  (void)x;
  return text(w, "read<A>(in<%s>(%d), %s * int64_t(%lld) + %s)",
              array_type(w, n), array_of(w, n), item_of(w, node->place),
              (long long)extent(w, n)->all, off);
}

/* Argument a where it is spread over the axes of the result. */
static const char *operand(writer *w, int32_t a, const place *x) {
  return element(w, a, x, offset(w, extent(w, a), x->axis),
                 w->p && plan_aligned(w->p, x->c, a));
}

/* Argument a at other axes than those of the result. */
static const char *elsewhere(writer *w, int32_t a, const place *x,
                             const char *a0, const char *a1, const char *a2) {
  const char *axis[] = {a0, a1, a2};
  return element(w, a, x, offset(w, extent(w, a), axis), 0);
}

/* ---- operations ---------------------------------------------------------- */

static const char *power(writer *w, const char *a, double c) {
  if (c == -1)
    return text(w, "(A(1) / %s)", a);
  if (c == 0.5)
    return text(w, "f_sqrt(%s)", a);
  if (c == -0.5)
    return text(w, "f_rsqrt(%s)", a);
  if (c == 3)
    return text(w, "(%s * %s * %s)", a, a, a);
  return text(w, "f_pow(%s, %s)", a, number(w, c));
}

static const char *unary(writer *w, const dfgnn_node *node, const char *a) {
  static const char *const functions[DFGNN_NODE_OPS] = {
      [DFGNN_NODE_EXP] = "f_exp",           [DFGNN_NODE_EXPM1] = "f_expm1",
      [DFGNN_NODE_LOG] = "f_log",           [DFGNN_NODE_LOG1P] = "f_log1p",
      [DFGNN_NODE_TANH] = "f_tanh",         [DFGNN_NODE_SIGMOID] = "f_sigmoid",
      [DFGNN_NODE_SOFTPLUS] = "f_softplus", [DFGNN_NODE_ERF] = "f_erf",
      [DFGNN_NODE_SIN] = "f_sin",           [DFGNN_NODE_COS] = "f_cos",
      [DFGNN_NODE_ABS] = "f_abs",           [DFGNN_NODE_SIGN] = "f_sign"};
  if (functions[node->op])
    return text(w, "%s(%s)", functions[node->op], a);
  switch (node->op) {
  case DFGNN_NODE_POW:
    return power(w, a, node->number);
  case DFGNN_NODE_RELU:
    return text(w, "(%s < A(0) ? A(0) : %s)", a, a);
  case DFGNN_NODE_LEAKY:
    return text(w, "(%s > A(0) ? %s : %s * %s)", a, a, a,
                number(w, node->number));
  default: /* DETACH, EXPAND, reductions of what is there */
    return a;
  }
}

static const char *binary(writer *w, int op, const char *a, const char *b) {
  switch (op) {
  case DFGNN_NODE_ADD:
    return text(w, "(%s + %s)", a, b);
  case DFGNN_NODE_MUL:
    return text(w, "(%s * %s)", a, b);
  case DFGNN_NODE_MAX:
    return text(w, "f_max(%s, %s)", a, b);
  case DFGNN_NODE_LT:
    return text(w, "A(%s < %s)", a, b);
  case DFGNN_NODE_LE:
    return text(w, "A(%s <= %s)", a, b);
  default:
    return text(w, "A(%s == %s)", a, b);
  }
}

static const char *joined_rows(writer *w, int32_t n, const place *x) {
  const dfgnn_node *node = at(w, n);
  const char *made = NULL;
  int64_t end = extent(w, n)->axis[2];
  for (int i = node->count - 1; i >= 0; i--) {
    int32_t a = argument(w, n, i);
    int64_t begin = end - extent(w, a)->axis[2];
    const char *part =
        elsewhere(w, a, x, x->axis[0], x->axis[1],
                  text(w, "%s - %lld", x->axis[2], (long long)begin));
    made = made ? text(w, "(%s < %lld ? %s : %s)", x->axis[2], (long long)end,
                       part, made)
                : part;
    end = begin;
  }
  return made;
}

/* The expression of an element that needs no loop. */
static const char *expression(writer *w, int32_t n, const place *x) {
  const dfgnn_node *node = at(w, n);
  int32_t a = node->count ? argument(w, n, 0) : 0;
  switch (node->op) {
  case DFGNN_NODE_WHERE:
    return text(w, "(%s != A(0) ? %s : %s)", operand(w, a, x),
                operand(w, argument(w, n, 1), x),
                operand(w, argument(w, n, 2), x));
  case DFGNN_NODE_SLICE: {
    int64_t begin = dfgnn__size_value(node->at, w->job->binding->names);
    return elsewhere(w, a, x, x->axis[0], x->axis[1],
                     text(w, "%s + %lld", x->axis[2], (long long)begin));
  }
  case DFGNN_NODE_CAT:
    return joined_rows(w, n, x);
  case DFGNN_NODE_RESHAPE:
    return element(w, a, x, x->flat, 0);
  default:
    return node->count == 2 ? binary(w, node->op, operand(w, a, x),
                                     operand(w, argument(w, n, 1), x))
                            : unary(w, node, operand(w, a, x));
  }
}

/* Declares y, the element at x. */
static void write_element(writer *w, int32_t n, const place *x) {
  const dfgnn_node *node = at(w, n);
  int32_t a = node->count ? argument(w, n, 0) : 0;
  const int max = node->op == DFGNN_NODE_FMAX;
  if (node->op == DFGNN_NODE_FSUM || max) {
    const char *axis[] = {x->axis[0], x->axis[1], x->axis[2]};
    axis[node->axis] = "t";
    const char *term = elsewhere(w, a, x, axis[0], axis[1], axis[2]);
    P("A y = %s;\n", max ? "-A(INFINITY)" : "A(0)");
    P("for (int t = 0; t < %lld; ++t)\n",
      (long long)extent(w, a)->axis[node->axis]);
    P(max ? "y = f_max(%s, y);\n" : "y += %s;\n", term);
  } else if (node->op == DFGNN_NODE_MATMUL) {
    const int first = node->flags & DFGNN_MATMUL_FIRST;
    const int second = node->flags & DFGNN_MATMUL_SECOND;
    int32_t b = argument(w, n, 1);
    P("A y = A(0);\nfor (int t = 0; t < %lld; ++t)\n",
      (long long)extent(w, a)->axis[first ? 1 : 2]);
    P("y += %s * %s;\n",
      elsewhere(w, a, x, x->axis[0], first ? "t" : x->axis[1],
                first ? x->axis[1] : "t"),
      elsewhere(w, b, x, x->axis[0], second ? x->axis[2] : "t",
                second ? "t" : x->axis[2]));
  } else {
    P("const A y = %s;\n", expression(w, n, x));
  }
}

/* ---- loops over the elements of a value ---------------------------------- */

/* Begins a loop over what a lane has of a value, and says where it is.  other:
 * how many lanes share the elements of others, and which of them this is. */
static place begin_loop(writer *w, value_class c, const dfgnn_extent *e,
                        int level, const char *lane, const char *lanes) {
  place x = {.c = c, .level = level, .axis = {"0", "0", "0"}, .flat = "0"};
  const char *head = "M::head(lane, c)";
  P("{\n");
  if (c == CLASS_OTHER) {
    P("for (int j = %s; j < %lld; j += %s) {\n", lane, (long long)e->all,
      lanes);
    x.axis[0] = text(w, "j / %lld", (long long)(e->axis[1] * e->axis[2]));
    x.axis[1] = text(w, "j / %lld %% %lld", (long long)e->axis[2],
                     (long long)e->axis[1]);
    x.axis[2] = text(w, "j %% %lld", (long long)e->axis[2]);
    x.flat = "j";
    return x;
  }
  if (c == CLASS_ONE) {
    P("{\n");
    return x;
  }
  P("_Pragma(\"unroll\") for (int c = 0; c < M::kChunks; ++c) {\n");
  x.axis[0] = w->p->shape[0] == 1
                  ? "0"
                  : text(w, "%s / %lld", head, (long long)w->p->shape[1]);
  x.axis[1] = w->p->shape[0] == 1
                  ? head
                  : text(w, "%s %% %lld", head, (long long)w->p->shape[1]);
  x.flat = head;
  if (c == CLASS_MAIN) {
    P("_Pragma(\"unroll\") for (int i = 0; i < M::VEC; ++i)\n{\n");
    x.axis[2] = "M::safe(lane, c, i)";
    x.flat = text(w, "%s * %lld + M::safe(lane, c, i)", head,
                  (long long)w->p->shape[2]);
  }
  return x;
}

static void end_loop(writer *w, value_class c) {
  P(c == CLASS_MAIN ? "}\n}\n}\n" : "}\n}\n");
}

/* A lane's number of a value in registers, at a loop's place. */
static const char *own_number(writer *w, const char *name, int32_t n,
                              value_class c) {
  if (c == CLASS_ONE)
    return text(w, "%s%d", name, n);
  return text(w, "%s%d[%s]", name, n,
              c == CLASS_HEADS ? "c" : "c * M::VEC + i");
}

/* Whether the lane is the one that writes the element at a loop's place. */
static const char *is_writer(value_class c) {
  switch (c) {
  case CLASS_ONE:
    return "lane == 0";
  case CLASS_HEADS:
    return "M::begins(lane, c)";
  case CLASS_MAIN:
    return "M::has(lane, c, i)";
  default:
    return "true";
  }
}

static void declare(writer *w, const char *name, int32_t n, value_class c,
                    const char *start) {
  if (c == CLASS_ONE)
    P("A %s%d%s;\n", name, n, start);
  else
    P("A %s%d[M::%s]%s;\n", name, n, c == CLASS_MAIN ? "kMain" : "kChunks",
      *start ? " = {}" : "");
}

/* ---- values -------------------------------------------------------------- */

static const char *shared_of(const writer *w, int32_t n) {
  return w->p->made[n] == 1 + DFGNN_LEVEL_OWN ? "own" : "edge";
}

/* Puts a value in registers where other lanes read it. */
static void write_spill(writer *w, int32_t n) {
  if (!w->p->spilled[n])
    return;
  value_class c = plan_class(w->p, n);
  place x = begin_loop(w, c, extent(w, n), 0, "", "");
  P("if (%s) %s_shared[%d + %s] = %s;\n", is_writer(c), shared_of(w, n),
    w->p->slot[n], x.flat, own_number(w, "n", n, c));
  end_loop(w, c);
  P("__syncwarp();\n");
}

static void write_fold(writer *w, int32_t n) {
  const char *max = at(w, n)->op == DFGNN_NODE_FMAX ? "true" : "false";
  int32_t a = argument(w, n, 0);
  const char *owner = !w->p->made[a] && w->p->loaded[a] ? "x." : "";
  if (plan_class(w->p, n) == CLASS_ONE)
    P("{ A y[M::kChunks]; M::template fold<%s>(y, %sn%d, lane);\n"
      "n%d = __shfl_sync(kFullMask, y[0], 0, M::L); }\n",
      max, owner, a, n);
  else
    P("M::template fold<%s>(n%d, %sn%d, lane);\n", max, n, owner, a);
}

/* Computes a value into n<number>, which is declared, or into shared memory. */
static void write_value(writer *w, int32_t n, int level) {
  value_class c = plan_class(w->p, n);
  const int own = level == DFGNN_LEVEL_OWN;
  if (plan_folds_lanes(w->p, n) && in_registers(w, argument(w, n, 0))) {
    write_fold(w, n);
    write_spill(w, n);
    return;
  }
  place x = begin_loop(w, c, extent(w, n), level, own ? "group_lane" : "lane",
                       own ? "kGroup" : "kLanes");
  write_element(w, n, &x);
  if (c == CLASS_OTHER)
    P("%s_shared[%d + j] = y;\n", shared_of(w, n), w->p->slot[n]);
  else
    P("%s = y;\n", own_number(w, "n", n, c));
  end_loop(w, c);
  if (c == CLASS_OTHER)
    P("__syncwarp();\n");
  write_spill(w, n);
}

/* Computes a value of an edge, which is declared here, and before it the
 * products and features that it alone reads. */
static void write_made(writer *w, int32_t n, int level) {
  value_class c = plan_class(w->p, n);
  if (level == DFGNN_LEVEL_EDGE && c != CLASS_OTHER)
    declare(w, "n", n, c, "");
  write_value(w, n, level);
}

/* The fused products, and a leaf whose features are folded, that a step reads.
 */
static void write_parts(writer *w, int32_t n, int level) {
  for (int i = 0; i < at(w, n)->count; i++) {
    int32_t a = argument(w, n, i);
    if (!w->job->lowered->fused[a] || w->written[a])
      continue;
    w->written[a] = 1;
    write_made(w, a, level);
  }
}

/* ---- reductions ---------------------------------------------------------- */

static int is_lse(int op) {
  return op == DFGNN_NODE_LSE_IN || op == DFGNN_NODE_LSE_OUT;
}
static int is_max(int op) {
  return op == DFGNN_NODE_MAX_IN || op == DFGNN_NODE_MAX_OUT;
}

/* Numbers of a lane of a reduction whose elements lanes share. */
static int shared_numbers(const writer *w, int32_t n) {
  return (int)((extent(w, n)->all + w->p->lanes - 1) / w->p->lanes);
}

static void declare_state(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  value_class c = plan_class(w->p, n);
  const char *names[] = {"z", "s"};
  for (int k = 0; k < 1 + is_lse(op); k++) {
    if (c == CLASS_OTHER)
      P("A %s%d[%d];\n", names[k], n, shared_numbers(w, n));
    else
      declare(w, names[k], n, c, "");
  }
}

/* Runs a statement for each number of a reduction's state; %s are that number,
 * twice the same for the sums of a log-sum-exp. */
static void begin_state(writer *w, int32_t n, value_class c, place *x) {
  if (c == CLASS_OTHER) {
    P("{ _Pragma(\"unroll\") for (int t = 0; t < %d; ++t) {\n"
      "const int j = lane + t * kLanes; (void)j;\n",
      shared_numbers(w, n));
    *x = (place){.c = c, .level = DFGNN_LEVEL_EDGE, .flat = "j"};
    return;
  }
  *x = begin_loop(w, c, extent(w, n), DFGNN_LEVEL_EDGE, "", "");
}

static const char *state_number(writer *w, const char *of, const char *name,
                                int32_t n, value_class c) {
  const char *number = c == CLASS_OTHER ? text(w, "%s%d[t]", name, n)
                                        : own_number(w, name, n, c);
  return text(w, "%s%s", of, number);
}

static void write_start(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  value_class c = plan_class(w->p, n);
  place x;
  begin_state(w, n, c, &x);
  P("%s = %s;\n", state_number(w, "z.", "z", n, c),
    is_lse(op) || is_max(op) ? "-A(INFINITY)" : "A(0)");
  if (is_lse(op))
    P("%s = A(0);\n", state_number(w, "z.", "s", n, c));
  end_loop(w, c);
}

/* The logsumexp that a sum goes along with; -1: none. */
static int32_t lse_beside(const writer *w, int32_t n) {
  int32_t weight = w->p->soft[n];
  return weight < 0 ? -1 : plan_lse_of(w->p, weight);
}

/* The weight that sums take of a logsumexp of this stage; -1: none. */
static int32_t weight_of(const writer *w, int32_t lse) {
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->soft[n] >= 0 && lse_beside(w, n) == lse)
      return w->p->soft[n];
  return -1;
}

/* The products between a weight and the sum that takes it. */
static void write_products(writer *w, int32_t n, int32_t weight) {
  if (n == weight || at(w, n)->op != DFGNN_NODE_MUL || w->written[n])
    return;
  for (int i = 0; i < at(w, n)->count; i++)
    write_products(w, argument(w, n, i), weight);
  int has_weight = 0;
  for (int i = 0; i < at(w, n)->count; i++)
    has_weight |= argument(w, n, i) == weight || w->written[argument(w, n, i)];
  if (!has_weight)
    return;
  w->written[n] = 1;
  write_made(w, n, DFGNN_LEVEL_EDGE);
}

static void write_lse(writer *w, int32_t n) {
  value_class c = plan_class(w->p, n);
  int32_t weight = weight_of(w, n);
  place x;
  if (weight >= 0) {
    w->written[weight] = 1;
    declare(w, "f", n, c, "");
    declare(w, "n", weight, c, "");
  }
  begin_state(w, n, c, &x);
  int32_t a = argument(w, n, 0);
  const char *term =
      c == CLASS_OTHER ? element(w, a, &x, "j", 0) : operand(w, a, &x);
  P("{ A f = A(1), e = A(0);\nif (live%s) lse_add(%s, %s, A(%s), f, e);\n",
    c == CLASS_OTHER ? text(w, " && j < %lld", (long long)extent(w, n)->all)
                     : "",
    state_number(w, "z.", "z", n, c), state_number(w, "z.", "s", n, c), term);
  if (weight >= 0)
    P("%s = f; %s = e;\n", own_number(w, "f", n, c),
      own_number(w, "n", weight, c));
  P("}\n");
  end_loop(w, c);
}

/* of, name: the state, "z." and "z", or a total's, "" and "t". */
static void write_reduce(writer *w, int32_t n, const char *of, const char *name,
                         const char *live) {
  const int op = at(w, n)->op;
  const int32_t a = argument(w, n, 0), lse = lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  place x;
  if (is_lse(op)) {
    write_lse(w, n);
    return;
  }
  if (lse >= 0)
    write_products(w, a, w->p->soft[n]);
  begin_state(w, n, c, &x);
  const char *term =
      c == CLASS_OTHER ? element(w, a, &x, "j", 0) : operand(w, a, &x);
  const char *z = state_number(w, of, name, n, c);
  const char *there = c == CLASS_OTHER ? text(w, "%s && j < %lld", live,
                                              (long long)extent(w, n)->all)
                                       : live;
  if (lse >= 0)
    P("%s = %s * %s + (live ? %s : A(0));\n", z, z,
      own_number(w, "f", lse, plan_class(w->p, lse)), term);
  else if (is_max(op))
    P("if (%s) %s = f_max(A(%s), %s);\n", there, z, term, z);
  else
    P("if (%s) %s += %s;\n", there, z, term);
  end_loop(w, c);
}

/* Sums that are relative to a side's maximum are brought to that of all. */
static void write_join(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  const int32_t lse = lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  const int softens = is_lse(op) && weight_of(w, n) >= 0;
  place x;
  if (softens)
    declare(w, "g", n, c, "");
  begin_state(w, n, c, &x);
  const char *z = state_number(w, "z.", "z", n, c);
  if (is_lse(op)) {
    const char *sum = state_number(w, "z.", "s", n, c);
    P("A most = %s; how.max(most);\n"
      "const A g = %s == most ? A(1) : f_exp(%s - most);\n"
      "%s = most; %s *= g; how.sum(%s);\n",
      z, z, z, z, sum, sum);
    if (softens)
      P("%s = g;\n", own_number(w, "g", n, c));
  } else if (lse >= 0) {
    P("%s *= %s; how.sum(%s);\n", z,
      own_number(w, "g", lse, plan_class(w->p, lse)), z);
  } else {
    P("how.%s(%s);\n", is_max(op) ? "max" : "sum", z);
  }
  end_loop(w, c);
}

static void write_finish(writer *w, int32_t n) {
  const int op = at(w, n)->op;
  const int32_t lse = lse_beside(w, n);
  value_class c = plan_class(w->p, n);
  place x;
  begin_state(w, n, c, &x);
  const char *z = state_number(w, "z.", "z", n, c), *y = z;
  if (is_lse(op))
    y = text(w, "lse_of(%s, %s)", z, state_number(w, "z.", "s", n, c));
  else if (lse >= 0)
    y = text(w, "(degree ? %s / %s : A(0))", z,
             state_number(w, "z.", "s", lse, plan_class(w->p, lse)));
  else if (is_max(op))
    y = text(w, "(degree ? %s : A(0))", z);
  if (c == CLASS_OTHER)
    P("if (j < %lld && group_lane < kLanes) own_shared[%d + j] = %s;\n",
      (long long)extent(w, n)->all, w->p->slot[n], y);
  else
    P("%s = %s;\n", own_number(w, "n", n, c), y);
  end_loop(w, c);
  if (c == CLASS_OTHER)
    P("__syncwarp();\n");
  write_spill(w, n);
}

/* ---- outputs ------------------------------------------------------------- */

static void write_array(writer *w, int32_t n, const dfgnn_extent *e,
                        const char *type, int array, const char *item,
                        const char *condition) {
  value_class c = plan_class_of(w->p, e);
  P("if (%s) {\n%s *const to = out<%s>(%d) + %s * int64_t(%lld);\n", condition,
    type, type, array, item, (long long)e->all);
  if (c == CLASS_MAIN && plan_class(w->p, n) == CLASS_MAIN && w->p->made[n]) {
    P("M::store(to, n%d, lane);\n}\n", n);
    return;
  }
  place x = begin_loop(w, c, e, DFGNN_LEVEL_OWN, "lane", "kLanes");
  P("if (%s) write(to, %s, %s);\n", is_writer(c), x.flat, operand(w, n, &x));
  end_loop(w, c);
  P("}\n");
}

static void write_output(writer *w, int index, const char *item,
                         const char *condition) {
  const dfgnn_port *port = &w->dag->outputs[index];
  dfgnn_extent e = dfgnn__bind_port(port, w->job->binding);
  write_array(w, port->node, &e, type_name(w->job->outputs[index].dtype),
              w->dag->input_count + index, item, condition);
}

/* ---- functions of a walk ------------------------------------------------- */

static void begin_function(writer *w) {
  memset(w->written, 0, (size_t)w->dag->count);
}

static void load_leaf(writer *w, int32_t n, const char *owner,
                      const char *item) {
  static const char *const loads[] = {
      [CLASS_HEADS] = "M::load_heads", [CLASS_MAIN] = "M::load"};
  value_class c = plan_class(w->p, n);
  const char *row = text(w, "in<%s>(%d) + %s * int64_t(%lld)", array_type(w, n),
                         array_of(w, n), item, (long long)extent(w, n)->all);
  if (c == CLASS_ONE)
    P("%sn%d = read<A>(%s, 0);\n", owner, n, row);
  else
    P("%s(%sn%d, %s, lane);\n", loads[c], owner, n, row);
}

static void write_members(writer *w) {
  const walk_plan *p = w->p;
  for (int32_t n = 0; n < w->dag->count; n++) {
    value_class c = plan_class(p, n);
    if ((p->made[n] == 1 + DFGNN_LEVEL_OWN && c != CLASS_OTHER) || p->kept[n])
      declare(w, "n", n, c, "");
  }
}

static void write_prepare(writer *w, const dfgnn_generated_walk *about) {
  P("__device__ __forceinline__ void prepare() {\n");
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->kept[n] && at(w, n)->place <= DFGNN_PLACE_PARAM)
      load_leaf(w, n, "", "0");
  for (int k = 0; k < about->total_count; k++) {
    const dfgnn_program_total *t = &w->g->totals[about->total_first + k];
    value_class c = plan_class(w->p, t->node);
    place x;
    begin_state(w, t->node, c, &x);
    P("%s = A(0);\n", state_number(w, "", "t", t->node, c));
    end_loop(w, c);
  }
  P("}\n");
}

static void write_totals(writer *w, const dfgnn_generated_walk *about) {
  if (!about->totals)
    return;
  P("template <class J> __device__ __forceinline__ void totals(A *to, const J "
    "&how, bool lower) {\n");
  for (int k = 0; k < about->total_count; k++) {
    const dfgnn_program_total *t = &w->g->totals[about->total_first + k];
    value_class c = plan_class(w->p, t->node);
    place x;
    begin_state(w, t->node, c, &x);
    const char *z = state_number(w, "", "t", t->node, c);
    P("how.sum(%s);\n", z);
    if (c == CLASS_OTHER)
      P("if (lower && j < %lld)", (long long)extent(w, t->node)->all);
    else
      P("if (lower && %s)", is_writer(c));
    P(" to[%d + %s] = %s;\n", t->first, x.flat, z);
    end_loop(w, c);
  }
  P("}\n");
}

static void declare_totals(writer *w, const dfgnn_generated_walk *about) {
  for (int k = 0; k < about->total_count; k++) {
    int32_t n = w->g->totals[about->total_first + k].node;
    value_class c = plan_class(w->p, n);
    if (c == CLASS_OTHER)
      P("A t%d[%d];\n", n, shared_numbers(w, n));
    else
      declare(w, "t", n, c, "");
  }
}

static void write_own(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  begin_function(w);
  P("__device__ __forceinline__ void own(stage<%d>) {\n", stage);
  if (stage == 0)
    for (int32_t n = 0; n < w->dag->count; n++)
      if (w->p->kept[n] && at(w, n)->place > DFGNN_PLACE_PARAM)
        load_leaf(w, n, "", "row");
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->stage != stage || !plan_is_own(w->p, step) ||
        step->kind != DFGNN_STEP_COMPUTE)
      continue;
    write_parts(w, step->node, DFGNN_LEVEL_OWN);
    if (at(w, step->node)->op == DFGNN_NODE_SUM_ALL)
      write_reduce(w, step->node, "", "t", "writer");
    else
      write_value(w, step->node, DFGNN_LEVEL_OWN);
  }
  P("}\n");
}

static void write_store(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  P("__device__ __forceinline__ void store(stage<%d>) {\n", stage);
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->stage != stage || !plan_is_own(w->p, step))
      continue;
    if (step->kind == DFGNN_STEP_OUTPUT)
      write_output(w, step->node, "row", "writer");
    else if (step->kind == DFGNN_STEP_KEEP)
      write_array(w, step->node, extent(w, step->node), "A",
                  w->g->array_of[step->node], "row", "writer");
  }
  /* the next row's values take the same shared memory */
  P("%s}\n", w->p->own_shared ? "__syncwarp();\n" : "");
}

static void write_leaf(writer *w, int stage) {
  const uint64_t bit = 1ull << stage;
  P("struct leaf_%d { int64_t far, id;\n", stage);
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->loaded[n] & bit)
      declare(w, "n", n, plan_class(w->p, n), "");
  P("};\n__device__ __forceinline__ leaf_%d leaf(stage<%d>) const {\n"
    "leaf_%d x = {}; return x; }\n",
    stage, stage, stage);
  P("__device__ __forceinline__ void load(stage<%d>, leaf_%d &x, int64_t e) "
    "const {\nx.far = __ldg(p.indices + e);\n",
    stage, stage);
  P(w->p->walk->columns ? "x.id = offsets_t{p.edge_ids, p.wide}[e];\n"
                        : "x.id = e;\n");
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->loaded[n] & bit)
      load_leaf(w, n, "x.", item_of(w, at(w, n)->place));
  P("}\n");
}

/* Is a step's reduction, if it is one, of this stage, and kept by rows? */
static int is_reduction(const writer *w, const dfgnn_step *step, int stage) {
  return step->stage == stage && plan_reduces_edges(w->p, step) &&
         at(w, step->node)->op != DFGNN_NODE_SUM_ALL;
}

/* Writes a function of the reductions of a stage. */
static void write_of_state(writer *w, int stage, const char *head,
                           void (*write)(writer *, int32_t), const char *tail) {
  const dfgnn_walk *walk = w->p->walk;
  P("%s", head);
  for (int i = 0; i < walk->count; i++)
    if (is_reduction(w, &walk->steps[i], stage))
      write(w, walk->steps[i].node);
  P("%s", tail);
}

static void write_edge(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  const uint64_t bit = 1ull << stage;
  begin_function(w);
  P("__device__ __forceinline__ void edge(stage<%d>, state_%d &z, const "
    "leaf_%d &x, bool live) {\n%s",
    stage, stage, stage, w->p->edge_shared ? "__syncwarp();\n" : "");
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (plan_is_own(w->p, step) || !(step->stages & bit))
      continue;
    if (step->kind == DFGNN_STEP_OUTPUT) {
      write_output(w, step->node, "x.id", "live");
      continue;
    }
    if (lse_beside(w, step->node) < 0)
      write_parts(w, step->node, DFGNN_LEVEL_EDGE);
    if (at(w, step->node)->op == DFGNN_NODE_SUM_ALL)
      write_reduce(w, step->node, "", "t", "live");
    else if (plan_reduces_edges(w->p, step))
      write_reduce(w, step->node, "z.", "z", "live");
    else
      write_made(w, step->node, DFGNN_LEVEL_EDGE);
  }
  P("}\n");
}

static int stage_has_edges(const writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  int some = 0;
  for (int i = 0; i < walk->count; i++)
    some |= !plan_is_own(w->p, &walk->steps[i]) &&
            (walk->steps[i].stages >> stage & 1);
  return some;
}

static void write_stage(writer *w, int stage) {
  write_own(w, stage);
  write_store(w, stage);
  if (!stage_has_edges(w, stage))
    return;
  write_leaf(w, stage);
  write_of_state(w, stage, text(w, "struct state_%d {\n", stage), declare_state,
                 "};\n");
  write_of_state(w, stage,
                 text(w,
                      "__device__ __forceinline__ state_%d begin(stage<%d>) "
                      "const {\nstate_%d z;\n",
                      stage, stage, stage),
                 write_start, "return z;\n}\n");
  write_edge(w, stage);
  write_of_state(w, stage,
                 text(w,
                      "template <class J> __device__ __forceinline__ void "
                      "join(stage<%d>, state_%d &z, const J &how) const {\n",
                      stage, stage),
                 write_join, "}\n");
  write_of_state(w, stage,
                 text(w,
                      "__device__ __forceinline__ void finish(stage<%d>, const "
                      "state_%d &z) {\n",
                      stage, stage),
                 write_finish, "}\n");
}

static void write_walk(writer *w, int number) {
  const walk_plan *p = w->p;
  const dfgnn_generated_walk *about = &w->g->walks[number];
  uint64_t edges = 0;
  for (int stage = 0; stage < p->walk->stages; stage++)
    edges |= (uint64_t)stage_has_edges(w, stage) << stage;
  P("\ntemplate <> struct walk<%d> : position<A_> {\nusing A = A_;\n"
    "using M = layout<%lld, %lld, %d, %d>;\n",
    number, (long long)p->heads, (long long)p->shape[2], p->vector, p->lanes);
  P("static constexpr int kLanes = %d, kGroup = %d, kUnroll = %d, kStages = "
    "%d;\nstatic constexpr int kOwnShared = %d, kEdgeShared = %d, kTotals = "
    "%d;\n",
    p->lanes, p->group, p->unroll, p->walk->stages, p->own_shared,
    p->edge_shared, about->totals);
  P("static constexpr bool has_edges(int s) { return %lluull >> s & 1; }\n",
    (unsigned long long)edges);
  write_members(w);
  declare_totals(w, about);
  write_prepare(w, about);
  write_totals(w, about);
  for (int stage = 0; stage < p->walk->stages; stage++)
    write_stage(w, stage);
  P("};\n");
}

/* ---- values of no place -------------------------------------------------- */

static int is_computed_param(const writer *w, int32_t n, int before) {
  const dfgnn_node *node = at(w, n);
  return w->job->lowered->needed[n] && node->place <= DFGNN_PLACE_PARAM &&
         w->job->lowered->before[n] == before &&
         node->op != DFGNN_NODE_SUM_ALL && node->op != DFGNN_NODE_INPUT &&
         node->op > DFGNN_NODE_KEEP;
}

static void write_params(writer *w, int before) {
  P("\ntemplate <> struct values<%d> {\nusing A = A_;\nstatic "
    "__device__ __forceinline__ void run(const program_walk &p, const unsigned "
    "long long *arrays_) {\nconst position<A> here = {p, arrays_}; "
    "(void)here;\n",
    before);
  w->p = NULL;
  for (int32_t n = 0; n < w->dag->count; n++) {
    if (!is_computed_param(w, n, before))
      continue;
    place x = begin_loop(w, CLASS_OTHER, extent(w, n), 0, "threadIdx.x",
                         "blockDim.x");
    write_element(w, n, &x);
    P("here.out<A>(%d)[j] = y;\n", w->g->array_of[n]);
    end_loop(w, CLASS_OTHER);
    P("__syncthreads();\n");
  }
  for (int i = 0;
       before == w->job->lowered->walk_count && i < w->dag->output_count; i++) {
    const dfgnn_port *port = &w->dag->outputs[i];
    if (port->place != DFGNN_PLACE_PARAM)
      continue;
    dfgnn_extent e = dfgnn__bind_port(port, w->job->binding);
    place x = begin_loop(w, CLASS_OTHER, &e, 0, "threadIdx.x", "blockDim.x");
    P("write(here.out<%s>(%d), j, %s);\n", type_name(w->job->outputs[i].dtype),
      w->dag->input_count + i, operand(w, port->node, &x));
    end_loop(w, CLASS_OTHER);
  }
  P("}\n};\n");
}

/* ---- the whole source ---------------------------------------------------- */

static const char head[] =
    "#include \"kernels/program/cuda/walk.cuh\"\n\n"
    "namespace dfgnn {\nnamespace edge_program {\n\n"
    "using A_ = %s;\n"
    "struct arrays { unsigned long long at[%d]; };\n"
    "template <int W> struct walk;\ntemplate <int W> struct values;\n"
    "";
static const char tail[] =
    "\n} // namespace edge_program\n\n"
    "template <int W>\n"
    "__global__ void edge_program_rows(const program_walk p, "
    "const edge_program::arrays a) {\n"
    "  edge_program::walk_rows<edge_program::walk<W>>(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_long(const program_walk p, "
    "const edge_program::arrays a) {\n"
    "  edge_program::walk_long<edge_program::walk<W>>(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_values(const program_walk p, "
    "const edge_program::arrays a) {\n"
    "  edge_program::values<W>::run(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_totals(const program_totals p) {\n"
    "  edge_program::add_totals<edge_program::A_>(p);\n}\n"
    "\n} // namespace dfgnn\n";

static int is_double(const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  int some = 0;
  for (int i = 0; i < dag->input_count; i++)
    some |= job->inputs[i].dtype == DFGNN_F64;
  for (int i = 0; i < dag->output_count; i++)
    some |= job->outputs[i].dtype == DFGNN_F64;
  return some;
}

/* Numbers the arrays of nodes: what walks store for others, and values of no
 * place. */
static dfgnn_status number_arrays(dfgnn_generated *g,
                                  const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  g->array_count = dag->input_count + dag->output_count;
  for (int32_t n = 0; n < dag->count; n++) {
    const dfgnn_node *node = &dag->nodes[n];
    int computed =
        node->place <= DFGNN_PLACE_PARAM && node->op > DFGNN_NODE_KEEP;
    g->array_of[n] = -1;
    if (job->lowered->needed[n] && (computed || job->lowered->stored[n]))
      g->array_of[n] = g->array_count++;
  }
  if (g->array_count > DFGNN_GENERATED_ARRAYS)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the program's walks read and write %d arrays, at most "
                       "%d are passed to a kernel",
                       g->array_count, DFGNN_GENERATED_ARRAYS);
  return DFGNN_OK;
}

static void find_totals(dfgnn_generated *g, const dfgnn_program_job *job) {
  const dfgnn_lowered *l = job->lowered;
  for (int w = 0; w < l->walk_count; w++) {
    g->walks[w].total_first = g->total_count;
    for (int i = 0; i < l->walks[w].count; i++) {
      const dfgnn_step *step = &l->walks[w].steps[i];
      if (step->kind != DFGNN_STEP_COMPUTE ||
          l->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
        continue;
      g->totals[g->total_count++] = (dfgnn_program_total){
          .node = step->node, .walk = w, .first = g->walks[w].totals};
      g->walks[w].totals += (int)job->extents[step->node].all;
      g->walks[w].total_count++;
    }
  }
}

static dfgnn_status write_one_walk(writer *w, int number,
                                   const dfgnn_program_tuning *tuning) {
  const size_t nodes = (size_t)w->dag->count;
  walk_plan p = {.job = w->job,
                 .dag = w->dag,
                 .lowered = w->job->lowered,
                 .walk = &w->job->lowered->walks[number],
                 .generated = w->g,
                 .made = calloc(nodes, 1),
                 .spilled = calloc(nodes, 1),
                 .kept = calloc(nodes, 1),
                 .loaded = calloc(nodes, sizeof *p.loaded),
                 .soft = calloc(nodes, sizeof *p.soft),
                 .slot = calloc(nodes, sizeof *p.slot)};
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  if (p.made && p.spilled && p.kept && p.loaded && p.soft && p.slot) {
    plan_layout(&p, tuning);
    status = plan_soften(&p);
    if (!status)
      status = plan_memory(&p);
  } else {
    dfgnn__fail(status, "out of memory");
  }
  if (!status) {
    w->g->walks[number].lanes = p.lanes;
    w->g->walks[number].group = p.group;
    w->g->walks[number].own_shared = p.own_shared;
    w->g->walks[number].edge_shared = p.edge_shared;
    w->p = &p;
    write_walk(w, number);
    w->p = NULL;
  }
  free(p.made);
  free(p.spilled);
  free(p.kept);
  free(p.loaded);
  free(p.soft);
  free(p.softened.steps);
  free(p.slot);
  return status;
}

dfgnn_status dfgnn__program_generate(dfgnn_generated **generated,
                                     const dfgnn_program_job *job,
                                     const dfgnn_program_tuning *tuning) {
  const dfgnn_lowered *l = job->lowered;
  const size_t nodes = (size_t)l->dag->count;
  dfgnn_generated *g = calloc(1, sizeof *g);
  writer w = {.job = job, .dag = l->dag, .g = g};
  size_t bytes = 0;
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  w.written = calloc(nodes, 1);
  w.texts = calloc(MOST_TEXTS, sizeof *w.texts);
  if (g) {
    g->array_of = calloc(nodes, sizeof *g->array_of);
    g->totals = calloc(nodes, sizeof *g->totals);
    g->is_double = is_double(job);
    g->long_row = tuning->long_row ? tuning->long_row : 1024;
    w.to = open_memstream(&g->text, &bytes);
  }
  if (!g || !w.to || !w.written || !w.texts || !g->array_of || !g->totals) {
    dfgnn__fail(status, "out of memory");
    goto out;
  }
  if ((status = number_arrays(g, job)))
    goto out;
  find_totals(g, job);
  fprintf(w.to, head, g->is_double ? "double" : "float",
          g->array_count ? g->array_count : 1);
  for (int i = 0; !status && i < l->walk_count; i++)
    status = write_one_walk(&w, i, tuning);
  for (int i = 0; i <= l->walk_count; i++)
    write_params(&w, i);
  fputs(tail, w.to);
out:
  if (w.to && fclose(w.to) && !status)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int i = 0; i < w.text_count; i++)
    free(w.texts[i]);
  free(w.texts);
  free(w.written);
  if (status)
    dfgnn__generated_free(g);
  else
    *generated = g;
  return status;
}

void dfgnn__generated_free(dfgnn_generated *g) {
  if (!g)
    return;
  free(g->text);
  free(g->array_of);
  free(g->totals);
  free(g);
}
