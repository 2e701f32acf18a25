#define _GNU_SOURCE /* vasprintf */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/dropout.h"
#include "kernels/program/cuda/code.h"

const char *dfgnn__code_text(writer *w, const char *format, ...) {
  va_list args;
  char *made = NULL;
  if (w->text_count == CODE_TEXTS) { /* those of earlier statements */
    for (int i = 0; i < CODE_TEXTS / 2; i++)
      free(w->texts[i]);
    memmove(w->texts, w->texts + CODE_TEXTS / 2,
            CODE_TEXTS / 2 * sizeof *w->texts);
    w->text_count = CODE_TEXTS / 2;
  }
  va_start(args, format);
  if (vasprintf(&made, format, args) < 0)
    made = NULL;
  va_end(args);
  w->texts[w->text_count++] = made;
  return made ? made : "";
}

const char *dfgnn__code_type_name(dfgnn_dtype dtype) {
  static const char *const names[] = {"float", "half_t", "bfloat_t", "double"};
  return names[dtype];
}

static const char *number(writer *w, double x) {
  if (isnan(x))
    return "A(NAN)";
  if (isinf(x))
    return x < 0 ? "(-A(INFINITY))" : "A(INFINITY)";
  return dfgnn__code_text(w, "A(%.17g)", x);
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
          stride == 1
              ? dfgnn__code_text(w, "(%s)", axis[i])
              : dfgnn__code_text(w, "(%s) * %lld", axis[i], (long long)stride);
      sum = sum ? dfgnn__code_text(w, "%s + %s", term, sum) : term;
    }
    stride *= e->axis[i];
  }
  return sum ? sum : "0";
}

/* The row of a leaf's array: of the walk, of another end of the edge, its id.
 */
const char *dfgnn__code_item_of(const writer *w, int place) {
  if (place <= DFGNN_PLACE_PARAM)
    return "0";
  if (place == (int)w->p->walk->own)
    return "row";
  return place == DFGNN_PLACE_EDGE  ? "x.ends.id"
         : place == DFGNN_PLACE_DST ? "x.ends.dst"
         : place == DFGNN_PLACE_SRC ? "x.ends.src"
                                    : "x.ends.rel";
}

static int reread(const writer *w, int32_t n) {
  return w->p ? w->p->reread[n] : -1;
}

const char *dfgnn__code_array_type(const writer *w, int32_t n) {
  if (at(w, n)->op == DFGNN_NODE_INPUT)
    return dfgnn__code_type_name(w->job->inputs[at(w, n)->index].dtype);
  return reread(w, n) < 0
             ? "A"
             : dfgnn__code_type_name(w->job->outputs[reread(w, n)].dtype);
}

int dfgnn__code_array_of(const writer *w, int32_t n) {
  if (at(w, n)->op == DFGNN_NODE_INPUT)
    return at(w, n)->index;
  return reread(w, n) < 0 ? w->g->array_of[n]
                          : w->dag->input_count + reread(w, n);
}

static const char *mask(writer *w, int32_t n, const char *off) {
  const dfgnn_node *node = at(w, n);
  if (node->number >= 1)
    return "A(0)";
  return dfgnn__code_text(
      w, "keep<A>(dfgnn__dropout_key(%sseed + %d), %s, %lld, %s, %uu, %s)",
      w->p ? "" : "here.", node->index, dfgnn__code_item_of(w, node->place),
      (long long)extent(w, n)->all, off, dfgnn__dropout_threshold(node->number),
      number(w, 1 / (1 - node->number)));
}

static const char *degree(writer *w, int32_t n) {
  const int place = at(w, n)->place;
  return place == (int)w->p->walk->own
             ? "A(degree)"
             : dfgnn__code_text(w, "far_degree(%d, %s)", place,
                                dfgnn__code_item_of(w, place));
}

int dfgnn__code_in_registers(const writer *w, int32_t n) {
  return w->p->made[n] || w->p->kept[n] || w->p->loaded[n];
}

/* Element `off` of a value in memory, or in a lane's registers where it is
 * there; aligned: that lane's own. */
const char *dfgnn__code_element(writer *w, int32_t n, const place *x,
                                const char *off, int aligned) {
  const dfgnn_node *node = at(w, n);
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    return number(w, node->number);
  case DFGNN_NODE_SIZE:
    return number(w,
                  (double)dfgnn__size_value(node->at, w->job->binding->names));
  case DFGNN_NODE_COUNT:
    return dfgnn__code_text(w, "A(p.counts[%d])", node->index);
  case DFGNN_NODE_DEGREE:
    return degree(w, n);
  case DFGNN_NODE_KEEP:
    return mask(w, n, off);
  default:
    break;
  }
  if (!w->p)
    return dfgnn__code_text(w, "read<A>(here.in<%s>(%d), %s)",
                            dfgnn__code_array_type(w, n),
                            dfgnn__code_array_of(w, n), off);
  const value_class c = plan_class(w->p, n);
  const int made = w->p->made[n];
  const char *owner = !made && w->p->loaded[n] ? "x." : "";
  if (c == CLASS_ONE && dfgnn__code_in_registers(w, n))
    return dfgnn__code_text(w, "%sn%d", owner, n);
  if (aligned && dfgnn__code_in_registers(w, n))
    return dfgnn__code_text(w, "%sn%d[%s]", owner, n,
                            c == CLASS_HEADS ? "c" : "c * M::VEC + i");
  if (made)
    return dfgnn__code_text(w, "%s_shared[%d + %s]",
                            made == 1 + DFGNN_LEVEL_OWN ? "own" : "edge",
                            w->p->slot[n], off);
  (void)x;
  return dfgnn__code_text(
      w, "read<A>(in<%s>(%d), %s * int64_t(%lld) + %s)",
      dfgnn__code_array_type(w, n), dfgnn__code_array_of(w, n),
      dfgnn__code_item_of(w, node->place), (long long)extent(w, n)->all, off);
}

/* Argument a where it is spread over the axes of the result. */
const char *dfgnn__code_operand(writer *w, int32_t a, const place *x) {
  return dfgnn__code_element(w, a, x, offset(w, extent(w, a), x->axis),
                             w->p && dfgnn__plan_aligned(w->p, x->c, a));
}

/* Argument a at other axes than those of the result. */
static const char *elsewhere(writer *w, int32_t a, const place *x,
                             const char *a0, const char *a1, const char *a2) {
  const char *axis[] = {a0, a1, a2};
  return dfgnn__code_element(w, a, x, offset(w, extent(w, a), axis), 0);
}

/* ---- operations ---------------------------------------------------------- */

/* A product, or a sum.  One that is exact is rounded by itself: the compiler
 * would make one instruction of it and a sum, or not, as it stands. */
static const char *times(writer *w, int exact, const char *a, const char *b) {
  return dfgnn__code_text(w, exact ? "f_mul(%s, %s)" : "(%s * %s)", a, b);
}

static const char *plus(writer *w, int exact, const char *a, const char *b) {
  return dfgnn__code_text(w, exact ? "f_add(%s, %s)" : "(%s + %s)", a, b);
}

static const char *power(writer *w, int exact, const char *a, double c) {
  if (c == -1)
    return dfgnn__code_text(w, "(A(1) / %s)", a);
  if (c == 0.5)
    return dfgnn__code_text(w, "f_sqrt(%s)", a);
  if (c == -0.5)
    return dfgnn__code_text(w, "f_rsqrt(%s)", a);
  if (c == 1)
    return a;
  if (c > 1 && c <= DFGNN_POW_SQUARED && c == floor(c)) {
    const char *half = power(w, exact, a, floor(c / 2));
    const char *even = times(w, exact, half, half);
    return fmod(c, 2) ? times(w, exact, even, a) : even;
  }
  return dfgnn__code_text(w, "f_pow(%s, %s)", a, number(w, c));
}

static const char *unary(writer *w, int32_t n, const char *a) {
  const dfgnn_node *node = at(w, n);
  const int exact = w->job->lowered->exact[n];
  static const char *const functions[DFGNN_NODE_OPS] = {
      [DFGNN_NODE_EXP] = "f_exp",           [DFGNN_NODE_EXPM1] = "f_expm1",
      [DFGNN_NODE_LOG] = "f_log",           [DFGNN_NODE_LOG1P] = "f_log1p",
      [DFGNN_NODE_TANH] = "f_tanh",         [DFGNN_NODE_SIGMOID] = "f_sigmoid",
      [DFGNN_NODE_SOFTPLUS] = "f_softplus", [DFGNN_NODE_ERF] = "f_erf",
      [DFGNN_NODE_SIN] = "f_sin",           [DFGNN_NODE_COS] = "f_cos",
      [DFGNN_NODE_ABS] = "f_abs",           [DFGNN_NODE_SIGN] = "f_sign"};
  if (functions[node->op])
    return dfgnn__code_text(w, "%s(%s)", functions[node->op], a);
  switch (node->op) {
  case DFGNN_NODE_POW:
    return power(w, exact, a, node->number);
  case DFGNN_NODE_RELU:
    return dfgnn__code_text(w, "(%s < A(0) ? A(0) : %s)", a, a);
  case DFGNN_NODE_LEAKY:
    return dfgnn__code_text(w, "(%s > A(0) ? %s : %s)", a, a,
                            times(w, exact, a, number(w, node->number)));
  default: /* DETACH, EXPAND, reductions of what is there */
    return a;
  }
}

static const char *binary(writer *w, int32_t n, const char *a, const char *b) {
  const int exact = w->job->lowered->exact[n];
  switch (at(w, n)->op) {
  case DFGNN_NODE_ADD:
    return plus(w, exact, a, b);
  case DFGNN_NODE_MUL:
    return times(w, exact, a, b);
  case DFGNN_NODE_ATAN2:
    return dfgnn__code_text(w, "f_atan2(%s, %s)", a, b);
  case DFGNN_NODE_MAX:
    return dfgnn__code_text(w, "f_max(%s, %s)", a, b);
  case DFGNN_NODE_LT:
    return dfgnn__code_text(w, "A(%s < %s)", a, b);
  case DFGNN_NODE_LE:
    return dfgnn__code_text(w, "A(%s <= %s)", a, b);
  default:
    return dfgnn__code_text(w, "A(%s == %s)", a, b);
  }
}

static const char *joined_rows(writer *w, int32_t n, const place *x) {
  const dfgnn_node *node = at(w, n);
  const char *made = NULL;
  int64_t end = extent(w, n)->axis[2];
  for (int i = node->count - 1; i >= 0; i--) {
    int32_t a = argument(w, n, i);
    int64_t begin = end - extent(w, a)->axis[2];
    const char *part = elsewhere(
        w, a, x, x->axis[0], x->axis[1],
        dfgnn__code_text(w, "%s - %lld", x->axis[2], (long long)begin));
    made = made ? dfgnn__code_text(w, "(%s < %lld ? %s : %s)", x->axis[2],
                                   (long long)end, part, made)
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
    return dfgnn__code_text(w, "(%s != A(0) ? %s : %s)",
                            dfgnn__code_operand(w, a, x),
                            dfgnn__code_operand(w, argument(w, n, 1), x),
                            dfgnn__code_operand(w, argument(w, n, 2), x));
  case DFGNN_NODE_SLICE: {
    int64_t begin = dfgnn__size_value(node->at, w->job->binding->names);
    return elsewhere(
        w, a, x, x->axis[0], x->axis[1],
        dfgnn__code_text(w, "%s + %lld", x->axis[2], (long long)begin));
  }
  case DFGNN_NODE_SWAP: {
    const char *axis[] = {x->axis[0], x->axis[1], x->axis[2]};
    axis[node->axis] = x->axis[node->flags];
    axis[node->flags] = x->axis[node->axis];
    return elsewhere(w, a, x, axis[0], axis[1], axis[2]);
  }
  case DFGNN_NODE_CAT:
    return joined_rows(w, n, x);
  case DFGNN_NODE_RESHAPE:
    return dfgnn__code_element(w, a, x, x->flat, 0);
  default:
    return node->count == 2
               ? binary(w, n, dfgnn__code_operand(w, a, x),
                        dfgnn__code_operand(w, argument(w, n, 1), x))
               : unary(w, n, dfgnn__code_operand(w, a, x));
  }
}

/* Declares y, the element at x. */
void dfgnn__code_write_element(writer *w, int32_t n, const place *x) {
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
    P("y = %s;\n", max ? dfgnn__code_text(w, "f_max(%s, y)", term)
                       : plus(w, w->job->lowered->exact[n], "y", term));
  } else if (node->op == DFGNN_NODE_MATMUL) {
    const int first = node->flags & DFGNN_MATMUL_FIRST;
    const int second = node->flags & DFGNN_MATMUL_SECOND;
    int32_t b = argument(w, n, 1);
    P("A y = A(0);\nfor (int t = 0; t < %lld; ++t)\n",
      (long long)extent(w, a)->axis[first ? 1 : 2]);
    P("y = f_fma(%s, %s, y);\n",
      elsewhere(w, a, x, x->axis[0], first ? "t" : x->axis[1],
                first ? x->axis[1] : "t"),
      elsewhere(w, b, x, x->axis[0], second ? x->axis[2] : "t",
                second ? "t" : x->axis[2]));
  } else {
    P("const A y = %s;\n", expression(w, n, x));
  }
}
