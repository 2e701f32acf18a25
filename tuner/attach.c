/* attach.c - contexts that can tune: effort MEASURE, without lib calling tuner
 */
#include <stdlib.h>

#include "lib/base/error.h"
#include "lib/base/locale.h"
#include "lib/context.h"

static dfgnn_status read_budget(double *budget_s) {
  const char *text = getenv("DFGNN_TUNE_BUDGET");
  char *end;
  *budget_s = 2;
  if (!text || !*text)
    return DFGNN_OK;
  *budget_s = dfgnn__number_of(text, &end);
  if (end == text || *end || !(*budget_s > 0))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "DFGNN_TUNE_BUDGET is '%s', expected seconds > 0", text);
  return DFGNN_OK;
}

static dfgnn_status tune_miss(void *data, dfgnn_context *ctx,
                              dfgnn_graph *graph,
                              const dfgnn_problem *problem) {
  dfgnn_tune_options options = DFGNN_TUNE_OPTIONS_INIT;
  (void)data;
  dfgnn_status status = read_budget(&options.budget_s);
  return status ? status : dfgnn_tune(NULL, ctx, graph, problem, &options);
}

dfgnn_status dfgnn_context_create(dfgnn_context **ctx,
                                  const dfgnn_options *options) {
  dfgnn_context *opened;
  if (!ctx)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "ctx is NULL");
  DFGNN_TRY(dfgnn__context_open(&opened, options));
  dfgnn__context_set_on_miss(opened, tune_miss, NULL);
  *ctx = opened;
  return DFGNN_OK;
}
