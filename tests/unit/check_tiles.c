/* check_tiles.c - the TILES view says what its header says, on the host */
#include "kernels/common/tiles.h"
#include "lib/graph.h"
#include "tests/common/tiled.h"
#include "tests/unit/fixture.h"

/* ---- what a view must say ------------------------------------------------ */

typedef struct checked {
  int64_t rows, columns, edges;
  unsigned char *edge; /* [rows][columns] how often it is there */
  int *cut;            /* [rows + 1] may a block begin here? */
  const dfgnn_view *view;
  int high, dense; /* R of kernels/common/tiles.h, and the mode */
  const dfgnn_tile *item;
  const int32_t *column;
  const uint32_t *mask;
  int *seen, *begins; /* [rows] */
} checked;

static checked expected(const dfgnn_csr *csr, int transposed) {
  const int32_t *offsets = csr->offsets, *indices = csr->indices;
  checked c = {.rows = transposed ? csr->sources : csr->destinations,
               .columns = transposed ? csr->destinations : csr->sources,
               .edges = csr->edges};
  c.edge = zeros_of(c.rows * c.columns, 1);
  c.cut = zeros_of(c.rows, sizeof *c.cut);
  c.seen = zeros_of(c.rows, sizeof *c.seen);
  c.begins = zeros_of(c.rows, sizeof *c.begins);
  for (int64_t i = 0; i <= c.rows; i++)
    c.cut[i] = 1;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int32_t e = offsets[i]; e < offsets[i + 1]; e++) {
      int64_t j = indices[e], low = i < j ? i : j, high = i < j ? j : i;
      c.edge[transposed ? j * c.columns + i : i * c.columns + j]++;
      for (int64_t k = low + 1; k <= high && c.rows == c.columns; k++)
        c.cut[k] = 0;
    }
  return c;
}

static int most_times(const checked *c, const dfgnn_tile *w) {
  int most = 0;
  for (int64_t k = w->row * c->columns;
       k < ((int64_t)w->row + w->rows) * c->columns; k++)
    most = c->edge[k] > most ? c->edge[k] : most;
  return most;
}

/* The least block that holds a row. */
static void block_of(const checked *c, int64_t row, int64_t *begin,
                     int64_t *end) {
  for (*begin = row; !c->cut[*begin]; --*begin)
    ;
  for (*end = row + 1; !c->cut[*end]; ++*end)
    ;
}

static void check_dense_window(const checked *c, const dfgnn_tile *w) {
  const int64_t last = w->row + w->rows - 1;
  int64_t begin, end, other, last_end;
  block_of(c, w->row, &begin, &end);
  block_of(c, last, &other, &last_end);
  if (end - begin > c->high / 2) {
    int64_t parts = (end - begin + c->high - 1) / c->high, windows = 0;
    ck_assert_int_eq(other, begin);
    ck_assert_int_eq((w->row - begin) % 16, 0);
    for (int64_t r = begin; r < end; r++)
      windows += c->begins[r];
    ck_assert_int_eq(windows, parts);
  } else {
    ck_assert_int_eq(w->row, begin);
    ck_assert_int_eq(last + 1, last_end);
    ck_assert_int_eq(begin / (c->high / 2), other / (c->high / 2));
    ck_assert_int_le(last_end - other, c->high / 2);
    if (begin > 0) { /* the block before does not fit, too */
      block_of(c, begin - 1, &other, &end);
      ck_assert(other / (c->high / 2) != begin / (c->high / 2) ||
                end - other > c->high / 2);
    }
  }
  if (most_times(c, w) > 0) {
    ck_assert_int_eq(w->column, begin);
    ck_assert_int_eq(w->columns, last_end - begin);
  }
}

static void check_window(const checked *c, const dfgnn_tile *w) {
  const int64_t chunks = w->chunks, columns = w->columns;
  const int most = most_times(c, w);
  const int32_t *column = c->column + (int64_t)w->chunk * 32;
  const uint32_t *mask = c->mask + (int64_t)w->chunk * c->high;
  int wrong = 0, untouched = 0;
  ck_assert_int_ge(w->rows, 1);
  ck_assert_int_le(w->rows, c->high);
  for (int64_t r = w->row; r < w->row + w->rows; r++)
    c->seen[r]++;
  ck_assert_int_eq(chunks, (columns + 31) / 32);
  ck_assert_int_eq(chunks == 0, most == 0);
  ck_assert_int_eq(w->column, columns ? column[0] : 0);
  for (int64_t k = 0; k < columns; k++) {
    int touched = 0;
    for (int r = 0; r < c->high; r++) {
      int bit = mask[k / 32 * c->high + r] >> k % 32 & 1;
      wrong += bit != (r < w->rows &&
                       c->edge[(w->row + r) * c->columns + column[k]] > 0);
      touched |= bit;
    }
    untouched += !touched;
    wrong += k > 0 && column[k] <= column[k - 1];
  }
  for (int64_t k = columns; k < chunks * 32; k++)
    wrong += column[k] != column[columns - 1];
  ck_assert_int_eq(wrong, 0);
  ck_assert(untouched == 0 || c->dense);
  int64_t bits = 0, pairs = 0;
  for (int64_t k = 0; k < chunks * c->high; k++)
    bits += __builtin_popcount(mask[k]);
  for (int64_t k = w->row * c->columns;
       k < ((int64_t)w->row + w->rows) * c->columns; k++)
    pairs += c->edge[k] > 0;
  ck_assert_int_eq(bits, pairs);
  ck_assert_int_eq(w->flags, most > 1 ? DFGNN_TILE_DUPLICATES : 0);
  if (c->dense) {
    check_dense_window(c, w);
  } else {
    ck_assert_int_eq(w->row % c->high, 0);
    ck_assert(w->rows == c->high || w->row + w->rows == c->rows);
  }
}

static void check_view(checked *c, const dfgnn_view *view, int high,
                       int dense) {
  int32_t unordered = 0, wrong = 0;
  c->view = view;
  c->high = high;
  c->dense = dense;
  c->item = view->array[0];
  c->column = view->array[1];
  c->mask = view->array[2];
  memset(c->seen, 0, (size_t)(c->rows + 1) * sizeof *c->seen);
  memset(c->begins, 0, (size_t)(c->rows + 1) * sizeof *c->begins);
  for (int64_t k = 0; k < view->count; k++)
    c->begins[c->item[k].row] = 1;
  for (int64_t k = 0; k < view->count; k++) {
    const dfgnn_tile *w = &c->item[k], *next = w + 1;
    const int32_t rank = dfgnn__tile_rank(w->chunks);
    const int32_t after =
        k + 1 < view->count ? dfgnn__tile_rank(next->chunks) : rank;
    unordered += k + 1 < view->count &&
                 (rank < after || (rank == after && w->row >= next->row));
    check_window(c, w);
  }
  ck_assert_int_eq(unordered, 0);
  for (int64_t r = 0; r < c->rows; r++)
    wrong += c->seen[r] != 1;
  ck_assert_int_eq(wrong, 0);
}

static const int highs[] = {16, 32, 64, 128};

static void check_case(const dfgnn_csr *csr, int transposed) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = graph_on(ctx, csr);
  checked c = expected(csr, transposed);
  for (int k = 0; k < 8; k++) {
    const int high = highs[k % 4], dense = k / 4;
    const dfgnn_view_request request = {
        DFGNN_VIEW_TILES, dfgnn__tiles_parameter(high, dense), transposed};
    const dfgnn_view *view = NULL;
    if (dense && c.rows != c.columns)
      continue;
    ck_ok(dfgnn__graph_view(&view, graph, &request));
    check_view(&c, view, high, dense);
  }
}

TEST_LOOP(tiles_hold_each_edge_of_every_shape, 0, TILED) {
  dfgnn_csr csr = tiled_make(_i);
  check_case(&csr, 0);
}

TEST_LOOP(tiles_of_the_transposed_matrix_hold_each_edge, 0, TILED) {
  dfgnn_csr csr = tiled_make(_i);
  check_case(&csr, 1);
}

TEST_LOOP(offsets_of_64_bits_give_the_same_tiles, 0, SHAPES) {
  shape s = shape_make(_i, shape_seed());
  dfgnn_csr narrow = s.csr;
  checked c = expected(&narrow, 0);
  shape_widen(&s);
  dfgnn_matrix matrix = {.destinations = narrow.destinations,
                         .sources = narrow.sources,
                         .edges = narrow.edges,
                         .offsets64 = 1,
                         .offsets = s.csr.offsets,
                         .indices = narrow.indices};
  dfgnn_view view = {
      .request = {DFGNN_VIEW_TILES, dfgnn__tiles_parameter(32, 0), 0}};
  ck_ok(dfgnn__tiles_build(&view, &matrix));
  check_view(&c, &view, 32, 0);
  for (int k = 0; k < 3; k++)
    free((void *)view.array[k]);
}

/* The shapes have the items that kernels treat apart. */
TEST(the_shapes_have_duplicates_and_many_chunks) {
  int duplicates = 0, shared = 0, many_chunks = 0;
  for (int i = 0; i < 2 * TILED; i++) {
    const int dense = i % 2;
    dfgnn_csr csr = tiled_make(i / 2);
    if (dense && csr.destinations != csr.sources) {
      continue;
    }
    dfgnn_matrix matrix = {.destinations = csr.destinations,
                           .sources = csr.sources,
                           .edges = csr.edges,
                           .offsets = csr.offsets,
                           .indices = csr.indices};
    dfgnn_view view = {
        .request = {DFGNN_VIEW_TILES, dfgnn__tiles_parameter(32, dense), 0}};
    ck_ok(dfgnn__tiles_build(&view, &matrix));
    const dfgnn_tile *item = view.array[0];
    for (int64_t j = 0; j < view.count; j++) {
      duplicates += item[j].flags == DFGNN_TILE_DUPLICATES;
      shared += item[j].rows > 16 && item[j].columns <= item[j].rows;
      many_chunks += item[j].columns > 64;
    }
    for (int j = 0; j < 3; j++)
      free((void *)view.array[j]);
  }
  ck_assert_int_gt(duplicates, 0);
  ck_assert_int_gt(shared, 0);
  ck_assert_int_gt(many_chunks, 0);
}

TEST(parameters_come_back_out_of_the_request) {
  for (int k = 0; k < 8; k++) {
    int64_t p = dfgnn__tiles_parameter(highs[k % 4], k / 4);
    ck_assert_int_eq(dfgnn__tiles_rows(p), highs[k % 4]);
    ck_assert_int_eq(dfgnn__tiles_dense(p), k / 4);
  }
}

TEST(what_cannot_be_tiled_is_refused_with_its_number) {
  const int32_t offsets[] = {0, 1, 2}, indices[] = {0, 2};
  dfgnn_csr csr = csr32(2, 3, offsets, indices);
  dfgnn_context *ctx = cpu_context("");
  const dfgnn_view *view = NULL;
  dfgnn_view_request request = {DFGNN_VIEW_TILES, 17, 0};
  dfgnn_graph *graph = graph_on(ctx, &csr);
  ck_invalid(dfgnn__graph_view(&view, graph, &request), "tiles of 17 rows");
  request.parameter = dfgnn__tiles_parameter(16, 1);
  ck_fails(dfgnn__graph_view(&view, graph, &request), DFGNN_ERROR_UNSUPPORTED,
           "found 2 x 3");
  ck_ok(dfgnn__tiles_check_chunks(16777215, 128));
  ck_fails(dfgnn__tiles_check_chunks(16777216, 128), DFGNN_ERROR_UNSUPPORTED,
           "16777216 chunks");
  ck_fails(dfgnn__tiles_check_chunks((int64_t)1 << 40, 16),
           DFGNN_ERROR_UNSUPPORTED, "1099511627776 chunks");
}

TEST_MAIN("tiles")
