/* operators.h - what the score of an attention reads, for code of the host and
 * of a GPU
 *
 *   operator  score of edge (i, j)
 *   GT        scale <q_i, k_j>
 *   AGNN      beta <q_i, v_j> / (|q_i| |v_j|)
 *   GAT       leaky(score_dst_i + score_src_j)
 *   GATV2     <att, leaky(q_i + v_j)>
 *
 * A new operator says it here, and in the files that know its formula (HACKING,
 * "Add an operator"). */
#ifndef DFGNN_ATTENTION_OPERATORS_H
#define DFGNN_ATTENTION_OPERATORS_H

#include "dfgnn_types.h"

#define DFGNN_OP_BIT(name) (1u << DFGNN_OP_##name)
#define DFGNN_AMONG(ops, op) (((ops) >> (op)&1) != 0)

/* score_dst and score_src: a number of each end, in place of rows. */
#define DFGNN_OPS_SCALARS DFGNN_OP_BIT(GAT)
/* query: a row of the destination. */
#define DFGNN_OPS_QUERY                                                        \
  (DFGNN_OP_BIT(GT) | DFGNN_OP_BIT(AGNN) | DFGNN_OP_BIT(GATV2))
/* key: a row of the source beside its value. */
#define DFGNN_OPS_KEY DFGNN_OP_BIT(GT)
/* beta, and the norms of both rows. */
#define DFGNN_OPS_NORMS DFGNN_OP_BIT(AGNN)
/* att: a vector of the head, whose gradient all rows add to as to beta's. */
#define DFGNN_OPS_ATT DFGNN_OP_BIT(GATV2)

/* All of them: a score is made of numbers or rows of both ends. */
#define DFGNN_OPS_ATTENTION (DFGNN_OPS_SCALARS | DFGNN_OPS_QUERY)
/* Operators whose scores the CPU's dense blocks and loops over all heads of a
 * row compute by code of their own, besides score.cuh and attention.h.  A new
 * operator joins when they have it. */
#define DFGNN_OPS_BY_HAND                                                      \
  (DFGNN_OP_BIT(GT) | DFGNN_OP_BIT(AGNN) | DFGNN_OP_BIT(GAT) |                 \
   DFGNN_OP_BIT(GATV2))

#define DFGNN_HAS_SCALARS(op) DFGNN_AMONG(DFGNN_OPS_SCALARS, op)
#define DFGNN_HAS_QUERY(op) DFGNN_AMONG(DFGNN_OPS_QUERY, op)
#define DFGNN_HAS_KEY(op) DFGNN_AMONG(DFGNN_OPS_KEY, op)
#define DFGNN_HAS_NORMS(op) DFGNN_AMONG(DFGNN_OPS_NORMS, op)
#define DFGNN_HAS_ATT(op) DFGNN_AMONG(DFGNN_OPS_ATT, op)
#define DFGNN_HAS_PARAMETERS(op) (DFGNN_HAS_NORMS(op) || DFGNN_HAS_ATT(op))

#endif
