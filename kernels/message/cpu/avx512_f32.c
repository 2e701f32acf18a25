#ifdef __x86_64__
#define CPU_ISA CPU_AVX512
#define CPU_DTYPE CPU_F32
#define CPU_TABLE dfgnn__cpu_message_avx512_f32
#include "kernels/message/cpu/kernels.h"
#endif
