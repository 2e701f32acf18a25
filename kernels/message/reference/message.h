/* message.h - float64 sums and reductions of messages of edges by the formulas
 */
#ifndef DFGNN_MESSAGE_REFERENCE_H
#define DFGNN_MESSAGE_REFERENCE_H

#include "kernels/common/reference.h"

#ifdef __cplusplus
extern "C" {
#endif

dfgnn_status dfgnn__message_reference(const dfgnn_problem *problem,
                                      const dfgnn_matrix *matrix,
                                      const dfgnn_args *args,
                                      const dfgnn_expected *expected);
/* The same for the reductions other than sums. */
dfgnn_status dfgnn__message_reduce_reference(const dfgnn_problem *problem,
                                             const dfgnn_matrix *matrix,
                                             const dfgnn_args *args,
                                             const dfgnn_expected *expected);
/* The gradients of sums and reductions. */
dfgnn_status dfgnn__message_backward_reference(const dfgnn_problem *problem,
                                               const dfgnn_matrix *matrix,
                                               const dfgnn_args *args,
                                               const dfgnn_expected *expected);

#ifdef __cplusplus
}
#endif
#endif
