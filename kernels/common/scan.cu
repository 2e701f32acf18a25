/* scan.cu - prefix sums and maxima by CUB, compiled once */
#include <cub/device/device_scan.cuh>

#include "kernels/common/device_graph.h"

namespace {

struct Max {
  __host__ __device__ int32_t operator()(int32_t a, int32_t b) const {
    return a < b ? b : a;
  }
};

} /* namespace */

extern "C" cudaError_t dfgnn__cuda_scan_max(void *temporary, size_t *bytes,
                                            const int32_t *from, int32_t *to,
                                            int64_t count,
                                            cudaStream_t stream) {
  return cub::DeviceScan::InclusiveScan(temporary, *bytes, from, to, Max(),
                                        count, stream);
}

extern "C" cudaError_t dfgnn__cuda_scan_sum(void *temporary, size_t *bytes,
                                            const int32_t *from, int32_t *to,
                                            int64_t count,
                                            cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(temporary, *bytes, from, to, count,
                                       stream);
}
