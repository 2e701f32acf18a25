/* qk_norm_launch.h - queries and keys of GT normalised over a head
 * (problem.qk_norm), around any family that knows nothing of it
 *
 * Normalised copies of queries and keys are made before the family launches its
 * kernels, which read them instead; its gradients of the copies go through the
 * norm afterwards.  The copies lie at the front of the workspace. */
#ifndef DFGNN_ATTENTION_CUDA_QK_NORM_LAUNCH_H
#define DFGNN_ATTENTION_CUDA_QK_NORM_LAUNCH_H

#include "kernels/common/variant.h"

/* Bytes in front of a family's own workspace; 0 without norms. */
size_t dfgnn__qk_norm_workspace(const dfgnn_setting *setting);

/* Launches a family's part, with norms around it where the problem has them. */
dfgnn_status dfgnn__qk_norm_launch(const dfgnn_launch *launch,
                                   dfgnn_status (*part)(const dfgnn_launch *));

#endif
