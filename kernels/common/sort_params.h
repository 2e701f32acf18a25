/* sort_params.h - parameters of sorts and scans, for host and device code */
#ifndef DFGNN_KERNELS_SORT_PARAMS_H
#define DFGNN_KERNELS_SORT_PARAMS_H

#include <stdint.h>

enum {
  DFGNN_SORT_THREADS = 512,
  DFGNN_SORT_ITEMS = 16,     /* keys of a thread; numbers have 32 bits */
  DFGNN_SORT_ITEMS_WIDE = 8, /* keys of a thread; numbers have 64 bits */
  /* the most keys that one block sorts */
  DFGNN_SORT_SMALL = DFGNN_SORT_THREADS * DFGNN_SORT_ITEMS,
  DFGNN_SORT_SMALL_BITS = 8,
  DFGNN_SORT_MOST_PASSES = 4,
  DFGNN_HISTOGRAM_THREADS = 256,
  DFGNN_HISTOGRAM_ITEMS = 16,
  DFGNN_SCAN_THREADS = 256,
  DFGNN_SCAN_ITEMS = 16,
  DFGNN_SCAN_TILE = DFGNN_SCAN_THREADS * DFGNN_SCAN_ITEMS
};

/* The digits of all passes, counted in one. */
typedef struct dfgnn_sort_histogram {
  const uint32_t *key;
  int64_t count;
  int32_t passes, digit; /* bits of a pass */
  void *histogram;       /* [passes][radix], 0 before */
} dfgnn_sort_histogram;

/* One pass: moves keys, and the numbers that go with them, into the order of
 * one digit. */
typedef struct dfgnn_sort_pass {
  const uint32_t *key;
  const void *number; /* NULL: the number of a key is its position */
  uint32_t *to_key;   /* NULL: nobody asks for them */
  void *to_number;
  int64_t count;
  int32_t shift;
  uint32_t mask;
  uint32_t *ticket;      /* 0 before */
  const void *histogram; /* [radix] of this digit */
  void *state;           /* [tiles][radix], 0 before */
} dfgnn_sort_pass;

typedef struct dfgnn_sort_small {
  const uint32_t *key;
  uint32_t *to_key; /* may be NULL */
  int32_t *to_number;
  int32_t count, bits;
} dfgnn_sort_small;

enum { DFGNN_SCAN_SUM, DFGNN_SCAN_MAX };
/* An inclusive scan; a single block does not look at ticket and state. */
typedef struct dfgnn_scan {
  const int32_t *from;
  int32_t *to;
  int64_t count;
  uint32_t *ticket; /* 0 before */
  uint64_t *state;  /* [tiles], 0 before */
} dfgnn_scan;

#endif
