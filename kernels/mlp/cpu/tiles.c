/* tiles.c - MLPs on edges in tiles of edges: kernels.c */
#include "kernels/common/cpu_simd.h"
#include "kernels/mlp/job.h"

enum { SIMD, TILE, CHUNK, PRODUCTS };
enum { FLOAT, AMX };

static const char *tiles_applicable(const dfgnn_setting *s) {
  if (!s->mlp)
    return "the MLP is not known";
  const char *missing = dfgnn__mlp_cpu_missing(s->mlp);
  if (missing)
    return missing;
  missing = dfgnn__cpu_simd_missing(s->parameter[SIMD]);
  if (missing || s->parameter[PRODUCTS] == FLOAT)
    return missing;
  if (s->parameter[SIMD] != 2)
    return "AMX is used beside AVX-512";
  return dfgnn__mlp_amx_missing(s->problem->dtype);
}

static dfgnn_status tiles_launch(const dfgnn_launch *launch) {
  const int *parameter = launch->setting.parameter;
  dfgnn_mlp_job job;
  dfgnn__mlp_job_of(&job, &launch->setting);
  job.blocks = (dfgnn_mlp_blocks){.simd = parameter[SIMD] + 1,
                                  .tile_bytes = parameter[TILE] << 10,
                                  .chunk_bytes = parameter[CHUNK] << 20,
                                  .amx = parameter[PRODUCTS] == AMX};
  return dfgnn__mlp_cpu(&job);
}

DFGNN_FAMILIES(mlp_cpu_tiles) = {
    {.name = "cpu.mlp.tiles",
     .algorithm = "tiles",
     .backend = "cpu",
     .ops = DFGNN_BIT(DFGNN_OP_MLP),
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 2,
     .deterministic = 1,
     .parameters = {DFGNN_CPU_SIMD,
                    {"tile", 4, {384, 96, 192, 768}}, /* KiB */
                    {"chunk", 3, {8, 2, 32}},         /* MiB */
                    {"products", 2, {FLOAT, AMX}, {"float", "amx"}}},
     .applicable = tiles_applicable,
     .launch = tiles_launch},
    DFGNN_FAMILIES_END};
