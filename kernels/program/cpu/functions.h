/* functions.h - functions of one number without branches, so that the compiler
 * makes vectors of loops over them
 *
 * Reductions are Cody and Waite's, polynomials those of Cephes (Moshier) unless
 * said otherwise; errors are within 4 ulp, which
 * tests/unit/check_program_functions.c measures.  The file goes into the text
 * of compiled bodies as it is, so that it includes nothing: what includes it
 * has <float.h>, <math.h> and <stdint.h>. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_FUNCTIONS_H
#define DFGNN_KERNELS_PROGRAM_CPU_FUNCTIONS_H

/* 1: products are added in one rounding.  Nothing else is, so that the bits of
 * a result do not depend on the compiler. */
#ifndef REAL_FUSED
#define REAL_FUSED 0
#endif

#if REAL_IS_DOUBLE
#define R(x) x
#define R_FN(name) name
typedef uint64_t real_bits;
enum { REAL_FRACTION = 52, REAL_BIAS = 1023 };
#define REAL_MIN DBL_MIN
#else
#define R(x) x##f
#define R_FN(name) name##f
typedef uint32_t real_bits;
enum { REAL_FRACTION = 23, REAL_BIAS = 127 };
#define REAL_MIN FLT_MIN
#endif

static inline REAL real_fma(REAL x, REAL y, REAL z) {
#if !REAL_FUSED
  return x * y + z;
#elif REAL_IS_DOUBLE
  return __builtin_fma(x, y, z);
#else
  return __builtin_fmaf(x, y, z);
#endif
}

static inline REAL real_of(real_bits bits) {
  const union {
    real_bits bits;
    REAL x;
  } both = {bits};
  return both.x;
}
static inline real_bits bits_of(REAL x) {
  const union {
    REAL x;
    real_bits bits;
  } both = {x};
  return both.bits;
}

/* The value of a polynomial whose coefficients fall in degree, at most 15.  A
 * loop over them would keep the loop around it from becoming vectors. */
#define REAL_TERM(y, x, i)                                                     \
  if (i < sizeof c_ / sizeof *c_)                                              \
  y = real_fma(y, x, c_[i < sizeof c_ / sizeof *c_ ? i : 0])
#define REAL_POLYNOMIAL(y, x, ...)                                             \
  do {                                                                         \
    static const REAL c_[] = {__VA_ARGS__};                                    \
    y = c_[0];                                                                 \
    REAL_TERM(y, x, 1);                                                        \
    REAL_TERM(y, x, 2);                                                        \
    REAL_TERM(y, x, 3);                                                        \
    REAL_TERM(y, x, 4);                                                        \
    REAL_TERM(y, x, 5);                                                        \
    REAL_TERM(y, x, 6);                                                        \
    REAL_TERM(y, x, 7);                                                        \
    REAL_TERM(y, x, 8);                                                        \
    REAL_TERM(y, x, 9);                                                        \
    REAL_TERM(y, x, 10);                                                       \
    REAL_TERM(y, x, 11);                                                       \
    REAL_TERM(y, x, 12);                                                       \
    REAL_TERM(y, x, 13);                                                       \
    REAL_TERM(y, x, 14);                                                       \
  } while (0)

/* Adding this leaves a small whole number in the lowest bits. */
#define REAL_MAGIC (REAL_IS_DOUBLE ? (REAL)0x1.8p52 : (REAL)0x1.8p23)

static inline REAL real_round(REAL x) {
  REAL n = x + REAL_MAGIC;
  return n - REAL_MAGIC;
}

/* 2^n for a whole number of the exponents' range. */
static inline REAL real_power(REAL n) {
  return real_of(bits_of(n + (REAL_MAGIC + REAL_BIAS)) << REAL_FRACTION);
}

/* x^n for n from 1 to DFGNN_POW_SQUARED, within n - 1 roundings. */
static inline REAL real_small_power(REAL x, int n) {
  REAL square = x * x, fourth = square * square;
  REAL y = n & 4 ? fourth : 1;
  y = n & 2 ? y * square : y;
  y = n & 1 ? y * x : y;
  return n & 8 ? fourth * fourth : y;
}

/* y 2^n, in two steps since 2^n may be beyond the range. */
static inline REAL real_scale(REAL y, REAL n) {
  REAL half = real_round(n * R(0.5));
  return y * real_power(half) * real_power(n - half);
}

/* Beyond the limits it is 0 or infinite by itself; a NaN passes them. */
#if REAL_IS_DOUBLE
static inline double real_exp(double x) {
  double a = x < -745.2 ? -745.2 : x, y;
  a = a > 709.8 ? 709.8 : a;
  double n = real_round(a * 0x1.71547652b82fep0);
  double r = real_fma(n, -0x1.62e42fefa0000p-1, a);
  r = real_fma(n, -0x1.cf79abc9e3b39p-40, r);
  /* Taylor's */
  REAL_POLYNOMIAL(y, r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800,
                  1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                  1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  return real_scale(real_fma(y * r, r, r) + 1, n);
}
#else
static inline float real_exp(float x) {
  float a = x < -104.0f ? -104.0f : x, y;
  a = a > 88.8f ? 88.8f : a;
  float n = real_round(a * 1.44269504f);
  float r = real_fma(n, -0.693359375f, a);
  r = real_fma(n, 2.12194440e-4f, r);
  REAL_POLYNOMIAL(y, r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                  4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  return real_scale(real_fma(y * r, r, r) + 1, n);
}
#endif

/* A polynomial near 0, where the other form loses digits. */
static inline REAL real_tanh(REAL x) {
  REAL a = R_FN(fabs)(x), z = x * x, p;
#if REAL_IS_DOUBLE
  double q;
  REAL_POLYNOMIAL(p, z, -9.64399179425052238628e-1, -9.92877231001918586564e1,
                  -1.61468768441708447952e3);
  REAL_POLYNOMIAL(q, z, 1, 1.12811678491632931402e2, 2.23548839060100448583e3,
                  4.84406305325125486048e3);
  p = p / q;
#else
  REAL_POLYNOMIAL(p, z, -5.70498872745e-3f, 2.06390887954e-2f,
                  -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
#endif
  REAL near = p * z * x + x;
  REAL far = 1 - 2 / (real_exp(2 * a) + 1);
  far = x < 0 ? -far : far;
  return a < R(0.625) ? near : far;
}

static inline REAL real_sigmoid(REAL x) { return 1 / (1 + real_exp(-x)); }

static inline REAL real_log(REAL x) {
  const int small = x < REAL_MIN; /* denormal, 0 or negative */
  const REAL up = REAL_IS_DOUBLE ? (REAL)0x1p54 : (REAL)0x1p25;
  REAL a = small ? x * up : x, y;
  real_bits bits = bits_of(a);
  /* m in [1/2, 1), then in [sqrt(1/2), sqrt(2)) less 1 */
  REAL e = real_of((bits >> REAL_FRACTION) | bits_of(REAL_MAGIC)) -
           (REAL_MAGIC + (REAL_BIAS - 1));
  REAL m = real_of((bits & (((real_bits)1 << REAL_FRACTION) - 1)) |
                   ((real_bits)(REAL_BIAS - 1) << REAL_FRACTION));
  e = e - (small ? (REAL_IS_DOUBLE ? 54 : 25) : 0);
  const int low = m < R(0.70710678118654752440);
  e = low ? e - 1 : e;
  m = low ? m + m - 1 : m - 1;
  REAL z = m * m;
#if REAL_IS_DOUBLE
  double q;
  REAL_POLYNOMIAL(y, m, 1.01875663804580931796e-4, 4.97494994976747001425e-1,
                  4.70579119878881725854, 1.44989225341610930846e1,
                  1.79368678507819816313e1, 7.70838733755885391666);
  REAL_POLYNOMIAL(q, m, 1, 1.12873587189167450590e1, 4.52279145837532221105e1,
                  8.29875266912776603211e1, 7.11544750618563894466e1,
                  2.31251620126765340583e1);
  y = m * (z * y / q);
#else
  REAL_POLYNOMIAL(y, m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                  -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                  2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  y = y * m * z;
#endif
  y = y - e * R(2.121944400546905827679e-4);
  y = y - R(0.5) * z;
  y = m + y + e * R(0.693359375);
  y = x == 0 ? -(REAL)INFINITY : y;
  y = x < 0 ? (REAL)NAN : y;
  return x == (REAL)INFINITY || x != x ? x : y;
}

/* log(1 + x), mended by what 1 + x has lost (Kahan). */
static inline REAL real_log1p(REAL x) {
  REAL u = 1 + x;
  REAL y = real_log(u) + (x - (u - 1)) / u;
  y = u == 1 ? x : y;
  y = u == 0 ? -(REAL)INFINITY : y;
  return x == (REAL)INFINITY ? x : y;
}

static inline REAL real_softplus(REAL x) {
  return (x > 0 ? x : x != x ? x : 0) + real_log1p(real_exp(-R_FN(fabs)(x)));
}

/* Taylor's series near 0. */
static inline REAL real_expm1(REAL x) {
  REAL y;
#if REAL_IS_DOUBLE
  REAL_POLYNOMIAL(y, x, 1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600,
                  1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                  1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1);
#else
  REAL_POLYNOMIAL(y, x, 1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120,
                  1.0f / 24, 1.0f / 6, 0.5f, 1);
#endif
  return R_FN(fabs)(x) < R(0.5) ? y * x : real_exp(x) - 1;
}

#if REAL_IS_DOUBLE
static inline double real_erf(double x) { return erf(x); }
#else
static inline float real_erf(float x) {
  float a = fabsf(x), z = x * x, near, middle, far;
  REAL_POLYNOMIAL(near, z, 7.853861353153693e-5f, -8.010193625184903e-4f,
                  5.188327685732524e-3f, -2.685381193529856e-2f,
                  1.128358514861418e-1f, -3.761262582423300e-1f,
                  1.128379165726710f);
  float q = 1 / (a > 1 ? a : 1), w = q * q;
  REAL_POLYNOMIAL(middle, w, 2.326819970068386e-2f, -1.387039388740657e-1f,
                  3.687424674597105e-1f, -5.824733027278666e-1f,
                  6.210004621745983e-1f, -4.944515323274145e-1f,
                  3.404879937665872e-1f, -2.741127028184656e-1f,
                  5.638259427386472e-1f);
  REAL_POLYNOMIAL(far, w, -1.047766399936249e1f, 1.297719955372516e1f,
                  -7.495518717768503f, 2.921019019210786f, -1.015265279202700f,
                  4.218463358204948e-1f, -2.820767439740514e-1f,
                  5.641895067754075e-1f);
  float beyond = 1 - real_exp(-z) * q * (a < 2 ? middle : far);
  beyond = x < 0 ? -beyond : beyond;
  return a < 1 ? near * x : x != x ? x : beyond;
}
#endif

/* Where real_sin and real_cos are exact enough. */
#define REAL_MOST_ANGLE R(4096.0)

/* The sine of x + quarter * pi / 2, for |x| up to REAL_MOST_ANGLE. */
static inline REAL real_turned(REAL x, int quarter) {
  REAL n = real_round(x * R(0.63661977236758134308)), s, c;
  real_bits k = bits_of(n + REAL_MAGIC) + (real_bits)quarter;
#if REAL_IS_DOUBLE
  double r = x - n * (2 * 7.85398125648498535156e-1);
  r = r - n * (2 * 3.77489470793079817668e-8);
  r = r - n * (2 * 2.69515142907905952645e-15);
  double z = r * r;
  REAL_POLYNOMIAL(s, z, 1.58962301576546568060e-10, -2.50507477628578072866e-8,
                  2.75573136213857245213e-6, -1.98412698295895385996e-4,
                  8.33333333332211858878e-3, -1.66666666666666307295e-1);
  REAL_POLYNOMIAL(c, z, -1.13585365213876817300e-11, 2.08757008419747316778e-9,
                  -2.75573141792967388112e-7, 2.48015872888517045348e-5,
                  -1.38888888888730564116e-3, 4.16666666666665929218e-2);
#else
  float r = x - n * (2 * 0.78515625f);
  r = r - n * (2 * 2.4187564849853515625e-4f);
  r = r - n * (2 * 3.77489497744594108e-8f);
  float z = r * r;
  REAL_POLYNOMIAL(s, z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  REAL_POLYNOMIAL(c, z, 2.443315711809948e-5f, -1.388731625493765e-3f,
                  4.166664568298827e-2f);
#endif
  s = s * z * r + r;
  c = c * z * z - R(0.5) * z + 1;
  REAL y = k & 1 ? c : s;
  return k & 2 ? -y : y;
}
static inline REAL real_sin(REAL x) { return real_turned(x, 0); }
static inline REAL real_cos(REAL x) { return real_turned(x, 1); }

static inline REAL real_max(REAL x, REAL y) {
  return x != x || x > y ? x : y; /* a NaN of either stays */
}

#endif
