/* device_tiles.h - the TILES view, built in device memory
 *
 * It is built in two steps, between which the caller reads the counts and
 * allocates the arrays.  As in device_graph.h the functions put work on a queue
 * and allocate nothing; workspaces are 256-byte aligned device memory of the
 * size that the _bytes function says. */
#ifndef DFGNN_KERNELS_DEVICE_TILES_H
#define DFGNN_KERNELS_DEVICE_TILES_H

#include "kernels/common/tiles.h"

/* Finds the windows; fills counts in device memory at the start of the
 * workspace. */
size_t dfgnn__cuda_count_tiles_bytes(const dfgnn_matrix *matrix,
                                     int64_t parameter);
dfgnn_status dfgnn__cuda_count_tiles(const dfgnn_queue *queue,
                                     const dfgnn_matrix *matrix,
                                     int64_t parameter, void *workspace);

/* Fills the arrays, of the sizes that counts (in host memory) says; `counted`
 * is the workspace of the first step. */
size_t dfgnn__cuda_fill_tiles_bytes(const dfgnn_tile_counts *counts);
dfgnn_status dfgnn__cuda_fill_tiles(const dfgnn_queue *queue, dfgnn_tile *items,
                                    int32_t *columns, uint32_t *masks,
                                    const dfgnn_tile_counts *counts,
                                    const dfgnn_matrix *matrix,
                                    int64_t parameter, void *counted,
                                    void *workspace);

/* ---- the two modes, for kernels/common/tiles_items.c --------------------- */

/* Mode `window` (tiles_columns.c): `count` windows of `high` rows; chunks[w]
 * becomes the number of chunks of window w. */
dfgnn_status dfgnn__cuda_count_columns(const dfgnn_queue *queue,
                                       dfgnn_window *windows, int32_t *chunks,
                                       int64_t count,
                                       const dfgnn_matrix *matrix, int high);
/* chunk_end: the inclusive sums of chunks; masks are zero before. */
dfgnn_status dfgnn__cuda_fill_columns(const dfgnn_queue *queue,
                                      int32_t *columns, uint32_t *masks,
                                      dfgnn_window *windows,
                                      const int32_t *chunk_end, int64_t count,
                                      const dfgnn_matrix *matrix, int high);

/* Mode `dense` (tiles_dense.c): *count (device memory) becomes the number of
 * windows, at most `capacity`. */
int64_t dfgnn__cuda_dense_capacity(const dfgnn_matrix *matrix, int high);
size_t dfgnn__cuda_dense_bytes(const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_find_dense(const dfgnn_queue *queue,
                                    dfgnn_window *windows, int32_t *chunks,
                                    uint64_t *count, int64_t capacity,
                                    const dfgnn_matrix *matrix, int high,
                                    void *workspace);
dfgnn_status dfgnn__cuda_fill_dense(const dfgnn_queue *queue, int32_t *columns,
                                    uint32_t *masks, dfgnn_window *windows,
                                    const int32_t *chunk_end, int64_t count,
                                    const dfgnn_matrix *matrix, int high);

#endif
