/* group.c - the functions of a body, the steps that each does, and the values
 * that it keeps */
#include "kernels/program/cpu/writer.h"

#include <string.h>

#include "kernels/program/cpu/body.h"
#include "kernels/program/cpu/choice.h"

enum {
  NARROW = 32,           /* numbers: rows of more are worth keeping in a loop */
  LOCAL_BYTES = 32 << 10 /* of a function's local values */
};

/* ---- what steps read ----------------------------------------------------- */

int dfgnn__writer_reads(const writer *w, int32_t n, int32_t *of) {
  int count = 0;
  for (int i = 0; i < at(w, n)->count; i++) {
    const int32_t a = argument(w, n, i);
    if (!w->job->lowered->fused[a])
      of[count++] = a;
    for (int j = 0; w->job->lowered->fused[a] && j < at(w, a)->count; j++)
      of[count++] = argument(w, a, j);
  }
  return count;
}

int dfgnn__writer_is_read(const writer *w, int32_t reader, int32_t n) {
  int32_t of[2 * DFGNN_DAG_CAT];
  for (int i = dfgnn__writer_reads(w, reader, of) - 1; i >= 0; i--)
    if (of[i] == n)
      return 1;
  return 0;
}

int dfgnn__writer_looks_at_edges(const writer *w, const dfgnn_step *step) {
  const int op = at(w, step->node)->op;
  if (step->kind != DFGNN_STEP_COMPUTE)
    return 0;
  return step->level == DFGNN_LEVEL_EDGE ||
         (dfgnn__node_reduces(op) && op != DFGNN_NODE_SUM_ALL);
}

/* The evaluator's operand_of() says the same of the memory. */
reach dfgnn__writer_reach(const writer *w, int32_t n) {
  const dfgnn_node *node = at(w, n);
  const int own = (int)w->walk->own;
  if (node->place <= DFGNN_PLACE_PARAM)
    return ONCE;
  if (node->place == own)
    return OF_ROW;
  if (w->made[n] || node->op == DFGNN_NODE_KEEP)
    return OF_EDGE;
  if (node->place != DFGNN_PLACE_EDGE)
    return OF_END;
  const int converted = node->op == DFGNN_NODE_INPUT &&
                        w->job->inputs[node->index].dtype !=
                            (w->is_double ? DFGNN_F64 : DFGNN_F32);
  return own == DFGNN_PLACE_DST || converted ? OF_EDGE : OF_END;
}

/* ---- shapes and order ---------------------------------------------------- */

static int is_elementwise(int op) {
  return binary_of(op) != BINARIES || op == DFGNN_NODE_WHERE ||
         op == DFGNN_NODE_POW || op == DFGNN_NODE_DETACH ||
         (op >= DFGNN_NODE_EXP && op <= DFGNN_NODE_LEAKY);
}

shape dfgnn__writer_shape(const writer *w, int32_t n) {
  int edges = 0;
  if (at(w, n)->op == DFGNN_NODE_LSE)
    return SCORES;
  if (!is_elementwise(at(w, n)->op) || extent(w, n)->all >= NARROW)
    return EACH_EDGE;
  for (int i = 0; i < at(w, n)->count; i++) {
    const int32_t a = argument(w, n, i);
    const int flat = dfgnn__writer_reach(w, a) == OF_EDGE &&
                     extent(w, a)->all == extent(w, n)->all;
    if (!flat && !(dfgnn__writer_reach(w, a) == ONCE && extent(w, a)->all == 1))
      return EACH_EDGE;
    edges += flat;
  }
  return edges ? FLAT : EACH_EDGE;
}

/* Can a step be done, of a list some of whose steps are in functions? */
static int is_ready(const writer *w, int32_t n) {
  for (int i = 0; i < w->step_count; i++)
    if (w->group[w->steps[i]] < 0 && dfgnn__writer_is_read(w, n, w->steps[i]))
      return 0;
  return 1;
}

int dfgnn__writer_group(writer *w, int first) {
  int group = first, left = w->step_count, idle = 0;
  for (int i = 0; i < w->step_count; i++)
    w->group[w->steps[i]] = -1;
  for (shape s = EACH_EDGE; left; s = s == SCORES ? EACH_EDGE : s + 1) {
    int count = 0;
    for (int i = 0; i < w->step_count && count < BODY_NODES / 8; i++) {
      const int32_t n = w->steps[i];
      if (w->group[n] < 0 && dfgnn__writer_shape(w, n) == s && is_ready(w, n)) {
        w->group[n] = group;
        count += 1 + at(w, n)->count / 4;
        left--;
      }
    }
    group += count > 0;
    idle = count ? 0 : idle + 1;
    if (idle > 3)
      return -1; /* a list without its arguments, which lower.c does not make */
  }
  return group;
}

int dfgnn__writer_is_cheap(const writer *w, int32_t n) {
  const int op = at(w, n)->op, two = binary_of(op);
  if (dfgnn__writer_reach(w, n) != OF_EDGE || extent(w, n)->all < NARROW ||
      !((two != BINARIES && two != BINARY_atan2) || op == DFGNN_NODE_WHERE ||
        op == DFGNN_NODE_LEAKY || op == DFGNN_NODE_RELU))
    return 0;
  for (int i = 0; i < at(w, n)->count; i++) {
    const int32_t a = argument(w, n, i);
    if (dfgnn__writer_reach(w, a) == OF_EDGE && w->made[a] && !w->cheap[a])
      return 0;
  }
  return 1;
}

/* Does the function that reads a value make it again? */
static int makes_cheap(const writer *w, int32_t reader, int32_t n) {
  return w->cheap[n] && w->group[reader] >= 0 &&
         dfgnn__writer_shape(w, reader) == EACH_EDGE;
}

/* Is a value of the list read by its own function alone, or made again? */
static int is_local(const writer *w, int32_t n, int long_row) {
  if (dfgnn__node_reduces(at(w, n)->op) ||
      dfgnn__writer_shape(w, n) != EACH_EDGE)
    return 0;
  for (int i = 0; i < w->walk->count; i++) {
    const dfgnn_step *step = &w->walk->steps[i];
    if (step->kind != DFGNN_STEP_COMPUTE) {
      if (dfgnn__step_value(w->dag, step) == n)
        return 0;
    } else if (dfgnn__writer_looks_at_edges(w, step) &&
               dfgnn__writer_is_read(w, step->node, n) &&
               w->group[step->node] != w->group[n] &&
               !makes_cheap(w, step->node, n) &&
               (!long_row || w->group[step->node] >= 0)) {
      return 0;
    }
  }
  return 1;
}

void dfgnn__writer_locals(writer *w, int first, int end, int long_row) {
  uint8_t *slots = w->body->slots + w->walk_number * w->dag->count;
  memset(w->local, 0, (size_t)w->dag->count);
  for (int group = first; group < end; group++) {
    int64_t room = LOCAL_BYTES / 8;
    for (int i = 0; i < w->step_count; i++) {
      const int32_t n = w->steps[i];
      if (w->group[n] != group)
        continue;
      if (is_local(w, n, long_row) && extent(w, n)->all <= room) {
        w->local[n] = 1;
        room -= extent(w, n)->all;
      } else {
        slots[n] = 1;
      }
    }
  }
}
