/* device_tiles.h - the TILES view, built in device memory
 *
 * In two steps, between which the caller reads the counts and allocates the
 * arrays.  As in device_graph.h: plain C functions that enqueue on `stream`,
 * allocate nothing and return the first error; workspaces are 256-byte aligned
 * device memory of the size that the _bytes function says. */
#ifndef DFGNN_KERNELS_DEVICE_TILES_H
#define DFGNN_KERNELS_DEVICE_TILES_H

#include <cuda_runtime_api.h>

#include "kernels/common/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Duplicates are found last and keep windows whole: items and cuts are upper
 * bounds after the first step, exact after the second. */
typedef struct dfgnn_tile_counts {
  uint64_t windows, chunks;
  uint64_t most; /* chunks of a window */
  uint64_t items, cuts;
} dfgnn_tile_counts;

/* Finds the windows; fills counts in device memory at the start of the
 * workspace. */
size_t dfgnn__cuda_count_tiles_bytes(const dfgnn_matrix *matrix,
                                     int64_t parameter);
cudaError_t dfgnn__cuda_count_tiles(const dfgnn_matrix *matrix,
                                    int64_t parameter, void *workspace,
                                    cudaStream_t stream);

/* Fills the arrays, of the sizes that counts (in host memory) says; `counted`
 * is the workspace of the first step. */
size_t dfgnn__cuda_fill_tiles_bytes(const dfgnn_tile_counts *counts);
cudaError_t dfgnn__cuda_fill_tiles(dfgnn_tile *items, int32_t *columns,
                                   uint32_t *masks, dfgnn_tile_cut *cuts,
                                   const dfgnn_tile_counts *counts,
                                   const dfgnn_matrix *matrix,
                                   int64_t parameter, void *counted,
                                   void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
