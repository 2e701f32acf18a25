/* gt_train.c - one step of gradient descent through a graph transformer layer
 *
 *   cc gt_train.c $(pkg-config --cflags --libs dfgnn) -lm -o gt_train
 *   ./gt_train cora.npz 64
 *
 * The loss is half the squared distance of out from a target, so that its
 * gradient is out - target.  Forward keeps out and lse, nothing by edges. */
#include <dfgnn.h>
#include <dfgnn_graph.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                              \
  if ((call) != DFGNN_OK) {                                                    \
    fprintf(stderr, "gt_train: %s\n", dfgnn_last_error());                     \
    return EXIT_FAILURE;                                                       \
  }

enum { QUERY, KEY, VALUE, INPUTS };

static float *matrix(int64_t numbers, int random) {
  float *x = calloc((size_t)numbers + 1, sizeof *x);
  for (int64_t i = 0; x && random && i < numbers; i++)
    x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  return x;
}

/* Writes the loss's gradient by out to grad; returns the loss. */
static double differentiate(float *grad, const float *out, const float *target,
                            int64_t numbers) {
  double loss = 0;
  for (int64_t i = 0; i < numbers; i++) {
    grad[i] = out[i] - target[i];
    loss += 0.5 * grad[i] * grad[i];
  }
  return loss;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: gt_train GRAPH [DIM]\n");
    return 2;
  }
  dfgnn_csr *csr;
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_problem forward = DFGNN_PROBLEM_INIT, backward;
  dfgnn_args args = DFGNN_ARGS_INIT;

  options.device = "cpu";
  forward.op = DFGNN_OP_GT;
  forward.dim = argc > 2 ? atoi(argv[2]) : 64;
  backward = forward;
  backward.pass = DFGNN_PASS_BACKWARD;
  TRY(dfgnn_csr_read(&csr, argv[1]));
  TRY(dfgnn_context_create(&ctx, &options));
  TRY(dfgnn_graph_create_csr(&graph, ctx, csr, NULL));

  int64_t rows = csr->destinations, numbers = rows * forward.dim;
  int64_t sizes[INPUTS] = {numbers, csr->sources * forward.dim,
                           csr->sources * forward.dim};
  float *input[INPUTS], *gradient[INPUTS];
  for (int k = 0; k < INPUTS; k++) {
    input[k] = matrix(sizes[k], 1);
    gradient[k] = matrix(sizes[k], 0);
  }
  float *out = matrix(numbers, 0), *grad_out = matrix(numbers, 0);
  float *target = matrix(numbers, 1), *lse = matrix(rows, 0);
  args.query = input[QUERY];
  args.key = input[KEY];
  args.value = input[VALUE];
  args.out = out;
  args.lse = lse;
  args.grad_out = grad_out;
  args.grad_query = gradient[QUERY];
  args.grad_key = gradient[KEY];
  args.grad_value = gradient[VALUE];

  for (int step = 0; step < 5; step++) {
    TRY(dfgnn_call(ctx, graph, &forward, &args, NULL));
    double loss = differentiate(grad_out, out, target, numbers);
    TRY(dfgnn_call(ctx, graph, &backward, &args, NULL));
    for (int k = 0; k < INPUTS; k++)
      for (int64_t i = 0; i < sizes[k]; i++)
        input[k][i] -= 0.1f * gradient[k][i];
    printf("step %d: loss %g\n", step, loss);
  }

  for (int k = 0; k < INPUTS; k++) {
    free(input[k]);
    free(gradient[k]);
  }
  free(out);
  free(grad_out);
  free(target);
  free(lse);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
  return EXIT_SUCCESS;
}
