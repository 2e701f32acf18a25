/* pmf.c - Parallelism Maximization Fusion of the DF-GNN paper: scores of
 * all edges to memory, edges shared evenly; then softmax and sum row by row */
#include "kernels/attention/cuda/passes_launch.h"

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return 1;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_passes passes;
  const int vector = dfgnn__passes_fill(&passes, launch);
  dfgnn_status status = dfgnn__passes_scores(&passes, setting, vector);
  if (status)
    return status;
  return dfgnn__passes_rows(&passes, setting, vector,
                            DFGNN_ROWS_SOFTMAX | DFGNN_ROWS_GATHER);
}

DFGNN_FAMILIES(attention_cuda_pmf) = {{.name = "cuda.attention.fwd.pmf",
                                       .algorithm = "pmf",
                                       .backend = "cuda",
                                       .ops = DFGNN_OPS_ATTENTION,
                                       .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                       .dtypes = DFGNN_DTYPES_ALL,
                                       .revision = 2,
                                       .paper = 1,
                                       .deterministic = 1,
                                       .weights = 1,
                                       .workspace = dfgnn__passes_score_bytes,
                                       .views = views,
                                       .launch = launch},
                                      DFGNN_FAMILIES_END};
