/* variant.c - the float64 sums of messages as a variant */
#include "base/error.h"
#include "kernels/message/reference/message.h"

typedef struct output {
  void *to;                     /* the caller's; NULL: not wanted */
  double **of;                  /* where the reference writes */
  const dfgnn_strides *strides; /* NULL: dense */
  int64_t count;                /* nodes, or numbers */
  int scalar;
} output;

enum { OUTPUTS = 7 };

static int list_outputs(output *list, const dfgnn_setting *setting,
                        const dfgnn_args *a, dfgnn_expected *e) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  int64_t width = p->heads * p->dim;
  int64_t fields = p->edge_dim > 0 ? p->edge_dim : width;
#define NODES(field, nodes)                                                    \
  { a->field, (double **)&e->to.field, &a->field##_strides, nodes, 0 }
#define NUMBERS(field, count, scalar)                                          \
  { a->field, (double **)&e->to.field, NULL, count, scalar }
  const output all[OUTPUTS] = {
      NODES(out, m->destinations),
      NODES(grad_value, m->sources),
      NODES(grad_gate_src, m->sources),
      NODES(grad_gate_dst, m->destinations),
      NUMBERS(grad_edge_attr, m->edges * fields, 0),
      NUMBERS(grad_edge_weight, width * fields, 1),
      NUMBERS(grad_edge_bias, width, 1),
  };
#undef NODES
#undef NUMBERS
  int count = 0, forward = p->pass == DFGNN_PASS_FORWARD;
  for (int i = 0; i < OUTPUTS; i++)
    if (forward == (i == 0))
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

static void store(const output *o, const dfgnn_problem *p) {
  dfgnn_problem flat = *p;
  const dfgnn_strides one = {.node = 1, .feature = 1};
  if (o->strides) {
    dfgnn__ref_store_nodes(p, o->to, o->strides, o->count, *o->of);
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
      (problem->pass == DFGNN_PASS_FORWARD ? dfgnn__message_reference
                                           : dfgnn__message_backward_reference)(
          problem, matrix, launch->args, &expected);
  for (int i = 0; i < count && !status; i++)
    if (list[i].to)
      store(&list[i], problem);
  return status;
}

static const char *applicable(const dfgnn_setting *setting) {
  return setting->problem->message == DFGNN_MESSAGE_COPY
             ? "messages are copies of nodes"
             : NULL;
}

#define OPS (DFGNN_BIT(DFGNN_OP_SPMM_SUM) | DFGNN_BIT(DFGNN_OP_SPMM_MEAN))
#define REFERENCE(pass_name, pass_value)                                       \
  {                                                                            \
    .name = "cpu.message." pass_name ".reference", .algorithm = "reference",   \
    .backend = "cpu", .ops = OPS, .passes = DFGNN_BIT(pass_value),             \
    .dtypes = DFGNN_DTYPES_ALL, .revision = 1, .deterministic = 1,             \
    .edge_ops = OPS,                                                           \
    .messages = DFGNN_BIT(DFGNN_MESSAGE_RELU) | DFGNN_BIT(DFGNN_MESSAGE_GATE), \
    .reference = 1, .applicable = applicable, .workspace = workspace,          \
    .views = views, .launch = launch                                           \
  }

DFGNN_FAMILIES(message_reference_variant) = {
    REFERENCE("fwd", DFGNN_PASS_FORWARD),
    REFERENCE("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
