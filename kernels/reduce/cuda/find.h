/* find.h - what kernels of reductions find and gather: constants of theirs */
#ifndef DFGNN_REDUCE_CUDA_FIND_H
#define DFGNN_REDUCE_CUDA_FIND_H

/* What a forward kernel finds, in one pass. */
enum {
  REDUCE_MIN = 1,
  REDUCE_MAX = 2,
  REDUCE_MOMENTS = 4, /* mean and variance */
  REDUCE_ARG = 8,     /* which edge the extremes came from */
  REDUCE_ALL = REDUCE_MIN | REDUCE_MAX | REDUCE_MOMENTS
};

/* What a backward kernel gathers. */
enum {
  REDUCE_PICK,   /* the gradient where an edge was the extreme */
  REDUCE_SPREAD, /* a (x - mean), of var and std */
  REDUCE_BOTH    /* all of PNA */
};

#endif
