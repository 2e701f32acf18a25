#include "tests/common/tiled.h"

#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"

static uint64_t state;

static int32_t below(int32_t bound) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int32_t)((state >> 33) % (uint64_t)bound);
}

static int32_t block_sizes(int kind, int32_t k) {
  switch (kind) {
  case 0: /* blocks that fit in one window of 16 or 32 rows, or take several */
    return 1 + below(k % 4 == 0 ? 200 : 20);
  case 1: /* as large as a window or half of one, or a little larger */
    return (k % 2 ? 8 : 16) + k % 3;
  case 2: /* nodes without an edge between blocks */
    return k % 3 == 0 ? 30 : 1;
  default:
    return 300;
  }
}

/* Blocks on the diagonal, each held together by a cycle.  Columns are in no
 * order, and with `twice` some appear twice. */
static dfgnn_csr blocks(int kind, int twice) {
  enum { N = 700 };
  int32_t *offsets = zeros_of(N + 1, sizeof *offsets);
  int32_t *indices = zeros_of(N * 24, sizeof *indices);
  int32_t edges = 0;
  for (int32_t begin = 0, k = 0; begin < N; k++) {
    int32_t size = block_sizes(kind, k);
    size = size < N - begin ? size : N - begin;
    for (int32_t i = begin; i < begin + size; i++) {
      int32_t more = size > 1 ? below(20) : 0, start = edges;
      if (size > 1)
        indices[edges++] = i + 1 < begin + size ? i + 1 : begin;
      for (int32_t d = 0; d < more; d++) {
        int32_t j = begin + below(size), there = 0;
        for (int32_t e = start; e < edges; e++)
          there |= indices[e] == j;
        if (!there || twice)
          indices[edges++] = j;
      }
      offsets[i + 1] = edges;
    }
    begin += size;
  }
  return csr32(N, N, offsets, indices);
}

/* Short rows whose columns lie far apart, in falling order, and one row of many
 * columns that lie close together. */
static dfgnn_csr wide(int32_t rows, int32_t columns, int32_t many, int step) {
  int32_t *offsets = zeros_of(rows + 1, sizeof *offsets);
  int32_t *indices = zeros_of(rows * 40 + many, sizeof *indices);
  int32_t edges = 0;
  for (int32_t i = 0; i < rows; i++) {
    const int hub = i == rows / 3;
    int32_t degree = hub ? many : below(40), j = columns;
    for (int32_t d = 0; d < degree; d++) {
      j -= 1 + below(hub ? step : columns / 50);
      if (j >= 0)
        indices[edges++] = j;
    }
    offsets[i + 1] = edges;
  }
  return csr32(rows, columns, offsets, indices);
}

dfgnn_csr tiled_make(int i) {
  static const int32_t loop[] = {0, 1}, alone[] = {0, 0};
  if (i < SHAPES)
    return shape_make(i, shape_seed()).csr;
  i -= SHAPES;
  state = shape_seed() + (unsigned)i;
  if (i < 2) /* one node, without a loop and with one */
    return csr32(1, 1, i ? loop : alone, zeros_of(1, 4));
  if (i < 8)
    return blocks((i - 2) % 4, i >= 6);
  if (i == 8)
    return wide(50, 5000, 1900, 3);
  /* more columns than a block marks at once: few edges, and many */
  return i == 9 ? wide(100, 700000, 3000, 200) : wide(30, 900000, 9000, 90);
}
