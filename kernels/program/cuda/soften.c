#include "kernels/program/cuda/plan.h"

static int32_t argument(const walk_plan *p, int32_t n, int i) {
  return dfgnn__dag_argument(p->dag, n, i);
}

static int op_of(const walk_plan *p, int32_t n) { return p->dag->nodes[n].op; }

static int is_lse(const walk_plan *p, int32_t n) {
  return op_of(p, n) == DFGNN_NODE_LSE;
}

/* The logsumexp of -1 * lse; -1: it is something else. */
static int32_t negated_lse(const walk_plan *p, int32_t n) {
  for (int i = 0; op_of(p, n) == DFGNN_NODE_MUL && i < 2; i++) {
    int32_t number = argument(p, n, i), other = argument(p, n, 1 - i);
    if (op_of(p, number) == DFGNN_NODE_NUMBER &&
        p->dag->nodes[number].number == -1 && is_lse(p, other))
      return other;
  }
  return -1;
}

/* Which argument of the weight's difference is -lse; -1: it is no weight. */
static int lse_side(const walk_plan *p, int32_t weight) {
  if (op_of(p, weight) != DFGNN_NODE_EXP ||
      op_of(p, argument(p, weight, 0)) != DFGNN_NODE_ADD)
    return -1;
  int32_t difference = argument(p, weight, 0);
  for (int i = 0; i < 2; i++) {
    int32_t lse = negated_lse(p, argument(p, difference, i));
    if (lse >= 0 && argument(p, lse, 0) == argument(p, difference, 1 - i))
      return i;
  }
  return -1;
}

int32_t dfgnn__plan_lse_of(const walk_plan *p, int32_t weight) {
  int32_t difference = argument(p, weight, 0);
  return negated_lse(p, argument(p, difference, lse_side(p, weight)));
}

/* The weight among the factors of a product; -1: none. */
static int32_t weight_in(const walk_plan *p, int32_t n) {
  if (lse_side(p, n) >= 0)
    return n;
  for (int i = 0; op_of(p, n) == DFGNN_NODE_MUL && i < 2; i++) {
    int32_t found = weight_in(p, argument(p, n, i));
    if (found >= 0)
      return found;
  }
  return -1;
}

static int is_register(const walk_plan *p, int32_t n) {
  return plan_class(p, n) != CLASS_OTHER;
}

/* Is all of a product but the weight there before `stage` ends?  Then, if mark,
 * its values are made in that stage too. */
static int rest_is_there(walk_plan *p, int32_t n, int32_t weight, int stage,
                         int mark) {
  if (n == weight)
    return 1;
  dfgnn_step *step = dfgnn__walk_step(p->walk, n);
  const int product = op_of(p, n) == DFGNN_NODE_MUL && weight_in(p, n) >= 0;
  if (product && !is_register(p, n))
    return 0;
  if (step && !product) {
    if (step->stage > stage || dfgnn__node_reduces(op_of(p, n)))
      return step->level == DFGNN_LEVEL_OWN && step->stage <= stage &&
             !dfgnn__node_reduces(op_of(p, n));
    if (mark)
      step->stages |= 1ull << stage;
  } else if (!step && !p->lowered->fused[n]) {
    return 1; /* a leaf */
  }
  for (int i = 0; i < p->dag->nodes[n].count; i++)
    if (!rest_is_there(p, argument(p, n, i), weight, stage, mark))
      return 0;
  return 1;
}

/* Takes a stage from the values that nothing in it needs any more. */
static void drop_needs(walk_plan *p, int stage) {
  const uint64_t bit = 1ull << stage;
  dfgnn_walk *walk = p->walk;
  for (int i = walk->count - 1; i >= 0; i--) {
    dfgnn_step *step = &walk->steps[i];
    int needed = 0;
    if (!(step->stages & bit) || step->kind != DFGNN_STEP_COMPUTE ||
        step->level != DFGNN_LEVEL_EDGE ||
        dfgnn__node_reduces(op_of(p, step->node)))
      continue;
    for (int k = 0; k < walk->count; k++) {
      const dfgnn_step *user = &walk->steps[k];
      if (!(user->stages & bit) || user == step)
        continue;
      if (user->kind != DFGNN_STEP_COMPUTE) {
        needed |= dfgnn__step_value(p->dag, user) == step->node;
        continue;
      }
      for (int j = 0; j < p->dag->nodes[user->node].count; j++) {
        int32_t a = argument(p, user->node, j);
        needed |= a == step->node;
        for (int m = 0; p->lowered->fused[a] && m < 2; m++)
          needed |= argument(p, a, m) == step->node;
      }
    }
    if (!needed)
      step->stages &= ~bit;
  }
}

/* Makes a sum of weighted values go along with the logsumexp, if it can. */
static int soften(walk_plan *p, int32_t sum) {
  int32_t a = argument(p, sum, 0), weight = weight_in(p, a);
  dfgnn_step *step = dfgnn__walk_step(p->walk, sum), *lse = NULL;
  if (weight >= 0)
    lse = dfgnn__walk_step(p->walk, dfgnn__plan_lse_of(p, weight));
  if (!lse || lse->stage + 1 != step->stage || !is_register(p, sum) ||
      !is_register(p, weight) ||
      !dfgnn__plan_aligned(p, plan_class(p, sum), weight) ||
      (a != weight && !p->lowered->fused[a] && !dfgnn__walk_step(p->walk, a)) ||
      !rest_is_there(p, a, weight, lse->stage, 0))
    return 0;
  rest_is_there(p, a, weight, lse->stage, 1);
  p->soft[sum] = weight;
  step->stage = lse->stage;
  step->stages = 1ull << lse->stage;
  drop_needs(p, lse->stage + 1);
  return 1;
}

void dfgnn__plan_soften(walk_plan *p) {
  int some = 0;
  for (int32_t n = 0; n < p->dag->count; n++) {
    const int op = op_of(p, n);
    p->soft[n] = -1;
    if (op == DFGNN_NODE_SUM && dfgnn__walk_step(p->walk, n))
      some |= soften(p, n);
  }
  if (some)
    dfgnn__walk_sort(p->walk);
}
