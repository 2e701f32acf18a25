/* tiles_items.c - the TILES view on the device: its two steps, its items */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"
#include "kernels/common/device_tiles.h"

#define SOURCE "kernels/common/tiles_items.cuh"

/* The workspace of the first step, which the second reads.  chunk_end[w]: the
 * chunks of the windows up to w. */
typedef struct counted_layout {
  dfgnn_tile_counts *counts;
  dfgnn_window *windows;
  int32_t *chunk_end;
  void *scan, *dense;
  int64_t capacity; /* windows */
  size_t bytes;
} counted_layout;

static counted_layout lay_counted_out(const dfgnn_matrix *m, int64_t parameter,
                                      void *base) {
  const int high = dfgnn__tiles_rows(parameter);
  const int dense = dfgnn__tiles_dense(parameter);
  counted_layout c = {0};
  c.capacity = dense ? dfgnn__cuda_dense_capacity(m, high)
                     : dfgnn__ceil_div(m->destinations, high);
  const size_t windows = (size_t)c.capacity;
  c.counts = dfgnn__carve(base, &c.bytes, sizeof *c.counts);
  c.windows = dfgnn__carve(base, &c.bytes, windows * sizeof *c.windows);
  c.chunk_end = dfgnn__carve(base, &c.bytes, windows * sizeof *c.chunk_end);
  c.scan = dfgnn__carve(base, &c.bytes, dfgnn__cuda_scan_bytes(c.capacity));
  c.dense =
      dfgnn__carve(base, &c.bytes, dense ? dfgnn__cuda_dense_bytes(m) : 0);
  return c;
}

size_t dfgnn__cuda_count_tiles_bytes(const dfgnn_matrix *m, int64_t parameter) {
  return lay_counted_out(m, parameter, NULL).bytes;
}

static dfgnn_status count_items(const dfgnn_queue *queue, counted_layout *c,
                                int dense) {
  enum { MOST_BLOCKS = 512 };
  static const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::tiles::count_items", DFGNN_TILES_THREADS);
  dfgnn_grid grid = dfgnn__grid_of(c->capacity, DFGNN_TILES_THREADS);
  void *arguments[] = {&c->counts, &c->chunk_end, &c->capacity, &dense};
  if (grid.blocks[0] > MOST_BLOCKS)
    grid.blocks[0] = MOST_BLOCKS;
  return dfgnn__launch(queue, &program, grid, arguments);
}

dfgnn_status dfgnn__cuda_count_tiles(const dfgnn_queue *queue,
                                     const dfgnn_matrix *m, int64_t parameter,
                                     void *workspace) {
  const int high = dfgnn__tiles_rows(parameter);
  const int dense = dfgnn__tiles_dense(parameter);
  counted_layout c = lay_counted_out(m, parameter, workspace);
  dfgnn_status status = dfgnn__fill(queue, c.counts, 0, sizeof *c.counts);
  if (status || m->destinations == 0)
    return status;
  DFGNN_TRY(dense ? dfgnn__cuda_find_dense(queue, c.windows, c.chunk_end,
                                           c.counts ? &c.counts->windows : NULL,
                                           c.capacity, m, high, c.dense)
                  : dfgnn__cuda_count_columns(queue, c.windows, c.chunk_end,
                                              c.capacity, m, high));
  DFGNN_TRY(count_items(queue, &c, dense));
  return dfgnn__cuda_scan_sum(queue, c.chunk_end, c.chunk_end, c.capacity,
                              c.scan);
}

/* ---- items --------------------------------------------------------------- */

typedef struct filling_layout {
  int32_t *order;
  dfgnn_tile *item;
  uint32_t *key, *sorted;
  void *sort;
  size_t bytes;
} filling_layout;

/* The bits of sort keys, which are at most counts->most. */
static int bits_of_ranks(const dfgnn_tile_counts *counts) {
  int bits = 1;
  while (bits < 32 && counts->most >> bits)
    bits++;
  return bits;
}

static filling_layout lay_filling_out(const dfgnn_tile_counts *counts,
                                      void *base) {
  const size_t items = (size_t)counts->windows;
  filling_layout f = {0};
  f.item = dfgnn__carve(base, &f.bytes, items * sizeof *f.item);
  f.key = dfgnn__carve(base, &f.bytes, items * sizeof *f.key);
  f.sorted = dfgnn__carve(base, &f.bytes, items * sizeof *f.sorted);
  f.order = dfgnn__carve(base, &f.bytes, items * sizeof *f.order);
  f.sort = dfgnn__carve(
      base, &f.bytes,
      dfgnn__cuda_sort_bytes((int64_t)items, bits_of_ranks(counts), 0));
  return f;
}

size_t dfgnn__cuda_fill_tiles_bytes(const dfgnn_tile_counts *counts) {
  return lay_filling_out(counts, NULL).bytes;
}

static dfgnn_status list_items(const dfgnn_queue *queue,
                               const dfgnn_list_items *list,
                               const filling_layout *f,
                               const dfgnn_tile_counts *counts) {
  static const dfgnn_program listing =
      DFGNN_PROGRAM(SOURCE, "dfgnn::tiles::list_items", DFGNN_TILES_THREADS);
  static const dfgnn_program ordering =
      DFGNN_PROGRAM(SOURCE, "dfgnn::tiles::order_items", DFGNN_TILES_THREADS);
  const dfgnn_grid grid = dfgnn__grid_of(list->count, DFGNN_TILES_THREADS);
  DFGNN_TRY(dfgnn__launch_struct(queue, &listing, grid, list));
  DFGNN_TRY(dfgnn__cuda_sort(queue, f->key, f->sorted, f->order, list->count,
                             bits_of_ranks(counts), 0, f->sort));
  return dfgnn__launch_struct(queue, &ordering, grid, list);
}

dfgnn_status dfgnn__cuda_fill_tiles(const dfgnn_queue *queue, dfgnn_tile *items,
                                    int32_t *columns, uint32_t *masks,
                                    const dfgnn_tile_counts *counts,
                                    const dfgnn_matrix *m, int64_t parameter,
                                    void *counted, void *workspace) {
  const int high = dfgnn__tiles_rows(parameter);
  const counted_layout c = lay_counted_out(m, parameter, counted);
  const filling_layout f = lay_filling_out(counts, workspace);
  const int64_t windows = (int64_t)counts->windows;
  if (windows == 0)
    return DFGNN_OK;
  DFGNN_TRY(dfgnn__fill(queue, masks, 0,
                        (size_t)counts->chunks * (size_t)high * sizeof *masks));
  DFGNN_TRY((dfgnn__tiles_dense(parameter) ? dfgnn__cuda_fill_dense
                                           : dfgnn__cuda_fill_columns)(
      queue, columns, masks, c.windows, c.chunk_end, windows, m, high));
  const dfgnn_list_items list = {.item = f.item,
                                 .key = f.key,
                                 .order = f.order,
                                 .windows = c.windows,
                                 .chunk_end = c.chunk_end,
                                 .count = windows,
                                 .most = (int64_t)counts->most,
                                 .items = items};
  return list_items(queue, &list, &f, counts);
}
