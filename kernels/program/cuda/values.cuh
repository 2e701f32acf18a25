/* values.cuh - values of an edge program over the lanes of a warp
 *
 * A side of L lanes works on an edge.  The widest shape of a walk, H heads of D
 * features, is spread over its lanes, VEC features each, a power of two of
 * lanes a head; a lane holds kMain numbers of such a value and one for each of
 * its kChunks vectors of a value that has one number a head.  Any other value
 * lies in shared memory, or is read from where the caller has it. */
#ifndef DFGNN_PROGRAM_CUDA_VALUES_CUH
#define DFGNN_PROGRAM_CUDA_VALUES_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/common/dropout.h"

namespace dfgnn {
namespace edge_program {

/* ---- functions ----------------------------------------------------------- */

#define DFGNN_OF_EACH(name, single, twice)                                     \
  DEVICE float f_##name(float x) { return single; }                            \
  DEVICE double f_##name(double x) { return twice; }
DFGNN_OF_EACH(exp, expf(x), exp(x))
DFGNN_OF_EACH(expm1, expm1f(x), expm1(x))
DFGNN_OF_EACH(log, logf(x), log(x))
DFGNN_OF_EACH(log1p, log1pf(x), log1p(x))
DFGNN_OF_EACH(tanh, tanhf(x), tanh(x))
DFGNN_OF_EACH(softplus, __fadd_rn(x > 0 ? x : 0.0f, log1pf(expf(-fabsf(x)))),
              __dadd_rn(x > 0 ? x : 0.0, log1p(exp(-fabs(x)))))
DFGNN_OF_EACH(erf, erff(x), erf(x))
DFGNN_OF_EACH(sin, sinf(x), sin(x))
DFGNN_OF_EACH(cos, cosf(x), cos(x))
DFGNN_OF_EACH(abs, fabsf(x), fabs(x))
DFGNN_OF_EACH(sqrt, sqrtf(x), sqrt(x))
DFGNN_OF_EACH(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
#undef DFGNN_OF_EACH

/* Rounded by themselves, or together, whatever stands around them. */
DEVICE float f_add(float x, float y) { return __fadd_rn(x, y); }
DEVICE double f_add(double x, double y) { return __dadd_rn(x, y); }
DEVICE float f_mul(float x, float y) { return __fmul_rn(x, y); }
DEVICE double f_mul(double x, double y) { return __dmul_rn(x, y); }
DEVICE float f_fma(float x, float y, float z) { return fmaf(x, y, z); }
DEVICE double f_fma(double x, double y, double z) { return fma(x, y, z); }

DEVICE float f_pow(float x, float c) { return powf(x, c); }
DEVICE double f_pow(double x, double c) { return pow(x, c); }
/* The exponential stays in range, and a small result keeps its digits. */
template <typename A> DEVICE A f_sigmoid(A x) {
  const A small = exp2_fast(-f_abs(x) * A(kLog2e));
  const A large = reciprocal(f_add(A(1), small));
  return x > 0 ? large : f_mul(small, large);
}
template <typename A> DEVICE A f_sign(A x) {
  return x > A(0) ? A(1) : x < A(0) ? A(-1) : x;
}
DEVICE float f_atan2(float y, float x) { return atan2f(y, x); }
DEVICE double f_atan2(double y, double x) { return atan2(y, x); }
/* A NaN of either stays. */
template <typename A> DEVICE A f_max(A x, A y) {
  return x != x || x > y ? x : y;
}
template <typename A> DEVICE bool f_infinite(A x) {
  return f_abs(x) == A(INFINITY);
}

/* The factor of a dropout for element i of an item. */
template <typename A>
DEVICE A keep(uint64_t key, int64_t item, int64_t elements, int64_t i,
              uint32_t threshold, A kept) {
  return dfgnn__dropped(key, item, elements, i, threshold) ? A(0) : kept;
}

/* exp(x) of a running softmax, whose scores are relative to a maximum that
 * follows the largest at a distance, so that older sums are seldom scaled: it
 * is 2^8 at most. */
constexpr double kSlack = 8 * kLn2;
DEVICE float f_soften(float x) { return exp2_fast(x * float(kLog2e)); }
DEVICE double f_soften(double x) { return exp(x); }
template <typename A> DEVICE A lse_of(A top, A sum) {
  return (f_infinite(top) ? A(0) : top) + f_log(sum);
}

/* ---- reading and writing ------------------------------------------------- */

template <typename A, typename T> DEVICE A read(const T *from, int64_t i) {
  return static_cast<A>(widen(from[i]));
}
DEVICE void write(float *to, int64_t i, float x) { to[i] = x; }
DEVICE void write(double *to, int64_t i, double x) { to[i] = x; }
DEVICE void write(float *to, int64_t i, double x) {
  to[i] = static_cast<float>(x);
}
DEVICE void write(double *to, int64_t i, float x) { to[i] = x; }
template <typename A> DEVICE void write(half_t *to, int64_t i, A x) {
  to[i] = narrow<half_t>(static_cast<float>(x));
}
template <typename A> DEVICE void write(bfloat_t *to, int64_t i, A x) {
  to[i] = narrow<bfloat_t>(static_cast<float>(x));
}

/* ---- lanes --------------------------------------------------------------- */

constexpr int power_of_two(int n) {
  int p = 1;
  while (p < n)
    p *= 2;
  return p;
}

template <int H, int D, int VEC_, int L_> struct layout {
  static constexpr int VEC = VEC_, L = L_;
  static constexpr int kHeadVectors = power_of_two((D + VEC - 1) / VEC);
  static constexpr int kChunks = (H * kHeadVectors + L - 1) / L;
  static constexpr int kMain = kChunks * VEC;
  static constexpr bool kPadded =
      kHeadVectors * VEC != D || kChunks * L != H * kHeadVectors;

  /* Vector c of a lane of a side lies in this head, and begins with the feature
   * that the next function returns. */
  static DEVICE int head(int lane, int c) {
    const int h = (c * L + lane) / kHeadVectors;
    return kPadded ? min(h, H - 1) : h;
  }
  static DEVICE int feature(int lane, int c) {
    return (c * L + lane) % kHeadVectors * VEC;
  }
  static DEVICE bool has(int lane, int c, int i) {
    return !kPadded ||
           ((c * L + lane) / kHeadVectors < H && feature(lane, c) + i < D);
  }
  /* An element that may be read: the last feature, where there is none. */
  static DEVICE int safe(int lane, int c, int i) {
    const int f = feature(lane, c) + i;
    return kPadded ? min(f, D - 1) : f;
  }
  /* Does the lane hold a head's first feature? */
  static DEVICE bool begins(int lane, int c) {
    return feature(lane, c) == 0 && has(lane, c, 0);
  }

  /* A row, of which a vector is aligned to its size if VEC divides D. */
  template <typename A, typename T>
  static DEVICE void load(A (&x)[kMain], const T *row, int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t at = head(lane, c) * int64_t(D) + feature(lane, c);
      if constexpr (VEC > 1 && D % VEC == 0 && sizeof(T) * VEC <= 16) {
        packed<T, VEC> y;
        clear(y);
        if (has(lane, c, 0))
          y = load_packed<VEC>(row + at);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          x[c * VEC + i] = static_cast<A>(widen(y.item[i]));
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          x[c * VEC + i] = has(lane, c, i) ? read<A>(row, at + i) : A(0);
      }
    }
  }
  template <typename A, typename T>
  static DEVICE void store(T *row, const A (&x)[kMain], int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t at = head(lane, c) * int64_t(D) + feature(lane, c);
      if constexpr (VEC > 1 && D % VEC == 0 && sizeof(T) * VEC <= 16) {
        packed<T, VEC> y;
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          write(y.item, i, x[c * VEC + i]);
        if (has(lane, c, 0))
          *reinterpret_cast<typename packed<T, VEC>::word_t *>(row + at) =
              y.bits;
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          if (has(lane, c, i))
            write(row, at + i, x[c * VEC + i]);
      }
    }
  }
  /* One number a head. */
  template <typename A, typename T>
  static DEVICE void load_heads(A (&x)[kChunks], const T *row, int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      x[c] = read<A>(row, head(lane, c));
  }
  template <typename A, typename T>
  static DEVICE void store_heads(T *row, const A (&x)[kChunks], int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      if (begins(lane, c))
        write(row, head(lane, c), x[c]);
  }

  /* The sum, or maximum, of the features of each head; every lane of a head
   * gets it. */
  template <bool MAX, typename A>
  static DEVICE void fold(A (&y)[kChunks], const A (&x)[kMain], int lane) {
    constexpr int kWide = kHeadVectors > L ? kHeadVectors / L : 1;
    constexpr int kLanes = kHeadVectors > L ? L : kHeadVectors;
#pragma unroll
    for (int c = 0; c < kChunks; c += kWide) {
      A z = MAX ? -A(INFINITY) : A(0);
#pragma unroll
      for (int w = 0; w < kWide; ++w)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          if (has(lane, c + w, i))
            z = MAX ? f_max(x[(c + w) * VEC + i], z) : z + x[(c + w) * VEC + i];
#pragma unroll
      for (int o = kLanes / 2; o > 0; o >>= 1) {
        const A other = __shfl_xor_sync(kFullMask, z, o);
        z = MAX ? f_max(other, z) : z + other;
      }
#pragma unroll
      for (int w = 0; w < kWide; ++w)
        y[c + w] = z;
    }
  }
};

} // namespace edge_program
} // namespace dfgnn

#endif
