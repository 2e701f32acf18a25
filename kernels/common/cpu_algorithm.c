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
