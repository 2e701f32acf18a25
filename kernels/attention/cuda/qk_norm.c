/* qk_norm.c - see qk_norm_launch.h */
#include "kernels/attention/cuda/qk_norm_launch.h"

#include "base/error.h"
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/cuda/qk_norm.h"

enum { THREADS = 256 /* kNormThreads */, BLOCKS_PER_UNIT = 8 };

/* ---- memory -------------------------------------------------------------- */

typedef struct norm_memory {
  char *query, *key; /* normalised, dense */
  char *grad_query; /* of the normalised query, unless args.grad_query has it */
  char *totals;     /* [blocks,D] */
  size_t bytes;
} norm_memory;

static char *take(norm_memory *m, char *base, int64_t count, size_t size) {
  char *at = base ? base + m->bytes : NULL;
  m->bytes += dfgnn__align256((size_t)count * size);
  return at;
}

static int64_t most_blocks(const dfgnn_setting *s) {
  return (int64_t)s->device->units * BLOCKS_PER_UNIT;
}

static norm_memory memory_of(const dfgnn_setting *s, char *base) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int64_t row = problem->heads * problem->dim;
  norm_memory m = {0};
  if (!problem->qk_norm)
    return m;
  m.query = take(&m, base, s->matrix->destinations * row, size);
  m.key = take(&m, base, s->matrix->sources * row, size);
  if (problem->pass == DFGNN_PASS_BACKWARD) {
    m.grad_query = take(&m, base, s->matrix->destinations * row, size);
    m.totals = take(&m, base, most_blocks(s) * problem->dim,
                    dfgnn__scalar_size(problem->dtype));
  }
  return m;
}

size_t dfgnn__qk_norm_workspace(const dfgnn_setting *setting) {
  return memory_of(setting, NULL).bytes;
}

/* ---- launches ------------------------------------------------------------ */

static qk_norm_params params_of(const dfgnn_launch *launch, int64_t nodes,
                                const void *weight) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int lanes = dfgnn__ceil_power(dfgnn__ceil_div(problem->dim, 4));
  return (qk_norm_params){.weight = weight,
                          .pairs = nodes * problem->heads,
                          .heads = (int)problem->heads,
                          .dim = (int)problem->dim,
                          .lanes = lanes < 32 ? lanes : 32,
                          .eps = launch->args->norm_eps};
}

static dfgnn_program program_of(const dfgnn_problem *problem,
                                const char *name) {
  return (dfgnn_program)DFGNN_PROGRAM("kernels/attention/cuda/qk_norm.cuh",
                                      name, DFGNN_TYPE(problem->dtype),
                                      problem->qk_norm == DFGNN_QK_NORM_LAYER);
}

static dfgnn_status normalize(const dfgnn_launch *launch, const char *name,
                              const void *data, const dfgnn_strides *strides,
                              const tensor_view *to, int64_t nodes,
                              const void *weight) {
  const dfgnn_problem *problem = launch->setting.problem;
  qk_norm_params p = params_of(launch, nodes, weight);
  const dfgnn_program program = program_of(problem, "dfgnn::normalize_rows");
  const int64_t blocks = dfgnn__ceil_div(p.pairs * p.lanes, THREADS);
  const dfgnn_status status = dfgnn__view_tensor(
      &p.x, name, data, strides, dfgnn_dtype_size(problem->dtype));
  p.to = *to;
  if (status || blocks == 0)
    return status;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld rows to normalise need more than 2^31 - 1 blocks",
                       (long long)p.pairs);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks}, .threads = THREADS}, &p);
}

/* A tensor that is normalised, and the gradients of both. */
typedef struct side {
  const char *name;
  const void *data, *weight;
  const dfgnn_strides *strides;
  int64_t nodes;
  tensor_view gradient; /* of the normalised one; without data: not wanted */
  tensor_view to;       /* of the tensor itself; without data: not wanted */
  void *grad_weight;    /* NULL: not wanted */
} side;

static dfgnn_status through(const dfgnn_launch *launch, const side *x,
                            void *totals) {
  const dfgnn_problem *problem = launch->setting.problem;
  const size_t scalar = dfgnn__scalar_size(problem->dtype);
  qk_norm_params p = params_of(launch, x->nodes, x->weight);
  const dfgnn_program program = program_of(problem, "dfgnn::through_norm");
  const int groups = THREADS / p.lanes;
  int64_t blocks = dfgnn__ceil_div(p.pairs, groups);
  dfgnn_status status = dfgnn__view_tensor(&p.x, x->name, x->data, x->strides,
                                           dfgnn_dtype_size(problem->dtype));
  p.gradient = x->gradient;
  p.to = x->to;
  p.adds = problem->accumulate && x->name[0] == 'q';
  p.totals = x->grad_weight ? totals : NULL;
  if (blocks > most_blocks(&launch->setting))
    blocks = most_blocks(&launch->setting);
  if (status || !x->gradient.data)
    return status;
  if (blocks > 0 &&
      (status = dfgnn__launch_struct(
           launch->setting.queue, &program,
           (dfgnn_grid){.blocks = {(unsigned)blocks},
                        .threads = THREADS,
                        .shared = p.totals ? (unsigned)(groups * p.dim) *
                                                 (unsigned)scalar
                                           : 0},
           &p)))
    return status;
  return x->grad_weight ? dfgnn__grad_totals(x->grad_weight, totals, blocks,
                                             problem->dim, launch)
                        : DFGNN_OK;
}

static tensor_view dense_view(const dfgnn_problem *problem, const void *data) {
  const unsigned size = (unsigned)dfgnn_dtype_size(problem->dtype);
  const unsigned head = (unsigned)problem->dim * size;
  return (tensor_view){.data = data,
                       .node_bytes = (unsigned)problem->heads * head,
                       .head_bytes = head,
                       .feature_bytes = size};
}

/* Makes an argument of the family a dense tensor of the workspace. */
static void place(void **data, dfgnn_strides *strides, void *to,
                  const dfgnn_problem *problem) {
  *data = to;
  *strides = (dfgnn_strides){problem->heads * problem->dim, problem->dim, 1};
}

static dfgnn_status backward(const dfgnn_launch *given, dfgnn_launch *launch,
                             dfgnn_args *args, const norm_memory *m,
                             dfgnn_status (*part)(const dfgnn_launch *)) {
  const dfgnn_problem *problem = given->setting.problem;
  const dfgnn_matrix *matrix = given->setting.matrix;
  const dfgnn_args *a = given->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  side query = {.name = "query",
                .data = a->query,
                .weight = a->query_norm,
                .strides = &a->query_strides,
                .nodes = matrix->destinations,
                .grad_weight = a->grad_query_norm};
  side key = {.name = "key",
              .data = a->key,
              .weight = a->key_norm,
              .strides = &a->key_strides,
              .nodes = matrix->sources,
              .grad_weight = a->grad_key_norm};
  dfgnn_status status;
  if (a->grad_query ? problem->accumulate : query.grad_weight != NULL)
    place(&args->grad_query, &args->grad_query_strides, m->grad_query, problem);
  /* The gradient of a normalised key may replace the key: nobody reads the key
   * once its column is walked, and the walk over rows comes first. */
  if (key.grad_weight && !a->grad_key)
    place(&args->grad_key, &args->grad_key_strides, m->key, problem);
  if ((status = part(launch)) ||
      (status =
           dfgnn__view_tensor(&query.gradient, "grad_query", args->grad_query,
                              &args->grad_query_strides, size)) ||
      (status = dfgnn__view_tensor(&query.to, "grad_query", a->grad_query,
                                   &a->grad_query_strides, size)) ||
      (status = dfgnn__view_tensor(&key.gradient, "grad_key", args->grad_key,
                                   &args->grad_key_strides, size)) ||
      (status = dfgnn__view_tensor(&key.to, "grad_key", a->grad_key,
                                   &a->grad_key_strides, size)) ||
      (status = through(given, &query, m->totals)))
    return status;
  return through(given, &key, m->totals);
}

dfgnn_status dfgnn__qk_norm_launch(const dfgnn_launch *given,
                                   dfgnn_status (*part)(const dfgnn_launch *)) {
  const dfgnn_problem *problem = given->setting.problem;
  const dfgnn_matrix *matrix = given->setting.matrix;
  if (!problem->qk_norm)
    return part(given);
  const norm_memory m = memory_of(&given->setting, given->workspace);
  const tensor_view query = dense_view(problem, m.query),
                    key = dense_view(problem, m.key);
  dfgnn_launch launch = *given;
  dfgnn_problem without_norm = *problem;
  dfgnn_args args = *given->args;
  const dfgnn_args *a = given->args;
  dfgnn_status status;
  without_norm.qk_norm = DFGNN_QK_NORM_NONE;
  without_norm.accumulate = 0;
  launch.setting.problem = &without_norm;
  launch.args = &args;
  launch.workspace = (char *)given->workspace + m.bytes;
  place((void **)&args.query, &args.query_strides, m.query, problem);
  place((void **)&args.key, &args.key_strides, m.key, problem);
  if ((status = normalize(given, "query", a->query, &a->query_strides, &query,
                          matrix->destinations, a->query_norm)) ||
      (status = normalize(given, "key", a->key, &a->key_strides, &key,
                          matrix->sources, a->key_norm)))
    return status;
  return problem->pass == DFGNN_PASS_BACKWARD
             ? backward(given, &launch, &args, &m, part)
             : part(&launch);
}
