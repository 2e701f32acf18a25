/* xla.c - dfgnn as a custom call of XLA: the handlers that dfgnn.jax registers
 */
#include "lib/base/error.h"
#include "lib/xla_call.h"

static dfgnn_status run(dfgnn_xla *c) {
  char family[DFGNN_XLA_WORD];
  DFGNN_TRY(dfgnn__xla_open(c));
  DFGNN_TRY(dfgnn__xla_word(family, c, "family"));
  c->csr.family = *family ? family : NULL;
  return dfgnn__xla_run_program(c);
}

static xla_error *describe(const xla_frame *frame, dfgnn_status status) {
  xla_error_arguments arguments = {
      .struct_size = sizeof arguments,
      .message = dfgnn_last_error(),
      .code = status == DFGNN_ERROR_INVALID       ? XLA_INVALID_ARGUMENT
              : status == DFGNN_ERROR_MEMORY      ? XLA_RESOURCE_EXHAUSTED
              : status == DFGNN_ERROR_UNSUPPORTED ? XLA_UNIMPLEMENTED
                                                  : XLA_INTERNAL};
  return frame->api->error_create(&arguments);
}

/* XLA asks which version the handler was made for.  The functions that are used
 * here are in all minor versions, so the answer is the caller's version. */
static int answered(const xla_frame *frame) {
  const xla_extension *extension = frame->extensions;
  if (!extension || extension->type != XLA_EXTENSION_METADATA)
    return 0;
  xla_metadata *metadata =
      ((const xla_metadata_extension *)extension)->metadata;
  metadata->version =
      (xla_version){.struct_size = sizeof metadata->version,
                    .major = XLA_MAJOR_VERSION,
                    .minor = frame->api ? frame->api->version.minor : 0};
  metadata->traits = 0;
  return 1;
}

static void *handle(const xla_frame *frame, int on_gpu) {
  dfgnn_xla c = {.frame = frame, .on_gpu = on_gpu, .csr = DFGNN_CSR_INIT};
  if (answered(frame) || frame->stage != XLA_STAGE_EXECUTE)
    return NULL;
  dfgnn_status status =
      frame->api->version.major == XLA_MAJOR_VERSION
          ? run(&c)
          : dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                        "XLA call: XLA's C API is of version %d, this libdfgnn "
                        "knows version %d",
                        frame->api->version.major, XLA_MAJOR_VERSION);
  return status ? describe(frame, status) : NULL;
}

void *dfgnn_xla_cpu(void *frame) { return handle(frame, 0); }
void *dfgnn_xla_cuda(void *frame) { return handle(frame, 1); }
