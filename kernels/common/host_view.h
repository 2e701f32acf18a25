/* host_view.h - helpers of code that builds views in host memory */
#ifndef DFGNN_KERNELS_HOST_VIEW_H
#define DFGNN_KERNELS_HOST_VIEW_H

#include <stdlib.h>

#include "kernels/common/number.h"
#include "kernels/common/variant.h"

static inline int64_t dfgnn__offset_at(const dfgnn_matrix *m, int64_t i) {
  return dfgnn__index_at(m->offsets, m->offsets64, i);
}

/* 256-byte aligned memory of a view's slot; NULL if there is none. */
static inline void *dfgnn__view_array(dfgnn_view *view, int slot,
                                      size_t bytes) {
  void *memory = NULL;
  bytes = (bytes + 255) / 256 * 256 + 256;
  if (posix_memalign(&memory, 256, bytes))
    return NULL;
  view->array[slot] = memory;
  view->bytes += bytes;
  return memory;
}

#endif
