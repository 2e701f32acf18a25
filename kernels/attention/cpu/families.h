/* families.h - what the CPU families of attention have in common */
#ifndef DFGNN_ATTENTION_CPU_FAMILIES_H
#define DFGNN_ATTENTION_CPU_FAMILIES_H

#include "kernels/attention/cpu/attention.h"

/* The first parameter of every family is the instruction set. */
static inline const char *dfgnn__cpu_runs(const dfgnn_setting *setting) {
  return dfgnn__cpu_simd_missing(setting->parameter[0]);
}

/* The portable kernels are for other machines, and do not prefetch. */
static inline int dfgnn__cpu_fetches(int simd, int prefetch) {
  return simd != 0 || prefetch == 0;
}

#define DFGNN_CPU_PREFETCH_PARAMETER                                           \
  {                                                                            \
    "prefetch", 2, {0, 24}, { 0 }                                              \
  }

/* The members of family <label>, which has <label>_legal and so on. */
#define DFGNN_CPU_FAMILY(label)                                                \
  .algorithm = #label, .backend = "cpu", .ops = DFGNN_OPS_ATTENTION,           \
  .dtypes = DFGNN_DTYPES_ALL, .widened = 1, .deterministic = 1, .bias = 1,     \
  .dropout = 1, .edge_ops = DFGNN_BIT(DFGNN_OP_GAT),                           \
  .workspace = label##_workspace, .launch = label##_launch,                    \
  .block = DFGNN_CPU_BLOCK
#define DFGNN_CPU_FORWARD(label)                                               \
  DFGNN_CPU_FAMILY(label), .name = "cpu.attention.fwd." #label, .weights = 1,  \
                           .passes = DFGNN_BIT(DFGNN_PASS_FORWARD)
#define DFGNN_CPU_BACKWARD(label)                                              \
  DFGNN_CPU_FAMILY(label), .name = "cpu.attention.bwd." #label,                \
                           .accumulate = 1,                                    \
                           .views = dfgnn__cpu_backward_views,                 \
                           .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD)

/* <label>_workspace of a forward family. */
#define DFGNN_CPU_WORKSPACE(label, choice_of)                                  \
  static size_t label##_workspace(const dfgnn_setting *setting) {              \
    const dfgnn_cpu_choice c = choice_of(setting);                             \
    return dfgnn__cpu_workspace(setting, &c);                                  \
  }

#endif
