#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_F64
#define CPU_TABLE dfgnn__cpu_edge_portable_f64
#include "kernels/attention/cpu/edge_loops.h"
