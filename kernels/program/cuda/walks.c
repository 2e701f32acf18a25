/* walks.c - edge programs as generated kernels: walk.cuh and generate.c */
#include "kernels/common/cuda_host.h"
#include "kernels/program/cuda/codes.h"
#include "kernels/program/cuda/run.h"

enum { LANES, SIDES, UNROLL, VECTOR, LONG, ORDER };

static dfgnn_program_tuning tuning_of(const int *parameter) {
  return (dfgnn_program_tuning){.lanes = parameter[LANES],
                                .group = parameter[LANES] * parameter[SIDES],
                                .unroll = parameter[UNROLL],
                                .vector = parameter[VECTOR],
                                .long_row = parameter[LONG]};
}

static int walks_legal(const int *parameter) {
  return parameter[LANES] * parameter[SIDES] <= 32;
}

/* The edges of the longest column; all, if it is not known. */
static int64_t longest_column(const dfgnn_setting *s) {
  const int64_t longest = s->signature ? s->signature->max_source_degree : 0;
  return longest ? longest : s->matrix->edges;
}

static int walks_relations(const dfgnn_lowered *lowered) {
  int some = 0;
  for (int w = 0; w < lowered->walk_count; w++)
    some |= lowered->walks[w].own == DFGNN_PLACE_REL;
  return some;
}

static const char *walks_applicable(const dfgnn_setting *s) {
  if (!s->program)
    return "the program is not known";
  const dfgnn_extent widest =
      dfgnn__program_widest(s->program->lowered, s->program->extents);
  const int vector = s->parameter[VECTOR], lanes = s->parameter[LANES];
  const int64_t row = widest.axis[2], heads = widest.all / row;
  if (row % vector)
    return "rows are no multiple of the vector";
  if (vector == 4 && s->problem->dtype == DFGNN_F64)
    return "a lane loads two doubles at most";
  if (vector == 1 && row % 2 == 0)
    return "rows have pairs of features to load";
  const int64_t most =
      dfgnn__ceil_power(heads * dfgnn__ceil_power(row / vector));
  if (lanes > most)
    return "a row takes fewer lanes";
  if (lanes < 8 && lanes < most)
    return "a row takes more lanes";
  if (!s->parameter[LONG] && walks_relations(s->program->lowered))
    return "relations have too many edges for the lanes of a warp";
  if (s->parameter[LONG] && !s->matrix->relations &&
      s->matrix->max_degree <= s->parameter[LONG] &&
      longest_column(s) <= s->parameter[LONG])
    return "no row has so many edges";
  return NULL;
}

/* The views of the program, then those of rows. */
static int walks_views(const dfgnn_setting *setting,
                       dfgnn_view_request *requests) {
  int count = dfgnn__program_views(setting, requests);
  const int64_t columns = longest_column(setting);
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn__program_job_of(&job, &binding, setting, NULL);
  count += dfgnn__program_long_views(
      requests + count, &job, setting->parameter[LONG],
      setting->matrix->max_degree, columns, job.threads);
  return setting->parameter[ORDER]
             ? count + dfgnn__program_order_views(requests + count, &job)
             : count;
}

static int has_totals(const dfgnn_generated *g, int walks) {
  int some = 0;
  for (int w = 0; w < walks; w++)
    some |= g->walks[w].totals > 0;
  return some;
}

/* Tensors that lie at odd addresses are loaded by shorter vectors, which may
 * change how many warps add up totals.  What cannot be generated says why when
 * it is launched. */
static size_t walks_workspace(const dfgnn_setting *setting) {
  dfgnn_program_tuning tuning = tuning_of(setting->parameter);
  dfgnn_program_job job;
  dfgnn_binding binding;
  size_t most = 0;
  dfgnn__program_job_of(&job, &binding, setting, NULL);
  for (; tuning.vector; tuning.vector /= 2) {
    const dfgnn_program_code *code;
    if (dfgnn__program_code(&code, &job, &tuning))
      break;
    const size_t bytes =
        dfgnn__program_cuda_workspace(&job, code->generated, job.threads);
    most = bytes > most ? bytes : most;
    if (!has_totals(code->generated, job.lowered->walk_count))
      break;
  }
  return most;
}

static dfgnn_status walks_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_program_job job;
  dfgnn_binding binding;
  const dfgnn_program_code *code;
  dfgnn__program_job_of(&job, &binding, setting, launch->views);
  job.seed = launch->args->seed_value;
  job.device_seed = launch->args->seed;
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const int first = dfgnn__program_views(setting, requests);
  dfgnn__program_take_rows(&job, setting->parameter[LONG],
                           launch->views + first,
                           walks_views(setting, requests) - first);
  const dfgnn_program_tuning tuning = tuning_of(setting->parameter);
  DFGNN_TRY(dfgnn__program_code(&code, &job, &tuning));
  return dfgnn__program_cuda(&job, code->generated, code->source,
                             setting->queue, job.threads, launch->workspace);
}

DFGNN_FAMILIES(program_cuda_walks) = {
    {.name = "cuda.program.walks",
     .algorithm = "walks",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_PROGRAM),
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 6,
     .deterministic = 1,
     .parameters = {{"lanes", 6, {1, 2, 4, 8, 16, 32}},
                    {"sides", 6, {1, 2, 4, 8, 16, 32}},
                    {"unroll", 3, {1, 2, 4}},
                    {"vector", 3, {1, 2, 4}},
                    {"long", 2, {64, 0}},
                    {"order", 2, {0, 1}, {"natural", "degree"}}},
     .legal = walks_legal,
     .applicable = walks_applicable,
     .workspace = walks_workspace,
     .views = walks_views,
     .launch = walks_launch},
    DFGNN_FAMILIES_END};
