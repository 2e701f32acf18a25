/* variant.h - families and variants: how a kernel file describes itself
 *
 * A kernel file defines one table of families with DFGNN_FAMILIES(stem) and is
 * named, as its path, in kernels/sources.am; nothing else has to change.  A
 * family is an algorithm with parameters; the registry expands the product of
 * the parameters' values, less what legal() refuses, into variants named
 *     <family name>/<parameter>=<value>,...
 */
#ifndef DFGNN_KERNELS_VARIANT_H
#define DFGNN_KERNELS_VARIANT_H

#include "dfgnn.h"
#include "kernels/attention/operators.h"
#include "kernels/engine/engine.h"

#define DFGNN_MAX_PARAMETERS 8
#define DFGNN_MAX_VALUES 16
#define DFGNN_MAX_LABELS 4
#define DFGNN_MAX_VIEWS 8

typedef struct dfgnn_parameter {
  const char *name;
  int count;
  int values[DFGNN_MAX_VALUES];
  const char *labels[DFGNN_MAX_LABELS]; /* of the first values; NULL: the number
                                         * is the label */
} dfgnn_parameter;

/* The CSR arrays a kernel sees, in device memory.  indices are always 32-bit,
 * offsets are 64-bit if offsets64. */
typedef struct dfgnn_matrix {
  int64_t destinations, sources, edges;
  int64_t max_degree;
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  const void *edge_order; /* the place of each edge in the list that the graph
                           * was made of, as wide as offsets; NULL: the same */
  int refilled; /* the arrays will hold other edges, and the columns with them:
                 * nothing else may be derived from what they hold now */
  int64_t relations; /* of its edges, as a RELATIONS view has them; 0: none */
} dfgnn_matrix;

/* clang-format off */
/* Structures derived from a graph, built when a variant first asks for them and
 * kept by the graph.  A request with `transposed` asks for the view of the
 * transposed matrix, whose rows are the columns (sources) of the graph.
 *   TRANSPOSE     the transposed CSR matrix; the edges of a column in the order
 *                 of the graph's edges (rows ascending).
 *                 array[0]: offsets [M + 1], 64-bit if the matrix's are
 *                 array[1]: int32 [E] destination of each edge
 *                 array[2]: [E] the graph's edge that each is, as wide as
 *                           offsets
 *                 count: M, extra: the largest degree of a column
 *                 (dfgnn__transposed makes a dfgnn_matrix of it)
 *   RELATIONS     the edges by their relation, as TRANSPOSE has them by column:
 *                 array[0] to array[2], count and extra likewise; the graph has
 *                 the view if dfgnn_graph_set_relations gave it relations
 *                 array[3]: int32 [E] relation of each of the graph's edges
 *   ROW_OF_EDGE   array[0]: int32 [E], destination of each edge
 *   DEGREE_ORDER  array[0]: int32 [N], rows by falling degree, ties by index; a
 *                 `parameter` asks for that of the items of WORK_ITEMS
 *   PLACE_ORDER   array[0]: int32 [N], rows by the source of their first edge,
 *                 ties by index; those without edges last
 *   SLICES        where slices of the sources, `parameter` of them, of
 *                 ceil(M / parameter) sources each, cut the rows; a row whose
 *                 sources do not rise is cut anywhere.
 *                 array[0]: [(parameter + 1) * N] the first edge of row i in
 *                           slice k at k * N + i, as wide as offsets; the last
 *                           N are the ends of rows
 *                 count: N * parameter
 *   WORK_ITEMS    rows cut into items of at most `parameter` edges.
 *                 array[0]: int32 [count] row of each item, rows in order
 *                 array[1]: int64 [count + 1] first edge of each item; the item
 *                           ends at min(first + parameter, end of its row)
 *                 array[2]: int32 [N + 1] first item of each row; a row without
 *                           edges has one empty item
 *                 array[3]: int32 [heavy] rows that have more than one item
 *                 extra: number of such heavy rows
 *                 A request with the negative of `parameter` takes padded
 *                 items, too, whose numbers nobody waits for: the view then
 *                 keeps it, count and extra are bounds, and what follows the
 *                 last item in array[0], and the last heavy row in array[3],
 *                 is -1
 *   TILES         rows in windows of at most R, columns in chunks of 32, edges
 *                 as bits: see kernels/common/tiles.h for the windows.
 *                 parameter: dfgnn__tiles_parameter(R, dense)
 *                 array[0]: dfgnn_tile [count], items by falling rank of their
 *                           chunks, ties by first row
 *                 array[1]: int32 [chunks * 32] columns, window by window; the
 *                           last of a window is repeated to fill its chunks
 *                 array[2]: uint32 [chunks * R] masks; 0 for rows and columns
 *                           beyond the window's */
/* clang-format on */
typedef enum dfgnn_view_kind {
  DFGNN_VIEW_NONE = 0,
  DFGNN_VIEW_ROW_OF_EDGE,
  DFGNN_VIEW_DEGREE_ORDER,
  DFGNN_VIEW_PLACE_ORDER,
  DFGNN_VIEW_SLICES,
  DFGNN_VIEW_WORK_ITEMS,
  DFGNN_VIEW_TRANSPOSE,
  DFGNN_VIEW_TILES,
  DFGNN_VIEW_RELATIONS,
  DFGNN_VIEW_KINDS
} dfgnn_view_kind;

typedef struct dfgnn_view_request {
  dfgnn_view_kind kind;
  int64_t parameter;
  int transposed;
} dfgnn_view_request;

typedef struct dfgnn_view {
  dfgnn_view_request request;
  int64_t count, extra;
  const void *array[4];
  size_t bytes; /* of device memory */
} dfgnn_view;

/* The matrix of a TRANSPOSE view. */
static inline dfgnn_matrix dfgnn__transposed(const dfgnn_matrix *matrix,
                                             const dfgnn_view *view) {
  dfgnn_matrix t;
  t.destinations = matrix->sources;
  t.sources = matrix->destinations;
  t.edges = matrix->edges;
  t.max_degree = view->extra;
  t.offsets64 = matrix->offsets64;
  t.offsets = view->array[0];
  t.indices = (const int32_t *)view->array[1];
  t.edge_order = NULL;
  t.refilled = matrix->refilled;
  t.relations = matrix->relations;
  return t;
}

/* The matrix of a RELATIONS view: a row for each relation, whose indices are
 * the destinations of its edges. */
static inline dfgnn_matrix dfgnn__by_relation(const dfgnn_matrix *matrix,
                                              const dfgnn_view *view) {
  dfgnn_matrix r = dfgnn__transposed(matrix, view);
  r.destinations = matrix->relations;
  r.sources = matrix->destinations;
  return r;
}

/* Everything that applicability, workspace and launch may look at. */
typedef struct dfgnn_setting {
  const dfgnn_problem *problem; /* complete: defaults are filled in */
  const dfgnn_matrix *matrix;
  const dfgnn_signature *signature;
  const dfgnn_device_info *device;
  const int *parameter;     /* values in the order of the family's parameters */
  const dfgnn_queue *queue; /* for prepare and launch on a GPU, else NULL */
  const struct dfgnn_program_job
      *program; /* of OP_PROGRAM: kernels/program/
                 * job.h, without a graph; its tensors
                 * have memory in a launch alone */
} dfgnn_setting;

typedef struct dfgnn_launch {
  dfgnn_setting setting;
  const dfgnn_args *args; /* complete: strides and scale are filled in */
  const dfgnn_view *const *views; /* as requested, in order */
  void *workspace;                /* 256-byte aligned */
  void *stream;
  void *state; /* what prepare made, else NULL */
} dfgnn_launch;

typedef struct dfgnn_family {
  const char *name;             /* "cpu.attention.fwd.online" */
  const char *algorithm;        /* "online" */
  const char *backend;          /* "cpu", "cuda" */
  uint32_t ops, passes, dtypes; /* bit masks: 1u << DFGNN_OP_GT ... */
  int revision; /* raise it when results or speed change: older rows expire */
  int deterministic;
  int weights;       /* can write args.weights */
  int bias;          /* can take problem.bias */
  int dropout;       /* can take problem.dropout */
  int accumulate;    /* can take problem.accumulate */
  uint32_t edge_ops; /* operators with which it can take problem.edge_dim */
  int widened;       /* F16 and BF16 come as copies in F32 (lib/halves.h) */
  int edges_only;    /* takes no problem without edge features */
  int edge_list;     /* can take problem.edge_list */
  uint32_t messages; /* bit mask of messages beside DFGNN_MESSAGE_COPY */
  int paper; /* 1: a paper's, which wins nowhere: it is built, but chosen by
              * tuner, model and rule only if it is named, with effort PAPER
              * or where nothing else serves */
  dfgnn_parameter parameters[DFGNN_MAX_PARAMETERS];

  /* May the combination be built?  NULL: always. */
  int (*legal)(const int *parameter);
  /* NULL if it can run here, else the reason.  NULL pointer: always.  ops,
   * dtypes, weights, determinism and workspace are checked by the caller. */
  const char *(*applicable)(const dfgnn_setting *setting);
  /* Bytes of workspace.  NULL: 0. */
  size_t (*workspace)(const dfgnn_setting *setting);
  /* Fills at most DFGNN_MAX_VIEWS requests, all 0 before; returns their number.
   * NULL: 0. */
  int (*views)(const dfgnn_setting *setting, dfgnn_view_request *requests);
  /* Makes state that execute reuses (library descriptors), with work on
   * setting->queue where it needs the GPU.  NULL: none.
   * DFGNN_ERROR_UNSUPPORTED: the family does not serve the graph, which only
   * the graph's arrays tell; the caller then chooses another family. */
  dfgnn_status (*prepare)(void **state, const dfgnn_setting *setting,
                          const dfgnn_view *const *views);
  void (*release)(void *state);
  /* On a GPU all work goes through kernels/engine/engine.h on setting.queue.  A
   * queue that only lists programs comes with arguments and views that point
   * nowhere: a launch decides by shapes, strides and alignment, never by
   * contents. */
  dfgnn_status (*launch)(const dfgnn_launch *launch);
  /* How long sums are added up, which sets their bound (accuracy.h): in blocks
   * of at most this many edges and, except the last, at least a quarter of it.
   * The edges of a block are added one after the other, then the blocks.  0:
   * all edges are added one after the other. */
  int block;
  /* Most bytes of local memory (spills and arrays) a thread of its kernels may
   * take on a GPU.  0: 4096. */
  int local_bytes;
} dfgnn_family;

/* Is a message gated?  How many parts of it are projections of the edge's
 * features, each by a matrix of its own? */
static inline int dfgnn__message_gated(dfgnn_message message) {
  return message == DFGNN_MESSAGE_GATE || message == DFGNN_MESSAGE_GATE_VALUE;
}
static inline int dfgnn__message_parts(dfgnn_message message) {
  return message == DFGNN_MESSAGE_GATE_VALUE ? 2 : 1;
}

#define DFGNN_BIT(x) (1u << (x))
#define DFGNN_OPS_SPMM                                                         \
  (DFGNN_BIT(DFGNN_OP_SPMM_SUM) | DFGNN_BIT(DFGNN_OP_SPMM_MEAN) |              \
   DFGNN_BIT(DFGNN_OP_SPMM_WEIGHTED))
#define DFGNN_OPS_REDUCE                                                       \
  (DFGNN_BIT(DFGNN_OP_REDUCE_MIN) | DFGNN_BIT(DFGNN_OP_REDUCE_MAX) |           \
   DFGNN_BIT(DFGNN_OP_REDUCE_MEAN) | DFGNN_BIT(DFGNN_OP_REDUCE_VAR) |          \
   DFGNN_BIT(DFGNN_OP_REDUCE_STD) | DFGNN_BIT(DFGNN_OP_REDUCE_PNA))
/* The operators whose edges may carry messages other than copies, and these
 * messages. */
#define DFGNN_OPS_MESSAGE                                                      \
  (DFGNN_BIT(DFGNN_OP_SPMM_SUM) | DFGNN_BIT(DFGNN_OP_SPMM_MEAN) |              \
   DFGNN_BIT(DFGNN_OP_REDUCE_MIN) | DFGNN_BIT(DFGNN_OP_REDUCE_MAX) |           \
   DFGNN_BIT(DFGNN_OP_REDUCE_MEAN) | DFGNN_BIT(DFGNN_OP_REDUCE_PNA))
#define DFGNN_MESSAGES_ALL                                                     \
  (DFGNN_BIT(DFGNN_MESSAGE_RELU) | DFGNN_BIT(DFGNN_MESSAGE_GATE) |             \
   DFGNN_BIT(DFGNN_MESSAGE_GATE_VALUE))
#define DFGNN_DTYPES_ALL                                                       \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16) |       \
   DFGNN_BIT(DFGNN_F64))

#define DFGNN_FAMILIES(stem)                                                   \
  extern const dfgnn_family dfgnn__families_##stem[];                          \
  const dfgnn_family dfgnn__families_##stem[]
#define DFGNN_FAMILIES_END                                                     \
  { 0 }

#endif
