/* tiles.h - the TILES view: a matrix as windows of rows by chunks of columns
 *
 * A window is a run of at most R rows with a list of columns, in chunks of 32,
 * that holds the columns of all its edges; bit c of mask[chunk * R + r] says
 * that row r of the window has an edge to column[chunk * 32 + c].  The modes:
 *   window  rows are cut every R rows; the columns are those of the window's
 *           edges, each once, ascending
 *   dense   (square matrices) a block is a least range of nodes that no edge
 *           leaves; a block without edges is a single node.  A block of n >
 *           R / 2 nodes is cut into ceil(n / R) windows of its own, evenly, at
 *           multiples of 16 rows from its first.  Smaller blocks share a window
 *           if their first nodes divided by R / 2 give the same integer: it has
 *           below R rows.  The columns of a window are all nodes of its blocks:
 *           consecutive.
 * A window without edges has no columns.  The kernels walk items, one a
 * window. */
#ifndef DFGNN_KERNELS_TILES_H
#define DFGNN_KERNELS_TILES_H

#include "kernels/common/tile.h"
#include "kernels/common/tiles_params.h"
#include "kernels/common/variant.h"

/* request.parameter */
static inline int64_t dfgnn__tiles_parameter(int rows, int dense) {
  return rows + ((int64_t)(dense != 0) << 10);
}
static inline int dfgnn__tiles_rows(int64_t parameter) {
  return (int)(parameter & 0x3ff);
}
static inline int dfgnn__tiles_dense(int64_t parameter) {
  return (int)(parameter >> 10 & 1);
}

/* Builds view->request in host memory; its arrays are the caller's to free()
 * (also if it fails). */
dfgnn_status dfgnn__tiles_build(dfgnn_view *view, const dfgnn_matrix *matrix);

/* Refuses, for both builders, a parameter out of range, and in dense mode a
 * rectangular matrix. */
dfgnn_status dfgnn__tiles_check(const dfgnn_view_request *request,
                                const dfgnn_matrix *matrix);
/* Refuses chunks whose positions in columns and masks exceed 32 bits. */
dfgnn_status dfgnn__tiles_check_chunks(int64_t chunks, int rows);

#endif
