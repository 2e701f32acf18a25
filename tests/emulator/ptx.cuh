/* ptx.cuh - the functions of kernels/common/ptx.cuh in C++, for the emulator */
#ifndef DFGNN_KERNELS_PTX_CUH
#define DFGNN_KERNELS_PTX_CUH

#include "kernels/common/device.h"

namespace dfgnn {
namespace ptx {

/* ---- kernels one after the other ----------------------------------------- */

inline void let_next_begin() {} /* the emulator runs them one by one */
inline void wait_for_previous() {}

/* ---- numbers ------------------------------------------------------------- */

inline float f16_to_float(unsigned short bits) {
  const unsigned sign = unsigned(bits & 0x8000) << 16;
  const unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31)
    return __uint_as_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0)
    return __uint_as_float(sign | __float_as_uint(float(mantissa) * 0x1p-24f));
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
inline unsigned short float_to_f16(float x) {
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffff;
  const unsigned sign = bits >> 16 & 0x8000;
  if (size > 0x7f800000)
    return 0x7fff;
  if (size >= 0x477ff000) /* from 65520 on */
    return sign | 0x7c00;
  if (size < 0x38800000) /* below 2^-14: a multiple of 2^-24 */
    return sign | unsigned(rintf(__uint_as_float(size) * 0x1p24f));
  return sign | ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
}
inline unsigned short float_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float bf16_to_float(unsigned short bits) {
  return __uint_as_float(unsigned(bits) << 16);
}
inline unsigned pack_f16(float low, float high) {
  return unsigned(float_to_f16(high)) << 16 | float_to_f16(low);
}
inline unsigned pack_bf16(float low, float high) {
  return unsigned(float_to_bf16(high)) << 16 | float_to_bf16(low);
}

inline float flush(float x) { return fabsf(x) < 0x1p-126f ? x * 0.0f : x; }
inline float exp2_approximate(float x) { return flush(exp2f(flush(x))); }
inline float sqrt_approximate(float x) { return sqrtf(x); }
/* The result is as far off as a GPU's. */
inline float tanh_approximate(float x) {
  const float y = tanhf(x);
  return __uint_as_float((__float_as_uint(y) + 0x800) & 0xfffff000u);
}
inline float min_or_nan(float a, float b) {
  return a != a || b != b ? NAN : b < a ? b : a;
}
inline float max_or_nan(float a, float b) {
  return a != a || b != b ? NAN : b > a ? b : a;
}

/* ---- threads and addresses ----------------------------------------------- */

inline int lane_id() { return emulated_current->lane; }
inline const char *element(const char *base, int i, unsigned bytes) {
  return base + uint64_t(unsigned(i)) * bytes;
}
template <typename A> inline A *in_memory(A *p) { return p; }

/* ---- loads, stores and sums in global memory ----------------------------- */

template <typename T>
inline void load_if(T &x, const void *p, int on, EMULATED_HERE) {
  if (on)
    x = __ldg(static_cast<const T *>(p), line, file, call);
}

template <typename T> inline void store_relaxed(T *to, emulated_same_t<T> x) {
  *to = x;
}
/* A thread that loads again waits for another one, so others run first. */
template <typename T> inline T load_relaxed(const T *from) {
  emulated_run->yield();
  return *static_cast<const volatile T *>(from);
}

template <int N>
inline void add(float *to, const float (&x)[N], EMULATED_HERE) {
  struct alignas(4 * N) numbers {
    float x[N];
  };
  emulated_aligned(reinterpret_cast<const numbers *>(to), line, file, call);
  for (int i = 0; i < N; i++)
    to[i] += x[i];
}

/* ---- copies from global to shared memory --------------------------------- */

inline void copy_bytes(void *to, const void *from, int size, int bytes,
                       emulated_place place) {
  if (!emulated_run->is_shared(to))
    emulated_run->fail(place, "%p is not in shared memory", to);
  if (uintptr_t(to) % unsigned(size) || uintptr_t(from) % unsigned(size))
    emulated_run->fail(place, "%p or %p is not aligned to %d bytes", to, from,
                       size);
  if (bytes < 0 || bytes > size)
    emulated_run->fail(place, "it copies %d bytes of %d", bytes, size);
  emulated_run->copy(to, from, size, bytes);
}
inline void copy_async(void *to, const void *from, int bytes, EMULATED_HERE) {
  copy_bytes(to, from, 16, bytes, EMULATED_PLACE);
}
inline void copy_commit() { emulated_run->commit(); }
template <int PENDING> inline void copy_wait() { emulated_run->wait(PENDING); }

/* ---- matrices of a warp -------------------------------------------------- */

/* The functions below need all lanes of a warp. */
template <typename T> inline T *const *whole_warp(void **operands) {
  for (int l = 0; l < 32; l++)
    if (!operands[l])
      emulated_run->fail({__FILE__, __func__, __LINE__}, "lane %d has ended",
                         l);
  return reinterpret_cast<T *const *>(operands);
}

struct matrices {
  const void *row;
  unsigned x[4];
  bool trans;
};
inline unsigned short at(const matrices *const *lanes, int i, int row,
                         int column) {
  return static_cast<const unsigned short *>(lanes[8 * i + row]->row)[column];
}
inline void load_all(void **operands) {
  auto *const *lanes = whole_warp<matrices>(operands);
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      const int g = l / 4, t = l % 4;
      lanes[l]->x[i] = lanes[l]->trans
                           ? at(lanes, i, 2 * t, g) |
                                 unsigned(at(lanes, i, 2 * t + 1, g)) << 16
                           : at(lanes, i, g, 2 * t) |
                                 unsigned(at(lanes, i, g, 2 * t + 1)) << 16;
    }
}
inline void load(unsigned (&x)[4], const void *row, bool trans,
                 emulated_place place) {
  matrices mine{row, {}, trans};
  if (uintptr_t(row) % 16)
    emulated_run->fail(place, "%p is not aligned to 16 bytes", row);
  if (!emulated_run->is_shared(row) ||
      !emulated_run->is_shared(static_cast<const char *>(row) + 15))
    emulated_run->fail(place, "%p is not in shared memory", row);
  emulated_run->meet(~0u, &mine, load_all, place);
  for (int i = 0; i < 4; i++)
    x[i] = mine.x[i];
}
inline void load_matrices(unsigned (&x)[4], const void *row, EMULATED_HERE) {
  load(x, row, false, EMULATED_PLACE);
}
inline void load_transposed(unsigned (&x)[4], const void *row, EMULATED_HERE) {
  load(x, row, true, EMULATED_PLACE);
}

struct transposed {
  unsigned from, to;
};
inline void transpose_all(void **operands) {
  auto *const *lanes = whole_warp<transposed>(operands);
  const auto number = [&](int row, int column) {
    return lanes[4 * row + column / 2]->from >> 16 * (column & 1) & 0xffffu;
  };
  for (int l = 0; l < 32; l++) {
    const int g = l / 4, t = l % 4;
    lanes[l]->to = number(2 * t, g) | number(2 * t + 1, g) << 16;
  }
}
inline unsigned transpose_matrix(unsigned x, EMULATED_HERE) {
  transposed mine{x, 0};
  emulated_run->meet(~0u, &mine, transpose_all, EMULATED_PLACE);
  return mine.to;
}

/* A product of 16 x K by K x 8 numbers of type T in words. */
struct product {
  float *d;
  const unsigned *a;
  unsigned b[2];
};
/* Sums of a tensor core are cut off, not rounded. */
inline float cut_off(double x) {
  const float y = float(x);
  return fabs(double(y)) > fabs(x) && fabsf(y) < INFINITY
             ? __uint_as_float(__float_as_uint(y) - 1)
             : y;
}
template <int K, typename A, typename B>
inline void multiply(product *const *lanes, A a_number, B b_number) {
  float a[16][K], b[K][8];
  for (int r = 0; r < 16; r++)
    for (int k = 0; k < K; k++)
      a[r][k] = a_number(r, k);
  for (int k = 0; k < K; k++)
    for (int c = 0; c < 8; c++)
      b[k][c] = b_number(k, c);
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      const int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
      double sum = double(lanes[l]->d[i]);
      for (int k = 0; k < K; k++)
        sum += double(a[row][k]) * double(b[k][column]);
      lanes[l]->d[i] = cut_off(sum);
    }
}
/* A tensor core sees the upper 19 bits. */
inline float tf32(unsigned bits) { return __uint_as_float(bits & 0xffffe000u); }
inline void multiply_tf32(void **operands) {
  auto *const *lanes = whole_warp<product>(operands);
  multiply<8>(
      lanes,
      [&](int r, int k) {
        return tf32(lanes[4 * (r % 8) + k % 4]->a[r / 8 + 2 * (k / 4)]);
      },
      [&](int k, int c) { return tf32(lanes[4 * c + k % 4]->b[k / 4]); });
}
template <float (*WIDEN)(unsigned short)> void multiply_pairs(void **operands) {
  auto *const *lanes = whole_warp<product>(operands);
  const auto half = [](unsigned word, int k) {
    return WIDEN(static_cast<unsigned short>(word >> 16 * (k & 1)));
  };
  multiply<16>(
      lanes,
      [&](int r, int k) {
        return half(lanes[4 * (r % 8) + k % 8 / 2]->a[r / 8 + 2 * (k / 8)], k);
      },
      [&](int k, int c) {
        return half(lanes[4 * c + k % 8 / 2]->b[k / 8], k);
      });
}
inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                emulated_together *together, emulated_place place) {
  product mine{d, a, {b0, b1}};
  emulated_run->meet(~0u, &mine, together, place);
}
inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                     unsigned b1, EMULATED_HERE) {
  mma(d, a, b0, b1, multiply_tf32, EMULATED_PLACE);
}
inline void mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                    unsigned b1, EMULATED_HERE) {
  mma(d, a, b0, b1, multiply_pairs<f16_to_float>, EMULATED_PLACE);
}
inline void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                     unsigned b1, EMULATED_HERE) {
  mma(d, a, b0, b1, multiply_pairs<bf16_to_float>, EMULATED_PLACE);
}

template <float (*WIDEN)(unsigned short)> void multiply_flat(void **operands) {
  auto *const *lanes = whole_warp<product>(operands);
  const auto half = [](unsigned word, int k) {
    return WIDEN(static_cast<unsigned short>(word >> 16 * (k & 1)));
  };
  multiply<8>(
      lanes,
      [&](int r, int k) {
        return half(lanes[4 * (r % 8) + k / 2]->a[r / 8], k);
      },
      [&](int k, int c) { return half(lanes[4 * c + k / 2]->b[0], k); });
}
inline void mma_flat_f16(float *d, unsigned a0, unsigned a1, unsigned b,
                         EMULATED_HERE) {
  const unsigned a[2] = {a0, a1};
  product mine{d, a, {b, 0}};
  emulated_run->meet(~0u, &mine, multiply_flat<f16_to_float>, EMULATED_PLACE);
}
inline void mma_flat_bf16(float *d, unsigned a0, unsigned a1, unsigned b,
                          EMULATED_HERE) {
  const unsigned a[2] = {a0, a1};
  product mine{d, a, {b, 0}};
  emulated_run->meet(~0u, &mine, multiply_flat<bf16_to_float>, EMULATED_PLACE);
}

/* There are no caches. */
inline void fetch_line(const void *) {}

} // namespace ptx
} // namespace dfgnn

#endif
