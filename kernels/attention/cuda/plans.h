/* plans.h - the planner of walks over rows, forward and backward: which lanes
 * take which features, which problems a plan serves, which units a block takes
 */
#ifndef DFGNN_ATTENTION_CUDA_PLANS_H
#define DFGNN_ATTENTION_CUDA_PLANS_H

#include "kernels/attention/cuda/layout.h"
#include "kernels/attention/cuda/schedule.h"
#include "kernels/engine/constants.h"

/* Which units a block takes. */
typedef enum row_span {
  SPAN_ONCE = 0,  /* one round of units */
  SPAN_PIECE = 1, /* at most 32 warps a multiprocessor, a piece a block */
  SPAN_DEALT = 2, /* as SPAN_PIECE, but blocks take rounds in turn */
  SPAN_SORTED = 3 /* the same, of items by falling size */
} row_span;

/* The order of the units of whole rows: as they are numbered, by falling
 * degree, or, forward, by slices of the sources, of each by falling degree. */
typedef enum row_order {
  ORDER_NATURAL = 0,
  ORDER_DEGREE = 1,
  ORDER_SLICES = 2
} row_order;

/* The parameters of a variant, by name. */
typedef struct row_plan {
  int lanes;  /* lanes of an edge */
  int unroll; /* edges in flight of a side */
  int warps;  /* a block */
  int rows;   /* a warp, side by side */
  int heads;  /* enum lane_heads */
  row_span span;
  row_order order; /* of whole rows */
  int item_edges;  /* rows are cut into items of at most these; 0: whole */
  int padded;      /* the items may be padded */
  int by_blocks;   /* forward: blocks take longer rows, which are not cut */
  int spill;       /* backward: columns first; they spill dS for rows */
} row_plan;

/* Parameters of families that walk rows. */
#define DFGNN_LANES                                                            \
  {                                                                            \
    "lanes", 4, {4, 8, 16, 32}, { 0 }                                          \
  }
#define DFGNN_SPAN_PIECE                                                       \
  {                                                                            \
    "span", 2, {SPAN_ONCE, SPAN_PIECE}, { "once", "piece" }                    \
  }
#define DFGNN_SPAN_DEALT                                                       \
  {                                                                            \
    "span", 2, {SPAN_ONCE, SPAN_DEALT}, { "once", "dealt" }                    \
  }
/* The first `count` of these. */
#define DFGNN_ORDER(count)                                                     \
  {                                                                            \
    "order", count, {ORDER_NATURAL, ORDER_DEGREE, ORDER_SLICES}, {             \
      "natural", "degree", "slices"                                            \
    }                                                                          \
  }
/* The first `count` of these. */
#define DFGNN_HEADS(count)                                                     \
  {                                                                            \
    "heads", count, {HEADS_GRID, HEADS_WARP, HEADS_ROW, HEADS_LANES}, {        \
      "grid", "warp", "row", "lanes"                                           \
    }                                                                          \
  }

/* ---- lanes --------------------------------------------------------------- */

/* The elements of the widest vector, of 16 bytes at most, that divide the width
 * of a head. */
int dfgnn__vector_width(const dfgnn_problem *problem);

/* Lays lanes over the features of a problem.  0 if a lane would hold more than
 * `most` vectors, or, with HEADS_WARP or HEADS_LANES, if a head needs more than
 * `lanes`. */
int dfgnn__lane_shape(lane_shape *shape, const dfgnn_problem *problem,
                      int vector, int lanes, int heads, int most);

/* ---- shapes -------------------------------------------------------------- */

/* The most features of a head; a forward walk has half of them. */
enum { DFGNN_ROW_FEATURES = 2048 };

/* The lanes of a walk of the problem's pass, with `unroll` edges in flight; 0
 * if a lane would hold more than registers can. */
int dfgnn__row_shape(lane_shape *shape, const dfgnn_problem *problem,
                     const row_plan *plan, int unroll);
/* Can the lanes be those of the plan, with vectors of `vector` elements? */
int dfgnn__row_as_planned(const row_plan *plan, const dfgnn_problem *problem,
                          int vector);
/* The lanes of a walk that loads vectors of `vector` elements: those of the
 * plan, if they can be, else one head a warp, which the plan becomes.  With
 * vectors of one, features lie at any stride. */
void dfgnn__row_lanes(lane_shape *shape, row_plan *plan,
                      const dfgnn_problem *problem, int vector);

/* ---- applicability ------------------------------------------------------- */

/* The plan of gradients that serves every problem. */
row_plan dfgnn__plain_plan(void);
/* NULL if ints number the rows, and items of item_edges edges (0: none), else
 * the reason. */
const char *dfgnn__units_refusal(const dfgnn_setting *setting, int item_edges);
/* The shared memory of a block that takes a long row by parts. */
int64_t dfgnn__row_parts_bytes(const dfgnn_problem *problem,
                               const row_plan *plan);
/* NULL if every size is within the limits of the pass, else the reason. */
const char *dfgnn__row_limits(const dfgnn_setting *setting,
                              const row_plan *plan);
/* NULL if the plan can run, else the reason. */
const char *dfgnn__row_refusal(const dfgnn_setting *setting,
                               const row_plan *plan);
/* Requests, in this order: of a backward pass the TRANSPOSE view; items, or
 * slices and the order of rows; of a backward pass those of columns. */
int dfgnn__row_views(const dfgnn_setting *setting, const row_plan *plan,
                     dfgnn_view_request *requests);

/* ---- rows ---------------------------------------------------------------- */

/* All rows of a matrix, one after the other. */
row_schedule dfgnn__schedule_rows(const dfgnn_matrix *matrix);
/* Makes the schedule of all rows the one of a plan, by the views of a launch.
 */
void dfgnn__schedule_as(row_schedule *schedule, const row_plan *plan,
                        const dfgnn_launch *launch, int columns);
/* The number of partial results of items of item_edges edges (0: rows are
 * whole), two a cut: see row_parts. */
int64_t dfgnn__slots(const dfgnn_matrix *matrix, int item_edges);
/* The same of a plan, of the walk that has more of them. */
int64_t dfgnn__row_slots(const dfgnn_setting *setting, const row_plan *plan);
/* The number of blocks of `warps` warps that make 32 warps a multiprocessor. */
int64_t dfgnn__resident(const dfgnn_setting *setting, int warps);

/* ---- launch -------------------------------------------------------------- */

/* The constants of a walk over rows that does nothing with edges but gather. */
typedef struct row_constants {
  ROW_CONSTANTS(DFGNN_CONSTANT_MEMBER)
} row_constants;
row_constants dfgnn__row_constants(const dfgnn_problem *problem,
                                   const lane_shape *shape, int unroll,
                                   int packed);
/* Shares units out to blocks. */
dfgnn_grid dfgnn__row_grid(block_share *share, const dfgnn_setting *setting,
                           const row_plan *plan, const lane_shape *shape,
                           int64_t units);

#endif
