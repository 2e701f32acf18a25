/* dfgnn_xla.h - edge programs as custom calls of XLA, for JAX
 *
 * These are handlers, XLA_FFI_Handler of xla/ffi/api/c_api.h (major version 0),
 * for the platforms "cpu" and "CUDA": frame is a call frame; they return NULL
 * or an XLA_FFI_Error.  dfgnn.jax registers them.
 *
 * Arguments are offsets [N + 1] and indices, of which those beyond offsets[N]
 * are padding, and the seed of dropout, two uint32; then the inputs of the
 * program (dfgnn_program.h), of any real type each, which the attribute
 * `arguments` names ("offsets,indices,seed,q,k"); `results` the outputs.
 * Tensors are dense; tensors of edges may be as long as indices.  Attributes:
 * program and family are texts, sources, tf32 and trusted int64.  Lines
 * "# gradient OUTPUTS INPUTS" and "# keep OUTPUTS INPUTS" at the end of the
 * program, with a 1 or 0 for each output and input, derive it.
 *
 * A call makes the graph and destroys it; on a GPU the host waits for the
 * stream once, to read offsets[N]. */
#ifndef DFGNN_XLA_H
#define DFGNN_XLA_H

#include "dfgnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The context that calls use: of the CPU, or of the GPU with this number.  It
 * is the process's and is not to be destroyed. */
DFGNN_API dfgnn_status dfgnn_xla_context(dfgnn_context **ctx, int on_gpu,
                                         int ordinal);

DFGNN_API void *dfgnn_xla_cpu(void *frame);
DFGNN_API void *dfgnn_xla_cuda(void *frame);

#ifdef __cplusplus
}
#endif
#endif
