#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mlp/reference.h"
#include "lib/base/error.h"

/* ---- activations --------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double gelu(int order, double x) {
  const double phi = 0.5 * erfc(-x * M_SQRT1_2);
  const double density = 0.5 * M_2_SQRTPI * M_SQRT1_2 * exp(-x * x / 2);
  return order ? phi + x * density : x * phi;
}

static double gelu_tanh(int order, double x) {
  const double root = sqrt(2 / M_PI), cube = 0.044715;
  const double t = tanh(root * (x + cube * x * x * x));
  const double inner = root * (1 + 3 * cube * x * x);
  return order ? 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner
               : 0.5 * x * (1 + t);
}

double dfgnn__mlp_activation(dfgnn_activation kind, double slope, int order,
                             double x) {
  const double s = sigmoid(x), t = tanh(x);
  switch (kind) {
  case DFGNN_ACTIVATION_RELU:
    return order ? x > 0 : x < 0 ? 0 : x;
  case DFGNN_ACTIVATION_SILU:
    return order ? s + x * s * (1 - s) : x * s;
  case DFGNN_ACTIVATION_GELU:
    return gelu(order, x);
  case DFGNN_ACTIVATION_GELU_TANH:
    return gelu_tanh(order, x);
  case DFGNN_ACTIVATION_ELU:
    return x > 0 ? (order ? 1 : x) : slope * (order ? exp(x) : expm1(x));
  case DFGNN_ACTIVATION_LEAKY_RELU:
    return (x > 0 ? 1 : slope) * (order ? 1 : x);
  case DFGNN_ACTIVATION_TANH:
    return order ? 1 - t * t : t;
  case DFGNN_ACTIVATION_SIGMOID:
    return order ? s * (1 - s) : s;
  case DFGNN_ACTIVATION_SOFTPLUS:
    return order ? s : fmax(x, 0) + log1p(exp(-fabs(x)));
  default:
    return order ? 1 : x;
  }
}

/* value and slope become f(z) and f'(z) of z = value, where kernels compute
 * them from numbers of about 1, to 8 roundings. */
static void activate(const dfgnn_mlp_reference *r, dfgnn_activation kind,
                     double parameter, int64_t n, dfgnn_mlp_numbers value,
                     dfgnn_mlp_numbers slope) {
  const double step = 1e-4;
  if (kind == DFGNN_ACTIVATION_NONE) {
    for (int64_t k = 0; k < n; k++) {
      slope.x[k] = 1;
      slope.e[k] = 0;
    }
    return;
  }
  for (int64_t k = 0; k < n; k++) {
    const double z = value.x[k], e = value.e[k];
    const double near = DFGNN_MLP_ERRORS * e + step;
    const double y = dfgnn__mlp_activation(kind, parameter, 0, z);
    const double d = dfgnn__mlp_activation(kind, parameter, 1, z);
    const double above = dfgnn__mlp_activation(kind, parameter, 1, z + near);
    const double below = dfgnn__mlp_activation(kind, parameter, 1, z - near);
    const double steep = fmax(fabs(d), fmax(fabs(above), fabs(below)));
    const double round = 8 * r->unit;
    /* a kink that the error reaches turns the slope; else it is smooth */
    const double turn = e > 0 && fabs(z) <= DFGNN_MLP_ERRORS * e &&
                                (kind == DFGNN_ACTIVATION_RELU ||
                                 kind == DFGNN_ACTIVATION_LEAKY_RELU ||
                                 kind == DFGNN_ACTIVATION_ELU)
                            ? fabs(above - below)
                            : 0;
    const int kinked =
        kind == DFGNN_ACTIVATION_RELU || kind == DFGNN_ACTIVATION_LEAKY_RELU;
    const double second = kinked ? 0 : fabs(above - below) / (2 * near);
    value.x[k] = y;
    value.e[k] =
        hypot(steep * e, kinked ? r->unit * fabs(y) : round * (fabs(y) + 0.25));
    slope.x[k] = d;
    slope.e[k] =
        hypot(second * e + turn, kinked ? 0 : round * (fabs(d) + 0.25));
  }
}

/* ---- layers -------------------------------------------------------------- */

void dfgnn__mlp_reference_product(const dfgnn_mlp_reference *r,
                                  dfgnn_mlp_numbers to, dfgnn_mlp_numbers from,
                                  const double *weight, int64_t out, int64_t in,
                                  int transposed) {
  const int64_t count = transposed ? in : out, inner = transposed ? out : in;
  const double rounded = r->operands * r->operand * r->operand;
  for (int64_t n = 0; n < count; n++) {
    double sum = to.x[n], terms = sum * sum, partial = 0;
    double squares = to.e[n] * to.e[n];
    for (int64_t k = 0; k < inner; k++) {
      const double w = transposed ? weight[k * in + n] : weight[n * in + k];
      const double term = w * from.x[k];
      sum += term;
      partial += sum * sum;
      terms += term * term;
      squares += w * w * from.e[k] * from.e[k] + rounded * term * term;
    }
    /* the sums of any order: these, or as large as independent terms make */
    squares += r->unit * r->unit * (partial + (double)(inner + 1) * terms);
    to.x[n] = sum;
    to.e[n] = sqrt(squares);
  }
}

static void load(const dfgnn_mlp_reference *r, dfgnn_mlp_numbers to,
                 const void *from, int64_t row, int64_t width) {
  for (int64_t k = 0; k < width; k++) {
    to.x[k] = dfgnn__number_at(r->job->mlp.dtype, from, row * width + k);
    to.e[k] = 0;
  }
}

static void add(const dfgnn_mlp_reference *r, dfgnn_mlp_numbers to,
                const void *from, int64_t row, int64_t width) {
  for (int64_t k = 0; from && k < width; k++) {
    const double x = dfgnn__number_at(r->job->mlp.dtype, from, row * width + k);
    to.e[k] = hypot(to.e[k], r->unit * (fabs(to.x[k]) + fabs(x)));
    to.x[k] += x;
  }
}

static void apply_layer(dfgnn_mlp_reference *r, int l, int64_t destination,
                        int64_t source) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int64_t width = mlp->width[l];
  dfgnn_mlp_numbers to = r->value[l];
  for (int64_t k = 0; k < width; k++) {
    to.x[k] = r->bias[l] ? r->bias[l][k] : 0;
    to.e[k] = 0;
  }
  if (l == 0) {
    add(r, to, r->job->args.dst_part, destination, width);
    add(r, to, r->job->args.src_part, source, width);
  }
  if (r->weight[l])
    dfgnn__mlp_reference_product(r, to, l ? r->value[l - 1] : r->edge,
                                 r->weight[l], width,
                                 dfgnn__mlp_in_width(mlp, l), 0);
}

/* ---- after the layers ---------------------------------------------------- */

static dfgnn_mlp_numbers part_of(dfgnn_mlp_numbers a, int64_t from) {
  return (dfgnn_mlp_numbers){a.x + from, a.e + from};
}

static void copy_numbers(dfgnn_mlp_numbers to, dfgnn_mlp_numbers from,
                         int64_t count) {
  memcpy(to.x, from.x, (size_t)count * sizeof(double));
  memcpy(to.e, from.e, (size_t)count * sizeof(double));
}

static void finish_layers(dfgnn_mlp_reference *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int last = mlp->layers - 1;
  const int64_t c = dfgnn__mlp_out_width(mlp);
  dfgnn_mlp_numbers z = r->value[last], d = r->slope[last];
  if (!mlp->gate) {
    activate(r, mlp->last, mlp->slope, c, z, d);
    copy_numbers(r->out, z, c);
    return;
  }
  const dfgnn_mlp_numbers f = part_of(z, c), df = part_of(d, c);
  activate(r, DFGNN_ACTIVATION_SIGMOID, 0, c, z, d);
  activate(r, mlp->last, mlp->slope, c, f, df);
  for (int64_t k = 0; k < c; k++) {
    r->out.x[k] = z.x[k] * f.x[k];
    r->out.e[k] = hypot(z.x[k] * f.e[k], f.x[k] * z.e[k]);
    r->out.e[k] = hypot(r->out.e[k], r->unit * fabs(r->out.x[k]));
    d.e[k] = hypot(d.x[k] * f.e[k], d.e[k] * f.x[k]);
    d.x[k] *= f.x[k];
    df.e[k] = hypot(df.x[k] * z.e[k], df.e[k] * z.x[k]);
    df.x[k] *= z.x[k];
  }
}

static void normalize(dfgnn_mlp_reference *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int64_t c = dfgnn__mlp_out_width(mlp);
  const int centred = mlp->norm == DFGNN_NORM_LAYER;
  const double per = 1.0 / (double)c;
  dfgnn_mlp_numbers x = r->out, y = r->normal;
  double mean = 0, size = 0, square = 0, squares = 0, along = 0;
  for (int64_t k = 0; k < c; k++) {
    mean += centred ? x.x[k] * per : 0;
    size += fabs(x.x[k]) * per;
    squares += x.e[k] * x.e[k];
  }
  for (int64_t k = 0; k < c; k++)
    square += (x.x[k] - mean) * (x.x[k] - mean) * per;
  r->inverse = 1 / sqrt(square + mlp->epsilon);
  for (int64_t k = 0; k < c; k++) {
    y.x[k] = (x.x[k] - mean) * r->inverse;
    along += y.x[k] * y.x[k] * x.e[k] * x.e[k];
  }
  const double round = r->unit * (4 + sqrt((double)c));
  const double shift = centred ? hypot(sqrt(squares) * per, round * size) : 0;
  r->inverse_error =
      hypot(sqrt(along) * per * r->inverse + shift * r->inverse, round);
  for (int64_t k = 0; k < c; k++) {
    const double w = r->norm_weight ? r->norm_weight[k] : 1;
    const double b = r->norm_bias ? r->norm_bias[k] : 0;
    const double moved = hypot(x.e[k], shift + r->unit * fabs(x.x[k]));
    y.e[k] = hypot(moved * r->inverse, fabs(y.x[k]) * r->inverse_error);
    x.x[k] = y.x[k] * w + b;
    x.e[k] = hypot(y.e[k] * w, 2 * r->unit * (fabs(y.x[k] * w) + fabs(b)));
  }
}

void dfgnn__mlp_reference_forward(dfgnn_mlp_reference *r, int64_t place,
                                  int64_t destination, int64_t source) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  if (mlp->edge_dim)
    load(r, r->edge, r->job->args.edge, place, mlp->edge_dim);
  for (int l = 0; l < mlp->layers; l++) {
    apply_layer(r, l, destination, source);
    if (r->job->args.kept[l])
      copy_numbers(r->z[l], r->value[l], mlp->width[l]);
    if (l + 1 < mlp->layers)
      activate(r, mlp->activation, mlp->slope, mlp->width[l], r->value[l],
               r->slope[l]);
  }
  finish_layers(r);
  if (mlp->norm != DFGNN_NORM_NONE)
    normalize(r);
  if (mlp->residual)
    add(r, r->out, r->job->args.edge, place, mlp->edge_dim);
}

/* ---- memory -------------------------------------------------------------- */

static double *take(double *memory, size_t *used, int64_t count) {
  double *at = memory ? memory + *used : NULL;
  *used += (size_t)count;
  return at;
}

static dfgnn_mlp_numbers take_numbers(double *memory, size_t *used,
                                      int64_t count) {
  double *x = take(memory, used, count), *e = take(memory, used, count);
  return (dfgnn_mlp_numbers){x, e};
}

static double *take_tensor(const dfgnn_mlp_reference *r, double *memory,
                           size_t *used, const void *from, int64_t count) {
  double *to = from ? take(memory, used, count) : NULL;
  for (int64_t i = 0; to && i < count; i++)
    to[i] = dfgnn__number_at(r->job->mlp.dtype, from, i);
  return to;
}

static void take_all(dfgnn_mlp_reference *r, double *memory, size_t *used) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_edge_mlp_args *args = &r->job->args;
  const int64_t c = dfgnn__mlp_out_width(mlp);
  for (int l = 0; l < mlp->layers; l++) {
    const int64_t width = mlp->width[l];
    r->weight[l] = take_tensor(r, memory, used, args->weight[l],
                               width * dfgnn__mlp_in_width(mlp, l));
    r->bias[l] = take_tensor(r, memory, used, args->bias[l], width);
    r->value[l] = take_numbers(memory, used, width);
    r->slope[l] = take_numbers(memory, used, width);
    r->grad[l] = take_numbers(memory, used, width);
    if (args->kept[l])
      r->z[l] = take_numbers(memory, used, width);
  }
  r->norm_weight = take_tensor(r, memory, used, args->norm_weight, c);
  r->norm_bias = take_tensor(r, memory, used, args->norm_bias, c);
  r->edge = take_numbers(memory, used, mlp->edge_dim);
  r->grad_edge = take_numbers(memory, used, mlp->edge_dim);
  r->out = take_numbers(memory, used, c);
  r->normal = take_numbers(memory, used, c);
  r->grad_out = take_numbers(memory, used, c);
}

dfgnn_status dfgnn__mlp_reference_make(dfgnn_mlp_reference *r,
                                       const dfgnn_mlp_job *job) {
  static const double operand[] = {0, 0x1p-11, 0x1p-8, 0};
  const int tf32 =
      job->mlp.dtype == DFGNN_F32 && job->mlp.math == DFGNN_MATH_TF32;
  size_t used = 0;
  *r = (dfgnn_mlp_reference){.job = job,
                             .unit = job->mlp.dtype == DFGNN_F64 ? 0x1p-53
                                                                 : 0x1p-24,
                             .operand = job->exact ? 0
                                        : tf32     ? 0x1p-11
                                                   : operand[job->mlp.dtype],
                             .operands = tf32 ? 2 : 1};
  take_all(r, NULL, &used);
  r->memory = malloc((used + 1) * sizeof *r->memory);
  if (!r->memory)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  used = 0;
  take_all(r, r->memory, &used);
  return DFGNN_OK;
}

void dfgnn__mlp_reference_free(dfgnn_mlp_reference *r) { free(r->memory); }
