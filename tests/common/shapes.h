/* shapes.h - small graphs of every shape that a kernel has to serve */
#ifndef DFGNN_TESTS_SHAPES_H
#define DFGNN_TESTS_SHAPES_H

#include "dfgnn.h"

typedef struct shape {
  const char *name;
  dfgnn_csr csr; /* 32-bit offsets */
} shape;

#define SHAPES 9
/* The number of one more shape: a batch, the edges of each row in the order of
 * their columns. */
#define SHAPE_IN_ORDER SHAPES
/* And of long rows, of which some have their edges in that order. */
#define SHAPE_OF_LONG_ROWS (SHAPES + 1)

/* The i-th shape, of memory of the test; the same for a seed. */
shape shape_make(int i, unsigned seed);
/* Gives the shape 64-bit offsets and indices. */
void shape_widen(shape *s);

/* The seed of DFGNN_TEST_SEED, else a fixed one; it is printed once. */
unsigned shape_seed(void);

#endif
