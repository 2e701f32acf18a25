#include <math.h>
#include <string.h>

#include "kernels/mlp/reference.h"

/* to = a b, of errors as products of independent numbers have. */
static void multiply(const dfgnn_mlp_reference *r, double *x, double *e,
                     double a, double a_error, double b, double b_error) {
  *x = a * b;
  *e = hypot(hypot(a * b_error, b * a_error), r->unit * a * b);
}

/* g becomes the gradient with respect to what the norm took: inverse (g -
 * mean(g) - y mean(g y)), with g times the norm's weight first. */
static void normalize_backward(dfgnn_mlp_reference *r, dfgnn_mlp_numbers g) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int64_t c = dfgnn__mlp_out_width(mlp);
  const int centred = mlp->norm == DFGNN_NORM_LAYER;
  const double per = 1.0 / (double)c, u = r->unit * (4 + sqrt((double)c));
  const dfgnn_mlp_numbers y = r->normal;
  double mean = 0, along = 0, size = 0, length = 0;
  double mean_square = 0, along_square = 0;
  for (int64_t k = 0; k < c; k++) {
    const double w = r->norm_weight ? r->norm_weight[k] : 1;
    multiply(r, &g.x[k], &g.e[k], g.x[k], g.e[k], w, 0);
    mean += centred ? g.x[k] * per : 0;
    size += fabs(g.x[k]) * per;
    along += g.x[k] * y.x[k] * per;
    length += fabs(g.x[k] * y.x[k]) * per;
    mean_square += g.e[k] * g.e[k];
    along_square += pow(g.x[k] * y.e[k], 2) + pow(g.e[k] * y.x[k], 2);
  }
  const double mean_error =
      centred ? hypot(sqrt(mean_square) * per, u * size) : 0;
  const double along_error = hypot(sqrt(along_square) * per, u * length);
  for (int64_t k = 0; k < c; k++) {
    const double inner = g.x[k] - mean - y.x[k] * along;
    double e = hypot(g.e[k], mean_error);
    e = hypot(e, hypot(y.x[k] * along_error, y.e[k] * along));
    e = hypot(e,
              2 * r->unit * (fabs(g.x[k]) + fabs(mean) + fabs(y.x[k] * along)));
    g.x[k] = inner * r->inverse;
    g.e[k] = hypot(e * r->inverse, g.x[k] * r->inverse_error);
  }
}

static void last_gradient(dfgnn_mlp_reference *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int last = mlp->layers - 1;
  const int64_t c = dfgnn__mlp_out_width(mlp);
  const dfgnn_mlp_numbers d = r->slope[last], to = r->grad[last];
  for (int64_t k = 0; k < mlp->width[last]; k++)
    multiply(r, &to.x[k], &to.e[k], r->grad_out.x[k % c], r->grad_out.e[k % c],
             d.x[k], d.e[k]);
}

void dfgnn__mlp_reference_backward(dfgnn_mlp_reference *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  for (int64_t k = 0; k < mlp->edge_dim; k++) {
    r->grad_edge.x[k] = mlp->residual ? r->grad_out.x[k] : 0;
    r->grad_edge.e[k] = mlp->residual ? r->grad_out.e[k] : 0;
  }
  if (mlp->norm != DFGNN_NORM_NONE)
    normalize_backward(r, r->grad_out);
  last_gradient(r);
  for (int l = mlp->layers - 1; l > 0; l--) {
    const int64_t in = mlp->width[l - 1];
    const dfgnn_mlp_numbers to = r->grad[l - 1], d = r->slope[l - 1];
    memset(to.x, 0, (size_t)in * sizeof *to.x);
    memset(to.e, 0, (size_t)in * sizeof *to.e);
    dfgnn__mlp_reference_product(r, to, r->grad[l], r->weight[l], mlp->width[l],
                                 in, 1);
    for (int64_t k = 0; k < in; k++)
      multiply(r, &to.x[k], &to.e[k], to.x[k], to.e[k], d.x[k], d.e[k]);
  }
  if (mlp->edge_dim)
    dfgnn__mlp_reference_product(r, r->grad_edge, r->grad[0], r->weight[0],
                                 mlp->width[0], mlp->edge_dim, 1);
}
