#include "kernels/mlp/tensors.h"

#include <stddef.h>
#include <string.h>

#define FIELD(member)                                                          \
  .name = #member, .offset = offsetof(dfgnn_edge_mlp_args, member)
#define COLUMNS(what) .columns = DFGNN_MLP_COLUMNS_##what
#define ROWS(what) .rows = DFGNN_MLP_ROWS_##what
#define USE(what) .use = DFGNN_MLP_##what
#define REAL .element = DFGNN_MLP_REAL
#define HAS(what) .has = DFGNN_MLP_##what

#define LAYER(l)                                                                \
  {FIELD(weight[l]), USE(INPUT), COLUMNS(WEIGHT), .layer = l},                  \
      {FIELD(bias[l]), USE(INPUT), COLUMNS(BIAS), .layer = l, HAS(BIAS)},       \
      {FIELD(grad_weight[l]), USE(GRADIENT), COLUMNS(WEIGHT), REAL, .layer = l, \
       HAS(GRAD_PARAMETERS)},                                                   \
  {                                                                             \
    FIELD(grad_bias[l]), USE(GRADIENT), COLUMNS(BIAS), REAL,                    \
        .layer = l, .has = DFGNN_MLP_GRAD_PARAMETERS | DFGNN_MLP_BIAS           \
  }

#define KEPT(l)                                                                \
  {                                                                            \
    FIELD(kept[l]), USE(SAVED), ROWS(EDGE), COLUMNS(KEPT), .layer = l,         \
                                                           HAS(KEPT)           \
  }

/* clang-format off */
const dfgnn_mlp_tensor dfgnn__mlp_tensors[] = {
    {FIELD(edge), USE(INPUT), ROWS(EDGE), COLUMNS(EDGE)},
    {FIELD(dst_part), USE(INPUT), ROWS(DST), COLUMNS(FIRST), HAS(DST_PART)},
    {FIELD(src_part), USE(INPUT), ROWS(SRC), COLUMNS(FIRST), HAS(SRC_PART)},
    LAYER(0), LAYER(1), LAYER(2), LAYER(3),
    {FIELD(norm_weight), USE(INPUT), COLUMNS(OUT), HAS(AFFINE)},
    {FIELD(norm_bias), USE(INPUT), COLUMNS(OUT), HAS(AFFINE)},
    {FIELD(dst_factor), USE(INPUT), ROWS(EDGE), .reduced = 'd',
     HAS(DST_FACTOR)},
    {FIELD(src_factor), USE(INPUT), ROWS(EDGE), .reduced = 's',
     HAS(SRC_FACTOR)},
    {FIELD(edge_out), USE(OUTPUT), ROWS(EDGE), COLUMNS(OUT), HAS(EDGE_OUT)},
    {FIELD(out_dst), USE(OUTPUT), ROWS(DST), COLUMNS(OUT), .reduced = 'd'},
    {FIELD(out_src), USE(OUTPUT), ROWS(SRC), COLUMNS(OUT), .reduced = 's'},
    {FIELD(arg_dst), USE(SAVED), ROWS(DST), COLUMNS(OUT), .reduced = 'd',
     .element = DFGNN_MLP_INDEX},
    {FIELD(arg_src), USE(SAVED), ROWS(SRC), COLUMNS(OUT), .reduced = 's',
     .element = DFGNN_MLP_INDEX},
    {FIELD(grad_edge_out), USE(COTANGENT), ROWS(EDGE), COLUMNS(OUT),
     HAS(EDGE_OUT)},
    {FIELD(grad_out_dst), USE(COTANGENT), ROWS(DST), COLUMNS(OUT),
     .reduced = 'd'},
    {FIELD(grad_out_src), USE(COTANGENT), ROWS(SRC), COLUMNS(OUT),
     .reduced = 's'},
    {FIELD(grad_edge), USE(GRADIENT), ROWS(EDGE), COLUMNS(EDGE),
     HAS(GRAD_EDGE)},
    {FIELD(grad_dst_part), USE(GRADIENT), ROWS(DST), COLUMNS(FIRST),
     .has = DFGNN_MLP_GRAD_PARTS | DFGNN_MLP_DST_PART},
    {FIELD(grad_src_part), USE(GRADIENT), ROWS(SRC), COLUMNS(FIRST),
     .has = DFGNN_MLP_GRAD_PARTS | DFGNN_MLP_SRC_PART},
    {FIELD(grad_norm_weight), USE(GRADIENT), COLUMNS(OUT), REAL,
     .has = DFGNN_MLP_GRAD_PARAMETERS | DFGNN_MLP_AFFINE},
    {FIELD(grad_norm_bias), USE(GRADIENT), COLUMNS(OUT), REAL,
     .has = DFGNN_MLP_GRAD_PARAMETERS | DFGNN_MLP_AFFINE},
    {FIELD(grad_dst_factor), USE(GRADIENT), ROWS(EDGE), .reduced = 'd',
     .has = DFGNN_MLP_GRAD_FACTORS | DFGNN_MLP_DST_FACTOR},
    {FIELD(grad_src_factor), USE(GRADIENT), ROWS(EDGE), .reduced = 's',
     .has = DFGNN_MLP_GRAD_FACTORS | DFGNN_MLP_SRC_FACTOR},
    KEPT(0), KEPT(1), KEPT(2), KEPT(3),
    {NULL}};
/* clang-format on */

_Static_assert(sizeof dfgnn__mlp_tensors / sizeof *dfgnn__mlp_tensors <=
                   DFGNN_MLP_TENSORS,
               "arrays by tensor are shorter than the table");

/* ---- forms --------------------------------------------------------------- */

static unsigned any(const void *pointer, unsigned bit) {
  return pointer ? bit : 0;
}

static unsigned inputs_of(const dfgnn_edge_mlp_args *a, int layers) {
  unsigned has = any(a->dst_part, DFGNN_MLP_DST_PART) |
                 any(a->src_part, DFGNN_MLP_SRC_PART) |
                 any(a->norm_weight, DFGNN_MLP_AFFINE) |
                 any(a->norm_bias, DFGNN_MLP_AFFINE) |
                 any(a->dst_factor, DFGNN_MLP_DST_FACTOR) |
                 any(a->src_factor, DFGNN_MLP_SRC_FACTOR) |
                 any(a->kept[0], DFGNN_MLP_KEPT);
  for (int l = 0; l < layers; l++)
    has |= any(a->bias[l], DFGNN_MLP_BIAS);
  return has;
}

static unsigned gradients_of(const dfgnn_edge_mlp_args *a, int layers) {
  unsigned has = any(a->grad_edge_out, DFGNN_MLP_EDGE_OUT) |
                 any(a->grad_edge, DFGNN_MLP_GRAD_EDGE) |
                 any(a->grad_dst_part, DFGNN_MLP_GRAD_PARTS) |
                 any(a->grad_src_part, DFGNN_MLP_GRAD_PARTS) |
                 any(a->grad_norm_weight, DFGNN_MLP_GRAD_PARAMETERS) |
                 any(a->grad_norm_bias, DFGNN_MLP_GRAD_PARAMETERS) |
                 any(a->grad_dst_factor, DFGNN_MLP_GRAD_FACTORS) |
                 any(a->grad_src_factor, DFGNN_MLP_GRAD_FACTORS);
  for (int l = 0; l < layers; l++)
    has |= any(a->grad_weight[l], DFGNN_MLP_GRAD_PARAMETERS) |
           any(a->grad_bias[l], DFGNN_MLP_GRAD_PARAMETERS);
  return has;
}

static void drop(dfgnn_mlp_form *f, int ruled_out, unsigned bits) {
  if (ruled_out)
    f->has &= ~bits;
}

void dfgnn__mlp_form_settle(dfgnn_mlp_form *f) {
  dfgnn_edge_mlp *mlp = &f->mlp;
  if (mlp->layers == 1)
    mlp->activation = DFGNN_ACTIVATION_NONE;
  if (mlp->dtype != DFGNN_F32)
    mlp->math = DFGNN_MATH_F32;
  drop(f, f->pass == DFGNN_PASS_FORWARD,
       DFGNN_MLP_GRAD_EDGE | DFGNN_MLP_GRAD_PARTS | DFGNN_MLP_GRAD_PARAMETERS |
           DFGNN_MLP_GRAD_FACTORS);
  drop(f, mlp->norm == DFGNN_NORM_NONE, DFGNN_MLP_AFFINE);
  drop(f, mlp->reduce_dst == DFGNN_REDUCE_NONE, DFGNN_MLP_DST_FACTOR);
  drop(f, mlp->reduce_src == DFGNN_REDUCE_NONE, DFGNN_MLP_SRC_FACTOR);
  drop(f, !mlp->edge_dim, DFGNN_MLP_GRAD_EDGE);
  drop(f, !dfgnn__mlp_kept_width(mlp, 0), DFGNN_MLP_KEPT);
  drop(f, !(f->has & (DFGNN_MLP_DST_PART | DFGNN_MLP_SRC_PART)),
       DFGNN_MLP_GRAD_PARTS);
  drop(f, !(f->has & (DFGNN_MLP_DST_FACTOR | DFGNN_MLP_SRC_FACTOR)),
       DFGNN_MLP_GRAD_FACTORS);
}

void dfgnn__mlp_form_of(dfgnn_mlp_form *form, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *from = &job->mlp;
  const dfgnn_edge_mlp_args *args = &job->args;
  dfgnn_edge_mlp *to = &form->mlp;
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  memset(form, 0, sizeof *form);
  to->struct_size = sizeof *to;
  to->dtype = from->dtype;
  to->math = from->math;
  to->layers = from->layers;
  to->edge_dim = from->edge_dim;
  for (int l = 0; l < from->layers; l++)
    to->width[l] = from->width[l];
  to->activation = from->activation;
  to->last = from->last;
  to->gate = from->gate;
  to->norm = from->norm;
  to->residual = from->residual;
  if (!backward || args->grad_out_dst)
    to->reduce_dst = from->reduce_dst;
  if (!backward || args->grad_out_src)
    to->reduce_src = from->reduce_src;
  form->pass = job->pass;
  form->has = inputs_of(args, from->layers);
  form->has |= backward ? gradients_of(args, from->layers)
                        : any(args->edge_out, DFGNN_MLP_EDGE_OUT);
  dfgnn__mlp_form_settle(form);
}

/* ---- tensors of a form --------------------------------------------------- */

static int of_pass(dfgnn_mlp_use use, dfgnn_pass pass) {
  const int backward = pass == DFGNN_PASS_BACKWARD;
  switch (use) {
  case DFGNN_MLP_OUTPUT:
    return !backward;
  case DFGNN_MLP_COTANGENT:
  case DFGNN_MLP_GRADIENT:
    return backward;
  default:
    return 1;
  }
}

int dfgnn__mlp_tensor_used(const dfgnn_mlp_tensor *t,
                           const dfgnn_mlp_form *form) {
  const dfgnn_edge_mlp *mlp = &form->mlp;
  const dfgnn_reduce reduce =
      t->reduced == 's' ? mlp->reduce_src : mlp->reduce_dst;
  if (!of_pass(t->use, form->pass) || (form->has & t->has) != t->has)
    return 0;
  if (t->reduced && reduce == DFGNN_REDUCE_NONE)
    return 0;
  if (t->element == DFGNN_MLP_INDEX)
    return dfgnn__mlp_is_extreme(reduce);
  if (!strcmp(t->name, "norm_bias") || !strcmp(t->name, "grad_norm_bias"))
    return mlp->norm == DFGNN_NORM_LAYER;
  return t->layer < mlp->layers && dfgnn__mlp_tensor_width(t, mlp) > 0;
}

int dfgnn__mlp_tensor_read(const dfgnn_mlp_tensor *t,
                           const dfgnn_mlp_form *form) {
  return t->use == DFGNN_MLP_INPUT || t->use == DFGNN_MLP_COTANGENT ||
         (t->use == DFGNN_MLP_SAVED && form->pass == DFGNN_PASS_BACKWARD);
}

int64_t dfgnn__mlp_tensor_width(const dfgnn_mlp_tensor *t,
                                const dfgnn_edge_mlp *mlp) {
  switch (t->columns) {
  case DFGNN_MLP_COLUMNS_EDGE:
    return mlp->edge_dim;
  case DFGNN_MLP_COLUMNS_FIRST:
    return mlp->width[0];
  case DFGNN_MLP_COLUMNS_OUT:
    return dfgnn__mlp_out_width(mlp);
  case DFGNN_MLP_COLUMNS_WEIGHT:
    return mlp->width[t->layer] * dfgnn__mlp_in_width(mlp, t->layer);
  case DFGNN_MLP_COLUMNS_BIAS:
    return mlp->width[t->layer];
  case DFGNN_MLP_COLUMNS_KEPT:
    return dfgnn__mlp_kept_width(mlp, t->layer);
  default:
    return 1;
  }
}

dfgnn_dtype dfgnn__mlp_tensor_type(const dfgnn_mlp_tensor *t,
                                   dfgnn_dtype dtype) {
  if (t->element == DFGNN_MLP_INDEX)
    return DFGNN_DTYPE_COUNT;
  return t->element == DFGNN_MLP_STORAGE || dtype == DFGNN_F64 ? dtype
                                                               : DFGNN_F32;
}

size_t dfgnn__mlp_tensor_bytes(const dfgnn_mlp_tensor *t,
                               const dfgnn_mlp_form *form, int64_t rows) {
  const dfgnn_dtype type = dfgnn__mlp_tensor_type(t, form->mlp.dtype);
  const size_t size =
      type == DFGNN_DTYPE_COUNT ? sizeof(int32_t) : dfgnn_dtype_size(type);
  return (size_t)(dfgnn__mlp_tensor_width(t, &form->mlp) * rows) * size;
}
