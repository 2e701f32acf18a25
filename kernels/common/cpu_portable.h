/* cpu_portable.h - vectors of 16 bytes in the vector extension of GCC and
 * Clang, for any architecture; see cpu_vector.h */
#define CPU_TARGET
#define CPU_ALWAYS static inline __attribute__((always_inline))
/* On x86-64 these loops serve machines without AVX2, which are few and old:
 * they should be small, so that the compiler says what else is inline. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
#define CPU_INLINE static inline
#if CPU_DTYPE == CPU_F32
#define CPU_LEVEL "O2"
#else
#define CPU_LEVEL "Os"
#pragma GCC optimize("Os")
#endif
#else
#define CPU_INLINE CPU_ALWAYS
#endif
/* Functions that are not inline: tails would fill the loops. */
#define CPU_CALLED static __attribute__((noinline, unused))

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

CPU_ALWAYS tail v_tail(int64_t n) { return n; }

/* Scalars: the type of scores and sums. */
CPU_ALWAYS vec v_load(const scalar *p) {
  vec x = {0};
  memcpy(&x, p, sizeof x);
  return x;
}
CPU_CALLED vec v_load_tail(const scalar *p, tail t) {
  vec x = {0};
  for (int64_t i = 0; i < t; i++)
    x[i] = p[i];
  return x;
}
CPU_ALWAYS void v_store(scalar *p, vec x) { memcpy(p, &x, sizeof x); }
CPU_CALLED void v_store_tail(scalar *p, vec x, tail t) {
  for (int64_t i = 0; i < t; i++)
    p[i] = x[i];
}

CPU_ALWAYS vec v_zero(void) { return (vec){0}; }
CPU_ALWAYS vec v_set(scalar x) {
#if CPU_DTYPE == CPU_F64
  return (vec){x, x};
#else
  return (vec){x, x, x, x};
#endif
}
CPU_ALWAYS vec v_add(vec a, vec b) { return a + b; }
CPU_ALWAYS vec v_mul(vec a, vec b) { return a * b; }
CPU_ALWAYS vec v_div(vec a, vec b) { return a / b; }
CPU_CALLED vec v_root(vec x) {
  for (int i = 0; i < VECTOR; i++)
    x[i] = (scalar)sqrt((double)x[i]);
  return x;
}
CPU_ALWAYS vec v_fma(vec a, vec b, vec c) { return a * b + c; }
CPU_ALWAYS vec v_choose(bits mask, vec a, vec b) {
  return (vec)(((bits)a & mask) | ((bits)b & ~mask));
}
CPU_ALWAYS vec v_max(vec a, vec b) { return v_choose((bits)(a > b), a, b); }
CPU_ALWAYS vec v_keep(vec x, tail t, vec fill) {
  for (int64_t i = t; i < VECTOR; i++)
    x[i] = fill[i];
  return x;
}
CPU_ALWAYS vec v_leaky(vec x, vec slope) {
  return v_choose((bits)(x > v_zero()), x, x * slope);
}
CPU_ALWAYS vec v_step(vec x, vec above, vec below) {
  return v_choose((bits)(x > v_zero()), above, below);
}
/* Adding the magic number leaves no fraction bits. */
CPU_ALWAYS vec v_round(vec x) {
  vec magic = v_set(EXPONENT_MAGIC);
  return (x + magic) - magic;
}
CPU_ALWAYS vec v_power(vec x, vec n) {
  bits exponent = (bits)(n + v_set(EXPONENT_MAGIC + EXPONENT_BIAS));
  return x * (vec)(exponent << EXPONENT_SHIFT);
}
CPU_ALWAYS scalar v_sum(vec x) {
  scalar sum = x[0];
  for (int i = 1; i < VECTOR; i++)
    sum += x[i];
  return sum;
}
CPU_ALWAYS scalar v_top(vec x) {
  scalar top = x[0];
  for (int i = 1; i < VECTOR; i++)
    top = x[i] > top ? x[i] : top;
  return top;
}

#define SUMS 1
CPU_ALWAYS void v_sums(scalar *to, const vec *a) { to[0] = v_sum(a[0]); }
