/* halves.h - 16-bit problems of families that compute in float32 alone
 *
 * Such a family (dfgnn_family.widened) is given the same problem in F32, whose
 * tensors of storage are copies in the workspace; its results are rounded
 * once.  A gather reads a row for each edge, so that a conversion of each
 * node's costs less than one of each edge's. */
#ifndef DFGNN_LIB_HALVES_H
#define DFGNN_LIB_HALVES_H

#include "kernels/common/variant.h"

/* family->workspace and family->launch, with the copies where they are needed.
 */
size_t dfgnn__family_workspace(const dfgnn_family *family,
                               const dfgnn_setting *setting);
dfgnn_status dfgnn__family_launch(const dfgnn_family *family,
                                  const dfgnn_launch *launch);

#endif
