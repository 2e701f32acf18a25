/* look_back.cuh - tiles that wait for what those before them found
 *
 * A tile publishes its own sum first and, once it knows it, the sum of all
 * tiles up to it.  Flag and value are one word, written and read whole: so
 * relaxed accesses at the device's scope are enough, nothing else is passed
 * on.  Tiles are numbered in the order in which blocks begin to run, by a
 * ticket: whom a tile waits for runs already or is done. */
#ifndef DFGNN_KERNELS_LOOK_BACK_CUH
#define DFGNN_KERNELS_LOOK_BACK_CUH

#include <stdint.h>

namespace dfgnn {

using ull = unsigned long long;

__device__ __forceinline__ void publish(uint32_t *to, uint32_t x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x)
               : "memory");
}
__device__ __forceinline__ void publish(ull *to, ull x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(x)
               : "memory");
}
__device__ __forceinline__ uint32_t look(const uint32_t *from) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(x)
               : "l"(from)
               : "memory");
  return x;
}
__device__ __forceinline__ ull look(const ull *from) {
  ull x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
               : "=l"(x)
               : "l"(from)
               : "memory");
  return x;
}

/* The tile of this block; all threads of the block call it. */
__device__ __forceinline__ int64_t take_ticket(uint32_t *ticket) {
  __shared__ uint32_t taken;
  if (threadIdx.x == 0)
    taken = atomicAdd(ticket, 1u);
  __syncthreads();
  return taken;
}

} // namespace dfgnn

#endif
