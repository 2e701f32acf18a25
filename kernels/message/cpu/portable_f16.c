#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_F16
#define CPU_TABLE dfgnn__cpu_message_portable_f16
#include "kernels/message/cpu/kernels.h"
