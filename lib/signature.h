/* signature.h - the numbers of a signature, and how every backend computes them
 *
 * The definitions here are shared by the CPU (lib/signature.c) and the CUDA
 * backend; both must give the same numbers.
 */
/* clang-format off
 *
 *   p50, p90, p99  the degree at index floor(p * (N - 1)) of the sorted degrees
 *   histogram      bin 0: degree 0; bin b: 2^(b-1) <= degree < 2^b; the last
 *                  bin takes all above
 *   p50, p99 of sources
 *                  the same for the M sources, from 2048 on rounded down to a
 *                  32nd of an octave (dfgnn__first_of_code)
 *   reuse          sampled on the windows w = k * W / S, k = 0 .. S - 1, of the
 *                  W = ceil(N / 16) windows of 16 rows, S = min(W, 64), by the
 *                  first 1024 edges of each; the sum of distinct columns over
 *                  the sum of edges (1 if there are no edges)
 *   locality       sampled on the rows i = k * N / S, k = 0 .. S - 1, S =
 *                  min(N, 1024), by the first and the middle edge (begin +
 *                  degree / 2) of each non-empty row; the share of edges with
 *                  |i * M / N - j| <= 1024 (1 if there are no edges)
 *   graphs         the caller's number with a graph_ptr; else, for a square
 *                  matrix, the number of diagonal blocks: a block ends before
 *                  row i where no row before i has a column >= i and no row
 *                  from i on a column < i; a run of isolated rows is one block.
 *                  A rectangular matrix has one
 *   density        edges over the sum of squared block sizes (rectangular: N M)
 *   fingerprint    see kernels/common/fingerprint.h
 *
 * clang-format on */
#ifndef DFGNN_LIB_SIGNATURE_H
#define DFGNN_LIB_SIGNATURE_H

#include "kernels/common/fingerprint.h"
#include "kernels/common/variant.h"

/* Standard deviation over mean of the degrees of `nodes` nodes, from the sum of
 * their squares. */
double dfgnn__variation(uint64_t squares, int64_t edges, int64_t nodes);

/* Fills the numbers of the sources; degree[M]: the edges of each source. */
dfgnn_status dfgnn__source_statistics(dfgnn_signature *signature,
                                      const uint32_t *degree);

/* Refuses numbers that do not cut the nodes of a square matrix into graphs; its
 * edges are not looked at. */
dfgnn_status dfgnn__check_graph_ptr(const dfgnn_matrix *matrix, int64_t graphs,
                                    const int64_t *graph_ptr);

/* Refuses offsets, which the host reads, that do not rise from 0 to the number
 * of edges. */
dfgnn_status dfgnn__check_offsets(const dfgnn_matrix *matrix);
/* analyze() of the CPU backend: see lib/backend.h. */
dfgnn_status dfgnn__analyze(dfgnn_matrix *matrix, dfgnn_signature *signature,
                            int64_t graphs, const int64_t *graph_ptr,
                            int threads);

#endif
