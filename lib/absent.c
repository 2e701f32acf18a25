#include "lib/absent.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

/* The most usual device of an architecture comes last. */
static const struct {
  const char *arch, *model;
  int units;
  int shared_kib; /* the most of a block */
  int cache_mib;
} devices[] = {
    {"sm_75", "T4", 40, 64, 4},         {"sm_80", "A30", 56, 163, 24},
    {"sm_80", "A100", 108, 163, 40},    {"sm_86", "A10", 72, 99, 6},
    {"sm_86", "RTX 3090", 82, 99, 6},   {"sm_86", "A40", 84, 99, 6},
    {"sm_89", "L4", 58, 99, 48},        {"sm_89", "RTX 4090", 128, 99, 72},
    {"sm_89", "L40S", 142, 99, 96},     {"sm_90", "H200", 132, 227, 60},
    {"sm_90", "H100", 132, 227, 50},    {"sm_100", "B200", 148, 227, 126},
    {"sm_120", "RTX 5090", 170, 99, 96}};
enum { DEVICES = sizeof devices / sizeof *devices };

static void describe(dfgnn_device_info *device, const char *arch, size_t i) {
  *device = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
  snprintf(device->backend, sizeof device->backend, "cuda");
  snprintf(device->arch, sizeof device->arch, "%s", arch);
  device->units = devices[i].units;
  device->shared_bytes = (int64_t)devices[i].shared_kib << 10;
  device->cache_bytes = (int64_t)devices[i].cache_mib << 20;
}

void dfgnn__absent_device(dfgnn_device_info *device, const char *arch) {
  size_t best = 0;
  for (size_t i = 0; i < DEVICES; i++)
    if (atoi(devices[i].arch + 3) <= atoi(arch + 3))
      best = i;
  describe(device, arch, best);
}

/* Describes a model of an architecture; 0: it is not in the table. */
static int find_model(dfgnn_device_info *device, const char *arch,
                      const char *model) {
  for (size_t i = 0; i < DEVICES; i++)
    if (!strcmp(devices[i].arch, arch) && !strcmp(devices[i].model, model)) {
      describe(device, arch, i);
      snprintf(device->model, sizeof device->model, "NVIDIA %s", model);
      return 1;
    }
  return 0;
}

static int is_architecture(const char *text) {
  return !strncmp(text, "sm_", 3) && isdigit((unsigned char)text[3]) &&
         strlen(text) < 8 && strspn(text + 3, "0123456789") == strlen(text + 3);
}

dfgnn_status dfgnn__absent_named(dfgnn_device_info *device, const char *text,
                                 const dfgnn_measurement *rows, size_t count) {
  char arch[32];
  const char *comma = strchr(text, ','), *model = comma ? comma + 1 : "";
  snprintf(arch, sizeof arch, "%.*s",
           comma ? (int)(comma - text < 31 ? comma - text : 31) : 31, text);
  if (!is_architecture(arch))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected an architecture and perhaps a "
                       "model, such as sm_90 or sm_90,H200",
                       text);
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *r = &rows[i];
    if (strcmp(r->backend, "cuda") || strcmp(r->arch, arch) ||
        !strstr(r->model, model))
      continue;
    *device = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
    snprintf(device->backend, sizeof device->backend, "%s", r->backend);
    snprintf(device->arch, sizeof device->arch, "%s", r->arch);
    snprintf(device->model, sizeof device->model, "%s", r->model);
    device->units = r->units;
    device->cache_bytes = r->cache_bytes;
    device->memory_bytes = r->memory_bytes;
    device->shared_bytes = r->shared_bytes;
    return DFGNN_OK;
  }
  if (*model && find_model(device, arch, model))
    return DFGNN_OK;
  if (*model)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID,
        "found the model '%s' of %s in no row of the stores, "
        "which `dfgnn-tune stat` lists, and in no table of GPUs; "
        "expected %s alone, or such as sm_90,H200",
        model, arch, arch);
  dfgnn__absent_device(device, arch);
  return DFGNN_OK;
}
