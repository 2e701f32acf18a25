/* tile_plans.c - host code that forward and backward over tiles share */
#include "kernels/attention/cuda/tile_plans.h"

#include <string.h>

#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/attention/cuda/tile_forward.h"
#include "kernels/attention/cuda/tile_order.h"
#include "lib/base/error.h"

/* A row (of gradients: or a column) has more than 4096 edges and eight times a
 * multiprocessor's share.  One block would walk its whole window: on
 * bipartite:nodes=20000,sources=3000,edges=150000,heavy=4,share=0.5 that took
 * 450 times as long as cutting columns. */
static int has_hub(const dfgnn_setting *s) {
  int64_t most = s->matrix->max_degree;
  if (s->problem->pass == DFGNN_PASS_BACKWARD &&
      s->signature->max_source_degree > most)
    most = s->signature->max_source_degree;
  return most > 4096 &&
         (double)most * s->device->units > 8.0 * (double)s->matrix->edges;
}

/* A row has more edges than there are sources, so some of them twice, and one
 * block walks the rows of its window edge by edge: on
 * rmat:scale=10,edges=30000 (1955 edges of 1024 sources) all tiles took 100
 * times as long as cut rows. */
static int has_doubled_hub(const dfgnn_setting *s) {
  const int64_t most = s->matrix->max_degree;
  return most > 512 && most > s->matrix->sources &&
         (double)most * s->device->units > (double)s->matrix->edges;
}

/* AGNN's norms are read for each pair of a window: where its columns lie far
 * apart, no window was within 1.8 times the fastest variant on an H200, and one
 * took 50 times as long on stars:nodes=5000,centres=200. */
static int is_scattered(const dfgnn_setting *s) {
  return s->problem->op == DFGNN_OP_AGNN && s->signature->locality < 0.5;
}

#define LEAST_DENSITY (1.0 / 24)

const char *dfgnn__tile_limits(const dfgnn_setting *s, const tile_plan *plan) {
  const dfgnn_matrix *matrix = s->matrix;
  if (dfgnn__compute_capability(s->device) < 80)
    return "needs tensor cores of sm_80 or later";
  if (s->problem->dim > TILE_MOST_WIDTH)
    return "more than 128 features";
  if (s->problem->heads > DFGNN_GRID_Y_MAX)
    return "more than 65535 heads";
  if (matrix->destinations > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (plan->dense && matrix->destinations != matrix->sources)
    return "the matrix is not square";
  /* Masks have a bit for each pair of nodes of a block, edges 32 bits each.  On
   * an H200 no walk over whole blocks was the fastest on batches of a density
   * below a tenth, and some took 300 times as long on a graph of one of a
   * thirtieth, which a model that does not know it takes for a batch. */
  if (plan->dense && !(s->signature->density >= LEAST_DENSITY))
    return "the blocks of the batch are too sparse";
  if (!plan->dense && is_scattered(s))
    return "the columns of a window lie too far apart";
  if (!plan->dense && has_hub(s))
    return "one block would walk the window of a hub";
  if (has_doubled_hub(s))
    return "one block would walk a hub that has edges twice";
  return NULL;
}

const char *dfgnn__direct_limits(const dfgnn_problem *problem) {
  if (problem->dim % 16)
    return "the features of a head are no multiple of 16";
  if (problem->dim > (problem->dtype == DFGNN_F32 ? 32 : 64))
    return "a warp would hold more features than registers can";
  return NULL;
}

int dfgnn__direct_heads(int heads, int rows) {
  const int most = DFGNN_TILE_MOST_ROWS / rows;
  return heads < most ? heads : most;
}

dfgnn_view_request dfgnn__tile_request(const tile_plan *plan, int transposed) {
  return (dfgnn_view_request){
      .kind = DFGNN_VIEW_TILES,
      .parameter = dfgnn__tiles_parameter(plan->rows, plan->dense),
      .transposed = transposed};
}

int dfgnn__tile_edges(const dfgnn_problem *problem, const dfgnn_args *args) {
  return (problem->bias && args->bias ? EDGE_BIAS : EDGE_PLAIN) |
         (problem->dropout && args->dropout > 0 ? EDGE_DROPOUT : EDGE_PLAIN);
}

static dfgnn_status disorder(int32_t *found, const dfgnn_setting *s) {
  static const dfgnn_program program = {
      .source = "kernels/attention/cuda/tile_order.cuh",
      .name = "dfgnn::find_disorder"};
  const dfgnn_matrix *matrix = s->matrix;
  tile_order_params p = {.offsets = matrix->offsets,
                         .offsets64 = matrix->offsets64,
                         .indices = matrix->indices,
                         .rows = matrix->destinations};
  const dfgnn_grid grid = {.blocks = {(unsigned)s->device->units * 8},
                           .threads = 256};
  void *memory = NULL;
  dfgnn_status status = dfgnn__borrow(s->queue, &memory, sizeof *found);
  p.found = memory;
  if (!status)
    status = dfgnn__fill(s->queue, p.found, 0, sizeof *found);
  if (!status)
    status = dfgnn__launch_struct(s->queue, &program, grid, &p);
  if (!status)
    status = dfgnn__read(s->queue, found, p.found, sizeof *found);
  dfgnn__give_back(s->queue, memory);
  return status;
}

dfgnn_status dfgnn__tile_prepare(void **state, const dfgnn_setting *s,
                                 const dfgnn_view *const *views) {
  int32_t found = 0;
  (void)views;
  *state = NULL;
  if (!s->problem->bias && !s->problem->dropout)
    return DFGNN_OK;
  dfgnn_status status = disorder(&found, s);
  if (!status && found)
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "the edges of a row are not in the order of their "
                         "columns, which bias and dropout of tiles need");
  return status;
}
