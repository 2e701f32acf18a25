/* cuda_common.cuh - what all device code shares: storage types and arithmetic
 * on them, vector loads, sub-warp reductions, CSR offsets
 *
 * NVRTC compiles this without any CUDA or C header: <stdint.h> is
 * kernels/engine/device/stdint.h. */
#ifndef DFGNN_KERNELS_CUDA_COMMON_CUH
#define DFGNN_KERNELS_CUDA_COMMON_CUH

#include <stdint.h>

#include "dfgnn_types.h"
#include "kernels/common/ptx.cuh"
#include "kernels/common/unroll.cuh"

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

namespace dfgnn {

constexpr unsigned kFullMask = 0xffffffffu;
constexpr double kLog2e = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;

/* The 16-bit storage types; arithmetic is in float. */
struct half_t {
  unsigned short bits;
};
struct bfloat_t {
  unsigned short bits;
};

/* The type of products, sums and scalars for a storage type. */
template <typename T> struct accumulator { using type = float; };
template <> struct accumulator<double> { using type = double; };
template <typename T> using accumulator_t = typename accumulator<T>::type;

DEVICE float widen(float x) { return x; }
DEVICE double widen(double x) { return x; }
DEVICE float widen(half_t x) { return ptx::f16_to_float(x.bits); }
DEVICE float widen(bfloat_t x) {
  return __uint_as_float(unsigned(x.bits) << 16);
}

template <typename T> DEVICE T narrow(accumulator_t<T> x);
template <> DEVICE float narrow<float>(float x) { return x; }
template <> DEVICE double narrow<double>(double x) { return x; }
template <> DEVICE half_t narrow<half_t>(float x) {
  return {ptx::float_to_f16(x)};
}
template <> DEVICE bfloat_t narrow<bfloat_t>(float x) {
  return {ptx::float_to_bf16(x)};
}

/* One word of BYTES bytes, as the memory system moves it. */
template <int BYTES> struct word;
template <> struct word<2> { using type = unsigned short; };
template <> struct word<4> { using type = unsigned; };
template <> struct word<8> { using type = uint2; };
template <> struct word<16> { using type = uint4; };

/* VEC consecutive elements in one word; p is aligned to the word. */
template <typename T, int VEC> struct alignas(sizeof(T) * VEC) packed {
  using word_t = typename word<sizeof(T) * VEC>::type;
  union {
    word_t bits;
    T item[VEC];
  };
  DEVICE packed() {}
};

/* Loads through the read-only path. */
template <int VEC, typename T> DEVICE packed<T, VEC> load_packed(const T *p) {
  packed<T, VEC> x;
  x.bits = __ldg(reinterpret_cast<const typename packed<T, VEC>::word_t *>(p));
  return x;
}

/* Loads what another kernel wrote, or this one: not through the read-only path.
 */
template <int VEC, typename T> DEVICE packed<T, VEC> load_written(const T *p) {
  packed<T, VEC> x;
  x.bits = *reinterpret_cast<const typename packed<T, VEC>::word_t *>(p);
  return x;
}

/* Keeps x where `on` is false.  The load is predicated: from an `if` the
 * compiler would make a branch or copies.  As x may keep its old value, the
 * compiler does not move the load to its use to save registers either. */
template <int VEC, typename T>
DEVICE void load_if(packed<T, VEC> &x, const T *p, int on) {
  if constexpr (sizeof(x) == 16) {
    ptx::load_if(x.bits, p, on);
  } else if (on) {
    x = load_packed<VEC>(p);
  }
}

template <typename T, int VEC> DEVICE void clear(packed<T, VEC> &x) {
  x.bits = typename packed<T, VEC>::word_t{};
}

/* Loads data that no other row reads: it need not stay in the caches. */
template <int VEC, typename T> DEVICE packed<T, VEC> load_once(const T *p) {
  packed<T, VEC> x;
  x.bits = __ldcs(reinterpret_cast<const typename packed<T, VEC>::word_t *>(p));
  return x;
}

template <typename T, int VEC>
DEVICE void widen(accumulator_t<T> (&to)[VEC], const packed<T, VEC> &x) {
#pragma unroll
  for (int i = 0; i < VEC; ++i)
    to[i] = widen(x.item[i]);
}

template <int VEC, typename T>
DEVICE void store_packed(T *p, const accumulator_t<T> (&x)[VEC]) {
  packed<T, VEC> y;
#pragma unroll
  for (int i = 0; i < VEC; ++i)
    y.item[i] = narrow<T>(x[i]);
  *reinterpret_cast<typename packed<T, VEC>::word_t *>(p) = y.bits;
}

template <int VEC, typename T>
DEVICE void store_once(T *p, const accumulator_t<T> (&x)[VEC]) {
  packed<T, VEC> y;
#pragma unroll
  for (int i = 0; i < VEC; ++i)
    y.item[i] = narrow<T>(x[i]);
  __stcs(reinterpret_cast<typename packed<T, VEC>::word_t *>(p), y.bits);
}

/* The row of a node: base + node * bytes in one instruction. */
DEVICE const char *node_row(const char *base, int node, unsigned bytes) {
  return ptx::element(base, node, bytes);
}

/* 2^x: on floats the unit's own approximation, 2 ulp. */
DEVICE float exp2_fast(float x) { return ptx::exp2_approximate(x); }
DEVICE double exp2_fast(double x) { return exp2(x); }
/* 1 / x and log2(x) of x >= 1, within 2 ulp or 2^-22. */
DEVICE float reciprocal(float x) { return __fdividef(1.0f, x); }
DEVICE double reciprocal(double x) { return 1.0 / x; }
DEVICE float log2_fast(float x) { return __log2f(x); }
DEVICE double log2_fast(double x) { return log2(x); }

DEVICE float log2_of(float x) { return log2f(x); }
DEVICE double log2_of(double x) { return log2(x); }
DEVICE float max_of(float a, float b) { return fmaxf(a, b); }
DEVICE double max_of(double a, double b) { return fmax(a, b); }

/* A norm below 1e-12 counts as 1e-12, as in torch's normalize. */
DEVICE float inverse_norm(float square) {
  return rsqrtf(fmaxf(square, 1e-24f));
}
DEVICE double inverse_norm(double square) { return rsqrt(fmax(square, 1e-24)); }

/* The least finite number: a maximum starts there rather than at -inf, so that
 * differences are never NaN. */
template <typename A> DEVICE A lowest();
template <> DEVICE float lowest<float>() { return -3.402823466e38f; }
template <> DEVICE double lowest<double>() { return -1.7976931348623157e308; }

/* Reductions over aligned groups of LANES lanes; every lane gets the result. */
template <int LANES, typename A> DEVICE A lanes_sum(A x) {
#pragma unroll
  for (int o = LANES / 2; o > 0; o >>= 1)
    x += __shfl_xor_sync(kFullMask, x, o);
  return x;
}
template <int LANES, typename A> DEVICE A lanes_max(A x) {
#pragma unroll
  for (int o = LANES / 2; o > 0; o >>= 1)
    x = max_of(x, __shfl_xor_sync(kFullMask, x, o));
  return x;
}

/* CSR offsets of either width; the branch is uniform. */
struct offsets_t {
  const void *array;
  int wide;
  DEVICE int64_t operator[](int64_t i) const {
    return wide ? __ldg(static_cast<const long long *>(array) + i)
                : static_cast<int64_t>(
                      __ldg(static_cast<const int *>(array) + i));
  }
};

} // namespace dfgnn

#endif
