/* move.c - rows of a tensor from one order into another, on the host */
#include "lib/move.h"

#include <string.h>

#define WIDEST 16      /* bytes a GPU loads at once */
#define PARALLEL 65536 /* elements that are worth threads */

/* Do the heads and features of a row lie together, in the same order on both
 * sides? */
static int together(const dfgnn_move *m) {
  const dfgnn_strides *a = &m->to_strides, *b = &m->from_strides;
  if (m->heads == 1)
    return (a->feature == 1 && b->feature == 1) || m->dim == 1;
  if (m->dim == 1)
    return a->head == 1 && b->head == 1;
  int nhd = a->feature == 1 && b->feature == 1 && a->head == m->dim &&
            b->head == m->dim;
  int ndh = a->head == 1 && b->head == 1 && a->feature == m->heads &&
            b->feature == m->heads;
  return nhd || ndh;
}

void dfgnn__move_widen(dfgnn_move *m) {
  if (!together(m))
    return;
  uintptr_t bits = (uintptr_t)m->to | (uintptr_t)m->from;
  m->dim *= m->heads;
  m->heads = 1;
  m->to_strides.feature = m->from_strides.feature = 1;
  while (m->element < WIDEST && !(bits & (2 * m->element - 1)) &&
         !((m->dim | m->to_strides.node | m->from_strides.node) & 1)) {
    m->element *= 2;
    m->dim /= 2;
    m->to_strides.node /= 2;
    m->from_strides.node /= 2;
  }
}

static void move_row(const dfgnn_move *m, char *to, const char *from) {
  size_t size = m->element;
  if (m->to_strides.feature == 1 && m->from_strides.feature == 1) {
    for (int64_t h = 0; h < m->heads; h++)
      memcpy(to + size * (size_t)(h * m->to_strides.head),
             from + size * (size_t)(h * m->from_strides.head),
             size * (size_t)m->dim);
    return;
  }
  for (int64_t h = 0; h < m->heads; h++)
    for (int64_t d = 0; d < m->dim; d++)
      memcpy(to + size * (size_t)(h * m->to_strides.head +
                                  d * m->to_strides.feature),
             from + size * (size_t)(h * m->from_strides.head +
                                    d * m->from_strides.feature),
             size);
}

void dfgnn__move_host(const dfgnn_move *m, int threads) {
  int64_t size = (int64_t)m->element;
#pragma omp parallel for num_threads(threads) if (m->rows * m->dim > PARALLEL)
  for (int64_t p = 0; p < m->rows; p++) {
    int64_t other = m->wide ? ((const int64_t *)m->order)[p]
                            : ((const int32_t *)m->order)[p];
    int64_t to = m->scatter ? other : p, from = m->scatter ? p : other;
    move_row(m, (char *)m->to + size * to * m->to_strides.node,
             (const char *)m->from + size * from * m->from_strides.node);
  }
}
