/* factor.h - what a gathered row is multiplied by: a constant of the kernels */
#ifndef DFGNN_SPMM_CUDA_FACTOR_H
#define DFGNN_SPMM_CUDA_FACTOR_H

enum {
  SPMM_PLAIN = 0,   /* nothing */
  SPMM_FACTOR = 1,  /* a number an edge */
  SPMM_HEADS = 2,   /* a number an edge and head */
  SPMM_BALANCED = 4 /* added to those: the kernel of balanced shares */
};

enum { MERGE_THREADS = 256 }; /* of a block that merges parts of a row */

#endif
