/* look_back.cuh - tiles that wait for the sums of the tiles before them
 *
 * A tile publishes its own sum first and, once it knows it, the sum of all
 * tiles up to it.  Flag and value are one word, written and read whole: so
 * relaxed accesses at the device's scope are enough, nothing else is passed
 * on.  Tiles are numbered in the order in which blocks begin to run, by a
 * ticket: the tiles that a tile waits for run already or are done. */
#ifndef DFGNN_KERNELS_LOOK_BACK_CUH
#define DFGNN_KERNELS_LOOK_BACK_CUH

#include <stdint.h>

#include "kernels/common/ptx.cuh"

namespace dfgnn {

using ull = unsigned long long;

DEVICE void publish(uint32_t *to, uint32_t x) { ptx::store_relaxed(to, x); }
DEVICE void publish(ull *to, ull x) { ptx::store_relaxed(to, x); }
DEVICE uint32_t look(const uint32_t *from) { return ptx::load_relaxed(from); }
DEVICE ull look(const ull *from) { return ptx::load_relaxed(from); }

/* The tile of this block; all threads of the block call it. */
DEVICE int64_t take_ticket(uint32_t *ticket) {
  __shared__ uint32_t taken;
  if (threadIdx.x == 0)
    taken = atomicAdd(ticket, 1u);
  __syncthreads();
  return taken;
}

} // namespace dfgnn

#endif
