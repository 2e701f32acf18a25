/* cusparse.c - finds and loads cuSPARSE: DFGNN_CUSPARSE, the loader's own path,
 * a toolkit, or the wheel of a python3 in PATH */
#include "kernels/common/cusparse.h"

#include <pthread.h>
#include <stddef.h>

#include "kernels/engine/library.h"

static dfgnn_cusparse table;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const dfgnn_library_function functions[] = {
    {"cusparseCreate", offsetof(dfgnn_cusparse, create)},
    {"cusparseDestroy", offsetof(dfgnn_cusparse, destroy)},
    {"cusparseSetStream", offsetof(dfgnn_cusparse, set_stream)},
    {"cusparseGetErrorString", offsetof(dfgnn_cusparse, error)},
    {"cusparseCreateCsr", offsetof(dfgnn_cusparse, create_csr)},
    {"cusparseDestroySpMat", offsetof(dfgnn_cusparse, destroy_csr)},
    {"cusparseSpMatSetValues", offsetof(dfgnn_cusparse, set_values)},
    {"cusparseCreateDnMat", offsetof(dfgnn_cusparse, create_dense)},
    {"cusparseDestroyDnMat", offsetof(dfgnn_cusparse, destroy_dense)},
    {"cusparseDnMatSetValues", offsetof(dfgnn_cusparse, set_dense)},
    {"cusparseSDDMM_bufferSize", offsetof(dfgnn_cusparse, sddmm_bytes)},
    {"cusparseSDDMM", offsetof(dfgnn_cusparse, sddmm)},
    {"cusparseSpMM_bufferSize", offsetof(dfgnn_cusparse, spmm_bytes)},
    {"cusparseSpMM", offsetof(dfgnn_cusparse, spmm)},
};

static void find(void) {
  static const char *const names[] = {"libcusparse.so.12", "libcusparse.so.13",
                                      "libcusparse.so", NULL};
  static const char *const folders[] = {"nvidia/cu*/lib", "nvidia/cusparse/lib",
                                        NULL};
  static const dfgnn_library library = {.variable = "DFGNN_CUSPARSE",
                                        .names = names,
                                        .file = "libcusparse.so.*",
                                        .folders = folders,
                                        .functions = functions,
                                        .count = sizeof functions /
                                                 sizeof *functions};
  loaded = dfgnn__library_open(&library, &table);
}

const dfgnn_cusparse *dfgnn__cusparse(void) {
  pthread_once(&once, find);
  return loaded ? &table : NULL;
}
