/* passes.c - attention in separate passes: the paper's fusions and the baseline
 *
 *   unfused  scores, softmax and sums, each a pass over the edges
 *   pmf      Parallelism Maximization Fusion of the DF-GNN paper: scores of all
 *            edges to memory, edges shared evenly; then softmax and sum row by
 *            row
 *   smmf     Shared Memory Maximization Fusion of the paper: one kernel.
 *            Shared memory has the size that the heaviest block of
 *            the graph needs, up to a share of the device's; blocks that need
 *            more keep their scores in the workspace. */
#include <stdlib.h>

#include "kernels/attention/cuda/passes.h"
#include "kernels/attention/operators.h"
#include "kernels/common/cuda_host.h"
#include "lib/base/error.h"

/* ---- arguments ----------------------------------------------------------- */

/* The bytes of all scores. */
static size_t score_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  return (size_t)setting->matrix->edges * (size_t)p->heads *
         dfgnn__scalar_size(p->dtype);
}

static dfgnn_operand operand(const void *data, const dfgnn_strides *s) {
  return (dfgnn_operand){data, s->node, s->head, s->feature};
}

/* Can 16-byte words be loaded from x? */
static int takes_words(const dfgnn_operand *x, int64_t vector) {
  return (uintptr_t)x->data % 16 == 0 && x->feature == 1 &&
         x->node % vector == 0 && x->head % vector == 0;
}

static int widest(const dfgnn_passes *p, const dfgnn_problem *problem) {
  const int vector = dfgnn__wide_vector(problem->dtype);
  if (!takes_words(&p->value, vector) || !takes_words(&p->out, vector))
    return 1;
  if (DFGNN_HAS_QUERY(problem->op) && !takes_words(&p->query, vector))
    return 1;
  if (DFGNN_HAS_KEY(problem->op) && !takes_words(&p->key, vector))
    return 1;
  if (DFGNN_HAS_ATT(problem->op) && (uintptr_t)p->att % 16)
    return 1;
  return p->dim % vector == 0 ? vector : 1;
}

/* Fills the arguments of a call and returns the elements of a load.  The scores
 * are the workspace, row_of_edge is the first view if there is one. */
static int fill(dfgnn_passes *passes, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  *passes = (dfgnn_passes){
      .rows = matrix->destinations,
      .edges = matrix->edges,
      .heads = (int)problem->heads,
      .dim = (int)problem->dim,
      /* A block for a row pays off where rows are too few for all warps. */
      .heavy = matrix->destinations < 65536 ? 96 : 256,
      .offsets64 = matrix->offsets64,
      .offsets = matrix->offsets,
      .indices = matrix->indices,
      .row_of_edge =
          launch->views && launch->views[0] ? launch->views[0]->array[0] : NULL,
      .query = operand(args->query, &args->query_strides),
      .key = operand(args->key, &args->key_strides),
      .value = operand(args->value, &args->value_strides),
      .out = operand(args->out, &args->out_strides),
      .score_dst = args->score_dst,
      .score_src = args->score_src,
      .att = args->att,
      .beta = args->beta,
      .lse = args->lse,
      .weights = problem->weights ? args->weights : NULL,
      .scores = launch->workspace,
      .scale = args->scale,
      .slope = args->slope};
  return widest(passes, problem);
}

/* ---- scores -------------------------------------------------------------- */

/* Lanes that score an edge: enough to keep the row in registers, and no fewer
 * than make whole sectors. */
static int lanes_for(const dfgnn_problem *problem, int vector) {
  const int64_t vectors = problem->dim / vector;
  const int held = PASS_HELD_VECTORS(vector);
  if (DFGNN_HAS_SCALARS(problem->op)) /* its scores read no features */
    return 1;
  const int fewest = pass_lanes(vectors < 4 ? vectors : 4);
  const int wanted = pass_lanes(dfgnn__ceil_div(vectors, held));
  return wanted > fewest ? wanted : fewest;
}

/* The edges of a group of lanes.  Many keep queries in registers and keys in
 * the L1, few fill the device: 1600 blocks are four waves of a large GPU. */
static int chunk_for(int64_t scores, int lanes) {
  const int64_t threads = (int64_t)1600 * PASS_THREADS;
  const int64_t chunk = scores * lanes / threads;
  return (int)(chunk < 2 ? 2 : chunk > 64 ? 64 : chunk / 2 * 2);
}

/* Launches the scores of all edges, shared out evenly. */
static dfgnn_status launch_scores(const dfgnn_passes *passes,
                                  const dfgnn_setting *setting, int vector) {
  const dfgnn_problem *problem = setting->problem;
  const int gat = DFGNN_HAS_SCALARS(problem->op);
  int lanes = lanes_for(problem, vector);
  int chunk = gat ? 1 : chunk_for(passes->edges * passes->heads, lanes);
  const int64_t shares = dfgnn__ceil_div(passes->edges, chunk) * passes->heads;
  const int64_t blocks = dfgnn__ceil_div(shares, PASS_THREADS / lanes);
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/passes.cuh", "dfgnn::edge_scores",
      DFGNN_TYPE(problem->dtype), (int)problem->op, gat ? 1 : vector);
  void *arguments[] = {(void *)passes, &lanes, &chunk};
  if (passes->edges == 0)
    return DFGNN_OK;
  return dfgnn__launch(
      setting->queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks}, .threads = PASS_THREADS},
      arguments);
}

/* ---- softmax and sums ---------------------------------------------------- */

/* Launches the softmax of rows, their sums, or both; steps: DFGNN_ROWS_... */
static dfgnn_status launch_rows(const dfgnn_passes *passes,
                                const dfgnn_setting *setting, int vector,
                                int steps) {
  const int gather = !!(steps & DFGNN_ROWS_GATHER);
  /* Where rows are many, a warp takes several: neighbours share the L1. */
  int each = PASS_THREADS / 32 * (passes->rows > 65536 ? 4 : 1);
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/passes.cuh", "dfgnn::pass_rows",
      DFGNN_TYPE(setting->problem->dtype), gather ? vector : 1, gather);
  void *arguments[] = {(void *)passes, &steps, &each};
  if (passes->rows == 0)
    return DFGNN_OK;
  return dfgnn__launch(
      setting->queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(passes->rows, each)},
                   .threads = PASS_THREADS},
      arguments);
}

/* ---- unfused and pmf ----------------------------------------------------- */

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return 1;
}

static dfgnn_status pmf_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_passes passes;
  const int vector = fill(&passes, launch);
  DFGNN_TRY(launch_scores(&passes, setting, vector));
  return launch_rows(&passes, setting, vector,
                     DFGNN_ROWS_SOFTMAX | DFGNN_ROWS_GATHER);
}

static dfgnn_status unfused_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_passes passes;
  const int vector = fill(&passes, launch);
  DFGNN_TRY(launch_scores(&passes, setting, vector));
  DFGNN_TRY(launch_rows(&passes, setting, vector, DFGNN_ROWS_SOFTMAX));
  return launch_rows(&passes, setting, vector, DFGNN_ROWS_GATHER);
}

/* ---- smmf ---------------------------------------------------------------- */

enum { BLOCKS_RESIDENT = 4 }; /* blocks that a multiprocessor should hold */

typedef struct smmf_state {
  size_t shared;
} smmf_state;

static size_t limit(const dfgnn_setting *setting) {
  int64_t most = setting->device->shared_bytes;
  return (size_t)(most > 0 ? most : 48 << 10) / BLOCKS_RESIDENT;
}

/* The bytes that one block's scores of one head take. */
static size_t block_bytes(const dfgnn_setting *setting, int64_t edges) {
  return (size_t)edges * dfgnn__scalar_size(setting->problem->dtype);
}

static size_t smmf_workspace(const dfgnn_setting *setting) {
  const int64_t most = setting->matrix->max_degree * SMMF_ROWS;
  return block_bytes(setting, most) <= limit(setting) ? 0
                                                      : score_bytes(setting);
}

/* The most edges of a block's rows. */
static dfgnn_status most_edges(int64_t *most, const dfgnn_setting *setting) {
  enum { MOST_BLOCKS = 512 };
  const dfgnn_queue *queue = setting->queue;
  const dfgnn_matrix *matrix = setting->matrix;
  const int64_t blocks =
      matrix->destinations / ((int64_t)SMMF_ROWS * PASS_THREADS) + 1;
  static const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/passes.cuh", "dfgnn::most_edges", PASS_THREADS);
  most_edges_params p = {.offsets = matrix->offsets,
                         .offsets64 = matrix->offsets64,
                         .block = SMMF_ROWS,
                         .rows = matrix->destinations};
  void *memory = NULL;
  dfgnn_status status = dfgnn__borrow(queue, &memory, sizeof *most);
  p.most = memory;
  if (!status)
    status = dfgnn__fill(queue, memory, 0, sizeof *most);
  if (!status)
    status = dfgnn__launch_struct(
        queue, &program,
        (dfgnn_grid){
            .blocks = {(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)},
            .threads = PASS_THREADS},
        &p);
  if (!status)
    status = dfgnn__read(queue, most, memory, sizeof *most);
  dfgnn__give_back(queue, memory);
  return status;
}

static dfgnn_status smmf_prepare(void **state, const dfgnn_setting *setting,
                                 const dfgnn_view *const *views) {
  int64_t most = 0;
  (void)views;
  smmf_state *s = malloc(sizeof *s);
  if (!s)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = most_edges(&most, setting);
  const size_t wanted =
      (block_bytes(setting, most) * (size_t)setting->problem->heads + 15) / 16 *
      16;
  const size_t most_bytes = limit(setting) / 16 * 16;
  s->shared = wanted < most_bytes ? wanted : most_bytes;
  if (status)
    free(s);
  else
    *state = s;
  return status;
}

static dfgnn_status smmf_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const smmf_state *state = launch->state;
  uint64_t room = state->shared;
  dfgnn_passes passes;
  const int vector = fill(&passes, launch);
  int lanes = lanes_for(problem, vector);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/passes.cuh", "dfgnn::smmf",
                    DFGNN_TYPE(problem->dtype), (int)problem->op, vector);
  void *arguments[] = {&passes, &room, &lanes};
  if (passes.rows == 0)
    return DFGNN_OK;
  return dfgnn__launch(setting->queue, &program,
                       (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(
                                        passes.rows, SMMF_ROWS)},
                                    .threads = PASS_THREADS,
                                    .shared = (unsigned)state->shared},
                       arguments);
}

/* ---- families ------------------------------------------------------------ */

#define PASSES(label)                                                          \
  .name = "cuda.attention.fwd." #label, .algorithm = #label,                   \
  .backend = "cuda", .ops = DFGNN_OPS_ATTENTION,                               \
  .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .dtypes = DFGNN_DTYPES_ALL,         \
  .revision = 2, .paper = 1, .deterministic = 1, .weights = 1,                 \
  .launch = label##_launch

DFGNN_FAMILIES(attention_cuda_passes) = {
    {PASSES(pmf), .workspace = score_bytes, .views = views},
    {PASSES(smmf), .workspace = smmf_workspace, .prepare = smmf_prepare,
     .release = free},
    {PASSES(unfused), .workspace = score_bytes, .views = views},
    DFGNN_FAMILIES_END};
