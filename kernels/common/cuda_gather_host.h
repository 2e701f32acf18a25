/* cuda_gather_host.h - how kernels that gather rows are laid out and launched
 */
#ifndef DFGNN_KERNELS_CUDA_GATHER_HOST_H
#define DFGNN_KERNELS_CUDA_GATHER_HOST_H

#include "kernels/common/cuda_gather.h"
#include "kernels/common/cuda_host.h"

/* How lanes are laid over features: the elements of a load, the lanes of an
 * edge, the loads of a lane, and the edges in flight. */
typedef struct gather_shape {
  int vector, lanes, vectors, unroll;
} gather_shape;

/* Lanes, vectors and edges in flight that are worth compiling. */
typedef struct gather_choice {
  int lanes, vectors, unroll;
} gather_choice;

/* 1 if the list, which ends with 0 lanes, has this choice. */
int dfgnn__gather_listed(const gather_choice *list, int lanes, int vectors,
                         int unroll);
/* The shapes for any strides. */
extern const gather_choice dfgnn__gather_narrow_shapes[];

/* Fills the program of a shape; 0 if there is none.  kernel: which kernel, as
 * its family describes it; width: the features of a row. */
typedef int gather_finder(dfgnn_program *program, dfgnn_dtype dtype,
                          const void *kernel, const gather_shape *shape,
                          int width);

int dfgnn__gather_width(const dfgnn_problem *problem);

/* The widest vector, a power of two of at most `vector` numbers of `size`
 * bytes, that divides `bytes`: a distance, an address, or the bits of several.
 */
static inline int dfgnn__gather_fit(int vector, uint64_t bytes, size_t size) {
  while (vector > 1 && bytes % ((size_t)vector * size) != 0)
    vector /= 2;
  return vector;
}

/* Fills the shape that has these lanes and vectors.  NULL if it serves the
 * problem, else the reason.  A vector is the widest that fits runs of
 * `together` features; where these have an odd number, the narrow shape alone
 * serves. */
const char *dfgnn__gather_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting,
                                  gather_finder *find, const void *kernel,
                                  int64_t together, int lanes, int vectors,
                                  int unroll);
/* The shape for any strides. */
void dfgnn__gather_narrow(gather_shape *shape, int64_t width);

dfgnn_status dfgnn__gather_tensor(feature_tensor *tensor, const char *name,
                                  const void *data,
                                  const dfgnn_strides *strides,
                                  dfgnn_dtype dtype);
/* The widest vector of at most `vector` numbers that the tensor can be loaded
 * in; `vector` if it is missing. */
int dfgnn__gather_vector(const gather_params *p, const feature_tensor *tensor,
                         dfgnn_dtype dtype, int vector);

csr_offsets dfgnn__gather_offsets(const dfgnn_matrix *matrix);
/* Sets what follows from the matrix and the problem, and clears the rest. */
void dfgnn__gather_fill(gather_params *p, const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix);

typedef enum gather_span {
  GATHER_ONCE = 0, /* a group of lanes takes one row */
  GATHER_PIECE = 1 /* a block, of 64 warps a multiprocessor, takes many rows */
} gather_span;

/* Runs over the rows or items of the schedule; `rows` of them share a warp. */
dfgnn_status dfgnn__gather_run(gather_params *p, const dfgnn_program *program,
                               const gather_shape *shape,
                               const dfgnn_launch *launch, int warps, int rows,
                               gather_span span);
/* Makes the units of the schedule the items of a WORK_ITEMS view. */
void dfgnn__gather_items(gather_params *p, const dfgnn_view *items,
                         const dfgnn_matrix *matrix);
/* The most partial results that a schedule of items has. */
int64_t dfgnn__gather_item_slots(const dfgnn_matrix *matrix,
                                 int64_t item_edges);
static inline size_t dfgnn__gather_bytes(int64_t count, size_t size) {
  return dfgnn__align256((size_t)count * size);
}

/* ---- parameters of families ---------------------------------------------- */

/* clang-format off */
#define DFGNN_GATHER_SHAPE                                                     \
  {.name = "lanes", .count = 4, .values = {4, 8, 16, 32}},                     \
  {.name = "vectors", .count = 3, .values = {1, 2, 4}},                        \
  {.name = "unroll", .count = 4, .values = {1, 2, 4, 8}}
#define DFGNN_GATHER_ROW                                                       \
  {DFGNN_GATHER_SHAPE,                                                         \
   {.name = "rows", .count = 4, .values = {1, 2, 4, 8}},                       \
   {.name = "span", .count = 2, .values = {GATHER_ONCE, GATHER_PIECE},         \
    .labels = {"once", "piece"}},                                              \
   {.name = "order", .count = 2, .values = {0, 1},                             \
    .labels = {"natural", "degree"}}}
#define DFGNN_GATHER_SPLIT                                                     \
  {DFGNN_GATHER_SHAPE,                                                         \
   {.name = "rows", .count = 3, .values = {1, 2, 4}},                          \
   {.name = "edges", .count = 2, .values = {64, 256}}}
/* clang-format on */

#endif
