/* cusparse.h - the part of cuSPARSE that the unfused baseline uses, found at
 * run time: the library itself needs the driver only */
#ifndef DFGNN_KERNELS_CUSPARSE_H
#define DFGNN_KERNELS_CUSPARSE_H

#include <stddef.h>
#include <stdint.h>

/* Values of NVIDIA's cusparse.h and library_types.h. */
enum {
  CUSPARSE_OK = 0,
  CUSPARSE_PLAIN = 0,      /* CUSPARSE_OPERATION_NON_TRANSPOSE */
  CUSPARSE_TRANSPOSED = 1, /* CUSPARSE_OPERATION_TRANSPOSE */
  CUSPARSE_I32 = 2,        /* CUSPARSE_INDEX_32I */
  CUSPARSE_ROW_MAJOR = 2,  /* CUSPARSE_ORDER_ROW */
  CUSPARSE_F32 = 0,        /* CUDA_R_32F */
  CUSPARSE_SPMM_ALG3 = 12, /* deterministic, and the fastest of three */
  CUSPARSE_SDDMM_ALG = 0
};

typedef struct dfgnn_cusparse {
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*set_stream)(void *handle, void *stream);
  const char *(*error)(int status);
  int (*create_csr)(void **matrix, int64_t rows, int64_t columns, int64_t edges,
                    void *offsets, void *indices, void *values, int offset_type,
                    int index_type, int index_base, int value_type);
  int (*destroy_csr)(const void *matrix);
  int (*set_values)(void *matrix, void *values);
  int (*create_dense)(void **matrix, int64_t rows, int64_t columns,
                      int64_t leading, void *values, int value_type, int order);
  int (*destroy_dense)(const void *matrix);
  int (*set_dense)(void *matrix, void *values);
  int (*sddmm_bytes)(void *handle, int op_a, int op_b, const void *alpha,
                     const void *a, const void *b, const void *beta, void *c,
                     int compute_type, int algorithm, size_t *bytes);
  int (*sddmm)(void *handle, int op_a, int op_b, const void *alpha,
               const void *a, const void *b, const void *beta, void *c,
               int compute_type, int algorithm, void *buffer);
  int (*spmm_bytes)(void *handle, int op_a, int op_b, const void *alpha,
                    const void *a, const void *b, const void *beta, void *c,
                    int compute_type, int algorithm, size_t *bytes);
  int (*spmm)(void *handle, int op_a, int op_b, const void *alpha,
              const void *a, const void *b, const void *beta, void *c,
              int compute_type, int algorithm, void *buffer);
} dfgnn_cusparse;

/* The functions of cuSPARSE, loaded once; NULL where it is not found. */
const dfgnn_cusparse *dfgnn__cusparse(void);

#endif
