/* xla_call.h - what custom calls of XLA share: a frame, its device, its matrix
 */
#ifndef DFGNN_LIB_XLA_CALL_H
#define DFGNN_LIB_XLA_CALL_H

#include "dfgnn_xla.h"
#include "lib/xla_ffi.h"

typedef struct dfgnn_xla {
  const xla_frame *frame;
  int on_gpu;
  dfgnn_context *ctx;
  void *stream;  /* NULL on the CPU */
  dfgnn_csr csr; /* of the first two arguments, offsets and indices */
} dfgnn_xla;

/* Finds the device of a call and reads its matrix. */
dfgnn_status dfgnn__xla_open(dfgnn_xla *c);

/* Attributes.  A word is short; the caller frees a text. */
enum { DFGNN_XLA_WORD = 256 };
dfgnn_status dfgnn__xla_word(char word[DFGNN_XLA_WORD], const dfgnn_xla *c,
                             const char *name);
dfgnn_status dfgnn__xla_text(char **text, const dfgnn_xla *c, const char *name);
dfgnn_status dfgnn__xla_integer(int64_t *value, const dfgnn_xla *c,
                                const char *name);

/* Gives the buffers from the first on, one after the other, to a function, with
 * the names that an attribute lists, of those before the first too. */
typedef dfgnn_status dfgnn_xla_taker(void *taker, const char *name,
                                     const xla_buffer *buffer);
dfgnn_status dfgnn__xla_each(const dfgnn_xla *c, const char *attribute_name,
                             const xla_buffers *buffers, int64_t first,
                             dfgnn_xla_taker *take, void *taker);

/* Does the work in this much memory of XLA's on a GPU, of the host's on a CPU.
 */
typedef dfgnn_status dfgnn_xla_work(const void *subject, void *workspace,
                                    void *stream);
dfgnn_status dfgnn__xla_in_room(const dfgnn_xla *c, size_t bytes,
                                dfgnn_xla_work *work, const void *subject);

/* xla_program.c */
dfgnn_status dfgnn__xla_run_program(dfgnn_xla *c);

#endif
