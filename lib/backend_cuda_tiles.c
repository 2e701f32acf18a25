/* backend_cuda_tiles.c - the TILES view, built on the device */
#include "base/error.h"
#include "kernels/common/device_tiles.h"
#include "lib/backend_cuda.h"

static dfgnn_status add_array(dfgnn_device *device, dfgnn_view *view, int slot,
                              size_t bytes) {
  void *memory = NULL;
  dfgnn_status status = dfgnn__cuda_allocate(device, &memory, bytes);
  if (!status) {
    view->array[slot] = memory;
    view->bytes += bytes;
  }
  return status;
}

static dfgnn_status add_arrays(dfgnn_device *device, dfgnn_view *view,
                               const dfgnn_tile_counts *counts, int rows) {
  const size_t sizes[] = {counts->items * sizeof(dfgnn_tile),
                          counts->chunks * 32 * sizeof(int32_t),
                          counts->chunks * (size_t)rows * sizeof(uint32_t),
                          counts->cuts * sizeof(dfgnn_tile_cut)};
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; k < 4 && !status; k++)
    status = add_array(device, view, k, sizes[k]);
  return status;
}

static dfgnn_status read_counts(dfgnn_device *device, dfgnn_tile_counts *counts,
                                const void *counted) {
  dfgnn_status status = DFGNN_OK;
  DFGNN_CUDA_GO(cudaMemcpyAsync(counts, counted, sizeof *counts,
                                cudaMemcpyDeviceToHost, device->stream));
  DFGNN_CUDA_GO(cudaStreamSynchronize(device->stream));
out:
  return status;
}

dfgnn_status dfgnn__cuda_build_tiles(dfgnn_device *device, dfgnn_view *view,
                                     const dfgnn_matrix *matrix) {
  const int64_t parameter = view->request.parameter;
  const int rows = dfgnn__tiles_rows(parameter);
  dfgnn_tile_counts counts;
  void *counted = NULL, *workspace = NULL;
  dfgnn_status status = dfgnn__tiles_check(&view->request, matrix);
  if (!status)
    status = dfgnn__cuda_allocate(
        device, &counted, dfgnn__cuda_count_tiles_bytes(matrix, parameter));
  if (status)
    goto out;
  DFGNN_CUDA_GO(
      dfgnn__cuda_count_tiles(matrix, parameter, counted, device->stream));
  status = read_counts(device, &counts, counted);
  if (!status)
    status = dfgnn__tiles_check_chunks((int64_t)counts.chunks, rows);
  if (!status)
    status = add_arrays(device, view, &counts, rows);
  if (!status)
    status = dfgnn__cuda_allocate(device, &workspace,
                                  dfgnn__cuda_fill_tiles_bytes(&counts));
  if (status)
    goto out;
  DFGNN_CUDA_GO(dfgnn__cuda_fill_tiles(
      (dfgnn_tile *)view->array[0], (int32_t *)view->array[1],
      (uint32_t *)view->array[2], (dfgnn_tile_cut *)view->array[3], &counts,
      matrix, parameter, counted, workspace, device->stream));
  status = read_counts(device, &counts, counted);
  view->count = (int64_t)counts.items;
  view->extra = (int64_t)counts.cuts;
out:
  dfgnn__cuda_release(device, workspace);
  dfgnn__cuda_release(device, counted);
  return status;
}
