/* schedule.h - the rows, or pieces of rows, that a launch walks over */
#ifndef DFGNN_ATTENTION_CUDA_SCHEDULE_H
#define DFGNN_ATTENTION_CUDA_SCHEDULE_H

#include <stdint.h>

/* Units are rows, items of split rows (DFGNN_VIEW_WORK_ITEMS), or rows in a
 * slice of the sources (DFGNN_VIEW_SLICES), slice by slice.  Where there are
 * heavy rows, each has a block of its own, before those of the others. */
typedef struct row_schedule {
  int units, rows;
  int offsets64;
  const void *offsets;
  const int *indices;
  const int *order;          /* rows in the order of a view; NULL: natural */
  const int *item_row;       /* the row of an item; NULL: units are rows */
  const int64_t *item_first; /* its first edge */
  const int *row_item;       /* [rows + 1]: the first item of a row */
  int slices;                /* 0: units are no slices */
  const void *slice_first;   /* the array of their view */
  /* The most edges of an item; the number of items, or of rows in slices,
   * beyond one for each row. */
  int item_edges, extra_items;
  const int
      *heavy; /* the rows of more than item_edges edges that blocks take */
  int heavy_rows;
} row_schedule;

/* How the units of a launch are shared out: a block starts at blockIdx.x *
 * first_step and takes the units below that plus span, in rounds round_step
 * apart; a row takes `group` lanes of a warp. */
typedef struct block_share {
  int first_step, span, round_step, group;
} block_share;

#endif
