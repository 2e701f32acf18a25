/* loads.h - the loads of a row of features by lanes of a GPU
 *
 * Lanes load up to 16 bytes at a time, as many features as divide the width
 * (kernels/attention/cuda/plans.h): 24 floats are 6 loads, 17 are 17. Attention
 * gives lanes to each head; sums see the heads as one row. */
#ifndef DFGNN_LIB_LOADS_H
#define DFGNN_LIB_LOADS_H

#include "kernels/common/cuda_host.h"
#include "kernels/common/variant.h"

static inline int64_t dfgnn__loads_heads(const dfgnn_problem *p) {
  return DFGNN_OPS_ATTENTION >> p->op & 1 ? p->heads : 1;
}

/* The loads of one head, or of the whole row of a sum. */
static inline int64_t dfgnn__loads(const dfgnn_problem *p) {
  const int64_t features = p->heads * p->dim / dfgnn__loads_heads(p);
  int64_t width = dfgnn__wide_vector(p->dtype);
  while (features % width)
    width /= 2;
  return features / width;
}

#endif
