#define _GNU_SOURCE /* open_memstream */
#include "kernels/program/cpu/generate.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/engine/sources.h"
#include "kernels/program/cpu/body.h"
#include "kernels/program/cpu/choice.h"
#include "kernels/program/cpu/writer.h"
#include "lib/base/locale.h"

#define REAL float /* of the operands' addresses, which are not looked at */
#include "kernels/program/cpu/nest.h"

enum {
  SUM_BYTES = 1 << 10, /* of sums and maxima that registers may hold */
  AHEAD = 12           /* edges whose rows are asked for */
};

#define P(...) fprintf(w->to, __VA_ARGS__)
typedef long long number; /* of a format */

static operand operand_of(const writer *w, int32_t n) {
  operand a = {.item = extent(w, n)->all};
  set_strides(&a, extent(w, n));
  if (!a.stride[0] && !a.stride[1] && !a.stride[2])
    a.item = 0;
  return a;
}

/* ---- one step of one edge ------------------------------------------------ */

/* "x7 + i0 * 16 + i1 * 4" */
static void write_at(writer *w, int32_t n, const nest *s, int k) {
  P(", x%d", n);
  if (s->outer > 1 && s->outer_stride[k])
    P(" + i0 * %lld", (number)s->outer_stride[k]);
  if (s->middle > 1 && s->middle_stride[k])
    P(" + i1 * %lld", (number)s->middle_stride[k]);
}

/* Calls a loop for the axes of `to`, with `count` operands. */
static void write_nest(writer *w, const char *loop, int32_t to, int count,
                       const int32_t *of, const double *c) {
  operand a[3];
  for (int k = 0; k < count; k++)
    a[k] = operand_of(w, of[k]);
  const nest s = nest_of(1, extent(w, to), a, count);
  if (s.outer > 1)
    P("for (int64_t i0 = 0; i0 < %lld; i0++) ", (number)s.outer);
  if (s.middle > 1)
    P("for (int64_t i1 = 0; i1 < %lld; i1++) ", (number)s.middle);
  P("loop_%s(%lld, x%d", loop, (number)s.inner, to);
  if (s.outer > 1)
    P(" + i0 * %lld", (number)(s.middle * s.inner));
  if (s.middle > 1)
    P(" + i1 * %lld", (number)s.inner);
  for (int k = 0; k < count; k++) {
    write_at(w, of[k], &s, k);
    P(", %lld", (number)s.inner_stride[k]);
  }
  if (c)
    P(", (REAL)%.17g", *c);
  P(");\n");
}

#define UNARY_NAME(name, expression) #name,
static const char *const unary_names[] = {PROGRAM_UNARY(UNARY_NAME)
                                              PROGRAM_ANGLE(UNARY_NAME)};
static const char *const binary_names[] = {PROGRAM_BINARY(UNARY_NAME)};

/* ", 1, 4, 8": three axes, or strides. */
static void write_three(writer *w, const int64_t *three) {
  P(", %lld, %lld, %lld", (number)three[0], (number)three[1], (number)three[2]);
}

static void write_dot(writer *w, int32_t n, int32_t product) {
  const int32_t x = argument(w, product, 0), y = argument(w, product, 1);
  const operand a = operand_of(w, x), b = operand_of(w, y);
  const int64_t *axis = extent(w, n)->axis;
  P("item_dot(%lld, %lld, %lld, x%d, x%d", (number)axis[0], (number)axis[1],
    (number)extent(w, product)->axis[2], n, x);
  write_three(w, a.stride);
  P(", x%d", y);
  write_three(w, b.stride);
  P(");\n");
}

static void write_fold(writer *w, int32_t n) {
  const int32_t x = argument(w, n, 0);
  const operand a = operand_of(w, x);
  P("item_fold(%d, %lld, %lld", at(w, n)->op == DFGNN_NODE_FMAX,
    (number)a.stride[at(w, n)->axis],
    (number)extent(w, x)->axis[at(w, n)->axis]);
  write_three(w, extent(w, n)->axis);
  P(", x%d, x%d", n, x);
  write_three(w, a.stride);
  P(");\n");
}

static void write_piece(writer *w, int32_t n, int32_t x, int64_t to,
                        int64_t from, int64_t size) {
  const operand a = operand_of(w, x);
  P("item_piece(%lld, %lld", (number)to, (number)size);
  write_three(w, extent(w, n)->axis);
  P(", x%d, x%d + %lld", n, x, (number)(from * a.stride[2]));
  write_three(w, a.stride);
  P(");\n");
}

static void write_order(writer *w, int32_t n) {
  const operand a = operand_of(w, argument(w, n, 0));
  const operand b = swapped(&a, at(w, n)->axis, at(w, n)->flags);
  P("item_order(%lld, %lld, %lld, x%d, x%d", (number)extent(w, n)->axis[0],
    (number)extent(w, n)->axis[1], (number)extent(w, n)->axis[2], n,
    argument(w, n, 0));
  write_three(w, b.stride);
  P(");\n");
}

static void write_matmul(writer *w, int32_t n) {
  const int32_t x = argument(w, n, 0), y = argument(w, n, 1);
  const operand a[] = {operand_of(w, x), operand_of(w, y)};
  const int flags = at(w, n)->flags;
  const int64_t inner = extent(w, x)->axis[flags & DFGNN_MATMUL_FIRST ? 1 : 2];
  const product p = product_of(flags, inner, a);
  P("item_matmul(%d, %lld", p.sums, (number)inner);
  write_three(w, extent(w, n)->axis);
  P(", x%d, x%d, %lld, %lld, %lld, x%d, %lld, %lld, %lld);\n", n, x,
    (number)a[0].stride[0], (number)p.x_row, (number)p.x_inner, y,
    (number)a[1].stride[0], (number)p.y_column, (number)p.y_inner);
}

/* A sum, or a maximum, over the edges of a row, or over everything. */
static void write_reduction(writer *w, int32_t n) {
  const int32_t a = argument(w, n, 0);
  if (w->job->lowered->fused[a]) {
    const int32_t of[] = {argument(w, a, 0), argument(w, a, 1)};
    write_nest(w, "mul_add", n, 2, of, NULL);
    return;
  }
  P("%s(%lld, x%d, x%d);\n",
    at(w, n)->op == DFGNN_NODE_MAX_EDGES ? "max_row"
    : at(w, n)->op == DFGNN_NODE_SUM_ALL ? "add_total"
                                         : "add_row",
    (number)extent(w, n)->all, n, a);
}

static void write_elementwise(writer *w, int32_t n) {
  const dfgnn_node *node = at(w, n);
  int32_t of[3] = {0};
  for (int i = 0; i < node->count && i < 3; i++)
    of[i] = argument(w, n, i);
  if (node->op == DFGNN_NODE_WHERE)
    write_nest(w, "where", n, 3, of, NULL);
  else if (binary_of(node->op) != BINARIES)
    write_nest(w, binary_names[binary_of(node->op)], n, 2, of, NULL);
  else
    write_nest(w, unary_names[unary_of(node)], n, 1, of, &node->number);
}

static void write_step(writer *w, int32_t n) {
  const dfgnn_node *node = at(w, n);
  const int32_t a = argument(w, n, 0);
  switch (node->op) {
  case DFGNN_NODE_FSUM:
    if (w->job->lowered->fused[a]) {
      write_dot(w, n, a);
      break;
    }
    /* fall through */
  case DFGNN_NODE_FMAX:
    write_fold(w, n);
    break;
  case DFGNN_NODE_SLICE:
    write_piece(w, n, a, 0, dfgnn__size_value(node->at, w->job->binding->names),
                extent(w, n)->axis[2]);
    break;
  case DFGNN_NODE_CAT:
    for (int64_t i = 0, to = 0; i < node->count; i++) {
      const int32_t x = argument(w, n, (int)i);
      write_piece(w, n, x, to, 0, extent(w, x)->axis[2]);
      to += extent(w, x)->axis[2];
    }
    break;
  case DFGNN_NODE_RESHAPE:
    P("loop_copy(%lld, x%d, x%d, 1, 0);\n", (number)extent(w, n)->all, n, a);
    break;
  case DFGNN_NODE_SWAP:
    write_order(w, n);
    break;
  case DFGNN_NODE_MATMUL:
    write_matmul(w, n);
    break;
  case DFGNN_NODE_SUM:
  case DFGNN_NODE_MAX_EDGES:
  case DFGNN_NODE_SUM_ALL:
    write_reduction(w, n);
    break;
  default:
    write_elementwise(w, n);
  }
}

/* ---- functions ----------------------------------------------------------- */

static const char *type_of(const writer *w, int32_t n) {
  return at(w, n)->op == DFGNN_NODE_SUM_ALL && w->used[n] >= 2 ? "double"
                                                               : "REAL";
}

/* The steps of a function, and before them the cheap ones that they read. */
static void find_steps(writer *w, int group) {
  memset(w->emits, 0, (size_t)w->dag->count);
  for (int i = w->step_count - 1; i >= 0; i--) {
    const int32_t n = w->steps[i];
    w->emits[n] = w->group[n] == group;
    for (int k = i + 1; w->local[n] && !w->emits[n] && k < w->step_count; k++)
      w->emits[n] =
          w->emits[w->steps[k]] && dfgnn__writer_is_read(w, w->steps[k], n);
  }
}

/* Declares a%d for each node that the function looks at. */
static void write_nodes(writer *w, int group) {
  dfgnn_body_function *f = &w->body->functions[group];
  int32_t of[2 * DFGNN_DAG_CAT];
  memset(w->used, 0, (size_t)w->dag->count);
  for (int i = 0; i < w->step_count; i++) {
    if (!w->emits[w->steps[i]])
      continue;
    w->used[w->steps[i]] = 2;
    for (int k = dfgnn__writer_reads(w, w->steps[i], of) - 1; k >= 0; k--)
      if (!w->used[of[k]])
        w->used[of[k]] = 1;
  }
  f->first = w->node_count;
  for (int32_t n = 0; n < w->dag->count && !w->too_many; n++)
    if (w->used[n] && !w->local[n]) {
      w->too_many = w->node_count + 1 == w->node_room;
      P("%s *const a%d = b->at[%d];\n", type_of(w, n), n, f->count++);
      w->body->nodes[w->node_count++] = n;
    }
  w->too_many |= f->count > BODY_NODES; /* which group_steps sees to */
}

/* Sums and maxima that are added up in registers, where there is room. */
static void find_sums(writer *w) {
  int64_t room = SUM_BYTES;
  for (int32_t n = 0; n < w->dag->count; n++) {
    const int is_total = at(w, n)->op == DFGNN_NODE_SUM_ALL;
    const int64_t bytes =
        extent(w, n)->all * (is_total || w->is_double ? 8 : 4);
    if (w->used[n] == 2 && dfgnn__node_reduces(at(w, n)->op) && bytes <= room) {
      w->used[n] = 3;
      room -= bytes;
    }
  }
}

/* Writes sums of a reach back from registers. */
static void write_sums(writer *w, reach r, const char *index) {
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->used[n] == 3 && dfgnn__writer_reach(w, n) == r)
      P("for (int i = 0; i < %lld; i++) a%d[%s * %lld + i] = x%d[i];\n",
        (number)extent(w, n)->all, n, index, (number)extent(w, n)->all, n);
}

/* Declares x%d for what is of a reach, at the item `index`. */
static void write_items(writer *w, reach r, const char *index) {
  for (int32_t n = 0; n < w->dag->count; n++) {
    if (!w->used[n])
      continue;
    const number all = (number)extent(w, n)->all;
    const int once = dfgnn__writer_reach(w, n) == ONCE; /* totals among them */
    if (w->local[n]) {
      if (r == OF_EDGE)
        P("REAL x%d[%lld];\n", n, all);
    } else if (w->used[n] == 3 && dfgnn__writer_reach(w, n) == r) {
      P("%s x%d[%lld];\n", type_of(w, n), n, all);
      P("for (int i = 0; i < %lld; i++) x%d[i] = a%d[%s * %lld + i];\n", all, n,
        n, index, all);
    } else if (dfgnn__writer_reach(w, n) == r) {
      P("%s *const x%d = a%d", type_of(w, n), n, n);
      if (r == OF_END)
        P(" + b->index[%d][k] * %lld;\n", at(w, n)->place, all);
      else
        P(once ? ";\n" : " + %s * %lld;\n", index, all);
    }
  }
}

static void write_prefetches(writer *w) {
  const int bytes = w->is_double ? 8 : 4;
  int some = 0;
  for (int32_t n = 0; n < w->dag->count; n++) {
    const int64_t row = extent(w, n)->all * bytes;
    /* narrow rows of nodes stay in a cache, those of edges do not */
    if (!w->used[n] || w->local[n] || dfgnn__writer_reach(w, n) != OF_END ||
        (row < 64 && at(w, n)->place != DFGNN_PLACE_EDGE))
      continue;
    if (!some++)
      P("if (k + %d < b->count) {\n", AHEAD);
    P("body_prefetch(a%d + b->index[%d][k + %d] * %lld, %lld);\n", n,
      at(w, n)->place, AHEAD, (number)extent(w, n)->all,
      (number)(row < 2048 ? row : 2048));
  }
  if (some)
    P("}\n");
}

static void write_each_edge(writer *w) {
  find_sums(w);
  write_items(w, ONCE, "0");
  P("for (int64_t r = 0; r < b->rows; r++) {\n"
    "int64_t k = body_begin(b, r);\n"
    "const int64_t end = body_end(b, r);\n"
    "if (k == end) continue;\n");
  write_items(w, OF_ROW, "r");
  P("for (; k < end; k++) {\n");
  write_prefetches(w);
  write_items(w, OF_END, "");
  write_items(w, OF_EDGE, "k");
  for (int i = 0; i < w->step_count; i++)
    if (w->emits[w->steps[i]])
      write_step(w, w->steps[i]);
  P("}\n");
  write_sums(w, OF_ROW, "r");
  P("}\n");
  write_sums(w, ONCE, "0");
}

static void write_flat(writer *w, int32_t n) {
  const dfgnn_node *node = at(w, n);
  const int binary = binary_of(node->op);
  P("loop_%s(b->count * %lld, a%d",
    node->op == DFGNN_NODE_WHERE ? "where"
    : binary != BINARIES         ? binary_names[binary]
                                 : unary_names[unary_of(node)],
    (number)extent(w, n)->all, n);
  for (int i = 0; i < node->count; i++)
    P(", a%d, %d", argument(w, n, i),
      dfgnn__writer_reach(w, argument(w, n, i)) == OF_EDGE);
  if (node->count == 1)
    P(", (REAL)%.17g", node->number);
  P(");\n");
}

static void write_scores(writer *w, int32_t n) {
  const int32_t a = argument(w, n, 0);
  const number all = (number)extent(w, n)->all;
  const reach r = dfgnn__writer_reach(w, a);
  P("reduce_scores(b, %lld, a%d, ", all, a);
  if (r == OF_END)
    P("b->index[%d]", at(w, a)->place);
  else
    P("%s", r == OF_ROW ? "b->row" : "0");
  P(", %lld, a%d, a%d + %lld * b->edges, b->scratch);\n", r == ONCE ? 0 : all,
    n, n, all);
}

static void write_function(writer *w, int group) {
  shape s = EACH_EDGE;
  P("static void f%d(const body_block *b) {\n", group);
  find_steps(w, group);
  write_nodes(w, group);
  for (int i = 0; i < w->step_count; i++) {
    const int32_t n = w->steps[i];
    if (w->group[n] != group || (s = dfgnn__writer_shape(w, n)) == EACH_EDGE)
      continue;
    if (s == FLAT)
      write_flat(w, n);
    else
      write_scores(w, n);
  }
  if (s == EACH_EDGE)
    write_each_edge(w);
  P("}\n\n");
}

/* ---- lists --------------------------------------------------------------- */

/* Does the list of a long row's stage have steps that whole rows' has not?
 * Without, values may be in memory that could be local. */
static int makes_again(const writer *w, int stage) {
  int again = 0;
  for (int i = 0; i < w->walk->count; i++) {
    const dfgnn_step *step = &w->walk->steps[i];
    again |= dfgnn__writer_looks_at_edges(w, step) &&
             (int)(step->stages >> stage & 1) != (step->stage == stage);
  }
  return again;
}

/* The steps of a stage: those that are first needed there, or, of a long row,
 * all that its sums need. */
static void take_steps(writer *w, int stage, int long_row) {
  w->step_count = 0;
  for (int32_t n = 0; n < w->dag->count; n++)
    w->group[n] = -1;
  for (int i = 0; i < w->walk->count; i++) {
    const dfgnn_step *step = &w->walk->steps[i];
    if (dfgnn__writer_looks_at_edges(w, step) &&
        (long_row ? (int)(step->stages >> stage & 1) : step->stage == stage))
      w->steps[w->step_count++] = step->node;
  }
  memset(w->cheap, 0, (size_t)w->dag->count);
  for (int i = 0; i < w->step_count; i++)
    w->cheap[w->steps[i]] = dfgnn__writer_is_cheap(w, w->steps[i]);
}

static int write_list(writer *w, int stage, int long_row) {
  dfgnn_body *body = w->body;
  take_steps(w, stage, long_row);
  const int first = body->function_count;
  const int end = dfgnn__writer_group(w, first);
  if (end < 0)
    return 0;
  dfgnn__writer_locals(w, first, end, long_row);
  body->lists[w->list_count++] = w->call_count;
  for (int group = first; group < end; group++) {
    body->functions[group].count = 0;
    write_function(w, group);
    body->calls[w->call_count++] = group;
  }
  body->calls[w->call_count++] = -1;
  body->function_count = end;
  return 1;
}

static int write_walk(writer *w, int number) {
  int whole = 1;
  w->walk_number = number;
  w->walk = &w->job->lowered->walks[number];
  w->body->first_list[number] = w->list_count;
  memset(w->made, 0, (size_t)w->dag->count);
  for (int i = 0; i < w->walk->count; i++)
    if (w->walk->steps[i].kind == DFGNN_STEP_COMPUTE)
      w->made[w->walk->steps[i].node] = 1;
  for (int stage = 0; whole && stage < w->walk->stages; stage++) {
    whole = write_list(w, stage, 0);
    if (makes_again(w, stage)) {
      whole &= write_list(w, stage, 1);
    } else {
      w->body->lists[w->list_count] = w->body->lists[w->list_count - 1];
      w->list_count++;
    }
  }
  return whole;
}

static int write_sources(writer *w, int fused) {
  static const char *const names[] = {
      "kernels/program/cpu/body.h", "kernels/program/cpu/operations.h",
      "kernels/program/cpu/functions.h", "kernels/program/cpu/loops.h"};
  P("#include <float.h>\n#include <math.h>\n#include <stdint.h>\n"
    "#define REAL %s\n#define REAL_IS_DOUBLE %d\n#define REAL_FUSED %d\n"
    "#define LOOP static inline __attribute__((always_inline))\n",
    w->is_double ? "double" : "float", w->is_double, fused);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const dfgnn_source_file *files[DFGNN_MAX_CLOSURE];
    int count = 0;
    if (dfgnn__source_closure(files, &count, names[i]))
      return 0;
    P("%s\n", files[0]->text);
  }
  return 1;
}

static int write_all(writer *w, int fused) {
  int whole = write_sources(w, fused);
  for (int i = 0; whole && i < w->job->lowered->walk_count; i++)
    whole = write_walk(w, i);
  P("__attribute__((visibility(\"default\"))) body_function *const "
    "dfgnn_bodies[] = {");
  for (int i = 0; i < w->body->function_count; i++)
    P("f%d, ", i);
  P("0};\n");
  return whole && !w->too_many;
}

void dfgnn__body_free(dfgnn_body *body) {
  if (!body)
    return;
  free(body->text);
  free(body->nodes);
  free(body->functions);
  free(body->calls);
  free(body->lists);
  free(body->slots);
  free(body);
}

/* Memory for what may be written: a step is in two functions for each of its
 * stages, and names so many nodes. */
static int allocate(writer *w) {
  const dfgnn_lowered *l = w->job->lowered;
  const size_t nodes = (size_t)w->dag->count;
  size_t functions = 1, names = 1, lists = 1;
  int32_t of[2 * DFGNN_DAG_CAT];
  for (int i = 0; i < l->walk_count; i++) {
    lists += 2 * (size_t)l->walks[i].stages;
    for (int k = 0; k < l->walks[i].count; k++) {
      const dfgnn_step *step = &l->walks[i].steps[k];
      const size_t times = 1 + (size_t)__builtin_popcountll(step->stages);
      if (step->kind != DFGNN_STEP_COMPUTE)
        continue;
      functions += times;
      names += times * (size_t)(1 + dfgnn__writer_reads(w, step->node, of));
    }
  }
  dfgnn_body *b = w->body = calloc(1, sizeof *b);
  if (b) {
    w->node_room = (int)(2 * names);
    b->nodes = calloc(2 * names, sizeof *b->nodes);
    b->functions = calloc(functions, sizeof *b->functions);
    b->calls = calloc(functions + lists, sizeof *b->calls);
    b->lists = calloc(lists, sizeof *b->lists);
    b->slots = calloc(nodes * (size_t)l->walk_count + 1, 1);
  }
  w->made = calloc(nodes, 1);
  w->steps = calloc(nodes, sizeof *w->steps);
  w->group = calloc(nodes, sizeof *w->group);
  w->cheap = calloc(nodes, 1);
  w->local = calloc(nodes, 1);
  w->emits = calloc(nodes, 1);
  w->used = calloc(nodes, 1);
  return b && b->nodes && b->functions && b->calls && b->lists && b->slots &&
         w->made && w->steps && w->group && w->cheap && w->local && w->emits &&
         w->used;
}

dfgnn_body *dfgnn__body_generate(const dfgnn_program_job *job, int is_double,
                                 int fused) {
  const locale_t before = dfgnn__locale_begin();
  writer w = {.job = job, .dag = job->lowered->dag, .is_double = is_double};
  size_t bytes = 0;
  int whole = allocate(&w) && (w.to = open_memstream(&w.body->text, &bytes));
  if (whole)
    whole = write_all(&w, fused);
  if (w.to && fclose(w.to))
    whole = 0;
  free(w.made);
  free(w.steps);
  free(w.group);
  free(w.cheap);
  free(w.local);
  free(w.emits);
  free(w.used);
  dfgnn__locale_end(before);
  if (!whole) {
    dfgnn__body_free(w.body);
    return NULL;
  }
  return w.body;
}
