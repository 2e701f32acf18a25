/* dfgnn_graph.h - graphs on the host: files, generators, orders, partitions;
 * and the statistics that selection looks at
 *
 * Part of libdfgnn, as dfgnn.h is, whose conventions hold here. */
#include "dfgnn.h"

#ifndef DFGNN_GRAPH_H
#define DFGNN_GRAPH_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- signatures ---------------------------------------------------------- */

#define DFGNN_SIGNATURE_INIT DFGNN_INIT(dfgnn_signature)

DFGNN_API dfgnn_status dfgnn_graph_signature(dfgnn_signature *signature,
                                             const dfgnn_graph *graph);

/* ---- graphs of batches --------------------------------------------------- */

/* dfgnn_graph_create_coo of a list of at most 2^18 edges in a GPU's memory,
 * whose checks nobody waits for.  An edge out of range becomes one from source
 * 0 to destination 0, and what is computed with the graph is wrong.  Once the
 * device has found such an edge, the next call on the device that makes a graph
 * of a list or executes a plan fails with DFGNN_ERROR_DEVICE and names it.
 *
 * With self_loops the device alone knows how many edges are left: it is asked
 * by the first call that has to know (dfgnn_graph_csr, dfgnn_graph_signature, a
 * plan that is not of attention, or of edge features or weights).
 *
 * Lists with more edges or a graph_ptr are waited for, as are all while the
 * stream is capturing and with CUDA_LAUNCH_BLOCKING=1 in the environment; so
 * are lists on a CPU. */
DFGNN_API dfgnn_status dfgnn_graph_create_deferred(dfgnn_graph **graph,
                                                   dfgnn_context *ctx,
                                                   const dfgnn_coo *coo,
                                                   void *stream);

/* The stream of dfgnn_graph_destroy_on that stands for the one that work with
 * the graph was put on, which still exists; if there were several, the host
 * waits. */
#define DFGNN_STREAM_USED ((void *)-1)

/* ---- features of self loops ---------------------------------------------- */

/* Features of the edges of a CPU graph that was made of a list with self_loops:
 * filled [E, width], in the graph's order, from given [list's edges, width], in
 * the list's, both dense and of dtype.  A loop that was added gets the mean of
 * the other edges of its row, or with mean = 0 their sum, made in double, and 0
 * where the row has no others; those that the list had count nowhere.  Other
 * backends: DFGNN_ERROR_UNSUPPORTED. */
DFGNN_API dfgnn_status dfgnn_graph_fill_loops(const dfgnn_graph *graph,
                                              dfgnn_dtype dtype, int64_t width,
                                              int mean, const void *given,
                                              void *filled);

/* Its gradient: grad_given [list's edges, width] from grad_filled [E, width];
 * loops of the list, which were left out, get 0. */
DFGNN_API dfgnn_status dfgnn_graph_fill_loops_backward(const dfgnn_graph *graph,
                                                       dfgnn_dtype dtype,
                                                       int64_t width, int mean,
                                                       const void *grad_filled,
                                                       void *grad_given);

/* ---- graph files and generators ----------------------------------------- */

/* Reads a graph into host arrays.  The format is found from name and content:
 * Matrix Market coordinate files (.mtx; pattern, real, double, integer or
 * complex values, which are skipped; general, symmetric, hermitian or
 * skew-symmetric), SciPy CSR (.npz, optional graph_ptr), undirected graphs of
 * METIS (.graph), SNAP and OGB edge lists (.txt, .csv, .tsv; '#' and '%'
 * comments; names in the first line of a .csv, and columns beyond two, are
 * skipped), each also with .gz except .npz.  Edges "a b" of a list mean that b
 * attends to a (source, destination).  Duplicate edges are kept.  path must be
 * a regular file: pipes and devices are DFGNN_ERROR_IO.  Free it with
 * dfgnn_csr_free. */
DFGNN_API dfgnn_status dfgnn_csr_read(dfgnn_csr **csr, const char *path);

/* Writes host arrays, validated as by dfgnn_csr_order; the format is found from
 * the name (.mtx, .npz, .graph, .txt, .csv, .tsv; .gz where it is read).  A
 * file is replaced whole or not at all. */
DFGNN_API dfgnn_status dfgnn_csr_write(const dfgnn_csr *csr, const char *path);

/* Makes a graph from a specification such as "sbm-pattern:batch=256,seed=1",
 * "powerlaw:nodes=10000,edges=100000,max-degree=900,columns=local" or
 * "preset=arxiv".  dfgnn-graph(1) lists the kinds and their settings. */
DFGNN_API dfgnn_status dfgnn_csr_generate(dfgnn_csr **csr, const char *spec);

DFGNN_API void dfgnn_csr_free(dfgnn_csr *csr);

/* ---- reordering ---------------------------------------------------------- */

/* Ways to number nodes anew, so that rows that are gathered together lie
 * together.
 *   DEGREE     by falling degree, in and out together
 *   RCM        reverse Cuthill-McKee: neighbours get near numbers
 *   METIS      parts with few edges between them, by METIS, if the library was
 *              built with it
 *   COMMUNITY  nested communities by modularity   Arai et al. 2016
 * All but DEGREE look at edges in both directions; for a rectangular matrix
 * they order the bipartite graph of rows and columns. */
typedef enum dfgnn_order {
  DFGNN_ORDER_DEGREE = 0,
  DFGNN_ORDER_RCM = 1,
  DFGNN_ORDER_METIS = 2,
  DFGNN_ORDER_COMMUNITY = 3,
  DFGNN_ORDER_COUNT
} dfgnn_order;

/* Orders the nodes of a matrix in host memory: rows[p], columns[p] become the
 * old number of the row [N] and the column [M] that come to position p.  A
 * square matrix has one order for both, and columns may be NULL; nodes of a
 * batch stay within their graphs.  The same matrix gives the same order
 * everywhere (METIS: with the same C library).  DFGNN_ERROR_UNSUPPORTED without
 * METIS, or if there are 2^31 nodes or more (METIS: neighbours). */
DFGNN_API dfgnn_status dfgnn_csr_order(int64_t *rows, int64_t *columns,
                                       const dfgnn_csr *csr, dfgnn_order order);

/* Makes the matrix in which row p is row rows[p] of csr, and column p its
 * column columns[p]; NULL: as they are.  The edges of a row keep their order.
 * edges (may be NULL) [E] becomes the old number of each edge.  graph_ptr is
 * kept if nodes stay within their graphs.  Free it with dfgnn_csr_free. */
DFGNN_API dfgnn_status dfgnn_csr_permute(dfgnn_csr **permuted, int64_t *edges,
                                         const dfgnn_csr *csr,
                                         const int64_t *rows,
                                         const int64_t *columns);

/* ---- partitions ---------------------------------------------------------- */

/* Ways to divide the nodes of a square matrix among the ranks of a job, so that
 * each has about the same work: the edges of its rows, and a little for each
 * row.
 *   METIS  parts with few edges between them, by METIS, if the library was
 *          built with it; beyond 2^20 edges, nodes are grouped first
 *          (Meyerhenke, Sanders & Schulz 2014), so that the memory stays that
 *          of the graph
 *   RANGE  rows in the order they have: for graphs that are in a good one */
typedef enum dfgnn_partitioning {
  DFGNN_PARTITION_METIS = 0,
  DFGNN_PARTITION_RANGE = 1,
  DFGNN_PARTITION_COUNT
} dfgnn_partitioning;

#define DFGNN_PARTS_MAX 4096

/* owner[i] [N] becomes the part, 0 .. parts - 1, of node i of a matrix in host
 * memory.  The same matrix gives the same parts everywhere.
 * DFGNN_ERROR_UNSUPPORTED without METIS, or if the matrix is not square or has
 * 2^31 rows. */
DFGNN_API dfgnn_status dfgnn_csr_partition(int32_t *owner, const dfgnn_csr *csr,
                                           int parts, dfgnn_partitioning how);

/* A rank's share of a partitioned graph.  Its rows are its own nodes; a
 * column below `nodes` is one of them, the others are its halo: nodes of other
 * ranks that its rows read.  Own nodes rise by their number in the whole graph,
 * the halo lies by owner and rises there.  Edges of a row keep their order. */
typedef struct dfgnn_part {
  size_t struct_size;
  int parts, rank;
  int64_t total_nodes, total_edges; /* of the whole graph */
  int64_t nodes, halo, edges;
  int64_t cut;      /* edges that read the halo */
  int64_t boundary; /* rows that have such edges */
  int64_t sends;    /* rows that other ranks read, counted for each rank */
  const int64_t *node, *halo_node; /* [nodes], [halo]: number in the whole */
  const int64_t *receive;    /* [parts] nodes of the halo by owner */
  const int64_t *send;       /* [parts] rows to send to each rank */
  const int64_t *send_row;   /* [sends] these rows, in the other halo's order */
  const int64_t *first_edge; /* [nodes] number of a row's first edge in the
                              * whole */
  const int64_t *offset;     /* [nodes + 1] */
  const int32_t *index;      /* [edges] column */
  uint64_t fingerprint; /* of the whole graph, as dfgnn_signature has it */
  uint64_t digest;      /* of graph and owners: the same in every rank */
} dfgnn_part;

/* The part of a rank; owner [N] says the rank of each node.  Free it with
 * dfgnn_part_free. */
DFGNN_API dfgnn_status dfgnn_part_create(dfgnn_part **part,
                                         const dfgnn_csr *csr,
                                         const int32_t *owner, int parts,
                                         int rank);
/* Writes a part as .npz, replaced whole or not: arrays part (version of the
 * format, parts, rank, total_nodes, total_edges, fingerprint, digest), node,
 * halo, receive, send, send_row, first_edge, offset and index. */
DFGNN_API dfgnn_status dfgnn_part_write(const dfgnn_part *part,
                                        const char *path);
DFGNN_API void dfgnn_part_free(dfgnn_part *part);

#ifdef __cplusplus
}
#endif
#endif
