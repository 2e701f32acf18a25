/* block.h - a block of edges of a walk: its memory, and one operation on it */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_BLOCK_H
#define DFGNN_KERNELS_PROGRAM_CPU_BLOCK_H

#include <stdlib.h>

#include "kernels/common/cpu_halves.h"
#include "kernels/common/dropout.h"
#include "kernels/common/half.h"
#include "kernels/common/host_view.h"
#include "kernels/program/cpu/generate.h"
#include "kernels/program/cpu/values.h"
#include "kernels/program/job.h"
#include "lib/base/error.h"

enum {
  BLOCK_EDGES = 512,
  FEW = 4096, /* edges and rows that one thread walks */
  PARTS = 16, /* of a giant row, whatever the number of threads */
  GIANT_BLOCKS = 8
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
  REAL *rows;       /* OWN: of all nodes, where it is made; NULL: in the slot */
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
  REAL *degrees[DFGNN_PLACES];

  /* the walk that runs */
  const dfgnn_walk *walk;
  const dfgnn_matrix *matrix;
  const void *edge_ids; /* of the matrix's edges; NULL: they are its own */
  place_of_value *values;
  load *loads;
  int load_count;
  const uint8_t *slots; /* of a compiled body: values of edges that it keeps,
                         * all at the same time */
  int64_t own_elements, edge_elements, scratch_elements;
  int64_t room_elements; /* of edge_elements, what is in memory */
  int64_t edges;         /* most of a row in a block, whatever is compiled */
  int64_t room;          /* rows, and edges, of a block */
  int looks_at_rows;     /* does a step need the row of each edge? */
  int chunks;
  int64_t bounds[DFGNN_PROGRAM_CHUNKS + 1]; /* rows of a chunk */
  int64_t *all_at, all_elements; /* sums over everything: of a chunk */
  double *all;
} engine;

typedef struct block {
  engine *e;
  REAL *own, *edge, *scratch;
  double *all;
  int is_part;                /* of a giant row, whose parts have slots */
  int64_t *row, *id;          /* of each edge: row of the block, edge */
  int64_t *end[DFGNN_PLACES]; /* its nodes of the far places */
  int64_t first, rows;        /* the block's */
  int64_t begin, count;       /* its edges, as the matrix has them */
  int64_t *starts;            /* first edge of each row, from begin */
} block;

static int32_t argument(const engine *e, int32_t n, int i) {
  return dfgnn__dag_argument(e->dag, n, i);
}
static const dfgnn_extent *extent(const engine *e, int32_t n) {
  return &e->job->extents[n];
}
static int own_place(const engine *e) { return (int)e->walk->own; }

/* ---- types --------------------------------------------------------------- */

#if REAL_IS_DOUBLE
static void load_row(REAL *out, const void *from, dfgnn_dtype dtype, int64_t at,
                     int64_t n) {
  for (int64_t i = at; i < at + n; i++)
    *out++ = dtype == DFGNN_F64   ? ((const double *)from)[i]
             : dtype == DFGNN_F32 ? ((const float *)from)[i]
             : dtype == DFGNN_F16
                 ? dfgnn__f16_to_float(((const uint16_t *)from)[i])
                 : dfgnn__bf16_to_float(((const uint16_t *)from)[i]);
}

static void store_row(void *to, dfgnn_dtype dtype, int64_t at, const REAL *from,
                      int64_t n) {
  for (int64_t i = at; i < at + n; i++, from++)
    if (dtype == DFGNN_F64)
      ((double *)to)[i] = *from;
    else if (dtype == DFGNN_F32)
      ((float *)to)[i] = (float)*from;
    else
      ((uint16_t *)to)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_double(*from)
                                               : dfgnn__bf16_from_double(*from);
}
#else /* no tensor is of double */
static void load_row(REAL *out, const void *from, dfgnn_dtype dtype, int64_t at,
                     int64_t n) {
  if (dtype == DFGNN_F32)
    memcpy(out, (const float *)from + at, (size_t)n * sizeof *out);
  else
    dfgnn__widen_row(dtype, out, (const uint16_t *)from + at, n);
}

static void store_row(void *to, dfgnn_dtype dtype, int64_t at, const REAL *from,
                      int64_t n) {
  if (dtype == DFGNN_F32)
    memcpy((float *)to + at, from, (size_t)n * sizeof *from);
  else
    dfgnn__narrow_row(dtype, (uint16_t *)to + at, from, n);
}
#endif

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

static REAL *own_value(const block *b, int32_t n) {
  const place_of_value *v = &b->e->values[n];
  return v->rows && !b->is_part ? v->rows + b->first * extent(b->e, n)->all
                                : b->own + v->slot * b->e->room;
}

/* The first number of a value that the block looks at. */
static const REAL *base_of(const block *b, int32_t n) {
  const engine *e = b->e;
  const place_of_value *v = &e->values[n];
  if (v->home == OWN)
    return own_value(b, n);
  if (v->home == EDGE)
    return b->edge + v->slot * e->room;
  if (v->home != GLOBAL)
    return v->base;
  return v->base + extent(e, n)->all * (v->place == own_place(e) ? b->first
                                        : v->place == DFGNN_PLACE_EDGE &&
                                                own_place(e) == DFGNN_PLACE_DST
                                            ? b->begin
                                            : 0);
}

static operand operand_of(const block *b, int32_t n, int level) {
  const engine *e = b->e;
  const place_of_value *v = &e->values[n];
  operand a = {.base = base_of(b, n), .item = extent(e, n)->all};
  set_strides(&a, extent(e, n));
  if (v->home == ONCE) {
    a.item = 0;
  } else if (v->home == OWN ||
             (v->home == GLOBAL && v->place == own_place(e))) {
    if (level == DFGNN_LEVEL_EDGE && b->rows == 1)
      a.item = 0;
    else if (level == DFGNN_LEVEL_EDGE)
      a.index = b->row;
  } else if (v->home == GLOBAL && v->place != DFGNN_PLACE_EDGE) {
    a.index = b->end[v->place];
  } else if (v->home == GLOBAL && own_place(e) != DFGNN_PLACE_DST) {
    a.index = b->id;
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
  if (binary_of(node->op) != BINARIES) {
    run_binary(binary_loops[binary_of(node->op)], items, to, out, a);
    return;
  }
  switch (node->op) {
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
  case DFGNN_NODE_SWAP:
    run_swap(node->axis, node->flags, items, to, out, a);
    break;
  case DFGNN_NODE_MATMUL:
    run_matmul(node->flags, items, to,
               from->axis[node->flags & DFGNN_MATMUL_FIRST ? 1 : 2], out, a);
    break;
  default:
    run_unary(unary_loops[unary_of(node)], (REAL)node->number, items, to, out,
              a);
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

#endif
