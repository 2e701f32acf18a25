/* params.h - what the kernels of edge programs take, for C and CUDA
 *
 * Beside these a kernel takes the addresses of all arrays, by the numbers that
 * generate.c has given them. */
#ifndef DFGNN_PROGRAM_CUDA_PARAMS_H
#define DFGNN_PROGRAM_CUDA_PARAMS_H

#include <stdint.h>

typedef struct program_walk {
  const void *offsets;    /* of the rows */
  const void *degrees[6]; /* offsets of the nodes of each place */
  const int32_t *indices;
  const int32_t *sources;   /* [E]: of each of the graph's edges */
  const int32_t *relations; /* [E]: likewise; NULL: there are none */
  const void *edge_ids;     /* of the graph; NULL: edges are in its order */
  int64_t light_rows;   /* that groups of lanes take, unless they are long */
  const int32_t *order; /* of light rows; NULL: as they are numbered */
  int64_t counts[6];    /* of each place */
  const uint64_t *seed; /* in device memory; NULL: seed_value */
  uint64_t seed_value;
  void *partial;      /* [slots, totals], of the type of sums */
  int64_t first_slot; /* of the launch's first warp */
  /* Rows of more than long_row edges have a block each, those of more than
   * `piece` edges one for each piece, where hubs are cut.  A list that is NULL
   * is that of all rows. */
  int64_t long_row, piece;
  const int32_t *long_rows, *hubs;
  int64_t long_count, hub_count;
  int64_t long_blocks; /* which take them in turn */
  int64_t hub_blocks;  /* of each hub, likewise */
  void *states;        /* of pieces, of the type of sums */
  int wide;            /* offsets and edge_ids are of 64 bits */
} program_walk;

typedef struct program_totals {
  const void *partial;
  void *to;
  int64_t slots, totals;
} program_totals;

#endif
