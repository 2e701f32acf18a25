/* A program of a user: it links the installed library by pkg-config,
 * lists the variants and runs one layer on a graph of three nodes. */
#include <dfgnn.h>
#include <dfgnn_tune.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int expect(dfgnn_status status, const char *what) {
  if (status == DFGNN_OK)
    return 1;
  fprintf(stderr, "consumer: %s: %s: %s\n", what, dfgnn_status_string(status),
          dfgnn_last_error());
  return 0;
}

int main(void) {
  const int32_t offsets[] = {0, 2, 3, 3}, indices[] = {0, 1, 2};
  const float feature[] = {1, 2, 3};
  float out[3] = {-1, -1, -1};
  int status = EXIT_FAILURE;

  dfgnn_context *ctx = NULL;
  dfgnn_graph *graph = NULL;
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  options.device = "cpu";
  options.store = "";
  if (!expect(dfgnn_context_create(&ctx, &options), "context"))
    goto out;

  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = csr.sources = csr.edges = 3;
  csr.offsets = offsets;
  csr.indices = indices;
  if (!expect(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL), "graph"))
    goto out;

  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  problem.dim = 1;
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.query = args.key = args.value = feature;
  args.out = out;
  if (!expect(dfgnn_call(ctx, graph, &problem, &args, NULL), "call"))
    goto out;

  /* node 0 attends to itself and 1 with scores 1 and 2, node 1 to 2 alone, node
   * 2 to none */
  double e = exp(1), first = (1 + 2 * e) / (1 + e);
  if (fabs(out[0] - first) > 1e-5 || out[1] != 3 || out[2] != 0) {
    fprintf(stderr, "consumer: out is %g %g %g, expected %g 3 0\n", out[0],
            out[1], out[2], first);
    goto out;
  }
  printf("dfgnn %s, %zu variants\n", dfgnn_version(), dfgnn_variant_count());
  status = dfgnn_variant_count() > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
out:
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  return status;
}
