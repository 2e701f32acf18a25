/* spmm.c - the CPU families of SpMM, forward and backward */
#include "kernels/spmm/cpu/spmm.h"
#include "kernels/common/cpu_tables.h"

DFGNN_CPU_TABLES(dfgnn__cpu_spmm_kernels, dfgnn_cpu_spmm_kernels,
                 dfgnn__cpu_spmm)

/* ---- the workspace ------------------------------------------------------- */

static int mean(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

/* Backward, each gathered row of a mean is scaled by 1 / its own degree. */
static size_t scale_bytes(const dfgnn_setting *setting) {
  return mean(setting->problem) && setting->problem->pass == DFGNN_PASS_BACKWARD
             ? dfgnn__cpu_aligned((size_t)setting->matrix->destinations *
                                  dfgnn__cpu_scalar_bytes(setting->problem))
             : 0;
}

static size_t state_bytes(const dfgnn_problem *problem) {
  return dfgnn__cpu_aligned((size_t)(problem->heads * problem->dim) *
                            dfgnn__cpu_scalar_bytes(problem));
}

size_t dfgnn__cpu_spmm_workspace(const dfgnn_setting *setting,
                                 dfgnn_cpu_algorithm algorithm) {
  return scale_bytes(setting) +
         dfgnn__cpu_walk_memory(setting, algorithm,
                                state_bytes(setting->problem));
}

/* ---- the job ------------------------------------------------------------- */

typedef struct scaling {
  const dfgnn_matrix *matrix;
  const void *scale;
  void *to;
  int wide; /* double */
} scaling;

static void divide(void *data, int64_t begin, int64_t end) {
  const scaling *s = data;
  const dfgnn_matrix *m = s->matrix;
  for (int64_t i = begin; i < end; i++) {
    int64_t degree = dfgnn__cpu_edge(m->offsets64, m->offsets, i + 1) -
                     dfgnn__cpu_edge(m->offsets64, m->offsets, i);
    double scale = !s->scale ? 1
                   : s->wide ? ((const double *)s->scale)[i]
                             : (double)((const float *)s->scale)[i];
    scale /= degree > 0 ? (double)degree : 1;
    if (s->wide)
      ((double *)s->to)[i] = scale;
    else
      ((float *)s->to)[i] = (float)scale;
  }
}

static void forward(dfgnn_cpu_spmm *job, const dfgnn_problem *problem,
                    const dfgnn_args *args) {
  job->from = dfgnn__cpu_table(problem, args->value, &args->value_strides);
  job->to = dfgnn__cpu_table(problem, args->out, &args->out_strides);
  job->scale = args->scale_src;
  job->after = args->scale_dst;
  job->mean = mean(problem);
}

static void backward(dfgnn_cpu_spmm *job, const dfgnn_problem *problem,
                     const dfgnn_args *args, const dfgnn_view *transpose) {
  job->from =
      dfgnn__cpu_table(problem, args->grad_out, &args->grad_out_strides);
  job->to =
      dfgnn__cpu_table(problem, args->grad_value, &args->grad_value_strides);
  job->scale = args->scale_dst;
  job->after = args->scale_src;
  job->edge = transpose->array[2];
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED) {
    job->own = dfgnn__cpu_table(problem, args->value, &args->value_strides);
    job->grad_weight = args->grad_edge_weight;
  }
}

static void cut_pieces(dfgnn_cpu_spmm *job, const dfgnn_problem *problem) {
  const dfgnn_cpu_table *tables[] = {&job->from, &job->to, &job->own};
  size_t size = dfgnn_dtype_size(problem->dtype);
  size_t elements[] = {size, size, size};
  job->pieces =
      dfgnn__cpu_pieces(problem, job->weight != NULL, tables, elements, 3);
}

static void run(const dfgnn_cpu_spmm *job, const dfgnn_launch *launch,
                const dfgnn_cpu_walk *walk, dfgnn_cpu_algorithm algorithm,
                const dfgnn_view *items) {
  const int *p = launch->setting.parameter;
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_cpu_spmm_kernels *kernels =
      dfgnn__cpu_spmm_kernels(p[DFGNN_CPU_P_SIMD], problem->dtype);
  int64_t dim = job->pieces.dim;
  int64_t slice = dfgnn__cpu_slice(algorithm, p, dim);
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  dfgnn_cpu_spmm part = *job;
  dfgnn_cpu_aggregate aggregate = {.job = &part,
                                   .pieces = job->pieces.count,
                                   .state_bytes = state_bytes(problem),
                                   .fold = kernels->fold,
                                   .merge = kernels->merge,
                                   .finish = kernels->finish};
  for (int64_t d = 0; d < dim; d += slice) {
    part.pieces.dim = dim - d < slice ? dim - d : slice;
    part.from.base = job->from.base + d * size;
    if (job->to.base)
      part.to.base = job->to.base + d * size;
    if (d > 0)
      part.grad_weight = NULL; /* the first slice computed all of it */
    if (part.to.base || part.grad_weight)
      dfgnn__cpu_walk_run(walk, &aggregate, algorithm, p, items);
  }
}

dfgnn_status dfgnn__cpu_spmm_launch(const dfgnn_launch *launch,
                                    dfgnn_cpu_algorithm algorithm) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  dfgnn_matrix matrix = *setting->matrix;
  dfgnn_args args = *launch->args;
  int back = problem->pass == DFGNN_PASS_BACKWARD;
  int threads = setting->device->units;
  char *memory = launch->workspace;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    args.scale_dst = args.scale_src = NULL; /* it has none */
  if (back && mean(problem)) {
    scaling s = {setting->matrix, args.scale_dst, memory,
                 problem->dtype == DFGNN_F64};
    dfgnn__cpu_for(threads, matrix.destinations, 4096, divide, &s);
    args.scale_dst = memory;
  }
  memory += scale_bytes(setting);
  if (back)
    matrix = dfgnn__transposed(setting->matrix, launch->views[0]);

  dfgnn_cpu_spmm job = {.edges = matrix.edges,
                        .heads = problem->heads,
                        .dim = problem->dim,
                        .offsets64 = matrix.offsets64,
                        .offsets = matrix.offsets,
                        .indices = matrix.indices,
                        .prefetch = setting->parameter[DFGNN_CPU_P_PREFETCH]};
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    job.weight = args.edge_weight;
  if (back)
    backward(&job, problem, &args, launch->views[0]);
  else
    forward(&job, problem, &args);
  cut_pieces(&job, problem);
  dfgnn_cpu_walk walk = dfgnn__cpu_walk(&matrix, threads, memory);
  run(&job, launch, &walk, algorithm,
      algorithm == DFGNN_CPU_SPLIT ? launch->views[back] : NULL);
  return DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

DFGNN_CPU_WALK_ALGORITHMS(dfgnn__cpu_spmm_workspace, dfgnn__cpu_spmm_launch)

DFGNN_FAMILIES(spmm_cpu_spmm) = {
    DFGNN_CPU_WALK_FAMILIES("spmm", DFGNN_OPS_SPMM, "fwd", DFGNN_PASS_FORWARD,
                            DFGNN_CPU_SPMM_CHUNK, dfgnn__cpu_split_views),
    DFGNN_CPU_WALK_FAMILIES("spmm", DFGNN_OPS_SPMM, "bwd", DFGNN_PASS_BACKWARD,
                            DFGNN_CPU_SPMM_CHUNK, dfgnn__cpu_split_views),
    DFGNN_FAMILIES_END,
};
