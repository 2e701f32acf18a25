/* edges_plans.h - host code of attention with edge features: how lanes share
 * heads and features, and the arguments of the kernels */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_PLANS_H
#define DFGNN_ATTENTION_CUDA_EDGES_PLANS_H

#include "kernels/attention/cuda/edges.h"
#include "kernels/attention/cuda/plans.h"
#include "kernels/engine/constants.h"

/* The constants of the kernels. */
typedef struct edge_constants {
  EDGE_CONSTANTS(DFGNN_CONSTANT_MEMBER)
} edge_constants;

/* The walks; they differ in the registers that a row takes. */
typedef enum edges_walk {
  EDGES_FORWARD,
  EDGES_BY_ROWS,    /* gradients by rows */
  EDGES_BY_COLUMNS, /* gradients by columns */
  EDGES_SUMS,       /* gradients of W and att, of EDGES_ROWS */
  EDGES_WALKS
} edges_walk;

/* The parameters of a variant, by name, for one of its kernels. */
typedef struct edges_plan {
  int term;       /* EDGES_PRODUCTS or EDGES_ROWS */
  int lanes;      /* lanes of an edge */
  int unroll;     /* edges in flight */
  int warps;      /* a block */
  int blocks;     /* a multiprocessor */
  int item_edges; /* rows are cut into items of at most these; 0: whole */
  edges_walk walk;
} edges_plan;

/* How lanes share a row (edges_lanes.cuh). */
typedef struct edges_shape {
  int vector, packed;
  int head_lanes, states; /* lanes of a head, heads of a lane */
  int tile_heads, tiles;
  int vectors;      /* vectors of a row in a lane */
  int pitch, chunk; /* staged features: numbers of an edge, edges of a chunk */
  int staged;       /* W, and rows that it multiplies, are in shared memory */
  int slice;        /* EDGES_SUMS: edge features of which a block has sums */
  size_t shared;    /* bytes of a block */
} edges_shape;

/* EDGES_PRODUCTS if products of whole rows with W replace W e, which takes
 * scores that are linear in it; else EDGES_ROWS. */
int dfgnn__edges_term(const dfgnn_problem *problem);

/* The plan that serves every problem. */
edges_plan dfgnn__edges_plain(const edges_plan *plan);

/* The number of features of an edge that W projects, with the one for the bias
 * if ones is 1; 0: edges have none. */
int dfgnn__edges_width(const dfgnn_problem *problem, int ones);

/* Lays lanes over the heads, with vectors of `vector` elements.  0 if registers
 * or shared memory do not suffice. */
int dfgnn__edges_shape(edges_shape *shape, const dfgnn_setting *setting,
                       const edges_plan *plan, int ones, int vector,
                       int packed);
/* The same for the arguments of a call; the plan becomes the plain one where it
 * does not serve them. */
dfgnn_status dfgnn__edges_shape_for(edges_shape *shape, edges_plan *plan,
                                    const edges_params *p,
                                    const dfgnn_setting *setting, int ones);
/* The number of blocks of a launch over so many units: at most as many as run
 * at once. */
unsigned dfgnn__edges_blocks(const dfgnn_setting *setting,
                             const edges_plan *plan, int64_t units);
/* mode: bits of enum edge_mode. */
edge_constants dfgnn__edges_constants(const dfgnn_problem *problem,
                                      const edges_plan *plan,
                                      const edges_shape *shape, int ones,
                                      int mode);

/* NULL if a plan serves the setting, else the reason. */
const char *dfgnn__edges_refusal(const dfgnn_setting *setting,
                                 const edges_plan *plan);

/* ---- gradients of W and att: edges_weight.c ------------------------------ */

/* NULL if the device has the memory that they need, else the reason. */
const char *dfgnn__edges_weight_refusal(const dfgnn_setting *setting);
/* The number of elements of `totals`; sums: the plan of EDGES_SUMS. */
int64_t dfgnn__edges_weight_totals(const dfgnn_setting *setting,
                                   const edges_plan *sums);
/* Computes them from (P, dS) of the edges. */
dfgnn_status dfgnn__edges_weight(const edges_params *p, const edges_plan *sums,
                                 const dfgnn_launch *launch);

/* ---- items of split rows: edges_items.c ---------------------------------- */

/* A parameter of families: the edges of an item; all: rows are whole. */
#define DFGNN_EDGES_ITEMS                                                      \
  {                                                                            \
    .name = "edges", .count = 2, .values = {0, 128}, .labels = { "all" }       \
  }

/* NULL if rows may be cut into items of item_edges edges, or stay whole (0),
 * else the reason. */
const char *dfgnn__edges_items_refusal(const dfgnn_setting *setting,
                                       int item_edges);
/* The most units that a walk over rows can have. */
int64_t dfgnn__edges_units(const dfgnn_setting *setting, int item_edges);
/* The numbers of elements of `partial`, which has parts of `tensors` tensors,
 * and of `partial_state`. */
int64_t dfgnn__edges_partial(const dfgnn_setting *setting, int item_edges,
                             int tensors);
int64_t dfgnn__edges_partial_state(const dfgnn_setting *setting,
                                   int item_edges);
/* ---- around a forward walk: edges_items.c -------------------------------- */

/* The bits of enum edge_mode for a forward walk. */
int dfgnn__edges_forward_mode(const dfgnn_launch *launch, int item_edges);
/* Places the arrays of a forward walk in a workspace; returns its bytes.  p may
 * be NULL. */
size_t dfgnn__edges_forward_memory(edges_params *p,
                                   const dfgnn_setting *setting, int item_edges,
                                   void *workspace);
/* Merges the results of items (NULL: rows are whole), and turns scores into
 * weights. */
dfgnn_status dfgnn__edges_forward_finish(const edges_params *p,
                                         const dfgnn_view *items,
                                         const dfgnn_launch *launch);

/* ---- around a backward walk: edges_items.c ------------------------------- */

/* Adds up the results of items of a backward walk over rows or columns: those
 * of `tensors` tensors, and scalars of nodes unless to_scalar is NULL. */
dfgnn_status dfgnn__edges_merge_gradients(const edges_params *p, int columns,
                                          const tensor_view *to, int tensors,
                                          void *to_scalar,
                                          const dfgnn_view *items,
                                          const dfgnn_launch *launch);

/* ---- arguments ----------------------------------------------------------- */

/* Fills the parameters of walks over rows from the arguments and the matrix. */
dfgnn_status dfgnn__edges_fill(edges_params *p, const dfgnn_launch *launch);
/* Can vectors of `vector` elements be loaded from all tensors, and do heads and
 * features lie side by side? */
int dfgnn__edges_vectors(const edges_params *p, const dfgnn_problem *problem,
                         int vector);

#endif
