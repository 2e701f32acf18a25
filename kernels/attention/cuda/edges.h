/* edges.h - arguments of the kernels of attention with edge features
 *
 * An edge has FE features e and heads a matrix W [H*D,FE] that they share; a
 * bias of W is one more feature that is 1 on every edge, so the kernels work
 * with F = FE + ONE features.  Keys and values take W e, yet no W e is made:
 *
 *   score  scale (<q, k> + <W^T q, e>)    W^T q once a row and head
 *   out    sum alpha v + W sum alpha e    W z once a row and head
 *
 * Backward is three kernels.  Rows write the gradients of queries and of edges,
 * and (P, dS) of each edge and head; columns gather q and dO with them; the
 * gradient of W sums outer products of q and sum dS e, dO and sum P e.
 *
 * Units of a walk are rows, or items of split rows, each with products with W
 * of its own: the results of an item go to `partial`, W z included, and a merge
 * adds them up. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_H
#define DFGNN_ATTENTION_CUDA_EDGES_H

#include <stdint.h>

#include "dfgnn_types.h"
#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/attention/cuda/schedule.h"

/* The operands that take W e. */
enum { EDGES_KEYS = 1, EDGES_VALUES = 2 };

/* How the lanes of an edge get W e. */
enum {
  EDGES_NONE = 0,    /* nothing: GAT has a scalar in its place */
  EDGES_ROWS = 1,    /* W e, made in the lanes or given as [E,H,D] */
  EDGES_PRODUCTS = 2 /* e alone, for products of whole rows with W */
};

/* The constants of the kernels.  mode: bits of enum edge_mode.  edge_dim: -1 if
 * edges come as [E,H,D], 0 if they have no features.  warps: of a block, and
 * rows that it takes at a time; blocks: of a multiprocessor.  staged: operands
 * of products with W are copied to shared memory.  slice: what a block adds up
 * of the gradient of W, units of 16 features of slice_heads heads, or features
 * of edges. */
#define EDGE_CONSTANTS(X)                                                      \
  X(op)                                                                        \
  X(type)                                                                      \
  X(heads)                                                                     \
  X(dim)                                                                       \
  X(edge_dim)                                                                  \
  X(ones)                                                                      \
  X(use)                                                                       \
  X(term)                                                                      \
  X(mode)                                                                      \
  X(vector)                                                                    \
  X(packed)                                                                    \
  X(lanes)                                                                     \
  X(head_lanes)                                                                \
  X(states)                                                                    \
  X(unroll)                                                                    \
  X(warps)                                                                     \
  X(blocks)                                                                    \
  X(staged)                                                                    \
  X(slice)                                                                     \
  X(slice_heads)

typedef struct edges_params {
  row_schedule schedule;
  tensor_view query, key, value, out;
  tensor_view grad_out, grad_query, grad_key, grad_value;
  const void *attr;              /* [E,FE] */
  const void *weight, *constant; /* [H*D,FE]; [H*D], the bias of W */
  void *grad_attr;               /* [E,FE] or NULL */
  void *carry;      /* [E,FE] sums of grad_attr over earlier tiles of heads */
  const void *bias; /* [E,H]: EDGE_BIAS */
  void *weights;    /* [E,H], in log2 units: EDGE_WEIGHTS */
  void *grad_bias;  /* [E,H] or NULL */
  void *pairs;      /* [E,H,2]: P after dropout, dS */
  const void *edge_of;  /* columns: numbers of edges, as wide as offsets */
  void *lse;            /* [N,H]; forward: or NULL */
  const void *grad_lse; /* [N,H], subtracted from delta; or NULL */
  void *totals;         /* [blocks,H*D,F]: parts of the gradient of W */
  /* Partial results of items (EDGE_ITEMS).  partial: [slots,tensors,H,D];
   * partial_state: (m, l) [slots,H,2] of forward, or the gradients of GAT's
   * scores [slots,H] of backward. */
  void *partial, *partial_state;
  dropout_params dropout;
  double scale, slope;

  /* For the kernels that compute W e of an edge. */
  const void *att;                   /* GATv2 [H,D] */
  const void *score_dst, *score_src; /* GAT [N,H], [M,H] */
  const void *score_edge;            /* GAT [E,H] */
  void *grad_score_dst, *grad_score_src, *grad_score_edge;
} edges_params;

/* Arguments of the kernels that add up the parts of the gradient of W.  GATv2
 * has one more column, the gradient of att. */
typedef struct edges_total_params {
  const void *totals;
  void *weight, *constant, *att; /* gradients, each may be NULL */
  int64_t features;              /* H*D */
  int32_t blocks, width, ones,
      atts; /* width: FE; ones: ONE; atts: 1 of GATv2 */
} edges_total_params;

#endif
