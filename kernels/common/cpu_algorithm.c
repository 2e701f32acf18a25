/* cpu_algorithm.c - the algorithms of a walk as families see them */
#include "kernels/common/cpu_walk.h"

int dfgnn__cpu_legal(const int *p) {
  return p[DFGNN_CPU_P_SIMD] != 0 || p[DFGNN_CPU_P_PREFETCH] == 0;
}

/* Only the dynamic schedule looks at the rows of a task: other schedules have
 * one value of it. */
int dfgnn__cpu_row_legal(const int *p) {
  return dfgnn__cpu_legal(p) &&
         (p[DFGNN_CPU_P_SIZE] == 64 ||
          p[DFGNN_CPU_P_TASKS] == DFGNN_CPU_TASKS_DYNAMIC);
}

const char *dfgnn__cpu_applicable(const dfgnn_setting *setting) {
  const uint32_t numbered = DFGNN_BIT(DFGNN_OP_REDUCE_MIN) |
                            DFGNN_BIT(DFGNN_OP_REDUCE_MAX) |
                            DFGNN_BIT(DFGNN_OP_REDUCE_PNA);
  if (DFGNN_BIT(setting->problem->op) & numbered &&
      setting->matrix->max_degree > INT32_MAX)
    return "a row has more edges than arg_min and arg_max can number";
  return dfgnn__cpu_simd_missing(setting->parameter[DFGNN_CPU_P_SIMD]);
}

int dfgnn__cpu_views(const dfgnn_setting *setting,
                     dfgnn_view_request *requests) {
  if (setting->problem->pass == DFGNN_PASS_FORWARD)
    return 0;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

size_t dfgnn__cpu_walk_memory(const dfgnn_setting *setting,
                              dfgnn_cpu_algorithm algorithm,
                              size_t state_bytes) {
  int size = setting->parameter[DFGNN_CPU_P_SIZE];
  int64_t states = algorithm == DFGNN_CPU_BALANCED
                       ? dfgnn__cpu_balanced_states(setting, size)
                       : setting->device->units;
  return (size_t)states * state_bytes;
}

void dfgnn__cpu_walk_run(const dfgnn_cpu_walk *walk,
                         const dfgnn_cpu_aggregate *aggregate,
                         dfgnn_cpu_algorithm algorithm, const int *parameter) {
  int size = parameter[DFGNN_CPU_P_SIZE];
  switch (algorithm) {
  case DFGNN_CPU_BALANCED:
    dfgnn__cpu_walk_balanced(walk, aggregate, size);
    break;
  case DFGNN_CPU_PLAIN:
    dfgnn__cpu_walk_rows(walk, aggregate, DFGNN_CPU_TASKS_DYNAMIC, 64);
    break;
  default:
    dfgnn__cpu_walk_rows(walk, aggregate,
                         (dfgnn_cpu_tasks)parameter[DFGNN_CPU_P_TASKS], size);
  }
}
