/* attend_instances.cuh - lists of attend() by shape; a file instantiates
 * those of one storage type or one score, so that files compile side by side */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_INSTANCES_CUH
#define DFGNN_ATTENTION_CUDA_ATTEND_INSTANCES_CUH

#include "kernels/attention/cuda/panel.cuh"

namespace dfgnn {

struct attend_instance {
  int lanes, vectors, unroll, several;
  const void *kernel;
};

template <int N>
inline const void *find_instance(const attend_instance (&table)[N], int lanes,
                                 int vectors, int unroll, int several) {
  for (const attend_instance &i : table)
    if (i.lanes == lanes && i.vectors == vectors && i.unroll == unroll &&
        i.several == several)
      return i.kernel;
  return nullptr;
}

template <class Score, typename T>
const void *find_wide(int lanes, int vectors, int unroll, int several) {
#define INSTANCE(L, C, U, M)                                                   \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(                                             \
       attend<Score, T, 16 / sizeof(T), L, C, U, M != 0>)},
  static const attend_instance table[] = {DFGNN_ATTEND_WIDE(INSTANCE)};
#undef INSTANCE
  return find_instance(table, lanes, vectors, unroll, several);
}

template <class Score, typename T>
const void *find_half(int lanes, int vectors, int unroll, int several) {
#define INSTANCE(L, C, U, M)                                                   \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(                                             \
       attend<Score, T, 16 / sizeof(T), L, C, U, M != 0>)},
  static const attend_instance table[] = {DFGNN_ATTEND_HALF(INSTANCE)};
#undef INSTANCE
  return find_instance(table, lanes, vectors, unroll, several);
}

template <typename T>
const void *find_given(int lanes, int vectors, int unroll, int several) {
#define INSTANCE(L, C, U, M)                                                   \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(                                             \
       attend<given_score, T, 16 / sizeof(T), L, C, U, M != 0>)},
  static const attend_instance table[] = {DFGNN_ATTEND_GIVEN(INSTANCE)};
#undef INSTANCE
  return find_instance(table, lanes, vectors, unroll, several);
}

template <class Score, typename T, int VEC>
const void *find_panel(int lanes, int unroll) {
#define INSTANCE(L, U)                                                         \
  {L, 1, U, 0,                                                                 \
   reinterpret_cast<const void *>(score_panel<Score, T, VEC, L, U>)},
  static const attend_instance wide[] = {DFGNN_PANEL_WIDE(INSTANCE)};
#undef INSTANCE
  return find_instance(wide, lanes, 1, unroll, 0);
}

template <class Score, typename T>
const void *find_narrow_panel(int lanes, int unroll) {
#define INSTANCE(L, U)                                                         \
  {L, 1, U, 0, reinterpret_cast<const void *>(score_panel<Score, T, 1, L, U>)},
  static const attend_instance narrow[] = {DFGNN_PANEL_NARROW(INSTANCE)};
#undef INSTANCE
  return find_instance(narrow, lanes, 1, unroll, 0);
}

/* Of the operators whose scores are sums over features. */
template <typename T>
const void *find_score_panel(int score, int lanes, int unroll) {
  constexpr int vector = 16 / sizeof(T);
  return score == DFGNN_OP_GT ? find_panel<gt_score, T, vector>(lanes, unroll)
         : score == DFGNN_OP_AGNN
             ? find_panel<agnn_score, T, vector>(lanes, unroll)
         : score == DFGNN_OP_GATV2
             ? find_panel<gatv2_score, T, vector>(lanes, unroll)
             : nullptr;
}

template <class Score, typename T>
const void *find_narrow(int lanes, int vectors, int unroll, int several) {
#define INSTANCE(L, C, U, M)                                                   \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(attend<Score, T, 1, L, C, U, M != 0>)},
  static const attend_instance table[] = {DFGNN_ATTEND_NARROW(INSTANCE)};
#undef INSTANCE
  return find_instance(table, lanes, vectors, unroll, several);
}

} // namespace dfgnn

#endif
