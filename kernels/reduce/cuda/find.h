/* find.h - constants that tell reduction kernels what to find or gather */
#ifndef DFGNN_REDUCE_CUDA_FIND_H
#define DFGNN_REDUCE_CUDA_FIND_H

/* The results that a forward kernel finds, in one pass. */
enum {
  REDUCE_MIN = 1,
  REDUCE_MAX = 2,
  REDUCE_MOMENTS = 4, /* mean and variance */
  REDUCE_ARG = 8,     /* which edge the extremes came from */
  REDUCE_ALL = REDUCE_MIN | REDUCE_MAX | REDUCE_MOMENTS
};

/* The gradients that a backward kernel gathers. */
enum {
  REDUCE_PICK,   /* the gradient where an edge was the extreme */
  REDUCE_SPREAD, /* coefficient (x - mean), of var and std */
  REDUCE_BOTH    /* all of PNA */
};

#endif
