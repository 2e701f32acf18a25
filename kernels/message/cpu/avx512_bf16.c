#ifdef __x86_64__
#define CPU_ISA CPU_AVX512
#define CPU_DTYPE CPU_BF16
#define CPU_TABLE dfgnn__cpu_message_avx512_bf16
#include "kernels/message/cpu/kernels.h"
#endif
