/* collect.c - a launch that is written down instead of done */
#include "lib/collect.h"

#include <string.h>

#include "lib/operator.h"

/* Aligned as device memory is; nothing reads what is there. */
static char *const nowhere = (char *)0x10000;

static void point_arguments(dfgnn_args *args, const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (dfgnn__tensor_used(t, problem))
      *dfgnn__tensor_slot(t, args) = nowhere;
  args->dropout = problem->dropout ? 0.5 : 0;
}

/* A view of one window, item, row ... of everything, so that nothing is passed
 * over for want of work. */
static void stand_in(dfgnn_view *view, const dfgnn_matrix *matrix) {
  view->count = matrix->destinations > 0 ? matrix->destinations : 1;
  view->extra = matrix->max_degree > 0 ? matrix->max_degree : 1;
  for (int k = 0; k < 4; k++)
    view->array[k] = nowhere;
}

dfgnn_status dfgnn__collect_programs(dfgnn_programs *list,
                                     const dfgnn_variant *variant,
                                     const dfgnn_setting *setting,
                                     const dfgnn_view *const *given) {
  const dfgnn_family *family = variant->family;
  const dfgnn_queue queue = {.list = list};
  dfgnn_view view[DFGNN_MAX_VIEWS];
  const dfgnn_view *views[DFGNN_MAX_VIEWS] = {NULL};
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  dfgnn_args args = DFGNN_ARGS_INIT, full;
  dfgnn_setting listing = *setting;
  void *state = NULL;
  memset(view, 0, sizeof view);
  if (strcmp(family->backend, "cuda"))
    return DFGNN_OK;
  listing.parameter = variant->parameter;
  listing.queue = &queue;
  int count = family->views ? family->views(&listing, requests) : 0;
  for (int k = 0; k < count; k++) {
    view[k].request = requests[k];
    stand_in(&view[k], setting->matrix);
    views[k] = given ? given[k] : &view[k];
  }
  point_arguments(&args, setting->problem);
  dfgnn_status status = dfgnn__args_complete(&full, &args, setting->problem);
  if (!status && family->prepare)
    status = family->prepare(&state, &listing, views);
  if (status)
    return status;
  const dfgnn_launch launch = {.setting = listing,
                               .args = &full,
                               .views = views,
                               .workspace = nowhere,
                               .state = state};
  status = family->launch(&launch);
  if (family->release && state)
    family->release(state);
  return status;
}
