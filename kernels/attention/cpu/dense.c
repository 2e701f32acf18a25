/* dense.c - dense blocks of a batch as products of matrices: scores and
 * sums of some rows with all nodes of their block come from tiles of registers,
 * so that a loaded vector serves several rows; pairs of nodes that are no edge
 * have weight zero
 *
 * A block is a run of rows whose ranges of columns overlap; one with too few
 * edges goes edge by edge. */
#include "kernels/attention/cpu/dense.h"

#include <limits.h>

enum { SIMD, ROWS, FILL, SCHEDULE };
/* Rows that are scored, weighed and summed together; the most columns of a
 * block; the multiple to which columns are rounded up to count cells. */
enum { STRIP = 8 * DFGNN_CPU_DENSE_ROWS, WIDEST = 1024, LANES = 16 };

static int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

static int has_products(dfgnn_op op) {
  return op == DFGNN_OP_GT || op == DFGNN_OP_AGNN;
}

/* ---- memory of a thread -------------------------------------------------- */

/* The offsets of a thread's arrays in bytes; strides in scalars. */
typedef struct layout {
  int64_t widest, query_stride, score_stride, sum_stride;
  size_t head_keys, head_values; /* of one head */
  size_t keys, values, queries, scores, sums, weights, marks, bytes;
} layout;

static int64_t widest_block(const dfgnn_setting *setting) {
  const dfgnn_signature *g = setting->signature;
  int64_t most = g->destinations == g->sources ? g->largest_graph : g->sources;
  return most < WIDEST ? most : WIDEST;
}

static size_t place(size_t *at, size_t bytes) {
  size_t from = *at;
  *at += dfgnn__cpu_aligned(bytes + DFGNN_CPU_PADDING);
  return from;
}

static layout lay_out(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  size_t size = dfgnn__cpu_scalar_size(problem), at = 0;
  size_t heads = (size_t)problem->heads, dim = (size_t)problem->dim;
  layout l = {.widest = widest_block(setting)};
  size_t columns = (size_t)round_up(l.widest, DFGNN_CPU_DENSE_PANEL);
  size_t features = (size_t)round_up(problem->dim, DFGNN_CPU_DENSE_PANEL);

  l.query_stride = l.sum_stride = (int64_t)features;
  l.score_stride = (int64_t)columns;
  l.head_keys = columns * dim * size;
  l.head_values = columns * features * size;
  l.keys = place(&at, has_products(problem->op) ? heads * l.head_keys : 0);
  l.values = place(&at, heads * l.head_values);
  l.queries = place(&at, STRIP * features * size);
  l.scores = place(&at, STRIP * columns * size);
  l.sums = place(&at, STRIP * features * size);
  l.weights = place(&at, (size_t)setting->matrix->max_degree * size);
  l.marks = place(&at, STRIP * columns);
  l.bytes = at;
  return l;
}

/* ---- rows ---------------------------------------------------------------- */

typedef struct plan {
  const int *parameter;
  const dfgnn_cpu_dense *dense;
  layout at;
} plan;

typedef struct block {
  int64_t row, rows;      /* the first row, and how many */
  int64_t first, columns; /* the range of nodes to which they have edges */
} block;

/* Attends to a row edge by edge; the sum is kept in the memory of queries. */
static void attend_row(const dfgnn_cpu_job *job, const plan *p, char *memory,
                       int64_t row, int64_t head) {
  dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
  int64_t begin = dfgnn__cpu_offset(job, row);
  int64_t end = dfgnn__cpu_offset(job, row + 1);
  void *weights = memory + p->at.weights;
  job->kernels->score[job->op](job, row, head, begin, end, weights);
  job->kernels->weigh(weights, end - begin, &state);
  dfgnn__cpu_attend(job, row, head, begin, end, weights, memory + p->at.queries,
                    &state);
}

/* Turns the products of a row with the nodes of its block into weights;
 * operators without products score the edges one by one. */
static void weigh_edges(const dfgnn_cpu_job *job, const plan *p, char *memory,
                        const block *b, int64_t row, int64_t head,
                        void *cells) {
  const dfgnn_cpu_kernels *kernels = job->kernels;
  dfgnn_cpu_softmax state = DFGNN_CPU_SOFTMAX_INIT;
  int64_t begin = dfgnn__cpu_offset(job, row);
  int64_t end = dfgnn__cpu_offset(job, row + 1);
  void *weights = memory + p->at.weights;

  if (has_products(job->op))
    kernels->take(job, row, head, begin, end - begin, cells, b->first, weights);
  else
    kernels->score[job->op](job, row, head, begin, end, weights);
  kernels->weigh(weights, end - begin, &state);
  double after = dfgnn__cpu_finish(job, row, head, &state);
  if (job->weights) {
    kernels->multiply(weights, end - begin, after);
    dfgnn__cpu_keep(job, head, begin, end - begin, weights);
    after = 1;
  }
  dfgnn__cpu_drop(job, head, begin, end - begin, weights);
  kernels->scatter(job, begin, end - begin, weights, after, b->first,
                   b->columns, cells);
}

/* The same where a score is a scaled product; returns the factor of the sum. */
static double weigh_cells(const dfgnn_cpu_job *job, const uint8_t *marks,
                          const block *b, int64_t row, int64_t head,
                          void *cells) {
  dfgnn_cpu_softmax state;
  job->kernels->weigh_marked(cells, marks, b->columns, job->scale, &state);
  return dfgnn__cpu_finish(job, row, head, &state);
}

/* Rows of a block with one mark a cell. */
typedef struct strip {
  int64_t row, rows;
  uint8_t *marks;
  int by_cell[STRIP]; /* products are scores, and no edge is there twice */
} strip;

/* A weight of zero times a value that is not finite is NaN: rows whose sums are
 * not finite are done again, edge by edge. */
static void attend_strip(const dfgnn_cpu_job *job, const plan *p, char *memory,
                         const block *b, const strip *s, int64_t head) {
  const dfgnn_cpu_dense *dense = p->dense;
  const layout *at = &p->at;
  char *scores = memory + at->scores, *sums = memory + at->sums;
  double after[STRIP];

  if (has_products(job->op)) {
    dense->queries(job, head, s->row, s->rows, memory + at->queries,
                   at->query_stride);
    dense->product(memory + at->queries, at->query_stride, s->rows,
                   memory + at->keys + (size_t)head * at->head_keys, job->dim,
                   scores, at->score_stride, b->columns);
  }
  for (int64_t i = 0; i < s->rows; i++) {
    void *cells = dfgnn__cpu_scalar(job, scores, i * at->score_stride);
    after[i] = 1;
    if (s->by_cell[i])
      after[i] = weigh_cells(job, s->marks + i * at->score_stride, b,
                             s->row + i, head, cells);
    else
      weigh_edges(job, p, memory, b, s->row + i, head, cells);
  }
  dense->product(scores, at->score_stride, s->rows,
                 memory + at->values + (size_t)head * at->head_values,
                 b->columns, sums, at->sum_stride, job->dim);
  for (int64_t i = 0; i < s->rows; i++) {
    const void *sum = dfgnn__cpu_scalar(job, sums, i * at->sum_stride);
    if (job->kernels->finite(sum, job->dim))
      job->kernels->store(job, s->row + i, head, sum, after[i]);
    else
      attend_row(job, p, memory, s->row + i, head);
  }
}

static void attend_dense(const dfgnn_cpu_job *job, const plan *p, char *memory,
                         const block *b) {
  int products_only =
      job->op == DFGNN_OP_GT && !job->bias && !job->weights && !job->drops;
  strip s = {.marks = (uint8_t *)memory + p->at.marks};

  for (int64_t h = 0; h < job->heads; h++) {
    if (has_products(job->op))
      p->dense->keys(job, h, b->first, b->columns,
                     memory + p->at.keys + (size_t)h * p->at.head_keys);
    p->dense->values(job, h, b->first, b->columns,
                     memory + p->at.values + (size_t)h * p->at.head_values);
  }
  for (int64_t i = 0; i < b->rows; i += STRIP) {
    s.row = b->row + i;
    s.rows = b->rows - i < STRIP ? b->rows - i : STRIP;
    for (int64_t r = 0; r < s.rows; r++) {
      int64_t begin = dfgnn__cpu_offset(job, s.row + r);
      int64_t end = dfgnn__cpu_offset(job, s.row + r + 1);
      s.by_cell[r] =
          products_only &&
          job->kernels->mark(job->indices + begin, end - begin, b->first,
                             b->columns, s.marks + r * p->at.score_stride);
    }
    for (int64_t h = 0; h < job->heads; h++)
      attend_strip(job, p, memory, b, &s, h);
  }
}

static void attend_block(const dfgnn_cpu_job *job, const plan *p, char *memory,
                         const block *b) {
  int64_t rows = round_up(b->rows, DFGNN_CPU_DENSE_ROWS);
  int64_t cells = rows * round_up(b->columns, LANES);
  int64_t edges =
      dfgnn__cpu_offset(job, b->row + b->rows) - dfgnn__cpu_offset(job, b->row);

  if (edges > 0 && b->columns <= p->at.widest &&
      100 * edges >= p->parameter[FILL] * cells) {
    attend_dense(job, p, memory, b);
    return;
  }
  for (int64_t i = 0; i < b->rows; i++)
    for (int64_t h = 0; h < job->heads; h++)
      attend_row(job, p, memory, b->row + i, h);
}

/* ---- blocks -------------------------------------------------------------- */

/* The block that begins at a row; a row without edges joins any. */
static block next_block(const dfgnn_cpu_job *job, int64_t row, int64_t end,
                        int64_t widest) {
  int32_t first = INT32_MAX, last = -1;
  int64_t i = row;
  for (; i < end; i++) {
    int64_t begin = dfgnn__cpu_offset(job, i);
    int32_t low, high;
    job->kernels->span(job->indices + begin,
                       dfgnn__cpu_offset(job, i + 1) - begin, &low, &high);
    if (high < 0)
      continue;
    if (last >= 0 && (low > last || high < first))
      break;
    low = low < first ? low : first;
    high = high > last ? high : last;
    if (i > row && (int64_t)high - low >= widest)
      break;
    first = low;
    last = high;
  }
  int64_t columns = last < 0 ? 0 : (int64_t)last - first + 1;
  return (block){row, i - row, columns ? first : 0, columns};
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                        int64_t begin, int64_t end) {
  const plan *p = data;
  while (begin < end) {
    block b = next_block(job, begin, end, p->at.widest);
    attend_block(job, p, memory, &b);
    begin += b.rows;
  }
}

/* ---- the family ---------------------------------------------------------- */

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .thread_bytes = lay_out(setting).bytes,
  };
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_choice c = choice(setting);
  return dfgnn__cpu_workspace(setting, &c);
}

static const char *applicable(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  if (200 * setting->signature->density < p[FILL])
    return "too few of a graph's pairs of nodes are edges";
  return dfgnn__cpu_simd_missing(p[SIMD]);
}

/* ROWS, the rows of a task, matters only to the schedule dynamic. */
static int legal(const int *p) {
  if (p[ROWS] != 256 && p[SCHEDULE] != DFGNN_CPU_DYNAMIC)
    return 0;
  return p[SIMD] >= 2 || (p[ROWS] == 256 && p[FILL] == 10);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const int *parameter = setting->parameter;
  dfgnn_cpu_choice c = choice(setting);
  dfgnn_cpu_job job;
  dfgnn__cpu_begin(&job, launch, &c);
  plan p = {parameter, job.kernels->dense, lay_out(setting)};
  dfgnn__cpu_rows(&job, c.schedule, parameter[ROWS], attend_rows, &p);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_dense) = {
    {
        .name = "cpu.attention.fwd.dense",
        .algorithm = "dense",
        .backend = "cpu",
        .ops = DFGNN_OPS_BY_HAND,
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .widened = 1,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .parameters = {DFGNN_CPU_SIMD,
                       {"rows", 2, {64, 256}, {0}},
                       {"fill", 2, {10, 30}, {0}},
                       DFGNN_CPU_SCHEDULE},
        .legal = legal,
        .applicable = applicable,
        .workspace = workspace,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
