/* blocks.c - edge programs in blocks of edges: the evaluator of evaluate.h */
#include "kernels/common/cpu_simd.h"
#include "kernels/program/job.h"

enum { SIMD, KIB, CHUNKS };

static const char *blocks_applicable(const dfgnn_setting *s) {
  return s->program ? dfgnn__cpu_simd_missing(s->parameter[SIMD])
                    : "the program is not known";
}

static dfgnn_status blocks_launch(const dfgnn_launch *launch) {
  const int *parameter = launch->setting.parameter;
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn__program_job_of(&job, &binding, &launch->setting, launch->views);
  const dfgnn_args *args = launch->args;
  job.seed = args->seed ? *args->seed : args->seed_value;
  job.blocks = (dfgnn_program_blocks){.simd = parameter[SIMD],
                                      .block_bytes = parameter[KIB] << 10,
                                      .chunks = parameter[CHUNKS]};
  return dfgnn__program_cpu(&job);
}

DFGNN_FAMILIES(program_cpu_blocks) = {
    {.name = "cpu.program.blocks",
     .algorithm = "blocks",
     .backend = "cpu",
     .ops = DFGNN_BIT(DFGNN_OP_PROGRAM),
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 3,
     .deterministic = 1,
     .parameters = {DFGNN_CPU_SIMD,
                    {"kib", 4, {96, 24, 48, 192}},
                    {"chunks", 3, {64, 16, 256}}},
     .applicable = blocks_applicable,
     .views = dfgnn__program_views,
     .launch = blocks_launch},
    DFGNN_FAMILIES_END};
