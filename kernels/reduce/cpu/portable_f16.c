#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_F16
#define CPU_TABLE dfgnn__cpu_reduce_portable_f16
#include "kernels/reduce/cpu/kernels.h"
