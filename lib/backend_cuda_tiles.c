/* backend_cuda_tiles.c - the TILES view, built on the device */
#include "kernels/common/device_tiles.h"
#include "lib/backend_cuda.h"

typedef struct tiled {
  const dfgnn_matrix *matrix;
  int64_t parameter;
} tiled;

static dfgnn_status add_arrays(dfgnn_device *device, dfgnn_view *view,
                               const dfgnn_tile_counts *counts, int rows) {
  const size_t sizes[] = {counts->windows * sizeof(dfgnn_tile),
                          counts->chunks * 32 * sizeof(int32_t),
                          counts->chunks * (size_t)rows * sizeof(uint32_t)};
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; k < 3 && !status; k++)
    status = dfgnn__cuda_add_array(device, view, k, sizes[k]);
  return status;
}

/* Lists the programs of both steps. */
static dfgnn_status both_steps(const dfgnn_queue *queue, const void *data) {
  const dfgnn_matrix *m = ((const tiled *)data)->matrix;
  const int64_t parameter = ((const tiled *)data)->parameter;
  const dfgnn_tile_counts counts = {.windows = 1, .chunks = 1, .most = 1};
  DFGNN_TRY(dfgnn__cuda_count_tiles(queue, m, parameter, NULL));
  return dfgnn__cuda_fill_tiles(queue, NULL, NULL, NULL, &counts, m, parameter,
                                NULL, NULL);
}

dfgnn_status dfgnn__cuda_build_tiles(dfgnn_device *device, dfgnn_view *view,
                                     const dfgnn_matrix *matrix) {
  const int64_t parameter = view->request.parameter;
  const int rows = dfgnn__tiles_rows(parameter);
  const dfgnn_queue *queue = &device->queue;
  dfgnn_tile_counts counts;
  void *counted = NULL, *workspace = NULL;
  DFGNN_TRY(dfgnn__tiles_check(&view->request, matrix));
  DFGNN_TRY(dfgnn__cuda_prepare(
      device,
      dfgnn__tiles_dense(parameter) ? DFGNN_PREPARED_DENSE_TILES
                                    : DFGNN_PREPARED_TILES,
      both_steps, &(tiled){.matrix = matrix, .parameter = parameter}));
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_take(device, &counted,
                            dfgnn__cuda_count_tiles_bytes(matrix, parameter)));
  DFGNN_GO(dfgnn__cuda_count_tiles(queue, matrix, parameter, counted));
  DFGNN_GO(dfgnn__read(queue, &counts, counted, sizeof counts));
  DFGNN_GO(dfgnn__tiles_check_chunks((int64_t)counts.chunks, rows));
  DFGNN_GO(add_arrays(device, view, &counts, rows));
  DFGNN_GO(dfgnn__cuda_take(device, &workspace,
                            dfgnn__cuda_fill_tiles_bytes(&counts)));
  DFGNN_GO(dfgnn__cuda_fill_tiles(queue, (dfgnn_tile *)view->array[0],
                                  (int32_t *)view->array[1],
                                  (uint32_t *)view->array[2], &counts, matrix,
                                  parameter, counted, workspace));
  view->count = (int64_t)counts.windows;
out:
  dfgnn__cuda_drop(device, workspace);
  dfgnn__cuda_drop(device, counted);
  return status;
}
