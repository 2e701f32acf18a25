/* schedule.h - the rows, or pieces of rows, that a launch walks over */
#ifndef DFGNN_ATTENTION_CUDA_SCHEDULE_H
#define DFGNN_ATTENTION_CUDA_SCHEDULE_H

#include <stdint.h>

/* Units are rows, or items of split rows (DFGNN_VIEW_WORK_ITEMS). */
typedef struct row_schedule {
  int units;
  int offsets64;
  const void *offsets;
  const int *indices;
  const int *order;    /* rows by degree; NULL: as they are */
  const int *item_row; /* NULL: units are rows */
  const int64_t *item_first;
  const int *row_item;
  int item_edges, extra_items;
} row_schedule;

#endif
