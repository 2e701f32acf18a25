/* program.c - a program as a user wrote it, linked with the shared library
 *
 * It runs as a program of today's headers, and as one of headers to come, whose
 * structs end in members that no library knows yet.  Outputs lie before bytes
 * that nobody may write. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dfgnn.h"
#include "dfgnn_graph.h"
#include "dfgnn_mlp.h"
#include "dfgnn_operator.h"
#include "dfgnn_program.h"
#include "dfgnn_tune.h"

enum { MOST_UNKNOWN = 24 };
static size_t unknown_bytes; /* of each struct: 0 or MOST_UNKNOWN */

static int failures;

static void check(int holds, const char *what, int line) {
  if (holds)
    return;
  fprintf(stderr, "line %d: %s: %s\n", line, what, dfgnn_last_error());
  failures++;
}
#define CHECK(holds) check(holds, #holds, __LINE__)
#define OK(call) CHECK((call) == DFGNN_OK)

/* A struct of the program, the bytes of a newer header behind it, and a fence.
 */
#define STRUCT(type, name)                                                     \
  struct {                                                                     \
    type it;                                                                   \
    unsigned char unknown[MOST_UNKNOWN], fence[64];                            \
  } name;                                                                      \
  memset(&name, 0, sizeof name);                                               \
  name.it.struct_size = sizeof name.it + unknown_bytes;                        \
  memset(name.unknown + unknown_bytes, 0xa5,                                   \
         sizeof name.unknown - unknown_bytes);                                 \
  memset(name.fence, 0xa5, sizeof name.fence)

#define FENCED(name)                                                           \
  do {                                                                         \
    CHECK(name.it.struct_size == sizeof name.it + unknown_bytes);              \
    for (size_t i_ = unknown_bytes; i_ < sizeof name.unknown; i_++)            \
      CHECK(name.unknown[i_] == 0xa5);                                         \
    for (size_t i_ = 0; i_ < sizeof name.fence; i_++)                          \
      CHECK(name.fence[i_] == 0xa5);                                           \
  } while (0)

/* Members that only a newer library knows are refused if they are set. */
#define REFUSED(name, call)                                                    \
  do {                                                                         \
    if (!unknown_bytes)                                                        \
      break;                                                                   \
    name.unknown[9] = 1;                                                       \
    CHECK((call) == DFGNN_ERROR_INVALID);                                      \
    CHECK(strstr(dfgnn_last_error(), "this library") != NULL);                 \
    name.unknown[9] = 0;                                                       \
  } while (0)

enum { N = 3, E = 4, D = 8 };
static const int32_t offsets[N + 1] = {0, 2, 2, 4}, indices[E] = {0, 2, 1, 1};
static float q[N * D], k[N * D], v[N * D], out[N * D];

static void expect_attention(void) {
  for (int i = 0; i < N; i++) {
    double weight[E], sum = 0;
    for (int e = offsets[i]; e < offsets[i + 1]; e++) {
      double score = 0;
      for (int d = 0; d < D; d++)
        score += (double)q[i * D + d] * k[indices[e] * D + d];
      sum += weight[e] = exp(score / sqrt((double)D));
    }
    for (int d = 0; d < D; d++) {
      double wanted = 0;
      for (int e = offsets[i]; e < offsets[i + 1]; e++)
        wanted += weight[e] / sum * v[indices[e] * D + d];
      CHECK(fabs(wanted - out[i * D + d]) < 1e-5);
    }
  }
}

static void use_context(dfgnn_context *ctx) {
  STRUCT(dfgnn_device_info, device);
  STRUCT(dfgnn_counters, counters);
  STRUCT(dfgnn_variant_info, variant);
  OK(dfgnn_context_device(&device.it, ctx));
  FENCED(device);
  CHECK(!strcmp(device.it.backend, "cpu") && device.it.units > 0);
  OK(dfgnn_context_counters(&counters.it, ctx));
  FENCED(counters);
  CHECK(dfgnn_variant_count() > 10);
  OK(dfgnn_variant_get(&variant.it, 1));
  FENCED(variant);
  CHECK(variant.it.name && variant.it.revision >= 0);
  memset(counters.unknown, 7, unknown_bytes);
  OK(dfgnn_context_counters(&counters.it, ctx));
  for (size_t i = 0; i < unknown_bytes; i++)
    CHECK(counters.unknown[i] == 0);
}

static void use_plan(dfgnn_context *ctx, dfgnn_graph *graph) {
  STRUCT(dfgnn_problem, problem);
  STRUCT(dfgnn_args, args);
  dfgnn_plan *plan = NULL;
  problem.it.op = DFGNN_OP_GT;
  problem.it.heads = 1;
  problem.it.dim = D;
  problem.it.max_workspace = -1;
  REFUSED(problem, dfgnn_plan_create(&plan, ctx, graph, &problem.it));
  OK(dfgnn_plan_create(&plan, ctx, graph, &problem.it));
  args.it.query = q, args.it.key = k, args.it.value = v, args.it.out = out;
  args.it.scale = DFGNN_SCALE_DEFAULT;
  void *workspace =
      aligned_alloc(64, dfgnn_plan_workspace(plan) / 64 * 64 + 64);
  REFUSED(args, dfgnn_execute(plan, &args.it, workspace, NULL));
  OK(dfgnn_execute(plan, &args.it, workspace, NULL));
  expect_attention();
  memset(out, 0, sizeof out);
  OK(dfgnn_call(ctx, graph, &problem.it, &args.it, NULL));
  expect_attention();
  dfgnn_explanation *why = NULL;
  int chosen = 0;
  OK(dfgnn_plan_explain(&why, plan));
  for (size_t i = 0; why && i < why->count; i++)
    chosen += !strcmp(why->candidates[i].variant, why->variant);
  CHECK(chosen == 1);
  dfgnn_explanation_free(why);
  free(workspace);
  dfgnn_plan_destroy(plan);

  STRUCT(dfgnn_tune_options, options);
  STRUCT(dfgnn_tune_report, report);
  options.it.budget_s = 0.2;
  REFUSED(options,
          dfgnn_tune(&report.it, ctx, graph, &problem.it, &options.it));
  OK(dfgnn_tune(&report.it, ctx, graph, &problem.it, &options.it));
  FENCED(report);
  CHECK(report.it.candidates > 1 && *report.it.variant);
}

static void use_matrix(dfgnn_context *ctx, const char *folder) {
  STRUCT(dfgnn_csr, csr);
  STRUCT(dfgnn_signature, signature);
  dfgnn_graph *graph = NULL;
  dfgnn_csr *again = NULL;
  char path[256];
  csr.it.destinations = csr.it.sources = N;
  csr.it.edges = E;
  csr.it.offsets = offsets;
  csr.it.indices = indices;
  REFUSED(csr, dfgnn_graph_create_csr(&graph, ctx, &csr.it, NULL));
  OK(dfgnn_graph_create_csr(&graph, ctx, &csr.it, NULL));
  OK(dfgnn_graph_signature(&signature.it, graph));
  FENCED(signature);
  CHECK(signature.it.edges == E && signature.it.max_degree == 2 &&
        signature.it.fingerprint != 0);
  use_plan(ctx, graph);
  dfgnn_graph_destroy(graph);

  snprintf(path, sizeof path, "%s/graph.npz", folder);
  REFUSED(csr, dfgnn_csr_write(&csr.it, path));
  OK(dfgnn_csr_write(&csr.it, path));
  OK(dfgnn_csr_read(&again, path));
  CHECK(again && again->edges == E && again->destinations == N);
  dfgnn_csr_free(again);
  unlink(path);

  STRUCT(dfgnn_coo, coo);
  STRUCT(dfgnn_csr, shown);
  static const int32_t dst[E] = {2, 0, 2, 0}, src[E] = {1, 0, 1, 2};
  int64_t rows[N] = {0};
  coo.it.destinations = coo.it.sources = N;
  coo.it.edges = E;
  coo.it.destination = dst, coo.it.source = src;
  REFUSED(coo, dfgnn_graph_create_coo(&graph, ctx, &coo.it, NULL));
  OK(dfgnn_graph_create_coo(&graph, ctx, &coo.it, NULL));
  OK(dfgnn_graph_csr(&shown.it, graph));
  FENCED(shown);
  CHECK(shown.it.edges == E &&
        !memcmp(shown.it.indices, indices, sizeof indices));
  use_plan(ctx, graph);
  dfgnn_graph_destroy(graph);
  OK(dfgnn_csr_order(rows, NULL, &csr.it, DFGNN_ORDER_DEGREE));
  OK(dfgnn_csr_permute(&again, NULL, &csr.it, rows, rows));
  CHECK(again && again->edges == E);
  dfgnn_csr_free(again);
  static const int32_t owner[N] = {0, 1, 0};
  STRUCT(dfgnn_part, copy);
  dfgnn_part *part = NULL;
  OK(dfgnn_part_create(&part, &csr.it, owner, 2, 0));
  CHECK(part && part->nodes == 2 && part->edges == E);
  memcpy(&copy.it, part, sizeof copy.it);
  copy.it.struct_size = sizeof copy.it + unknown_bytes;
  snprintf(path, sizeof path, "%s/part.npz", folder);
  REFUSED(copy, dfgnn_part_write(&copy.it, path));
  OK(dfgnn_part_write(&copy.it, path));
  dfgnn_part_free(part);
  unlink(path);
}

static void use_names(void) {
  int value = -1;
  OK(dfgnn_parse(&value, DFGNN_NAMES_OP, "gatv2"));
  CHECK(value == DFGNN_OP_GATV2);
  CHECK(!strcmp(dfgnn_name(DFGNN_NAMES_PARTITIONING, DFGNN_PARTITION_RANGE),
                "range"));
}

static void use_program(dfgnn_context *ctx) {
  STRUCT(dfgnn_csr, csr);
  STRUCT(dfgnn_edge_value, value);
  STRUCT(dfgnn_edge_operator, found);
  dfgnn_edge_program *program = NULL;
  dfgnn_graph *graph = NULL;
  csr.it.destinations = csr.it.sources = N;
  csr.it.edges = E;
  csr.it.offsets = offsets;
  csr.it.indices = indices;
  OK(dfgnn_graph_create_csr(&graph, ctx, &csr.it, NULL));
  OK(dfgnn_edge_program_create(&program,
                               "src x[D], y[D]; out = sum_in(x * y)"));
  OK(dfgnn_edge_program_input(&value.it, program, 1));
  FENCED(value);
  CHECK(!strcmp(value.it.name, "y") && value.it.place == DFGNN_EDGE_SRC &&
        value.it.rank == 1);
  OK(dfgnn_edge_program_operator(&found.it, program));
  FENCED(found);
  CHECK(!found.it.found);
  const dfgnn_edge_tensor in[] = {{"x", k, DFGNN_F32, 1, {D}},
                                  {"y", v, DFGNN_F32, 1, {D}}};
  const dfgnn_edge_tensor sums[] = {{"out", out, DFGNN_F32, 1, {D}}};
  OK(dfgnn_edge_program_execute(program, graph, in, 2, sums, 1, 0, NULL));
  for (int i = 0; i < N; i++)
    for (int d = 0; d < D; d++) {
      double wanted = 0;
      for (int e = offsets[i]; e < offsets[i + 1]; e++)
        wanted += (double)k[indices[e] * D + d] * v[indices[e] * D + d];
      CHECK(fabs(wanted - out[i * D + d]) < 1e-5);
    }
  dfgnn_edge_program_destroy(program);
  dfgnn_graph_destroy(graph);
}

static void use_mlp(dfgnn_context *ctx) {
  STRUCT(dfgnn_csr, csr);
  STRUCT(dfgnn_edge_mlp, mlp);
  STRUCT(dfgnn_tensor_info, info);
  dfgnn_graph *graph = NULL;
  csr.it.destinations = csr.it.sources = N;
  csr.it.edges = E;
  csr.it.offsets = offsets;
  csr.it.indices = indices;
  OK(dfgnn_graph_create_csr(&graph, ctx, &csr.it, NULL));
  mlp.it.dtype = DFGNN_BF16;
  mlp.it.layers = 2;
  mlp.it.edge_dim = mlp.it.width[0] = mlp.it.width[1] = 128;
  REFUSED(mlp, dfgnn_edge_mlp_serves(&mlp.it, graph));
  CHECK(dfgnn_edge_mlp_serves(&mlp.it, graph) == DFGNN_ERROR_UNSUPPORTED);
  CHECK(strstr(dfgnn_last_error(), "sm_80") != NULL);
  OK(dfgnn_operator_tensor(&info.it, DFGNN_OP_GT, DFGNN_PASS_FORWARD, 0));
  FENCED(info);
  dfgnn_graph_destroy(graph);
}

static void run(void) {
  char folder[] = "/tmp/dfgnn-abi-XXXXXX";
  dfgnn_context *ctx = NULL;
  CHECK(mkdtemp(folder) != NULL);
  STRUCT(dfgnn_options, options);
  options.it.device = "cpu";
  options.it.store = "";
  REFUSED(options, dfgnn_context_create(&ctx, &options.it));
  options.it.struct_size = 1u << 20; /* no size at all */
  CHECK(dfgnn_context_create(&ctx, &options.it) == DFGNN_ERROR_INVALID);
  options.it.struct_size = sizeof options.it + unknown_bytes;
  OK(dfgnn_context_create(&ctx, &options.it));
  if (ctx) {
    use_context(ctx);
    use_matrix(ctx, folder);
    use_names();
    use_program(ctx);
    use_mlp(ctx);
  }
  dfgnn_context_destroy(ctx);
  rmdir(folder);
}

int main(void) {
  for (int i = 0; i < N * D; i++) {
    q[i] = (float)(i % 5) - 2;
    k[i] = (float)(i % 7) / 3;
    v[i] = (float)(i % 11) - 4;
  }
  run();
  unknown_bytes = MOST_UNKNOWN;
  run();
  if (!failures)
    printf("programs of these headers and of some to come work\n");
  return failures != 0;
}
