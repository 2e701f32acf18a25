/* attend.h - what host code and the kernels of cuda_attend.cuh share */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_H
#define DFGNN_ATTENTION_CUDA_ATTEND_H

#include "kernels/common/variant.h"

namespace dfgnn {

/* A feature tensor; distances are bytes. */
struct tensor_view {
  const void *data;
  unsigned node_bytes, head_bytes, feature_bytes;
};

/* Units are rows, or items of split rows. */
struct row_schedule {
  int units;
  int offsets64;
  const void *offsets;
  const int *indices;
  const int *order;    /* rows by degree; NULL: as they are */
  const int *item_row; /* NULL: units are rows */
  const int64_t *item_first;
  const int *row_item;
  int item_edges, extra_items;
};

struct attend_params {
  row_schedule schedule;
  /* A block starts at blockIdx.x * first_step and takes the units below that
   * plus span, in rounds round_step apart; a row takes `group` lanes. */
  int first_step, span, round_step, group;

  int heads, dim, tile_heads, head_shift; /* log2 of lanes a head */
  int exact; /* every lane of a tile has features; heads are contiguous */
  tensor_view query, key, value, out;
  const void *score_dst, *score_src, *att, *beta;
  const void *inverse_norms; /* AGNN, [M,H]; NULL: from the gathered row */
  const void *lse2;          /* given_score: [N,H] */
  const void *scores;        /* given_score: [H,E] */
  int64_t edges;
  void *partial, *partial_state;
  void *lse;
  double scale; /* GATv2: the sign of leaky()'s argument */
  double slope;
};

/* One panel of features of one gathered table, for every edge. */
struct panel_params {
  row_schedule schedule;
  int heads, dim;  /* features of the panel */
  int exact;       /* every lane has features */
  int first, last; /* panel of the table */
  tensor_view query, source;
  const void *att, *beta, *inverse_dst, *inverse_src;
  int64_t att_head; /* elements between heads of att */
  void *scores;     /* [H,E] */
  int64_t edges;
  double scale, slope;
};

/* The instances of attend(): lanes an edge, vectors a lane, edges in flight,
 * several heads a warp.  Wide ones are for 16-byte vectors, narrow ones take
 * single elements at any stride. */
/* The formatter never comes to an end with these lists. */
/* clang-format off */
#define DFGNN_ATTEND_WIDE(X) \
  X(32, 1, 1, 0) X(32, 1, 2, 0) X(32, 1, 4, 0) X(32, 1, 8, 0) X(32, 2, 1, 0) \
  X(32, 2, 2, 0) X(32, 2, 4, 0) X(32, 4, 1, 0) X(32, 4, 2, 0) X(32, 8, 1, 0) \
  X(16, 1, 1, 0) X(16, 1, 2, 0) X(16, 1, 4, 0) X(16, 1, 8, 0) X(16, 2, 1, 0) \
  X(16, 2, 2, 0) X(16, 2, 4, 0) X(16, 4, 1, 0) X(16, 4, 2, 0) X(8, 1, 1, 0) \
  X(8, 1, 2, 0) X(8, 1, 4, 0) X(8, 2, 1, 0) X(8, 2, 2, 0) X(8, 2, 4, 0) \
  X(8, 4, 1, 0) X(8, 4, 2, 0) X(4, 1, 1, 0) X(4, 1, 2, 0) X(4, 1, 4, 0) \
  X(4, 2, 1, 0) X(4, 2, 2, 0) X(4, 4, 1, 0) X(32, 1, 1, 1) X(32, 1, 2, 1) \
  X(32, 1, 4, 1) X(32, 1, 8, 1) X(16, 1, 2, 1) X(16, 1, 4, 1) X(16, 2, 1, 1) \
  X(16, 2, 2, 1) X(16, 2, 4, 1) X(8, 1, 2, 1) X(8, 2, 2, 1) X(8, 4, 1, 1) \
  X(8, 4, 2, 1)

/* Of 16-bit types: a vector is twice as many features. */
#define DFGNN_ATTEND_HALF(X) \
  X(32, 1, 1, 0) X(32, 1, 2, 0) X(32, 1, 4, 0) X(32, 2, 1, 0) X(32, 2, 2, 0) \
  X(32, 4, 1, 0) X(16, 1, 1, 0) X(16, 1, 2, 0) X(16, 1, 4, 0) X(16, 2, 1, 0) \
  X(16, 2, 2, 0) X(16, 4, 1, 0) X(8, 1, 1, 0) X(8, 1, 2, 0) X(8, 1, 4, 0) \
  X(8, 2, 1, 0) X(8, 2, 2, 0) X(4, 1, 1, 0) X(4, 1, 2, 0) X(4, 1, 4, 0) \
  X(4, 2, 1, 0) X(4, 2, 2, 0) X(32, 1, 2, 1) X(32, 1, 4, 1) X(16, 1, 2, 1) \
  X(16, 1, 4, 1) X(16, 2, 2, 1) X(8, 1, 2, 1) X(8, 2, 1, 1) X(8, 2, 2, 1)

/* Of sums with given scores. */
#define DFGNN_ATTEND_GIVEN(X) \
  X(32, 1, 4, 0) X(32, 1, 8, 0) X(16, 1, 4, 0) X(16, 1, 8, 0) X(8, 1, 4, 0) \
  X(8, 1, 8, 0) X(4, 1, 4, 0)

/* Of score_panel(): lanes, edges in flight. */
#define DFGNN_PANEL_WIDE(X) \
  X(32, 4) X(32, 8) X(16, 4) X(16, 8) X(8, 4) X(8, 8) X(4, 4)
#define DFGNN_PANEL_NARROW(X) \
  X(32, 4)

#define DFGNN_ATTEND_NARROW(X) \
  X(32, 1, 2, 0) X(32, 1, 4, 0) X(32, 4, 1, 0) X(32, 32, 1, 0)
/* clang-format on */

/* What attend() scores by: an operator, or scores in memory. */
#define DFGNN_SCORE_GIVEN (DFGNN_OP_GATV2 + 1)
#define DFGNN_SCORE_COUNT (DFGNN_SCORE_GIVEN + 1)

/* The instance as a symbol for cudaLaunchKernel, or NULL if there is none.
 * vector: elements a load. */
const void *attend_kernel(int score, dfgnn_dtype dtype, int vector, int lanes,
                          int vectors, int unroll, int several_heads);

/* How lanes are laid over a problem's features. */
struct attend_shape {
  int vector, lanes, vectors, unroll, several;
  int tile_heads, head_lanes, tiles; /* heads of a warp; lanes of a head */
};

/* 0 if no instance serves the setting so. */
int attend_shape_find(attend_shape *shape, int score,
                      const dfgnn_setting *setting, int lanes, int unroll,
                      int several);

/* One row a warp and lane group; or 32 warps a multiprocessor that come back
 * for more, each block with rows in one piece or with every n-th. */
typedef enum attend_span {
  ATTEND_ONCE = 0,
  ATTEND_PIECE = 1,
  ATTEND_DEALT = 2
} attend_span;

/* Schedule of a launch. */
struct attend_schedule {
  int warps;               /* a block */
  int rows;                /* a warp, side by side */
  attend_span span;        /* the rows of a block */
  const dfgnn_view *order; /* DEGREE_ORDER, or NULL */
  const dfgnn_view *items; /* WORK_ITEMS, or NULL */
};

/* The view of an argument; of NULL, one without data. */
dfgnn_status view_tensor(tensor_view *view, const char *name, const void *data,
                         const dfgnn_strides *strides, size_t size);

/* Fills what the arguments and the matrix say. */
dfgnn_status attend_fill(attend_params *p, const dfgnn_launch *launch);

/* Launches attend(); narrow instances serve what is not aligned. */
dfgnn_status attend_run(attend_params *p, int score, const dfgnn_launch *launch,
                        const attend_shape *shape,
                        const attend_schedule *schedule);

/* Are all tensors fit for 16-byte loads? */
int attend_aligned(const attend_params *p, unsigned size);

/* Makes the schedule one of items. */
void attend_items(row_schedule *schedule, const dfgnn_view *items,
                  const dfgnn_matrix *matrix);

/* Merges the partial results of rows of several items. */
dfgnn_status attend_merge(attend_params *p, const dfgnn_view *items,
                          const dfgnn_launch *launch);

/* Inverse norms of a tensor's rows, [nodes,H]. */
dfgnn_status attend_inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch);

/* The tensor from a feature on. */
tensor_view view_from(const tensor_view &view, int feature);

/* Adds a panel to the scores. */
dfgnn_status panel_run(const panel_params *p, const dfgnn_launch *launch,
                       const attend_shape *shape, int warps);

/* Asks for as much L1 as the multiprocessor has. */
void attend_prefer_cache(int score, const dfgnn_setting *setting,
                         const attend_shape *shape);

/* One file a storage type and width of load defines these. */
typedef const void *attend_finder(int score, int lanes, int vectors, int unroll,
                                  int several_heads);
attend_finder attend_gt_f32, attend_agnn_f32, attend_gat_f32, attend_gatv2_f32,
    attend_given_f32, attend_dot_f16, attend_add_f16, attend_dot_bf16,
    attend_add_bf16;
const void *attend_narrow(int score, dfgnn_dtype dtype, int lanes, int vectors,
                          int unroll, int several_heads);

/* The same for score_panel(). */
typedef const void *panel_finder(int score, int lanes, int unroll);
panel_finder panel_f32, panel_f16, panel_bf16;
const void *panel_narrow(int score, dfgnn_dtype dtype, int lanes, int unroll);

} // namespace dfgnn

#endif
