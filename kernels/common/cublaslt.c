/* cublaslt.c - finds and loads cuBLASLt: DFGNN_CUBLASLT, the process (torch has
 * it) and the loader's own path, a toolkit, or the wheel of a python3 in PATH
 */
#include "kernels/common/cublaslt.h"

#include <pthread.h>
#include <stddef.h>

#include "kernels/engine/library.h"
#include "lib/base/error.h"

/* Values of NVIDIA's cublasLt.h, cublas_api.h and library_types.h. */
enum {
  CUBLAS_OK = 0,
  CUBLAS_PLAIN = 0,       /* CUBLAS_OP_N */
  CUBLAS_TRANSPOSED = 1,  /* CUBLAS_OP_T */
  CUBLAS_F32_SUMS = 68,   /* CUBLAS_COMPUTE_32F */
  CUBLAS_TF32_SUMS = 77,  /* CUBLAS_COMPUTE_32F_FAST_TF32 */
  CUDA_F32 = 0,           /* CUDA_R_32F */
  CUDA_F16 = 2,           /* CUDA_R_16F */
  CUDA_BF16 = 14,         /* CUDA_R_16BF */
  DESC_TRANSPOSE_A = 3,   /* CUBLASLT_MATMUL_DESC_TRANSA */
  DESC_TRANSPOSE_B = 4,   /* CUBLASLT_MATMUL_DESC_TRANSB */
  DESC_EPILOGUE = 7,      /* CUBLASLT_MATMUL_DESC_EPILOGUE */
  DESC_BIAS = 8,          /* CUBLASLT_MATMUL_DESC_BIAS_POINTER */
  EPILOGUE_BIAS = 4,      /* CUBLASLT_EPILOGUE_BIAS */
  WANTED_WORKSPACE = 1,   /* CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES */
  WANTED_ALIGNMENT_A = 5, /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, and
                           * those of B, C and D */
  ALIGNMENT = 16
};

/* cublasLtMatmulHeuristicResult_t */
typedef struct algorithm {
  uint64_t data[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} algorithm;

typedef struct cublaslt {
  int (*create)(void **handle);
  int (*create_product)(void **product, int sums, int scale);
  int (*destroy_product)(void *product);
  int (*set_product)(void *product, int member, const void *value, size_t size);
  int (*create_matrix)(void **matrix, int type, uint64_t rows, uint64_t columns,
                       int64_t leading);
  int (*destroy_matrix)(void *matrix);
  int (*create_wanted)(void **wanted);
  int (*destroy_wanted)(void *wanted);
  int (*set_wanted)(void *wanted, int member, const void *value, size_t size);
  int (*choose)(void *handle, void *product, void *a, void *b, void *c, void *d,
                void *wanted, int count, algorithm *found, int *found_count);
  int (*multiply)(void *handle, void *product, const void *alpha, const void *a,
                  void *a_matrix, const void *b, void *b_matrix,
                  const void *beta, const void *c, void *c_matrix, void *d,
                  void *d_matrix, const void *chosen, void *workspace,
                  size_t workspace_size, void *stream);
} cublaslt;

static cublaslt api;

static const dfgnn_library_function functions[] = {
    {"cublasLtCreate", offsetof(cublaslt, create)},
    {"cublasLtMatmulDescCreate", offsetof(cublaslt, create_product)},
    {"cublasLtMatmulDescDestroy", offsetof(cublaslt, destroy_product)},
    {"cublasLtMatmulDescSetAttribute", offsetof(cublaslt, set_product)},
    {"cublasLtMatrixLayoutCreate", offsetof(cublaslt, create_matrix)},
    {"cublasLtMatrixLayoutDestroy", offsetof(cublaslt, destroy_matrix)},
    {"cublasLtMatmulPreferenceCreate", offsetof(cublaslt, create_wanted)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(cublaslt, destroy_wanted)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(cublaslt, set_wanted)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(cublaslt, choose)},
    {"cublasLtMatmul", offsetof(cublaslt, multiply)},
};

enum { DEVICES = 64 };
/* By ordinal; they live as long as the process. */
static void *handles[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the library --------------------------------------------------------- */

static void find(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      "libcublasLt.so", NULL};
  static const char *const folders[] = {"nvidia/cu*/lib", "nvidia/cublas/lib",
                                        NULL};
  static const dfgnn_library library = {.variable = "DFGNN_CUBLASLT",
                                        .names = names,
                                        .file = "libcublasLt.so.*",
                                        .folders = folders,
                                        .functions = functions,
                                        .count = sizeof functions /
                                                 sizeof *functions};
  loaded = dfgnn__library_open(&library, &api);
}

int dfgnn__has_cublaslt(void) {
  pthread_once(&once, find);
  return loaded;
}

static dfgnn_status failed(const char *call, int error) {
  return dfgnn__fail(DFGNN_ERROR_DEVICE, "cuBLASLt: %s failed with status %d",
                     call, error);
}

/* The handle of the queue's device. */
static dfgnn_status open_handle(void **handle, const dfgnn_queue *queue) {
  const int ordinal = dfgnn__engine_ordinal(queue->engine);
  int error = CUBLAS_OK;
  if (!dfgnn__has_cublaslt())
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "cuBLASLt was not found");
  if (ordinal < 0 || ordinal >= DEVICES)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "cuBLASLt: found device %d, expected 0 to %d", ordinal,
                       DEVICES - 1);
  pthread_mutex_lock(&lock);
  if (!handles[ordinal]) {
    const int entered = dfgnn__engine_enter(queue->engine);
    error = api.create(&handles[ordinal]);
    dfgnn__engine_leave(entered);
  }
  *handle = handles[ordinal];
  pthread_mutex_unlock(&lock);
  return error ? failed("cublasLtCreate", error) : DFGNN_OK;
}

/* ---- products ------------------------------------------------------------ */

/* A product as cuBLASLt sees it: it reads columns where we have rows, so that
 * it computes the transposed product, of b and a. */
typedef struct description {
  void *product, *first, *second, *to, *wanted;
} description;

static int type_of(dfgnn_dtype dtype) {
  return dtype == DFGNN_F16    ? CUDA_F16
         : dtype == DFGNN_BF16 ? CUDA_BF16
                               : CUDA_F32;
}

static int describe_operands(description *d, const dfgnn_gemm *g) {
  const int type = type_of(g->dtype);
  int error = g->b_transposed
                  ? api.create_matrix(&d->first, type, (uint64_t)g->inner,
                                      (uint64_t)g->columns, g->b_stride)
                  : api.create_matrix(&d->first, type, (uint64_t)g->columns,
                                      (uint64_t)g->inner, g->b_stride);
  if (!error)
    error = g->a_transposed
                ? api.create_matrix(&d->second, type, (uint64_t)g->rows,
                                    (uint64_t)g->inner, g->a_stride)
                : api.create_matrix(&d->second, type, (uint64_t)g->inner,
                                    (uint64_t)g->rows, g->a_stride);
  if (!error)
    error =
        api.create_matrix(&d->to, type_of(g->to_dtype), (uint64_t)g->columns,
                          (uint64_t)g->rows, g->to_stride);
  return error;
}

static int describe_product(description *d, const dfgnn_gemm *g) {
  const int first = g->b_transposed ? CUBLAS_TRANSPOSED : CUBLAS_PLAIN;
  const int second = g->a_transposed ? CUBLAS_TRANSPOSED : CUBLAS_PLAIN;
  const int epilogue = EPILOGUE_BIAS;
  int error = api.create_product(
      &d->product, g->dtype == DFGNN_F32 ? CUBLAS_TF32_SUMS : CUBLAS_F32_SUMS,
      CUDA_F32);
  if (!error)
    error = api.set_product(d->product, DESC_TRANSPOSE_A, &first, sizeof first);
  if (!error)
    error =
        api.set_product(d->product, DESC_TRANSPOSE_B, &second, sizeof second);
  if (!error && g->bias)
    error =
        api.set_product(d->product, DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!error && g->bias)
    error = api.set_product(d->product, DESC_BIAS, &g->bias, sizeof g->bias);
  return error;
}

static int describe_wanted(description *d) {
  const size_t workspace = DFGNN_GEMM_WORKSPACE;
  const uint32_t alignment = ALIGNMENT;
  int error = api.create_wanted(&d->wanted);
  if (!error)
    error = api.set_wanted(d->wanted, WANTED_WORKSPACE, &workspace,
                           sizeof workspace);
  for (int i = 0; !error && i < 4; i++)
    error = api.set_wanted(d->wanted, WANTED_ALIGNMENT_A + i, &alignment,
                           sizeof alignment);
  return error;
}

static void forget(description *d) {
  if (d->wanted)
    api.destroy_wanted(d->wanted);
  if (d->to)
    api.destroy_matrix(d->to);
  if (d->second)
    api.destroy_matrix(d->second);
  if (d->first)
    api.destroy_matrix(d->first);
  if (d->product)
    api.destroy_product(d->product);
}

dfgnn_status dfgnn__multiply(const dfgnn_queue *queue, const dfgnn_gemm *g,
                             void *workspace) {
  const float one = 1;
  description d = {0};
  algorithm chosen;
  void *handle = NULL;
  int count = 0;
  if (queue->list && dfgnn__engine_ordinal(queue->engine) < 0)
    return DFGNN_OK;
  dfgnn_status status = open_handle(&handle, queue);
  if (status || queue->list)
    return status;
  int error = describe_product(&d, g);
  if (!error)
    error = describe_operands(&d, g);
  if (!error)
    error = describe_wanted(&d);
  if (error)
    status = failed("a description", error);
  if (!status) {
    error = api.choose(handle, d.product, d.first, d.second, d.to, d.to,
                       d.wanted, 1, &chosen, &count);
    if (error || !count)
      status = failed("cublasLtMatmulAlgoGetHeuristic", error);
  }
  if (!status) {
    error = api.multiply(handle, d.product, &one, g->b, d.first, g->a, d.second,
                         &g->keep, g->to, d.to, g->to, d.to, chosen.data,
                         workspace, DFGNN_GEMM_WORKSPACE, queue->stream);
    if (error)
      status = failed("cublasLtMatmul", error);
  }
  forget(&d);
  return status;
}
