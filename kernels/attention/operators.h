/* operators.h - what the score of an attention reads, for code of the host and
 * of a GPU: a new operator says it here, and in the files that know its formula
 *
 *   operator  score of edge (i, j)
 *   GT        scale <q_i, k_j>
 *   AGNN      beta <q_i, v_j> / (|q_i| |v_j|)
 *   GAT       leaky(score_dst_i + score_src_j)
 *   GATV2     <att, leaky(q_i + v_j)>
 */
#ifndef DFGNN_ATTENTION_OPERATORS_H
#define DFGNN_ATTENTION_OPERATORS_H

#include "dfgnn_types.h"

/* query: a row of the destination. */
#define DFGNN_HAS_QUERY(op) ((op) != DFGNN_OP_GAT)
/* key: a row of the source beside its value. */
#define DFGNN_HAS_KEY(op) ((op) == DFGNN_OP_GT)
/* score_dst and score_src: a number of each end, in place of rows. */
#define DFGNN_HAS_SCALARS(op) ((op) == DFGNN_OP_GAT)
/* beta, and the norms of both rows. */
#define DFGNN_HAS_NORMS(op) ((op) == DFGNN_OP_AGNN)
/* att: a vector of the head, whose gradient all rows add to as to beta's. */
#define DFGNN_HAS_ATT(op) ((op) == DFGNN_OP_GATV2)
#define DFGNN_HAS_PARAMETERS(op) (DFGNN_HAS_NORMS(op) || DFGNN_HAS_ATT(op))

#endif
