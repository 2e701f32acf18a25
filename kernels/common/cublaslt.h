/* cublaslt.h - products of dense matrices by cuBLASLt, which is found at run
 * time: the library itself needs the driver only */
#ifndef DFGNN_KERNELS_CUBLASLT_H
#define DFGNN_KERNELS_CUBLASLT_H

#include "kernels/engine/engine.h"

enum { DFGNN_GEMM_WORKSPACE = 32 << 20 }; /* bytes, as torch gives on sm_90 */

/* to = op(a) op(b) + keep * to, of rows in memory: op(a) is [rows, inner] and
 * op(b) [inner, columns].  A transposed operand is in memory as the transpose
 * of that.  Sums are of float. */
typedef struct dfgnn_gemm {
  dfgnn_dtype dtype;    /* of a and b */
  dfgnn_dtype to_dtype; /* that, or float */
  int64_t rows, columns, inner;
  const void *a, *b;
  int a_transposed, b_transposed;
  int64_t a_stride, b_stride, to_stride; /* numbers of a row in memory */
  void *to;
  float keep;
  const void *bias; /* [columns] of dtype, 16-byte aligned: added to each row;
                     * or NULL */
} dfgnn_gemm;

/* Is cuBLASLt there?  It is looked for once. */
int dfgnn__has_cublaslt(void);

/* Puts the product on the queue's stream; floats are rounded to TF32.
 * Addresses and strides are multiples of 16 bytes.  workspace: of
 * DFGNN_GEMM_WORKSPACE bytes, in use until the stream is there.  The same
 * product with the same alignment has the same bits in every run.  On a queue
 * that lists programs it opens the library, so that launches find it open. */
dfgnn_status dfgnn__multiply(const dfgnn_queue *queue, const dfgnn_gemm *gemm,
                             void *workspace);

#endif
