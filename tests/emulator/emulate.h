/* emulate.h - the language of CUDA kernels as C++ of a CPU
 *
 * Every emulated program begins with it.  It has what the kernels of dfgnn use,
 * which is not all that CUDA has. */
#ifndef DFGNN_EMULATE_H
#define DFGNN_EMULATE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "module.h"

namespace {

/* ---- the program and its threads ----------------------------------------- */

emulated_thread *emulated_current;
emulated_block emulated_grid;
const emulated_runtime *emulated_run;

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
/* Variables of a thread of the system lie side by side, so that the driver can
 * fill them with NaN before a block begins.  The compiler of kernels makes
 * dynamic shared memory of `extern __shared__`, before this is seen. */
#define __shared__ static thread_local
#define threadIdx (emulated_current->index)
#define blockIdx (emulated_grid.index)
#define blockDim (emulated_grid.threads)
#define gridDim (emulated_grid.blocks)
constexpr int warpSize = EMULATED_WARP;

#define EMULATED_HERE                                                          \
  int line = __builtin_LINE(), const char *file = __builtin_FILE(),            \
      const char *call = __builtin_FUNCTION()
#define EMULATED_PLACE                                                         \
  emulated_place { file, call, line }

/* CUDA loads from and stores to aligned addresses only. */
template <typename T> inline void emulated_aligned(const T *p, EMULATED_HERE) {
  if (__builtin_expect(uintptr_t(p) % sizeof(T) != 0, 0))
    emulated_run->fail(EMULATED_PLACE, "%p is not aligned to %d bytes", p,
                       int(sizeof(T)));
}

/* ---- types --------------------------------------------------------------- */

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline double2 make_double2(double x, double y) { return {x, y}; }

template <typename T> struct emulated_same { using type = T; };
template <typename T> using emulated_same_t = typename emulated_same<T>::type;

/* ---- arithmetic ---------------------------------------------------------- */

template <typename A, typename B>
constexpr auto min(A a, B b) -> decltype(true ? A() : B()) {
  using C = decltype(true ? A() : B());
  return C(b) < C(a) || C(a) != C(a) ? C(b) : C(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) -> decltype(true ? A() : B()) {
  using C = decltype(true ? A() : B());
  return C(b) > C(a) || C(a) != C(a) ? C(b) : C(a);
}

template <typename To, typename From> inline To emulated_bits(From x) {
  To y;
  static_assert(sizeof(To) == sizeof(From), "");
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }

inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
/* The quotient is 0 where the divisor is above 2^126, as on a GPU. */
inline float __fdividef(float x, float y) {
  return fabsf(y) > 0x1p126f && fabsf(y) < INFINITY ? x * 0.0f : x / y;
}
inline float __log2f(float x) { return log2f(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }

/* ---- memory -------------------------------------------------------------- */

template <typename T> inline T __ldg(const T *p, EMULATED_HERE) {
  emulated_aligned(p, line, file, call);
  return *p;
}
template <typename T> inline T __ldcs(const T *p, EMULATED_HERE) {
  emulated_aligned(p, line, file, call);
  return *p;
}
template <typename T> inline T __ldcg(const T *p, EMULATED_HERE) {
  emulated_aligned(p, line, file, call);
  return *p;
}
template <typename T>
inline void __stcs(T *p, emulated_same_t<T> x, EMULATED_HERE) {
  emulated_aligned(p, line, file, call);
  *p = x;
}

/* Atomic functions are plain ones: no other thread runs in between. */
template <typename T> inline T atomicAdd(T *p, emulated_same_t<T> x) {
  T old = *p;
  *p = old + x;
  return old;
}
template <typename T> inline T atomicMax(T *p, emulated_same_t<T> x) {
  T old = *p;
  *p = old < x ? x : old;
  return old;
}
template <typename T> inline T atomicMin(T *p, emulated_same_t<T> x) {
  T old = *p;
  *p = x < old ? x : old;
  return old;
}
template <typename T> inline T atomicOr(T *p, emulated_same_t<T> x) {
  T old = *p;
  *p = old | x;
  return old;
}
template <typename T>
inline T atomicCAS(T *p, emulated_same_t<T> from, emulated_same_t<T> to) {
  T old = *p;
  if (old == from)
    *p = to;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __trap(EMULATED_HERE) {
  emulated_run->fail(EMULATED_PLACE, "trap");
}

/* ---- blocks and warps ---------------------------------------------------- */

inline void __syncthreads(EMULATED_HERE) {
  emulated_run->barrier(0, EMULATED_PLACE);
}
inline int __syncthreads_or(int predicate, EMULATED_HERE) {
  return emulated_run->barrier(predicate, EMULATED_PLACE) != 0;
}

inline void emulated_sync(void **) {}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_HERE) {
  int nothing;
  emulated_run->meet(mask, &nothing, emulated_sync, EMULATED_PLACE);
}

/* The value of a lane that has none to give: NaN of every type. */
template <typename T> inline T emulated_nothing() {
  T x;
  memset(&x, 0xff, sizeof x);
  return x;
}

template <typename T> struct emulated_shuffle {
  T value, result;
  int from; /* lane */
};
template <typename T> void emulated_shuffle_all(void **operands) {
  for (int i = 0; i < EMULATED_WARP; i++) {
    auto *mine = static_cast<emulated_shuffle<T> *>(operands[i]);
    if (!mine)
      continue;
    auto *its = static_cast<emulated_shuffle<T> *>(operands[mine->from]);
    mine->result = its ? its->value : emulated_nothing<T>();
  }
}
template <typename T>
inline T emulated_shuffle_from(unsigned mask, T x, int from,
                               emulated_place place) {
  emulated_shuffle<T> mine{x, x, from};
  emulated_run->meet(mask, &mine, emulated_shuffle_all<T>, place);
  return mine.result;
}
/* Lanes do not reach beyond their group of `width`. */
template <typename T>
inline T __shfl_sync(unsigned mask, T x, int from, int width = 32,
                     EMULATED_HERE) {
  const int lane = emulated_current->lane;
  return emulated_shuffle_from(
      mask, x, (lane & ~(width - 1)) | (from & (width - 1)), EMULATED_PLACE);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32,
                         EMULATED_HERE) {
  const int lane = emulated_current->lane, from = lane ^ by;
  return emulated_shuffle_from(
      mask, x, from >= (lane & ~(width - 1)) + width || from > 31 ? lane : from,
      EMULATED_PLACE);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32,
                        EMULATED_HERE) {
  const int lane = emulated_current->lane, from = lane - int(by);
  return emulated_shuffle_from(
      mask, x, from < (lane & ~(width - 1)) ? lane : from, EMULATED_PLACE);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32,
                          EMULATED_HERE) {
  const int lane = emulated_current->lane, from = lane + int(by);
  return emulated_shuffle_from(
      mask, x, from > (lane | (width - 1)) ? lane : from, EMULATED_PLACE);
}

struct emulated_vote {
  int predicate;
  unsigned on, in; /* lanes that say yes, lanes that vote */
};
inline void emulated_vote_all(void **operands) {
  unsigned on = 0, in = 0;
  for (int i = 0; i < EMULATED_WARP; i++)
    if (auto *mine = static_cast<emulated_vote *>(operands[i])) {
      in |= 1u << i;
      on |= unsigned(mine->predicate != 0) << i;
    }
  for (int i = 0; i < EMULATED_WARP; i++)
    if (auto *mine = static_cast<emulated_vote *>(operands[i])) {
      mine->on = on;
      mine->in = in;
    }
}
inline emulated_vote emulated_vote_in(unsigned mask, int predicate,
                                      emulated_place place) {
  emulated_vote mine{predicate, 0, 0};
  emulated_run->meet(mask, &mine, emulated_vote_all, place);
  return mine;
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_HERE) {
  return emulated_vote_in(mask, predicate, EMULATED_PLACE).on;
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_HERE) {
  return emulated_vote_in(mask, predicate, EMULATED_PLACE).on != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_HERE) {
  const emulated_vote vote = emulated_vote_in(mask, predicate, EMULATED_PLACE);
  return vote.on == vote.in;
}

template <typename T> struct emulated_match {
  T value;
  unsigned in, like; /* lanes that match, lanes with the same value */
};
template <typename T> void emulated_match_lanes(void **operands) {
  for (int i = 0; i < EMULATED_WARP; i++) {
    auto *mine = static_cast<emulated_match<T> *>(operands[i]);
    for (int k = 0; mine && k < EMULATED_WARP; k++)
      if (auto *its = static_cast<emulated_match<T> *>(operands[k])) {
        mine->in |= 1u << k;
        mine->like |= unsigned(its->value == mine->value) << k;
      }
  }
}
template <typename T>
inline unsigned __match_all_sync(unsigned mask, T x, int *all, EMULATED_HERE) {
  emulated_match<T> mine{x, 0, 0};
  emulated_run->meet(mask, &mine, emulated_match_lanes<T>, EMULATED_PLACE);
  *all = mine.like == mine.in;
  return *all ? mine.in : 0;
}

/* ---- calling a kernel ---------------------------------------------------- */

template <auto KERNEL> struct emulated_entry;
template <typename... P, void (*KERNEL)(P...)> struct emulated_entry<KERNEL> {
  template <size_t... I> struct numbers {};
  template <size_t N, size_t... I> struct up_to : up_to<N - 1, N - 1, I...> {};
  template <size_t... I> struct up_to<0, I...> { using type = numbers<I...>; };

  template <size_t... I>
  static void call_with(void **arguments, numbers<I...>) {
    KERNEL(*static_cast<P *>(arguments[I])...);
  }
  static void call(void **arguments) {
    call_with(arguments, typename up_to<sizeof...(P)>::type{});
  }
  static constexpr emulated_kernel make(const char *symbol, const char *name) {
    return {symbol, name, call, int(sizeof...(P)), {sizeof(P)...}};
  }
};

inline void *emulated_static_shared() {
  __shared__ char first;
  return &first;
}

} // namespace

#define EMULATED_PROGRAM(...)                                                  \
  static const emulated_kernel emulated_kernels[] = {__VA_ARGS__};             \
  extern "C" __attribute__((visibility("default")))                            \
  const emulated_module dfgnn_emulated_module = {                              \
      EMULATED_VERSION,                                                        \
      &emulated_current,                                                       \
      &emulated_grid,                                                          \
      &emulated_run,                                                           \
      emulated_static_shared,                                                  \
      emulated_kernels,                                                        \
      sizeof emulated_kernels / sizeof *emulated_kernels};

#endif
