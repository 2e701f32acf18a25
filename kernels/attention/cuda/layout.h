/* layout.h - host code that all attention kernels on a GPU share: views of
 * tensors, parts of a workspace, functions of a family, dropout, norms */
#ifndef DFGNN_ATTENTION_CUDA_LAYOUT_H
#define DFGNN_ATTENTION_CUDA_LAYOUT_H

#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/common/cuda_host.h"

/* ---- tensors ------------------------------------------------------------- */

/* Makes the view of an argument; the view of NULL has no data. */
dfgnn_status dfgnn__view_tensor(tensor_view *view, const char *name,
                                const void *data, const dfgnn_strides *strides,
                                size_t size);
/* Can vectors of `vector` elements of `size` bytes be loaded?  1 for a view
 * without data. */
int dfgnn__view_aligned(const tensor_view *view, int64_t heads, int vector,
                        size_t size);
/* Are features side by side, and heads behind each other?  1 for a view without
 * data.  heads: the number that a lane steps over; with 1, any stride will do.
 */
int dfgnn__view_packed(const tensor_view *view, int64_t heads, int64_t dim,
                       size_t size);

/* The tensors of a call that its operator and pass have, by name; the others
 * have no data. */
typedef struct attention_tensors {
  tensor_view query, key, value, out;
  tensor_view grad_out, grad_query, grad_key, grad_value;
} attention_tensors;
dfgnn_status dfgnn__tensors(attention_tensors *tensors,
                            const dfgnn_launch *launch);

/* Can vectors of `vector` elements be loaded from all of the views? */
int dfgnn__views_aligned(const tensor_view *const *views, int count,
                         const dfgnn_problem *problem, int vector);
/* Are all of them packed? */
int dfgnn__views_packed(const tensor_view *const *views, int count,
                        const dfgnn_problem *problem);

/* ---- workspaces ---------------------------------------------------------- */

/* Takes the next part of a workspace, as dfgnn__place() does.  Returns NULL for
 * a part without elements, or without a workspace, to count bytes alone. */
static inline void *dfgnn__part(size_t *next, void *workspace, int64_t count,
                                size_t size) {
  const size_t at = dfgnn__place(next, count, size);
  return workspace && count ? (char *)workspace + at : NULL;
}

/* ---- families ------------------------------------------------------------ */

/* Defines <label>_applicable and the other functions of a family, by those of
 * its kind, which take a setting or launch and a plan: plans##_refusal and
 * plans##_views, pass##_workspace and pass##_launch.  plan_of makes the plan of
 * the parameters. */
#define DFGNN_PLAN_FUNCTIONS(label, plan_type, plan_of, plans, pass)           \
  static const char *label##_applicable(const dfgnn_setting *s) {              \
    const plan_type plan = plan_of(s->parameter);                              \
    return plans##_refusal(s, &plan);                                          \
  }                                                                            \
  static size_t label##_workspace(const dfgnn_setting *s) {                    \
    const plan_type plan = plan_of(s->parameter);                              \
    return pass##_workspace(s, &plan);                                         \
  }                                                                            \
  static int label##_views(const dfgnn_setting *s,                             \
                           dfgnn_view_request *requests) {                     \
    const plan_type plan = plan_of(s->parameter);                              \
    return plans##_views(s, &plan, requests);                                  \
  }                                                                            \
  static dfgnn_status label##_launch(const dfgnn_launch *launch) {             \
    const plan_type plan = plan_of(launch->setting.parameter);                 \
    return pass##_launch(launch, &plan);                                       \
  }
#define DFGNN_PLAN_MEMBERS(label)                                              \
  .applicable = label##_applicable, .workspace = label##_workspace,            \
  .views = label##_views, .launch = label##_launch

/* ---- dropout and norms --------------------------------------------------- */

dropout_params dfgnn__dropout_params(const dfgnn_problem *problem,
                                     const dfgnn_args *args);

/* Inverse norms of a tensor's rows, [nodes,H] of the sums' type. */
dfgnn_status dfgnn__inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch);

#endif
