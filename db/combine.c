#include "db/combine.h"

dfgnn_estimate dfgnn__combine(const dfgnn_estimate *part, size_t count) {
  dfgnn_estimate sum = {.count = 0};
  double weights = 0, chi2 = 0;
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (part[i].count == 0)
      continue;
    if (part[i].variance == 0)
      return part[i];
    weights += 1 / part[i].variance;
    sum.mean += part[i].mean / part[i].variance;
    sum.count += part[i].count;
    n++;
  }
  if (n == 0)
    return sum;
  sum.mean /= weights;
  sum.variance = 1 / weights;
  for (size_t i = 0; i < count; i++) {
    double d = part[i].mean - sum.mean;
    if (part[i].count)
      chi2 += d * d / part[i].variance;
  }
  if (n > 1 && chi2 > (double)(n - 1))
    sum.variance *= chi2 / (double)(n - 1);
  return sum;
}

/* The log ratio of node i to the k-th anchor; an anchor's to itself is 0. */
static dfgnn_estimate at(const dfgnn_estimate *edge, size_t nodes,
                         const size_t *anchor, size_t k, size_t i) {
  static const dfgnn_estimate self = {.count = 1};
  return anchor[k] == i ? self : edge[k * nodes + i];
}

/* Estimates the place of anchor b by all nodes that it shares with anchors that
 * are joined already. */
static dfgnn_estimate link_of(size_t b, const dfgnn_estimate *place,
                              size_t nodes, const size_t *anchor,
                              size_t anchors, const dfgnn_estimate *edge,
                              dfgnn_estimate *scratch) {
  size_t n = 0;
  for (size_t a = 0; a < anchors; a++)
    for (size_t i = 0; i < nodes && place[a].count; i++) {
      dfgnn_estimate x = at(edge, nodes, anchor, a, i);
      dfgnn_estimate y = at(edge, nodes, anchor, b, i);
      if (x.count == 0 || y.count == 0)
        continue;
      scratch[n].mean = place[a].mean + x.mean - y.mean;
      scratch[n].variance = place[a].variance + x.variance + y.variance;
      scratch[n++].count = 1;
    }
  return dfgnn__combine(scratch, n);
}

void dfgnn__join(dfgnn_estimate *node, size_t nodes, const size_t *anchor,
                 const size_t *rows, size_t anchors, const dfgnn_estimate *edge,
                 dfgnn_estimate *scratch) {
  dfgnn_estimate *place = scratch + anchors * nodes;
  size_t next = 0;
  for (size_t k = 0; k < anchors; k++) {
    place[k].count = 0;
    if (rows[k] > rows[next])
      next = k;
  }
  place[next] = (dfgnn_estimate){.count = 1};
  do {
    dfgnn_estimate best = {.count = 0};
    for (size_t b = 0; b < anchors; b++) {
      if (place[b].count)
        continue;
      dfgnn_estimate found =
          link_of(b, place, nodes, anchor, anchors, edge, scratch);
      if (found.count && (!best.count || found.variance < best.variance)) {
        best = found;
        next = b;
      }
    }
    if (!best.count)
      break;
    place[next] = best;
  } while (1);

  for (size_t i = 0; i < nodes; i++) {
    for (size_t k = 0; k < anchors; k++) {
      scratch[k] = edge[k * nodes + i];
      scratch[k].mean += place[k].mean;
      scratch[k].variance += place[k].variance;
      if (!place[k].count)
        scratch[k].count = 0;
    }
    node[i] = dfgnn__combine(scratch, anchors);
  }
  /* The place of an anchor has counted its rows already. */
  for (size_t k = 0; k < anchors; k++)
    node[anchor[k]] = place[k];
}
