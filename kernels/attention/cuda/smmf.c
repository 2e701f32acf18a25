/* smmf.c - Shared Memory Maximization Fusion of the DF-GNN paper: one kernel,
 * see smmf.cuh
 *
 * Shared memory has the size that the heaviest block of the graph needs, up to
 * a share of the device's; blocks that need more keep their scores in the
 * workspace. */
#include <stdlib.h>

#include "kernels/attention/cuda/passes_launch.h"
#include "lib/base/error.h"

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

static size_t workspace(const dfgnn_setting *setting) {
  const int64_t most = setting->matrix->max_degree * SMMF_ROWS;
  return block_bytes(setting, most) <= limit(setting)
             ? 0
             : dfgnn__passes_score_bytes(setting);
}

/* The most edges of a block's rows. */
static dfgnn_status most_edges(int64_t *most, const dfgnn_setting *setting) {
  enum { MOST_BLOCKS = 512 };
  const dfgnn_queue *queue = setting->queue;
  const dfgnn_matrix *matrix = setting->matrix;
  const int64_t blocks =
      matrix->destinations / ((int64_t)SMMF_ROWS * PASS_THREADS) + 1;
  const dfgnn_program program = {.source =
                                     "kernels/attention/cuda/most_edges.cuh",
                                 .name = "dfgnn::most_edges"};
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

static dfgnn_status prepare(void **state, const dfgnn_setting *setting,
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

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const smmf_state *state = launch->state;
  uint64_t room = state->shared;
  dfgnn_passes passes;
  const int vector = dfgnn__passes_fill(&passes, launch);
  int lanes = dfgnn__passes_lanes(problem, vector);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/smmf.cuh", "dfgnn::smmf",
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

DFGNN_FAMILIES(attention_cuda_smmf) = {{.name = "cuda.attention.fwd.smmf",
                                        .algorithm = "smmf",
                                        .backend = "cuda",
                                        .ops = DFGNN_OPS_ATTENTION,
                                        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                        .dtypes = DFGNN_DTYPES_ALL,
                                        .revision = 2,
                                        .paper = 1,
                                        .deterministic = 1,
                                        .weights = 1,
                                        .workspace = workspace,
                                        .prepare = prepare,
                                        .release = free,
                                        .launch = launch},
                                       DFGNN_FAMILIES_END};
