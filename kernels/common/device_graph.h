/* device_graph.h - what the CUDA backend asks of a graph in device memory
 *
 * Functions that put work on a queue and allocate nothing; workspaces are
 * 256-byte aligned device memory of the size that the _bytes function says.
 * Where the queue lists programs, pointers to device memory may be NULL. */
#ifndef DFGNN_KERNELS_DEVICE_GRAPH_H
#define DFGNN_KERNELS_DEVICE_GRAPH_H

#include "engine/engine.h"
#include "kernels/common/graph_params.h"
#include "kernels/common/move.h"
#include "kernels/common/variant.h"

/* Fills counts in device memory at the start of the workspace, where
 * analyze_start must have cleared them.  graphs > 0: graph_ptr, host
 * [graphs + 1], is checked instead of looking for blocks.  Nothing is looked at
 * that counts->list refuses: a list out of range or not sorted. */
size_t dfgnn__cuda_analyze_bytes(const dfgnn_matrix *matrix, int64_t graphs);
dfgnn_status dfgnn__cuda_analyze_start(const dfgnn_queue *queue,
                                       void *workspace);
dfgnn_status dfgnn__cuda_analyze(const dfgnn_queue *queue,
                                 const dfgnn_matrix *matrix, int64_t graphs,
                                 const int64_t *graph_ptr, int units,
                                 void *workspace);

/* Its last part: the diagonal blocks of a square matrix, from the largest
 * column (-1: none) and minus the smallest of each row.  Two tickets, zero. */
size_t dfgnn__cuda_find_blocks_bytes(int64_t rows);
dfgnn_status dfgnn__cuda_find_blocks(const dfgnn_queue *queue,
                                     dfgnn_graph_counts *counts,
                                     const int32_t *high, const int32_t *low,
                                     int64_t rows, uint32_t *tickets,
                                     void *workspace);

/* Narrows indices; *bad (device memory) becomes the first position whose value
 * does not fit or is negative, all bits set if none. */
dfgnn_status dfgnn__cuda_narrow(const dfgnn_queue *queue, int32_t *to,
                                const int64_t *from, int64_t count,
                                uint64_t *bad);

/* dfgnn_view_kind's arrays. */
dfgnn_status dfgnn__cuda_row_of_edge(const dfgnn_queue *queue, int32_t *rows,
                                     const dfgnn_matrix *matrix);

size_t dfgnn__cuda_degree_order_bytes(const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_degree_order(const dfgnn_queue *queue, int32_t *order,
                                      const dfgnn_matrix *matrix,
                                      void *workspace);

/* first_item, device [N + 1]; heavy, device [capacity N]; *heavy_count, device
 * [1]: how many heavy rows. */
size_t dfgnn__cuda_count_items_bytes(const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_count_items(const dfgnn_queue *queue,
                                     int32_t *first_item, int32_t *heavy,
                                     int32_t *heavy_count,
                                     const dfgnn_matrix *matrix, int64_t size,
                                     void *workspace);
dfgnn_status dfgnn__cuda_fill_items(const dfgnn_queue *queue, int32_t *row,
                                    int64_t *first_edge,
                                    const int32_t *first_item, int64_t items,
                                    const dfgnn_matrix *matrix, int64_t size);

/* The arrays of a TRANSPOSE view; *largest (device memory) becomes the largest
 * degree of a column. */
size_t dfgnn__cuda_transpose_bytes(const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_transpose(const dfgnn_queue *queue, void *offsets,
                                   int32_t *row, void *edge, uint64_t *largest,
                                   const dfgnn_matrix *matrix, void *workspace);

/* The same of a square matrix that equals its transposed one and has sorted
 * rows; if it has not, *other (device memory) becomes 1, else 0. */
dfgnn_status dfgnn__cuda_mirror(const dfgnn_queue *queue, void *offsets,
                                int32_t *row, void *edge, uint64_t *other,
                                const dfgnn_matrix *matrix);

/* Narrows the sources of edges (64-bit if wide) and checks both ends; counts is
 * in device memory, cleared.  dst, if not NULL: keys of a sort. */
dfgnn_status dfgnn__cuda_read_edges(const dfgnn_queue *queue,
                                    const dfgnn_read_edges *read, int wide);
/* The offsets of a list that is sorted by dst_from; 64-bit if there are 2^31
 * edges or more. */
dfgnn_status dfgnn__cuda_list_offsets(const dfgnn_queue *queue, void *offsets,
                                      const void *dst_from, int wide,
                                      int64_t edges, int64_t destinations);
/* The matrix of a list that need not be sorted, from what read_edges made (keys
 * may be the number of destinations: such edges come last, in no row);
 * order becomes the edge of the list that each is, as wide as offsets. */
size_t dfgnn__cuda_sort_edges_bytes(int64_t edges, int64_t destinations);
dfgnn_status dfgnn__cuda_sort_edges(const dfgnn_queue *queue, void *offsets,
                                    int32_t *indices, void *order,
                                    const int32_t *dst, const int32_t *src,
                                    int64_t edges, int64_t destinations,
                                    void *workspace);

dfgnn_status dfgnn__cuda_move(const dfgnn_queue *queue, const dfgnn_move *move);

/* Sorts keys by their lowest `bits` bits, stably: order, int32 or int64 if
 * wide, becomes the position that each key had.  sorted must be there for the
 * sort itself. */
size_t dfgnn__cuda_sort_bytes(int64_t count, int bits, int wide);
dfgnn_status dfgnn__cuda_sort(const dfgnn_queue *queue, const uint32_t *key,
                              uint32_t *sorted, void *order, int64_t count,
                              int bits, int wide, void *workspace);

/* Inclusive sums or maxima of an int32 array, in place where from == to. */
size_t dfgnn__cuda_scan_bytes(int64_t count);
dfgnn_status dfgnn__cuda_scan_sum(const dfgnn_queue *queue, const int32_t *from,
                                  int32_t *to, int64_t count, void *workspace);
dfgnn_status dfgnn__cuda_scan_max(const dfgnn_queue *queue, const int32_t *from,
                                  int32_t *to, int64_t count, void *workspace);

#endif
