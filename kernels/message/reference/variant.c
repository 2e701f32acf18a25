/* variant.c - the float64 sums and reductions of messages as a variant */
#include "base/error.h"
#include "kernels/message/reference/message.h"
#include "kernels/reduce/reference/reduce.h"

typedef struct output {
  void *to;                     /* the caller's; NULL: not wanted */
  double **of;                  /* the reference's array of it */
  const dfgnn_strides *strides; /* NULL: dense */
  int64_t count;                /* nodes; numbers if dense */
  int scalar, index;            /* of type scalar, or int32; else storage */
} output;

enum { OUTPUTS = 12, FORWARD_OUTPUTS = 6 };

static int list_outputs(output *list, const dfgnn_setting *setting,
                        const dfgnn_args *a, dfgnn_expected *e) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  int64_t width = p->heads * p->dim;
  int64_t fields = p->edge_dim > 0 ? p->edge_dim : width;
  int64_t rows = width * dfgnn__message_parts(p->message);
#define NODES_AS(field, other, nodes)                                          \
  {                                                                            \
    .to = a->field, .of = (double **)&e->to.field,                             \
    .strides = &a->other##_strides, .count = nodes                             \
  }
#define NODES(field, nodes) NODES_AS(field, field, nodes)
#define POSITIONS(field)                                                       \
  {                                                                            \
    .to = a->field, .of = (double **)&e->to.field,                             \
    .count = m->destinations * width, .index = 1                               \
  }
#define NUMBERS(field, numbers, by_scalar)                                     \
  {                                                                            \
    .to = a->field, .of = (double **)&e->to.field, .count = numbers,           \
    .scalar = by_scalar                                                        \
  }
  const output all[OUTPUTS] = {
      NODES(out, m->destinations),
      NODES_AS(out_min, out, m->destinations),
      NODES_AS(out_max, out, m->destinations),
      NODES_AS(out_std, out, m->destinations),
      POSITIONS(arg_min),
      POSITIONS(arg_max),
      NODES(grad_value, m->sources),
      NODES(grad_gate_src, m->sources),
      NODES(grad_gate_dst, m->destinations),
      NUMBERS(grad_edge_attr, m->edges * fields, 0),
      NUMBERS(grad_edge_weight, rows * fields, 1),
      NUMBERS(grad_edge_bias, rows, 1),
  };
#undef NODES_AS
#undef NODES
#undef POSITIONS
#undef NUMBERS
  int count = 0, forward = p->pass == DFGNN_PASS_FORWARD;
  for (int i = 0; i < OUTPUTS; i++)
    if (forward == (i < FORWARD_OUTPUTS))
      list[count++] = all[i];
  return count;
}

static int64_t numbers_of(const output *o, const dfgnn_problem *p) {
  return o->strides ? o->count * p->heads * p->dim : o->count;
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_args args = {0};
  dfgnn_expected expected = {0};
  output list[OUTPUTS] = {{0}};
  int count = list_outputs(list, setting, &args, &expected);
  size_t numbers = 0;
  for (int i = 0; i < count; i++)
    numbers += (size_t)numbers_of(&list[i], setting->problem);
  return numbers * sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return setting->problem->pass == DFGNN_PASS_BACKWARD;
}

static void store_positions(const output *o, const dfgnn_problem *p) {
  int64_t width = p->heads * p->dim;
  for (int64_t k = 0; k < o->count; k++) {
    int64_t i = k % width;
    int64_t at =
        p->layout == DFGNN_LAYOUT_NDH ? i % p->dim * p->heads + i / p->dim : i;
    ((int32_t *)o->to)[k - i + at] = (int32_t)(*o->of)[k];
  }
}

static void store(const output *o, const dfgnn_problem *p) {
  dfgnn_problem flat = *p;
  const dfgnn_strides one = {.node = 1, .feature = 1};
  if (o->strides) {
    dfgnn__ref_store_nodes(p, o->to, o->strides, o->count, *o->of);
    return;
  }
  if (o->index) {
    store_positions(o, p);
    return;
  }
  flat.heads = flat.dim = 1;
  for (int64_t i = 0; i < o->count; i++)
    if (o->scalar)
      dfgnn__ref_set_scalar(p, o->to, i, (*o->of)[i]);
    else
      dfgnn__ref_store(&flat, o->to, &one, i, 0, *o->of + i);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  dfgnn_expected expected = {.row_count = matrix->destinations,
                             .column_count = matrix->sources};
  output list[OUTPUTS] = {{0}};
  int count = list_outputs(list, &launch->setting, launch->args, &expected);
  double *next = launch->workspace;
  for (int i = 0; i < count; i++) {
    *list[i].of = list[i].to ? next : NULL;
    next += numbers_of(&list[i], problem);
  }
  if (problem->pass == DFGNN_PASS_BACKWARD)
    expected.transpose = launch->views[0];
  dfgnn_status status =
      (problem->pass == DFGNN_PASS_BACKWARD  ? dfgnn__message_backward_reference
       : DFGNN_OPS_REDUCE >> problem->op & 1 ? dfgnn__reduce_reference
                                             : dfgnn__message_reference)(
          problem, matrix, launch->args, &expected);
  for (int i = 0; i < count && !status; i++)
    if (list[i].to)
      store(&list[i], problem);
  return status;
}

static const char *applicable(const dfgnn_setting *setting) {
  return setting->problem->message == DFGNN_MESSAGE_COPY
             ? "messages are copies of nodes, which spmm and reduce serve"
             : NULL;
}

#define REFERENCE(pass_name, pass_value)                                       \
  {                                                                            \
    .name = "cpu.message." pass_name ".reference", .algorithm = "reference",   \
    .backend = "cpu", .ops = DFGNN_OPS_MESSAGE,                                \
    .passes = DFGNN_BIT(pass_value), .dtypes = DFGNN_DTYPES_ALL,               \
    .revision = 1, .deterministic = 1, .edge_ops = DFGNN_OPS_MESSAGE,          \
    .messages = DFGNN_MESSAGES_ALL, .reference = 1, .applicable = applicable,  \
    .workspace = workspace, .views = views, .launch = launch                   \
  }

DFGNN_FAMILIES(message_reference_variant) = {
    REFERENCE("fwd", DFGNN_PASS_FORWARD),
    REFERENCE("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
