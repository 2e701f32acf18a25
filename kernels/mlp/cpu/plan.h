/* plan.h - sizes of tiles and chunks, packed weights, a thread's memory
 *
 * Edges are taken in tiles, whose values stay in the second-level cache.  A
 * chunk is a number of tiles that threads work on side by side; what sums over
 * sources need of its edges waits in a buffer until the chunk is done.  The
 * tiles of a chunk are dealt to `shares`, each of which adds gradients of
 * parameters into sums of its own: their number depends on the problem alone,
 * so that the order of every sum does. */
#ifndef DFGNN_KERNELS_MLP_CPU_PLAN_H
#define DFGNN_KERNELS_MLP_CPU_PLAN_H

#include "kernels/mlp/cpu/activation.h"
#include "kernels/mlp/cpu/gemm.h"
#include "kernels/mlp/job.h"

#if CPU_ISA == CPU_AVX512 && CPU_DTYPE == CPU_BF16 &&                          \
    (__GNUC__ >= 11 || defined(__clang__))
#include "kernels/mlp/cpu/gemm_amx.h"
#define HAVE_AMX 1
#else
#define HAVE_AMX 0
#endif

enum {
  TILE_BYTES = 384 << 10, /* of a tile's values */
  TILE_LEAST = 8 * GEMM_ROWS,
  TILE_MOST = 32 * GEMM_ROWS,
  CHUNK_BYTES = 8 << 20, /* of what waits for sums over sources */
  CHUNK_TILES = 4096,
  SHARES_MOST = 32,
  SHARE_WORK = 8,           /* tiles that make a share worth its sums */
  SHARES_BYTES = 128 << 20, /* of the sums of all shares */
  ALIGNED = 64              /* bytes: a line of the cache */
};

typedef struct layer {
  int64_t in, width;
  int64_t row; /* of its values in a tile: padded, no power of two */
  scalar *forward, *backward;     /* W^T and W, packed; NULL: no product */
  scalar *bias;                   /* [padded], or NULL */
  int64_t weight_sums, bias_sums; /* where they are in a share's, from 0 */
} layer;

typedef struct plan {
  const dfgnn_mlp_job *job;
  int layers, backward;
  int direct;     /* the last layer's z is what the norm takes */
  int amx;        /* products are AMX's, of operands of bf16 */
  int64_t copied; /* numbers of a thread that they copy operands to */
  layer layer[DFGNN_MLP_LAYERS];
  int64_t out, out_row;            /* C */
  int64_t edge, edge_row;          /* Ce */
  scalar *norm_weight, *norm_bias; /* [C], or NULL */
  int64_t norm_weight_sums, norm_bias_sums;
  int64_t tile;  /* edges */
  int64_t tiles; /* of the graph */
  int64_t shares, share_tiles, chunk_tiles;
  int64_t share_size; /* numbers */
  scalar *sums;       /* [shares, share_size] */
  int64_t scratch;    /* numbers of a thread */
  scalar *memory;     /* what all the pointers above point into */
} plan;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Rows that are a power of two apart would fall on the same lines of a cache.
 */
static int64_t row_of(int64_t width) {
  const int64_t row = padded(width);
  return row * (int64_t)sizeof(scalar) % 256 ? row : row + VECTOR;
}

static scalar *allocate(int64_t numbers) {
  const size_t bytes = (size_t)most(numbers, 1) * sizeof(scalar);
  return aligned_alloc(ALIGNED, (bytes + ALIGNED - 1) / ALIGNED * ALIGNED);
}

/* A pointer into `memory`, which is NULL while sizes are counted. */
static scalar *take(scalar *memory, int64_t *used, int64_t numbers) {
  const int64_t at = *used;
  *used += (numbers + ALIGNED - 1) / ALIGNED * ALIGNED;
  return memory ? memory + at : NULL;
}

/* ---- storage ------------------------------------------------------------- */

CPU_TARGET static void load_row(scalar *to, const storage *from, int64_t n) {
  int64_t i = 0;
  for (; i + VECTOR <= n; i += VECTOR)
    s_store(to + i, v_load(from + i));
  if (i < n)
    s_store_tail(to + i, v_load_tail(from + i, v_tail(n - i)), v_tail(n - i));
}

CPU_TARGET static void add_row(scalar *to, const storage *from, int64_t n) {
  int64_t i = 0;
  for (; i + VECTOR <= n; i += VECTOR)
    s_store(to + i, v_add(s_load(to + i), v_load(from + i)));
  if (i < n) {
    const tail t = v_tail(n - i);
    s_store_tail(to + i,
                 v_add(s_load_tail(to + i, t), v_load_tail(from + i, t)), t);
  }
}

CPU_TARGET static void store_row(storage *to, const scalar *from, int64_t n) {
  int64_t i = 0;
  for (; i + VECTOR <= n; i += VECTOR)
    v_store(to + i, s_load(from + i));
  if (i < n)
    v_store_tail(to + i, s_load_tail(from + i, v_tail(n - i)), v_tail(n - i));
}

static scalar load_one(const storage *from) {
  scalar x;
  load_row(&x, from, 1);
  return x;
}

/* ---- the graph ----------------------------------------------------------- */

static inline int64_t offset_of(const dfgnn_matrix *m, int64_t row) {
  return m->offsets64 ? ((const int64_t *)m->offsets)[row]
                      : ((const int32_t *)m->offsets)[row];
}

/* The place of an edge in the caller's list. */
static inline int64_t place_of(const dfgnn_matrix *m, int64_t edge) {
  if (!m->edge_order)
    return edge;
  return m->offsets64 ? ((const int64_t *)m->edge_order)[edge]
                      : ((const int32_t *)m->edge_order)[edge];
}

/* The row that an edge is in. */
static int64_t row_with(const dfgnn_matrix *m, int64_t edge) {
  int64_t low = 0, high = m->destinations; /* in [low, high) */
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (offset_of(m, middle) <= edge)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* ---- weights ------------------------------------------------------------- */

/* Packs B[k][n] = from[k * k_step + n * n_step]. */
static void pack(scalar *to, const storage *from, int64_t inner,
                 int64_t columns, int64_t k_step, int64_t n_step) {
  for (int64_t panel = 0; panel < columns; panel += GEMM_PANEL)
    for (int64_t k = 0; k < inner; k++)
      for (int64_t n = panel; n < panel + GEMM_PANEL; n++)
        *to++ = n < columns ? load_one(from + k * k_step + n * n_step) : 0;
}

static scalar *take_vector(scalar *memory, int64_t *used, const void *from,
                           int64_t width) {
  if (!from)
    return NULL;
  scalar *to = take(memory, used, padded(width));
  if (to) {
    memset(to, 0, (size_t)padded(width) * sizeof *to);
    load_row(to, from, width);
  }
  return to;
}

/* The same as AMX reads it. */
static void pack_pairs(uint16_t *to, const storage *from, int64_t inner,
                       int64_t columns, int64_t k_step, int64_t n_step) {
#if HAVE_AMX
  for (int64_t panel = 0; panel < padded(columns); panel += 16)
    for (int64_t k = 0; k < amx_inner(inner); k += 2)
      for (int64_t n = panel; n < panel + 16; n++)
        for (int64_t i = k; i < k + 2; i++)
          *to++ = n < columns && i < inner
                      ? amx_number(load_one(from + i * k_step + n * n_step))
                      : 0;
#else
  (void)to, (void)from, (void)inner, (void)columns, (void)k_step, (void)n_step;
#endif
}

static scalar *take_packed(const plan *p, const storage *from, int64_t inner,
                           int64_t columns, int64_t k_step, int64_t n_step,
                           scalar *memory, int64_t *used) {
  int64_t numbers = packed_size(inner, columns);
#if HAVE_AMX
  if (p->amx)
    numbers = amx_packed(inner, columns) / 2;
#endif
  scalar *to = take(memory, used, numbers);
  if (to && p->amx)
    pack_pairs((uint16_t *)to, from, inner, columns, k_step, n_step);
  else if (to)
    pack(to, from, inner, columns, k_step, n_step);
  return to;
}

static void take_layer(plan *p, int l, scalar *memory, int64_t *used) {
  const dfgnn_edge_mlp_args *args = &p->job->args;
  layer *y = &p->layer[l];
  y->bias = take_vector(memory, used, args->bias[l], y->width);
  if (!args->weight[l])
    return;
  y->forward =
      take_packed(p, args->weight[l], y->in, y->width, 1, y->in, memory, used);
  if (p->backward)
    y->backward = take_packed(p, args->weight[l], y->width, y->in, y->in, 1,
                              memory, used);
}

static void take_all(plan *p, scalar *memory, int64_t *used) {
  const dfgnn_edge_mlp_args *args = &p->job->args;
  for (int l = 0; l < p->layers; l++)
    take_layer(p, l, memory, used);
  p->norm_weight = take_vector(memory, used, args->norm_weight, p->out);
  p->norm_bias = take_vector(memory, used, args->norm_bias, p->out);
  p->sums = take(memory, used, p->shares * p->share_size);
}

/* ---- sizes --------------------------------------------------------------- */

/* A share adds the gradients of parameters that are asked for here. */
static void place_sums(plan *p) {
  const dfgnn_edge_mlp_args *args = &p->job->args;
  int64_t used = 0;
  for (int l = 0; l < p->layers; l++) {
    layer *y = &p->layer[l];
    y->weight_sums = used;
    if (args->grad_weight[l])
      take(NULL, &used, y->width * padded(y->in));
    y->bias_sums = used;
    if (args->grad_bias[l])
      take(NULL, &used, padded(y->width));
  }
  p->norm_weight_sums = used;
  if (args->grad_norm_weight)
    take(NULL, &used, padded(p->out));
  p->norm_bias_sums = used;
  if (args->grad_norm_bias)
    take(NULL, &used, padded(p->out));
  p->share_size = used;
}

static void set_tiles(plan *p) {
  /* e and its gradient; e' and the norm's; values and slopes of the layers */
  int64_t numbers = 2 * p->edge_row + 3 * p->out_row;
  for (int l = 0; l < p->layers; l++)
    numbers += 2 * p->layer[l].row;
  const dfgnn_mlp_blocks *blocks = &p->job->blocks;
  const int64_t tile_bytes =
      blocks->tile_bytes ? blocks->tile_bytes : TILE_BYTES;
  const int64_t chunk_bytes =
      blocks->chunk_bytes ? blocks->chunk_bytes : CHUNK_BYTES;
  p->tile = tile_bytes / (numbers * (int64_t)sizeof(scalar));
  p->tile = p->tile / GEMM_ROWS * GEMM_ROWS;
  p->tile = least(most(p->tile, TILE_LEAST), TILE_MOST);
  p->scratch = 0;
  take(NULL, &p->scratch,
       (numbers + 1) * p->tile + most(p->out_row, p->layer[0].row));
#if HAVE_AMX
  for (int l = 0; p->amx && l < p->layers; l++) {
    const int64_t in = p->layer[l].in, width = p->layer[l].width;
    p->copied = most(p->copied, amx_copied(p->tile, most(in, width), 0) / 2);
    p->copied = most(p->copied, amx_copied(width, p->tile, in) / 2);
  }
#endif
  p->scratch += p->copied;
  p->scratch += 32 * ALIGNED; /* each array begins a line */
  const int64_t edges = p->job->rows.edges;
  p->tiles = (edges + p->tile - 1) / p->tile;
  p->shares = p->tiles / SHARE_WORK;
  if (p->share_size)
    p->shares = least(p->shares,
                      SHARES_BYTES / (int64_t)sizeof(scalar) / p->share_size);
  p->shares = most(least(p->shares, SHARES_MOST), 1);
  /* as long as may be: threads wait for each other at a chunk's end */
  const int64_t width = most(p->out, p->layer[0].width);
  const int64_t tiles = least(
      chunk_bytes / (p->tile * width * (int64_t)sizeof(scalar)), CHUNK_TILES);
  p->share_tiles = most(least(tiles, p->tiles + p->shares - 1) / p->shares, 1);
  p->chunk_tiles = p->share_tiles * p->shares;
}

static dfgnn_status make_plan(plan *p, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  *p = (plan){.job = job,
              .layers = mlp->layers,
              .backward = job->pass == DFGNN_PASS_BACKWARD,
              .direct = !mlp->gate && mlp->last == DFGNN_ACTIVATION_NONE,
              .amx = HAVE_AMX && job->blocks.amx,
              .out = dfgnn__mlp_out_width(mlp),
              .edge = mlp->edge_dim};
  p->out_row = row_of(p->out);
  p->edge_row = row_of(p->edge);
  for (int l = 0; l < p->layers; l++) {
    p->layer[l].in = dfgnn__mlp_in_width(mlp, l);
    p->layer[l].width = mlp->width[l];
    p->layer[l].row = row_of(mlp->width[l]);
  }
  place_sums(p);
  set_tiles(p);
  int64_t used = 0;
  take_all(p, NULL, &used);
  if (!(p->memory = allocate(used)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  used = 0;
  take_all(p, p->memory, &used);
  memset(p->sums, 0, (size_t)(p->shares * p->share_size) * sizeof *p->sums);
  return DFGNN_OK;
}

#endif
