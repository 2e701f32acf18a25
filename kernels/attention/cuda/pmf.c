/* pmf.c - Parallelism Maximization Fusion of the DF-GNN paper: scores of
 * all edges to memory, edges shared evenly; then softmax and sum row by row.
 * Each of its optimisations can be left out. */
#include "kernels/attention/cuda/passes_launch.h"

enum { BALANCE, VEC, SOFTMAX };

/* The paper's ablations: all optimisations, all but one, none. */
static int legal(const int *parameter) {
  int out = parameter[BALANCE] + parameter[VEC] + parameter[SOFTMAX];
  return out != 2;
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  if (setting->parameter[BALANCE])
    return 0;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return 1;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const int *parameter = setting->parameter;
  dfgnn_passes passes;
  const int vector = dfgnn__passes_fill(&passes, launch, parameter[VEC]);
  dfgnn_status status =
      dfgnn__passes_scores(&passes, setting, vector, parameter[BALANCE]);
  if (status)
    return status;
  return dfgnn__passes_rows(
      &passes, setting, vector,
      DFGNN_ROWS_SOFTMAX | DFGNN_ROWS_GATHER |
          (parameter[SOFTMAX] ? DFGNN_ROWS_REDUNDANT : 0));
}

DFGNN_FAMILIES(attention_cuda_pmf) = {
    {.name = "cuda.attention.fwd.pmf",
     .algorithm = "pmf",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 1,
     .paper = 1,
     .deterministic = 1,
     .weights = 1,
     .parameters = {{.name = "balance",
                     .count = 2,
                     .values = {0, 1},
                     .labels = {"edge", "row"}},
                    {.name = "vec",
                     .count = 2,
                     .values = {0, 1},
                     .labels = {"wide", "1"}},
                    {.name = "softmax",
                     .count = 2,
                     .values = {0, 1},
                     .labels = {"once", "redundant"}}},
     .legal = legal,
     .workspace = dfgnn__passes_score_bytes,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END};
