/* backend_cuda_list.c - the faults that the device finds in edge lists */
#include <string.h>

#include "lib/backend_cuda_coo.h"
#include "lib/base/error.h"

static dfgnn_status refuse_edge(const dfgnn_edge_list *l, const char *name,
                                const void *array, uint64_t edge,
                                int64_t nodes) {
  const char *at = (const char *)array + edge * (l->wide ? 8 : 4);
  int64_t number = 0;
  int32_t narrow = 0;
  DFGNN_TRY(l->wide ? dfgnn__read(&l->queue, &number, at, sizeof number)
                    : dfgnn__read(&l->queue, &narrow, at, sizeof narrow));
  return dfgnn__fail(
      DFGNN_ERROR_INVALID, "%s[%llu] = %lld is out of range, expected 0..%lld",
      name, (unsigned long long)edge, (long long)(l->wide ? number : narrow),
      (long long)nodes - 1);
}

dfgnn_status dfgnn__cuda_list_found(dfgnn_edge_list *l) {
  const dfgnn_edge_counts *found = &l->counts.list;
  memset(&l->counts, 0, sizeof l->counts);
  if (!l->found)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__cuda_answer_on(
      l->device, &l->queue, &l->counts, l->found,
      l->analyzed ? sizeof l->counts : sizeof l->counts.list);
  if (!status && found->bad_dst)
    status = refuse_edge(l, "destination", l->dst, ~found->bad_dst,
                         l->coo->destinations);
  else if (!status && found->bad_src)
    status = refuse_edge(l, "source", l->src, ~found->bad_src, l->coo->sources);
  return status;
}

/* ---- faults of lists that nobody waited for -------------------------------
 */

dfgnn_status dfgnn__cuda_late_fault(dfgnn_device *device) {
  const volatile dfgnn_edge_fault *fault = device->fault;
  const uint64_t list = fault->list;
  if (list == atomic_load_explicit(&device->told, memory_order_relaxed) ||
      atomic_exchange(&device->told, list) == list)
    return DFGNN_OK;
  return dfgnn__fail(
      DFGNN_ERROR_DEVICE,
      "%s[%lld] = %lld of an edge list that was given before is out of range, "
      "expected 0..%lld; CUDA_LAUNCH_BLOCKING=1 shows where it is given",
      fault->is_src ? "source" : "destination", (long long)fault->edge,
      (long long)fault->node, (long long)fault->nodes - 1);
}
