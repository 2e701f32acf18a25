/* most_edges.cu - how much a block of consecutive rows must hold */
#include "kernels/attention/cuda/passes.cuh"

using namespace dfgnn;

namespace {

__global__ void __launch_bounds__(kPassThreads)
    most_edges(offsets_t offsets, int64_t n, int rows,
               unsigned long long *most) {
  unsigned long long largest = 0;
  for (int64_t block = int64_t(blockIdx.x) * kPassThreads + threadIdx.x;
       block * rows < n; block += int64_t(gridDim.x) * kPassThreads) {
    int64_t first = block * rows, end = min(first + rows, n);
    largest = max(largest, static_cast<unsigned long long>(offsets[end] -
                                                           offsets[first]));
  }
  for (int o = 16; o > 0; o /= 2)
    largest = max(largest, __shfl_xor_sync(kFullMask, largest, o));
  if (threadIdx.x % 32 == 0)
    atomicMax(most, largest);
}

} // namespace

extern "C" dfgnn_status
dfgnn__cuda_most_edges(int64_t *most, const dfgnn_matrix *matrix, int rows) {
  unsigned long long result = 0, *device = nullptr;
  cudaError_t e = cudaMalloc(&device, sizeof *device);
  if (e == cudaSuccess)
    e = cudaMemset(device, 0, sizeof *device);
  if (e == cudaSuccess) {
    int64_t blocks = matrix->destinations / (int64_t(rows) * kPassThreads) + 1;
    most_edges<<<unsigned(blocks < 512 ? blocks : 512), kPassThreads>>>(
        offsets_of(matrix), matrix->destinations, rows, device);
    e = cudaGetLastError();
  }
  if (e == cudaSuccess)
    e = cudaMemcpy(&result, device, sizeof result, cudaMemcpyDeviceToHost);
  (void)cudaFree(device);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return dfgnn__fail(DFGNN_ERROR_DEVICE, "most edges of a block: %s",
                       cudaGetErrorString(e));
  }
  *most = int64_t(result);
  return DFGNN_OK;
}
