/* body.h - what a compiled body looks at: the edges of a block
 *
 * The file goes into the text of bodies as it is, so that it includes nothing.
 */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_BODY_H
#define DFGNN_KERNELS_PROGRAM_CPU_BODY_H

enum { BODY_NODES = 224 }; /* most that a function looks at */

typedef struct body_block {
  void *const *at;    /* the first number of each node of the function */
  const int64_t *row; /* of each edge, in the block */
  const int64_t
      *index[8];         /* of each edge, by a dfgnn_place: its ends; itself */
  const int64_t *starts; /* of each row, and the last one's end */
  int64_t rows, begin, count;
  int64_t edges; /* that a block has room for */
  void *scratch;
} body_block;

typedef void body_function(const body_block *b);

/* The edges of a row that the block has. */
static inline int64_t body_begin(const body_block *b, int64_t row) {
  return b->starts[row] < b->begin ? 0 : b->starts[row] - b->begin;
}
static inline int64_t body_end(const body_block *b, int64_t row) {
  const int64_t end = b->starts[row + 1] - b->begin;
  return end < b->count ? end : b->count;
}

/* Asks for the bytes that an edge further on will read. */
static inline __attribute__((always_inline)) void body_prefetch(const void *at,
                                                                int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch((const char *)at + i);
}

#endif
