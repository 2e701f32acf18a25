/* unfused.c - the baseline: sampled product, edge softmax, sparse product,
 * each a pass over the edges; products by cuSPARSE or by our own kernels */
#include "kernels/attention/cuda/cusparse.h"

enum { LIBRARY };

static int by_library(const dfgnn_setting *setting) {
  return setting->parameter[LIBRARY];
}

/* cuSPARSE scores dot products only. */
static int library_scores(const dfgnn_setting *setting) {
  return by_library(setting) && setting->problem->op == DFGNN_OP_GT;
}

static int empty(const dfgnn_matrix *matrix) {
  return matrix->edges == 0 || matrix->destinations == 0;
}

static const char *applicable(const dfgnn_setting *setting) {
  return by_library(setting) ? dfgnn__cusparse_refusal(setting) : NULL;
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_ROW_OF_EDGE};
  return 1;
}

static size_t score_bytes(const dfgnn_setting *setting) {
  return dfgnn__align256(dfgnn__passes_score_bytes(setting));
}

static size_t workspace(const dfgnn_setting *setting) {
  size_t bytes = score_bytes(setting);
  if (by_library(setting) && !empty(setting->matrix))
    bytes += dfgnn__cusparse_buffer(setting);
  return bytes;
}

static dfgnn_status prepare(void **state, const dfgnn_setting *setting,
                            const dfgnn_view *const *views) {
  (void)views;
  *state = NULL;
  /* A queue that only lists programs has no device for cuSPARSE; it lists our
   * kernels, which serve the strides that cuSPARSE does not follow. */
  if (!by_library(setting) || empty(setting->matrix) || setting->queue->list)
    return DFGNN_OK;
  return dfgnn__cusparse_open((dfgnn_cusparse_state **)state, setting);
}

static void release(void *state) { dfgnn__cusparse_close(state); }

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  dfgnn_cusparse_state *library = launch->state;
  dfgnn_passes passes;
  const int vector = dfgnn__passes_fill(&passes, launch);
  void *buffer = (char *)launch->workspace + score_bytes(setting);
  void *stream = setting->queue->stream;
  /* Our kernels serve the strides that the library does not follow. */
  const int gather_by_library =
      library && dfgnn__cusparse_serves_gather(&passes);
  const int score_by_library = library && library_scores(setting) &&
                               dfgnn__cusparse_serves_scores(&passes);
  dfgnn_status status =
      score_by_library
          ? dfgnn__cusparse_scores(library, &passes, buffer, stream)
          : dfgnn__passes_scores(&passes, setting, vector);
  if (!status)
    status = dfgnn__passes_rows(&passes, setting, vector, DFGNN_ROWS_SOFTMAX);
  if (status)
    return status;
  return gather_by_library
             ? dfgnn__cusparse_gather(library, &passes, buffer, stream)
             : dfgnn__passes_rows(&passes, setting, vector, DFGNN_ROWS_GATHER);
}

DFGNN_FAMILIES(attention_cuda_unfused) = {
    {.name = "cuda.attention.fwd.unfused",
     .algorithm = "unfused",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 2,
     .paper = 1,
     .deterministic = 1,
     .weights = 1,
     .parameters = {{.name = "lib",
                     .count = 2,
                     .values = {0, 1},
                     .labels = {"own", "cusparse"}}},
     .applicable = applicable,
     .workspace = workspace,
     .views = views,
     .prepare = prepare,
     .release = release,
     .launch = launch},
    DFGNN_FAMILIES_END};
