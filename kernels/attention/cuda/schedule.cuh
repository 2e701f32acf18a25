/* schedule.cuh - the row and the edges of a unit of a row_schedule */
#ifndef DFGNN_ATTENTION_CUDA_SCHEDULE_CUH
#define DFGNN_ATTENTION_CUDA_SCHEDULE_CUH

#include "kernels/attention/cuda/schedule.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

struct row_edges {
  int row;
  int slot; /* the place of the partial result; -1: the row is whole */
  int degree;
  const int *indices;
};

/* Whether there is a unit: padded items have places behind the last. */
DEVICE bool has_unit(const row_schedule &p, int unit) {
  return !p.item_row || __ldg(p.item_row + unit) >= 0;
}

/* The row of each unit; NULL: units are rows one after the other. */
DEVICE const int *rows_of_units(const row_schedule &p) {
  return p.item_row ? p.item_row : p.order;
}

DEVICE row_edges row_of_unit(const row_schedule &p, int unit) {
  row_edges w;
  const offsets_t offsets{p.offsets, p.offsets64};
  w.slot = -1;
  w.row = unit;
  int64_t begin;
  if (p.item_row) {
    if (p.order)
      unit = __ldg(p.order + unit);
    w.row = __ldg(p.item_row + unit);
    begin = __ldg(reinterpret_cast<const long long *>(p.item_first) + unit);
    const int first = __ldg(p.row_item + w.row);
    const int last = __ldg(p.row_item + w.row + 1);
    const int64_t left = offsets[w.row + 1] - begin;
    w.degree = static_cast<int>(min(left, int64_t(p.item_edges)));
    /* row_parts finds the slots by the same rule. */
    if (last - first > 1)
      w.slot = unit == first ? p.extra_items + unit - w.row : unit - w.row - 1;
  } else if (p.slices) {
    const offsets_t first{p.slice_first, p.offsets64};
    const int slice = unit / p.rows;
    w.row = unit - slice * p.rows;
    if (p.order)
      w.row = __ldg(p.order + w.row);
    const int64_t at = int64_t(slice) * p.rows + w.row;
    begin = first[at];
    w.degree = static_cast<int>(first[at + p.rows] - begin);
    w.slot = static_cast<int>(slice == 0 ? p.extra_items + w.row
                                         : at - p.rows); /* see row_parts */
  } else {
    if (p.order)
      w.row = __ldg(p.order + unit);
    begin = offsets[w.row];
    w.degree = static_cast<int>(offsets[w.row + 1] - begin);
  }
  w.indices = p.indices + begin;
  return w;
}

/* The partial results of a row that is split: those of first items, or of the
 * first slice, have slots from extra_items on, those after them slots below
 * that. */
struct row_parts {
  int count, extra, base, step;

  DEVICE row_parts(const row_schedule &p, int row)
      : count(p.slices), extra(p.extra_items), base(row), step(p.rows) {
    if (p.item_row) {
      const int first = p.row_item[row];
      count = p.row_item[row + 1] - first;
      base = first - row;
      step = 1;
    }
  }
  DEVICE int64_t slot(int k) const {
    return k == 0 ? int64_t(extra) + base : base + int64_t(k - 1) * step;
  }
};

/* The row that block `index` merges: the one of a list, or NULL: any; -1: none.
 */
DEVICE int merged_row(const int *heavy, int index) {
  return heavy ? heavy[index] : index;
}

} // namespace dfgnn

#endif
