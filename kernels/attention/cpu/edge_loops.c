/* edge_loops.c - the inner loops of edges.h for one instruction set and
 * storage type */
#include "kernels/attention/cpu/edges.h"
#include "kernels/common/cpu_vector.h"

CPU_INLINE scalar element(const char *p) {
#if CPU_DTYPE == CPU_F16
  return dfgnn__f16_to_float(*(const storage *)p);
#elif CPU_DTYPE == CPU_BF16
  return dfgnn__bf16_to_float(*(const storage *)p);
#else
  return *(const storage *)p;
#endif
}

CPU_INLINE storage element_of(scalar x) {
#if CPU_DTYPE == CPU_F16
  return dfgnn__f16_from_float(x);
#elif CPU_DTYPE == CPU_BF16
  return dfgnn__bf16_from_float(x);
#else
  return x;
#endif
}

static CPU_TARGET void load(void *to, const char *from, int64_t stride,
                            int64_t count) {
  scalar *x = to;
  int64_t i = 0;
  if (stride == (int64_t)sizeof(storage)) {
    for (; i + VECTOR <= count; i += VECTOR)
      s_store(x + i, v_load((const storage *)from + i));
    if (i < count) {
      tail t = v_tail(count - i);
      s_store_tail(x + i, v_load_tail((const storage *)from + i, t), t);
    }
    return;
  }
  for (; i < count; i++)
    x[i] = element(from + i * stride);
}

static CPU_TARGET void store(char *to, int64_t stride, const void *from,
                             int64_t count) {
  const scalar *x = from;
  int64_t i = 0;
  if (stride == (int64_t)sizeof(storage)) {
    for (; i + VECTOR <= count; i += VECTOR)
      v_store((storage *)to + i, s_load(x + i));
    if (i < count) {
      tail t = v_tail(count - i);
      v_store_tail((storage *)to + i, s_load_tail(x + i, t), t);
    }
    return;
  }
  for (; i < count; i++)
    *(storage *)(to + i * stride) = element_of(x[i]);
}

/* ---- products of matrices ------------------------------------------------ */

/* Computes `rows` rows by `width` vectors of to; the last is cut to t. */
CPU_INLINE void block(const dfgnn_cpu_matrices *m, int64_t r, int64_t c, tail t,
                      const int rows, const int width) {
  const scalar *a = (const scalar *)m->a + r * m->a_row;
  const scalar *b = (const scalar *)m->b + c;
  scalar *to = (scalar *)m->to + r * m->to_row + c;
  vec sum[8];
  CPU_EACH(i, rows * width) { sum[i] = v_zero(); }
  for (int64_t k = 0; k < m->inner; k++, a += m->a_inner, b += m->b_row) {
    vec y[2];
    CPU_EACH(i, width) {
      y[i] = i == width - 1 ? s_load_tail(b + i * VECTOR, t)
                            : s_load(b + i * VECTOR);
    }
    CPU_EACH(u, rows) {
      vec x = v_set(a[u * m->a_row]);
      CPU_EACH(i, width) {
        sum[u * width + i] = v_fma(x, y[i], sum[u * width + i]);
      }
    }
  }
  CPU_EACH(u, rows) {
    CPU_EACH(i, width) {
      scalar *at = to + u * m->to_row + i * VECTOR;
      vec x = sum[u * width + i];
      if (i == width - 1) {
        if (m->add)
          x = v_add(x, s_load_tail(at, t));
        s_store_tail(at, x, t);
      } else {
        if (m->add)
          x = v_add(x, s_load(at));
        s_store(at, x);
      }
    }
  }
}

static CPU_TARGET void multiply(const dfgnn_cpu_matrices *m) {
  for (int64_t c = 0; c < m->columns; c += 2 * VECTOR) {
    int64_t left = m->columns - c, r = 0;
    int wide = left > VECTOR;
    int64_t last = wide ? left - VECTOR : left;
    tail t = v_tail(last < VECTOR ? last : VECTOR);
    for (; r + 4 <= m->rows; r += 4)
      if (wide)
        block(m, r, c, t, 4, 2);
      else
        block(m, r, c, t, 4, 1);
    for (; r < m->rows; r++)
      if (wide)
        block(m, r, c, t, 1, 2);
      else
        block(m, r, c, t, 1, 1);
  }
}

CPU_INLINE vec dot(const scalar *a, const scalar *b, int64_t count) {
  vec sum = v_zero();
  int64_t k = 0;
  for (; k + VECTOR <= count; k += VECTOR)
    sum = v_fma(s_load(a + k), s_load(b + k), sum);
  if (k < count) {
    tail t = v_tail(count - k);
    sum = v_fma(s_load_tail(a + k, t), s_load_tail(b + k, t), sum);
  }
  return sum;
}

static CPU_TARGET void products(const dfgnn_cpu_matrices *m) {
  for (int64_t r = 0; r < m->rows; r++) {
    const scalar *a = (const scalar *)m->a + r * m->a_row;
    const scalar *b = m->b;
    scalar *to = (scalar *)m->to + r * m->to_row, sums[SUMS];
    int64_t c = 0;
    for (; c + SUMS <= m->columns; c += SUMS) {
      vec x[SUMS];
      CPU_EACH(u, SUMS) { x[u] = dot(a, b + (c + u) * m->b_row, m->inner); }
      v_sums(sums, x);
      CPU_EACH(u, SUMS) { to[c + u] = m->add ? to[c + u] + sums[u] : sums[u]; }
    }
    for (; c < m->columns; c++) {
      scalar x = v_sum(dot(a, b + c * m->b_row, m->inner));
      to[c] = m->add ? to[c] + x : x;
    }
  }
}

/* ---- short rows ---------------------------------------------------------- */

#include "kernels/attention/cpu/edge_short.h"

/* ---- GATv2 --------------------------------------------------------------- */

static CPU_TARGET void add(void *to, const void *x, const void *y,
                           const void *z, int64_t count) {
  const scalar *a = x, *b = y, *c = z;
  scalar *sum = to;
  int64_t i = 0;
  for (; i + VECTOR <= count; i += VECTOR)
    s_store(sum + i, v_add(v_add(s_load(a + i), s_load(b + i)), s_load(c + i)));
  for (; i < count; i++)
    sum[i] = a[i] + b[i] + c[i];
}

static CPU_TARGET void scores(void *to, int64_t stride, const void *z,
                              const void *att, int64_t heads, int64_t dim,
                              double slope) {
  vec below = v_set((scalar)slope);
  for (int64_t h = 0; h < heads; h++) {
    const scalar *x = (const scalar *)z + h * dim;
    const scalar *w = (const scalar *)att + h * dim;
    vec sum = v_zero();
    int64_t d = 0;
    for (; d + VECTOR <= dim; d += VECTOR)
      sum = v_fma(s_load(w + d), v_leaky(s_load(x + d), below), sum);
    if (d < dim) {
      tail t = v_tail(dim - d);
      sum = v_fma(s_load_tail(w + d, t), v_leaky(s_load_tail(x + d, t), below),
                  sum);
    }
    ((scalar *)to)[h * stride] = v_sum(sum);
  }
}

/* slopes() for one vector. */
CPU_INLINE vec step(vec x, vec w, vec above, vec below, vec *along) {
  vec g = v_step(x, above, below);
  *along = v_mul(g, x);
  return v_mul(w, g);
}

static CPU_TARGET void slopes(void *z, const void *gradients, int64_t stride,
                              const void *att, int64_t heads, int64_t dim,
                              double slope, void *sum, void *att_sum) {
  vec along;
  for (int64_t h = 0; h < heads; h++) {
    scalar ds = ((const scalar *)gradients)[h * stride];
    vec above = v_set(ds), below = v_set(ds * (scalar)slope);
    const scalar *w = (const scalar *)att + h * dim;
    scalar *x = (scalar *)z + h * dim, *s = (scalar *)sum + h * dim;
    scalar *a = att_sum ? (scalar *)att_sum + h * dim : NULL;
    int64_t d = 0;
    for (; d + VECTOR <= dim; d += VECTOR) {
      vec g = step(s_load(x + d), s_load(w + d), above, below, &along);
      s_store(x + d, g);
      s_store(s + d, v_add(s_load(s + d), g));
      if (a)
        s_store(a + d, v_add(s_load(a + d), along));
    }
    if (d < dim) {
      tail t = v_tail(dim - d);
      vec g = step(s_load_tail(x + d, t), s_load_tail(w + d, t), above, below,
                   &along);
      s_store_tail(x + d, g, t);
      s_store_tail(s + d, v_add(s_load_tail(s + d, t), g), t);
      if (a)
        s_store_tail(a + d, v_add(s_load_tail(a + d, t), along), t);
    }
  }
}

extern const dfgnn_cpu_edge_loops CPU_TABLE_OF(dfgnn__cpu_edge);
const dfgnn_cpu_edge_loops CPU_TABLE_OF(dfgnn__cpu_edge) = {
    .load = load,
    .store = store,
    .multiply = multiply,
    .products = products,
    .attend_short = attend_short,
    .grade_short = grade_short,
    .add = add,
    .scores = scores,
    .slopes = slopes,
};
