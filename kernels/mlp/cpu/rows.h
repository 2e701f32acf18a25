/* rows.h - reductions of the values of edges at their destinations
 *
 * A row that lies in one tile is reduced there.  Of one that tiles cut, each
 * tile leaves its part: the head, of the row that began before the tile, and
 * the tail, of the row that goes on after it.  They are joined in order when
 * the chunk is done. */
#ifndef DFGNN_KERNELS_MLP_CPU_ROWS_H
#define DFGNN_KERNELS_MLP_CPU_ROWS_H

#include "kernels/mlp/cpu/forward.h"

typedef struct row_sums {
  const plan *p;
  dfgnn_reduce reduce;
  storage *out;               /* [N, width]; NULL: nothing is asked for */
  int32_t *arg;               /* [N, width], or NULL */
  const storage *factor;      /* [E], or NULL */
  int64_t width, row;         /* row: numbers from one to the next in the memory
                               * below */
  scalar *head, *tail, *open; /* [chunk_tiles], [chunk_tiles], 1 */
  int32_t *head_arg, *tail_arg, *open_arg; /* of extremes */
  scalar *memory;
  int32_t *integers;
} row_sums;

static dfgnn_status make_row_sums(row_sums *r) {
  const int64_t parts = r->p->chunk_tiles;
  if (!r->out)
    return DFGNN_OK;
  r->row = padded(r->width);
  r->memory = allocate((2 * parts + 1) * r->row);
  r->integers = malloc((size_t)((2 * parts + 1) * r->row) * sizeof(int32_t));
  if (!r->memory || !r->integers)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  r->head = r->memory;
  r->tail = r->head + parts * r->row;
  r->open = r->tail + parts * r->row;
  r->head_arg = r->integers;
  r->tail_arg = r->head_arg + parts * r->row;
  r->open_arg = r->tail_arg + parts * r->row;
  return DFGNN_OK;
}

static void free_row_sums(row_sums *r) {
  free(r->memory);
  free(r->integers);
}

/* ---- one value more ------------------------------------------------------ */

/* Takes the value if it is better than *best; NaN is better than any number, as
 * torch has it, and of equals the first is kept. */
static inline int better(int max, scalar x, scalar best) {
  return (max ? x > best : x < best) || (x != x && best == best);
}

static void take_extreme(int max, int64_t width, scalar *best, int32_t *arg,
                         const scalar *value, int32_t number) {
  if (max) {
    for (int64_t k = 0; k < width; k++) {
      const int take = better(1, value[k], best[k]);
      best[k] = take ? value[k] : best[k];
      arg[k] = take ? number : arg[k];
    }
  } else {
    for (int64_t k = 0; k < width; k++) {
      const int take = better(0, value[k], best[k]);
      best[k] = take ? value[k] : best[k];
      arg[k] = take ? number : arg[k];
    }
  }
}

/* The edges [from, to) of a tile, which are of one row. */
static void reduce_part(const row_sums *r, const tile *t, scalar *sum,
                        int32_t *arg, const scalar *values, int64_t row,
                        int64_t from, int64_t to) {
  const int64_t width = r->width;
  if (dfgnn__mlp_is_extreme(r->reduce)) {
    const int max = r->reduce == DFGNN_REDUCE_MAX;
    memcpy(sum, values + from * row, (size_t)width * sizeof *sum);
    for (int64_t k = 0; k < width; k++)
      arg[k] = t->number[from];
    for (int64_t i = from + 1; i < to; i++)
      take_extreme(max, width, sum, arg, values + i * row, t->number[i]);
    return;
  }
  memset(sum, 0, (size_t)width * sizeof *sum);
  for (int64_t i = from; i < to; i++) {
    const scalar *value = values + i * row;
    if (r->factor) {
      const scalar factor = load_one(r->factor + t->place[i]);
      for (int64_t k = 0; k < width; k++)
        sum[k] += factor * value[k];
    } else {
      for (int64_t k = 0; k < width; k++)
        sum[k] += value[k];
    }
  }
}

static void finish_row(const row_sums *r, int64_t row, scalar *sum,
                       const int32_t *arg) {
  const dfgnn_matrix *m = &r->p->job->rows;
  if (r->reduce == DFGNN_REDUCE_MEAN) {
    const scalar share =
        1 / (scalar)(offset_of(m, row + 1) - offset_of(m, row));
    for (int64_t k = 0; k < r->width; k++)
      sum[k] *= share;
  }
  store_row(r->out + row * r->width, sum, r->width);
  if (r->arg)
    memcpy(r->arg + row * r->width, arg, (size_t)r->width * sizeof *arg);
}

/* ---- tiles and chunks ---------------------------------------------------- */

/* values: [tile, row].  slot: the tile's number in its chunk. */
static void reduce_tile(const row_sums *r, const tile *t, int64_t slot,
                        const scalar *values, int64_t row) {
  const dfgnn_matrix *m = &r->p->job->rows;
  for (int64_t from = 0, to; from < t->count; from = to) {
    const int64_t node = t->row[from];
    const int64_t end = offset_of(m, node + 1) - t->begin;
    const int begins = offset_of(m, node) >= t->begin, ends = end <= t->count;
    to = least(end, t->count);
    const int64_t at = slot * r->row;
    if (!begins)
      reduce_part(r, t, r->head + at, r->head_arg + at, values, row, from, to);
    else if (!ends)
      reduce_part(r, t, r->tail + at, r->tail_arg + at, values, row, from, to);
    else
      reduce_part(r, t, t->sum, t->arg, values, row, from, to);
    if (begins && ends)
      finish_row(r, node, t->sum, t->arg);
  }
}

static void join_part(const row_sums *r, const scalar *part,
                      const int32_t *arg) {
  for (int64_t k = 0; k < r->width; k++)
    if (!dfgnn__mlp_is_extreme(r->reduce)) {
      r->open[k] += part[k];
    } else if (better(r->reduce == DFGNN_REDUCE_MAX, part[k], r->open[k])) {
      r->open[k] = part[k];
      r->open_arg[k] = arg[k];
    }
}

/* Joins the parts of the tiles from `first` on. */
static void join_chunk(const row_sums *r, int64_t first, int64_t count) {
  const plan *p = r->p;
  const dfgnn_matrix *m = &p->job->rows;
  for (int64_t slot = 0; r->out && slot < count; slot++) {
    const int64_t begin = (first + slot) * p->tile, at = slot * r->row;
    const int64_t end = least(begin + p->tile, m->edges);
    const int64_t head = row_with(m, begin), tail = row_with(m, end - 1);
    if (offset_of(m, head) < begin) {
      join_part(r, r->head + at, r->head_arg + at);
      if (offset_of(m, head + 1) <= end)
        finish_row(r, head, r->open, r->open_arg);
    }
    if (offset_of(m, tail) >= begin && offset_of(m, tail + 1) > end) {
      memcpy(r->open, r->tail + at, (size_t)r->width * sizeof *r->open);
      memcpy(r->open_arg, r->tail_arg + at,
             (size_t)r->width * sizeof *r->open_arg);
    }
  }
}

/* Rows without edges, of which no tile knows. */
static void clear_row(const row_sums *r, int64_t row) {
  const dfgnn_matrix *m = &r->p->job->rows;
  if (!r->out || offset_of(m, row) < offset_of(m, row + 1))
    return;
  memset(r->out + row * r->width, 0, (size_t)r->width * sizeof *r->out);
  for (int64_t k = 0; r->arg && k < r->width; k++)
    r->arg[row * r->width + k] = -1;
}

#endif
