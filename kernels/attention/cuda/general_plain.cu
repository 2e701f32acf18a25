/* general_plain.cu - general() for any stride, width and type: one warp a
 * row and head, a feature a lane, sums in shared memory */
#include "kernels/attention/cuda/general.h"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

template <int OP, typename T> struct plain_general {
  using A = accumulator_t<T>;
  static constexpr bool GT = OP == DFGNN_OP_GT, AGNN = OP == DFGNN_OP_AGNN;
  static constexpr bool GAT = OP == DFGNN_OP_GAT, GATV2 = OP == DFGNN_OP_GATV2;

  const general_params &p;
  A *sum; /* of the warp, [dim] */
  int lane, head, dim, heads;
  A factor; /* of the score's sum over features */
  uint64_t key;

  __device__ static A at(const char *row, const tensor_view &t, int f) {
    return widen(
        *reinterpret_cast<const T *>(row + int64_t(f) * t.feature_bytes));
  }
  __device__ const char *row_of(const tensor_view &t, int row) const {
    return static_cast<const char *>(t.data) + int64_t(row) * t.node_bytes +
           int64_t(head) * t.head_bytes;
  }

  __device__ A score(const char *query, int row, int j, int64_t edge) const {
    A s = A(0), far = A(0);
    const char *x_row = row_of(p.far[0], j);
    if (AGNN || GAT)
      far = static_cast<const A *>(p.far_scalar)[int64_t(j) * heads + head];
    if constexpr (GAT) {
      const A t =
          static_cast<const A *>(p.score_dst)[int64_t(row) * heads + head] +
          far;
      s = (t > A(0) ? t : t * A(p.slope)) * A(kLog2e);
    } else {
      for (int f = lane; f < dim; f += 32) {
        const A q = at(query, p.query, f), x = at(x_row, p.far[0], f);
        if constexpr (GATV2) {
          const A att =
              widen(static_cast<const T *>(p.att)[int64_t(head) * dim + f]);
          s += att * (q + x > A(0) ? q + x : (q + x) * A(p.slope));
        } else {
          s += q * x;
        }
      }
      s = lanes_sum<32>(s) * factor * (AGNN ? far : A(1));
    }
    const int64_t number = edge * heads + head;
    if (p.bias)
      s += static_cast<const A *>(p.bias)[number] * A(kLog2e);
    if (p.weights && lane == 0)
      static_cast<A *>(p.weights)[number] = s;
    return s;
  }

  __device__ void run(int unit) {
    const row_work w = row_of_unit(p.schedule, unit);
    const int64_t first = w.indices - p.schedule.indices;
    const char *query = GAT ? nullptr : row_of(p.query, w.row);
    A m = lowest<A>(), l = A(0);
    factor = GT ? A(p.scale) * A(kLog2e) : A(kLog2e);
    if constexpr (AGNN) {
      A square = A(0);
      for (int f = lane; f < dim; f += 32)
        square += at(query, p.query, f) * at(query, p.query, f);
      factor *= inverse_norm(lanes_sum<32>(square)) *
                (p.beta ? *static_cast<const A *>(p.beta) : A(1));
    }
    for (int f = lane; f < dim; f += 32)
      sum[f] = A(0);
    for (int k = 0; k < w.degree; ++k) {
      const int j = w.indices[k];
      const A s = score(query, w.row, j, first + k);
      const A top = max_of(m, s), scale = exp2_fast(m - top);
      const A weight = exp2_fast(s - top);
      const A kept = p.dropout.on ? kept_of(p.dropout, A(p.dropout.keep), key,
                                            first + k, heads, head)
                                  : A(1);
      const tensor_view &value = p.far[GT ? 1 : 0];
      const char *row = row_of(value, j);
      m = top;
      l = l * scale + weight;
      for (int f = lane; f < dim; f += 32) {
        sum[f] *= scale;
        if (kept != A(0)) /* 0 times infinity is none */
          sum[f] += weight * kept * at(row, value, f);
      }
    }
    store(w, m, l);
  }

  __device__ void store(const row_work &w, A m, A l) const {
    if (w.slot >= 0) {
      const int64_t slot = int64_t(w.slot) * heads + head;
      A *to = static_cast<A *>(p.partial) + slot * dim;
      for (int f = lane; f < dim; f += 32)
        to[f] = sum[f];
      if (lane == 0) {
        static_cast<A *>(p.partial_state)[slot * 2] = m;
        static_cast<A *>(p.partial_state)[slot * 2 + 1] = l;
      }
      return;
    }
    const A inverse = l == A(0) ? A(0) : A(1) / l;
    char *to = const_cast<char *>(row_of(p.out, w.row));
    for (int f = lane; f < dim; f += 32)
      *reinterpret_cast<T *>(to + int64_t(f) * p.out.feature_bytes) =
          narrow<T>(sum[f] * inverse);
    if (p.lse && lane == 0)
      static_cast<A *>(p.lse)[int64_t(w.row) * heads + head] =
          l == A(0) ? -A(INFINITY) : (m + log2_of(l)) * A(kLn2);
  }
};

/* Shared memory: a vector a warp. */
template <int OP, typename T>
__global__ void __launch_bounds__(128)
    general_plain(const __grid_constant__ general_params p) {
  using row_t = plain_general<OP, T>;
  using A = typename row_t::A;
  extern __shared__ double plain_shared[];
  const int dim = p.layout.dim, warp = threadIdx.x / 32;
  const int unit = blockIdx.x * (blockDim.x / 32) + warp;
  if (unit >= p.schedule.units)
    return;
  row_t work{p,
             reinterpret_cast<A *>(plain_shared) + warp * dim,
             static_cast<int>(threadIdx.x & 31),
             static_cast<int>(blockIdx.y),
             dim,
             p.layout.heads,
             A(1),
             p.dropout.on ? dropout_key(p.dropout) : 0};
  work.run(unit);
}

template <typename T> static const void *find_op(int op) {
  return op == DFGNN_OP_GT
             ? reinterpret_cast<const void *>(general_plain<DFGNN_OP_GT, T>)
         : op == DFGNN_OP_AGNN
             ? reinterpret_cast<const void *>(general_plain<DFGNN_OP_AGNN, T>)
         : op == DFGNN_OP_GAT
             ? reinterpret_cast<const void *>(general_plain<DFGNN_OP_GAT, T>)
             : reinterpret_cast<const void *>(general_plain<DFGNN_OP_GATV2, T>);
}

const void *general_plain_kernel(int op, dfgnn_dtype dtype) {
  return dtype == DFGNN_F64    ? find_op<double>(op)
         : dtype == DFGNN_F16  ? find_op<__half>(op)
         : dtype == DFGNN_BF16 ? find_op<__nv_bfloat16>(op)
                               : find_op<float>(op);
}

} // namespace dfgnn
