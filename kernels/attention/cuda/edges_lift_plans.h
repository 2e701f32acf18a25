/* edges_lift_plans.h - host code of the kernels whose lanes make W e of each
 * edge (edges_lift.cuh) */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LIFT_PLANS_H
#define DFGNN_ATTENTION_CUDA_EDGES_LIFT_PLANS_H

#include "kernels/attention/cuda/edges_plans.h"

/* The walks; they differ in the registers that a row takes. */
typedef enum lift_walk {
  LIFT_FORWARD,
  LIFT_ROWS,    /* gradients by rows */
  LIFT_COLUMNS, /* gradients by columns */
  LIFT_SUMS     /* gradients of W and att */
} lift_walk;

typedef struct lift_plan {
  int lanes;      /* lanes of an edge */
  int unroll;     /* edges in flight */
  int warps;      /* a block */
  int blocks;     /* a multiprocessor */
  int item_edges; /* rows are cut into items of at most these; 0: whole */
  lift_walk walk;
} lift_plan;

/* The constants of edge_lift<>. */
typedef struct lift_shape {
  int vector, packed;
  int head_lanes, states;
  int tile_heads, tiles;
  int vectors;   /* vectors of a row in a lane */
  int staged;    /* W is in shared memory */
  int slice;     /* LIFT_SUMS: edge features of which a block has sums */
  size_t shared; /* bytes of a block */
} lift_shape;

/* FE of edge_lift<>: -1 if edges come as [E,H,D], 0 if as scalars (GAT). */
int dfgnn__lift_width(const dfgnn_problem *problem);

/* NULL if a plan serves the setting, else the reason. */
const char *dfgnn__lift_refusal(const dfgnn_setting *setting,
                                const lift_plan *plan);
/* Lays lanes over the heads, with vectors of so many elements.  0 if registers
 * or shared memory do not suffice. */
int dfgnn__lift_shape(lift_shape *shape, const dfgnn_setting *setting,
                      const lift_plan *plan, int ones, int vector, int packed);
/* The same for the arguments of a call; the plan becomes the plain one where it
 * does not serve them. */
dfgnn_status dfgnn__lift_shape_for(lift_shape *shape, lift_plan *plan,
                                   const edges_params *p,
                                   const dfgnn_setting *setting, int ones);
/* Fills the parameters of walks over rows from the arguments and the matrix. */
dfgnn_status dfgnn__lift_fill(edges_params *p, const dfgnn_launch *launch);
/* The number of blocks of a launch over so many units: at most as many as run
 * at once. */
unsigned dfgnn__lift_blocks(const dfgnn_setting *setting, const lift_plan *plan,
                            int64_t units);

#endif
