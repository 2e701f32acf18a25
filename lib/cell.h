/* cell.h - kinds of problems, within which measurements stand for each other
 *
 * A cell is the operator, the pass, the message, whether edges have features
 * and how many, the size of an element and, in attention, one, a few or many
 * heads.  What a
 * family of variants gains differs from cell to cell, so a model says for each
 * cell how widely a family was measured there. */
#ifndef DFGNN_LIB_CELL_H
#define DFGNN_LIB_CELL_H

#include "dfgnn.h"

enum { DFGNN_CELL_SIZE = 64 };

/* "gatv2 backward, edges<=16, few heads, 32 bits" */
void dfgnn__cell(char name[DFGNN_CELL_SIZE], const dfgnn_problem *problem);

/* The operator that is measured for one that runs the same kernels: SPMM_SUM
 * for SPMM_MEAN, REDUCE_MAX for REDUCE_MIN, REDUCE_PNA for REDUCE_VAR and
 * REDUCE_STD; any other for itself. */
dfgnn_op dfgnn__measured_op(dfgnn_op op);

#endif
