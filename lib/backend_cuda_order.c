/* backend_cuda_order.c - marks: events of the driver */
#include "lib/backend_cuda.h"

enum { CAPTURE_RELAXED = 2 };

static cu_stream stream_of(const dfgnn_device *device, void *stream) {
  return stream == DFGNN_OWN_STREAM ? device->stream : stream;
}

dfgnn_status dfgnn__cuda_mark(dfgnn_device *device, void **mark, void *stream) {
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  cu_event event = *mark;
  if (!event)
    DFGNN_CU_GO(EventCreate, &event, CU_EVENT_NO_TIMING);
  *mark = event;
  DFGNN_CU_GO(EventRecord, event, stream_of(device, stream));
out:
  dfgnn__cuda_leave(entered);
  return status;
}

/* A stream that is captured cannot wait for work that is not: the host waits
 * for it, which was put on the device before the capture began. */
static dfgnn_status await_captured(cu_event mark) {
  dfgnn_status status = DFGNN_OK;
  int mode = CAPTURE_RELAXED;
  DFGNN_CU_GO(ThreadExchangeStreamCaptureMode, &mode);
  DFGNN_CU_GO(EventSynchronize, mark);
  DFGNN_CU_GO(ThreadExchangeStreamCaptureMode, &mode);
out:
  return status;
}

dfgnn_status dfgnn__cuda_await(dfgnn_device *device, void *mark, void *stream) {
  dfgnn_status status = DFGNN_OK;
  int capture = 0;
  int entered = dfgnn__cuda_enter(device);
  cu_stream waits = stream_of(device, stream);
  cu_result error = dfgnn__driver()->StreamIsCapturing(waits, &capture);
  if (error == CU_ERROR_CAPTURE_IMPLICIT || (!error && capture))
    status = await_captured(mark);
  else
    DFGNN_CU_GO(StreamWaitEvent, waits, mark, 0);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

dfgnn_status dfgnn__cuda_await_mark(dfgnn_device *device, void *mark) {
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_CU_GO(EventSynchronize, mark);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

void dfgnn__cuda_unmark(dfgnn_device *device, void *mark) {
  int entered = dfgnn__cuda_enter(device);
  (void)dfgnn__driver()->EventDestroy(mark);
  dfgnn__cuda_leave(entered);
}
