/* cpu_portable.h - vectors of 16 bytes in the vector extension of GCC and
 * Clang, for any architecture; see cpu_vector.h */
#define CPU_TARGET
#define CPU_INLINE static inline __attribute__((always_inline))

#if CPU_DTYPE == CPU_F64
#define VECTOR 2
#define EXPONENT_MAGIC 0x1.8p52
#define EXPONENT_BIAS 1023
#define EXPONENT_SHIFT 52
typedef double vec __attribute__((vector_size(16)));
typedef uint64_t bits __attribute__((vector_size(16)));
#else
#define VECTOR 4
#define EXPONENT_MAGIC 0x1.8p23f
#define EXPONENT_BIAS 127
#define EXPONENT_SHIFT 23
typedef float vec __attribute__((vector_size(16)));
typedef uint32_t bits __attribute__((vector_size(16)));
#endif

typedef int64_t tail; /* lanes kept */

CPU_INLINE tail v_tail(int64_t n) { return n; }

/* Scalars: the type of scores and sums. */
CPU_INLINE vec s_load(const scalar *p) {
  vec x = {0};
  memcpy(&x, p, sizeof x);
  return x;
}
CPU_INLINE vec s_load_tail(const scalar *p, tail t) {
  vec x = {0};
  for (int64_t i = 0; i < t; i++)
    x[i] = p[i];
  return x;
}
CPU_INLINE void s_store(scalar *p, vec x) { memcpy(p, &x, sizeof x); }
CPU_INLINE void s_store_tail(scalar *p, vec x, tail t) {
  for (int64_t i = 0; i < t; i++)
    p[i] = x[i];
}

CPU_INLINE vec v_zero(void) { return (vec){0}; }
CPU_INLINE vec v_set(scalar x) {
#if CPU_DTYPE == CPU_F64
  return (vec){x, x};
#else
  return (vec){x, x, x, x};
#endif
}
CPU_INLINE vec v_add(vec a, vec b) { return a + b; }
CPU_INLINE vec v_mul(vec a, vec b) { return a * b; }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
CPU_INLINE vec v_choose(bits mask, vec a, vec b) {
  return (vec)(((bits)a & mask) | ((bits)b & ~mask));
}
CPU_INLINE vec v_max(vec a, vec b) { return v_choose((bits)(a > b), a, b); }
CPU_INLINE vec v_keep(vec x, tail t, vec fill) {
  for (int64_t i = t; i < VECTOR; i++)
    x[i] = fill[i];
  return x;
}
CPU_INLINE vec v_leaky(vec x, vec slope) {
  return v_choose((bits)(x > v_zero()), x, x * slope);
}
CPU_INLINE vec v_step(vec x, vec above, vec below) {
  return v_choose((bits)(x > v_zero()), above, below);
}
/* Adding the magic number leaves no fraction bits. */
CPU_INLINE vec v_round(vec x) {
  vec magic = v_set(EXPONENT_MAGIC);
  return (x + magic) - magic;
}
CPU_INLINE vec v_power(vec x, vec n) {
  bits exponent = (bits)(n + v_set(EXPONENT_MAGIC + EXPONENT_BIAS));
  return x * (vec)(exponent << EXPONENT_SHIFT);
}
CPU_INLINE scalar v_sum(vec x) {
  scalar sum = x[0];
  for (int i = 1; i < VECTOR; i++)
    sum += x[i];
  return sum;
}
CPU_INLINE scalar v_top(vec x) {
  scalar top = x[0];
  for (int i = 1; i < VECTOR; i++)
    top = x[i] > top ? x[i] : top;
  return top;
}

/* Here and below exp() is zero, as its exponent leaves the normal numbers. */
#define EXP_ZERO (CPU_DTYPE == CPU_F64 ? -709.1 : -88)

#define SUMS 1
CPU_INLINE void v_sums(scalar *to, const vec *a) { to[0] = v_sum(a[0]); }

/* Storage. */
#if CPU_DTYPE == CPU_F16
#define WIDEN dfgnn__f16_to_float
#define NARROW dfgnn__f16_from_float
#elif CPU_DTYPE == CPU_BF16
#define WIDEN dfgnn__bf16_to_float
#define NARROW dfgnn__bf16_from_float
#else
#define WIDEN
#define NARROW
#endif
CPU_INLINE vec v_load(const storage *p) {
  vec x = {0};
  for (int i = 0; i < VECTOR; i++)
    x[i] = WIDEN(p[i]);
  return x;
}
CPU_INLINE vec v_load_tail(const storage *p, tail t) {
  vec x = {0};
  for (int64_t i = 0; i < t; i++)
    x[i] = WIDEN(p[i]);
  return x;
}
CPU_INLINE void v_store(storage *p, vec x) {
  for (int i = 0; i < VECTOR; i++)
    p[i] = NARROW(x[i]);
}
CPU_INLINE void v_store_tail(storage *p, vec x, tail t) {
  for (int64_t i = 0; i < t; i++)
    p[i] = NARROW(x[i]);
}
