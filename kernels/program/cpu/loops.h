/* loops.h - the inner loops of programs: one operation over n elements, or over
 * the axes of one item
 *
 * A file defines REAL and REAL_IS_DOUBLE, and the instruction set by a pragma;
 * the compiler vectorises.  Strides of a loop's operands are 0 or 1.  The file
 * goes into the text of compiled bodies, where LOOP inlines its functions and
 * numbers are constants, after body.h, operations.h and functions.h. */
#ifndef LOOP
#define LOOP static
#endif
/* The innermost loop becomes the vector, whatever is around it. */
#define LOOP_VECTOR _Pragma("omp simd")

/* ---- of one, two and three operands -------------------------------------- */

#define LOOP_UNARY(name, expression)                                           \
  LOOP void loop_##name(int64_t n, REAL *restrict out, const REAL *a,          \
                        int64_t sa, REAL c) {                                  \
    (void)c;                                                                   \
    if (!sa) {                                                                 \
      const REAL x = *a, y = expression;                                       \
      for (int64_t i = 0; i < n; i++)                                          \
        out[i] = y;                                                            \
      return;                                                                  \
    }                                                                          \
    LOOP_VECTOR                                                                \
    for (int64_t i = 0; i < n; i++) {                                          \
      const REAL x = a[i];                                                     \
      out[i] = expression;                                                     \
    }                                                                          \
  }
PROGRAM_UNARY(LOOP_UNARY)
LOOP_UNARY(small_sin, real_sin(x))
LOOP_UNARY(small_cos, real_cos(x))
LOOP_UNARY(any_sin, R_FN(sin)(x))
LOOP_UNARY(any_cos, R_FN(cos)(x))

/* Large angles, infinities and NaN take the C library's function. */
LOOP int angles_are_small(int64_t n, const REAL *a, int64_t stride) {
  int64_t small = 0;
  for (int64_t i = 0; i < (stride ? n : 1); i++)
    small += R_FN(fabs)(a[i]) <= REAL_MOST_ANGLE;
  return small == (stride ? n : 1);
}
#define LOOP_ANGLE(name, expression)                                           \
  LOOP void loop_##name(int64_t n, REAL *restrict out, const REAL *a,          \
                        int64_t sa, REAL c) {                                  \
    if (angles_are_small(n, a, sa))                                            \
      loop_small_##name(n, out, a, sa, c);                                     \
    else                                                                       \
      loop_any_##name(n, out, a, sa, c);                                       \
  }
PROGRAM_ANGLE(LOOP_ANGLE)

#define LOOP_BINARY(name, expression)                                          \
  LOOP void loop_##name(int64_t n, REAL *restrict out, const REAL *a,          \
                        int64_t sa, const REAL *b, int64_t sb) {               \
    if (sa && sb) {                                                            \
      LOOP_VECTOR                                                              \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL x = a[i], y = b[i];                                         \
        out[i] = expression;                                                   \
      }                                                                        \
    } else if (sa) {                                                           \
      const REAL y = *b;                                                       \
      LOOP_VECTOR                                                              \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL x = a[i];                                                   \
        out[i] = expression;                                                   \
      }                                                                        \
    } else if (sb) {                                                           \
      const REAL x = *a;                                                       \
      LOOP_VECTOR                                                              \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL y = b[i];                                                   \
        out[i] = expression;                                                   \
      }                                                                        \
    } else {                                                                   \
      const REAL x = *a, y = *b;                                               \
      for (int64_t i = 0; i < n; i++)                                          \
        out[i] = expression;                                                   \
    }                                                                          \
  }
PROGRAM_BINARY(LOOP_BINARY)
LOOP_BINARY(mul_add, real_fma(x, y, out[i]))

/* Strides are constants where each call's are inlined, so that loops become
 * vectors. */
static inline __attribute__((always_inline)) void
choose(int64_t n, REAL *restrict out, const REAL *c, int64_t sc, const REAL *a,
       int64_t sa, const REAL *b, int64_t sb) {
  LOOP_VECTOR
  for (int64_t i = 0; i < n; i++) {
    const REAL x = a[i * sa], y = b[i * sb];
    out[i] = c[i * sc] != 0 ? x : y;
  }
}

LOOP void loop_where(int64_t n, REAL *restrict out, const REAL *c, int64_t sc,
                     const REAL *a, int64_t sa, const REAL *b, int64_t sb) {
  if (sc && sa && sb)
    choose(n, out, c, 1, a, 1, b, 1);
  else if (sc && sa)
    choose(n, out, c, 1, a, 1, b, 0);
  else if (sc && sb)
    choose(n, out, c, 1, a, 0, b, 1);
  else if (sc)
    choose(n, out, c, 1, a, 0, b, 0);
  else
    choose(n, out, c, 0, a, sa, b, sb);
}

/* ---- sums ---------------------------------------------------------------- */

/* Sums side by side, added as a tree: 8 for up to 16 numbers, else 16. */
enum { PARTIAL_SUMS = 16 };
LOOP int sums_of(int64_t n) { return n <= 16 ? 8 : PARTIAL_SUMS; }

/* The halves of vectors are added in few instructions where compilers have a
 * word for halves. */
#if defined __has_builtin && !defined __clang_analyzer__
#if __has_builtin(__builtin_shufflevector)
#define TREE_OF_VECTORS
#endif
#endif
#ifdef TREE_OF_VECTORS
typedef REAL sixteen __attribute__((vector_size(16 * sizeof(REAL))));
typedef REAL eight __attribute__((vector_size(8 * sizeof(REAL))));
typedef REAL four __attribute__((vector_size(4 * sizeof(REAL))));

LOOP void add_halves(eight *sum, const REAL *s, int width) {
  if (width == 8) {
    *sum = (eight){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]};
    return;
  }
  const sixteen all = {s[0], s[1], s[2],  s[3],  s[4],  s[5],  s[6],  s[7],
                       s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[15]};
  *sum = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
}
LOOP REAL tree(const REAL *s, int width) {
  eight a;
  add_halves(&a, s, width);
  const four b = __builtin_shufflevector(a, a, 0, 1, 2, 3) +
                 __builtin_shufflevector(a, a, 4, 5, 6, 7);
  const four c = b + __builtin_shufflevector(b, b, 2, 3, 0, 1);
  return c[0] + c[1];
}
/* Four trees side by side. */
LOOP void trees(REAL *restrict out, const REAL *s, int width) {
  eight a, b, c, d;
  add_halves(&a, s, width);
  add_halves(&b, s + width, width);
  add_halves(&c, s + 2 * width, width);
  add_halves(&d, s + 3 * width, width);
  const eight ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                   __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  const eight cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11) +
                   __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
  const eight all = __builtin_shufflevector(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13) +
                    __builtin_shufflevector(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15);
  const four sums = __builtin_shufflevector(all, all, 0, 2, 4, 6) +
                    __builtin_shufflevector(all, all, 1, 3, 5, 7);
  for (int i = 0; i < 4; i++)
    out[i] = sums[i];
}
#else
LOOP REAL tree(REAL *s, int width) {
  while (width /= 2)
    for (int i = 0; i < width; i++)
      s[i] += s[i + width];
  return s[0];
}
LOOP void trees(REAL *restrict out, REAL *s, int width) {
  for (int i = 0; i < 4; i++)
    out[i] = tree(s + i * width, width);
}
#endif

LOOP REAL sum_of(int64_t n, const REAL *a) {
  REAL s[PARTIAL_SUMS] = {0};
  const int width = sums_of(n);
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    LOOP_VECTOR
    for (int k = 0; k < width; k++)
      s[k] += a[i + k];
  }
  for (int k = 0; i + k < n; k++)
    s[k] += a[i + k];
  return tree(s, width);
}

LOOP void dot_sums(REAL *s, int64_t n, const REAL *a, const REAL *b) {
  const int width = sums_of(n);
  int64_t i = 0;
  for (int k = 0; k < width; k++)
    s[k] = 0;
  for (; i + width <= n; i += width) {
    LOOP_VECTOR
    for (int k = 0; k < width; k++)
      s[k] = real_fma(a[i + k], b[i + k], s[k]);
  }
  for (int k = 0; i + k < n; k++)
    s[k] = real_fma(a[i + k], b[i + k], s[k]);
}

LOOP REAL dot_of(int64_t n, const REAL *a, int64_t sa, const REAL *b,
                 int64_t sb) {
  if (!sa && !sb)
    return (REAL)n * *a * *b;
  if (!sa)
    return *a * sum_of(n, b);
  if (!sb)
    return *b * sum_of(n, a);
  REAL s[PARTIAL_SUMS];
  dot_sums(s, n, a, b);
  return tree(s, sums_of(n));
}

/* ---- of one item: e0, e1, e2 are the result's axes, s0, s1, s2 strides ----
 */

/* Sums of products of two along the last axis, of length `inner`. */
LOOP void item_dot(int64_t e0, int64_t e1, int64_t inner, REAL *out,
                   const REAL *x, int64_t x0, int64_t x1, int64_t x2,
                   const REAL *y, int64_t y0, int64_t y1, int64_t y2) {
  for (int64_t i0 = 0; i0 < e0; i0++) {
    int64_t i1 = 0;
    for (; x2 && y2 && i1 + 4 <= e1; i1 += 4, out += 4) {
      REAL s[4 * PARTIAL_SUMS];
      for (int64_t i = 0; i < 4; i++)
        dot_sums(s + i * sums_of(inner), inner, x + i0 * x0 + (i1 + i) * x1,
                 y + i0 * y0 + (i1 + i) * y1);
      trees(out, s, sums_of(inner));
    }
    for (; i1 < e1; i1++)
      *out++ =
          dot_of(inner, x + i0 * x0 + i1 * x1, x2, y + i0 * y0 + i1 * y1, y2);
  }
}

/* The sum, or maximum, of `length` numbers that lie `step` apart. */
LOOP void item_fold(int max, int64_t step, int64_t length, int64_t e0,
                    int64_t e1, int64_t e2, REAL *out, const REAL *x,
                    int64_t s0, int64_t s1, int64_t s2) {
  for (int64_t i0 = 0; i0 < e0; i0++)
    for (int64_t i1 = 0; i1 < e1; i1++)
      for (int64_t i2 = 0; i2 < e2; i2++) {
        const REAL *from = x + i0 * s0 + i1 * s1 + i2 * s2;
        REAL y = *from;
        if (!max && step == 1) {
          y = sum_of(length, from);
        } else {
          for (int64_t l = 1; l < length; l++)
            y = max ? real_max(y, from[l * step]) : y + from[l * step];
        }
        *out++ = y;
      }
}

/* Copies `size` elements to each row of the result from `at` on. */
LOOP void item_piece(int64_t at, int64_t size, int64_t e0, int64_t e1,
                     int64_t e2, REAL *out, const REAL *x, int64_t s0,
                     int64_t s1, int64_t s2) {
  for (int64_t i0 = 0; i0 < e0; i0++)
    for (int64_t i1 = 0; i1 < e1; i1++, out += e2)
      loop_copy(size, out + at, x + i0 * s0 + i1 * s1, s2, 0);
}

/* Any order of the axes. */
LOOP void item_order(int64_t e0, int64_t e1, int64_t e2, REAL *out,
                     const REAL *x, int64_t s0, int64_t s1, int64_t s2) {
  for (int64_t i0 = 0; i0 < e0; i0++)
    for (int64_t i1 = 0; i1 < e1; i1++)
      for (int64_t i2 = 0; i2 < e2; i2++)
        *out++ = x[i0 * s0 + i1 * s1 + i2 * s2];
}

/* out = A B for each batch: A has rows x inner, B inner x columns.  sums: B's
 * inner axis is its last, so that an element is a sum of products. */
LOOP void item_matmul(int sums, int64_t inner, int64_t batches, int64_t rows,
                      int64_t columns, REAL *out, const REAL *x, int64_t x0,
                      int64_t x_row, int64_t x_inner, const REAL *y, int64_t y0,
                      int64_t y_column, int64_t y_inner) {
  for (int64_t batch = 0; batch < batches; batch++, x += x0, y += y0)
    for (int64_t i = 0; i < rows; i++, out += columns) {
      const REAL *row = x + i * x_row;
      if (sums) {
        for (int64_t j = 0; j < columns; j++)
          out[j] = dot_of(inner, row, x_inner, y + j * y_column, y_inner);
        continue;
      }
      for (int64_t j = 0; j < columns; j++)
        out[j] = 0;
      for (int64_t k = 0; k < inner; k++)
        if (y_column <= 1)
          loop_mul_add(columns, out, row + k * x_inner, 0, y + k * y_inner,
                       y_column);
        else
          for (int64_t j = 0; j < columns; j++)
            out[j] = real_fma(row[k * x_inner], y[j * y_column + k * y_inner],
                              out[j]);
    }
}

/* ---- reductions over edges ----------------------------------------------- */

LOOP void add_row(int64_t n, REAL *restrict to, const REAL *x) {
  LOOP_VECTOR
  for (int64_t i = 0; i < n; i++)
    to[i] += x[i];
}
LOOP void max_row(int64_t n, REAL *restrict to, const REAL *x) {
  LOOP_VECTOR
  for (int64_t i = 0; i < n; i++)
    to[i] = real_max(x[i], to[i]);
}
LOOP void add_total(int64_t n, double *restrict to, const REAL *x) {
  LOOP_VECTOR
  for (int64_t i = 0; i < n; i++)
    to[i] += x[i];
}

/* This brings a sum of exp(x - maximum) to another maximum.  An infinite one
 * stands for 0; where it is -infinity there is no sum yet. */
LOOP REAL rescale(REAL maximum, REAL to) {
  return isinf(maximum) ? 1 : real_exp(maximum - to);
}

/* The largest of a row's scores in columns from `c` on, at most COLUMNS of
 * them, and how far each score is below it. */
enum { COLUMNS = 16 }; /* that registers hold */
LOOP void shift_scores(const body_block *b, int64_t r, int64_t c, int64_t size,
                       const REAL *x, const int64_t *index, int64_t item,
                       REAL *restrict max, REAL *restrict sum,
                       REAL *restrict shifted) {
  const int64_t n = size - c < COLUMNS ? size - c : COLUMNS;
  const int64_t begin = body_begin(b, r), end = body_end(b, r);
  REAL most[COLUMNS];
  loop_copy(n, most, max, 1, 0);
  for (int64_t k = begin; k < end; k++)
    max_row(n, most, x + (index ? index[k] : k) * item + c);
  for (int64_t i = 0; i < n; i++) {
    /* an infinite maximum would make differences of infinities */
    const REAL shift = isinf(most[i]) ? 0 : most[i];
    if (b->starts[r] < b->begin) /* a row's first edges have no sum before */
      sum[i] *= rescale(max[i], shift);
    max[i] = most[i];
    most[i] = shift;
  }
  for (int64_t k = begin; k < end; k++) {
    const REAL *score = x + (index ? index[k] : k) * item + c;
    LOOP_VECTOR
    for (int64_t i = 0; i < n; i++)
      shifted[k * size + c + i] = score[i] - most[i];
  }
}

/* Adds a block's edges to running maxima and sums of exp(x - maximum) of rows.
 * The scores of edge k are at x + (index ? index[k] : k) * item; scratch has
 * room for as many numbers as edges have. */
LOOP void reduce_scores(const body_block *b, int64_t size, const REAL *x,
                        const int64_t *index, int64_t item, REAL *restrict max,
                        REAL *restrict sum, REAL *restrict scratch) {
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < size; c += COLUMNS)
      shift_scores(b, r, c, size, x, index, item, max + r * size + c,
                   sum + r * size + c, scratch);
  LOOP_VECTOR
  for (int64_t i = 0; i < b->count * size; i++)
    scratch[i] = real_exp(scratch[i]);
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < size; c += COLUMNS) {
      const int64_t n = size - c < COLUMNS ? size - c : COLUMNS;
      REAL all[COLUMNS];
      loop_copy(n, all, sum + r * size + c, 1, 0);
      for (int64_t k = body_begin(b, r), end = body_end(b, r); k < end; k++)
        add_row(n, all, scratch + k * size + c);
      loop_copy(n, sum + r * size + c, all, 1, 0);
    }
}
