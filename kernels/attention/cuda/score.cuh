/* score.cuh - what a GPU knows of each operator: its score, by what factors an
 * edge adds to gradients, and how a row of gradients begins and ends
 *
 * Scores are in log2 units, s = score * log2(e), so that softmax is exp2.  With
 * P = exp(score - lse), the factor r of dropout and delta = <dO, O>:
 *
 *     weight = P r                     the factor of dO in grad_value
 *     score  = P (r dP - delta) = dS   the gradient of the score
 */
#ifndef DFGNN_ATTENTION_CUDA_SCORE_CUH
#define DFGNN_ATTENTION_CUDA_SCORE_CUH

#include "dfgnn_types.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

template <typename A> DEVICE A leaky(A t, A slope) {
  return t > A(0) ? t : t * slope;
}
template <typename A> DEVICE A slope_at(A t, A slope) {
  return t > A(0) ? A(1) : slope;
}

/* ---- operators ----------------------------------------------------------- */

/* What a score reads: KEY, a key row beside the value row of the source; QUERY,
 * the destination's row; HEAD, a vector of the head.  SUM: it is made of a sum
 * over features, of which add() adds one and term() is one as the formula has
 * it.  NORM: it divides by the rows' norms.
 *
 * from_sum() makes the score of that sum, own and far (scalars of both nodes,
 * see STAT_EXTRA of backward.h), and leaves in `inner` a factor of gradients:
 * AGNN's cosine, the slope of GAT's leaky ReLU.  SCALED: the sum comes
 * multiplied by scale and log2(e). */
struct plain_score {
  static constexpr bool KEY = false, SUM = false, QUERY = false, HEAD = false;
  static constexpr bool NORM = false, SCALED = false;
};

/* Adds the part of feature x of the gathered row to s; q: the destination's. */
struct dot_product {
  template <typename A> static DEVICE void add(A &s, A q, A x, A, A, A) {
    s += q * x;
  }
  template <typename A> static DEVICE A term(A q, A x, A, A) { return q * x; }
};

template <int OP> struct score_of;

/* scale <q, k> */
template <> struct score_of<DFGNN_OP_GT> : plain_score, dot_product {
  static constexpr bool KEY = true, SUM = true, QUERY = true, SCALED = true;
  template <typename A> static DEVICE A from_sum(A &, A sum, A, A, A, A) {
    return sum;
  }
};

/* beta <q, v> / (|q| |v|): own and far are the inverse norms. */
template <> struct score_of<DFGNN_OP_AGNN> : plain_score, dot_product {
  static constexpr bool SUM = true, QUERY = true, NORM = true;
  template <typename A>
  static DEVICE A from_sum(A &cosine, A sum, A own, A far, A beta, A) {
    cosine = sum * own * far;
    return cosine * beta * A(kLog2e);
  }
};

/* leaky(score_dst + score_src) */
template <> struct score_of<DFGNN_OP_GAT> : plain_score, dot_product {
  template <typename A>
  static DEVICE A from_sum(A &inner, A, A own, A far, A, A slope) {
    const A t = own + far;
    inner = slope_at(t, slope);
    return t * inner * A(kLog2e);
  }
};

/* <att, leaky(q + v)>: leaky(t) is max(t, slope t) for slopes up to 1, and
 * -max(-t, -slope t) above: then q and att come multiplied by `sign`, -1. */
template <> struct score_of<DFGNN_OP_GATV2> : plain_score {
  static constexpr bool SUM = true, QUERY = true, HEAD = true;
  template <typename A>
  static DEVICE void add(A &s, A q, A x, A att, A slope, A sign) {
    const A t = q + sign * x;
    s += att * max_of(t, t * slope);
  }
  template <typename A> static DEVICE A term(A q, A x, A att, A slope) {
    return att * leaky(q + x, slope);
  }
  template <typename A> static DEVICE A from_sum(A &, A sum, A, A, A, A) {
    return sum * A(kLog2e);
  }
};

/* The score of a sum of term(), where nothing was multiplied before. */
template <int OP, typename A>
DEVICE A whole_score(A sum, A own, A far, A beta, A slope, A scale) {
  A inner;
  if constexpr (score_of<OP>::SCALED)
    sum *= scale * A(kLog2e);
  return score_of<OP>::template from_sum<A>(inner, sum, own, far, beta, slope);
}

/* ---- tiles ---------------------------------------------------------------
 *
 * On tensor cores the sum of a score is a product of two rows.  score() makes
 * the score of it and a number of each row: own_number() and far_number() make
 * them of <x, x>, x the row of a NORM.  GT's own number is scale * log2(e), GAT
 * has its scalars. */
template <int OP> struct tile_score {
  static DEVICE float score(float sum, float own, float, float) {
    return sum * own;
  }
};
template <> struct tile_score<DFGNN_OP_AGNN> {
  static DEVICE float own_number(float x, float beta) {
    return inverse_norm(x) * beta * float(kLog2e);
  }
  static DEVICE float far_number(float x) { return inverse_norm(x); }
  static DEVICE float score(float sum, float own, float far, float) {
    return sum * (own * far);
  }
};
template <> struct tile_score<DFGNN_OP_GAT> {
  static DEVICE float score(float, float own, float far, float slope) {
    return leaky(own + far, slope) * float(kLog2e);
  }
};

/* ---- gradients ----------------------------------------------------------- */

template <typename A> struct edge_terms {
  A weight, score;
  A inner; /* as from_sum() leaves it, else 1 */
};

/* sum: over features, of the score.  lse and bias: in log2 units. */
template <int OP, typename A>
DEVICE edge_terms<A> terms_of(A slope, A sum, A dp, A lse, A delta, A own,
                              A far, A beta, A bias, A kept) {
  edge_terms<A> t;
  t.inner = A(1);
  const A s =
      score_of<OP>::template from_sum<A>(t.inner, sum, own, far, beta, slope);
  const A probability = exp2_fast(s + bias - lse);
  const bool dead = lse == A(INFINITY); /* all scores of the row are -inf */
  t.weight = dead ? A(0) : probability * kept;
  t.score = dead ? A(0) : probability * (kept * dp - delta);
  return t;
}

/* The log-sum-exp in log2 units; +inf if no edge of the row has a weight. */
template <typename A> DEVICE A lse_of(A lse) {
  return lse == -A(INFINITY) ? A(INFINITY) : lse * A(kLog2e);
}

/* Returns the gradient of lse, which is subtracted from delta; 0 if none is
 * given. */
template <typename A> DEVICE A grad_lse_of(const void *grad_lse, int64_t pair) {
  return grad_lse ? __ldg(static_cast<const A *>(grad_lse) + pair) : A(0);
}

/* ---- rows of gradients ---------------------------------------------------
 *
 * grad_of<> completes the walks of backward.cuh, whose names these are: r is
 * the walk, z the lane's state of a row, x a feature of the gathered row of the
 * score, own[0] the row of the walk's own node, sum[0] that row's gradient.
 *
 *   begin()        finds extra, a scalar of the own node
 *   scale()        completes own[0], once delta is known
 *   add_score()    adds feature i of vector c to the sum of the score, s
 *   edge_factor()  multiplies dS before the gathered row is added: far is a
 *                  scalar of the far node
 *   given()        the same for a dS that was read, which it adds to inner
 *   spilled()      what is written of dS for another walk
 *   add()          adds that feature to the row's gradient
 *   finish()       completes it; inner is the sum of dS times the inner factor
 *                  of from_sum() */
struct plain_grad {
  template <class R, class Z> static DEVICE void begin(const R &, Z &) {}
  template <class R, class Z> static DEVICE void scale(const R &, Z &) {}
  template <class A, class R, class Z>
  static DEVICE A edge_factor(const R &, const Z &, int, A score, A) {
    return score;
  }
  template <class A, class R, class Z>
  static DEVICE A given(const R &, Z &, int, A score, A) {
    return score;
  }
  template <class A> static DEVICE A spilled(const edge_terms<A> &t) {
    return t.score;
  }
};

/* The gradient of <own, x> by the own row is x. */
struct product_grad : plain_grad {
  template <class R, class Z, class A, class X>
  static DEVICE void add_score(const R &, A &s, const Z &z, int c, int i, A x,
                               X &) {
    s += z.own[0][c][i] * x;
  }
  template <class R, class Z, class A>
  static DEVICE void add(const R &, Z &z, A score, A x, int c, int i) {
    z.sum[0][c][i] += score * x;
  }
};

template <int OP> struct grad_of;

template <> struct grad_of<DFGNN_OP_GT> : product_grad {
  template <class R, class Z> static DEVICE void scale(const R &r, Z &z) {
    using A = typename R::A;
    if constexpr (!R::GIVEN)
      unroll<R::C, R::VEC>(
          [&](int c, int i) { z.own[0][c][i] *= A(r.p.scale) * A(kLog2e); });
  }
  template <class R, class Z> static DEVICE void finish(const R &r, Z &z) {
    using A = typename R::A;
    unroll<R::C, R::VEC>([&](int c, int i) { z.sum[0][c][i] *= A(r.p.scale); });
  }
};

/* extra = 1 / |own|, at most inverse_norm(0). */
template <> struct grad_of<DFGNN_OP_AGNN> : product_grad {
  template <class R, class Z> static DEVICE void begin(const R &r, Z &z) {
    using A = typename R::A;
    unroll<R::S>([&](int h) { z.extra[h] = A(0); });
    unroll<R::C, R::VEC>([&](int c, int i) {
      z.extra[R::map::state(c)] += z.own[0][c][i] * z.own[0][c][i];
    });
    r.reduce(z.extra);
    unroll<R::S>([&](int h) { z.extra[h] = inverse_norm(z.extra[h]); });
  }
  template <class A, class R, class Z>
  static DEVICE A edge_factor(const R &r, const Z &z, int h, A score, A far) {
    return score * (R::COLUMNS ? far * z.extra[h] * r.beta : far);
  }
  template <class A, class R, class Z>
  static DEVICE A given(const R &, Z &, int, A score, A far) {
    return score * far;
  }
  /* The gradient of x / |x| leaves out the part along x.  A norm that
   * inverse_norm() raised is a constant, so that nothing is left out. */
  template <class R, class Z> static DEVICE void finish(const R &r, Z &z) {
    using A = typename R::A;
    if constexpr (R::GIVEN) {
      unroll<R::C, R::VEC>([&](int c, int i) {
        z.inner[R::map::state(c)] += z.own[0][c][i] * z.sum[0][c][i];
      });
      r.reduce(z.inner);
      unroll<R::S>([&](int h) { z.inner[h] *= z.extra[h]; });
    }
    A along[R::S];
    unroll<R::S>([&](int h) {
      if constexpr (!R::COLUMNS)
        z.beta_total[h] += z.inner[h];
      const bool raised = !(z.extra[h] < inverse_norm(A(0)));
      along[h] = raised ? A(0) : z.inner[h] * z.extra[h];
      if constexpr (R::COLUMNS)
        along[h] *= z.extra[h] * r.beta;
    });
    unroll<R::C, R::VEC>([&](int c, int i) {
      const int h = R::map::state(c);
      A &sum = z.sum[0][c][i];
      if (along[h] != A(0)) /* a row without edges may hold a NaN */
        sum -= along[h] * z.own[0][c][i];
      if constexpr (!R::COLUMNS)
        sum *= z.extra[h] * r.beta;
    });
  }
};

/* There is no row, but a scalar: its gradient is the sum of dS times leaky
 * ReLU's slope. */
template <> struct grad_of<DFGNN_OP_GAT> : plain_grad {
  template <class R, class Z, class A, class X>
  static DEVICE void add_score(const R &, A &, const Z &, int, int, A, X &) {}
  template <class A> static DEVICE A spilled(const edge_terms<A> &t) {
    return t.score * t.inner;
  }
  template <class R, class Z, class A>
  static DEVICE void add(const R &, Z &, A, A, int, int) {}
  template <class R, class Z> static DEVICE void finish(const R &, Z &) {}
};

/* raised: the sum of dS where leaky's slope is 1. */
template <> struct grad_of<DFGNN_OP_GATV2> : plain_grad {
  template <class R, class A>
  static DEVICE A leaky_sum(const R &r, A own, A x) {
    const A t = own + x;
    return R::ANY_SLOPE ? t * slope_at(t, r.slope) : max_of(t, t * r.slope);
  }
  template <class R, class Z> static DEVICE void begin(const R &, Z &z) {
    unroll<R::C, R::VEC>(
        [&](int c, int i) { z.raised[c][i] = typename R::A(0); });
  }
  /* leaky(own + x) takes the place of the gathered x, if the walk KEEPS it. */
  template <class R, class Z, class A, class X>
  static DEVICE void add_score(const R &r, A &s, const Z &z, int c, int i, A x,
                               X &gathered) {
    const A t = leaky_sum(r, z.own[0][c][i], x);
    s += r.att[c][i] * t;
    if constexpr (R::KEEPS)
      gathered = t;
  }
  template <class A, class R, class Z>
  static DEVICE A given(const R &, Z &z, int h, A score, A) {
    z.inner[h] += score;
    return score;
  }
  template <class R, class Z, class A>
  static DEVICE void add(const R &r, Z &z, A score, A x, int c, int i) {
    const A t = R::KEEPS ? x : leaky_sum(r, z.own[0][c][i], x);
    if ((R::ANY_SLOPE ? z.own[0][c][i] + x : t) > A(0))
      z.raised[c][i] += score;
    if constexpr (!R::COLUMNS)
      z.att_total[c][i] += score * t;
  }
  template <class R, class Z> static DEVICE void finish(const R &r, Z &z) {
    unroll<R::C, R::VEC>([&](int c, int i) {
      const auto raised = z.raised[c][i], all = z.inner[R::map::state(c)];
      z.sum[0][c][i] += r.att[c][i] * (raised + r.slope * (all - raised));
    });
  }
};

} // namespace dfgnn

#endif
