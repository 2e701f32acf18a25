#include "tests/common/shapes.h"

#include "tests/unit/fixture.h"

static unsigned state;

static int32_t below(int32_t bound) {
  state = state * 1664525u + 1013904223u;
  return (int32_t)((uint64_t)(state >> 8) * (uint64_t)bound >> 24);
}

typedef struct kind {
  const char *name;
  int32_t rows, columns;
  int32_t (*degree)(int32_t row);
  int32_t (*column)(int32_t row, int32_t k, int32_t columns);
} kind;

static int32_t none(int32_t row) { return (void)row, 0; }
static int32_t three(int32_t row) { return (void)row, 3; }
static int32_t few(int32_t row) { return (void)row, below(13); }
static int32_t many(int32_t row) { return (void)row, 20 + below(50); }
static int32_t often_none(int32_t row) {
  return row % 3 == 0 ? 1 + below(8) : 0;
}
/* The super node has more edges than every chunk, work item and score buffer of
 * a block of rows holds.  The row behind it is cut to pieces, too. */
static int32_t super(int32_t row) {
  return row == 7 ? 2100 : row == 8 ? 300 : below(10);
}
static int32_t pairs(int32_t row) { return 2 * (row % 5); }

static int32_t any(int32_t row, int32_t k, int32_t columns) {
  return (void)row, (void)k, below(columns);
}
static int32_t self_first(int32_t row, int32_t k, int32_t columns) {
  return k == 0 ? row : below(columns);
}
static int32_t twice(int32_t row, int32_t k, int32_t columns) {
  return (row + k / 2) % columns;
}
static int32_t to_seven(int32_t row) { return row % 8; }

/* Sources in blocks of ten nodes. */
static int32_t in_block(int32_t row, int32_t k, int32_t columns) {
  return (void)k, (void)columns, row / 10 * 10 + below(10);
}
/* Sources in blocks of ten nodes, each once and in order. */
static int32_t in_order(int32_t row, int32_t k, int32_t columns) {
  return (void)columns, row / 10 * 10 + k + (k >= 3 ? row % 3 : 0);
}

static int32_t long_or_none(int32_t row) {
  return row % 7 == 3 ? 0 : 30 + row % 40;
}

/* Rising in every other row. */
static int32_t often_rising(int32_t row, int32_t e, int32_t columns) {
  return row % 2 ? below(columns)
                 : (int32_t)((int64_t)e * columns / long_or_none(row));
}

static const kind kinds[SHAPES + 2] = {
    {"no rows at all", 0, 0, none, any},
    {"only isolated rows", 5, 4, none, any},
    {"one row", 1, 4, three, any},
    {"many isolated rows", 70, 70, often_none, self_first},
    {"a super node", 30, 211, super, any},
    {"rectangular, wide", 40, 130, few, any},
    {"rectangular, tall", 150, 8, many, any},
    {"duplicate edges", 33, 33, pairs, twice},
    {"a batch with self loops", 60, 60, few, in_block},
    {"a batch, columns in order", 60, 60, to_seven, in_order},
    {"long rows, columns often in order", 70, 90, long_or_none, often_rising},
};

enum { MOST_EDGES = 8192 };
static const int64_t batch[] = {0, 10, 20, 30, 40, 50, 60};

shape shape_make(int i, unsigned seed) {
  const kind *k = &kinds[i];
  shape s = {k->name, DFGNN_CSR_INIT};
  int32_t *offsets = zeros_of(k->rows + 1, sizeof *offsets);
  int32_t *indices = zeros_of(MOST_EDGES, sizeof *indices);

  state = seed + (unsigned)i;
  for (int32_t row = 0; row < k->rows; row++) {
    int32_t degree = k->degree(row);
    offsets[row + 1] = offsets[row] + degree;
    ck_assert_int_le(offsets[row + 1], MOST_EDGES);
    for (int32_t e = 0; e < degree; e++)
      indices[offsets[row] + e] = k->column(row, e, k->columns);
  }
  s.csr.destinations = k->rows;
  s.csr.sources = k->columns;
  s.csr.edges = offsets[k->rows];
  s.csr.offsets = offsets;
  s.csr.indices = indices;
  if (k->column == in_block || k->column == in_order) {
    s.csr.graphs = 6;
    s.csr.graph_ptr = batch;
  }
  return s;
}

static int64_t *widen(const int32_t *narrow, int64_t count) {
  int64_t *wide = zeros_of(count, sizeof *wide);
  for (int64_t i = 0; i < count; i++)
    wide[i] = narrow[i];
  return wide;
}

void shape_widen(shape *s) {
  s->csr.offsets = widen(s->csr.offsets, s->csr.destinations + 1);
  s->csr.indices = widen(s->csr.indices, s->csr.edges);
  s->csr.offset_type = s->csr.index_type = DFGNN_INDEX_I64;
}

unsigned shape_seed(void) {
  static int said;
  const char *text = getenv("DFGNN_TEST_SEED");
  unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : 20260u;
  if (!said++)
    printf("DFGNN_TEST_SEED=%u\n", seed);
  return seed;
}
