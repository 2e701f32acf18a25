/* signature.h - what selection looks at, and how it is computed everywhere
 * alike
 *
 * The definitions here are shared by the CPU (lib/signature.c) and the CUDA
 * backend; both must give the same numbers.
 */
/* clang-format off
 *
 *   p50, p90, p99   the degree at index floor(p * (N - 1)) of the sorted degrees
 *   histogram       bin 0: degree 0; bin b: 2^(b-1) <= degree < 2^b; the last bin
 *                   takes all above
 *   p50, p99 of sources
 *                   the same of the M sources, from 2048 on rounded down to a
 *                   32nd of an octave (dfgnn__first_of_code)
 *   reuse           windows w = k * W / S, k = 0 .. S - 1, of W = ceil(N / 16)
 *                   windows of 16 rows, S = min(W, 64); of each the first 1024
 *                   edges; sum of distinct columns over sum of edges (1 if none)
 *   locality        rows i = k * N / S, k = 0 .. S - 1, S = min(N, 1024); of each
 *                   non-empty one its first and its middle edge (begin + degree
 *                   / 2); share with |i * M / N - j| <= 1024 (1 if none)
 *   graphs          of graph_ptr, else for a square matrix the number of diagonal
 *                   blocks: a block ends before row i where no edge of a row
 *                   below i reaches a column >= i and none of a row >= i reaches a
 *                   column < i; runs of isolated rows count one block each. A
 *                   rectangular matrix has one
 *   density         edges over the sum of squared block sizes (rectangular: N M)
 *   fingerprint     below
 *
 * clang-format on */
#ifndef DFGNN_LIB_SIGNATURE_H
#define DFGNN_LIB_SIGNATURE_H

#include "kernels/common/fingerprint.h"
#include "kernels/common/variant.h"

/* Standard deviation over mean of the degrees of `nodes` nodes, from the sum of
 * their squares. */
double dfgnn__variation(uint64_t squares, int64_t edges, int64_t nodes);

/* degree[M]: how many edges each source has. */
dfgnn_status dfgnn__source_statistics(dfgnn_signature *signature,
                                      const uint32_t *degree);

/* Refuses numbers that do not cut the nodes of a square matrix into graphs; its
 * edges are not looked at. */
dfgnn_status dfgnn__check_graph_ptr(const dfgnn_matrix *matrix, int64_t graphs,
                                    const int64_t *graph_ptr);

/* analyze() of the CPU backend: see lib/backend.h. */
dfgnn_status dfgnn__analyze(dfgnn_matrix *matrix, dfgnn_signature *signature,
                            int64_t graphs, const int64_t *graph_ptr,
                            int threads);

#endif
