#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_F32
#define CPU_TABLE dfgnn__cpu_message_portable_f32
#include "kernels/message/cpu/kernels.h"
