/* backward_walk.c - the walk over the rows of one side */
#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"
#include "kernels/attention/operators.h"

/* Edges of a chunk; rows of a task. */
enum { CHUNK = 64, ROWS = 64 };

/* ---- the memory of a thread ---------------------------------------------- */

typedef struct scratch {
  char *weights, *gradients, *divided; /* of a chunk */
  int32_t *indices;
  char *values, *scores; /* the sums of the two kinds */
  char *all;             /* for all heads at once */
} scratch;

static size_t chunk_bytes(void) {
  return CHUNK * sizeof(double) + DFGNN_CPU_PADDING;
}

/* Four arrays of a chunk, three numbers a head, three sums of a row. */
static size_t all_bytes(const dfgnn_problem *problem) {
  size_t row = (size_t)(problem->heads * problem->dim);
  return (4 * DFGNN_CPU_ACROSS + 4 * DFGNN_CPU_MOST_HEADS + 3 * row) *
             sizeof(double) +
         10 * 2 * DFGNN_CPU_PADDING;
}

size_t dfgnn__cpu_backward_thread(const dfgnn_setting *setting) {
  return dfgnn__cpu_aligned(4 * chunk_bytes()) +
         2 * dfgnn__cpu_sum_bytes(setting) +
         dfgnn__cpu_aligned(all_bytes(setting->problem) +
                            dfgnn__cpu_window_bytes(setting->problem));
}

static scratch scratch_in(const dfgnn_cpu_side *side, char *memory) {
  char *sums = memory + dfgnn__cpu_aligned(4 * chunk_bytes());
  return (scratch){.weights = memory,
                   .gradients = memory + chunk_bytes(),
                   .divided = memory + 2 * chunk_bytes(),
                   .indices = (int32_t *)(memory + 3 * chunk_bytes()),
                   .values = sums,
                   .scores = sums + side->job.sum_bytes,
                   .all = sums + 2 * side->job.sum_bytes};
}

/* ---- a chunk of edges ---------------------------------------------------- */

typedef struct chunk {
  int64_t begin, end;
  const char *weights, *gradients;
  int zero; /* may some terms be zero? */
} chunk;

static void compute(const dfgnn_cpu_side *s, int64_t row, int64_t head,
                    chunk *c, char *weights, char *gradients) {
  const dfgnn_cpu_kernels *kernels = s->job.kernels;
  int64_t count = c->end - c->begin;
  c->weights = weights;
  c->gradients = gradients;
  kernels->score[s->job.op](&s->job, row, head, c->begin, c->end, weights);
  if (s->wants_gradients)
    kernels->score[DFGNN_OP_GT](&s->product, row, head, c->begin, c->end,
                                gradients);
  c->zero = kernels->terms(&s->job, row, head, c->begin, count, weights,
                           s->wants_gradients ? gradients : NULL);
}

static void terms_of(const dfgnn_cpu_side *s, const scratch *m, int64_t row,
                     int64_t head, chunk *c) {
  const dfgnn_cpu_job *job = &s->job;
  const dfgnn_cpu_kernels *kernels = job->kernels;
  int64_t count = c->end - c->begin;
  size_t at = (size_t)(head * job->edges + c->begin) * job->scalar_size;

  if (s->terms == DFGNN_CPU_READ && job->by_source) {
    c->zero = kernels->fetch(job, head, c->begin, count, s->weights,
                             s->gradients, m->weights, m->gradients);
    c->weights = m->weights;
    c->gradients = m->gradients;
  } else if (s->terms == DFGNN_CPU_READ) {
    c->weights = NULL; /* a walk over rows needs none */
    c->gradients = s->gradients + at;
    c->zero = kernels->has_zero(c->gradients, count);
  } else if (s->terms == DFGNN_CPU_SPILL && !job->by_source) {
    compute(s, row, head, c, s->weights + at, s->gradients + at);
  } else {
    compute(s, row, head, c, m->weights, m->gradients);
    if (s->terms == DFGNN_CPU_SPILL)
      kernels->spread(job, head, c->begin, count, c->gradients, s->gradients);
  }
}

/* The jobs that gather, for a chunk. */
typedef struct gathering {
  const dfgnn_cpu_job *job, *values, *scores;
  dfgnn_cpu_job copies[3];
} gathering;

static const dfgnn_cpu_job *
with_indices(dfgnn_cpu_job *copy, const dfgnn_cpu_job *job, int32_t *indices) {
  *copy = *job;
  copy->indices = indices;
  copy->prefetch = 0;
  return copy;
}

/* Leaves out edges without weight and gradient: 0 times an infinite feature
 * would be NaN. */
static void leave_out_zeros(const dfgnn_cpu_side *s, const scratch *m,
                            gathering *g, chunk *c) {
  c->end =
      s->job.kernels->compact(&s->job, c->begin, c->end - c->begin, c->weights,
                              s->wants_gradients ? c->gradients : NULL,
                              m->indices, m->weights, m->gradients);
  c->begin = 0;
  c->weights = m->weights;
  c->gradients = m->gradients;
  g->job = with_indices(&g->copies[0], &s->job, m->indices);
  g->values = with_indices(&g->copies[1], &s->values, m->indices);
  g->scores = with_indices(&g->copies[2], &s->scores, m->indices);
}

/* Adds a chunk to the sums.  row >= 0: the sums are complete then, and those of
 * GT and GAT, which are gradients but for a factor, are written. */
static void add(const dfgnn_cpu_side *s, const scratch *m, const gathering *g,
                const chunk *c, int64_t own, int64_t head, double before,
                int64_t row, void *att_sum) {
  const dfgnn_cpu_kernels *kernels = s->job.kernels;
  dfgnn_op op = s->job.op;
  int direct = !DFGNN_HAS_PARAMETERS(op);
  if (s->wants_values)
    kernels->accumulate(g->values, head, c->begin, c->end, c->weights,
                        m->values, before, direct ? row : -1, 1);
  if (!s->wants_scores)
    return;
  if (DFGNN_HAS_KEY(op)) {
    kernels->accumulate(g->scores, head, c->begin, c->end, c->gradients,
                        m->scores, before, row, s->job.scale);
  } else if (DFGNN_HAS_NORMS(op)) {
    kernels->divide(g->job, head, c->begin, c->end - c->begin, c->gradients,
                    m->divided);
    kernels->accumulate(g->scores, head, c->begin, c->end, m->divided,
                        m->scores, before, -1, 1);
  } else if (s->job.by_source) {
    kernels->slopes(g->job, own, head, c->begin, c->end, c->gradients,
                    m->values, 1, NULL);
  } else {
    kernels->slopes(g->job, own, head, c->begin, c->end, c->gradients,
                    m->scores, before, att_sum);
  }
}

/* ---- a row --------------------------------------------------------------- */

typedef dfgnn_cpu_parameters parameters;

/* Walks the edges of a row; returns the gradient of GAT's score of the row. */
static double sum_row(const dfgnn_cpu_side *s, const scratch *m, int64_t row,
                      int64_t head, const parameters *p) {
  const dfgnn_cpu_job *job = &s->job;
  void *att = p->att ? dfgnn__cpu_scalar(job, p->att, head * job->dim) : NULL;
  const int64_t begin = dfgnn__cpu_offset(job, row);
  const int64_t end = dfgnn__cpu_offset(job, row + 1);
  double scalar = 0;
  for (int64_t e = begin;;) {
    int64_t next = end - e < CHUNK ? end : e + CHUNK;
    gathering g; /* without an initialiser: the copies are rarely used */
    g.job = job;
    g.values = &s->values;
    g.scores = &s->scores;
    chunk c = {.begin = e, .end = next};
    terms_of(s, m, row, head, &c);
    if (s->grad_bias)
      job->kernels->keep(
          dfgnn__cpu_scalar(job, s->grad_bias, e * job->heads + head),
          c.gradients, next - e, job->heads);
    if (s->grad_scalar || s->grad_score_edge)
      scalar += job->kernels->additive(job, row, head, e, next, c.gradients,
                                       s->grad_score_edge);
    if (c.zero)
      leave_out_zeros(s, m, &g, &c);
    add(s, m, &g, &c, row, head, e == begin ? -1 : 1, next == end ? row : -1,
        att);
    if (next == end)
      return scalar;
    e = next;
  }
}

static void set_scalar(const dfgnn_cpu_job *job, void *array, int64_t i,
                       double x) {
  if (job->scalar_size == sizeof(double))
    ((double *)array)[i] = x;
  else
    ((float *)array)[i] = (float)x;
}

static double scalar_at(const dfgnn_cpu_job *job, const void *array,
                        int64_t i) {
  return job->scalar_size == sizeof(double) ? ((const double *)array)[i]
                                            : ((const float *)array)[i];
}

/* Writes the gradients that follow from the sums of a row; add() has written
 * those of GT and GAT. */
static void finish(const dfgnn_cpu_side *s, char *values, char *scores,
                   int64_t row, int64_t head, double scalar,
                   const parameters *p) {
  const dfgnn_cpu_job *job = &s->job;
  const dfgnn_cpu_kernels *kernels = job->kernels;
  if (s->grad_scalar) {
    int64_t at = row * job->heads + head;
    double before = s->adds ? scalar_at(job, s->grad_scalar, at) : 0;
    set_scalar(job, s->grad_scalar, at, before + scalar);
  }
  if (!DFGNN_HAS_PARAMETERS(job->op))
    return;
  if (DFGNN_HAS_NORMS(job->op) && s->wants_scores) {
    double total = kernels->cosine(job, row, head, scores);
    if (p->beta)
      *p->beta += total;
    if (job->by_source)
      kernels->combine(values, 1, scores, 1, job->dim);
  }
  if (job->by_source)
    kernels->store(&s->values, row, head, values, 1);
  else if (s->wants_scores && s->scores.out.base)
    kernels->store(&s->scores, row, head, scores, 1);
}

/* ---- tasks --------------------------------------------------------------- */

/* Walks rows for all heads at once, to the first that is left to others. */
static int64_t walk_heads(const dfgnn_cpu_side *s, const scratch *m,
                          int64_t begin, int64_t end, const parameters *p) {
  return s->all_heads ? s->job.kernels->grade(s, begin, end, m->all, p) : begin;
}

static void walk_row(const dfgnn_cpu_side *s, const scratch *m, int64_t row,
                     const parameters *p) {
  for (int64_t h = 0; h < s->job.heads; h++) {
    double scalar = sum_row(s, m, row, h, p);
    finish(s, m->values, m->scores, row, h, scalar, p);
  }
}

static void walk_rows(const dfgnn_cpu_side *s, char *memory, int64_t begin,
                      int64_t end, const parameters *p) {
  scratch m = scratch_in(s, memory);
  for (int64_t row = walk_heads(s, &m, begin, end, p); row < end;
       row = walk_heads(s, &m, row + 1, end, p))
    walk_row(s, &m, row, p);
}

static void walk_body(const dfgnn_cpu_job *job, void *data, char *memory,
                      int64_t begin, int64_t end) {
  const parameters none = {NULL, NULL, NULL, NULL};
  (void)job;
  walk_rows(data, memory, begin, end, &none);
}

/* ---- parameters ---------------------------------------------------------- */

/* The features of an edge that W multiplies. */
static int64_t fields_of(const dfgnn_cpu_side *s) {
  return s->job.term ? s->job.term->features : 0;
}

/* The places of the sums of a part, in the order of dfgnn_cpu_parameters. */
static parameters places_in(const dfgnn_cpu_side *s, char *at) {
  const dfgnn_cpu_job *job = &s->job;
  const int64_t row = job->heads * job->dim, fields = fields_of(s);
  char *att = at + sizeof(double);
  char *weight = dfgnn__cpu_scalar(job, att, s->grad_att ? row : 0);
  return (parameters){
      (double *)at, s->grad_att ? att : NULL,
      s->grad_edge_projection ? weight : NULL,
      s->grad_edge_bias ? dfgnn__cpu_scalar(job, weight, row * fields) : NULL};
}

static parameters part_of(const dfgnn_cpu_side *s, int64_t part) {
  char *at = s->parameters + (size_t)part * s->parameter_bytes;
  memset(at, 0, s->parameter_bytes);
  return places_in(s, at);
}

static void walk_parts(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  const dfgnn_cpu_side *s = data;
  for (int64_t part = begin; part < end; part++) {
    parameters p = part_of(s, part);
    walk_rows(s, memory, dfgnn__cpu_part(job, part, s->parts),
              dfgnn__cpu_part(job, part + 1, s->parts), &p);
  }
}

/* Writes the sums [heads, dim, inner] of a parameter without padding. */
static void write_parameter(const dfgnn_cpu_job *job, char *to, char *from,
                            int64_t inner) {
  for (int64_t h = 0; to && h < job->heads; h++)
    memcpy(dfgnn__cpu_scalar(job, to, h * job->out_dim * inner),
           dfgnn__cpu_scalar(job, from, h * job->dim * inner),
           (size_t)(job->out_dim * inner) * job->scalar_size);
}

/* Adds up the parts in pairs. */
static void add_parts(const dfgnn_cpu_side *s) {
  const dfgnn_cpu_job *job = &s->job;
  const parameters p = places_in(s, s->parameters);
  const int64_t parts = s->parts;
  int64_t count =
      (int64_t)((s->parameter_bytes - sizeof(double)) / job->scalar_size);
  for (int64_t step = 1; step < parts; step *= 2)
    for (int64_t part = 0; part + step < parts; part += 2 * step) {
      char *to = s->parameters + (size_t)part * s->parameter_bytes;
      char *from = to + (size_t)step * s->parameter_bytes;
      *(double *)to += *(const double *)from;
      if (p.att || p.weight || p.bias)
        job->kernels->combine(to + sizeof(double), 1, from + sizeof(double), 1,
                              count);
    }
  write_parameter(job, s->grad_att, p.att, 1);
  write_parameter(job, s->grad_edge_projection, p.weight, fields_of(s));
  write_parameter(job, s->grad_edge_bias, p.bias, 1);
  if (s->grad_beta)
    set_scalar(job, s->grad_beta, 0, *p.beta);
}

void dfgnn__cpu_backward_walk(const dfgnn_cpu_side *given, int schedule) {
  dfgnn_cpu_side walked = *given, *side = &walked;
  void *data = side;
  const dfgnn_cpu_job *job = &side->job;
  if (!side->wanted)
    return;
  if (side->parts) {
    dfgnn__cpu_range(job, schedule, side->parts, 1, walk_parts, data);
    add_parts(side);
  } else {
    dfgnn__cpu_rows(job, schedule, ROWS, walk_body, data);
  }
}
