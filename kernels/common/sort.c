/* sort.c - launches of sorts and scans in device memory */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"
#include "kernels/common/sort_params.h"

#define SORT "kernels/common/sort.cuh"

/* A sort's passes and workspace.  A pass takes `digit` bits of the key, by a
 * kernel whose digits have radix_bits, 8 or 9. */
typedef struct sort_plan {
  int64_t count, tiles;
  int passes, digit, radix_bits;
  int wide;        /* numbers have 64 bits */
  int wide_counts; /* a state's value does not fit 30 bits */
  size_t clear;    /* bytes at the start of the workspace that begin as 0 */
  size_t histogram, state, key, number, bytes; /* begin of each part, and end */
} sort_plan;

static int small(const sort_plan *p) {
  return !p->wide && p->count <= DFGNN_SORT_SMALL;
}

static sort_plan plan_of(int64_t count, int bits, int wide) {
  sort_plan p = {.count = count, .wide = wide};
  const int nine = (bits + 8) / 9 < (bits + 7) / 8;
  p.radix_bits = nine ? 9 : 8;
  p.passes = nine ? (bits + 8) / 9 : (bits + 7) / 8;
  p.digit = (bits + p.passes - 1) / p.passes;
  if (small(&p))
    return p;
  p.tiles = dfgnn__ceil_div(
      count, (int64_t)DFGNN_SORT_THREADS *
                 (wide ? DFGNN_SORT_ITEMS_WIDE : DFGNN_SORT_ITEMS));
  p.wide_counts = count >= 1 << 30;
  const size_t row = (size_t)(p.wide_counts ? 8 : 4) << p.radix_bits;
  p.histogram = dfgnn__align256(DFGNN_SORT_MOST_PASSES * sizeof(uint32_t));
  p.state = p.histogram + (size_t)p.passes * row;
  p.clear = p.state + (size_t)p.passes * (size_t)p.tiles * row;
  p.key = dfgnn__align256(p.clear);
  p.number = p.key;
  p.bytes = p.key;
  if (p.passes > 1) {
    p.number = p.key + dfgnn__align256((size_t)count * sizeof(uint32_t));
    p.bytes = p.number + dfgnn__align256((size_t)count * (wide ? 8 : 4));
  }
  return p;
}

size_t dfgnn__cuda_sort_bytes(int64_t count, int bits, int wide) {
  return plan_of(count, bits, wide).bytes;
}

static dfgnn_status sort_in_a_block(const dfgnn_queue *queue,
                                    const uint32_t *key, uint32_t *sorted,
                                    int32_t *order, int64_t count, int bits) {
  static const dfgnn_program program =
      DFGNN_PROGRAM(SORT, "dfgnn::sort_small", DFGNN_SORT_THREADS);
  const dfgnn_sort_small sort = {.key = key,
                                 .to_key = sorted,
                                 .to_number = order,
                                 .count = (int32_t)count,
                                 .bits = bits};
  const dfgnn_grid grid = {.blocks = {1}, .threads = DFGNN_SORT_THREADS};
  return dfgnn__launch_struct(queue, &program, grid, &sort);
}

static dfgnn_status count_digits(const dfgnn_queue *queue, const sort_plan *p,
                                 const uint32_t *key, char *base) {
  enum { MOST_BLOCKS = 512 };
  const dfgnn_program program =
      DFGNN_PROGRAM(SORT, "dfgnn::sort_histogram", p->radix_bits,
                    dfgnn__index_type(p->wide_counts));
  const dfgnn_sort_histogram histogram = {.key = key,
                                          .count = p->count,
                                          .passes = p->passes,
                                          .digit = p->digit,
                                          .histogram = base + p->histogram};
  const int64_t blocks = dfgnn__ceil_div(p->count, DFGNN_HISTOGRAM_THREADS *
                                                       DFGNN_HISTOGRAM_ITEMS);
  const dfgnn_grid grid = {
      .blocks = {(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)},
      .threads = DFGNN_HISTOGRAM_THREADS};
  return dfgnn__launch_struct(queue, &program, grid, &histogram);
}

/* Keys and numbers go to and fro between the results' arrays and those of the
 * workspace, so that the last pass leaves them in the results'. */
static dfgnn_status run_pass(const dfgnn_queue *queue, const sort_plan *p,
                             int pass, const uint32_t *key, uint32_t *sorted,
                             void *order, char *base) {
  const dfgnn_program program = DFGNN_PROGRAM(
      SORT, "dfgnn::sort_pass", p->radix_bits, dfgnn__index_type(p->wide),
      dfgnn__index_type(p->wide_counts));
  const size_t row = (size_t)(p->wide_counts ? 8 : 4) << p->radix_bits;
  const int to_results = (p->passes - 1 - pass) % 2 == 0;
  uint32_t *own_key = (uint32_t *)(base + p->key);
  void *own_number = base + p->number;
  const dfgnn_sort_pass sort = {
      .key = pass == 0    ? key
             : to_results ? own_key
                          : sorted,
      .number = pass == 0    ? NULL
                : to_results ? own_number
                             : order,
      .to_key = to_results ? sorted : own_key,
      .to_number = to_results ? order : own_number,
      .count = p->count,
      .shift = pass * p->digit,
      .mask = (1u << p->digit) - 1,
      .ticket = (uint32_t *)base + pass,
      .histogram = base + p->histogram + (size_t)pass * row,
      .state = base + p->state + (size_t)pass * (size_t)p->tiles * row};
  const dfgnn_grid grid = {.blocks = {(unsigned)p->tiles},
                           .threads = DFGNN_SORT_THREADS};
  return dfgnn__launch_struct(queue, &program, grid, &sort);
}

dfgnn_status dfgnn__cuda_sort(const dfgnn_queue *queue, const uint32_t *key,
                              uint32_t *sorted, void *order, int64_t count,
                              int bits, int wide, void *workspace) {
  const sort_plan p = plan_of(count, bits, wide);
  char *base = workspace;
  if (count == 0)
    return DFGNN_OK;
  if (small(&p))
    return sort_in_a_block(queue, key, sorted, order, count, bits);
  dfgnn_status status = dfgnn__fill(queue, base, 0, p.clear);
  if (!status)
    status = count_digits(queue, &p, key, base);
  for (int pass = 0; !status && pass < p.passes; pass++)
    status = run_pass(queue, &p, pass, key, sorted, order, base);
  return status;
}

/* ---- scans --------------------------------------------------------------- */

/* A ticket, then a state for each tile. */
size_t dfgnn__cuda_scan_bytes(int64_t count) {
  return dfgnn__align256(256 +
                         (size_t)dfgnn__ceil_div(count, DFGNN_SCAN_TILE) * 8);
}

static dfgnn_status scan(const dfgnn_queue *queue, int op, const int32_t *from,
                         int32_t *to, int64_t count, void *workspace) {
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/common/scan.cuh", "dfgnn::scan", op);
  const int64_t tiles = dfgnn__ceil_div(count, DFGNN_SCAN_TILE);
  char *base = workspace;
  const dfgnn_scan args = {.from = from,
                           .to = to,
                           .count = count,
                           .ticket = (uint32_t *)base,
                           .state = (uint64_t *)(base ? base + 256 : NULL)};
  const dfgnn_grid grid = {.blocks = {(unsigned)tiles},
                           .threads = DFGNN_SCAN_THREADS};
  dfgnn_status status = DFGNN_OK;
  if (count == 0)
    return DFGNN_OK;
  if (tiles > 1)
    status = dfgnn__fill(queue, base, 0, dfgnn__cuda_scan_bytes(count));
  return status ? status : dfgnn__launch_struct(queue, &program, grid, &args);
}

dfgnn_status dfgnn__cuda_scan_sum(const dfgnn_queue *queue, const int32_t *from,
                                  int32_t *to, int64_t count, void *workspace) {
  return scan(queue, DFGNN_SCAN_SUM, from, to, count, workspace);
}

dfgnn_status dfgnn__cuda_scan_max(const dfgnn_queue *queue, const int32_t *from,
                                  int32_t *to, int64_t count, void *workspace) {
  return scan(queue, DFGNN_SCAN_MAX, from, to, count, workspace);
}
