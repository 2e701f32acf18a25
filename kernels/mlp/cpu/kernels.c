/* kernels.c - a pass of an MLP on edges, which kernels/cpu.am compiles for each
 * instruction set and type */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/cpu_vector.h"
#include "kernels/mlp/cpu/table.h"
#include "lib/base/error.h"

#include "kernels/common/cpu_target.h"

#include "kernels/mlp/cpu/backward.h"
#include "kernels/mlp/cpu/columns.h"

typedef struct pass {
  plan p;
  row_sums rows;       /* out_dst, or grad_dst_part */
  column_sums columns; /* out_src, or grad_src_part */
  int threads;
  tile *tiles; /* one for each thread */
  scalar *scratch;
  int64_t *integers;
} pass;

/* ---- memory -------------------------------------------------------------- */

static void set_reductions(pass *x) {
  const dfgnn_edge_mlp *mlp = &x->p.job->mlp;
  const dfgnn_edge_mlp_args *args = &x->p.job->args;
  x->rows.p = x->columns.p = &x->p;
  x->columns.of_mlp = mlp->reduce_src;
  if (x->p.backward) {
    x->rows.reduce = DFGNN_REDUCE_SUM;
    x->rows.out = args->grad_dst_part;
    x->columns.reduce = DFGNN_REDUCE_SUM;
    x->columns.out = args->grad_src_part;
    x->rows.width = x->columns.width = mlp->width[0];
    return;
  }
  x->rows.reduce = mlp->reduce_dst;
  x->rows.out = args->out_dst;
  x->rows.arg = args->arg_dst;
  x->rows.factor = args->dst_factor;
  x->columns.reduce = mlp->reduce_src;
  x->columns.out = args->out_src;
  x->columns.arg = args->arg_src;
  x->columns.factor = args->src_factor;
  x->rows.width = x->columns.width = x->p.out;
}

static dfgnn_status make_tiles(pass *x) {
  const plan *p = &x->p;
  const int64_t integers = 4 * p->tile + most(p->out_row, p->layer[0].row);
  x->threads = (int)most(least(p->shares, p->job->threads), 1);
  x->tiles = calloc((size_t)x->threads, sizeof *x->tiles);
  x->scratch = allocate(x->threads * p->scratch);
  x->integers = malloc((size_t)(x->threads * integers) * sizeof *x->integers);
  if (!x->tiles || !x->scratch || !x->integers)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int i = 0; i < x->threads; i++)
    make_tile(&x->tiles[i], p, x->scratch + i * p->scratch,
              x->integers + i * integers);
  return DFGNN_OK;
}

static void free_pass(pass *x) {
  free_row_sums(&x->rows);
  free_column_sums(&x->columns);
  free(x->p.memory);
  free(x->tiles);
  free(x->scratch);
  free(x->integers);
}

/* ---- tiles --------------------------------------------------------------- */

static void forward_tile(const pass *x, const tile *t, int64_t slot) {
  const plan *p = &x->p;
  storage *out = p->job->args.edge_out;
  for (int64_t i = 0; out && i < t->count; i++)
    store_row(out + t->place[i] * p->out, t->out + i * p->out_row, p->out);
  if (x->rows.out)
    reduce_tile(&x->rows, t, slot, t->out, p->out_row);
  if (x->columns.out)
    put_tile(&x->columns, t, slot * p->tile, t->out, p->out_row);
}

static void backward_tile(const pass *x, const tile *t, int64_t slot,
                          scalar *sums) {
  const plan *p = &x->p;
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const dfgnn_edge_mlp_args *args = &p->job->args;
  const side at_destination = {.reduce = mlp->reduce_dst,
                               .grad = args->grad_out_dst,
                               .factor = args->dst_factor,
                               .grad_factor = args->grad_dst_factor,
                               .arg = args->arg_dst,
                               .node = t->row,
                               .number = t->number};
  const side at_source = {
      .reduce = mlp->reduce_src,
      .grad = args->grad_out_src,
      .factor = args->src_factor,
      .grad_factor = args->grad_src_factor,
      .arg = args->arg_src,
      .node = t->column,
      .number = x->columns.number ? x->columns.number + slot * p->tile : NULL,
      .degree = x->columns.degree};
  start_gradient(t);
  add_side(t, &at_destination);
  add_side(t, &at_source);
  const scalar *grad = differentiate_tile(t, sums);
  const int64_t row = p->layer[0].row;
  if (x->rows.out)
    reduce_tile(&x->rows, t, slot, grad, row);
  if (x->columns.out)
    put_tile(&x->columns, t, slot * p->tile, grad, row);
}

/* The tiles of a chunk that are a share's. */
static void run_share(const pass *x, tile *t, int64_t share, int64_t first,
                      int64_t count) {
  const plan *p = &x->p;
  for (int64_t slot = share * p->share_tiles;
       slot < least((share + 1) * p->share_tiles, count); slot++) {
    take_edges(t, first + slot);
    compute_tile(t);
    if (p->backward)
      backward_tile(x, t, slot, p->sums + share * p->share_size);
    else
      forward_tile(x, t, slot);
  }
}

static void run_chunk(const pass *x, int64_t first) {
  const plan *p = &x->p;
  const int64_t count = least(p->chunk_tiles, p->tiles - first);
  const int64_t begin = first * p->tile;
  const int64_t end = least(begin + count * p->tile, p->job->rows.edges);
  if (x->columns.number) {
#pragma omp single
    number_chunk(&x->columns, begin, end);
  }
#pragma omp for schedule(dynamic)
  for (int64_t share = 0; share < p->shares; share++)
    run_share(x, &x->tiles[omp_get_thread_num()], share, first, count);
#pragma omp for schedule(dynamic)
  for (int part = 0; part <= (x->columns.out ? x->threads : 0); part++) {
    if (part == 0)
      join_chunk(&x->rows, first, count);
    else
      add_chunk(&x->columns, begin, end, part - 1, x->threads);
  }
}

static void run_chunks(const pass *x) {
  const plan *p = &x->p;
  const dfgnn_matrix *m = &p->job->rows;
#pragma omp parallel num_threads(x->threads)
  {
    clear_between(&x->tiles[omp_get_thread_num()]);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < m->destinations; row++)
      clear_row(&x->rows, row);
    for (int64_t first = 0; first < p->tiles; first += p->chunk_tiles)
      run_chunk(x, first);
    if (x->columns.out) {
#pragma omp for schedule(static)
      for (int64_t source = 0; source < m->sources; source++)
        finish_column(&x->columns, source);
    }
  }
}

/* ---- gradients of parameters --------------------------------------------- */

/* Adds up what the shares have at `at`, in order: rows of `width` numbers that
 * are padded. */
static void add_shares(const plan *p, scalar *to, int64_t at, int64_t rows,
                       int64_t width) {
  for (int64_t i = 0; to && i < rows; i++, to += width)
    for (int64_t k = 0; k < width; k++) {
      const scalar *sum = p->sums + at + i * padded(width) + k;
      scalar total = 0;
      for (int64_t share = 0; share < p->shares; share++)
        total += sum[share * p->share_size];
      to[k] = total;
    }
}

static void write_parameters(const plan *p) {
  const dfgnn_edge_mlp_args *args = &p->job->args;
  for (int l = 0; l < p->layers; l++) {
    const layer *y = &p->layer[l];
    add_shares(p, args->grad_weight[l], y->weight_sums, y->width, y->in);
    add_shares(p, args->grad_bias[l], y->bias_sums, 1, y->width);
  }
  add_shares(p, args->grad_norm_weight, p->norm_weight_sums, 1, p->out);
  add_shares(p, args->grad_norm_bias, p->norm_bias_sums, 1, p->out);
}

static dfgnn_status run(const dfgnn_mlp_job *job) {
  pass x = {0};
  dfgnn_status status = make_plan(&x.p, job);
  set_reductions(&x);
  if (!status)
    status = make_row_sums(&x.rows);
  if (!status)
    status = make_column_sums(&x.columns);
  if (!status)
    status = make_tiles(&x);
  if (!status) {
    run_chunks(&x);
    if (x.p.backward)
      write_parameters(&x.p);
  }
  free_pass(&x);
  return status;
}

const dfgnn_mlp_kernels CPU_TABLE_OF(dfgnn__mlp) = {.run = run};

CPU_TARGET_END
