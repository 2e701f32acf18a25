/* gt.c - loads a graph, runs one graph transformer layer, says what ran and why
 *
 *   cc gt.c $(pkg-config --cflags --libs dfgnn) -o gt
 *   ./gt cora.npz 64
 *
 * It runs on the CPU, so that its tensors are plain arrays; a program on a GPU
 * passes device pointers and its stream instead. */
#include <dfgnn.h>
#include <dfgnn_graph.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                              \
  if ((call) != DFGNN_OK) {                                                    \
    fprintf(stderr, "gt: %s\n", dfgnn_last_error());                           \
    return EXIT_FAILURE;                                                       \
  }

static float *random_matrix(int64_t rows, int64_t columns) {
  float *x = malloc((size_t)(rows * columns + 1) * sizeof *x);
  for (int64_t i = 0; x && i < rows * columns; i++)
    x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  return x;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: gt GRAPH [DIM]\n");
    return 2;
  }
  dfgnn_csr *csr;
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_plan *plan;
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;

  options.device = "cpu";
  problem.op = DFGNN_OP_GT;
  problem.dim = argc > 2 ? atoi(argv[2]) : 64;

  TRY(dfgnn_csr_read(&csr, argv[1]));
  TRY(dfgnn_context_create(&ctx, &options));
  TRY(dfgnn_graph_create_csr(&graph, ctx, csr, NULL));
  TRY(dfgnn_plan_create(&plan, ctx, graph, &problem));

  float *out = random_matrix(csr->destinations, problem.dim);
  args.query = random_matrix(csr->destinations, problem.dim);
  args.key = random_matrix(csr->sources, problem.dim);
  args.value = random_matrix(csr->sources, problem.dim);
  args.out = out;
  size_t bytes = dfgnn_plan_workspace(plan);
  void *workspace = bytes ? aligned_alloc(256, bytes) : NULL;
  TRY(dfgnn_execute(plan, &args, workspace, NULL));

  printf("%s: %lld nodes, %lld edges\n", argv[1], (long long)csr->destinations,
         (long long)csr->edges);
  printf("variant: %s\n", dfgnn_plan_variant(plan));
  printf("chosen by: %s\n",
         dfgnn_name(DFGNN_NAMES_SOURCE, dfgnn_plan_source(plan)));
  if (csr->destinations)
    printf("out[0][0] = %g\n", (double)out[0]);

  free(workspace);
  free((void *)args.query);
  free((void *)args.key);
  free((void *)args.value);
  free(out);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
  return EXIT_SUCCESS;
}
