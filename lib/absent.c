#include "lib/absent.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

static const struct {
  const char *arch;
  int units;
  int shared_kib; /* the most of a block */
  int cache_mib;
} devices[] = {
    {.arch = "sm_75", .units = 40, .shared_kib = 64, .cache_mib = 4},
    {.arch = "sm_80", .units = 108, .shared_kib = 163, .cache_mib = 40},
    {.arch = "sm_86", .units = 84, .shared_kib = 99, .cache_mib = 6},
    {.arch = "sm_89", .units = 142, .shared_kib = 99, .cache_mib = 72},
    {.arch = "sm_90", .units = 132, .shared_kib = 227, .cache_mib = 50},
    {.arch = "sm_100", .units = 148, .shared_kib = 227, .cache_mib = 126},
    {.arch = "sm_120", .units = 170, .shared_kib = 99, .cache_mib = 96}};

void dfgnn__absent_device(dfgnn_device_info *device, const char *arch) {
  size_t best = 0, count = sizeof devices / sizeof *devices;
  for (size_t i = 0; i < count; i++)
    if (atoi(devices[i].arch + 3) <= atoi(arch + 3))
      best = i;
  *device = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
  snprintf(device->backend, sizeof device->backend, "cuda");
  snprintf(device->arch, sizeof device->arch, "%s", arch);
  device->units = devices[best].units;
  device->shared_bytes = (int64_t)devices[best].shared_kib << 10;
  device->cache_bytes = (int64_t)devices[best].cache_mib << 20;
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
  if (*model)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "no row of the stores is of %s with a model like '%s'; "
                       "`dfgnn-tune stat` lists those there are",
                       arch, model);
  dfgnn__absent_device(device, arch);
  return DFGNN_OK;
}
