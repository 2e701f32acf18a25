/* layout.h - host code that all attention kernels on a GPU share: views of
 * tensors, lanes over features, schedules of rows, dropout, norms */
#ifndef DFGNN_ATTENTION_CUDA_LAYOUT_H
#define DFGNN_ATTENTION_CUDA_LAYOUT_H

#include "engine/constants.h"
#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/attention/cuda/schedule.h"
#include "kernels/common/cuda_host.h"

/* ---- tensors ------------------------------------------------------------- */

/* Makes the view of an argument; the view of NULL has no data. */
dfgnn_status dfgnn__view_tensor(tensor_view *view, const char *name,
                                const void *data, const dfgnn_strides *strides,
                                size_t size);
/* Can vectors of `vector` elements of `size` bytes be loaded?  1 for a view
 * without data. */
int dfgnn__view_aligned(const tensor_view *view, int64_t heads, int vector,
                        size_t size);
/* Are features side by side, and heads behind each other?  1 for a view without
 * data.  heads: the number that a lane steps over; with 1, any stride will do.
 */
int dfgnn__view_packed(const tensor_view *view, int64_t heads, int64_t dim,
                       size_t size);

/* ---- workspaces ---------------------------------------------------------- */

/* Takes the next part of a workspace, as dfgnn__place() does.  Returns NULL for
 * a part without elements, or without a workspace, to count bytes alone. */
static inline void *dfgnn__part(size_t *next, void *workspace, int64_t count,
                                size_t size) {
  const size_t at = dfgnn__place(next, count, size);
  return workspace && count ? (char *)workspace + at : NULL;
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

/* ---- families ------------------------------------------------------------ */

/* Defines <label>_applicable and the other functions of a family, by those of
 * its kind: prefix##_refusal and so on, which take a plan.  plan_of makes the
 * plan of the parameters. */
#define DFGNN_PLAN_FUNCTIONS(label, plan_type, plan_of, prefix)                \
  static const char *label##_applicable(const dfgnn_setting *s) {              \
    const plan_type plan = plan_of(s->parameter);                              \
    return prefix##_refusal(s, &plan);                                         \
  }                                                                            \
  static size_t label##_workspace(const dfgnn_setting *s) {                    \
    const plan_type plan = plan_of(s->parameter);                              \
    return prefix##_workspace(s, &plan);                                       \
  }                                                                            \
  static int label##_views(const dfgnn_setting *s,                             \
                           dfgnn_view_request *requests) {                     \
    const plan_type plan = plan_of(s->parameter);                              \
    return prefix##_views(&plan, requests);                                    \
  }                                                                            \
  static dfgnn_status label##_launch(const dfgnn_launch *launch) {             \
    const plan_type plan = plan_of(launch->setting.parameter);                 \
    return prefix##_launch(launch, &plan);                                     \
  }
#define DFGNN_PLAN_MEMBERS(label)                                              \
  .applicable = label##_applicable, .workspace = label##_workspace,            \
  .views = label##_views, .launch = label##_launch

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
#define DFGNN_ORDER                                                            \
  {                                                                            \
    "order", 2, {0, 1}, { "natural", "degree" }                                \
  }
/* The first `count` of these. */
#define DFGNN_HEADS(count)                                                     \
  {                                                                            \
    "heads", count, {HEADS_GRID, HEADS_WARP, HEADS_ROW, HEADS_LANES}, {        \
      "grid", "warp", "row", "lanes"                                           \
    }                                                                          \
  }

/* The constants of a walk over rows that does nothing with edges but gather. */
typedef struct row_constants {
  ROW_CONSTANTS(DFGNN_CONSTANT_MEMBER)
} row_constants;
row_constants dfgnn__row_constants(const dfgnn_problem *problem,
                                   const lane_shape *shape, int unroll,
                                   int packed);

/* ---- rows ---------------------------------------------------------------- */

/* All rows of a matrix, one after the other. */
row_schedule dfgnn__schedule_rows(const dfgnn_matrix *matrix);
/* Makes the schedule one of items of the same matrix. */
void dfgnn__schedule_items(row_schedule *schedule, const dfgnn_view *items,
                           const dfgnn_matrix *matrix);

/* Which units a block takes. */
typedef enum row_span {
  SPAN_ONCE = 0,  /* one round of units */
  SPAN_PIECE = 1, /* at most 32 warps a multiprocessor, a piece a block */
  SPAN_DEALT = 2  /* so many warps; blocks take the rounds in turn */
} row_span;

/* The number of blocks of so many warps that make 32 warps a multiprocessor. */
int64_t dfgnn__resident(const dfgnn_setting *setting, int warps);
/* Shares units out to blocks of `warps` warps with `rows` rows each; returns
 * the number of blocks. */
int64_t dfgnn__share_out(block_share *share, const dfgnn_setting *setting,
                         int64_t units, int warps, int rows, row_span span);

/* ---- dropout and norms --------------------------------------------------- */

dropout_params dfgnn__dropout_params(const dfgnn_problem *problem,
                                     const dfgnn_args *args);

/* Inverse norms of a tensor's rows, [nodes,H] of the sums' type. */
dfgnn_status dfgnn__inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch);

#endif
