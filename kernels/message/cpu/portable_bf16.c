#define CPU_ISA CPU_PORTABLE
#define CPU_DTYPE CPU_BF16
#define CPU_TABLE dfgnn__cpu_message_portable_bf16
#include "kernels/message/cpu/kernels.h"
