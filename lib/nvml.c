/* nvml.c - clocks and throttle reasons, from the driver's library at run time
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "lib/backend_cuda.h"

/* These are copied from nvml.h, which is not needed to build. */
enum { NVML_OK = 0, NVML_CLOCK_SM = 1 };
#define NVML_HW_SLOWDOWN 0x08ull
#define NVML_SW_THERMAL 0x20ull
#define NVML_HW_THERMAL 0x40ull
#define NVML_HW_POWER_BRAKE 0x80ull

typedef void *nvml_device;

struct dfgnn_nvml {
  void *library;
  nvml_device gpu;
  int (*shutdown)(void);
  int (*clock)(nvml_device, int, unsigned *);
  int (*reasons)(nvml_device, unsigned long long *);
};

static void (*symbol(void *library, const char *name))(void) {
  void (*function)(void);
  *(void **)&function = dlsym(library, name);
  return function;
}

struct dfgnn_nvml *dfgnn__nvml_open(const char *pci_bus) {
  struct dfgnn_nvml *n = calloc(1, sizeof *n);
  int started = 0;
  if (!n)
    return NULL;
  n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!n->library)
    goto out;
  int (*init)(void) = (int (*)(void))symbol(n->library, "nvmlInit_v2");
  int (*find)(const char *, nvml_device *) =
      (int (*)(const char *, nvml_device *))symbol(
          n->library, "nvmlDeviceGetHandleByPciBusId_v2");
  n->shutdown = (int (*)(void))symbol(n->library, "nvmlShutdown");
  n->clock = (int (*)(nvml_device, int, unsigned *))symbol(
      n->library, "nvmlDeviceGetClockInfo");
  n->reasons = (int (*)(nvml_device, unsigned long long *))symbol(
      n->library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (!init || !find || !n->shutdown || init() != NVML_OK)
    goto out;
  started = 1;
  if (find(pci_bus, &n->gpu) == NVML_OK)
    return n;
out:
  if (started)
    n->shutdown();
  if (n->library)
    dlclose(n->library);
  free(n);
  return NULL;
}

void dfgnn__nvml_close(struct dfgnn_nvml *nvml) {
  if (!nvml)
    return;
  nvml->shutdown();
  dlclose(nvml->library);
  free(nvml);
}

double dfgnn__nvml_clock(struct dfgnn_nvml *nvml, int *throttled) {
  unsigned mhz = 0;
  unsigned long long reasons = 0;
  *throttled = 0;
  if (!nvml)
    return 0;
  if (!nvml->clock || nvml->clock(nvml->gpu, NVML_CLOCK_SM, &mhz) != NVML_OK)
    mhz = 0;
  if (nvml->reasons && nvml->reasons(nvml->gpu, &reasons) == NVML_OK)
    *throttled = (reasons & (NVML_HW_SLOWDOWN | NVML_SW_THERMAL |
                             NVML_HW_THERMAL | NVML_HW_POWER_BRAKE)) != 0;
  return mhz;
}
