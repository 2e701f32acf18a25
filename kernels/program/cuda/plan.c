#include "kernels/program/cuda/plan.h"

#include <math.h>
#include <string.h>

#include "kernels/common/cuda_host.h"
#include "lib/base/error.h"

enum {
  MOST_MAIN = 2048,        /* elements of the widest value */
  MOST_SHARED = 40 * 1024, /* bytes of a warp's values */
};

static int32_t argument(const walk_plan *p, int32_t n, int i) {
  return dfgnn__dag_argument(p->dag, n, i);
}

static int same_shape(const int64_t *a, const int64_t *b) {
  return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

value_class dfgnn__plan_class_of(const walk_plan *p, const dfgnn_extent *e) {
  if (e->all == 1)
    return CLASS_ONE;
  if (same_shape(e->axis, p->shape))
    return CLASS_MAIN;
  if (e->axis[2] == 1 && e->axis[0] == p->shape[0] && e->axis[1] == p->shape[1])
    return CLASS_HEADS;
  return CLASS_OTHER;
}

int dfgnn__plan_reduces_edges(const walk_plan *p, const dfgnn_step *step) {
  int op = step->kind == DFGNN_STEP_COMPUTE ? p->dag->nodes[step->node].op : 0;
  return step->kind == DFGNN_STEP_COMPUTE && dfgnn__node_reduces(op) &&
         (op != DFGNN_NODE_SUM_ALL || step->level == DFGNN_LEVEL_EDGE);
}

int dfgnn__plan_is_own(const walk_plan *p, const dfgnn_step *step) {
  return step->level == DFGNN_LEVEL_OWN && !dfgnn__plan_reduces_edges(p, step);
}

/* Does an operation read what its result's place and axes say? */
static int plan_elementwise(int op) {
  return (op >= DFGNN_NODE_ADD && op <= DFGNN_NODE_WHERE) ||
         op == DFGNN_NODE_EXPAND || dfgnn__node_reduces(op);
}

int dfgnn__plan_aligned(const walk_plan *p, value_class to, int32_t a) {
  value_class from = plan_class(p, a);
  if (from == CLASS_ONE || to == CLASS_OTHER)
    return from == CLASS_ONE;
  return from == to || (from == CLASS_HEADS && to == CLASS_MAIN);
}

int dfgnn__plan_folds_lanes(const walk_plan *p, int32_t n) {
  const dfgnn_node *node = &p->dag->nodes[n];
  value_class to = plan_class(p, n);
  if ((node->op != DFGNN_NODE_FSUM && node->op != DFGNN_NODE_FMAX) ||
      (node->op == DFGNN_NODE_FSUM && p->lowered->exact[n]) ||
      node->axis != 2 || plan_class(p, argument(p, n, 0)) != CLASS_MAIN)
    return 0;
  return to == CLASS_HEADS || (to == CLASS_ONE && p->heads == 1);
}

/* ---- the widest shape ---------------------------------------------------- */

static int is_leaf(const dfgnn_node *node) {
  return node->op <= DFGNN_NODE_KEEP;
}

/* The shape that most of the work has. */
static void choose_shape(walk_plan *p) {
  double best = 0;
  p->shape[0] = p->shape[1] = p->shape[2] = 1;
  for (int32_t n = 0; n < p->dag->count; n++) {
    const dfgnn_extent *e = plan_extent(p, n);
    double score = 0;
    if (!p->lowered->needed[n] || p->dag->nodes[n].place <= DFGNN_PLACE_PARAM ||
        e->all > MOST_MAIN)
      continue;
    for (int32_t k = 0; k < p->dag->count; k++)
      if (p->lowered->needed[k] && p->dag->nodes[k].place > DFGNN_PLACE_PARAM &&
          same_shape(plan_extent(p, k)->axis, e->axis) &&
          (p->made[k] || is_leaf(&p->dag->nodes[k])))
        score += sqrt((double)e->all);
    if (score > best) {
      best = score;
      memcpy(p->shape, e->axis, sizeof p->shape);
    }
  }
  p->heads = p->shape[0] * p->shape[1];
}

static int least(int a, int b) { return a < b ? a : b; }

static void choose_lanes(walk_plan *p, const dfgnn_program_tuning *t) {
  p->vector = least(t->vector, p->generated->is_double ? 2 : 4);
  while (p->shape[2] % p->vector)
    p->vector /= 2;
  int head = dfgnn__ceil_power((p->shape[2] + p->vector - 1) / p->vector);
  int all = dfgnn__ceil_power(p->heads * head);
  p->lanes = least(all, t->lanes);
  p->group = t->group;
  p->unroll = t->unroll;
}

/* ---- what is made, and how it is read ------------------------------------ */

static void find_made(walk_plan *p) {
  for (int i = 0; i < p->walk->count; i++) {
    const dfgnn_step *step = &p->walk->steps[i];
    if (step->kind != DFGNN_STEP_COMPUTE)
      continue;
    int32_t n = step->node;
    const dfgnn_node *node = &p->dag->nodes[n];
    if (node->op != DFGNN_NODE_SUM_ALL)
      p->made[n] = 1 + step->level;
    for (int k = 0; k < node->count; k++) {
      int32_t a = argument(p, n, k);
      if (p->lowered->fused[a])
        p->made[a] = 1 + (dfgnn__plan_reduces_edges(p, step) ? DFGNN_LEVEL_EDGE
                                                             : step->level);
    }
  }
}

/* Notes how argument a is read by a value, or an output, of class `to`. */
static void read_argument(walk_plan *p, int32_t a, int aligned,
                          uint64_t stages) {
  const dfgnn_node *node = &p->dag->nodes[a];
  value_class c = plan_class(p, a);
  if (node->op <= DFGNN_NODE_DEGREE || node->op == DFGNN_NODE_KEEP)
    return; /* numbers, and masks that are made where they are read */
  if (p->made[a]) {
    p->spilled[a] |= !aligned && c != CLASS_OTHER;
  } else if (aligned || c == CLASS_ONE) {
    int level = dfgnn__level(node->place, p->walk->own);
    if (level == DFGNN_LEVEL_EDGE)
      p->loaded[a] |= stages;
    else
      p->kept[a] = 1;
  }
}

static void read_by(walk_plan *p, int32_t n, uint64_t stages);

/* The factors of a product that has a weight among them. */
static void read_beside(walk_plan *p, int32_t n, int32_t weight,
                        uint64_t stages) {
  const dfgnn_node *node = &p->dag->nodes[n];
  if (n == weight || node->op != DFGNN_NODE_MUL)
    return;
  if (!p->lowered->fused[n]) /* those are looked at for any sum */
    read_by(p, n, stages);
  for (int i = 0; i < node->count; i++)
    read_beside(p, argument(p, n, i), weight, stages);
}

static void read_by(walk_plan *p, int32_t n, uint64_t stages) {
  const dfgnn_node *node = &p->dag->nodes[n];
  for (int i = 0; i < node->count; i++) {
    int32_t a = argument(p, n, i);
    if (p->soft[n] >= 0 && a != p->soft[n]) /* the factors beside the weight */
      read_beside(p, a, p->soft[n], stages);
    int aligned = plan_class(p, a) == CLASS_ONE ||
                  dfgnn__plan_folds_lanes(p, n) ||
                  (plan_elementwise(node->op) &&
                   dfgnn__plan_aligned(p, plan_class(p, n), a));
    read_argument(p, a, aligned, stages);
    if (p->lowered->fused[a])
      read_by(p, a, stages);
  }
}

static void find_reads(walk_plan *p) {
  for (int i = 0; i < p->walk->count; i++) {
    const dfgnn_step *step = &p->walk->steps[i];
    if (step->kind == DFGNN_STEP_COMPUTE) {
      read_by(p, step->node, step->stages);
    } else if (step->kind == DFGNN_STEP_OUTPUT) {
      const dfgnn_port *port = &p->dag->outputs[step->node];
      dfgnn_extent e = dfgnn__bind_port(port, p->job->binding);
      read_argument(
          p, port->node,
          dfgnn__plan_aligned(p, dfgnn__plan_class_of(p, &e), port->node),
          step->stages);
    }
  }
}

static dfgnn_status find_slots(walk_plan *p) {
  int64_t own = 0, edge = 0;
  for (int32_t n = 0; n < p->dag->count; n++) {
    p->slot[n] = -1;
    if (!p->made[n] || !(p->spilled[n] || plan_class(p, n) == CLASS_OTHER))
      continue;
    int64_t *to = p->made[n] == 1 + DFGNN_LEVEL_OWN ? &own : &edge;
    p->slot[n] = (int32_t)*to;
    *to += plan_extent(p, n)->all;
  }
  const int64_t number = p->generated->is_double ? 8 : 4;
  const int64_t bytes =
      number * (own * (32 / p->group) + edge * (32 / p->lanes));
  if (bytes > MOST_SHARED) {
    if (p->lanes < 32) { /* fewer sides */
      p->lanes = p->group = 32;
      return find_slots(p);
    }
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "values of an edge that are of other shapes than its "
                       "rows take %lld bytes of shared memory, at most %d "
                       "are there",
                       (long long)bytes, MOST_SHARED);
  }
  p->own_shared = (int)own;
  p->edge_shared = (int)edge;
  return DFGNN_OK;
}

void dfgnn__plan_layout(walk_plan *p, const dfgnn_program_tuning *tuning) {
  find_made(p);
  choose_shape(p);
  choose_lanes(p, tuning);
}

dfgnn_status dfgnn__plan_memory(walk_plan *p) {
  find_reads(p);
  return find_slots(p);
}
