/* The text of an MLP on edges: it is refused with a reason, or what it is
 * printed as parses to the same problem. */
#include "dfgnn_mlp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_again(const dfgnn_problem *problem, dfgnn_pass pass) {
  dfgnn_problem again = DFGNN_PROBLEM_INIT;
  const char *text = dfgnn_edge_mlp_text(problem);
  if (!text ||
      dfgnn_edge_mlp_parse(&again, text, DFGNN_F32, DFGNN_MATH_F32, pass) ||
      again.mlp != problem->mlp)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  char *text = malloc(size + 1);
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = 0;
  for (int pass = DFGNN_PASS_FORWARD; pass <= DFGNN_PASS_BACKWARD; pass++)
    if (!dfgnn_edge_mlp_parse(&problem, text, DFGNN_F32, DFGNN_MATH_F32,
                              (dfgnn_pass)pass))
      same_again(&problem, (dfgnn_pass)pass);
    else if (!*dfgnn_last_error())
      abort();
  free(text);
  return 0;
}
