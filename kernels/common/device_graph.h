/* device_graph.h - analysis, views and edge lists of graphs in device memory
 *
 * The functions put work on a queue and allocate nothing; workspaces are
 * 256-byte aligned device memory of the size that the _bytes function says.
 * Where the queue lists programs, pointers to device memory may be NULL. */
#ifndef DFGNN_KERNELS_DEVICE_GRAPH_H
#define DFGNN_KERNELS_DEVICE_GRAPH_H

#include "kernels/common/graph_params.h"
#include "kernels/common/variant.h"
#include "kernels/engine/engine.h"

/* Fills a dfgnn_graph_counts at the start of the workspace, which analyze_start
 * must have cleared.  graphs > 0: graph_ptr, host [graphs + 1], is checked
 * instead of looking for blocks.  Does nothing where its `list` already says
 * that the edge list is out of range or not sorted. */
size_t dfgnn__cuda_analyze_bytes(const dfgnn_matrix *matrix, int64_t graphs);
dfgnn_status dfgnn__cuda_analyze_start(const dfgnn_queue *queue,
                                       void *workspace);
dfgnn_status dfgnn__cuda_analyze(const dfgnn_queue *queue,
                                 const dfgnn_matrix *matrix, int64_t graphs,
                                 const int64_t *graph_ptr, int units,
                                 void *workspace);

/* The last step of the analysis: the diagonal blocks of a square matrix, from
 * the largest column of each row (high; -1: none) and minus the smallest (low).
 * tickets: two, zero before. */
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

/* These fill the arrays of views: see dfgnn_view_kind. */
dfgnn_status dfgnn__cuda_row_of_edge(const dfgnn_queue *queue, int32_t *rows,
                                     const dfgnn_matrix *matrix);

/* A DEGREE_ORDER, or if by_place is 1 a PLACE_ORDER. */
size_t dfgnn__cuda_order_bytes(const dfgnn_matrix *matrix, int by_place);
dfgnn_status dfgnn__cuda_order(const dfgnn_queue *queue, int32_t *order,
                               const dfgnn_matrix *matrix, int by_place,
                               void *workspace);

/* The array of a SLICES view. */
dfgnn_status dfgnn__cuda_cut_rows(const dfgnn_queue *queue, void *first,
                                  const dfgnn_matrix *matrix, int slices);

/* first_item, device [N + 1]; heavy, device [capacity N]; *heavy_count, device
 * [1]: the number of heavy rows. */
size_t dfgnn__cuda_count_items_bytes(const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_count_items(const dfgnn_queue *queue,
                                     int32_t *first_item, int32_t *heavy,
                                     int32_t *heavy_count,
                                     const dfgnn_matrix *matrix, int64_t size,
                                     void *workspace);
/* Does a request take padded items, or has a view such? */
static inline int dfgnn__is_padded(const dfgnn_view_request *request) {
  return request->kind == DFGNN_VIEW_WORK_ITEMS && request->parameter < 0;
}
dfgnn_status dfgnn__cuda_pad_items(const dfgnn_queue *queue,
                                   const dfgnn_pad_items *items, int offsets64);
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

/* The same for a square matrix that equals its transpose and has sorted rows;
 * *other (device memory) becomes 0, or 1 if the matrix is not so. */
dfgnn_status dfgnn__cuda_mirror(const dfgnn_queue *queue, void *offsets,
                                int32_t *row, void *edge, uint64_t *other,
                                const dfgnn_matrix *matrix);

/* Narrows the sources of edges (64-bit if wide) and checks both ends;
 * read->counts is in device memory, cleared.  read->dst, if not NULL, becomes
 * the keys of a sort. */
dfgnn_status dfgnn__cuda_read_edges(const dfgnn_queue *queue,
                                    const dfgnn_read_edges *read, int wide);
/* The offsets of a list that is sorted by dst_from; 64-bit if there are 2^31
 * edges or more. */
dfgnn_status dfgnn__cuda_list_offsets(const dfgnn_queue *queue, void *offsets,
                                      const void *dst_from, int wide,
                                      int64_t edges, int64_t destinations);
/* The matrix of a list that need not be sorted, from the dst and src that
 * read_edges made.  (An edge whose dst is the number of destinations comes
 * last, in no row.)  order becomes the position that each edge had in the list,
 * as wide as offsets. */
size_t dfgnn__cuda_sort_edges_bytes(int64_t edges, int64_t destinations);
dfgnn_status dfgnn__cuda_sort_edges(const dfgnn_queue *queue, void *offsets,
                                    int32_t *indices, void *order,
                                    const int32_t *dst, const int32_t *src,
                                    int64_t edges, int64_t destinations,
                                    void *workspace);

/* The matrix of a list that need not be sorted, and its transpose: from the dst
 * and src that read_edges made, or in one launch if the list is short. */
size_t dfgnn__cuda_both_ways_bytes(int64_t edges, int64_t destinations,
                                   int64_t sources);
dfgnn_status dfgnn__cuda_both_ways(const dfgnn_queue *queue,
                                   const dfgnn_both_ways *to,
                                   const int32_t *dst, const int32_t *src,
                                   int64_t edges, int64_t destinations,
                                   int64_t sources, void *workspace);
/* edges: of the matrix, with its loops; shared_bytes: of a block at most. */
int dfgnn__cuda_is_short(int64_t edges, int64_t destinations, int64_t sources,
                         int64_t shared_bytes);
dfgnn_status dfgnn__cuda_short_list(const dfgnn_queue *queue,
                                    dfgnn_short_list list, int wide);

/* Sorts keys by their lowest `bits` bits, stably: order, int32 or int64 if
 * wide, becomes the position that each key had.  sorted may not be NULL: passes
 * use it. */
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
