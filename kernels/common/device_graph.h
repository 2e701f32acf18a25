/* device_graph.h - what the CUDA backend asks of a graph in device memory
 *
 * Plain C functions around device kernels.  They enqueue on `stream` of the
 * current device, allocate nothing and return the first error; workspaces are
 * 256-byte aligned device memory of the size that the _bytes function says. */
#ifndef DFGNN_KERNELS_DEVICE_GRAPH_H
#define DFGNN_KERNELS_DEVICE_GRAPH_H

#include <cuda_runtime_api.h>

#include "kernels/common/move.h"
#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What reading an edge list found.  Here and below a "bad" field is the
 * complement of the first edge or row found wrong, 0 if there is none. */
typedef struct dfgnn_edge_counts {
  uint64_t bad_dst, bad_src; /* its node is out of range */
  uint64_t unsorted;         /* by destination, and taken as it is */
  uint64_t was_unsorted;     /* the same of a list that is being sorted */
} dfgnn_edge_counts;

/* Counts of one analysis, as the device leaves them. */
typedef struct dfgnn_graph_counts {
  dfgnn_edge_counts list;  /* of the list the matrix is made of */
  uint64_t bad_offset_row; /* its end is before its begin or beyond the edges */
  uint64_t bad_index_row, bad_index_edge; /* a column out of range */
  uint64_t bad_block_row; /* an edge leaves the row's block of graph_ptr */
  uint64_t fingerprint;
  uint64_t max_degree, sum_squares;
  uint64_t histogram[DFGNN_HISTOGRAM_BINS];
  uint64_t percentile[3]; /* p50, p90, p99 */
  uint64_t reuse_edges, reuse_distinct;
  uint64_t local_samples, local_hits;
  uint64_t blocks, largest_block, squared_blocks;
} dfgnn_graph_counts;

/* Fills counts in device memory at the start of the workspace, where
 * analyze_start must have cleared them.  graphs > 0: graph_ptr, host
 * [graphs + 1], is checked instead of looking for blocks.  Nothing is looked at
 * that counts->list refuses: a list out of range or not sorted. */
size_t dfgnn__cuda_analyze_bytes(const dfgnn_matrix *matrix, int64_t graphs);
cudaError_t dfgnn__cuda_analyze_start(void *workspace, cudaStream_t stream);
cudaError_t dfgnn__cuda_analyze(const dfgnn_matrix *matrix, int64_t graphs,
                                const int64_t *graph_ptr, int units,
                                void *workspace, cudaStream_t stream);

/* Its last part: the diagonal blocks of a square matrix, from the largest
 * column (-1: none) and minus the smallest of each row.  Two tickets, zero. */
size_t dfgnn__cuda_find_blocks_bytes(int64_t rows);
cudaError_t dfgnn__cuda_find_blocks(dfgnn_graph_counts *counts,
                                    const int32_t *high, const int32_t *low,
                                    int64_t rows, unsigned *tickets,
                                    void *workspace, cudaStream_t stream);

/* Narrows indices; *bad (device memory) becomes the first position whose value
 * does not fit or is negative, all bits set if none. */
cudaError_t dfgnn__cuda_narrow(int32_t *to, const int64_t *from, int64_t count,
                               unsigned long long *bad, cudaStream_t stream);

/* dfgnn_view_kind's arrays. */
cudaError_t dfgnn__cuda_row_of_edge(int32_t *rows, const dfgnn_matrix *matrix,
                                    cudaStream_t stream);

size_t dfgnn__cuda_degree_order_bytes(const dfgnn_matrix *matrix);
cudaError_t dfgnn__cuda_degree_order(int32_t *order, const dfgnn_matrix *matrix,
                                     void *workspace, cudaStream_t stream);

/* first_item, device [N + 1]; heavy, device [capacity N]; *counts, device [1]:
 * how many heavy rows. */
size_t dfgnn__cuda_count_items_bytes(const dfgnn_matrix *matrix);
cudaError_t dfgnn__cuda_count_items(int32_t *first_item, int32_t *heavy,
                                    int32_t *heavy_count,
                                    const dfgnn_matrix *matrix, int64_t size,
                                    void *workspace, cudaStream_t stream);
cudaError_t dfgnn__cuda_fill_items(int32_t *row, int64_t *first_edge,
                                   const int32_t *first_item, int64_t items,
                                   const dfgnn_matrix *matrix, int64_t size,
                                   cudaStream_t stream);

/* The arrays of a TRANSPOSE view; *largest (device memory) becomes the largest
 * degree of a column. */
size_t dfgnn__cuda_transpose_bytes(const dfgnn_matrix *matrix);
cudaError_t dfgnn__cuda_transpose(void *offsets, int32_t *row, void *edge,
                                  unsigned long long *largest,
                                  const dfgnn_matrix *matrix, void *workspace,
                                  cudaStream_t stream);

/* The same of a square matrix that equals its transposed one and has sorted
 * rows; if it has not, *other (device memory) becomes 1, else 0. */
cudaError_t dfgnn__cuda_mirror(void *offsets, int32_t *row, void *edge,
                               unsigned long long *other,
                               const dfgnn_matrix *matrix, cudaStream_t stream);

/* Narrows the sources of edges (64-bit if wide) and checks both ends; counts is
 * in device memory, cleared.  dst and number, if not NULL: keys and values of a
 * sort, number is 64-bit if there are 2^31 edges or more. */
cudaError_t dfgnn__cuda_read_edges(int32_t *src, int32_t *dst, void *number,
                                   const void *dst_from, const void *src_from,
                                   int wide, int64_t edges,
                                   int64_t destinations, int64_t sources,
                                   dfgnn_edge_counts *counts,
                                   cudaStream_t stream);
/* The offsets of a list that is sorted by dst_from; 64-bit if there are 2^31
 * edges or more. */
cudaError_t dfgnn__cuda_list_offsets(void *offsets, const void *dst_from,
                                     int wide, int64_t edges,
                                     int64_t destinations, cudaStream_t stream);
/* The matrix of a list that need not be sorted, from what read_edges made;
 * order becomes the edge of the list that each is, as wide as offsets. */
size_t dfgnn__cuda_sort_edges_bytes(int64_t edges, int64_t destinations);
cudaError_t dfgnn__cuda_sort_edges(void *offsets, int32_t *indices, void *order,
                                   const int32_t *dst, const int32_t *src,
                                   const void *number, int64_t edges,
                                   int64_t destinations, void *workspace,
                                   cudaStream_t stream);

cudaError_t dfgnn__cuda_move(const dfgnn_move *move, cudaStream_t stream);

/* Inclusive sums of an int32 array, in place where from == to.  temporary NULL:
 * *bytes is set to what it must hold. */
cudaError_t dfgnn__cuda_scan_sum(void *temporary, size_t *bytes,
                                 const int32_t *from, int32_t *to,
                                 int64_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
