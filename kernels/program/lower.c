#include "kernels/program/lower.h"

#include <limits.h>
#include <stdlib.h>

#include "kernels/program/make.h"

/* The order of walks that is being found. */
typedef struct search {
  const dfgnn_dag *dag;
  const uint8_t *needed;
  const uint8_t *far_kept; /* values that other walks do not make again */
  uint8_t *done;           /* stored, or of PARAM level and known */
  uint8_t *can;            /* in the walk that is looked at */
  uint8_t output_done[DFGNN_DAG_OUTPUTS];
} search;

static int32_t argument(const dfgnn_dag *dag, int32_t n, int i) {
  return dfgnn__dag_argument(dag, n, i);
}

/* Values of PARAM level that follow from what is done. */
static void settle_params(search *s) {
  for (int32_t n = 0; n < s->dag->count; n++) {
    const dfgnn_node *node = &s->dag->nodes[n];
    if (s->done[n] || node->place > DFGNN_PLACE_PARAM ||
        node->op == DFGNN_NODE_SUM_ALL)
      continue;
    int ready = 1;
    for (int i = 0; i < node->count; i++)
      ready &= s->done[argument(s->dag, n, i)];
    s->done[n] = (uint8_t)ready;
  }
}

/* Lists the nodes that a walk can compute. */
static void look(search *s, int own) {
  for (int32_t n = 0; n < s->dag->count; n++) {
    const dfgnn_node *node = &s->dag->nodes[n];
    int can = s->done[n] || dfgnn__node_is_leaf(node->op);
    if (!can && node->place > DFGNN_PLACE_PARAM) {
      int far = node->place != DFGNN_PLACE_EDGE && node->place != own;
      can = !(far && (dfgnn__node_reduces(node->op) || s->far_kept[n]));
      for (int i = 0; i < node->count; i++)
        can &= s->can[argument(s->dag, n, i)];
    }
    s->can[n] = (uint8_t)can;
  }
}

/* Is a value's sum over everything made in this walk? */
static int sums_all(const search *s, int32_t n, int own) {
  const dfgnn_node *node = &s->dag->nodes[n];
  if (node->op != DFGNN_NODE_SUM_ALL)
    return 0;
  int32_t a = argument(s->dag, n, 0);
  int place = s->dag->nodes[a].place;
  return s->can[a] && (place == DFGNN_PLACE_EDGE || place == own);
}

/* Is a value of the own place, or of edges, stored by this walk? */
static int keeps(const search *s, int32_t n, int own) {
  const dfgnn_node *node = &s->dag->nodes[n];
  if (!s->can[n] || dfgnn__node_is_leaf(node->op))
    return 0;
  return node->place == own ? dfgnn__node_reduces(node->op) || s->far_kept[n]
                            : node->place == DFGNN_PLACE_EDGE && s->far_kept[n];
}

static int writes(const search *s, int output, int own) {
  const dfgnn_port *port = &s->dag->outputs[output];
  return s->can[port->node] &&
         (port->place == DFGNN_PLACE_EDGE || (int)port->place == own);
}

/* ---- steps of a walk ----------------------------------------------------- */

typedef struct builder {
  search *s;
  dfgnn_place own;
  uint8_t *wanted, *stage, *sink;
  dfgnn_walk *walk;
  const dfgnn_lowered *lowered;
  uint64_t *needs;
} builder;

static dfgnn_level level_of(const builder *b, int32_t n) {
  return dfgnn__level(b->s->dag->nodes[n].place, b->own);
}

static int is_made_here(const builder *b, int32_t n) {
  const dfgnn_node *node = &b->s->dag->nodes[n];
  return !b->s->done[n] && !dfgnn__node_is_leaf(node->op);
}

/* A reduction is there for the stage after that of its edges. */
static int ready(const builder *b, int32_t n) {
  return b->stage[n] +
         (is_made_here(b, n) && dfgnn__node_reduces(b->s->dag->nodes[n].op));
}

static void set_stages(builder *b) {
  const dfgnn_dag *dag = b->s->dag;
  for (int32_t n = 0; n < dag->count; n++) {
    b->stage[n] = 0;
    if (!is_made_here(b, n) || !b->wanted[n])
      continue;
    for (int i = 0; i < dag->nodes[n].count; i++) {
      int stage = ready(b, argument(dag, n, i));
      if (stage > b->stage[n])
        b->stage[n] = (uint8_t)(stage < 255 ? stage : 255);
    }
  }
}

static dfgnn_step *add_step(builder *b, dfgnn_step_kind kind, int level,
                            int stage, int32_t node) {
  dfgnn_step *step = &b->walk->steps[b->walk->count++];
  *step = (dfgnn_step){.kind = kind,
                       .level = (uint8_t)level,
                       .stage = (uint8_t)stage,
                       .node = node};
  if (stage + 1 > b->walk->stages)
    b->walk->stages = stage + 1;
  if (level == DFGNN_LEVEL_EDGE)
    b->walk->edges = 1;
  return step;
}

/* Is a step a sum over edges, or a write of them? */
static int ends_edges(const dfgnn_dag *dag, const dfgnn_step *step) {
  if (step->kind != DFGNN_STEP_COMPUTE)
    return step->level == DFGNN_LEVEL_EDGE;
  return dfgnn__node_reduces(dag->nodes[step->node].op);
}

void dfgnn__walk_needs(dfgnn_walk *walk, uint64_t *needs,
                       const dfgnn_lowered *l, const int32_t *outputs) {
  const dfgnn_dag *dag = l->dag;
  memset(needs, 0, (size_t)dag->count * sizeof *needs);
  for (int i = walk->count - 1; i >= 0; i--) {
    dfgnn_step *step = &walk->steps[i];
    uint64_t bits = 0;
    if (step->kind == DFGNN_STEP_COMPUTE &&
        !(outputs && outputs[step->node] >= 0))
      bits = needs[step->node];
    if (ends_edges(dag, step))
      bits = 1ull << step->stage;
    step->stages = bits;
    if (step->kind != DFGNN_STEP_COMPUTE) {
      needs[dfgnn__step_value(dag, step)] |= bits;
      continue;
    }
    /* what a node needs is made by its own stage, before sums over edges */
    if (step->level != DFGNN_LEVEL_EDGE && !ends_edges(dag, step))
      continue;
    for (int k = 0; k < dag->nodes[step->node].count; k++) {
      int32_t a = argument(dag, step->node, k);
      needs[a] |= bits;
      for (int j = 0; l->fused[a] && j < dag->nodes[a].count; j++)
        needs[argument(dag, a, j)] |= bits;
    }
  }
}

dfgnn_step *dfgnn__walk_step(const dfgnn_walk *walk, int32_t n) {
  for (int i = 0; i < walk->count; i++)
    if (walk->steps[i].kind == DFGNN_STEP_COMPUTE && walk->steps[i].node == n)
      return &walk->steps[i];
  return NULL;
}

static int by_stage(const void *x, const void *y) {
  const dfgnn_step *a = x, *b = y;
  if (a->stage != b->stage)
    return a->stage - b->stage;
  if ((a->kind == DFGNN_STEP_COMPUTE) != (b->kind == DFGNN_STEP_COMPUTE))
    return a->kind == DFGNN_STEP_COMPUTE ? -1 : 1;
  if (a->kind != b->kind)
    return a->kind - b->kind;
  return (a->node > b->node) - (a->node < b->node);
}

void dfgnn__walk_sort(dfgnn_walk *walk) {
  qsort(walk->steps, (size_t)walk->count, sizeof *walk->steps, by_stage);
}

/* The nodes that the walk ends in: sums, kept values and outputs. */
static int find_sinks(builder *b) {
  search *s = b->s;
  int found = 0;
  for (int32_t n = 0; n < s->dag->count; n++) {
    b->sink[n] = 0;
    if (s->needed[n] && !s->done[n] &&
        (keeps(s, n, b->own) || sums_all(s, n, b->own)))
      found += b->sink[n] = 1;
  }
  for (int i = 0; i < s->dag->output_count; i++)
    found += !s->output_done[i] && writes(s, i, b->own);
  return found;
}

static void add_steps(builder *b) {
  search *s = b->s;
  const dfgnn_dag *dag = s->dag;
  memcpy(b->wanted, b->sink, (size_t)dag->count);
  for (int i = 0; i < dag->output_count; i++)
    if (!s->output_done[i] && writes(s, i, b->own))
      b->wanted[dag->outputs[i].node] = 1;
  for (int32_t n = dag->count - 1; n >= 0; n--)
    for (int i = 0;
         b->wanted[n] && is_made_here(b, n) && i < dag->nodes[n].count; i++)
      b->wanted[argument(dag, n, i)] = 1;
  set_stages(b);
  for (int32_t n = 0; n < dag->count; n++) {
    if (!b->wanted[n] || !is_made_here(b, n) || b->lowered->fused[n])
      continue;
    int level = dag->nodes[n].op == DFGNN_NODE_SUM_ALL
                    ? (int)level_of(b, argument(dag, n, 0))
                    : (int)level_of(b, n);
    add_step(b, DFGNN_STEP_COMPUTE, level, b->stage[n], n);
    if (dfgnn__node_reduces(dag->nodes[n].op) &&
        level_of(b, argument(dag, n, 0)) == DFGNN_LEVEL_EDGE)
      b->walk->edges = 1;
    if (keeps(s, n, b->own))
      add_step(b, DFGNN_STEP_KEEP, (int)level_of(b, n), ready(b, n), n);
  }
  for (int i = 0; i < dag->output_count; i++) {
    if (s->output_done[i] || !writes(s, i, b->own))
      continue;
    add_step(b, DFGNN_STEP_OUTPUT,
             dag->outputs[i].place == DFGNN_PLACE_EDGE ? DFGNN_LEVEL_EDGE
                                                       : DFGNN_LEVEL_OWN,
             ready(b, dag->outputs[i].node), i);
  }
  dfgnn__walk_sort(b->walk);
  dfgnn__walk_needs(b->walk, b->needs, b->lowered, NULL);
}

static void mark_done(builder *b) {
  search *s = b->s;
  for (int32_t n = 0; n < s->dag->count; n++)
    s->done[n] |= b->sink[n];
  for (int i = 0; i < s->dag->output_count; i++)
    s->output_done[i] |= (uint8_t)writes(s, i, b->own);
  settle_params(s);
}

/* ---- all walks ----------------------------------------------------------- */

static int all_done(const search *s) {
  int done = 1;
  for (int i = 0; i < s->dag->output_count; i++) {
    const dfgnn_port *port = &s->dag->outputs[i];
    done &= port->place == DFGNN_PLACE_PARAM ? s->done[port->node]
                                             : s->output_done[i];
  }
  return done;
}

/* These take no more than additions and products. */
static const uint8_t cheap[DFGNN_NODE_OPS] = {
    [DFGNN_NODE_ADD] = 1,    [DFGNN_NODE_MUL] = 1,    [DFGNN_NODE_SLICE] = 1,
    [DFGNN_NODE_EXPAND] = 1, [DFGNN_NODE_RELU] = 1,   [DFGNN_NODE_MAX] = 1,
    [DFGNN_NODE_CAT] = 1,    [DFGNN_NODE_RESHAPE] = 1};

/* Values of the far place that edges compute, and that are better stored: they
 * take more than additions and products, or are smaller than what they are
 * made of. */
static void find_far(const builder *b, uint8_t *far) {
  const dfgnn_dag *dag = b->s->dag;
  for (int i = 0; i < b->walk->count; i++) {
    const dfgnn_step *step = &b->walk->steps[i];
    if (step->kind != DFGNN_STEP_COMPUTE)
      continue;
    const dfgnn_node *node = &dag->nodes[step->node];
    const int far_away =
        dfgnn__place_rank(node->place) == 2 && node->place != b->own;
    if (far_away && !cheap[node->op])
      far[step->node] = 1;
  }
}

int dfgnn__program_needs_relations(const dfgnn_lowered *l) {
  int some = 0;
  for (int32_t n = 0; n < l->dag->count; n++)
    some |= l->needed[n] && l->dag->nodes[n].place == DFGNN_PLACE_REL;
  for (int i = 0; i < l->dag->output_count; i++)
    some |= l->dag->outputs[i].place == DFGNN_PLACE_REL;
  return some;
}

/* The place that a walk visits after another: they take turns. */
static dfgnn_place next_place(dfgnn_place own, int relations) {
  if (own == DFGNN_PLACE_DST)
    return DFGNN_PLACE_SRC;
  return own == DFGNN_PLACE_SRC && relations ? DFGNN_PLACE_REL
                                             : DFGNN_PLACE_DST;
}

static dfgnn_status find_walks(dfgnn_lowered *l, uint8_t *far,
                               dfgnn_place own) {
  const dfgnn_dag *dag = l->dag;
  size_t count = (size_t)dag->count;
  const int relations = dfgnn__program_needs_relations(l);
  dfgnn_status status = DFGNN_OK;
  search s = {.dag = dag,
              .needed = l->needed,
              .far_kept = far,
              .done = calloc(count, 1),
              .can = calloc(count, 1)};
  builder b = {.s = &s,
               .wanted = calloc(count, 1),
               .stage = calloc(count, 1),
               .sink = calloc(count, 1),
               .lowered = l,
               .needs = calloc(count, sizeof *b.needs)};
  uint8_t *found = calloc(count, 1);
  if (!s.done || !s.can || !b.wanted || !b.stage || !b.sink || !b.needs ||
      !found) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    goto out;
  }
  l->walk_count = 0;
  settle_params(&s);
  for (int32_t n = 0; n < dag->count; n++)
    l->before[n] = s.done[n] ? 0 : -1;
  for (int idle = 0; !all_done(&s); own = next_place(own, relations)) {
    b.own = own;
    look(&s, own);
    if (!find_sinks(&b)) {
      if (idle++ > relations) {
        status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                             "the program has a value that no walk computes");
        goto out;
      }
      continue;
    }
    idle = 0;
    if (l->walk_count == DFGNN_WALKS) {
      status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                           "the program takes more than %d walks over the "
                           "graph",
                           DFGNN_WALKS);
      goto out;
    }
    b.walk = &l->walks[l->walk_count];
    free(b.walk->steps);
    *b.walk = (dfgnn_walk){.own = own};
    b.walk->steps =
        calloc(2 * count + (size_t)dag->output_count, sizeof *b.walk->steps);
    if (!b.walk->steps) {
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
      goto out;
    }
    l->walk_count++;
    add_steps(&b);
    find_far(&b, found);
    if (b.walk->stages > DFGNN_WALK_STAGES) {
      status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                           "the program has reductions of reductions %d deep, "
                           "expected at most %d",
                           b.walk->stages, DFGNN_WALK_STAGES);
      goto out;
    }
    mark_done(&b);
    for (int32_t n = 0; n < dag->count; n++)
      if (s.done[n] && l->before[n] < 0)
        l->before[n] = l->walk_count;
  }
  for (int32_t n = 0; n < dag->count; n++)
    far[n] |= found[n];
out:
  free(s.done);
  free(s.can);
  free(b.wanted);
  free(b.stage);
  free(b.sink);
  free(b.needs);
  free(found);
  return status;
}

/* Is it a value of edges that has a number for each head, of more than
 * additions and products of others?  Its arguments are known. */
static int is_narrow(const dfgnn_dag *dag, int32_t n, uint8_t *dear) {
  const dfgnn_node *node = &dag->nodes[n];
  if (node->place != DFGNN_PLACE_EDGE || dfgnn__node_is_leaf(node->op))
    return 0;
  dear[n] = !cheap[node->op];
  for (int i = 0; i < node->count; i++)
    dear[n] |= dear[argument(dag, n, i)];
  return dear[n] && dfgnn__size_is(node->shape[0], 1) &&
         dfgnn__size_is(node->shape[2], 1);
}

static void mark_read(const dfgnn_lowered *l, int32_t n, uint8_t *read) {
  read[n] = 1;
  for (int i = 0; l->fused[n] && i < l->dag->nodes[n].count; i++)
    read[argument(l->dag, n, i)] = 1;
}

/* Marks the values that a step reads. */
static void mark_reads(const dfgnn_lowered *l, const dfgnn_step *step,
                       uint8_t *read) {
  if (step->kind == DFGNN_STEP_OUTPUT)
    mark_read(l, l->dag->outputs[step->node].node, read);
  for (int k = 0;
       step->kind == DFGNN_STEP_COMPUTE && k < l->dag->nodes[step->node].count;
       k++)
    mark_read(l, argument(l->dag, step->node, k), read);
}

/* Finds the narrow values that walks make again for others than narrow ones:
 * later walks read them in their place, if the first one stores them. */
static dfgnn_status find_edges(const dfgnn_lowered *l, uint8_t *kept) {
  const int32_t count = l->dag->count;
  uint8_t *flags = calloc(4 * (size_t)count, 1);
  uint8_t *narrow = flags, *dear = flags + count, *made = dear + count;
  uint8_t *read = made + count;
  if (!flags)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int32_t n = 0; n < count; n++)
    narrow[n] = (uint8_t)is_narrow(l->dag, n, dear);
  for (int w = 0; w < l->walk_count; w++) {
    const dfgnn_walk *walk = &l->walks[w];
    memset(read, 0, (size_t)count);
    for (int i = 0; i < walk->count; i++) {
      const dfgnn_step *step = &walk->steps[i];
      if (step->kind == DFGNN_STEP_COMPUTE &&
          !(narrow[step->node] && made[step->node]))
        mark_reads(l, step, read);
    }
    for (int32_t n = 0; n < count; n++)
      kept[n] |= narrow[n] && made[n] && read[n];
    for (int i = 0; i < walk->count; i++)
      if (walk->steps[i].kind == DFGNN_STEP_COMPUTE)
        made[walk->steps[i].node] = 1;
  }
  free(flags);
  return DFGNN_OK;
}

/* Takes away the kept values that no later walk reads. */
static void drop_keeps(dfgnn_lowered *l, uint8_t *used) {
  memset(used, 0, (size_t)l->dag->count);
  memset(l->stored, 0, (size_t)l->dag->count);
  for (int w = l->walk_count - 1; w >= 0; w--) {
    dfgnn_walk *walk = &l->walks[w];
    int left = 0;
    for (int i = 0; i < walk->count; i++) {
      dfgnn_step step = walk->steps[i];
      if (step.kind == DFGNN_STEP_KEEP && !used[step.node])
        continue;
      if (step.kind == DFGNN_STEP_KEEP)
        l->stored[step.node] = 1;
      walk->steps[left++] = step;
    }
    walk->count = left;
    for (int i = 0; i < left; i++)
      mark_reads(l, &walk->steps[i], used);
  }
}

static void find_exact(dfgnn_lowered *l) {
  const dfgnn_dag *dag = l->dag;
  for (int32_t n = dag->count - 1; n >= 0; n--) {
    const int op = dag->nodes[n].op;
    if (!l->exact[n] && op != DFGNN_NODE_MAX_EDGES && op != DFGNN_NODE_EQ)
      continue;
    for (int i = 0; i < dag->nodes[n].count; i++)
      l->exact[argument(dag, n, i)] = 1;
  }
}

/* Products of two that one sum alone uses: over the last axis, or over edges.
 */
static void find_fused(dfgnn_lowered *l) {
  const dfgnn_dag *dag = l->dag;
  uint8_t *uses = calloc((size_t)dag->count, 1);
  if (!uses)
    return;
  for (int32_t n = 0; n < dag->count; n++)
    for (int i = 0; l->needed[n] && i < dag->nodes[n].count; i++)
      if (uses[argument(dag, n, i)] < 2)
        uses[argument(dag, n, i)]++;
  for (int i = 0; i < dag->output_count; i++)
    uses[dag->outputs[i].node] = 2;
  for (int32_t n = 0; n < dag->count; n++) {
    const dfgnn_node *node = &dag->nodes[n];
    if (!l->needed[n] || l->exact[n] ||
        !((node->op == DFGNN_NODE_FSUM && node->axis == 2) ||
          node->op == DFGNN_NODE_SUM))
      continue;
    int32_t a = argument(dag, n, 0);
    int together =
        node->op != DFGNN_NODE_FSUM || dag->nodes[a].place == node->place;
    if (dag->nodes[a].op == DFGNN_NODE_MUL && uses[a] == 1 && together)
      l->fused[a] = 1;
  }
  free(uses);
}

static int cost_of(const dfgnn_lowered *l) {
  int cost = 0;
  for (int i = 0; i < l->walk_count; i++)
    cost += l->walks[i].edges ? 8 : 1;
  return cost;
}

/* Values that are found to be better stored are stored the second time. */
static dfgnn_status find_twice(dfgnn_lowered *l, uint8_t *far,
                               dfgnn_place first) {
  memset(far, 0, (size_t)l->dag->count);
  DFGNN_TRY(find_walks(l, far, first));
  DFGNN_TRY(find_edges(l, far));
  return find_walks(l, far, first);
}

/* The walks of the place to begin with that takes the fewest. */
static dfgnn_status find_cheapest(dfgnn_lowered *l, uint8_t *far) {
  static const dfgnn_place places[] = {DFGNN_PLACE_DST, DFGNN_PLACE_SRC,
                                       DFGNN_PLACE_REL};
  dfgnn_place best = DFGNN_PLACE_DST;
  int least = INT_MAX;
  for (int i = 0; i < 2 + dfgnn__program_needs_relations(l); i++) {
    DFGNN_TRY(find_twice(l, far, places[i]));
    if (cost_of(l) < least) {
      least = cost_of(l);
      best = places[i];
    }
  }
  return find_twice(l, far, best);
}

dfgnn_status dfgnn__lower(dfgnn_lowered **lowered, const dfgnn_dag *dag) {
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  dfgnn_lowered *l = calloc(1, sizeof *l);
  uint8_t *far = NULL;
  int32_t roots[DFGNN_DAG_OUTPUTS];
  if (!l || !(l->dag = dfgnn__dag_pairs(dag)))
    goto out;
  size_t count = (size_t)l->dag->count;
  for (int i = 0; i < l->dag->output_count; i++)
    roots[i] = l->dag->outputs[i].node;
  l->needed = dfgnn__dag_needed(l->dag, roots, l->dag->output_count, NULL);
  l->stored = calloc(count, 1);
  l->fused = calloc(count, 1);
  l->exact = calloc(count, 1);
  l->before = calloc(count, sizeof *l->before);
  far = calloc(count, 1);
  if (!l->needed || !l->stored || !l->fused || !l->exact || !l->before || !far)
    goto out;
  find_exact(l);
  find_fused(l);
  if ((status = find_cheapest(l, far)))
    goto out;
  drop_keeps(l, far);
out:
  free(far);
  if (!status)
    *lowered = l;
  else
    dfgnn__lowered_free(l);
  return status;
}

void dfgnn__lowered_free(dfgnn_lowered *l) {
  if (!l)
    return;
  for (int i = 0; i < DFGNN_WALKS; i++)
    free(l->walks[i].steps);
  dfgnn__dag_free(l->dag);
  free(l->needed);
  free(l->stored);
  free(l->fused);
  free(l->exact);
  free(l->before);
  free(l);
}
