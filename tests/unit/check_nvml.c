/* A scripted libnvidia-ml: other processes on a GPU, clocks and throttling are
 * told from this process's own work, with and without the newer functions. */
#include "tests/unit/fixture.h"

#include <dlfcn.h>

#include "lib/backend_cuda.h"

enum { OK, NOT_SUPPORTED = 3, TOO_SMALL = 7 };

typedef struct process_sample {
  unsigned pid;
  unsigned long long time;
  unsigned sm, memory, encoder, decoder;
} process_sample;

/* The scripted library answers with these numbers. */
static struct {
  unsigned mhz, top_mhz, use, running, samples;
  unsigned long long reasons, asked_since;
  process_sample sample[4];
  const char *missing; /* a function that this version lacks */
  int open;
} script;

static int init(void) {
  script.open++;
  return OK;
}
static int quit(void) {
  script.open--;
  return OK;
}
static int find(const char *bus, void **device) {
  *device = &script;
  return strcmp(bus, "0000:01:00.0") ? NOT_SUPPORTED : OK;
}
static int clock_now(void *device, int kind, unsigned *mhz) {
  ck_assert_ptr_eq(device, &script);
  ck_assert_int_eq(kind, 1); /* of the multiprocessors */
  *mhz = script.mhz;
  return OK;
}
static int clock_top(void *device, int kind, unsigned *mhz) {
  (void)device, (void)kind;
  *mhz = script.top_mhz;
  return OK;
}
static int reasons(void *device, unsigned long long *bits) {
  (void)device;
  *bits = script.reasons;
  return OK;
}
static int utilization(void *device, unsigned use[2]) {
  (void)device;
  use[0] = script.use;
  use[1] = 0;
  return OK;
}
static int running(void *device, unsigned *count, void *infos) {
  (void)device, (void)infos;
  const int small = *count < script.running;
  *count = script.running;
  return small ? TOO_SMALL : OK;
}
static int processes(void *device, process_sample *sample, unsigned *count,
                     unsigned long long since) {
  (void)device;
  ck_assert_uint_ge(*count, script.samples);
  script.asked_since = since;
  memcpy(sample, script.sample, script.samples * sizeof *sample);
  *count = script.samples;
  return script.samples ? OK : NOT_SUPPORTED;
}

/* The library's calls come here: a program's symbols go first. */
void *dlopen(const char *name, int flags) {
  (void)flags;
  return name && !strcmp(name, "libnvidia-ml.so.1") ? &script : NULL;
}
int dlclose(void *library) {
  ck_assert_ptr_eq(library, &script);
  return 0;
}
void *dlsym(void *library, const char *name) {
  static const struct {
    const char *name;
    void (*function)(void);
  } all[] = {
      {"nvmlInit_v2", (void (*)(void))init},
      {"nvmlShutdown", (void (*)(void))quit},
      {"nvmlDeviceGetHandleByPciBusId_v2", (void (*)(void))find},
      {"nvmlDeviceGetClockInfo", (void (*)(void))clock_now},
      {"nvmlDeviceGetMaxClockInfo", (void (*)(void))clock_top},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", (void (*)(void))reasons},
      {"nvmlDeviceGetUtilizationRates", (void (*)(void))utilization},
      {"nvmlDeviceGetComputeRunningProcesses_v3", (void (*)(void))running},
      {"nvmlDeviceGetProcessUtilization", (void (*)(void))processes}};
  void *found = NULL;
  ck_assert_ptr_eq(library, &script);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i].name, name) &&
        !(script.missing && !strcmp(script.missing, name)))
      memcpy(&found, &all[i].function, sizeof found);
  return found;
}

static struct dfgnn_nvml *opened(const char *missing) {
  script.missing = missing;
  struct dfgnn_nvml *nvml = dfgnn__nvml_open("0000:01:00.0");
  ck_assert_ptr_nonnull(nvml);
  return nvml;
}

TEST(clocks_and_throttling_are_read) {
  int throttled = -1;
  struct dfgnn_nvml *nvml = opened(NULL);
  script.mhz = 1410;
  script.top_mhz = 1980;
  script.reasons = 0x04; /* the power cap, which is normal */
  ck_assert_double_eq(dfgnn__nvml_clock(nvml, &throttled), 1410);
  ck_assert_int_eq(throttled, 0);
  ck_assert_double_eq(dfgnn__nvml_top_clock(nvml), 1980);
  script.reasons = 0x40; /* heat */
  dfgnn__nvml_clock(nvml, &throttled);
  ck_assert_int_eq(throttled, 1);
  dfgnn__nvml_close(nvml);
  ck_assert_int_eq(script.open, 0);
}

TEST(a_gpu_of_its_own_has_no_others) {
  struct dfgnn_nvml *nvml = opened(NULL);
  script.use = 99; /* its own work */
  script.running = 1;
  ck_assert_double_eq(dfgnn__nvml_others(nvml, 0), 0);
  ck_assert_double_eq(dfgnn__nvml_others(nvml, 1), 0);
  dfgnn__nvml_close(nvml);
}

TEST(another_process_is_told_from_this_one) {
  struct dfgnn_nvml *nvml = opened(NULL);
  script.running = 2;
  script.samples = 3;
  script.sample[0] =
      (process_sample){.pid = (unsigned)getpid(), .time = 7, .sm = 90};
  script.sample[1] = (process_sample){.pid = 1, .time = 9, .sm = 30};
  script.sample[2] = (process_sample){.pid = 2, .time = 8, .sm = 7777};
  ck_assert_double_eq_tol(dfgnn__nvml_others(nvml, 0), 0.3, 1e-12);
  ck_assert_double_eq_tol(dfgnn__nvml_others(nvml, 0), 0.3, 1e-12);
  ck_assert_uint_eq(script.asked_since, 9); /* of newer samples alone */
  script.use = 45;
  ck_assert_double_eq_tol(dfgnn__nvml_others(nvml, 1), 0.45, 1e-12);
  dfgnn__nvml_close(nvml);
}

TEST(what_cannot_be_told_is_not_known) {
  struct dfgnn_nvml *nvml = opened(NULL);
  script.running = 2;
  script.samples = 1; /* in a container numbers are other ones */
  script.sample[0] = (process_sample){.pid = 4711, .sm = 50};
  ck_assert_double_lt(dfgnn__nvml_others(nvml, 0), 0);
  script.samples = 0;
  ck_assert_double_lt(dfgnn__nvml_others(nvml, 0), 0);
  dfgnn__nvml_close(nvml);
  nvml = opened("nvmlDeviceGetProcessUtilization");
  ck_assert_double_lt(dfgnn__nvml_others(nvml, 0), 0);
  dfgnn__nvml_close(nvml);
  nvml = opened("nvmlDeviceGetUtilizationRates");
  ck_assert_double_lt(dfgnn__nvml_others(nvml, 1), 0);
  dfgnn__nvml_close(nvml);
  nvml = opened("nvmlDeviceGetMaxClockInfo");
  ck_assert_double_eq(dfgnn__nvml_top_clock(nvml), 0);
  dfgnn__nvml_close(nvml);
  ck_assert_double_lt(dfgnn__nvml_others(NULL, 1), 0);
  ck_assert_ptr_null(dfgnn__nvml_open("0000:99:00.0"));
  ck_assert_int_eq(script.open, 0);
}

TEST_MAIN("nvml")
