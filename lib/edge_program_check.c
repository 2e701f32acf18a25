/* edge_program_check.c - a program's results beside an evaluation in double */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/number.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"

dfgnn_program_errors
dfgnn__edge_program_errors(const dfgnn_program_array *array,
                           const double *values, const double *bounds,
                           int64_t count) {
  dfgnn_program_errors worst = {0};
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(values[i])) {
      squares += values[i] * values[i];
      finite++;
    }
  const double rms = finite ? sqrt(squares / (double)finite) : 0;
  for (int64_t i = 0; i < count; i++) {
    double have = dfgnn__number_at(array->dtype, array->data, i),
           want = dfgnn__in_range(array->dtype, values[i]);
    double bound = bounds[i] + dfgnn__rounding(array->dtype, values[i]);
    double error = fabs(have - want), ratio = error / bound;
    if (have == want || (isnan(have) && isnan(want)))
      continue;
    if (isinf(bound) || isnan(bound) ||
        isinf(dfgnn__in_range(array->dtype, fabs(want) + bound)))
      continue;
    if (isnan(ratio))
      ratio = INFINITY;
    if (!(error / (fabs(want) + rms) <= worst.relative))
      worst.relative = error / (fabs(want) + rms);
    if (ratio > worst.of_bound)
      worst = (dfgnn_program_errors){.of_bound = ratio,
                                     .relative = worst.relative,
                                     .at = i,
                                     .found = have,
                                     .expected = want,
                                     .bound = bound};
  }
  return worst;
}

void dfgnn__edge_program_expected_free(dfgnn_program_expected *expected) {
  for (int i = 0; i < DFGNN_DAG_OUTPUTS; i++) {
    free(expected->values[i]);
    free(expected->bounds[i]);
  }
  memset(expected, 0, sizeof *expected);
}

dfgnn_status dfgnn__edge_program_expect(dfgnn_program_expected *expected,
                                        const dfgnn_edge_program *program,
                                        const dfgnn_program_job *job,
                                        int on_gpu) {
  const dfgnn_dag *dag = job->lowered->dag;
  const dfgnn_dtype sums =
      dfgnn__edge_program_dtype(dag, job->inputs, job->outputs) == DFGNN_F64
          ? DFGNN_F64
          : DFGNN_F32;
  dfgnn_status status = DFGNN_OK;
  uint8_t *types = NULL;
  memset(expected, 0, sizeof *expected);
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_port *port = &dag->outputs[i];
    const int64_t count = job->binding->counts[port->place] *
                          dfgnn__bind_port(port, job->binding).all;
    const size_t bytes = ((size_t)count + 1) * sizeof(double);
    expected->counts[i] = count;
    expected->values[i] = malloc(bytes);
    expected->bounds[i] = malloc(bytes);
    if (!expected->values[i] || !expected->bounds[i])
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  if (!status && on_gpu)
    status = dfgnn__program_terms(&types, job);
  /* sums of rounded terms are those of the program as it is lowered */
  if (!status)
    status = dfgnn__program_reference(
        job, types || !program->written ? dag : program->written, sums, types,
        expected->values, expected->bounds);
  if (status)
    dfgnn__edge_program_expected_free(expected);
  free(types);
  return status;
}
