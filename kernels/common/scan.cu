/* scan.cu - prefix sums by CUB, compiled once */
#include <cub/device/device_scan.cuh>

#include "kernels/common/device_graph.h"

extern "C" cudaError_t dfgnn__cuda_scan_sum(void *temporary, size_t *bytes,
                                            const int32_t *from, int32_t *to,
                                            int64_t count,
                                            cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(temporary, *bytes, from, to, count,
                                       stream);
}
