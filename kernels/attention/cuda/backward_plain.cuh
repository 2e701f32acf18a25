/* backward_plain.cuh - the walk of backward.cuh for any stride, width
 * and type: one warp a row and head, a feature a lane, sums in shared memory */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_PLAIN_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_PLAIN_CUH

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/terms.cuh"

namespace dfgnn {

template <int OP, typename T, bool COLUMNS> struct plain_row {
  using A = accumulator_t<T>;
  static constexpr bool GT = OP == DFGNN_OP_GT, AGNN = OP == DFGNN_OP_AGNN;
  static constexpr bool GAT = OP == DFGNN_OP_GAT, GATV2 = OP == DFGNN_OP_GATV2;
  static constexpr int STATS = GRAD_STATS(OP);

  const grad_params &p;
  int lane, head, dim, heads;
  A *sum[2], *att_total; /* the warp's, [dim] each */
  A beta, beta_total;
  uint64_t key;

  __device__ static A at(const char *row, const tensor_view &t, int f) {
    return widen(
        *reinterpret_cast<const T *>(row + int64_t(f) * t.feature_bytes));
  }
  __device__ const char *row_of(const tensor_view &t, int row) const {
    return static_cast<const char *>(t.data) + int64_t(row) * t.node_bytes +
           int64_t(head) * t.head_bytes;
  }
  __device__ A scalar(const void *array, int row) const {
    return static_cast<const A *>(array)[int64_t(row) * heads + head];
  }
  __device__ A att(int f) const {
    return widen(static_cast<const T *>(p.att)[int64_t(head) * dim + f]);
  }

  /* The tensors of a walk: the score's, then the value's; see own_count(). */
  __device__ const tensor_view &own_value() const {
    return COLUMNS ? (GT ? p.own[1] : p.own[0]) : (GAT ? p.own[0] : p.own[1]);
  }
  __device__ const tensor_view &far_value() const {
    return COLUMNS ? (GAT ? p.far[0] : p.far[1]) : (GT ? p.far[1] : p.far[0]);
  }

  __device__ void clear_row() const {
    for (int f = lane; f < dim; f += 32)
      sum[0][f] = sum[1][f] = A(0);
  }

  __device__ A norm_of(const char *row, const tensor_view &t) const {
    A square = A(0);
    for (int f = lane; f < dim; f += 32)
      square += at(row, t, f) * at(row, t, f);
    return inverse_norm(lanes_sum<32>(square));
  }

  __device__ void run(int unit) {
    const row_work w = row_of_unit(p.schedule, unit);
    const bool given = p.mode == GRAD_GIVEN;
    const int64_t first = w.indices - p.schedule.indices;
    const char *own = given && GT ? nullptr : row_of(p.own[0], w.row);
    const char *value = given ? nullptr : row_of(own_value(), w.row);
    A lse = A(0), delta = A(0), extra = A(0), inner = A(0);
    clear_row();
    if constexpr (AGNN)
      extra = norm_of(own, p.own[0]);
    if constexpr (GAT)
      extra = scalar(p.own_scalar, w.row);
    if (!COLUMNS && !given) {
      const char *out = row_of(p.out, w.row);
      for (int f = lane; f < dim; f += 32)
        delta += at(value, own_value(), f) * at(out, p.out, f);
      delta = lanes_sum<32>(delta) -
              grad_lse_of<A>(p.grad_lse, int64_t(w.row) * heads + head);
      lse = lse_of(scalar(p.lse, w.row));
      if (p.stats && lane == 0 &&
          (w.slot < 0 || w.slot >= p.schedule.extra_items)) {
        A *to =
            static_cast<A *>(p.stats) + (int64_t(w.row) * heads + head) * STATS;
        to[STAT_LSE] = lse;
        to[STAT_DELTA] = delta;
        if (STATS > STAT_EXTRA) {
          to[STAT_EXTRA] = extra;
          to[STAT_EXTRA + 1] = A(0); /* padding, loaded with the others */
        }
      }
    }
    for (int k = 0; k < w.degree; ++k)
      edge(w.indices[k], first + k, own, value, lse, delta, extra, inner);
    finish(w, own, extra, inner);
  }

  __device__ void edge(int j, int64_t number, const char *own,
                       const char *value, A lse, A delta, A extra, A &inner) {
    const bool given = p.mode == GRAD_GIVEN, edges = p.mode != EDGE_PLAIN;
    const char *x_row = row_of(p.far[0], j);
    const char *y_row = given ? nullptr : row_of(far_value(), j);
    A far = A(0), weight = A(0), score;
    if (!COLUMNS && (AGNN || GAT))
      far = scalar(p.far_scalar, j);
    if (COLUMNS) {
      const A *stats =
          static_cast<const A *>(p.stats) + (int64_t(j) * heads + head) * STATS;
      lse = stats[STAT_LSE];
      delta = stats[STAT_DELTA];
      far = STATS > STAT_EXTRA ? stats[STAT_EXTRA] : A(0);
    }
    if (given) {
      score = static_cast<const A *>(p.spill)[number * heads + head];
    } else {
      A product = A(0), dp = A(0);
      for (int f = lane; f < dim; f += 32) {
        if constexpr (GATV2) {
          const A t = at(own, p.own[0], f) + at(x_row, p.far[0], f);
          product += att(f) * (t * slope_at(t, A(p.slope)));
        } else if constexpr (!GAT) {
          product += at(own, p.own[0], f) * at(x_row, p.far[0], f);
        }
        dp += at(value, own_value(), f) * at(y_row, far_value(), f);
      }
      product = lanes_sum<32>(product);
      dp = lanes_sum<32>(dp);
      if (GT)
        product *= A(p.scale) * A(kLog2e);
      if (COLUMNS && edges)
        number = offsets_t{p.edge_of, p.schedule.offsets64}[number];
      A bias = A(0), kept = A(1);
      if (edges && p.mode & EDGE_BIAS)
        bias =
            static_cast<const A *>(p.bias)[number * heads + head] * A(kLog2e);
      if (edges && p.mode & EDGE_DROPOUT)
        kept = kept_of(p.dropout, A(p.dropout.keep), key, number, heads, head);
      const edge_terms<A> t = terms_of<OP, A>(
          A(p.slope), product, dp, lse, delta, extra, far, beta, bias, kept);
      weight = t.weight;
      score = t.score;
      if (AGNN || GAT)
        inner += t.score * t.inner;
      if (edges && p.mode & EDGE_BIAS && lane == 0 && p.grad_bias)
        static_cast<A *>(p.grad_bias)[number * heads + head] = t.score;
      if (edges && p.mode & EDGE_WRITE && lane == 0 && p.spill)
        static_cast<A *>(p.spill)[number * heads + head] =
            GAT ? t.score * t.inner : t.score;
    }
    if (AGNN)
      score *= COLUMNS ? far * extra * beta : far;
    if (weight != A(0) || score != A(0))
      add(own, x_row, y_row, weight, score);
  }

  __device__ void add(const char *own, const char *x_row, const char *y_row,
                      A weight, A score) {
    for (int f = lane; f < dim; f += 32) {
      const A x = at(x_row, p.far[0], f);
      if (COLUMNS)
        sum[GT ? 1 : 0][f] += weight * at(y_row, far_value(), f);
      if constexpr (GT || AGNN) {
        sum[0][f] += score * x;
      } else if constexpr (GATV2) {
        const A t = at(own, p.own[0], f) + x, slope = slope_at(t, A(p.slope));
        sum[0][f] += score * att(f) * slope;
        if (!COLUMNS)
          att_total[f] += score * (slope * t);
      }
    }
  }

  __device__ void finish(const row_work &w, const char *own, A extra, A inner) {
    if constexpr (AGNN) {
      if (p.mode == GRAD_GIVEN) {
        for (int f = lane; f < dim; f += 32)
          inner += at(own, p.own[0], f) * sum[0][f];
        inner = lanes_sum<32>(inner) * extra;
      }
      if (!COLUMNS)
        beta_total += inner;
      const A along = extra < inverse_norm(A(0))
                          ? inner * extra * (COLUMNS ? extra * beta : A(1))
                          : A(0);
      for (int f = lane; f < dim; f += 32) {
        /* A row without edges may hold a NaN. */
        const A off = along == A(0) ? A(0) : along * at(own, p.own[0], f);
        sum[0][f] = (sum[0][f] - off) * (COLUMNS ? A(1) : extra * beta);
      }
    }
    if constexpr (GAT) {
      if (lane == 0 && w.slot >= 0)
        static_cast<A *>(p.partial_scalar)[int64_t(w.slot) * heads + head] =
            inner;
      else if (lane == 0 && p.to_scalar) {
        A &to = static_cast<A *>(p.to_scalar)[int64_t(w.row) * heads + head];
        to = p.adds ? to + inner : inner;
      }
    }
    constexpr int to_tensors = GRAD_SUMS(OP, COLUMNS);
    for (int t = 0; t < to_tensors; ++t) {
      const A factor = GT && t == 0 ? A(p.scale) : A(1);
      if (w.slot >= 0) {
        A *to = static_cast<A *>(p.partial) +
                ((int64_t(w.slot) * to_tensors + t) * heads + head) * dim;
        for (int f = lane; f < dim; f += 32)
          to[f] = sum[t][f] * factor;
      } else if (p.to[t].data) {
        char *to = const_cast<char *>(row_of(p.to[t], w.row));
        for (int f = lane; f < dim; f += 32) {
          T &at =
              *reinterpret_cast<T *>(to + int64_t(f) * p.to[t].feature_bytes);
          const A before = p.adds ? widen(at) : A(0);
          at = narrow<T>(before + sum[t][f] * factor);
        }
      }
    }
  }
};

/* A warp has three vectors in shared memory, and takes every n-th unit. */
template <int OP, typename T, int COLUMNS>
__global__ void __launch_bounds__(128)
    gradient_plain(const __grid_constant__ grad_params p) {
  using row_t = plain_row<OP, T, COLUMNS != 0>;
  using A = typename row_t::A;
  extern __shared__ double plain_shared[];
  const int dim = p.dim, warps = blockDim.x / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  A *mine = reinterpret_cast<A *>(plain_shared) + 3 * warp * dim;
  row_t work{p,
             lane,
             static_cast<int>(blockIdx.y),
             dim,
             p.heads,
             {mine, mine + dim},
             mine + 2 * dim,
             A(1),
             A(0),
             0};
  if (row_t::AGNN && p.beta)
    work.beta = *static_cast<const A *>(p.beta);
  if (p.mode != GRAD_GIVEN && p.mode & EDGE_DROPOUT)
    work.key = dropout_key(p.dropout);
  for (int f = lane; f < dim; f += 32)
    work.att_total[f] = A(0);
  for (int64_t unit = int64_t(blockIdx.x) * warps + warp;
       unit < p.schedule.units; unit += int64_t(gridDim.x) * warps)
    work.run(static_cast<int>(unit));
  if (COLUMNS || !(row_t::AGNN || row_t::GATV2) || !p.totals)
    return;

  if (row_t::AGNN && lane == 0)
    work.att_total[0] = work.beta_total;
  __syncthreads();
  const A *first = reinterpret_cast<const A *>(plain_shared) + 2 * dim;
  const int count = row_t::AGNN ? 1 : dim;
  A *to = static_cast<A *>(p.totals) +
          (int64_t(blockIdx.x) * gridDim.y + blockIdx.y) * count;
  for (int f = threadIdx.x; f < count; f += blockDim.x) {
    A sum = A(0);
    for (int i = 0; i < warps; ++i)
      sum += first[3 * i * dim + f];
    to[f] = sum;
  }
}

} // namespace dfgnn

#endif
