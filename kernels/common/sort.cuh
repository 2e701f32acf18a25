/* sort.cuh - edges sorted by a node, stably: CUB's radix sort of as many bits
 * as the nodes need, in as few passes as they allow */
#ifndef DFGNN_KERNELS_SORT_CUH
#define DFGNN_KERNELS_SORT_CUH

#include <cub/device/device_radix_sort.cuh>

namespace dfgnn {

inline size_t aligned(size_t bytes) { return (bytes + 255) & ~size_t(255); }

/* Of the numbers below `nodes`. */
inline int bits_below(int64_t nodes) {
  int bits = 1;
  while (bits < 31 && (nodes - 1) >> bits)
    bits++;
  return bits;
}

/* Nine bits a pass instead of eight: a batch of 10^5 nodes takes two passes
 * instead of three.  CUB has no public way to ask for it. */
#if CUB_VERSION >= 300000 && CUB_VERSION < 400000
#define DFGNN_SORT_NINE 1

template <class K, class V, class O> struct nine_bits {
  using given = cub::detail::radix::policy_hub<K, V, O>;
  using old = typename given::Policy900;
  struct MaxPolicy
      : cub::ChainedPolicy<900, MaxPolicy, typename given::Policy800> {
    static constexpr bool ONESWEEP = true;
    static constexpr int ONESWEEP_RADIX_BITS = 9;
    using HistogramPolicy =
        cub::AgentRadixSortHistogramPolicy<128, 16, 1, K, 9>;
    using ExclusiveSumPolicy = cub::AgentRadixSortExclusiveSumPolicy<256, 9>;
    using OnesweepPolicy = cub::AgentRadixSortOnesweepPolicy<
        384, 23, K, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
        cub::BLOCK_SCAN_RAKING_MEMOIZE, cub::RADIX_SORT_STORE_DIRECT, 9>;
    using ScanPolicy = typename old::ScanPolicy;
    using DownsweepPolicy = typename old::DownsweepPolicy;
    using AltDownsweepPolicy = typename old::AltDownsweepPolicy;
    using UpsweepPolicy = typename old::UpsweepPolicy;
    using AltUpsweepPolicy = typename old::AltUpsweepPolicy;
    using SingleTilePolicy = typename old::SingleTilePolicy;
    using SegmentedPolicy = typename old::SegmentedPolicy;
    using AltSegmentedPolicy = typename old::AltSegmentedPolicy;
  };
};

inline cudaError_t sort_nine(void *temporary, size_t &bytes, const int32_t *key,
                             int32_t *sorted, const int32_t *value,
                             int32_t *order, uint32_t count, int bits,
                             cudaStream_t stream) {
  cub::DoubleBuffer<int32_t> keys(const_cast<int32_t *>(key), sorted);
  cub::DoubleBuffer<int32_t> values(const_cast<int32_t *>(value), order);
  return cub::DispatchRadixSort<
      cub::SortOrder::Ascending, int32_t, int32_t, uint32_t,
      cub::detail::identity_decomposer_t,
      nine_bits<int32_t, int32_t, uint32_t>>::Dispatch(temporary, bytes, keys,
                                                       values, count, 0, bits,
                                                       false, stream);
}
#endif

inline cudaError_t sort_any(void *temporary, size_t &bytes, const int32_t *key,
                            int32_t *sorted, const int32_t *value,
                            int32_t *order, int64_t count, int bits,
                            cudaStream_t stream) {
#ifdef DFGNN_SORT_NINE
  if ((bits + 8) / 9 < (bits + 7) / 8)
    return sort_nine(temporary, bytes, key, sorted, value, order,
                     uint32_t(count), bits, stream);
#endif
  return cub::DeviceRadixSort::SortPairs(temporary, bytes, key, sorted, value,
                                         order, uint32_t(count), 0, bits,
                                         stream);
}

inline cudaError_t sort_any(void *temporary, size_t &bytes, const int32_t *key,
                            int32_t *sorted, const int64_t *value,
                            int64_t *order, int64_t count, int bits,
                            cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temporary, bytes, key, sorted, value,
                                         order, count, 0, bits, stream);
}

/* Bytes of temporary memory; wide: of 64-bit values. */
inline size_t sort_bytes(int64_t count, int64_t nodes, int wide) {
  const int32_t *key = nullptr;
  const int bits = bits_below(nodes);
  size_t bytes = 0;
  if (wide)
    sort_any(nullptr, bytes, key, nullptr,
             static_cast<const int64_t *>(nullptr),
             static_cast<int64_t *>(nullptr), count, bits, nullptr);
  else
    sort_any(nullptr, bytes, key, nullptr, key, static_cast<int32_t *>(nullptr),
             count, bits, nullptr);
  return bytes;
}

template <class T>
cudaError_t sort_pairs(void *temporary, const int32_t *key, int32_t *sorted,
                       const T *value, T *order, int64_t count, int64_t nodes,
                       cudaStream_t stream) {
  size_t bytes = sort_bytes(count, nodes, sizeof(T) == 8);
  if (count == 0)
    return cudaSuccess;
  return sort_any(temporary, bytes, key, sorted, value, order, count,
                  bits_below(nodes), stream);
}

} // namespace dfgnn

#endif
