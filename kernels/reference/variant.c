/* variant.c - the references as variants: everything is computed in float64,
 * then stored */
#include "kernels/common/variant.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/sums.h"

/* ---- the results of a problem -------------------------------------------- */

typedef enum shape {
  ROWS,        /* [N,H,D], of storage */
  COLUMNS,     /* [M,H,D], of storage */
  POSITIONS,   /* [N,H,D], of int32 */
  OF_ROWS,     /* [N,H], of scalars, as all below but FEATURES */
  OF_COLUMNS,  /* [M,H] */
  OF_EDGES,    /* [E,H] */
  FEATURES,    /* of edges, of storage */
  PARAMETERS,  /* [H,D] */
  PROJECTIONS, /* W of all parts of a message */
  OFFSETS,     /* b of all parts of a message */
  ONE          /* [1] */
} shape;

typedef struct output {
  size_t at, strides; /* in dfgnn_args; strides: 0 if dense */
  dfgnn_pass pass;
  shape shape;
  uint32_t ops;
} output;

#define AT(field) .at = offsetof(dfgnn_args, field)
#define STRIDED(field)                                                         \
  AT(field), .strides = offsetof(dfgnn_args, field##_strides)
#define LIKE_OUT(field) AT(field), .strides = offsetof(dfgnn_args, out_strides)
#define GRADIENT .pass = DFGNN_PASS_BACKWARD
#define OP(name) DFGNN_OP_BIT(name)
#define ALL (DFGNN_OPS_ATTENTION | DFGNN_OPS_SPMM | DFGNN_OPS_REDUCE)
#define WITH_EDGES (DFGNN_OPS_EDGE_ROWS | DFGNN_OPS_MESSAGE)

static const output outputs[] = {
    {STRIDED(out), .shape = ROWS, .ops = ALL},
    {LIKE_OUT(out_min), .shape = ROWS, .ops = OP(REDUCE_PNA)},
    {LIKE_OUT(out_max), .shape = ROWS, .ops = OP(REDUCE_PNA)},
    {LIKE_OUT(out_std), .shape = ROWS, .ops = OP(REDUCE_PNA)},
    {AT(arg_min), .shape = POSITIONS, .ops = OP(REDUCE_MIN) | OP(REDUCE_PNA)},
    {AT(arg_max), .shape = POSITIONS, .ops = OP(REDUCE_MAX) | OP(REDUCE_PNA)},
    {AT(lse), .shape = OF_ROWS, .ops = DFGNN_OPS_ATTENTION},
    {AT(weights), .shape = OF_EDGES, .ops = DFGNN_OPS_ATTENTION},

    {STRIDED(grad_query), GRADIENT, .shape = ROWS, .ops = DFGNN_OPS_QUERY},
    {STRIDED(grad_key), GRADIENT, .shape = COLUMNS, .ops = DFGNN_OPS_KEY},
    {STRIDED(grad_value), GRADIENT, .shape = COLUMNS, .ops = ALL},
    {AT(grad_score_dst), GRADIENT, .shape = OF_ROWS, .ops = DFGNN_OPS_SCALARS},
    {AT(grad_score_src), GRADIENT, .shape = OF_COLUMNS,
     .ops = DFGNN_OPS_SCALARS},
    {AT(grad_score_edge), GRADIENT, .shape = OF_EDGES,
     .ops = DFGNN_OPS_SCALARS},
    {AT(grad_bias), GRADIENT, .shape = OF_EDGES, .ops = DFGNN_OPS_ATTENTION},
    {AT(grad_att), GRADIENT, .shape = PARAMETERS, .ops = DFGNN_OPS_ATT},
    {AT(grad_beta), GRADIENT, .shape = ONE, .ops = DFGNN_OPS_NORMS},
    {AT(grad_edge_attr), GRADIENT, .shape = FEATURES, .ops = WITH_EDGES},
    {AT(grad_edge_weight), GRADIENT, .shape = PROJECTIONS, .ops = WITH_EDGES},
    {AT(grad_edge_bias), GRADIENT, .shape = OFFSETS, .ops = WITH_EDGES},
    {AT(grad_edge_weight), GRADIENT, .shape = OF_EDGES,
     .ops = OP(SPMM_WEIGHTED)},
    {STRIDED(grad_gate_dst), GRADIENT, .shape = ROWS, .ops = DFGNN_OPS_MESSAGE},
    {STRIDED(grad_gate_src), GRADIENT, .shape = COLUMNS,
     .ops = DFGNN_OPS_MESSAGE},
};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* The numbers of an output; 0: the problem has no such one. */
static int64_t numbers_of(const output *o, const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  const dfgnn_matrix *m = s->matrix;
  int64_t width = p->heads * p->dim, fields = p->edge_dim;
  int64_t rows = width * dfgnn__message_parts(p->message);
  if (o->pass != p->pass || !(o->ops >> p->op & 1))
    return 0;
  switch (o->shape) {
  case ROWS:
  case POSITIONS:
    return m->destinations * width;
  case COLUMNS:
    return m->sources * width;
  case OF_ROWS:
    return m->destinations * p->heads;
  case OF_COLUMNS:
    return m->sources * p->heads;
  case OF_EDGES:
    return m->edges * p->heads;
  case FEATURES:
    return m->edges * (fields < 0 ? width : fields);
  case PARAMETERS:
    return width;
  case PROJECTIONS:
    return fields > 0 ? rows * fields : 0;
  case OFFSETS:
    return fields > 0 ? rows : 0;
  case ONE:
    return 1;
  }
  return 0;
}

static void **member(const output *o, const dfgnn_args *args) {
  return (void **)((char *)args + o->at);
}

/* ---- storing them -------------------------------------------------------- */

static void store_positions(const dfgnn_problem *p, int32_t *to, int64_t count,
                            const double *from) {
  int64_t width = p->heads * p->dim;
  for (int64_t k = 0; k < count; k++) {
    int64_t i = k % width;
    int64_t at =
        p->layout == DFGNN_LAYOUT_NDH ? i % p->dim * p->heads + i / p->dim : i;
    to[k - i + at] = (int32_t)from[k];
  }
}

static void store(const output *o, const dfgnn_problem *p,
                  const dfgnn_args *args, int64_t count, const double *from) {
  void *to = *member(o, args);
  dfgnn_problem flat = *p;
  switch (o->shape) {
  case ROWS:
  case COLUMNS:
    dfgnn__ref_store_nodes(
        p, to, (const dfgnn_strides *)((const char *)args + o->strides),
        count / (p->heads * p->dim), from);
    return;
  case POSITIONS:
    store_positions(p, to, count, from);
    return;
  case FEATURES:
    flat.dim = count;
    dfgnn__ref_store(&flat, to, &(dfgnn_strides){.feature = 1}, 0, 0, from);
    return;
  default:
    for (int64_t i = 0; i < count; i++)
      dfgnn__ref_set_scalar(p, to, i, from[i]);
  }
}

/* ---- the variants -------------------------------------------------------- */

static size_t workspace(const dfgnn_setting *setting) {
  int64_t numbers = 0;
  for (int i = 0; i < OUTPUTS; i++)
    numbers += numbers_of(&outputs[i], setting);
  return (size_t)numbers * sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return setting->problem->pass == DFGNN_PASS_BACKWARD;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  int backward = problem->pass == DFGNN_PASS_BACKWARD;
  int attention = DFGNN_OPS_ATTENTION >> problem->op & 1;
  double *results[OUTPUTS] = {NULL}, *next = launch->workspace;
  dfgnn_expected expected = {.row_count = s->matrix->destinations,
                             .column_count = s->matrix->sources,
                             .transpose = backward ? launch->views[0] : NULL};
  for (int i = 0; i < OUTPUTS; i++) {
    int64_t count = numbers_of(&outputs[i], s);
    if (count && *member(&outputs[i], launch->args))
      *member(&outputs[i], &expected.to) = results[i] = next;
    next += count;
  }
  dfgnn_status status =
      (attention  ? backward ? dfgnn__attention_backward_reference
                             : dfgnn__attention_reference
       : backward ? dfgnn__sums_backward_reference
                  : dfgnn__sums_reference)(problem, s->matrix, launch->args,
                                           &expected);
  for (int i = 0; i < OUTPUTS && !status; i++)
    if (results[i])
      store(&outputs[i], problem, launch->args, numbers_of(&outputs[i], s),
            results[i]);
  return status;
}

#define REFERENCE(kind, of, in)                                                \
  .name = "cpu." kind ".reference", .algorithm = "reference",                  \
  .backend = "cpu", .ops = of, .passes = DFGNN_BIT(in),                        \
  .dtypes = DFGNN_DTYPES_ALL, .revision = 1, .deterministic = 1,               \
  .reference = 1, .workspace = workspace, .views = views, .launch = launch
#define ATTENTION(kind, in)                                                    \
  {                                                                            \
    REFERENCE("attention." kind, DFGNN_OPS_ATTENTION, in),                     \
        .bias = 1, .dropout = 1, .weights = 1, .edge_ops = DFGNN_OPS_ATTENTION \
  }
#define SUMS(kind, of, in)                                                     \
  {                                                                            \
    REFERENCE(kind, of, in), .edge_ops = DFGNN_OPS_MESSAGE,                    \
                             .messages = DFGNN_MESSAGES_ALL                    \
  }

DFGNN_FAMILIES(reference_variant) = {
    ATTENTION("fwd", DFGNN_PASS_FORWARD),
    ATTENTION("bwd", DFGNN_PASS_BACKWARD),
    SUMS("spmm.fwd", DFGNN_OPS_SPMM, DFGNN_PASS_FORWARD),
    SUMS("spmm.bwd", DFGNN_OPS_SPMM, DFGNN_PASS_BACKWARD),
    SUMS("reduce.fwd", DFGNN_OPS_REDUCE, DFGNN_PASS_FORWARD),
    SUMS("reduce.bwd", DFGNN_OPS_REDUCE, DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
