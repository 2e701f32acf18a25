/* nvml.c - clocks and throttle reasons, from the driver's library at run time
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/backend_cuda.h"

/* These are copied from nvml.h, which is not needed to build. */
enum {
  NVML_OK = 0,
  NVML_INSUFFICIENT_SIZE = 7,
  NVML_CLOCK_SM = 1,
  MOST_PROCESSES = 64
};

typedef struct nvml_utilization {
  unsigned gpu, memory; /* percent */
} nvml_utilization;

typedef struct nvml_process_sample {
  unsigned pid;
  unsigned long long time;               /* microseconds */
  unsigned sm, memory, encoder, decoder; /* percent */
} nvml_process_sample;

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
  int (*top_clock)(nvml_device, int, unsigned *);
  int (*reasons)(nvml_device, unsigned long long *);
  int (*utilization)(nvml_device, nvml_utilization *);
  int (*processes)(nvml_device, nvml_process_sample *, unsigned *,
                   unsigned long long);
  int (*running)(nvml_device, unsigned *, void *);
  unsigned long long seen; /* the time of the newest process sample */
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
  n->top_clock = (int (*)(nvml_device, int, unsigned *))symbol(
      n->library, "nvmlDeviceGetMaxClockInfo");
  n->utilization = (int (*)(nvml_device, nvml_utilization *))symbol(
      n->library, "nvmlDeviceGetUtilizationRates");
  n->running = (int (*)(nvml_device, unsigned *, void *))symbol(
      n->library, "nvmlDeviceGetComputeRunningProcesses_v3");
  n->processes =
      (int (*)(nvml_device, nvml_process_sample *, unsigned *,
               unsigned long long))symbol(n->library,
                                          "nvmlDeviceGetProcessUtilization");
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

double dfgnn__nvml_top_clock(struct dfgnn_nvml *nvml) {
  unsigned mhz = 0;
  if (!nvml || !nvml->top_clock ||
      nvml->top_clock(nvml->gpu, NVML_CLOCK_SM, &mhz) != NVML_OK)
    return 0;
  return mhz;
}

/* The processes that have a context on the GPU, this one among them; 2 if it is
 * not known. */
static unsigned running(struct dfgnn_nvml *nvml) {
  unsigned count = 0; /* the room, which makes the library say the number */
  const int status =
      nvml->running ? nvml->running(nvml->gpu, &count, NULL) : -1;
  return status == NVML_OK || status == NVML_INSUFFICIENT_SIZE ? count : 2;
}

double dfgnn__nvml_others(struct dfgnn_nvml *nvml, int idle) {
  nvml_process_sample sample[MOST_PROCESSES];
  nvml_utilization all = {0};
  unsigned count = MOST_PROCESSES;
  double others = 0;
  int own = 0;
  if (!nvml)
    return DFGNN_UNKNOWN;
  if (running(nvml) < 2)
    return 0;
  /* Use that an idle process sees is that of others. */
  if (idle)
    return nvml->utilization && nvml->utilization(nvml->gpu, &all) == NVML_OK
               ? 0.01 * all.gpu
               : DFGNN_UNKNOWN;
  if (!nvml->processes ||
      nvml->processes(nvml->gpu, sample, &count, nvml->seen) != NVML_OK ||
      count > MOST_PROCESSES)
    return DFGNN_UNKNOWN;
  for (unsigned i = 0; i < count; i++) {
    nvml->seen = sample[i].time > nvml->seen ? sample[i].time : nvml->seen;
    if (sample[i].pid == (unsigned)getpid())
      own = 1;
    else if (sample[i].sm <= 100)
      others += 0.01 * sample[i].sm;
  }
  /* In a container other numbers stand for processes, this one's too. */
  return own ? others : DFGNN_UNKNOWN;
}
