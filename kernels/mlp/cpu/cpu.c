#include "kernels/common/cpu_simd.h"
#include "kernels/common/cpu_tables.h"
#include "kernels/mlp/cpu/table.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 }; /* of leaf 7, edx */
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* of arch_prctl */

static int amx;

/* Linux gives a process the registers when it asks. */
static void look_for_amx(void) {
  unsigned a, b, c, d;
  amx = !dfgnn__cpu_simd_missing(2) && __builtin_cpu_supports("avx512bf16") &&
        __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
        (d & (AMX_BF16 | AMX_TILE)) == (AMX_BF16 | AMX_TILE) &&
        !syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA);
}

static int has_amx(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_for_amx);
  return amx;
}
#else
static int has_amx(void) { return 0; }
#endif

const char *dfgnn__mlp_amx_missing(dfgnn_dtype dtype) {
  if (dtype != DFGNN_BF16)
    return "AMX has products of bf16 alone";
  return has_amx() ? NULL : "the processor or the system has no AMX";
}

const char *dfgnn__mlp_cpu_missing(const dfgnn_mlp_job *job) {
  return job->args.kept[0] ? "the CPU's kernels of MLPs keep no inner values, "
                             "expected args.kept NULL"
                           : NULL;
}

DFGNN_CPU_TABLES(dfgnn__mlp_kernels, dfgnn_mlp_kernels, dfgnn__mlp)

dfgnn_status dfgnn__mlp_cpu(const dfgnn_mlp_job *job) {
  int simd = job->blocks.simd ? job->blocks.simd - 1 : 2;
  while (dfgnn__cpu_simd_missing(simd))
    simd--;
  return dfgnn__mlp_kernels(simd, job->mlp.dtype)->run(job);
}
