/* factor.h - constants of the kernels: the kinds of factors of gathered rows */
#ifndef DFGNN_SPMM_CUDA_FACTOR_H
#define DFGNN_SPMM_CUDA_FACTOR_H

enum {
  SPMM_PLAIN = 0,   /* no factor */
  SPMM_FACTOR = 1,  /* a number an edge */
  SPMM_HEADS = 2,   /* a number an edge and head */
  SPMM_BALANCED = 4 /* a bit beside the kind: the kernel of balanced shares */
};

enum { MERGE_THREADS = 256 }; /* of a block that merges parts of a row */

#endif
