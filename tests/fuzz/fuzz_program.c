/* The text of an edge program: it is refused with a reason, or its normal form
 * parses to itself, and so does the program of its gradients. */
#include "dfgnn_program.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_again(const dfgnn_edge_program *program) {
  dfgnn_edge_program *again = NULL;
  const char *text = dfgnn_edge_program_text(program);
  if (!text || dfgnn_edge_program_create(&again, text) ||
      strcmp(text, dfgnn_edge_program_text(again)) ||
      dfgnn_edge_program_hash(program) != dfgnn_edge_program_hash(again))
    abort();
  dfgnn_edge_program_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  dfgnn_edge_program *program = NULL, *gradient = NULL;
  char *text = malloc(size + 1);
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = 0;
  if (!dfgnn_edge_program_create(&program, text)) {
    same_again(program);
    /* The gradient of a program without inputs gives nothing, which no text
     * says. */
    if (!dfgnn_edge_program_gradient(&gradient, program, NULL, NULL) &&
        dfgnn_edge_program_output_count(gradient) > 0)
      same_again(gradient);
    dfgnn_edge_program_destroy(gradient);
    dfgnn_edge_program_destroy(program);
  } else if (!*dfgnn_last_error()) {
    abort();
  }
  free(text);
  return 0;
}
