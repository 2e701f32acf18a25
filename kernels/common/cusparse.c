/* cusparse.c - finds and loads cuSPARSE: DFGNN_CUSPARSE, the loader's own path,
 * a toolkit, or the wheel of a python3 in PATH */
#include "kernels/common/cusparse.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/library.h"

static dfgnn_cusparse table;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
  const char *name;
  size_t offset;
} symbols[] = {
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

static int load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return 0;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol) {
      dlclose(library);
      return 0;
    }
    memcpy((char *)&table + symbols[i].offset, &symbol, sizeof symbol);
  }
  return 1;
}

static void find(void) {
  static const char *const names[] = {"libcusparse.so.12", "libcusparse.so.13",
                                      "libcusparse.so"};
  static const char *const folders[] = {"nvidia/cu*/lib", "nvidia/cusparse/lib",
                                        NULL};
  const char *given = getenv("DFGNN_CUSPARSE");
  if (given) {
    loaded = load(given);
    return;
  }
  for (size_t i = 0; !loaded && i < sizeof names / sizeof *names; i++)
    loaded = load(names[i]);
  if (!loaded)
    loaded = dfgnn__library_find("libcusparse.so.*", folders, load);
}

const dfgnn_cusparse *dfgnn__cusparse(void) {
  pthread_once(&once, find);
  return loaded ? &table : NULL;
}
