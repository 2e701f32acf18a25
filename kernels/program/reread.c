/* reread.c - sums over edges of what an earlier walk has written
 *
 * The gradients of the tensors of both ends of edges are often sums of the
 * gradient of a tensor of edges.  One walk makes that, writes it and sums it by
 * one end; the walk over the other end reads its rows.  Both have the same
 * terms, if they have the type of sums; one of 16 bits rounds those of the
 * second, which no comparison of bits (lowered->exact) stands, nor a result of
 * nodes that has another type. */
#include <stdlib.h>
#include <string.h>

#include "kernels/program/job.h"
#include "lib/base/error.h"

static int reads(const dfgnn_lowered *l, int32_t reader, int32_t n) {
  for (int k = 0; k < l->dag->nodes[reader].count; k++) {
    const int32_t a = dfgnn__dag_argument(l->dag, reader, k);
    if (a == n || (l->fused[a] && reads(l, a, n)))
      return 1;
  }
  return 0;
}

static int is_sum_of(const dfgnn_dag *dag, const dfgnn_step *step, int32_t n) {
  return dag->nodes[step->node].op == DFGNN_NODE_SUM &&
         dfgnn__dag_argument(dag, step->node, 0) == n;
}

/* Have all results of nodes this type? */
static int nodes_have(const dfgnn_program_job *job, dfgnn_dtype dtype) {
  const dfgnn_dag *dag = job->lowered->dag;
  int all = 1;
  for (int i = 0; i < dag->output_count; i++) {
    const int place = dag->outputs[i].place;
    all &= place <= DFGNN_PLACE_PARAM || place == DFGNN_PLACE_EDGE ||
           job->outputs[i].dtype == dtype;
  }
  return all;
}

/* Can a walk read an output in place of the value that it holds?  The first
 * walk that makes a value of edges writes it; a later one makes it again, and
 * sums it over edges, if it does nothing else with it. */
static int can_reread(const dfgnn_program_job *job, const dfgnn_walk *walk,
                      int output) {
  const dfgnn_lowered *l = job->lowered;
  const dfgnn_port *port = &l->dag->outputs[output];
  const int32_t n = port->node;
  const int is_double = dfgnn__program_is_double(job);
  const dfgnn_dtype dtype = job->outputs[output].dtype;
  const int same_bits = dtype == (is_double ? DFGNN_F64 : DFGNN_F32);
  if (port->place != DFGNN_PLACE_EDGE || !dfgnn__port_holds(l->dag, port) ||
      (!same_bits && (is_double || l->exact[n] || !nodes_have(job, dtype))))
    return 0;
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->kind == DFGNN_STEP_COMPUTE
            ? reads(l, step->node, n) && !is_sum_of(l->dag, step, n)
            : dfgnn__step_value(l->dag, step) == n)
      return 0;
  }
  return dfgnn__walk_step(walk, n) != NULL;
}

/* The bytes of an element of a value that a walk reads; 0: it makes it. */
static size_t element_bytes(const dfgnn_program_job *job,
                            const dfgnn_walk *walk, const int32_t *outputs,
                            int32_t n) {
  const dfgnn_node *node = &job->lowered->dag->nodes[n];
  if (outputs[n] >= 0)
    return dfgnn_dtype_size(job->outputs[outputs[n]].dtype);
  if (node->op == DFGNN_NODE_INPUT)
    return dfgnn_dtype_size(job->inputs[node->index].dtype);
  if (!job->lowered->stored[n] || dfgnn__walk_step(walk, n))
    return 0;
  return dfgnn__program_is_double(job) ? 8 : 4;
}

/* The bytes that an edge of a walk reads.  Gathered rows count half: caches
 * have some of them. */
static size_t edge_bytes(const dfgnn_program_job *job, dfgnn_walk *walk,
                         const int32_t *outputs, uint64_t *needs) {
  const dfgnn_dag *dag = job->lowered->dag;
  size_t bytes = 0;
  dfgnn__walk_needs(walk, needs, job->lowered, outputs);
  for (int32_t n = 0; n < dag->count; n++)
    if (needs[n] &&
        dfgnn__level(dag->nodes[n].place, walk->own) == DFGNN_LEVEL_EDGE)
      bytes += element_bytes(job, walk, outputs, n) *
               (size_t)job->extents[n].all *
               (dag->nodes[n].place == DFGNN_PLACE_EDGE ? 2 : 1);
  return bytes;
}

dfgnn_status dfgnn__program_reread(dfgnn_walk *walk, int32_t *outputs,
                                   const dfgnn_program_job *job, int number) {
  const dfgnn_dag *dag = job->lowered->dag;
  const dfgnn_walk *whole = &job->lowered->walks[number];
  const size_t bytes = (size_t)whole->count * sizeof *whole->steps;
  uint64_t *needs = malloc((size_t)dag->count * sizeof *needs);
  *walk = *whole;
  walk->steps = malloc(bytes ? bytes : 1);
  if (!needs || !walk->steps) {
    free(needs);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  memcpy(walk->steps, whole->steps, bytes);
  for (int32_t n = 0; n < dag->count; n++)
    outputs[n] = -1;
  for (int i = 0; i < dag->output_count; i++) {
    const int32_t n = dag->outputs[i].node;
    if (outputs[n] >= 0 || !can_reread(job, walk, i))
      continue;
    const size_t most = edge_bytes(job, walk, outputs, needs);
    outputs[n] = i;
    if (edge_bytes(job, walk, outputs, needs) > most)
      outputs[n] = -1;
  }
  dfgnn__walk_needs(walk, needs, job->lowered, outputs);
  walk->count = 0;
  for (int i = 0; i < whole->count; i++)
    if (walk->steps[i].level != DFGNN_LEVEL_EDGE || walk->steps[i].stages)
      walk->steps[walk->count++] = walk->steps[i];
  free(needs);
  return DFGNN_OK;
}

dfgnn_status dfgnn__program_terms(uint8_t **types,
                                  const dfgnn_program_job *job) {
  const dfgnn_lowered *l = job->lowered;
  const dfgnn_dag *dag = l->dag;
  dfgnn_status status = DFGNN_OK;
  int some = 0;
  int32_t *outputs = malloc((size_t)dag->count * sizeof *outputs);
  *types = calloc((size_t)dag->count, 1);
  if (!outputs || !*types)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int w = 0; !status && w < l->walk_count; w++) {
    dfgnn_walk walk;
    status = dfgnn__program_reread(&walk, outputs, job, w);
    for (int i = 0; !status && i < walk.count; i++) {
      const dfgnn_step *step = &walk.steps[i];
      if (step->kind != DFGNN_STEP_COMPUTE ||
          dag->nodes[step->node].op != DFGNN_NODE_SUM)
        continue;
      const int output = outputs[dfgnn__dag_argument(dag, step->node, 0)];
      const int dtype = output < 0 ? 0 : (int)job->outputs[output].dtype;
      if (dtype == DFGNN_F16 || dtype == DFGNN_BF16)
        some = (*types)[step->node] = (uint8_t)dtype;
    }
    free(walk.steps);
  }
  if (status || !some) {
    free(*types);
    *types = NULL;
  }
  free(outputs);
  return status;
}
