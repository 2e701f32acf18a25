/* reference.c - a pass of an MLP in double, compared with what a kernel wrote
 */
#include "kernels/mlp/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

/* Sums over edges, [rows, width]. */
typedef struct totals {
  int64_t rows, width;
  double *x, *e;           /* values, and errors of the terms, added */
  double *partial, *terms; /* squares of the sums on the way, and of terms */
} totals;

/* Sums of squares over a tensor that is compared. */
typedef struct norms {
  const char *name;
  double error, size;
} norms;

enum { COMPARED = 24 }; /* tensors, at most */

typedef struct comparison {
  dfgnn_mlp_reference r;
  const dfgnn_mlp_job *job;
  int64_t out;             /* C */
  dfgnn_mlp_numbers edges; /* [E, C], e' in the order of the graph */
  int64_t *degree, *first; /* [M], [M + 1] of sources */
  int64_t *of_source;      /* [E], edges by source */
  int32_t *number;         /* [E], of an edge among its source's */
  totals dst, src;         /* of e', or of the gradient of the first z */
  totals weight[DFGNN_MLP_LAYERS], bias[DFGNN_MLP_LAYERS];
  totals norm_weight, norm_bias;
  double worst;
  const char *where;
  norms norm[COMPARED];
} comparison;

static int64_t offset_of(const dfgnn_matrix *m, int64_t i) {
  return m->offsets64 ? ((const int64_t *)m->offsets)[i]
                      : ((const int32_t *)m->offsets)[i];
}

static int64_t place_of(const dfgnn_matrix *m, int64_t e) {
  if (!m->edge_order)
    return e;
  return m->offsets64 ? ((const int64_t *)m->edge_order)[e]
                      : ((const int32_t *)m->edge_order)[e];
}

/* ---- sums ---------------------------------------------------------------- */

static int make_totals(totals *t, int64_t rows, int64_t width) {
  const size_t count = (size_t)(rows * width) + 1;
  *t = (totals){rows, width, calloc(4 * count, sizeof(double)), 0, 0, 0};
  t->e = t->x + count;
  t->partial = t->e + count;
  t->terms = t->partial + count;
  return t->x != NULL;
}

static void add_term(totals *t, int64_t i, double x, double e) {
  t->x[i] += x;
  t->e[i] += e;
  t->terms[i] += x * x;
  t->partial[i] += t->x[i] * t->x[i] + 2 * t->terms[i];
}

static double error_of(const comparison *c, const totals *t, int64_t i) {
  return t->e[i] + c->r.unit * sqrt(t->partial[i]);
}

/* ---- comparing ----------------------------------------------------------- */

static void note(comparison *c, const char *name, double ratio) {
  if (!(ratio <= c->worst)) {
    c->worst = isnan(ratio) ? INFINITY : ratio;
    c->where = name;
  }
}

/* The error that storing a number up to x may add: half a unit in the last
 * place of x. */
static double rounding(dfgnn_dtype dtype, double x) {
  static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8, 0x1p-53};
  static const double small[] = {0x1p-126, 0x1p-24, 0x1p-126, 0x1p-1022};
  int exponent;
  if (!isfinite(x))
    return INFINITY;
  frexp(x, &exponent);
  return ldexp(unit[dtype], exponent - 1) + small[dtype];
}

/* A GPU's kernel may sum rows at sources that it has stored, of numbers that
 * are a little off: an error like those of numbers, of which compare_one allows
 * a multiple. */
static double stored(const comparison *c, double x) {
  const dfgnn_dtype dtype = c->job->mlp.dtype;
  return !c->job->exact && (dtype == DFGNN_F16 || dtype == DFGNN_BF16)
             ? rounding(dtype, 1.02 * x) / DFGNN_MLP_ERRORS
             : 0;
}

static void add_norms(comparison *c, const char *name, double error, double x) {
  norms *n = c->norm;
  while (n->name && n->name != name && n < c->norm + COMPARED - 1)
    n++;
  n->name = name;
  n->error += error * error;
  n->size += x * x;
}

static double largest_relative(const comparison *c) {
  double most = 0;
  for (const norms *n = c->norm; n < c->norm + COMPARED && n->name; n++)
    if (n->error > 0)
      most = fmax(most, sqrt(n->error / n->size));
  return most;
}

static void compare_one(comparison *c, const char *name, dfgnn_dtype dtype,
                        const void *data, int64_t i, double x, double e) {
  const double have = dfgnn__number_at(dtype, data, i);
  const double before = DFGNN_MLP_ERRORS * e;
  const double bound = before + rounding(dtype, fabs(x) + before);
  if (isnan(have) && isnan(x))
    return;
  add_norms(c, name, have - x, x);
  if (have == x)
    return;
  note(c, name, fabs(have - x) / bound);
}

/* The first numbers of a row of `stride`. */
static void compare_row(comparison *c, const char *name, const void *data,
                        int64_t row, int64_t stride, dfgnn_mlp_numbers want,
                        int64_t width) {
  for (int64_t k = 0; data && k < width; k++)
    compare_one(c, name, c->job->mlp.dtype, data, row * stride + k, want.x[k],
                want.e[k]);
}

static void compare_totals(comparison *c, const char *name, dfgnn_dtype dtype,
                           const void *data, const totals *t) {
  for (int64_t i = 0; data && i < t->rows * t->width; i++)
    compare_one(c, name, dtype, data, i, t->x[i], error_of(c, t, i));
}

/* ---- extremes and means -------------------------------------------------- */

/* One side of the forward pass; edges of a node: from first[node] on, and
 * list[] says which if it is not NULL. */
typedef struct side {
  const char *name, *arg_name;
  dfgnn_reduce reduce;
  const void *out;
  const int32_t *arg;
  int64_t nodes;
  const int64_t *list;
} side;

static int64_t edge_of(const side *s, int64_t at) {
  return s->list ? s->list[at] : at;
}

static void compare_extreme(comparison *c, const side *s, int64_t node,
                            int64_t begin, int64_t end, int64_t k) {
  const double sign = s->reduce == DFGNN_REDUCE_MAX ? 1 : -1;
  const int64_t i = node * c->out + k;
  double best = -INFINITY, error = 0;
  for (int64_t at = begin; at < end; at++) {
    const int64_t e = edge_of(s, at) * c->out + k;
    const double x = sign * c->edges.x[e];
    best = x > best || isnan(x) ? x : best;
    error = fmax(error, c->edges.e[e] + (s->list ? stored(c, x) : 0));
  }
  best = begin < end ? sign * best : 0;
  compare_one(c, s->name, c->job->mlp.dtype, s->out, i, best, error);
  if (!s->arg)
    return;
  const int64_t arg = s->arg[i];
  if (begin == end ? arg != -1 : arg < 0 || arg >= end - begin) {
    note(c, s->arg_name, INFINITY);
  } else if (begin < end && !isnan(best)) {
    const double x = c->edges.x[edge_of(s, begin + arg) * c->out + k];
    const double bound = 2 * DFGNN_MLP_ERRORS * error;
    note(c, s->arg_name, x == best ? 0 : fabs(x - best) / bound);
  }
}

static void compare_side(comparison *c, const side *s, const totals *t) {
  const dfgnn_matrix *m = &c->job->rows;
  for (int64_t node = 0; s->out && node < s->nodes; node++) {
    const int64_t begin = s->list ? c->first[node] : offset_of(m, node);
    const int64_t end = s->list ? c->first[node + 1] : offset_of(m, node + 1);
    for (int64_t k = 0; k < c->out; k++) {
      const int64_t i = node * c->out + k;
      const double share = s->reduce == DFGNN_REDUCE_MEAN && begin < end
                               ? 1.0 / (double)(end - begin)
                               : 1;
      if (dfgnn__mlp_is_extreme(s->reduce))
        compare_extreme(c, s, node, begin, end, k);
      else
        compare_one(c, s->name, c->job->mlp.dtype, s->out, i, share * t->x[i],
                    share * error_of(c, t, i) +
                        c->r.unit * fabs(share * t->x[i]));
    }
  }
}

/* ---- forward ------------------------------------------------------------- */

static double factor_of(const comparison *c, const void *factor,
                        int64_t place) {
  return factor ? dfgnn__number_at(c->job->mlp.dtype, factor, place) : 1;
}

static void forward_edge(comparison *c, int64_t e, int64_t row) {
  static const char *const kept[] = {"kept[0]", "kept[1]", "kept[2]",
                                     "kept[3]"};
  const dfgnn_edge_mlp_args *args = &c->job->args;
  const int64_t place = place_of(&c->job->rows, e);
  const int64_t source = c->job->rows.indices[e], w = c->out;
  dfgnn__mlp_reference_forward(&c->r, place, row, source);
  compare_row(c, "edge_out", args->edge_out, place, w, c->r.out, w);
  for (int l = 0; l < c->job->mlp.layers; l++)
    compare_row(c, kept[l], args->kept[l], e,
                dfgnn__mlp_kept_width(&c->job->mlp, l), c->r.z[l],
                c->job->mlp.width[l]);
  const double at_dst = factor_of(c, args->dst_factor, place);
  const double at_src = factor_of(c, args->src_factor, place);
  for (int64_t k = 0; k < w; k++) {
    const double x = c->r.out.x[k], error = c->r.out.e[k];
    c->edges.x[e * w + k] = x;
    c->edges.e[e * w + k] = error;
    add_term(&c->dst, row * w + k, x * at_dst,
             fabs(at_dst) * (error + c->r.unit * fabs(x)));
    add_term(&c->src, source * w + k, x * at_src,
             fabs(at_src) * (error + c->r.unit * fabs(x)) +
                 stored(c, x * at_src));
  }
}

static void compare_forward(comparison *c) {
  const dfgnn_matrix *m = &c->job->rows;
  const dfgnn_edge_mlp_args *args = &c->job->args;
  for (int64_t row = 0; row < m->destinations; row++)
    for (int64_t e = offset_of(m, row); e < offset_of(m, row + 1); e++)
      forward_edge(c, e, row);
  const side sides[] = {{"out_dst", "arg_dst", c->job->mlp.reduce_dst,
                         args->out_dst, args->arg_dst, m->destinations, NULL},
                        {"out_src", "arg_src", c->job->mlp.reduce_src,
                         args->out_src, args->arg_src, m->sources,
                         c->of_source}};
  compare_side(c, &sides[0], &c->dst);
  compare_side(c, &sides[1], &c->src);
}

/* ---- backward ------------------------------------------------------------ */

/* The gradient of a node adds this to that of an edge. */
typedef struct from_node {
  const char *name;
  dfgnn_reduce reduce;
  const void *grad, *factor, *grad_factor;
  const int32_t *arg;
  int64_t node, number, degree;
} from_node;

static void add_node(comparison *c, const from_node *f, int64_t place) {
  const dfgnn_dtype dtype = c->job->mlp.dtype;
  const double share =
      f->reduce == DFGNN_REDUCE_MEAN ? 1.0 / (double)f->degree : 1;
  const double factor = share * factor_of(c, f->factor, place);
  double sum = 0, error = 0, size = 0;
  for (int64_t k = 0; f->grad && k < c->out; k++) {
    const int64_t i = f->node * c->out + k;
    const double g = dfgnn__number_at(dtype, f->grad, i);
    const int taken =
        !dfgnn__mlp_is_extreme(f->reduce) || f->arg[i] == (int32_t)f->number;
    const double x = taken ? factor * g : 0;
    c->r.grad_out.e[k] += 2 * c->r.unit * (fabs(x) + fabs(c->r.grad_out.x[k]));
    c->r.grad_out.x[k] += x;
    sum += share * g * c->r.out.x[k];
    size += fabs(share * g * c->r.out.x[k]);
    error += fabs(share * g) * c->r.out.e[k];
  }
  if (f->grad_factor && f->grad)
    compare_one(c, f->name, dtype, f->grad_factor, place, sum,
                error + 4 * sqrt((double)c->out) * c->r.unit * size);
}

static void start_gradient(comparison *c, int64_t place) {
  const void *grad = c->job->args.grad_edge_out;
  for (int64_t k = 0; k < c->out; k++) {
    c->r.grad_out.x[k] =
        grad ? dfgnn__number_at(c->job->mlp.dtype, grad, place * c->out + k)
             : 0;
    c->r.grad_out.e[k] = 0;
  }
}

static void add_parameters(comparison *c, int l) {
  const dfgnn_edge_mlp *mlp = &c->job->mlp;
  const dfgnn_mlp_numbers g = c->r.grad[l];
  const dfgnn_mlp_numbers a = l ? c->r.value[l - 1] : c->r.edge;
  const int64_t in = dfgnn__mlp_in_width(mlp, l);
  const double round = c->r.unit + 2 * c->r.operand;
  for (int64_t n = 0; n < mlp->width[l]; n++) {
    if (c->bias[l].x)
      add_term(&c->bias[l], n, g.x[n], g.e[n] + c->r.operand * fabs(g.x[n]));
    for (int64_t k = 0; c->weight[l].x && k < in; k++)
      add_term(&c->weight[l], n * in + k, g.x[n] * a.x[k],
               fabs(g.x[n]) * a.e[k] + fabs(a.x[k]) * g.e[n] +
                   round * fabs(g.x[n] * a.x[k]));
  }
}

/* From r.grad_out, before the norm takes it. */
static void add_norm(comparison *c) {
  const dfgnn_mlp_numbers g = c->r.grad_out, y = c->r.normal;
  for (int64_t k = 0; k < c->out; k++) {
    if (c->norm_weight.x)
      add_term(&c->norm_weight, k, g.x[k] * y.x[k],
               fabs(g.x[k]) * y.e[k] + fabs(y.x[k]) * g.e[k] +
                   c->r.unit * fabs(g.x[k] * y.x[k]));
    if (c->norm_bias.x)
      add_term(&c->norm_bias, k, g.x[k], g.e[k]);
  }
}

static void backward_edge(comparison *c, int64_t e, int64_t row) {
  const dfgnn_matrix *m = &c->job->rows;
  const dfgnn_edge_mlp *mlp = &c->job->mlp;
  const dfgnn_edge_mlp_args *args = &c->job->args;
  const int64_t place = place_of(m, e), source = m->indices[e];
  const from_node dst = {"grad_dst_factor",
                         mlp->reduce_dst,
                         args->grad_out_dst,
                         args->dst_factor,
                         args->grad_dst_factor,
                         args->arg_dst,
                         row,
                         e - offset_of(m, row),
                         offset_of(m, row + 1) - offset_of(m, row)};
  const from_node src = {"grad_src_factor",
                         mlp->reduce_src,
                         args->grad_out_src,
                         args->src_factor,
                         args->grad_src_factor,
                         args->arg_src,
                         source,
                         c->number[e],
                         c->degree[source]};
  dfgnn__mlp_reference_forward(&c->r, place, row, source);
  start_gradient(c, place);
  add_node(c, &dst, place);
  add_node(c, &src, place);
  add_norm(c);
  dfgnn__mlp_reference_backward(&c->r);
  for (int l = 0; l < mlp->layers; l++)
    add_parameters(c, l);
  compare_row(c, "grad_edge", args->grad_edge, place, mlp->edge_dim,
              c->r.grad_edge, mlp->edge_dim);
  const int64_t w = mlp->width[0];
  for (int64_t k = 0; k < w; k++) {
    const double x = c->r.grad[0].x[k];
    const double error = c->r.grad[0].e[k] + c->r.operand * fabs(x);
    add_term(&c->dst, row * w + k, x, error);
    add_term(&c->src, source * w + k, x, error);
  }
}

static void compare_backward(comparison *c) {
  static const char *const weights[] = {"grad_weight[0]", "grad_weight[1]",
                                        "grad_weight[2]", "grad_weight[3]"};
  static const char *const biases[] = {"grad_bias[0]", "grad_bias[1]",
                                       "grad_bias[2]", "grad_bias[3]"};
  const dfgnn_matrix *m = &c->job->rows;
  const dfgnn_edge_mlp_args *args = &c->job->args;
  const dfgnn_dtype dtype = c->job->mlp.dtype;
  const dfgnn_dtype real = dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
  for (int64_t row = 0; row < m->destinations; row++)
    for (int64_t e = offset_of(m, row); e < offset_of(m, row + 1); e++)
      backward_edge(c, e, row);
  compare_totals(c, "grad_dst_part", dtype, args->grad_dst_part, &c->dst);
  compare_totals(c, "grad_src_part", dtype, args->grad_src_part, &c->src);
  for (int l = 0; l < c->job->mlp.layers; l++) {
    compare_totals(c, weights[l], real, args->grad_weight[l], &c->weight[l]);
    compare_totals(c, biases[l], real, args->grad_bias[l], &c->bias[l]);
  }
  compare_totals(c, "grad_norm_weight", real, args->grad_norm_weight,
                 &c->norm_weight);
  compare_totals(c, "grad_norm_bias", real, args->grad_norm_bias,
                 &c->norm_bias);
}

/* ---- memory -------------------------------------------------------------- */

static void sort_by_source(comparison *c) {
  const dfgnn_matrix *m = &c->job->rows;
  for (int64_t e = 0; e < m->edges; e++)
    c->number[e] = (int32_t)c->degree[m->indices[e]]++;
  for (int64_t s = 0; s < m->sources; s++)
    c->first[s + 1] = c->first[s] + c->degree[s];
  for (int64_t e = 0; e < m->edges; e++)
    c->of_source[c->first[m->indices[e]] + c->number[e]] = e;
}

static int make_sums(comparison *c) {
  const dfgnn_matrix *m = &c->job->rows;
  const dfgnn_edge_mlp *mlp = &c->job->mlp;
  const dfgnn_edge_mlp_args *args = &c->job->args;
  const int backward = c->job->pass == DFGNN_PASS_BACKWARD;
  const int64_t width = backward ? mlp->width[0] : c->out;
  const size_t values = backward ? 1 : (size_t)(m->edges * c->out) + 1;
  int good = make_totals(&c->dst, m->destinations, width) &&
             make_totals(&c->src, m->sources, width);
  for (int l = 0; good && l < mlp->layers; l++)
    good =
        (!args->grad_weight[l] || make_totals(&c->weight[l], mlp->width[l],
                                              dfgnn__mlp_in_width(mlp, l))) &&
        (!args->grad_bias[l] || make_totals(&c->bias[l], 1, mlp->width[l]));
  if (good && args->grad_norm_weight)
    good = make_totals(&c->norm_weight, 1, c->out);
  if (good && args->grad_norm_bias)
    good = make_totals(&c->norm_bias, 1, c->out);
  c->edges.x = malloc(values * sizeof(double));
  c->edges.e = malloc(values * sizeof(double));
  c->degree = calloc((size_t)m->sources + 1, sizeof *c->degree);
  c->first = calloc((size_t)m->sources + 1, sizeof *c->first);
  c->of_source = malloc(((size_t)m->edges + 1) * sizeof *c->of_source);
  c->number = malloc(((size_t)m->edges + 1) * sizeof *c->number);
  return good && c->edges.x && c->edges.e && c->degree && c->first &&
         c->of_source && c->number;
}

static void free_comparison(comparison *c) {
  dfgnn__mlp_reference_free(&c->r);
  free(c->dst.x);
  free(c->src.x);
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++) {
    free(c->weight[l].x);
    free(c->bias[l].x);
  }
  free(c->norm_weight.x);
  free(c->norm_bias.x);
  free(c->edges.x);
  free(c->edges.e);
  free(c->degree);
  free(c->first);
  free(c->of_source);
  free(c->number);
}

dfgnn_status dfgnn__mlp_compare(dfgnn_mlp_errors *errors,
                                const dfgnn_mlp_job *job) {
  comparison c = {.job = job, .out = dfgnn__mlp_out_width(&job->mlp)};
  dfgnn_status status = dfgnn__mlp_reference_make(&c.r, job);
  if (!status && !make_sums(&c))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status) {
    sort_by_source(&c);
    if (job->pass == DFGNN_PASS_BACKWARD)
      compare_backward(&c);
    else
      compare_forward(&c);
    *errors = (dfgnn_mlp_errors){.of_bound = c.worst,
                                 .where = c.where ? c.where : "",
                                 .relative = largest_relative(&c)};
  }
  free_comparison(&c);
  return status;
}
