/* Whether inner values of an MLP on edges are worth keeping: by the rule, and
 * by what was measured. */
#include "tests/gpu/gpu.h"

#include "dfgnn_mlp.h"
#include "lib/key.h"

enum { NODES = 6, EDGES = 12, WIDTH = 16 };

/* Nobody reads there. */
static char *const nowhere = (char *)0x10000;

static dfgnn_edge_mlp two_layers(void) {
  dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
  mlp.dtype = DFGNN_BF16;
  mlp.layers = 2;
  mlp.edge_dim = mlp.width[0] = mlp.width[1] = WIDTH;
  mlp.activation = DFGNN_ACTIVATION_SILU;
  mlp.norm = DFGNN_NORM_LAYER;
  mlp.reduce_dst = DFGNN_REDUCE_SUM;
  return mlp;
}

static dfgnn_edge_mlp_args args_of(dfgnn_pass pass, int kept) {
  dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
  args.edge = args.src_part = args.weight[0] = args.weight[1] = nowhere;
  if (pass == DFGNN_PASS_FORWARD)
    args.edge_out = args.out_dst = nowhere;
  else
    args.grad_edge_out = args.grad_out_dst = args.grad_edge = nowhere;
  args.kept[0] = args.kept[1] = kept ? nowhere : NULL;
  return args;
}

static dfgnn_graph *small_graph(dfgnn_context *ctx) {
  static int32_t dst[EDGES], src[EDGES];
  dfgnn_coo coo = DFGNN_COO_INIT;
  dfgnn_graph *graph = NULL;
  for (int i = 0; i < EDGES; i++) {
    dst[i] = i % NODES;
    src[i] = (i + 1 + i / NODES) % NODES;
  }
  coo.destinations = coo.sources = NODES;
  coo.edges = EDGES;
  coo.destination = dst;
  coo.source = src;
  coo.index_type = DFGNN_INDEX_I32;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  ck_ok(dfgnn__graph_know(graph));
  return graph;
}

static int64_t kept_bytes(dfgnn_graph *graph) {
  const dfgnn_edge_mlp mlp = two_layers();
  const dfgnn_edge_mlp_args forward = args_of(DFGNN_PASS_FORWARD, 0);
  const dfgnn_edge_mlp_args backward = args_of(DFGNN_PASS_BACKWARD, 0);
  int64_t bytes = -1;
  ck_ok(dfgnn_edge_mlp_keep(&bytes, &mlp, graph, &forward, &backward));
  return bytes;
}

/* A row about the problem of a pass: the fastest way took so long. */
static dfgnn_measurement row_of(const dfgnn_graph *graph, dfgnn_pass pass,
                                int kept, double ms) {
  const dfgnn_edge_mlp mlp = two_layers();
  const dfgnn_edge_mlp_args args = args_of(pass, kept);
  const dfgnn_device_info *device = &graph->ctx->info;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_edge_mlp_problem(&problem, &mlp, &args, pass));
  ck_ok(dfgnn_plan_create(&plan, graph->ctx, (dfgnn_graph *)graph, &problem));
  dfgnn_measurement row = {.backend = device->backend,
                           .arch = device->arch,
                           .model = device->model,
                           .units = device->units,
                           .cache_bytes = device->cache_bytes,
                           .shared_bytes = device->shared_bytes};
  row.driver = row.runtime = row.library = row.host = row.job = "";
  row.graph = row.family = row.reason = "";
  row.tool = "check_gpu_mlp_keep";
  row.run = "0123456789abcdef0123456789abcdef";
  dfgnn__key_fill(&row, &plan->problem, graph->matrix.offsets64);
  row.signature = graph->signature;
  row.variant = row.anchor = plan->variant->name;
  row.revision = row.anchor_revision = plan->variant->family->revision;
  row.time = row.ratio = row.ratio_low = row.ratio_high = 1;
  row.status = "ok";
  row.median_ms = row.ci_low_ms = row.ci_high_ms = ms;
  row.samples = 9;
  dfgnn_plan_destroy(plan);
  return row;
}

/* The context knows that forward and backward took `without` together, and
 * `with` inner values that are kept. */
static void measure(dfgnn_graph *graph, double without, double with) {
  const dfgnn_measurement rows[] = {
      row_of(graph, DFGNN_PASS_FORWARD, 0, without / 4),
      row_of(graph, DFGNN_PASS_BACKWARD, 0, without * 3 / 4),
      row_of(graph, DFGNN_PASS_FORWARD, 1, with / 2),
      row_of(graph, DFGNN_PASS_BACKWARD, 1, with / 2)};
  dfgnn_table *table = NULL;
  uint64_t invalid = 0;
  ck_ok(dfgnn__table_create(&table, &invalid, &graph->ctx->info, rows, 4, 4));
  ck_assert_uint_eq(invalid, 0);
  dfgnn__table_destroy(graph->ctx->table);
  graph->ctx->table = table;
}

START_TEST(what_is_small_is_kept_by_rule) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = small_graph(gpu);
  /* rows of 64 bytes */
  ck_assert_int_eq(kept_bytes(graph), 2 * EDGES * 64);
  gpu->info.memory_bytes = 64 * (2 * EDGES * 64) - 1;
  ck_assert_int_eq(kept_bytes(graph), 0);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(gpu);
}
END_TEST

START_TEST(both_passes_that_were_measured_decide) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = small_graph(gpu);
  measure(graph, 4, 4.1);
  ck_assert_int_eq(kept_bytes(graph), 0);
  measure(graph, 4, 3.9);
  gpu->info.memory_bytes = 1;
  ck_assert_int_eq(kept_bytes(graph), 2 * EDGES * 64);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(gpu);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gpu_mlp_keep");
  TCase *keep = tcase_create("keep");
  tcase_add_test(keep, what_is_small_is_kept_by_rule);
  tcase_add_test(keep, both_passes_that_were_measured_decide);
  suite_add_tcase(suite, keep);
  return run_on_gpu(suite);
}
