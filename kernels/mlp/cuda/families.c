/* families.c - the ways of an MLP on edges on a GPU, as families: their
 * parameters are the members of dfgnn_mlp_tuning, and `rule` leaves one to
 * plan.c */
#include "kernels/mlp/cuda/run.h"

#define RULE 0
#define RULE_LABEL                                                             \
  { "rule" }

enum { WARPS, SPAN, LOCKSTEP, RESIDENT_LAUNCH };
enum { COLUMNS, STAGES, WGMMA, STREAMED_LAUNCH };
enum { LIBRARY_LAUNCH };

static int64_t mebibytes(int n) { return (int64_t)n << 20; }

static dfgnn_mlp_tuning resident(const int *parameter) {
  return (dfgnn_mlp_tuning){.way = DFGNN_MLP_RESIDENT,
                            .warps = parameter[WARPS],
                            .span = parameter[SPAN],
                            .lockstep = parameter[LOCKSTEP],
                            .launch_bytes =
                                mebibytes(parameter[RESIDENT_LAUNCH])};
}

static dfgnn_mlp_tuning streamed(const int *parameter) {
  return (dfgnn_mlp_tuning){.way = DFGNN_MLP_STREAMED,
                            .product = DFGNN_MLP_OWN,
                            .columns = parameter[COLUMNS],
                            .stages = parameter[STAGES],
                            .wgmma = parameter[WGMMA],
                            .launch_bytes =
                                mebibytes(parameter[STREAMED_LAUNCH])};
}

static dfgnn_mlp_tuning library(const int *parameter) {
  return (dfgnn_mlp_tuning){.way = DFGNN_MLP_STREAMED,
                            .product = DFGNN_MLP_LIBRARY,
                            .launch_bytes =
                                mebibytes(parameter[LIBRARY_LAUNCH])};
}

/* Would the rule choose what is chosen here?  Then the variant that leaves it
 * to the rule is enough. */
static int repeats_rule(const dfgnn_mlp_tuning *by,
                        const dfgnn_mlp_tuning *rule) {
  return (by->warps && by->warps == rule->warps) ||
         (by->lockstep && by->lockstep == rule->lockstep) ||
         (by->columns && by->columns == rule->columns) ||
         (by->stages && by->stages == rule->stages) ||
         (by->wgmma && by->wgmma == rule->wgmma) ||
         (by->launch_bytes && by->launch_bytes == rule->launch_bytes);
}

static const char *refusal(const dfgnn_setting *s, dfgnn_mlp_tuning by) {
  const dfgnn_mlp_tuning way = {.way = by.way, .product = by.product};
  dfgnn_mlp_job job;
  if (!s->mlp)
    return "the MLP is not known";
  dfgnn__mlp_job_of(&job, s);
  const char *refused = dfgnn__mlp_cuda_refuses(&job, s->device, &by);
  if (refused)
    return refused;
  if (by.way == DFGNN_MLP_RESIDENT && by.launch_bytes &&
      job.pass == DFGNN_PASS_FORWARD)
    return "the forward pass is one launch";
  const dfgnn_mlp_tuning rule = dfgnn__mlp_rule(&job, s->device, &way);
  return repeats_rule(&by, &rule) ? "the rule chooses one of its values" : NULL;
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Rows of e are copied where tensors begin at odd addresses, or where e is in
 * the order of a list and a library multiplies; a call may be either, and a
 * copy takes more memory. */
static size_t room(const dfgnn_setting *s, dfgnn_mlp_tuning by) {
  dfgnn_mlp_job job;
  dfgnn__mlp_job_of(&job, s);
  dfgnn_mlp_job odd = job, listed = job;
  if (job.args.edge)
    odd.args.edge = (const char *)job.args.edge + 1;
  else if (job.args.src_part)
    odd.args.src_part = (const char *)job.args.src_part + 1;
  listed.rows.edge_order = s->matrix; /* nobody reads it */
  return most(dfgnn__mlp_plan(&job, s->device, &by).bytes,
              most(dfgnn__mlp_plan(&odd, s->device, &by).bytes,
                   dfgnn__mlp_plan(&listed, s->device, &by).bytes));
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  dfgnn_mlp_job job;
  dfgnn__mlp_job_of(&job, s);
  return dfgnn__mlp_cuda_views(&job, requests);
}

static dfgnn_status launch(const dfgnn_launch *l, dfgnn_mlp_tuning by) {
  const dfgnn_setting *s = &l->setting;
  dfgnn_mlp_job job;
  dfgnn__mlp_job_of(&job, s);
  return dfgnn__mlp_cuda_tuned(&job, l->views, s->queue, s->device, &by,
                               l->workspace);
}

#define WAY(way)                                                               \
  static const char *way##_applicable(const dfgnn_setting *s) {                \
    return refusal(s, way(s->parameter));                                      \
  }                                                                            \
  static size_t way##_workspace(const dfgnn_setting *s) {                      \
    return room(s, way(s->parameter));                                         \
  }                                                                            \
  static dfgnn_status way##_launch(const dfgnn_launch *l) {                    \
    return launch(l, way(l->setting.parameter));                               \
  }
WAY(resident)
WAY(streamed)
WAY(library)

#define FAMILY(way)                                                            \
  .name = "cuda.mlp." #way, .algorithm = #way, .backend = "cuda",              \
  .ops = DFGNN_BIT(DFGNN_OP_MLP),                                              \
  .passes = DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD),    \
  .dtypes =                                                                    \
      DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),     \
  .revision = 3, .deterministic = 1, .applicable = way##_applicable,           \
  .workspace = way##_workspace, .views = views, .launch = way##_launch
/* MiB that the kernels of a launch leave for each other. */
#define LAUNCH                                                                 \
  { "launch", 6, {RULE, 32, 64, 128, 256, 512}, RULE_LABEL }

DFGNN_FAMILIES(mlp_cuda_families) = {
    {FAMILY(resident),
     .parameters = {{"warps", 5, {RULE, 4, 8, 12, 16}, RULE_LABEL},
                    {"span", 4, {RULE, 4, 16, 64}, RULE_LABEL},
                    {"lockstep",
                     3,
                     {RULE, DFGNN_MLP_FREE, DFGNN_MLP_LOCKSTEP},
                     RULE_LABEL},
                    LAUNCH}},
    {FAMILY(streamed),
     .parameters =
         {{"columns", 3, {RULE, 128, 256}, RULE_LABEL},
          {"stages", 4, {RULE, 2, 3, 4}, RULE_LABEL},
          {"wgmma", 3, {RULE, DFGNN_MLP_MMA, DFGNN_MLP_WGMMA}, RULE_LABEL},
          LAUNCH}},
    {FAMILY(library), .parameters = {LAUNCH}},
    DFGNN_FAMILIES_END};
