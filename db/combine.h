/* combine.h - one scale out of ratios to several anchors */
#ifndef DFGNN_DB_COMBINE_H
#define DFGNN_DB_COMBINE_H

#include <stddef.h>

/* A log ratio.  count 0: none. */
typedef struct dfgnn_estimate {
  double mean, variance;
  size_t count;
} dfgnn_estimate;

/* The mean by inverse variance; where the parts disagree by more than their
 * variances allow, the result's grows by chi^2 / (n - 1).  A part of variance 0
 * is exact and decides alone. */
dfgnn_estimate dfgnn__combine(const dfgnn_estimate *part, size_t count);

/* Puts nodes on one scale.  anchor[k] is the node of the k-th anchor, rows[k]
 * the number of its rows, edge[k * nodes + i] node i's log ratio to it.  The
 * anchor with most rows (ties: the first) is 0; see DFGNN_DECIDE_FLOOR in
 * store.h for the rest.  A node that cannot be joined gets count 0.  scratch
 * has room for anchors * nodes + anchors estimates. */
void dfgnn__join(dfgnn_estimate *node, size_t nodes, const size_t *anchor,
                 const size_t *rows, size_t anchors, const dfgnn_estimate *edge,
                 dfgnn_estimate *scratch);

#endif
