/* activation.h - activations of vectors, and their derivatives */
#ifndef DFGNN_KERNELS_MLP_CPU_ACTIVATION_H
#define DFGNN_KERNELS_MLP_CPU_ACTIVATION_H

#include "dfgnn_mlp.h"
#include "kernels/common/cpu_vector.h"

typedef struct activated {
  vec value, slope; /* slope: the derivative */
} activated;

CPU_INLINE vec v_minus(vec a, vec b) { return v_fma(b, v_set(-1), a); }
CPU_INLINE vec v_negative(vec x) { return v_mul(x, v_set(-1)); }
CPU_INLINE vec v_size(vec x) { return v_max(v_negative(x), x); }

/* 1 / (1 + e^-x) */
CPU_INLINE vec v_sigmoid(vec x) {
  const vec t = v_exp(v_negative(v_size(x)));
  return v_div(v_step(x, v_set(1), t), v_add(v_set(1), t));
}

/* log(1 + t) of 0 <= t <= 1, as 2 artanh(t / (2 + t)). */
CPU_INLINE vec v_log1p(vec t) {
  const int terms = CPU_DTYPE == CPU_F64 ? 17 : 8;
  const vec s = v_div(t, v_add(v_set(2), t)), square = v_mul(s, s);
  vec y = v_set((scalar)2 / (2 * terms + 1));
  for (int k = terms - 1; k >= 0; k--)
    y = v_fma(y, square, v_set((scalar)2 / (2 * k + 1)));
  return v_mul(y, s);
}

/* Phi(-|x|), where `bell` is e^(-x^2 / 2).  The polynomial is that of Numerical
 * Recipes (erfcc), of relative error 1.2e-7. */
CPU_INLINE vec v_lower_tail(vec x, vec bell) {
#if CPU_DTYPE == CPU_F64
  double lane[VECTOR];
  (void)bell;
  s_store(lane, x);
  for (int i = 0; i < VECTOR; i++)
    lane[i] = 0.5 * erfc(fabs(lane[i]) * M_SQRT1_2);
  return s_load(lane);
#else
  static const float c[] = {-0.82215223f, 1.48851587f,  -1.13520398f,
                            0.27886807f,  -0.18628806f, 0.09678418f,
                            0.37409196f,  1.00002368f,  -1.26551223f};
  const vec z = v_mul(v_size(x), v_set((float)M_SQRT1_2));
  const vec t = v_div(v_set(1), v_fma(z, v_set(0.5f), v_set(1)));
  vec y = v_set(0.17087277f);
  CPU_EACH(i, 9) y = v_fma(y, t, v_set(c[i]));
  return v_mul(v_mul(v_mul(t, v_set(0.5f)), bell), v_exp(y));
#endif
}

CPU_INLINE activated act_gelu(vec x) {
  const vec bell = v_exp(v_mul(v_mul(x, x), v_set((scalar)-0.5)));
  const vec low = v_lower_tail(x, bell);
  const vec phi = v_step(x, v_minus(v_set(1), low), low);
  /* 1 / sqrt(2 pi) */
  const vec density = v_mul(bell, v_set((scalar)0.39894228040143268));
  return (activated){v_mul(x, phi), v_fma(x, density, phi)};
}

CPU_INLINE activated act_gelu_tanh(vec x) {
  const scalar root = (scalar)1.5957691216057308; /* 2 sqrt(2 / pi) */
  const scalar cube = (scalar)0.044715;
  const vec square = v_mul(x, x);
  const vec inner =
      v_mul(v_mul(x, v_set(root)), v_fma(square, v_set(cube), v_set(1)));
  const vec s = v_sigmoid(inner), t = v_sigmoid(v_negative(inner));
  const vec steep =
      v_mul(v_set(root), v_fma(square, v_set(3 * cube), v_set(1)));
  const vec y = v_mul(x, s);
  return (activated){y, v_fma(v_mul(y, t), steep, s)};
}

CPU_INLINE activated act_silu(vec x) {
  const vec s = v_sigmoid(x), t = v_sigmoid(v_negative(x));
  const vec y = v_mul(x, s);
  return (activated){y, v_fma(y, t, s)};
}

CPU_INLINE activated act_elu(vec x, vec slope) {
  const vec t = v_exp(v_negative(v_size(x)));
  const vec below = v_mul(slope, v_minus(t, v_set(1)));
  return (activated){v_step(x, x, below), v_step(x, v_set(1), v_mul(slope, t))};
}

CPU_INLINE activated act_tanh(vec x) {
  const vec t = v_exp(v_mul(v_size(x), v_set(-2)));
  const vec y = v_div(v_minus(v_set(1), t), v_add(v_set(1), t));
  return (activated){v_mul(y, v_step(x, v_set(1), v_set(-1))),
                     v_minus(v_set(1), v_mul(y, y))};
}

CPU_INLINE activated act_sigmoid(vec x) {
  const vec s = v_sigmoid(x);
  return (activated){s, v_mul(s, v_sigmoid(v_negative(x)))};
}

CPU_INLINE activated act_softplus(vec x) {
  const vec t = v_exp(v_negative(v_size(x)));
  return (activated){v_add(v_max(v_zero(), x), v_log1p(t)), v_sigmoid(x)};
}

CPU_INLINE activated activate_as(int kind, vec x, vec slope) {
  switch (kind) {
  case DFGNN_ACTIVATION_RELU:
    return (activated){v_max(v_zero(), x), v_step(x, v_set(1), v_zero())};
  case DFGNN_ACTIVATION_SILU:
    return act_silu(x);
  case DFGNN_ACTIVATION_GELU:
    return act_gelu(x);
  case DFGNN_ACTIVATION_GELU_TANH:
    return act_gelu_tanh(x);
  case DFGNN_ACTIVATION_ELU:
    return act_elu(x, slope);
  case DFGNN_ACTIVATION_LEAKY_RELU:
    return (activated){v_leaky(x, slope), v_step(x, v_set(1), slope)};
  case DFGNN_ACTIVATION_TANH:
    return act_tanh(x);
  case DFGNN_ACTIVATION_SIGMOID:
    return act_sigmoid(x);
  case DFGNN_ACTIVATION_SOFTPLUS:
    return act_softplus(x);
  default:
    return (activated){x, v_set(1)};
  }
}

/* to = f(from), and slopes = f'(from) if not NULL, of n numbers, which are
 * whole vectors; both may be `from`, if not the same. */
CPU_INLINE void activate_loop(int kind, int64_t n, scalar *to, scalar *slopes,
                              const scalar *from, scalar slope) {
  const vec slope_ = v_set(slope);
  for (int64_t i = 0; i < n; i += VECTOR) {
    const activated y = activate_as(kind, s_load(from + i), slope_);
    s_store(to + i, y.value);
    if (slopes)
      s_store(slopes + i, y.slope);
  }
}

#define ACTIVATE(kind)                                                         \
  case kind:                                                                   \
    activate_loop(kind, n, to, slopes, from, slope);                           \
    break

CPU_TARGET static void activate(dfgnn_activation kind, int64_t n, scalar *to,
                                scalar *slopes, const scalar *from,
                                scalar slope) {
  switch (kind) {
    ACTIVATE(DFGNN_ACTIVATION_RELU);
    ACTIVATE(DFGNN_ACTIVATION_SILU);
    ACTIVATE(DFGNN_ACTIVATION_GELU);
    ACTIVATE(DFGNN_ACTIVATION_GELU_TANH);
    ACTIVATE(DFGNN_ACTIVATION_ELU);
    ACTIVATE(DFGNN_ACTIVATION_LEAKY_RELU);
    ACTIVATE(DFGNN_ACTIVATION_TANH);
    ACTIVATE(DFGNN_ACTIVATION_SIGMOID);
    ACTIVATE(DFGNN_ACTIVATION_SOFTPLUS);
  default:
    activate_loop(DFGNN_ACTIVATION_NONE, n, to, slopes, from, slope);
  }
}

#endif
