/* cusparse.h - SDDMM and SpMM of cuSPARSE on the planes of
 * passes.h */
#ifndef DFGNN_ATTENTION_CUDA_CUSPARSE_H
#define DFGNN_ATTENTION_CUDA_CUSPARSE_H

#include "kernels/attention/cuda/passes_launch.h"

typedef struct dfgnn_cusparse_state dfgnn_cusparse_state;

/* NULL if cuSPARSE can do the products of this setting, else the reason. */
const char *dfgnn__cusparse_refusal(const dfgnn_setting *setting);

/* Handles and descriptors for calls that run side by side. */
dfgnn_status dfgnn__cusparse_open(dfgnn_cusparse_state **state,
                                  const dfgnn_setting *setting);
void dfgnn__cusparse_close(dfgnn_cusparse_state *state);
/* Bytes of the buffer behind the scores in the workspace.  It is a call's own,
 * as it may still be in use when the next call comes. */
size_t dfgnn__cusparse_buffer(const dfgnn_setting *setting);

/* Can cuSPARSE follow the strides of this call? */
int dfgnn__cusparse_serves_scores(const dfgnn_passes *passes);
int dfgnn__cusparse_serves_gather(const dfgnn_passes *passes);

/* buffer: the one behind the scores in the workspace. */
dfgnn_status dfgnn__cusparse_scores(dfgnn_cusparse_state *state,
                                    const dfgnn_passes *passes, void *buffer,
                                    void *stream);
dfgnn_status dfgnn__cusparse_gather(dfgnn_cusparse_state *state,
                                    const dfgnn_passes *passes, void *buffer,
                                    void *stream);

#endif
