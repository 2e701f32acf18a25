#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_BF16
#define CPU_TABLE dfgnn__cpu_edge_portable_bf16
#include "kernels/attention/cpu/edge_loops.h"
