/* message_extremes.cuh - extremes and moments of messages, in one pass */
#ifndef DFGNN_SUMS_CUDA_MESSAGE_EXTREMES_CUH
#define DFGNN_SUMS_CUDA_MESSAGE_EXTREMES_CUH

#include "kernels/sums/cuda/extremes.cuh"
#include "kernels/sums/cuda/message.cuh"

namespace dfgnn {

/* A reduction of messages: FIND is the WHAT of reduce_op; WHAT and FIELDS are
 * those of message_op. */
template <typename T, int VEC_, int L, int C, int FIND, int WHAT, int FIELDS,
          int W>
struct message_reduce_op : reduce_op<T, VEC_, L, C, FIND, W> {
  using base = reduce_op<T, VEC_, L, C, FIND, W>;
  using sender_t = message_op<T, VEC_, L, C, WHAT, FIELDS, W>;
  using A = accumulator_t<T>;
  static constexpr int VEC = VEC_;
  static constexpr int kSize = sender_t::kSize;
  static constexpr int kHeld =
      base::kHeld + (sender_t::GATED ? C * VEC * sizeof(A) / 4 : 0) + 8;
  static constexpr bool kNotes = true;
  using edge = typename sender_t::edge;
  using note = typename sender_t::note;
  using mark = typename sender_t::mark;
  struct state : base::state {
    A gate[sender_t::G][VEC];
    bool shifted;
  };

  const sender_t sender;

  DEVICE explicit message_reduce_op(const gather_params &params)
      : base(params), sender(params) {}

  DEVICE void begin(state &z, int row, int first) const {
    base::begin(z, row, first);
    sender.load_gates(z.gate, row);
    z.shifted = false;
  }
  DEVICE note look(const edge_ahead &e, bool live) const {
    return sender.look(e, live);
  }
  template <int U>
  DEVICE void pass(mark (&to)[U], const note &n, int from, int sides) const {
    sender.pass(to, n, from, sides);
  }
  template <bool WHOLE> DEVICE void load(edge &x, int j, bool live) const {
    sender.template load<WHOLE>(x, j, live);
  }
  template <bool WHOLE>
  DEVICE void fetch(edge &x, int j, const mark &n, bool live) const {
    sender.template fetch<WHOLE>(x, j, n, live);
  }
  DEVICE void start(state &, const edge &, int, int) const {}

  DEVICE static A message(const state &z, const edge &x,
                          const A (&part)[sender_t::PARTS][C][VEC], int c,
                          int i) {
    const A own[sender_t::O][VEC] = {};
    return sender_t::inputs_of(own, z.gate, x, part, c, i).message();
  }

  /* All lanes come here together, so that the first message of the first side
   * can shift all sides. */
  template <bool WHOLE, int U>
  DEVICE void step(state &z, const edge (&x)[U], const mark (&n)[U],
                   int position, int sides, int left) const {
    A part[U][sender_t::PARTS][C][VEC];
    sender.project(part, n);
    if constexpr ((FIND & REDUCE_MOMENTS) != 0) {
      if (!z.shifted) {
        unroll<C, VEC>([&](int c, int i) {
          base::shift_by(z.now[c][i], message(z, x[0], part[0], c, i), L,
                         this->p.schedule.group);
        });
        z.shifted = true;
      }
    }
    unroll<U>([&](int u) {
      if (WHOLE || u * sides < left) {
        unroll<C, VEC>([&](int c, int i) {
          base::take(z.now[c][i], message(z, x[u], part[u], c, i),
                     position + u * sides);
        });
      }
    });
  }
};

template <typename T, int VEC, int L, int C, int U, int FIND, int WHAT,
          int FIELDS, int W>
__global__ void __launch_bounds__(
    GATHER_PIECE_WARPS * 32,
    (gather_blocks<message_reduce_op<T, VEC, L, C, FIND, WHAT, FIELDS, W>, C,
                   U>()))
    reduce_messages(const __grid_constant__ gather_params p) {
  gather_rows<message_reduce_op<T, VEC, L, C, FIND, WHAT, FIELDS, W>, L, C, U>(
      p);
}

} // namespace dfgnn

#endif
