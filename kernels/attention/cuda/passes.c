/* passes.c - launches of the separate passes: scores, softmax and sums */
#include "kernels/attention/cuda/passes_launch.h"
#include "kernels/attention/operators.h"

size_t dfgnn__passes_score_bytes(const dfgnn_setting *setting) {
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

int dfgnn__passes_fill(dfgnn_passes *passes, const dfgnn_launch *launch) {
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

int dfgnn__passes_lanes(const dfgnn_problem *problem, int vector) {
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

dfgnn_status dfgnn__passes_scores(const dfgnn_passes *passes,
                                  const dfgnn_setting *setting, int vector) {
  const dfgnn_problem *problem = setting->problem;
  const int gat = DFGNN_HAS_SCALARS(problem->op);
  int lanes = dfgnn__passes_lanes(problem, vector);
  int chunk = gat ? 1 : chunk_for(passes->edges * passes->heads, lanes);
  const int64_t shares = dfgnn__ceil_div(passes->edges, chunk) * passes->heads;
  const int64_t blocks = dfgnn__ceil_div(shares, PASS_THREADS / lanes);
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/scores.cuh", "dfgnn::edge_scores",
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

dfgnn_status dfgnn__passes_rows(const dfgnn_passes *passes,
                                const dfgnn_setting *setting, int vector,
                                int steps) {
  const int gather = !!(steps & DFGNN_ROWS_GATHER);
  /* Where rows are many, a warp takes several: neighbours share the L1. */
  int each = PASS_THREADS / 32 * (passes->rows > 65536 ? 4 : 1);
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/rows.cuh", "dfgnn::pass_rows",
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
