/* near.h - the nearest points found so far, nearest first
 *
 * If two points are equally near, the one with the lower number comes first, so
 * that the list does not depend on the order in which points were added. */
#ifndef DFGNN_IO_NEAR_H
#define DFGNN_IO_NEAR_H

#include <stdint.h>

typedef struct dfgnn__near {
  int64_t count, wanted;
  int64_t *distance; /* squared, ascending */
  int32_t *point;
} dfgnn__near;

static inline void dfgnn__near_add(dfgnn__near *near, int64_t distance,
                                   int32_t point) {
  int64_t k = near->count;
  if (k == near->wanted) {
    if (distance > near->distance[k - 1] ||
        (distance == near->distance[k - 1] && point > near->point[k - 1]))
      return;
    k--;
  } else
    near->count++;
  for (; k > 0 &&
         (near->distance[k - 1] > distance ||
          (near->distance[k - 1] == distance && near->point[k - 1] > point));
       k--) {
    near->distance[k] = near->distance[k - 1];
    near->point[k] = near->point[k - 1];
  }
  near->distance[k] = distance;
  near->point[k] = point;
}

#endif
