/* columns.h - reductions of the values of edges at their sources
 *
 * Tiles are of neighbouring destinations, so that a source's edges are
 * anywhere.  The values of a chunk wait in a buffer; then each thread adds
 * those of some columns and some sources, edge after edge in the order of the
 * graph: the order of a sum is the same for any number of threads. */
#ifndef DFGNN_KERNELS_MLP_CPU_COLUMNS_H
#define DFGNN_KERNELS_MLP_CPU_COLUMNS_H

#include "kernels/mlp/cpu/rows.h"

typedef struct column_sums {
  const plan *p;
  dfgnn_reduce reduce;   /* what is done here */
  dfgnn_reduce of_mlp;   /* the MLP's, whose backward pass may be here: edges
                          * have numbers if it is an extreme, nodes degrees if
                          * it is a mean */
  storage *out;          /* [M, width]; NULL: nothing is asked for */
  int32_t *arg;          /* [M, width], or NULL */
  const storage *factor; /* [E], or NULL */
  int64_t width;
  scalar *sum;     /* [M, width] */
  scalar *waiting; /* [edges of a chunk, width] */
  int32_t *best;   /* [M, width] of extremes */
  int32_t *number; /* [edges of a chunk] of each among its source's, or NULL */
  int64_t *degree; /* [M], or NULL; with numbers, of the edges so far */
} column_sums;

static dfgnn_status make_column_sums(column_sums *s) {
  const dfgnn_matrix *m = &s->p->job->rows;
  const int64_t edges = s->p->chunk_tiles * s->p->tile;
  const size_t values = (size_t)most(m->sources * s->width, 1);
  const int mean = s->of_mlp == DFGNN_REDUCE_MEAN;
  const int extreme = dfgnn__mlp_is_extreme(s->of_mlp);
  if (extreme || mean)
    s->degree = calloc((size_t)most(m->sources, 1), sizeof *s->degree);
  if (extreme)
    s->number = malloc((size_t)edges * sizeof *s->number);
  if ((extreme && !s->number) || ((extreme || mean) && !s->degree))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int64_t e = 0; mean && e < m->edges; e++)
    s->degree[m->indices[e]]++;
  if (!s->out)
    return DFGNN_OK;
  s->waiting = allocate(edges * s->width);
  if (sizeof(storage) == sizeof(scalar))
    s->sum =
        memset(s->out, 0, (size_t)(m->sources * s->width) * sizeof *s->sum);
  else
    s->sum = calloc(values, sizeof *s->sum);
  if (dfgnn__mlp_is_extreme(s->reduce))
    s->best = malloc(values * sizeof *s->best);
  if (!s->waiting || !s->sum || (dfgnn__mlp_is_extreme(s->reduce) && !s->best))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; s->best && i < values; i++)
    s->best[i] = -1;
  return DFGNN_OK;
}

static void free_column_sums(column_sums *s) {
  if ((void *)s->sum != (void *)s->out)
    free(s->sum);
  free(s->waiting);
  free(s->best);
  free(s->number);
  free(s->degree);
}

/* Counts the edges of a chunk among their sources'. */
static void number_chunk(const column_sums *s, int64_t begin, int64_t end) {
  const int32_t *source = s->p->job->rows.indices;
  for (int64_t e = begin; e < end; e++)
    s->number[e - begin] = (int32_t)s->degree[source[e]]++;
}

/* values: [tile, row]; at: the tile's first edge in its chunk. */
static void put_tile(const column_sums *s, const tile *t, int64_t at,
                     const scalar *values, int64_t row) {
  for (int64_t i = 0; i < t->count; i++) {
    scalar *to = s->waiting + (at + i) * s->width;
    const scalar *from = values + i * row;
    if (!s->factor) {
      memcpy(to, from, (size_t)s->width * sizeof *to);
      continue;
    }
    const scalar factor = load_one(s->factor + t->place[i]);
    for (int64_t k = 0; k < s->width; k++)
      to[k] = factor * from[k];
  }
}

/* A thread's part of the sums: some sources, some columns. */
typedef struct portion {
  int64_t source, source_end, column, column_end;
} portion;

static portion portion_of(const column_sums *s, int part, int parts) {
  const int64_t line = ALIGNED / (int64_t)sizeof(scalar);
  const int64_t lines = (s->width + line - 1) / line;
  const int64_t across = least(parts, lines);
  const int64_t down = parts / across, sources = s->p->job->rows.sources;
  const int64_t i = part / across, j = part % across;
  if (i >= down)
    return (portion){0, 0, 0, 0};
  return (portion){sources * i / down, sources * (i + 1) / down,
                   lines * j / across * line,
                   least(lines * (j + 1) / across * line, s->width)};
}

static void add_edge(const column_sums *s, int64_t source, const scalar *value,
                     int32_t number, int64_t from, int64_t to) {
  scalar *sum = s->sum + source * s->width;
  if (!s->best) {
    for (int64_t k = from; k < to; k++)
      sum[k] += value[k];
    return;
  }
  int32_t *best = s->best + source * s->width;
  if (best[from] < 0) {
    for (int64_t k = from; k < to; k++) {
      sum[k] = value[k];
      best[k] = number;
    }
    return;
  }
  take_extreme(s->reduce == DFGNN_REDUCE_MAX, to - from, sum + from,
               best + from, value + from, number);
}

/* Adds what waits of the edges [begin, end). */
static void add_chunk(const column_sums *s, int64_t begin, int64_t end,
                      int part, int parts) {
  const int32_t *source = s->p->job->rows.indices;
  const portion x = portion_of(s, part, parts);
  for (int64_t e = begin; x.column < x.column_end && e < end; e++)
    if (source[e] >= x.source && source[e] < x.source_end)
      add_edge(s, source[e], s->waiting + (e - begin) * s->width,
               s->number ? s->number[e - begin] : 0, x.column, x.column_end);
}

static void finish_column(const column_sums *s, int64_t source) {
  scalar *sum = s->sum + source * s->width;
  if (s->reduce == DFGNN_REDUCE_MEAN && s->degree[source]) {
    const scalar share = 1 / (scalar)s->degree[source];
    for (int64_t k = 0; k < s->width; k++)
      sum[k] *= share;
  }
  if ((void *)s->sum != (void *)s->out)
    store_row(s->out + source * s->width, sum, s->width);
  if (s->arg)
    memcpy(s->arg + source * s->width, s->best + source * s->width,
           (size_t)s->width * sizeof *s->arg);
}

#endif
