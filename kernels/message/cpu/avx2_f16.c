#ifdef __x86_64__
#define CPU_ISA CPU_AVX2
#define CPU_DTYPE CPU_F16
#define CPU_TABLE dfgnn__cpu_message_avx2_f16
#include "kernels/message/cpu/kernels.h"
#endif
