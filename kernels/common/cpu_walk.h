/* cpu_walk.h - aggregations over the edges of each row, shared out to threads
 *
 * SpMM and reductions, forward and backward, differ in what they do with the
 * edges of a row (an aggregate) and not in how rows become tasks (a walk):
 *   row       a task is some rows
 *   balanced  parts have equally many edges, wherever that cuts a row
 * The states of a row that was cut are merged in the order of its edges. */
#ifndef DFGNN_KERNELS_CPU_WALK_H
#define DFGNN_KERNELS_CPU_WALK_H

#include "kernels/common/cpu_simd.h"
#include "kernels/common/cpu_team.h"
#include "kernels/common/number.h"
#include "kernels/common/variant.h"

/* ---- tensors ------------------------------------------------------------- */

/* A feature tensor; strides in bytes. */
typedef struct dfgnn_cpu_table {
  char *base; /* NULL: not there */
  int64_t node, head, feature;
} dfgnn_cpu_table;

/* The features of a node as `count` pieces of `dim` adjacent features: all
 * heads at once where nothing depends on the head, one head, or (if features
 * are not adjacent) a single feature. */
typedef struct dfgnn_cpu_pieces {
  int64_t count, dim, per_head;
} dfgnn_cpu_pieces;

dfgnn_cpu_table dfgnn__cpu_table(const dfgnn_problem *problem, const void *base,
                                 const dfgnn_strides *strides);
/* A dense tensor in the problem's layout, of elements of `element` bytes. */
dfgnn_cpu_table dfgnn__cpu_dense(const dfgnn_problem *problem, void *base,
                                 size_t element);
/* The pieces that suit all tables; by_head: factors differ between heads. */
dfgnn_cpu_pieces dfgnn__cpu_pieces(const dfgnn_problem *problem, int by_head,
                                   const dfgnn_cpu_table *const *tables,
                                   const size_t *elements, int count);

static inline int64_t dfgnn__cpu_head_of(const dfgnn_cpu_pieces *pieces,
                                         int64_t piece) {
  return piece / pieces->per_head;
}

static inline int64_t dfgnn__cpu_piece_at(const dfgnn_cpu_table *table,
                                          const dfgnn_cpu_pieces *pieces,
                                          int64_t piece) {
  return piece / pieces->per_head * table->head +
         piece % pieces->per_head * table->feature;
}

static inline size_t dfgnn__cpu_aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

static inline size_t dfgnn__cpu_scalar_bytes(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

/* ---- aggregates ---------------------------------------------------------- */

typedef struct dfgnn_cpu_aggregate {
  const void *job;
  int64_t pieces;
  size_t state_bytes; /* of the state of a row, all pieces */
  /* Folds the edges begin .. end - 1 of a row.  whole: these are all its edges,
   * and the results are written; otherwise `state` is overwritten. */
  void (*fold)(const void *job, int64_t row, int64_t piece, int64_t begin,
               int64_t end, void *state, int whole);
  /* Adds to `to`, the state of `before` edges of a row, the state `from` of the
   * next `count` edges. */
  void (*merge)(const void *job, int64_t piece, void *to, const void *from,
                int64_t before, int64_t count);
  /* Writes the results of a row from its state. */
  void (*finish)(const void *job, int64_t row, int64_t piece, void *state);
} dfgnn_cpu_aggregate;

/* ---- walks --------------------------------------------------------------- */

typedef enum dfgnn_cpu_tasks {
  DFGNN_CPU_TASKS_SERIAL,  /* the calling thread does all */
  DFGNN_CPU_TASKS_DYNAMIC, /* tasks of a fixed number of rows */
  DFGNN_CPU_TASKS_EVEN     /* tasks of about equal numbers of edges */
} dfgnn_cpu_tasks;

/* The rows that are walked: the graph's, or its columns. */
typedef struct dfgnn_cpu_walk {
  int64_t rows, edges;
  int offsets64;
  const void *offsets;
  int threads;
  char *memory; /* workspace of dfgnn__cpu_walk_memory() bytes */
} dfgnn_cpu_walk;

static inline int64_t dfgnn__cpu_edge(int offsets64, const void *offsets,
                                      int64_t row) {
  return dfgnn__index_at(offsets, offsets64, row);
}

dfgnn_cpu_walk dfgnn__cpu_walk(const dfgnn_matrix *matrix, int threads,
                               char *memory);

/* The number of states that a balanced walk needs: one for each thread, and the
 * partial states of `parts` parts a thread. */
int64_t dfgnn__cpu_balanced_states(const dfgnn_setting *setting, int parts);

void dfgnn__cpu_walk_rows(const dfgnn_cpu_walk *walk,
                          const dfgnn_cpu_aggregate *aggregate,
                          dfgnn_cpu_tasks tasks, int64_t rows);
void dfgnn__cpu_walk_balanced(const dfgnn_cpu_walk *walk,
                              const dfgnn_cpu_aggregate *aggregate, int parts);

/* ---- families ------------------------------------------------------------ */

typedef enum dfgnn_cpu_algorithm {
  DFGNN_CPU_ROW,
  DFGNN_CPU_BALANCED,
  DFGNN_CPU_PLAIN /* rows, without parameters: for a part of a family's work */
} dfgnn_cpu_algorithm;

/* Positions of the parameters. */
enum {
  DFGNN_CPU_P_SIMD,
  DFGNN_CPU_P_PREFETCH,
  DFGNN_CPU_P_SIZE, /* rows of a task (row), parts of a thread (balanced) */
  DFGNN_CPU_P_TASKS /* dfgnn_cpu_tasks (row) */
};

#define DFGNN_CPU_PREFETCH                                                     \
  {                                                                            \
    "prefetch", 2, {0, 24}, { 0 }                                              \
  }
#define DFGNN_CPU_ROW_PARAMETERS                                               \
  {                                                                            \
    DFGNN_CPU_SIMD, DFGNN_CPU_PREFETCH, {"rows", 2, {16, 64}, {0}}, {          \
      "schedule", 3, {0, 1, 2}, { "serial", "dynamic", "even" }                \
    }                                                                          \
  }
#define DFGNN_CPU_SIZED_PARAMETERS(name, ...)                                  \
  {                                                                            \
    DFGNN_CPU_SIMD, DFGNN_CPU_PREFETCH, {                                      \
      name, __VA_ARGS__, { 0 }                                                 \
    }                                                                          \
  }

/* Portable kernels exist for other machines: few variants of them are legal. */
int dfgnn__cpu_legal(const int *parameter);
int dfgnn__cpu_row_legal(const int *parameter);
const char *dfgnn__cpu_applicable(const dfgnn_setting *setting);

/* The view of a walk: the transpose if the pass is backward. */
int dfgnn__cpu_views(const dfgnn_setting *setting,
                     dfgnn_view_request *requests);

/* Workspace bytes of a walk whose states have state_bytes bytes. */
size_t dfgnn__cpu_walk_memory(const dfgnn_setting *setting,
                              dfgnn_cpu_algorithm algorithm,
                              size_t state_bytes);
/* Walks all rows. */
void dfgnn__cpu_walk_run(const dfgnn_cpu_walk *walk,
                         const dfgnn_cpu_aggregate *aggregate,
                         dfgnn_cpu_algorithm algorithm, const int *parameter);

/* ---- families of a walk -------------------------------------------------- */

/* Defines <algorithm>_workspace and <algorithm>_launch, which call `bytes` with
 * a setting and `start` with a launch, and the algorithm. */
#define DFGNN_CPU_WALK_ALGORITHM(label, which, bytes, start)                   \
  static size_t label##_workspace(const dfgnn_setting *setting) {              \
    return bytes(setting, which);                                              \
  }                                                                            \
  static dfgnn_status label##_launch(const dfgnn_launch *l) {                  \
    return start(l, which);                                                    \
  }
#define DFGNN_CPU_WALK_ALGORITHMS(bytes, start)                                \
  DFGNN_CPU_WALK_ALGORITHM(row, DFGNN_CPU_ROW, bytes, start)                   \
  DFGNN_CPU_WALK_ALGORITHM(balanced, DFGNN_CPU_BALANCED, bytes, start)

/* The two families of one pass.  all_ops: the operators' bits; op_name: their
 * common name; chunk: dfgnn_family.block. */
#define DFGNN_CPU_WALK_FAMILY(label, op_name, all_ops, pass_name, pass, chunk) \
  .name = "cpu." op_name "." pass_name "." #label, .algorithm = #label,        \
  .backend = "cpu", .ops = all_ops, .passes = DFGNN_BIT(pass),                 \
  .dtypes = DFGNN_DTYPES_ALL, .widened = 1, .revision = 1, .deterministic = 1, \
  .workspace = label##_workspace, .launch = label##_launch, .block = chunk
#define DFGNN_CPU_WALK_FAMILIES(op_name, all_ops, pass_name, pass, chunk)      \
  {DFGNN_CPU_WALK_FAMILY(row, op_name, all_ops, pass_name, pass, chunk),       \
   .parameters = DFGNN_CPU_ROW_PARAMETERS, .legal = dfgnn__cpu_row_legal,      \
   .applicable = dfgnn__cpu_applicable, .views = dfgnn__cpu_views},            \
  {                                                                            \
    DFGNN_CPU_WALK_FAMILY(balanced, op_name, all_ops, pass_name, pass, chunk), \
        .parameters = DFGNN_CPU_SIZED_PARAMETERS("parts", 2, {4, 16}),         \
        .legal = dfgnn__cpu_legal, .applicable = dfgnn__cpu_applicable,        \
        .views = dfgnn__cpu_views                                              \
  }

#endif
