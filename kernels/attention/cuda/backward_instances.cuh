/* backward_instances.cuh - the instances of gradient() of one operator and
 * storage type; a file a pair, so that they compile side by side */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_INSTANCES_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_INSTANCES_CUH

#include "kernels/attention/cuda/backward.cuh"

namespace dfgnn {

/* Lanes an edge, vectors a lane, edges in flight, several heads a warp. */
#define DFGNN_GRAD_WIDE(X)                                                     \
  X(32, 1, 2, 0)                                                               \
  X(32, 1, 4, 0)                                                               \
  X(16, 2, 1, 0)                                                               \
  X(16, 2, 2, 0)                                                               \
  X(8, 4, 1, 0)                                                                \
  X(16, 1, 2, 0)                                                               \
  X(8, 2, 1, 0)                                                                \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 2, 0)                                                                \
  X(4, 2, 1, 0)                                                                \
  X(4, 1, 2, 0)                                                                \
  X(32, 2, 1, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(32, 8, 1, 0)                                                               \
  X(32, 1, 2, 1)                                                               \
  X(16, 2, 1, 1)                                                               \
  X(16, 1, 2, 1)                                                               \
  X(8, 2, 1, 1)

/* Of 16-bit types, of which a vector holds twice as many. */
#define DFGNN_GRAD_HALF(X)                                                     \
  X(16, 1, 2, 0)                                                               \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 1, 0)                                                                \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 2, 0)                                                                \
  X(4, 2, 1, 0)                                                                \
  X(4, 1, 2, 0)                                                                \
  X(32, 1, 2, 0)                                                               \
  X(32, 2, 1, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(16, 1, 2, 1)                                                               \
  X(8, 2, 1, 1)

/* Of rows with spilled dS; edges in flight are not for tuning. */
#define DFGNN_GRAD_GIVEN(X)                                                    \
  X(32, 1, 4, 0)                                                               \
  X(16, 2, 4, 0)                                                               \
  X(8, 4, 2, 0)                                                                \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 4, 0)                                                                \
  X(8, 1, 4, 0)                                                                \
  X(4, 2, 4, 0)                                                                \
  X(4, 1, 4, 0)                                                                \
  X(32, 2, 2, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(32, 8, 1, 0)                                                               \
  X(32, 1, 4, 1)                                                               \
  X(16, 2, 4, 1)                                                               \
  X(16, 1, 4, 1)                                                               \
  X(8, 2, 4, 1)

#define DFGNN_GRAD_HALF_GIVEN(X)                                               \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 4, 0)                                                                \
  X(8, 1, 4, 0)                                                                \
  X(4, 2, 4, 0)                                                                \
  X(4, 1, 4, 0)                                                                \
  X(32, 1, 4, 0)                                                               \
  X(32, 2, 2, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(16, 1, 4, 1)                                                               \
  X(8, 2, 4, 1)

struct grad_instance {
  int columns, mode, lanes, vectors, unroll, several;
  const void *kernel;
};

template <int N>
inline const void *find_gradient(const grad_instance (&table)[N], int columns,
                                 int mode, int lanes, int vectors, int unroll,
                                 int several) {
  for (const grad_instance &i : table)
    if (i.columns == columns && i.mode == mode && i.lanes == lanes &&
        i.vectors == vectors && (mode == GRAD_GIVEN || i.unroll == unroll) &&
        i.several == several)
      return i.kernel;
  return nullptr;
}

#define DFGNN_GRAD_ROW(COLUMNS, MODE, L, C, U, M)                              \
  {COLUMNS,                                                                    \
   MODE,                                                                       \
   L,                                                                          \
   C,                                                                          \
   U,                                                                          \
   M,                                                                          \
   reinterpret_cast<const void *>(                                             \
       gradient<OP, T, 16 / sizeof(T), L, C, U, M != 0, COLUMNS != 0, MODE>)},
#define DFGNN_GRAD_PLAIN_ROWS(L, C, U, M)                                      \
  DFGNN_GRAD_ROW(0, GRAD_PLAIN, L, C, U, M)                                    \
  DFGNN_GRAD_ROW(1, GRAD_PLAIN, L, C, U, M)
#define DFGNN_GRAD_EDGE_ROWS(L, C, U, M)                                       \
  DFGNN_GRAD_ROW(0, GRAD_EDGES, L, C, U, M)                                    \
  DFGNN_GRAD_ROW(1, GRAD_EDGES, L, C, U, M)
#define DFGNN_GRAD_GIVEN_ROWS(L, C, U, M)                                      \
  DFGNN_GRAD_ROW(0, GRAD_GIVEN, L, C, U, M)

/* GAT sums spilled scalars without a walk. */
template <int OP, typename T>
const void *find_wide(int columns, int mode, int lanes, int vectors, int unroll,
                      int several) {
  static const grad_instance table[] = {DFGNN_GRAD_WIDE(
      DFGNN_GRAD_PLAIN_ROWS) DFGNN_GRAD_WIDE(DFGNN_GRAD_EDGE_ROWS)};
  if constexpr (OP != DFGNN_OP_GAT) {
    static const grad_instance given[] = {
        DFGNN_GRAD_GIVEN(DFGNN_GRAD_GIVEN_ROWS)};
    if (mode == GRAD_GIVEN)
      return find_gradient(given, columns, mode, lanes, vectors, unroll,
                           several);
  }
  return find_gradient(table, columns, mode, lanes, vectors, unroll, several);
}

template <int OP, typename T>
const void *find_half(int columns, int mode, int lanes, int vectors, int unroll,
                      int several) {
  static const grad_instance table[] = {DFGNN_GRAD_HALF(
      DFGNN_GRAD_PLAIN_ROWS) DFGNN_GRAD_HALF(DFGNN_GRAD_EDGE_ROWS)};
  if constexpr (OP != DFGNN_OP_GAT) {
    static const grad_instance given[] = {
        DFGNN_GRAD_HALF_GIVEN(DFGNN_GRAD_GIVEN_ROWS)};
    if (mode == GRAD_GIVEN)
      return find_gradient(given, columns, mode, lanes, vectors, unroll,
                           several);
  }
  return find_gradient(table, columns, mode, lanes, vectors, unroll, several);
}

} // namespace dfgnn

#endif
