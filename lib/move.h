/* move.h - rows of a tensor from one order into another, on the host */
#ifndef DFGNN_LIB_MOVE_H
#define DFGNN_LIB_MOVE_H

#include "kernels/common/move.h"

/* Rewrites a move to use as few and as wide elements as strides and alignment
 * allow: a row that lies together becomes one head. */
void dfgnn__move_widen(dfgnn_move *move);

/* Moves host memory. */
void dfgnn__move_host(const dfgnn_move *move, int threads);

#endif
