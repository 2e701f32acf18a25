#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_F64
#define CPU_TABLE dfgnn__cpu_message_portable_f64
#include "kernels/message/cpu/kernels.h"
