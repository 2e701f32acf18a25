/* collect.c - a launch that is written down instead of done */
#include "lib/collect.h"

#include <string.h>

#include "lib/edge_program.h"
#include "lib/operator.h"

/* Aligned as device memory is; nothing reads from this address. */
static char *const nowhere = (char *)0x10000;

/* choices: tensors that a caller may leave out are given, too. */
static void point_arguments(dfgnn_args *args, const dfgnn_problem *problem,
                            int choices) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (dfgnn__tensor_used(t, problem) &&
        (choices || !dfgnn__tensor_left_out(t)))
      *dfgnn__tensor_slot(t, args) = nowhere;
  args->dropout = problem->dropout ? 0.5 : 0;
}

/* A view in which no count is zero, so that no launch is passed over for want
 * of work. */
static void stand_in(dfgnn_view *view, const dfgnn_matrix *matrix) {
  view->count = matrix->destinations > 0 ? matrix->destinations : 1;
  view->extra = matrix->max_degree > 0 ? matrix->max_degree : 1;
  for (int k = 0; k < 4; k++)
    view->array[k] = nowhere;
}

static dfgnn_status list_launch(const dfgnn_variant *variant,
                                const dfgnn_setting *setting,
                                const dfgnn_view *const *views, void *state,
                                int choices) {
  dfgnn_args args = DFGNN_ARGS_INIT, full;
  point_arguments(&args, setting->problem, choices);
  dfgnn_status status = dfgnn__args_complete(&full, &args, setting->problem);
  const dfgnn_launch launch = {.setting = *setting,
                               .args = &full,
                               .views = views,
                               .workspace = nowhere,
                               .state = state};
  return status ? status : variant->family->launch(&launch);
}

dfgnn_status dfgnn__collect_programs(dfgnn_programs *list,
                                     const dfgnn_variant *variant,
                                     const dfgnn_setting *setting,
                                     const dfgnn_view *const *given, int all) {
  const dfgnn_family *family = variant->family;
  const dfgnn_queue queue = {.list = list};
  dfgnn_view view[DFGNN_MAX_VIEWS];
  const dfgnn_view *views[DFGNN_MAX_VIEWS] = {NULL};
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  dfgnn_setting listing = *setting;
  dfgnn_status status = DFGNN_OK;
  void *state = NULL;
  memset(view, 0, sizeof view);
  if (strcmp(family->backend, "cuda"))
    return DFGNN_OK;
  listing.parameter = variant->parameter;
  listing.queue = &queue;
  listing.program = dfgnn__edge_program_job(setting->problem);
  int count = family->views ? family->views(&listing, requests) : 0;
  for (int k = 0; k < count; k++) {
    view[k].request = requests[k];
    stand_in(&view[k], setting->matrix);
    views[k] = given ? given[k] : &view[k];
  }
  if (family->prepare)
    status = family->prepare(&state, &listing, views);
  if (!status)
    status = list_launch(variant, &listing, views, state, 0);
  if (!status && all)
    status = list_launch(variant, &listing, views, state, 1);
  if (family->release && state)
    family->release(state);
  return status;
}
