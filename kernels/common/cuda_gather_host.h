/* cuda_gather_host.h - how SpMM and reductions lay their kernels out and launch
 * them */
#ifndef DFGNN_KERNELS_CUDA_GATHER_HOST_H
#define DFGNN_KERNELS_CUDA_GATHER_HOST_H

#include "kernels/common/cuda_gather.h"
#include "kernels/common/cuda_host.h"

/* How lanes are laid over features: elements a load, lanes an edge, loads a
 * lane, edges in flight. */
typedef struct gather_shape {
  int vector, lanes, vectors, unroll;
} gather_shape;

/* Lanes, vectors and edges in flight that are worth compiling. */
typedef struct gather_choice {
  int lanes, vectors, unroll;
} gather_choice;

/* Ends with 0 lanes. */
int dfgnn__gather_listed(const gather_choice *list, int lanes, int vectors,
                         int unroll);
/* The shapes for any strides. */
extern const gather_choice dfgnn__gather_narrow_shapes[];

/* Fills the program of a shape; 0 if the family has none.  what: chosen by the
 * family; width: features of a row. */
typedef int gather_finder(dfgnn_program *program, dfgnn_dtype dtype, int what,
                          const gather_shape *shape, int width);

int dfgnn__gather_width(const dfgnn_problem *problem);

/* NULL if a shape with these lanes and vectors serves the problem, else the
 * reason.  Widths of no whole 16-byte vectors are served by one shape only, as
 * are all that go one element at a time. */
const char *dfgnn__gather_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting,
                                  gather_finder *find, int what, int single,
                                  int lanes, int vectors, int unroll);
/* The shape for any strides. */
void dfgnn__gather_narrow(gather_shape *shape, int64_t width);

dfgnn_status dfgnn__gather_tensor(feature_tensor *tensor, const char *name,
                                  const void *data,
                                  const dfgnn_strides *strides,
                                  dfgnn_dtype dtype);
/* Fit for 16-byte loads, or NULL. */
int dfgnn__gather_aligned(const gather_params *p, const feature_tensor *tensor,
                          dfgnn_dtype dtype);

csr_offsets dfgnn__gather_offsets(const dfgnn_matrix *matrix);
/* What the matrix and the problem say. */
void dfgnn__gather_fill(gather_params *p, const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix);

typedef enum gather_span {
  GATHER_ONCE = 0, /* a row a group of lanes */
  GATHER_PIECE = 1 /* 64 warps a multiprocessor, each block a piece of rows */
} gather_span;

/* Rows as they are, or by the view DEGREE_ORDER; rows: side by side in a warp.
 */
dfgnn_status dfgnn__gather_run(gather_params *p, const dfgnn_program *program,
                               const gather_shape *shape,
                               const dfgnn_launch *launch, int warps, int rows,
                               gather_span span);
/* A group of lanes a unit of p->schedule.units. */
dfgnn_status dfgnn__gather_run_shares(gather_params *p,
                                      const dfgnn_program *program,
                                      const gather_shape *shape,
                                      const dfgnn_launch *launch, int warps);

/* Makes the schedule one of items. */
void dfgnn__gather_items(gather_params *p, const dfgnn_view *items,
                         const dfgnn_matrix *matrix);
/* Partial results of an item schedule, at most. */
int64_t dfgnn__gather_item_slots(const dfgnn_matrix *matrix,
                                 int64_t item_edges);
/* Shares of `share` steps. */
int64_t dfgnn__gather_shares(const dfgnn_matrix *matrix, int64_t share);

static inline size_t dfgnn__gather_bytes(int64_t count, size_t size) {
  return dfgnn__align256((size_t)count * size);
}

#endif
