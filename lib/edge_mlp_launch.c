/* edge_mlp_launch.c - an execution's tensors become the job of a plan's launch
 */
#include "lib/base/error.h"
#include "lib/edge_mlp.h"

dfgnn_status dfgnn__edge_mlp_launch(const dfgnn_plan *plan,
                                    const dfgnn_launch *launch) {
  const struct dfgnn_mlp_shape *expected = plan->problem.mlp;
  const dfgnn_args *args = launch->args;
  dfgnn_launch bound = *launch;
  dfgnn_mlp_job job;
  dfgnn_mlp_form form;
  const struct dfgnn_mlp_shape *found;
  dfgnn_status status = dfgnn__edge_mlp_prepare(
      &job, args->mlp, plan->graph, args->mlp_args, plan->problem.pass);
  if (status)
    return status;
  dfgnn__mlp_form_of(&form, &job);
  status = dfgnn__edge_mlp_known(&found, &form);
  if (status)
    return status;
  if (found != expected)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID,
        "args.mlp and its tensors are \"%s\" of type %s, the "
        "plan is for \"%s\" of type %s",
        found->text, dfgnn_name(DFGNN_NAMES_DTYPE, job.mlp.dtype),
        expected->text, dfgnn_name(DFGNN_NAMES_DTYPE, plan->problem.dtype));
  bound.setting.mlp = &job;
  return plan->variant->family->launch(&bound);
}
