/* graph_params.h - parameters of the kernels that analyse and transform graphs
 *
 * Plain C for the host's compiler and NVRTC alike. */
#ifndef DFGNN_KERNELS_GRAPH_PARAMS_H
#define DFGNN_KERNELS_GRAPH_PARAMS_H

#include <stdint.h>

#include "dfgnn_types.h"
#include "kernels/common/fingerprint.h"

/* The findings of reading an edge list.  Here and below a "bad" field is the
 * complement of the first edge or row found wrong, 0 if there is none. */
typedef struct dfgnn_edge_counts {
  uint64_t bad_dst, bad_src; /* its node is out of range */
  uint64_t unsorted;         /* destinations fall, in a list taken as sorted */
  uint64_t was_unsorted;     /* destinations fall, in a list to be sorted */
  uint64_t left_out;         /* self loops that added loops take the place of */
  uint64_t told; /* blocks that are done, before one tells a fault */
} dfgnn_edge_counts;

/* An end out of range of a list that nobody waits for, in memory of the host.
 */
typedef struct dfgnn_edge_fault {
  uint64_t list; /* its number, written last; 0: none yet */
  int64_t edge, is_src, node, nodes;
} dfgnn_edge_fault;

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
  /* degrees of the columns */
  uint64_t max_source_degree, source_squares, isolated_sources;
  uint64_t source_percentile[2]; /* p50, p99 */
} dfgnn_graph_counts;

/* The threads of a block, and the work of a block, a group of lanes, a thread.
 */
enum {
  DFGNN_GRAPH_THREADS = 256,
  DFGNN_ANALYZE_GROUP = 8,   /* lanes that walk edges together */
  DFGNN_ANALYZE_CHUNK = 256, /* edges that a group walks */
  DFGNN_ANALYZE_ROWS = 512,  /* rows of a block, at least */
  DFGNN_EACH = 4             /* edges of a thread that finds rows */
};

/* Counters, all zero at first: rows and columns by the code of their degree,
 * and rows whose degree has no code of its own (heavy). */
typedef struct dfgnn_degree_rows {
  uint32_t tickets[3], heavy;
  uint32_t rows[DFGNN_DEGREE_CODES];
  uint32_t column_ticket, columns[DFGNN_DEGREE_CODES];
} dfgnn_degree_rows;

/* The matrix and the workspace of an analysis.  high is the largest column of
 * each row, -1 if it has none; low is minus the smallest.  Both are NULL where
 * nobody asks for blocks. */
typedef struct dfgnn_analysis {
  const void *offsets;
  const int32_t *indices;
  int64_t rows, columns, edges, graphs;
  dfgnn_graph_counts *counts;
  dfgnn_degree_rows *degrees;
  int64_t *graph_ptr;
  uint64_t *heavy;
  int64_t heavy_capacity;
  int32_t *high, *low;
  uint32_t *column_degree;  /* edges of each column */
  int32_t windows, samples; /* of reuse and locality */
} dfgnn_analysis;

/* Diagonal blocks: tiles of rows are reduced, the tiles scanned, then each row
 * is decided. */
enum { DFGNN_BLOCK_ROWS = DFGNN_GRAPH_THREADS * DFGNN_EACH };
typedef struct dfgnn_block_tiles {
  dfgnn_graph_counts *counts;
  const int32_t *row_high, *row_low;
  int64_t rows;
  uint32_t *tickets; /* one of each kernel */
  int64_t count;
  int32_t *high, *low;   /* maxima of a tile; then of all before, all behind */
  int32_t *first, *last; /* rows of a tile where blocks begin; -1: none */
} dfgnn_block_tiles;

/* The row of each edge. */
typedef struct dfgnn_fill_rows {
  int32_t *rows;
  uint64_t *largest; /* becomes 0, if not NULL */
  const void *offsets;
  int64_t count, edges; /* rows, edges */
} dfgnn_fill_rows;

typedef struct dfgnn_mirror {
  void *to_offsets;
  int32_t *to_row;
  void *edge;
  uint64_t *other;
  const void *offsets;
  const int32_t *indices;
  int64_t rows, edges;
} dfgnn_mirror;

typedef struct dfgnn_list_offsets {
  void *offsets;
  const void *key;
  int64_t nodes, keys;
} dfgnn_list_offsets;

/* After a sort of edges by a node: the offsets of nodes, and to[e] =
 * from[order[e]], the other ends of edges. */
typedef struct dfgnn_finish_edges {
  void *offsets;
  int64_t nodes;
  const int32_t *key;
  int64_t edges;
  uint64_t *largest;
  int32_t *to;
  const int32_t *from;
  const void *order;
} dfgnn_finish_edges;

/* loops > 0: the dst of a self loop becomes the number of destinations, behind
 * all others, and loops of the first `loops` nodes follow the list. */
typedef struct dfgnn_read_edges {
  int32_t *src, *dst; /* dst: NULL if the list is taken as sorted */
  const void *dst_from, *src_from;
  int64_t edges, destinations, sources, loops;
  dfgnn_edge_counts *counts; /* NULL: the list is trusted */
  dfgnn_edge_fault *fault;   /* not NULL: takes an edge out of range, which
                              * becomes one between the first nodes */
  uint64_t list;
} dfgnn_read_edges;

/* The arrays of a matrix and of its transpose, as a TRANSPOSE view has them.
 */
typedef struct dfgnn_both_ways {
  int32_t *offsets, *indices, *order;
  int32_t *column_offsets, *column_rows, *column_edges;
} dfgnn_both_ways;

/* A short list, made a matrix and its transpose by one block in shared memory,
 * where an edge of each direction has an item of 4 bytes. */
enum {
  DFGNN_SHORT_THREADS = 1024,
  DFGNN_SHORT_MOST_EDGES = 1 << 16, /* numbers of 16 bits */
  DFGNN_SHORT_MOST_NODES = (1 << 16) - 1,
  DFGNN_SHORT_SHARED = 35 << 10 /* of a block beside the items, at most */
};
typedef struct dfgnn_short_list {
  const void *dst_from, *src_from;
  int32_t edges, destinations, sources;
  int32_t loops; /* as in dfgnn_read_edges; the source of a self loop becomes
                  * the number of sources */
  int32_t dst_bits, src_bits; /* of nodes and of the number of them */
  dfgnn_both_ways to;
  dfgnn_edge_counts *counts; /* written whole, if not NULL */
  dfgnn_edge_fault *fault;   /* as in dfgnn_read_edges */
  uint64_t list;
} dfgnn_short_list;

/* The keys of an order of rows: a row's first neighbour, or `most` for a row
 * without edges; without indices, a number that falls as the degree rises. */
typedef struct dfgnn_order_keys {
  uint32_t *key;
  const void *offsets;
  const int32_t *indices;
  int64_t rows;
  uint32_t most;
} dfgnn_order_keys;

/* The first edge of each row in each slice of `width` sources, and the ends of
 * rows: [slices + 1, rows]. */
typedef struct dfgnn_cut_rows {
  void *first;
  const void *offsets;
  const int32_t *indices;
  int64_t rows, width;
  int32_t slices;
} dfgnn_cut_rows;

/* heavy_before[i]: 1 if row i has several items. */
typedef struct dfgnn_count_items {
  int32_t *first_item, *heavy_before;
  const void *offsets;
  int64_t rows, size;
} dfgnn_count_items;

/* Items of a matrix of few rows, by one launch.  most_items, most_heavy: how
 * many places there are for them; what lies behind the last becomes -1. */
typedef struct dfgnn_pad_items {
  int32_t *row, *first_item, *heavy;
  int64_t *first_edge;
  const void *offsets;
  int64_t rows, edges, size, most_items, most_heavy;
} dfgnn_pad_items;

typedef struct dfgnn_fill_items {
  int32_t *row;
  int64_t *first_edge;
  const int32_t *first_item;
  int64_t items;
  const void *offsets;
  int64_t rows, edges, size;
} dfgnn_fill_items;

#endif
