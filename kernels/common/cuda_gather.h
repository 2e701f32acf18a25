/* cuda_gather.h - rows that gather others: what the kernels of SpMM and of the
 * reductions share with the host
 *
 * Features are numbered as in a dense tensor of the problem's layout: heads are
 * but more features, `width` of them a node.  Where a tensor is dense within a
 * node, feature f lies at f and is loaded in 16-byte vectors; any other strides
 * are served one element at a time. */
#ifndef DFGNN_KERNELS_CUDA_GATHER_H
#define DFGNN_KERNELS_CUDA_GATHER_H

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

struct feature_tensor {
  const void *data;
  unsigned node_bytes;
  int64_t head, feature; /* elements */
};

/* Units of work are rows, items of split rows, or shares of rows and edges. */
struct gather_schedule {
  int units;
  int rows; /* of the matrix */
  int64_t edges;
  offsets_t offsets;
  const int *indices;
  const int *order;    /* rows by degree; NULL: as they are */
  const int *item_row; /* NULL: units are no items */
  const int64_t *item_first;
  const int *row_item;
  int item_edges, extra_items;
  int share;      /* steps of a balanced unit: a row's end or an edge each */
  int *share_row; /* [units]: the row a share completes, -1: none */
  int span;       /* units of a block */
  int group;      /* lanes of a row */
  int group_bits; /* log2 of that */
};

struct gather_params {
  gather_schedule schedule;
  int exact; /* every lane of every tile has features */
  int width, heads, dim, heads_inner;
  feature_tensor table, out;
  void *partial; /* results of units that are not whole rows */

  /* SpMM */
  offsets_t edge_ids; /* of weights; array NULL: edges are in their order */
  const void *weights, *gathered_scale, *row_scale;
  int mean;

  /* reductions, forward */
  int square_root;
  void *out_min, *out_max, *out_std;
  int *arg_min, *arg_max;
  feature_tensor row_grad; /* of what makes coefficients of var and std */

  /* reductions, backward: rows are sources, what they gather destinations */
  feature_tensor grad_min, grad_max, own, mean_out;
  offsets_t row_offsets;         /* of the destinations */
  const int *row_arg, *row_arg2; /* [N, width] */
  void *coefficient, *offset;    /* [N, width] accumulators */
};

typedef void (*gather_kernel)(gather_params);

/* How lanes are laid over features: elements a load, lanes an edge, loads a
 * lane, edges in flight. */
struct gather_shape {
  int vector, lanes, vectors, unroll;
};

/* The kernel of a shape, or NULL.  what: chosen by the family. */
typedef gather_kernel gather_finder(dfgnn_dtype dtype, int what,
                                    const gather_shape *shape);

int gather_width(const dfgnn_problem *problem);

/* NULL if a shape with these lanes and vectors serves the problem, else the
 * reason.  Widths of no whole 16-byte vectors are served by one shape only, as
 * are all that go one element at a time. */
const char *gather_refusal(gather_shape *shape, const dfgnn_setting *setting,
                           gather_finder *find, int what, int single, int lanes,
                           int vectors, int unroll);
/* The shape for any strides. */
void gather_narrow(gather_shape *shape, int64_t width);

dfgnn_status gather_tensor(feature_tensor *tensor, const char *name,
                           const void *data, const dfgnn_strides *strides,
                           dfgnn_dtype dtype);
/* Fit for 16-byte loads, or NULL. */
int gather_aligned(const gather_params *p, const feature_tensor *tensor,
                   dfgnn_dtype dtype);

/* What the matrix and the problem say. */
void gather_fill(gather_params *p, const dfgnn_problem *problem,
                 const dfgnn_matrix *matrix);

typedef enum gather_span {
  GATHER_ONCE = 0, /* a row a group of lanes */
  GATHER_PIECE = 1 /* 64 warps a multiprocessor, each block a piece of rows */
} gather_span;

enum { kOnceWarps = 4, kPieceWarps = 8 }; /* of a block */

/* Rows as they are, or by the view DEGREE_ORDER; rows: side by side in a warp.
 */
dfgnn_status gather_run(gather_params *p, gather_kernel kernel,
                        const gather_shape *shape, const dfgnn_launch *launch,
                        int warps, int rows, gather_span span);
/* A group of lanes a unit of p->schedule.units. */
dfgnn_status gather_run_shares(gather_params *p, gather_kernel kernel,
                               const gather_shape *shape,
                               const dfgnn_launch *launch, int warps);

/* Makes the schedule one of items. */
void gather_items(gather_params *p, const dfgnn_view *items,
                  const dfgnn_matrix *matrix);
/* Partial results of an item schedule, at most. */
int64_t gather_item_slots(const dfgnn_matrix *matrix, int64_t item_edges);
/* Shares of `share` steps. */
int64_t gather_shares(const dfgnn_matrix *matrix, int64_t share);

inline size_t gather_bytes(int64_t count, size_t size) {
  return (static_cast<size_t>(count) * size + 255) / 256 * 256;
}
inline size_t gather_scalar(dfgnn_dtype dtype) {
  return dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

/* Asks for as much L1 as the multiprocessor has. */
void gather_prefer_cache(gather_kernel kernel);

/* Launches a kernel whose parameters are P. */
template <class... P>
dfgnn_status gather_launch(const char *name, void (*kernel)(P...), dim3 grid,
                           int threads, void *stream, const P &...p) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  (void)cudaLaunchKernelEx(&config, kernel, p...);
  return launch_status(name);
}

} // namespace dfgnn

#endif
