/* backend_cuda_device.c - the first steps of all work on a GPU: its device is
 * made the current one, and its programs are compiled */
#include "lib/backend_cuda.h"

int dfgnn__cuda_enter(const dfgnn_device *device) {
  return dfgnn__engine_enter(device->engine);
}

void dfgnn__cuda_leave(int entered) { dfgnn__engine_leave(entered); }

dfgnn_status dfgnn__cuda_prepare(dfgnn_device *device, unsigned kind,
                                 dfgnn_dry_run run, const void *data) {
  dfgnn_programs *list = NULL;
  if (atomic_load_explicit(&device->prepared, memory_order_relaxed) &
      1u << kind)
    return DFGNN_OK;
  DFGNN_TRY(dfgnn__programs_create(&list));
  const dfgnn_queue dry = {.list = list};
  dfgnn_status status = run(&dry, data);
  if (!status)
    status = dfgnn__engine_prepare(device->engine, list, 0, NULL);
  if (!status)
    atomic_fetch_or(&device->prepared, 1u << kind);
  dfgnn__programs_destroy(list);
  return status;
}
