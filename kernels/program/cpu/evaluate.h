/* evaluate.h - the walks of a program, in blocks of edges
 *
 * A block is some rows with all their edges, or a part of one long row.  Values
 * of edges have a slot of the block's memory each, which is taken again when no
 * later step reads it; values of the rows have one of their own.  A long row
 * goes through the stages of its walk one after the other, and each computes
 * the values of its edges again. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_EVALUATE_H
#define DFGNN_KERNELS_PROGRAM_CPU_EVALUATE_H

#include <stdlib.h>

#include "base/error.h"
#include "kernels/common/dropout.h"
#include "kernels/common/half.h"
#include "kernels/program/cpu/values.h"
#include "kernels/program/job.h"

enum {
  BLOCK_BYTES = 96 << 10, /* of the values of a block's edges */
  BLOCK_EDGES = 256,
  FEW = 4096, /* edges and rows that one thread walks */
  CHUNKS = 64 /* parts of the rows, whatever the number of threads */
};

#if REAL_IS_DOUBLE
#define REAL_DTYPE DFGNN_F64
#else
#define REAL_DTYPE DFGNN_F32
#endif

/* Where a node's value is. */
typedef enum home { NOWHERE, ONCE, GLOBAL, OWN, EDGE } home;

typedef struct place_of_value {
  home home;
  const REAL *base; /* ONCE, GLOBAL */
  int place;        /* GLOBAL: whose rows base has */
  int64_t slot;     /* OWN, EDGE: elements before it, for each row or edge */
} place_of_value;

/* A leaf that a block makes: an input of another type, or dropout's mask. */
typedef struct load {
  int32_t node;
  int level;
} load;

typedef struct engine {
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  const dfgnn_lowered *lowered;
  REAL **arrays; /* of nodes that are stored, PARAM or converted; NULL */
  REAL *degrees[2];

  /* the walk that runs */
  const dfgnn_walk *walk;
  const dfgnn_matrix *matrix;
  place_of_value *values;
  load *loads;
  int load_count;
  int64_t own_elements, edge_elements, scratch_elements;
  int64_t edges;                 /* of a block */
  int64_t bounds[CHUNKS + 1];    /* rows of a chunk */
  int64_t *all_at, all_elements; /* sums over everything: of a chunk */
  double *all;
} engine;

typedef struct block {
  engine *e;
  REAL *own, *edge, *scratch;
  double *all;
  int64_t *row, *far, *id; /* of each edge: row of the block, far node, edge */
  int64_t first, rows;     /* the block's */
  int64_t begin, count;    /* its edges, as the matrix has them */
  int64_t *starts;         /* first edge of each row, from begin */
} block;

static int32_t argument(const engine *e, int32_t n, int i) {
  return dfgnn__dag_argument(e->dag, n, i);
}
static const dfgnn_extent *extent(const engine *e, int32_t n) {
  return &e->job->extents[n];
}
static int own_place(const engine *e) {
  return e->walk->columns ? DFGNN_PLACE_SRC : DFGNN_PLACE_DST;
}

static int64_t offset_at(const dfgnn_matrix *m, int64_t i) {
  return m->offsets64 ? ((const int64_t *)m->offsets)[i]
                      : ((const int32_t *)m->offsets)[i];
}

/* ---- types --------------------------------------------------------------- */

static void load_row(REAL *out, const void *from, dfgnn_dtype dtype, int64_t at,
                     int64_t n) {
  for (int64_t i = 0; i < n; i++)
    switch (dtype) {
    case DFGNN_F64:
      out[i] = (REAL)((const double *)from)[at + i];
      break;
    case DFGNN_F16:
      out[i] = dfgnn__f16_to_float(((const uint16_t *)from)[at + i]);
      break;
    case DFGNN_BF16:
      out[i] = dfgnn__bf16_to_float(((const uint16_t *)from)[at + i]);
      break;
    default:
      out[i] = (REAL)((const float *)from)[at + i];
    }
}

static void store_row(void *to, dfgnn_dtype dtype, int64_t at, const REAL *from,
                      int64_t n) {
  if (dtype == REAL_DTYPE) {
    memcpy((REAL *)to + at, from, (size_t)n * sizeof *from);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    switch (dtype) {
    case DFGNN_F64:
      ((double *)to)[at + i] = from[i];
      break;
    case DFGNN_F16:
      ((uint16_t *)to)[at + i] = dfgnn__f16_from_double(from[i]);
      break;
    case DFGNN_BF16:
      ((uint16_t *)to)[at + i] = dfgnn__bf16_from_double(from[i]);
      break;
    default:
      ((float *)to)[at + i] = (float)from[i];
    }
}

static void fill_keep(const engine *e, int32_t n, int64_t item, REAL *out) {
  const dfgnn_node *node = &e->dag->nodes[n];
  const int64_t elements = extent(e, n)->all;
  uint64_t key = dfgnn__dropout_key(e->job->seed + (uint64_t)node->index);
  const int all = node->number >= 1;
  uint32_t threshold = all ? 0 : dfgnn__dropout_threshold(node->number);
  REAL kept = all ? 0 : (REAL)(1 / (1 - node->number));
  for (int64_t i = 0; i < elements; i++)
    out[i] =
        all || dfgnn__dropped(key, item, elements, i, threshold) ? 0 : kept;
}

/* ---- operands ------------------------------------------------------------ */

static operand operand_of(const block *b, int32_t n, int level) {
  const engine *e = b->e;
  const place_of_value *v = &e->values[n];
  operand a = {.base = v->base, .item = extent(e, n)->all};
  set_strides(&a, extent(e, n));
  int of_row =
      v->home == OWN || (v->home == GLOBAL && v->place == own_place(e));
  if (v->home == ONCE) {
    a.item = 0;
  } else if (of_row) {
    a.base = v->home == OWN ? b->own + v->slot * e->edges
                            : v->base + b->first * a.item;
    if (level == DFGNN_LEVEL_EDGE && b->rows == 1)
      a.item = 0;
    else if (level == DFGNN_LEVEL_EDGE)
      a.index = b->row;
  } else if (v->home == EDGE) {
    a.base = b->edge + v->slot * e->edges;
  } else if (v->place != DFGNN_PLACE_EDGE) {
    a.index = b->far;
  } else if (e->walk->columns) {
    a.index = b->id;
  } else {
    a.base += b->begin * a.item;
  }
  return a;
}

/* ---- values -------------------------------------------------------------- */

/* The value of a node from operands of its arguments. */
static void compute(const engine *e, int32_t n, int64_t items, REAL *out,
                    const operand *a) {
  const dfgnn_node *node = &e->dag->nodes[n];
  const dfgnn_extent *to = extent(e, n);
  const dfgnn_extent *from = extent(e, argument(e, n, 0));
  switch (node->op) {
  case DFGNN_NODE_ADD:
  case DFGNN_NODE_MUL:
  case DFGNN_NODE_MAX:
  case DFGNN_NODE_LT:
  case DFGNN_NODE_LE:
  case DFGNN_NODE_EQ:
    run_binary(binary_of(node->op), items, to, out, a);
    break;
  case DFGNN_NODE_WHERE:
    run_where(items, to, out, a);
    break;
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_FMAX:
    run_fold(node->op == DFGNN_NODE_FMAX, node->axis, items, to,
             from->axis[node->axis], out, a);
    break;
  case DFGNN_NODE_SLICE:
    run_piece(items, to, 0, dfgnn__size_value(node->at, e->job->binding->names),
              to->axis[2], out, a);
    break;
  case DFGNN_NODE_CAT:
    for (int64_t i = 0, at = 0; i < node->count; i++) {
      int64_t size = extent(e, argument(e, n, (int)i))->axis[2];
      run_piece(items, to, at, 0, size, out, &a[i]);
      at += size;
    }
    break;
  case DFGNN_NODE_RESHAPE:
    run_reshape(items, to->all, out, a);
    break;
  case DFGNN_NODE_MATMUL:
    run_matmul(node->flags, items, to,
               from->axis[node->flags & DFGNN_MATMUL_FIRST ? 1 : 2], out, a);
    break;
  default:
    run_unary(unary_of(node->op, (REAL)node->number), (REAL)node->number, items,
              to, out, a);
  }
}

static int operands(const block *b, int32_t n, int level, operand *a) {
  const int count = b->e->dag->nodes[n].count;
  for (int i = 0; i < count; i++)
    a[i] = operand_of(b, argument(b->e, n, i), level);
  return count;
}

/* The value of a step; a fused product gives its two factors. */
static void compute_step(block *b, int32_t n, int level, REAL *out) {
  const engine *e = b->e;
  const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
  operand a[DFGNN_DAG_CAT];
  int32_t first = argument(e, n, 0);
  if (e->lowered->fused[first]) {
    operands(b, first, level, a);
    run_dot(items, extent(e, n), extent(e, first)->axis[2], out, a);
    return;
  }
  operands(b, n, level, a);
  compute(e, n, items, out, a);
}

/* ---- reductions ---------------------------------------------------------- */

static REAL *own_value(const block *b, int32_t n) {
  return b->own + b->e->values[n].slot * b->e->edges;
}

static int is_lse(int op) {
  return op == DFGNN_NODE_LSE_IN || op == DFGNN_NODE_LSE_OUT;
}
static int is_max(int op) {
  return op == DFGNN_NODE_MAX_IN || op == DFGNN_NODE_MAX_OUT;
}

static void begin_reduction(block *b, int32_t n) {
  const int op = b->e->dag->nodes[n].op;
  const int64_t size = extent(b->e, n)->all * b->rows;
  REAL *out = own_value(b, n);
  REAL start = is_max(op) || is_lse(op) ? (REAL)-INFINITY : 0;
  loop_copy(size, out, &start, 0, 0);
  if (is_lse(op)) /* its sums stand behind its maxima */
    memset(out + extent(b->e, n)->all * b->e->edges, 0,
           (size_t)size * sizeof *out);
}

static void add_products(block *b, int32_t n, int32_t product) {
  const dfgnn_extent *to = extent(b->e, n);
  REAL *out = own_value(b, n);
  operand a[2];
  operands(b, product, DFGNN_LEVEL_EDGE, a);
  nest shape = nest_of(1, to, a, 2);
  for (int64_t edge = 0; edge < b->count; edge++) {
    REAL *to_row = out + b->row[edge] * to->all;
    const REAL *x = item_of(&a[0], edge), *y = item_of(&a[1], edge);
    for (int64_t i0 = 0; i0 < shape.outer; i0++)
      for (int64_t i1 = 0; i1 < shape.middle; i1++, to_row += shape.inner)
        loop_mul_add(
            shape.inner, to_row,
            x + i0 * shape.outer_stride[0] + i1 * shape.middle_stride[0],
            shape.inner_stride[0],
            y + i0 * shape.outer_stride[1] + i1 * shape.middle_stride[1],
            shape.inner_stride[1]);
  }
}

static void reduce_rows(block *b, int32_t n, int max) {
  const int64_t size = extent(b->e, n)->all;
  REAL *out = own_value(b, n);
  operand a = operand_of(b, argument(b->e, n, 0), DFGNN_LEVEL_EDGE);
  for (int64_t edge = 0; edge < b->count; edge++) {
    REAL *to = out + b->row[edge] * size;
    const REAL *x = item_of(&a, edge);
    if (max)
      for (int64_t i = 0; i < size; i++)
        to[i] = real_max(x[i], to[i]);
    else
      for (int64_t i = 0; i < size; i++)
        to[i] += x[i];
  }
}

/* Adds edges to running maxima and sums of exp(x - maximum). */
static void reduce_lse(block *b, int32_t n) {
  const int64_t size = extent(b->e, n)->all;
  REAL *max = own_value(b, n), *sum = max + size * b->e->edges;
  REAL *before = b->scratch, *shifted = before + size * b->rows;
  operand a = operand_of(b, argument(b->e, n, 0), DFGNN_LEVEL_EDGE);
  memcpy(before, max, (size_t)(size * b->rows) * sizeof *max);
  reduce_rows(b, n, 1);
  for (int64_t i = 0; i < size * b->rows; i++) {
    /* an infinite maximum would make differences of infinities */
    REAL shift = isinf(max[i]) ? 0 : max[i];
    REAL old = isinf(before[i]) ? 0 : before[i];
    sum[i] *= real_exp(old - shift);
    before[i] = shift;
  }
  for (int64_t edge = 0; edge < b->count; edge++) {
    const REAL *x = item_of(&a, edge), *shift = before + b->row[edge] * size;
    for (int64_t i = 0; i < size; i++)
      shifted[edge * size + i] = x[i] - shift[i];
  }
  for (int64_t i = 0; i < b->count * size; i++)
    shifted[i] = real_exp(shifted[i]);
  for (int64_t edge = 0; edge < b->count; edge++) {
    REAL *to = sum + b->row[edge] * size;
    for (int64_t i = 0; i < size; i++)
      to[i] += shifted[edge * size + i];
  }
}

static void end_reduction(block *b, int32_t n, const int64_t *degrees) {
  const int op = b->e->dag->nodes[n].op;
  const int64_t size = extent(b->e, n)->all;
  REAL *out = own_value(b, n);
  const REAL *sum = out + size * b->e->edges;
  for (int64_t row = 0; row < b->rows; row++)
    for (int64_t i = row * size; i < (row + 1) * size; i++)
      if (is_lse(op))
        out[i] = (isinf(out[i]) ? 0 : out[i]) + R_FN(log)(sum[i]);
      else if (is_max(op) && !degrees[row])
        out[i] = 0;
}

/* Adds what edges, or rows, have to the sums over everything. */
static void add_all(block *b, int32_t n, int level) {
  const int64_t size = extent(b->e, n)->all;
  double *to = b->all + b->e->all_at[n];
  operand a = operand_of(b, argument(b->e, n, 0), level);
  const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
  for (int64_t item = 0; item < items; item++) {
    const REAL *x = item_of(&a, item);
    for (int64_t i = 0; i < size; i++)
      to[i] += x[i];
  }
}

static void reduce(block *b, int32_t n) {
  const engine *e = b->e;
  const int op = e->dag->nodes[n].op;
  int32_t a = argument(e, n, 0);
  if (e->lowered->fused[a])
    add_products(b, n, a);
  else if (is_lse(op))
    reduce_lse(b, n);
  else
    reduce_rows(b, n, is_max(op));
}

/* ---- steps --------------------------------------------------------------- */

static void write_output(block *b, int index, int level) {
  const engine *e = b->e;
  const dfgnn_port *port = &e->dag->outputs[index];
  const dfgnn_program_array *to = &e->job->outputs[index];
  const dfgnn_extent shape = dfgnn__bind_port(port, e->job->binding);
  const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
  operand a = operand_of(b, port->node, level);
  run_unary(loop_copy, 0, items, &shape, b->scratch, &a);
  if (level == DFGNN_LEVEL_OWN || !e->walk->columns) {
    int64_t at = level == DFGNN_LEVEL_OWN ? b->first : b->begin;
    store_row(to->data, to->dtype, at * shape.all, b->scratch,
              items * shape.all);
    return;
  }
  for (int64_t edge = 0; edge < b->count; edge++)
    store_row(to->data, to->dtype, b->id[edge] * shape.all,
              b->scratch + edge * shape.all, shape.all);
}

static void make_loads(block *b, int level) {
  const engine *e = b->e;
  for (int i = 0; i < e->load_count; i++) {
    const load *l = &e->loads[i];
    if (l->level != level)
      continue;
    const dfgnn_node *node = &e->dag->nodes[l->node];
    const int64_t size = extent(e, l->node)->all;
    const int64_t items = level == DFGNN_LEVEL_OWN ? b->rows : b->count;
    REAL *out = (level == DFGNN_LEVEL_OWN ? b->own : b->edge) +
                e->values[l->node].slot * e->edges;
    for (int64_t k = 0; k < items; k++, out += size) {
      int64_t item = level == DFGNN_LEVEL_OWN          ? b->first + k
                     : node->place == DFGNN_PLACE_EDGE ? b->id[k]
                                                       : b->far[k];
      if (node->op == DFGNN_NODE_KEEP)
        fill_keep(e, l->node, item, out);
      else
        load_row(out, e->job->inputs[node->index].data,
                 e->job->inputs[node->index].dtype, item * size, size);
    }
  }
}

/* Does a step reduce the values of edges? */
static int reduces_edges(const engine *e, const dfgnn_step *step) {
  int op = e->dag->nodes[step->node].op;
  return step->kind == DFGNN_STEP_COMPUTE && dfgnn__node_reduces(op) &&
         (op != DFGNN_NODE_SUM_ALL || step->level == DFGNN_LEVEL_EDGE);
}

static void own_step(block *b, const dfgnn_step *step) {
  const engine *e = b->e;
  if (step->kind == DFGNN_STEP_OUTPUT) {
    write_output(b, step->node, DFGNN_LEVEL_OWN);
  } else if (step->kind == DFGNN_STEP_KEEP) {
    const int64_t size = extent(e, step->node)->all;
    operand a = operand_of(b, step->node, DFGNN_LEVEL_OWN);
    memcpy(e->arrays[step->node] + b->first * size, a.base,
           (size_t)(b->rows * size) * sizeof *a.base);
  } else if (e->dag->nodes[step->node].op == DFGNN_NODE_SUM_ALL) {
    add_all(b, step->node, DFGNN_LEVEL_OWN);
  } else {
    compute_step(b, step->node, DFGNN_LEVEL_OWN, own_value(b, step->node));
  }
}

static void edge_step(block *b, const dfgnn_step *step) {
  if (step->kind == DFGNN_STEP_OUTPUT)
    write_output(b, step->node, DFGNN_LEVEL_EDGE);
  else if (b->e->dag->nodes[step->node].op == DFGNN_NODE_SUM_ALL)
    add_all(b, step->node, DFGNN_LEVEL_EDGE);
  else if (reduces_edges(b->e, step))
    reduce(b, step->node);
  else
    compute_step(b, step->node, DFGNN_LEVEL_EDGE,
                 b->edge + b->e->values[step->node].slot * b->e->edges);
}

static int is_own(const engine *e, const dfgnn_step *step) {
  return step->level == DFGNN_LEVEL_OWN && !reduces_edges(e, step);
}

/* Takes `count` edges from `begin` on; row r of the block has those from
 * starts[r] to starts[r + 1]. */
static void take_edges(block *b, int64_t begin, int64_t count) {
  const engine *e = b->e;
  const dfgnn_program_job *job = e->job;
  b->begin = begin;
  b->count = count;
  if (!e->walk->edges)
    return;
  int64_t row = 0;
  for (int64_t k = 0; k < count; k++) {
    while (b->rows > 1 && begin + k >= b->starts[row + 1])
      row++;
    b->row[k] = row;
    b->far[k] = e->matrix->indices[begin + k];
    b->id[k] = !e->walk->columns ? begin + k
               : e->matrix->offsets64
                   ? ((const int64_t *)job->column_edges)[begin + k]
                   : ((const int32_t *)job->column_edges)[begin + k];
  }
  make_loads(b, DFGNN_LEVEL_EDGE);
}

static void begin_row_values(block *b) {
  make_loads(b, DFGNN_LEVEL_OWN);
  for (int i = 0; i < b->e->walk->count; i++) {
    const dfgnn_step *step = &b->e->walk->steps[i];
    if (reduces_edges(b->e, step) &&
        b->e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
      begin_reduction(b, step->node);
  }
}

static void run_block(block *b, int64_t *degrees) {
  const engine *e = b->e;
  begin_row_values(b);
  take_edges(b, b->starts[0], b->starts[b->rows] - b->starts[0]);
  for (int64_t row = 0; row < b->rows; row++)
    degrees[row] = b->starts[row + 1] - b->starts[row];
  for (int i = 0; i < e->walk->count; i++) {
    const dfgnn_step *step = &e->walk->steps[i];
    if (is_own(e, step)) {
      own_step(b, step);
      continue;
    }
    edge_step(b, step);
    if (reduces_edges(e, step) &&
        e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
      end_reduction(b, step->node, degrees);
  }
}

static void run_long_row(block *b, int64_t *degrees) {
  const engine *e = b->e;
  const dfgnn_walk *walk = e->walk;
  const int64_t begin = b->starts[0], end = b->starts[1];
  begin_row_values(b);
  degrees[0] = end - begin;
  for (int stage = 0; stage < walk->stages; stage++) {
    const uint64_t bit = 1ull << stage;
    int some = 0, i;
    for (i = 0; i < walk->count; i++) {
      const dfgnn_step *step = &walk->steps[i];
      if (step->stage == stage && is_own(e, step) &&
          step->kind == DFGNN_STEP_COMPUTE)
        own_step(b, step);
      some |= !is_own(e, step) && (step->stages & bit);
    }
    for (int64_t at = begin; some && at < end; at += e->edges) {
      take_edges(b, at, end - at < e->edges ? end - at : e->edges);
      for (i = 0; i < walk->count; i++)
        if (!is_own(e, &walk->steps[i]) && (walk->steps[i].stages & bit))
          edge_step(b, &walk->steps[i]);
    }
    for (i = 0; i < walk->count; i++) {
      const dfgnn_step *step = &walk->steps[i];
      if (step->stage != stage)
        continue;
      if (reduces_edges(e, step) &&
          e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
        end_reduction(b, step->node, degrees);
      else if (is_own(e, step) && step->kind != DFGNN_STEP_COMPUTE)
        own_step(b, step);
    }
  }
}

/* ---- the memory of a walk ------------------------------------------------ */

/* The first gap of `size` elements between the slots that are taken. */
static int64_t find_slot(const place_of_value *values, const int32_t *live,
                         const engine *e, int count, int64_t size) {
  int64_t at = 0;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int i = 0; i < count; i++) {
      int64_t begin = values[live[i]].slot;
      int64_t end = begin + extent(e, live[i])->all;
      if (at < end && begin < at + size) {
        at = end;
        moved = 1;
      }
    }
  }
  return at;
}

static void read_by(const engine *e, const dfgnn_step *step, int32_t i,
                    int32_t *last) {
  if (step->kind == DFGNN_STEP_OUTPUT) {
    last[e->dag->outputs[step->node].node] = i;
    return;
  }
  for (int k = 0; k < e->dag->nodes[step->node].count; k++) {
    int32_t a = argument(e, step->node, k);
    last[a] = i;
    for (int j = 0; e->lowered->fused[a] && j < e->dag->nodes[a].count; j++)
      last[argument(e, a, j)] = i;
  }
}

static int64_t wider(int64_t a, int64_t b) { return a > b ? a : b; }

/* Slots of the values that the walk makes. */
static dfgnn_status place_values(engine *e) {
  const dfgnn_walk *walk = e->walk;
  const size_t nodes = (size_t)e->dag->count;
  int32_t *last = calloc(nodes, sizeof *last);
  int32_t *live = malloc((nodes + 1) * sizeof *live);
  int count = 0;
  if (!last || !live) {
    free(last);
    free(live);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  for (int i = 0; i < walk->count; i++)
    read_by(e, &walk->steps[i], i, last);
  int64_t loaded = e->edge_elements; /* these stay as long as the block does */
  int64_t peak = 0;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    int made = step->kind == DFGNN_STEP_COMPUTE;
    int32_t n = step->node;
    int lse = made && is_lse(e->dag->nodes[n].op);
    int64_t size =
        made ? extent(e, n)->all
        : step->kind == DFGNN_STEP_OUTPUT
            ? dfgnn__bind_port(&e->dag->outputs[n], e->job->binding).all
            : 0;
    e->scratch_elements = wider(e->scratch_elements, lse    ? 2 * size
                                                     : made ? 0
                                                            : size);
    if (!made || e->dag->nodes[n].op == DFGNN_NODE_SUM_ALL)
      continue;
    if (step->level == DFGNN_LEVEL_OWN) {
      e->values[n] = (place_of_value){.home = OWN, .slot = e->own_elements};
      e->own_elements += lse ? 2 * size : size;
      continue;
    }
    int left = 0;
    for (int k = 0; k < count; k++)
      if (last[live[k]] >= i)
        live[left++] = live[k];
    count = left;
    e->values[n] = (place_of_value){.home = EDGE};
    e->values[n].slot = find_slot(e->values, live, e, count, size);
    peak = wider(peak, e->values[n].slot + size);
    live[count++] = n;
  }
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->kind == DFGNN_STEP_COMPUTE && e->values[step->node].home == EDGE)
      e->values[step->node].slot += loaded;
  }
  e->edge_elements = loaded + peak;
  free(last);
  free(live);
  return DFGNN_OK;
}

/* Inputs, degrees and what earlier walks have stored. */
static void place_leaves(engine *e) {
  for (int32_t n = 0; n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    place_of_value *v = &e->values[n];
    int level = dfgnn__level(node->place, e->walk->columns);
    *v = (place_of_value){.home = NOWHERE, .place = node->place};
    if (!e->lowered->needed[n])
      continue;
    if (node->place <= DFGNN_PLACE_PARAM) {
      v->home = ONCE;
      v->base = e->arrays[n];
    } else if (node->op == DFGNN_NODE_DEGREE) {
      v->home = GLOBAL;
      v->base = e->degrees[node->place == DFGNN_PLACE_SRC];
    } else if (e->arrays[n] && e->lowered->stored[n]) {
      v->home = GLOBAL;
      v->base = e->arrays[n];
    } else if (node->op == DFGNN_NODE_INPUT &&
               e->job->inputs[node->index].dtype == REAL_DTYPE) {
      v->home = GLOBAL;
      v->base = e->job->inputs[node->index].data;
    } else if (node->op == DFGNN_NODE_INPUT || node->op == DFGNN_NODE_KEEP) {
      int64_t *at =
          level == DFGNN_LEVEL_OWN ? &e->own_elements : &e->edge_elements;
      v->home = level == DFGNN_LEVEL_OWN ? OWN : EDGE;
      v->slot = *at;
      *at += extent(e, n)->all;
      e->loads[e->load_count++] = (load){.node = n, .level = level};
    }
  }
}

/* ---- running a walk ------------------------------------------------------ */

/* Rows of the chunks, each with about as many edges and rows. */
static void cut(engine *e) {
  const dfgnn_matrix *m = e->matrix;
  const int64_t rows = m->destinations, total = rows + m->edges;
  for (int c = 0; c <= CHUNKS; c++) {
    int64_t goal = total / CHUNKS * c + total % CHUNKS * c / CHUNKS;
    int64_t low = 0, high = rows;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (middle + offset_at(m, middle) < goal)
        low = middle + 1;
      else
        high = middle;
    }
    e->bounds[c] = c == CHUNKS ? rows : low;
  }
}

static int make_block(block *b, engine *e) {
  const size_t edges = (size_t)e->edges;
  *b = (block){.e = e};
  b->own = malloc(((size_t)e->own_elements + 1) * edges * sizeof(REAL));
  b->edge = malloc(((size_t)e->edge_elements + 1) * edges * sizeof(REAL));
  b->scratch = malloc(((size_t)e->scratch_elements + 1) * edges * sizeof(REAL));
  b->row = malloc((5 * edges + 1) * sizeof *b->row);
  if (!b->row)
    return 0;
  b->far = b->row + edges;
  b->id = b->far + edges;
  b->starts = b->id + edges;
  return b->own && b->edge && b->scratch;
}

static void free_block(block *b) {
  free(b->own);
  free(b->edge);
  free(b->scratch);
  free(b->row);
}

static void run_chunk(block *b, int chunk) {
  engine *e = b->e;
  int64_t row = e->bounds[chunk], end = e->bounds[chunk + 1];
  int64_t *degrees = b->starts + e->edges + 1;
  b->all = e->all ? e->all + chunk * e->all_elements : NULL;
  while (row < end) {
    int64_t begin = offset_at(e->matrix, row);
    b->first = row;
    b->rows = 0;
    b->starts[0] = begin;
    while (row < end && b->rows < e->edges &&
           (!b->rows || offset_at(e->matrix, row + 1) - begin <= e->edges))
      b->starts[++b->rows] = offset_at(e->matrix, ++row);
    if (!e->walk->edges || b->starts[b->rows] - begin <= e->edges)
      run_block(b, degrees);
    else
      run_long_row(b, degrees);
  }
}

/* Adds up what the chunks have summed over everything. */
static void end_sums(engine *e) {
  for (int32_t n = 0; e->all && n < e->dag->count; n++) {
    if (e->all_at[n] < 0)
      continue;
    for (int64_t i = 0; i < extent(e, n)->all; i++) {
      double sum = 0;
      for (int c = 0; c < CHUNKS; c++)
        sum += e->all[c * e->all_elements + e->all_at[n] + i];
      e->arrays[n][i] = (REAL)sum;
    }
  }
}

static dfgnn_status prepare_walk(engine *e, const dfgnn_walk *walk) {
  e->walk = walk;
  e->matrix = walk->columns ? &e->job->columns : &e->job->rows;
  e->own_elements = e->edge_elements = e->scratch_elements = 0;
  e->load_count = 0;
  place_leaves(e);
  dfgnn_status status = place_values(e);
  if (status)
    return status;
  e->all_elements = 0;
  for (int32_t n = 0; n < e->dag->count; n++)
    e->all_at[n] = -1;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->kind != DFGNN_STEP_COMPUTE ||
        e->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
      continue;
    e->all_at[step->node] = e->all_elements;
    e->all_elements += extent(e, step->node)->all;
  }
  int64_t bytes =
      (e->edge_elements + e->scratch_elements + 1) * (int64_t)sizeof(REAL);
  e->edges = BLOCK_BYTES / bytes;
  e->edges = e->edges < 8 ? 8 : e->edges > BLOCK_EDGES ? BLOCK_EDGES : e->edges;
  cut(e);
  free(e->all);
  e->all = NULL;
  if (e->all_elements &&
      !(e->all = calloc((size_t)(CHUNKS * e->all_elements), sizeof *e->all)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  return DFGNN_OK;
}

static dfgnn_status run_walk(engine *e, const dfgnn_walk *walk) {
  dfgnn_status status = prepare_walk(e, walk);
  int failed = 0, threads = e->job->threads;
  if (status)
    return status;
  if (e->matrix->edges + e->matrix->destinations < FEW)
    threads = 1; /* waking the others takes longer */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    block b;
    failed = !make_block(&b, e);
#pragma omp for schedule(dynamic)
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      if (!failed)
        run_chunk(&b, chunk);
    free_block(&b);
  }
  if (failed)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a block");
  end_sums(e);
  return DFGNN_OK;
}

/* ---- values of no place -------------------------------------------------- */

/* Computes values of PARAM level that are known before walk w. */
static void run_params(engine *e, int w) {
  for (int32_t n = 0; n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    if (!e->lowered->needed[n] || node->place > DFGNN_PLACE_PARAM ||
        e->lowered->before[n] != w || node->op == DFGNN_NODE_SUM_ALL)
      continue;
    REAL *out = e->arrays[n];
    operand a[DFGNN_DAG_CAT];
    switch (node->op) {
    case DFGNN_NODE_NUMBER:
      *out = (REAL)node->number;
      break;
    case DFGNN_NODE_SIZE:
      *out = (REAL)dfgnn__size_value(node->at, e->job->binding->names);
      break;
    case DFGNN_NODE_COUNT:
      *out = (REAL)e->job->binding->counts[node->index];
      break;
    case DFGNN_NODE_INPUT:
      load_row(out, e->job->inputs[node->index].data,
               e->job->inputs[node->index].dtype, 0, extent(e, n)->all);
      break;
    case DFGNN_NODE_KEEP:
      fill_keep(e, n, 0, out);
      break;
    default:
      for (int i = 0; i < node->count; i++) {
        int32_t from = argument(e, n, i);
        a[i] = (operand){.base = e->arrays[from]};
        set_strides(&a[i], extent(e, from));
      }
      compute(e, n, 1, out, a);
    }
  }
}

static void write_params(engine *e) {
  for (int i = 0; i < e->dag->output_count; i++) {
    const dfgnn_port *port = &e->dag->outputs[i];
    const dfgnn_program_array *to = &e->job->outputs[i];
    if (port->place != DFGNN_PLACE_PARAM)
      continue;
    dfgnn_extent shape = dfgnn__bind_port(port, e->job->binding);
    operand a = {.base = e->arrays[port->node]};
    set_strides(&a, extent(e, port->node));
    REAL row[64];
    for (int64_t i0 = 0, at = 0; i0 < shape.axis[0]; i0++)
      for (int64_t i1 = 0; i1 < shape.axis[1]; i1++)
        for (int64_t i2 = 0; i2 < shape.axis[2];) {
          int64_t n = 0;
          for (; n < 64 && i2 < shape.axis[2]; n++, i2++)
            row[n] =
                a.base[i0 * a.stride[0] + i1 * a.stride[1] + i2 * a.stride[2]];
          store_row(to->data, to->dtype, at, row, n);
          at += n;
        }
  }
}

static REAL *degrees_of(const dfgnn_matrix *m) {
  REAL *degrees = malloc(((size_t)m->destinations + 1) * sizeof *degrees);
  for (int64_t i = 0; degrees && i < m->destinations; i++)
    degrees[i] = (REAL)(offset_at(m, i + 1) - offset_at(m, i));
  return degrees;
}

static dfgnn_status allocate(engine *e) {
  const size_t nodes = (size_t)e->dag->count;
  e->arrays = calloc(nodes, sizeof *e->arrays);
  e->values = calloc(nodes, sizeof *e->values);
  e->loads = calloc(nodes, sizeof *e->loads);
  e->all_at = calloc(nodes, sizeof *e->all_at);
  int enough = e->arrays && e->values && e->loads && e->all_at;
  for (int32_t n = 0; enough && n < e->dag->count; n++) {
    const dfgnn_node *node = &e->dag->nodes[n];
    if (!e->lowered->needed[n])
      continue;
    if (node->op == DFGNN_NODE_DEGREE) {
      int src = node->place == DFGNN_PLACE_SRC;
      e->degrees[src] = degrees_of(src ? &e->job->columns : &e->job->rows);
      enough = e->degrees[src] != NULL;
    } else if (node->place <= DFGNN_PLACE_PARAM || e->lowered->stored[n]) {
      int64_t items =
          e->lowered->stored[n] ? e->job->binding->counts[node->place] : 1;
      e->arrays[n] = malloc((size_t)(items * extent(e, n)->all + 1) *
                            sizeof *e->arrays[n]);
      enough = e->arrays[n] != NULL;
    }
  }
  return enough ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
}

static dfgnn_status evaluate(const dfgnn_program_job *job) {
  engine e = {.job = job, .dag = job->lowered->dag, .lowered = job->lowered};
  dfgnn_status status = allocate(&e);
  for (int w = 0; !status && w < job->lowered->walk_count; w++) {
    run_params(&e, w);
    status = run_walk(&e, &job->lowered->walks[w]);
  }
  if (!status) {
    run_params(&e, job->lowered->walk_count);
    write_params(&e);
  }
  for (int32_t n = 0; e.arrays && n < e.dag->count; n++)
    free(e.arrays[n]);
  free(e.arrays);
  free(e.values);
  free(e.loads);
  free(e.all_at);
  free(e.all);
  free(e.degrees[0]);
  free(e.degrees[1]);
  return status;
}

#endif
