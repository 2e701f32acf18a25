/* backward.c - preparations for the walks: memory, copies, norms, and a pair of
 * numbers for each destination and head */
#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"
#include "kernels/attention/operators.h"

/* ---- memory -------------------------------------------------------------- */

/* The offsets of the parts of the workspace. */
typedef struct layout {
  size_t query, key, value, grad_out, out; /* packed copies */
  size_t att;
  size_t inverse[2]; /* of destinations, of sources */
  size_t ends;
  size_t weights, gradients;
  size_t partials[2]; /* of rows, of columns */
  size_t parameters;
  size_t threads;
  size_t end;
  int64_t parts;
  size_t parameter_bytes;
} layout;

static size_t place(layout *l, size_t bytes) {
  size_t at = l->end;
  l->end += dfgnn__cpu_aligned(bytes);
  return at;
}

/* The bytes of the sums of all parameters: beta, then att, W and b. */
static size_t parameter_bytes(const dfgnn_problem *problem) {
  const size_t fields = problem->edge_dim > 0 && !DFGNN_HAS_SCALARS(problem->op)
                            ? (size_t)problem->edge_dim + 1
                            : 0;
  const size_t rows = fields + DFGNN_HAS_ATT(problem->op);
  const size_t row = (size_t)(problem->heads * problem->dim);
  return rows || DFGNN_HAS_NORMS(problem->op)
             ? dfgnn__cpu_aligned(sizeof(double) +
                                  rows * row * dfgnn__cpu_scalar_size(problem) +
                                  DFGNN_CPU_PADDING)
             : 0;
}

#define PARTS_BYTES ((size_t)16 << 20) /* of the sums of all parts */

static int64_t count_parts(const dfgnn_setting *setting, size_t bytes) {
  /* Least work and rows of a part, and most parts. */
  enum { WORK = 2048, MOST = 256, ROWS = 8 };
  const dfgnn_matrix *m = setting->matrix;
  int64_t parts = (m->edges + 2 * m->destinations) / WORK;
  const int64_t most = (int64_t)(PARTS_BYTES / bytes) + 4;
  parts = parts > MOST ? MOST : parts;
  parts = parts > most ? most : parts;
  return parts < m->destinations / ROWS ? parts + 1
                                        : m->destinations / ROWS + 1;
}

/* The features of a head without padding. */
static int64_t plain_dim(const dfgnn_problem *problem,
                         const dfgnn_cpu_plan *plan) {
  return plan->dim ? plan->dim : problem->dim;
}

/* Lays out for the padded problem of a setting. */
static layout lay_out(const dfgnn_setting *setting, const dfgnn_cpu_plan *plan,
                      int64_t dim) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  size_t scalar = dfgnn__cpu_scalar_size(p);
  int packs = dfgnn__cpu_packs(p, dim), agnn = DFGNN_HAS_NORMS(p->op);
  size_t to = packs ? dfgnn__cpu_packed_bytes(p, m->destinations) : 0;
  size_t from = packs ? dfgnn__cpu_packed_bytes(p, m->sources) : 0;
  layout l = {.end = 0};

  l.query = place(&l, DFGNN_HAS_QUERY(p->op) ? to : 0);
  l.key = place(&l, DFGNN_HAS_KEY(p->op) ? from : 0);
  l.value = place(&l, from);
  l.grad_out = place(&l, to);
  l.out = place(&l, to);
  l.att = place(&l, packs ? dfgnn__cpu_att_bytes(p) : 0);
  l.inverse[0] =
      place(&l, agnn ? (size_t)(m->destinations * p->heads) * scalar : 0);
  l.inverse[1] = place(&l, agnn ? (size_t)(m->sources * p->heads) * scalar : 0);
  l.ends = place(&l, (size_t)(m->destinations * p->heads) * 2 * scalar);
  l.weights = place(&l, plan->spill > 1 ? dfgnn__cpu_score_bytes(setting) : 0);
  l.gradients = place(&l, plan->spill ? dfgnn__cpu_score_bytes(setting) : 0);
  l.parameter_bytes = parameter_bytes(p);
  if (l.parameter_bytes)
    l.parts = count_parts(setting, l.parameter_bytes);
  l.parameters = place(&l, (size_t)l.parts * l.parameter_bytes);
  l.threads = place(&l, (size_t)setting->device->units *
                            dfgnn__cpu_backward_thread(setting));
  return l;
}

size_t dfgnn__cpu_backward_workspace(const dfgnn_setting *setting,
                                     const dfgnn_cpu_plan *plan) {
  const dfgnn_problem padded =
      dfgnn__cpu_fitted(setting->problem, plan->simd, plan->pads);
  dfgnn_setting of_padded = *setting;
  of_padded.problem = &padded;
  return lay_out(&of_padded, plan, plain_dim(setting->problem, plan)).end;
}

int dfgnn__cpu_backward_views(const dfgnn_setting *setting,
                              dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

/* ---- the sides ----------------------------------------------------------- */

static void set_out(dfgnn_cpu_job *job, const dfgnn_problem *problem,
                    const void *base, const dfgnn_strides *strides) {
  job->out = dfgnn__cpu_tensor_of(problem, base, strides);
  job->out_packed = job->out.feature == (int64_t)job->element_size;
}

/* The job of <own, gathered>, without the scale and bias of scores. */
static dfgnn_cpu_job plain_product(const dfgnn_cpu_job *scores,
                                   const dfgnn_cpu_tensor *own,
                                   const dfgnn_cpu_tensor *gathered) {
  dfgnn_cpu_job job = *scores;
  job.op = DFGNN_OP_GT;
  job.scale = 1;
  job.bias = NULL;
  job.term = NULL;
  job.query = *own;
  job.key = *gathered;
  return job;
}

static void make_rows(dfgnn_cpu_side *s, const dfgnn_cpu_job *base,
                      const dfgnn_launch *launch,
                      const dfgnn_cpu_tensor *grad_out) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  s->job = *base;
  s->product = plain_product(base, grad_out, &base->value);
  s->scores = *base;
  s->scores.value = base->key;
  s->scores.prefetch = 0; /* scoring prefetches them */
  set_out(&s->scores, p, args->grad_query, &args->grad_query_strides);
  s->scores.out_adds = s->adds = p->accumulate;
  s->grad_bias = args->grad_bias;
  s->grad_att = args->grad_att;
  s->grad_beta = args->grad_beta;
  s->grad_edge_projection = base->term ? args->grad_edge_projection : NULL;
  s->grad_edge_bias = base->term ? args->grad_edge_bias : NULL;
  s->grad_scalar = DFGNN_HAS_SCALARS(p->op) ? args->grad_score_dst : NULL;
  s->grad_score_edge = base->score_edge ? args->grad_score_edge : NULL;
  s->wants_scores = DFGNN_HAS_QUERY(p->op) &&
                    (args->grad_query || s->grad_att || s->grad_beta);
  s->wanted =
      s->wants_scores || s->grad_scalar || s->grad_bias || s->grad_score_edge;
  s->wants_gradients = s->wanted;
}

static void make_columns(dfgnn_cpu_side *s, const dfgnn_cpu_job *base,
                         const dfgnn_launch *launch,
                         const dfgnn_cpu_tensor *grad_out) {
  const dfgnn_problem *p = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const dfgnn_view *view = launch->views[0];
  dfgnn_matrix t = dfgnn__transposed(launch->setting.matrix, view);
  dfgnn_cpu_job *job = &s->job;
  *job = *base;
  job->destinations = t.destinations;
  job->sources = t.sources;
  job->offsets = t.offsets;
  job->indices = t.indices;
  job->numbers = view->array[2];
  job->by_source = 1;
  job->query = base->key;
  job->key = base->query;
  job->score_dst = base->score_src;
  job->score_src = base->score_dst;
  s->product = plain_product(job, &base->value, grad_out);
  s->values = *job;
  s->values.value = *grad_out;
  s->values.prefetch = 0;
  set_out(&s->values, p, args->grad_value, &args->grad_value_strides);
  s->scores = *job;
  s->scores.value = base->query;
  s->scores.prefetch = 0;
  if (DFGNN_HAS_KEY(p->op))
    set_out(&s->scores, p, args->grad_key, &args->grad_key_strides);
  s->grad_scalar = DFGNN_HAS_SCALARS(p->op) ? args->grad_score_src : NULL;
  s->wants_values = args->grad_value != NULL;
  s->wants_scores = DFGNN_HAS_QUERY(p->op) &&
                    (DFGNN_HAS_KEY(p->op) ? args->grad_key : args->grad_value);
  s->wanted = s->wants_values || s->wants_scores || s->grad_scalar;
  s->wants_gradients = s->wants_scores || s->grad_scalar;
}

/* ---- before the walks ---------------------------------------------------- */

static void find_ends(const dfgnn_cpu_job *job, void *data, char *memory,
                      int64_t begin, int64_t end) {
  (void)memory;
  job->kernels->ends(job, begin, end, data);
}

static void make_ends(const dfgnn_cpu_job *base, void *lse,
                      const dfgnn_cpu_tensor *grad_out, void *ends,
                      int schedule) {
  dfgnn_cpu_job job = plain_product(base, grad_out, &base->out);
  int64_t size = (int64_t)job.element_size;
  job.lse = lse;
  job.packed = grad_out->feature == size && base->out.feature == size;
  dfgnn__cpu_range(&job, schedule, job.destinations, 256, find_ends, ends);
}

/* Copies the tensors whose features are not adjacent because heads are. */
static void pack_all(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                     dfgnn_cpu_tensor *grad_out, const layout *l,
                     int schedule) {
  const dfgnn_problem *p = launch->setting.problem;
  char *to = launch->workspace;
  int64_t n = job->destinations, m = job->sources;
  if (DFGNN_HAS_QUERY(p->op))
    dfgnn__cpu_pack(job, p, &job->query, n, schedule, to + l->query);
  if (DFGNN_HAS_KEY(p->op))
    dfgnn__cpu_pack(job, p, &job->key, m, schedule, to + l->key);
  dfgnn__cpu_pack(job, p, &job->value, m, schedule, to + l->value);
  dfgnn__cpu_pack(job, p, grad_out, n, schedule, to + l->grad_out);
  dfgnn__cpu_pack(job, p, &job->out, n, schedule, to + l->out);
}

static int adjacent(const dfgnn_cpu_job *job, const dfgnn_problem *p,
                    const dfgnn_cpu_tensor *grad_out) {
  return dfgnn__cpu_adjacent(job, &job->value) &&
         dfgnn__cpu_adjacent(job, grad_out) &&
         (!DFGNN_HAS_QUERY(p->op) || dfgnn__cpu_adjacent(job, &job->query)) &&
         (!DFGNN_HAS_KEY(p->op) || dfgnn__cpu_adjacent(job, &job->key));
}

void dfgnn__cpu_backward_begin(dfgnn_cpu_backward *b, const dfgnn_launch *given,
                               const dfgnn_cpu_plan *plan) {
  const dfgnn_problem padded =
      dfgnn__cpu_fitted(given->setting.problem, plan->simd, plan->pads);
  const dfgnn_problem *p = &padded;
  const dfgnn_args *args = given->args;
  const int64_t dim = plain_dim(given->setting.problem, plan);
  dfgnn_launch padded_launch = *given;
  const dfgnn_launch *launch = &padded_launch;
  padded_launch.setting.problem = p;
  dfgnn_cpu_choice choice = {.simd = plan->simd,
                             .prefetch = plan->prefetch,
                             .term = plan->term,
                             .dim = dim,
                             .att = plan->term ? plan->term->att : NULL,
                             .thread_bytes =
                                 dfgnn__cpu_backward_thread(&launch->setting)};
  layout l = lay_out(&launch->setting, plan, dim);
  char *memory = launch->workspace;
  if (!plan->term && dim != p->dim)
    choice.att = dfgnn__cpu_pad_att(given->setting.problem, p, args->att,
                                    memory + l.att);
  dfgnn_cpu_job base;
  dfgnn_cpu_tensor grad_out =
      dfgnn__cpu_tensor_of(p, args->grad_out, &args->grad_out_strides);

  *b = (dfgnn_cpu_backward){.rows = {.terms = DFGNN_CPU_COMPUTE}};
  dfgnn__cpu_describe(&base, launch, &choice);
  base.thread_memory = memory + l.threads;
  base.lse = NULL;
  base.ends = memory + l.ends;
  if (dfgnn__cpu_packs(p, dim) && !adjacent(&base, p, &grad_out))
    pack_all(&base, launch, &grad_out, &l, plan->schedule);
  base.packed = base.term || dim != p->dim || adjacent(&base, p, &grad_out);
  if (!DFGNN_HAS_KEY(p->op))
    base.key = base.value;
  make_rows(&b->rows, &base, launch, &grad_out);
  make_columns(&b->columns, &base, launch, &grad_out);
  if (DFGNN_HAS_NORMS(p->op)) {
    b->rows.job.inverse = memory + l.inverse[1];
    b->columns.job.inverse = memory + l.inverse[0];
    b->rows.job.own_inverse = b->columns.job.inverse;
    b->columns.job.own_inverse = b->rows.job.inverse;
    dfgnn__cpu_find_norms(&b->rows.job, plan->schedule);
    dfgnn__cpu_find_norms(&b->columns.job, plan->schedule);
  }
  make_ends(&base, args->lse, &grad_out, memory + l.ends, plan->schedule);
  b->rows.weights = b->columns.weights =
      plan->spill > 1 ? memory + l.weights : NULL;
  b->rows.gradients = b->columns.gradients = memory + l.gradients;
  b->rows.parts = b->rows.grad_att || b->rows.grad_beta ||
                          b->rows.grad_edge_projection || b->rows.grad_edge_bias
                      ? l.parts
                      : 0;
  b->rows.parameters = memory + l.parameters;
  b->rows.parameter_bytes = l.parameter_bytes;
}
