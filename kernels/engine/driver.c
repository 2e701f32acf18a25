/* driver.c - finds and opens libcuda.so.1 */
#include "kernels/engine/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"

static dfgnn_driver table;
static _Atomic(const dfgnn_driver *) current;
static char problem[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
  const char *symbol;
  size_t offset;
} symbols[] = {
#define F(name, symbol, parameters) {#symbol, offsetof(dfgnn_driver, name)},
    DFGNN_DRIVER_FUNCTIONS(F) DFGNN_DRIVER_OPTIONAL(F)
#undef F
};
#define F(name, symbol, parameters) +1
enum { REQUIRED = 0 DFGNN_DRIVER_FUNCTIONS(F) };
#undef F

static void find(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    snprintf(problem, sizeof problem, "%s",
             reason ? reason : "libcuda.so.1 cannot be opened");
    return;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *symbol = dlsym(library, symbols[i].symbol);
    if (!symbol && i < REQUIRED) {
      snprintf(problem, sizeof problem,
               "libcuda.so.1 has no %s: the driver is older than CUDA 11.4",
               symbols[i].symbol);
      return;
    }
    memcpy((char *)&table + symbols[i].offset, &symbol, sizeof symbol);
  }
  cu_result error = table.Init(0);
  if (error) {
    const char *text = NULL;
    (void)table.GetErrorString(error, &text);
    snprintf(problem, sizeof problem, "cuInit: %s", text ? text : "failed");
    return;
  }
  atomic_store(&current, &table);
}

const dfgnn_driver *dfgnn__driver(void) {
  const dfgnn_driver *driver =
      atomic_load_explicit(&current, memory_order_acquire);
  if (driver)
    return driver;
  pthread_once(&once, find);
  return atomic_load(&current);
}

const char *dfgnn__driver_problem(void) {
  return dfgnn__driver() ? "" : problem;
}

static void find_nothing(void) {
  snprintf(problem, sizeof problem, "a test replaced the driver by none");
}

void dfgnn__driver_replace(const dfgnn_driver *driver) {
  pthread_once(&once, find_nothing);
  atomic_store(&current, driver);
}

dfgnn_status dfgnn__driver_fail(cu_result error, const char *call) {
  const char *text = NULL;
  const dfgnn_driver *driver = dfgnn__driver();
  if (driver)
    (void)driver->GetErrorString(error, &text);
  return dfgnn__fail(error == CU_ERROR_MEMORY ? DFGNN_ERROR_MEMORY
                                              : DFGNN_ERROR_DEVICE,
                     "%s: %s (error %d)", call, text ? text : "failed", error);
}
