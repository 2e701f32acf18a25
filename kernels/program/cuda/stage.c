/* stage.c - what a walk does in a stage: the functions that walk.cuh calls */
#include <string.h>

#include "kernels/program/cuda/code.h"

static void begin_function(writer *w) {
  memset(w->written, 0, (size_t)w->dag->count);
}

void dfgnn__code_load_leaf(writer *w, int32_t n, const char *owner,
                           const char *item) {
  static const char *const loads[] = {
      [CLASS_HEADS] = "M::load_heads", [CLASS_MAIN] = "M::load"};
  value_class c = plan_class(w->p, n);
  const char *row = dfgnn__code_text(
      w, "in<%s>(%d) + %s * int64_t(%lld)", dfgnn__code_array_type(w, n),
      dfgnn__code_array_of(w, n), item, (long long)extent(w, n)->all);
  if (c == CLASS_ONE)
    P("%sn%d = read<A>(%s, 0);\n", owner, n, row);
  else
    P("%s(%sn%d, %s, lane);\n", loads[c], owner, n, row);
}

/* ---- the row ----------------------------------------------------------- */

static void write_own(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  begin_function(w);
  P("__device__ __forceinline__ void own(stage<%d>) {\n", stage);
  if (stage == 0)
    for (int32_t n = 0; n < w->dag->count; n++)
      if (w->p->kept[n] && at(w, n)->place > DFGNN_PLACE_PARAM)
        dfgnn__code_load_leaf(w, n, "", "row");
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->stage != stage || !dfgnn__plan_is_own(w->p, step) ||
        step->kind != DFGNN_STEP_COMPUTE)
      continue;
    dfgnn__code_write_parts(w, step->node, DFGNN_LEVEL_OWN);
    if (at(w, step->node)->op == DFGNN_NODE_SUM_ALL)
      dfgnn__code_write_reduce(w, step->node, "", "t", "writer");
    else
      dfgnn__code_write_value(w, step->node, DFGNN_LEVEL_OWN);
  }
  P("}\n");
}

static void write_kept(writer *w, int32_t n, const char *item,
                       const char *condition) {
  dfgnn__code_write_array(w, n, extent(w, n), "A", w->g->array_of[n], item,
                          condition);
}

static void write_store(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  P("__device__ __forceinline__ void store(stage<%d>) {\n", stage);
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (step->stage != stage || !dfgnn__plan_is_own(w->p, step))
      continue;
    if (step->kind == DFGNN_STEP_OUTPUT)
      dfgnn__code_write_output(w, step->node, "row", "writer");
    else if (step->kind == DFGNN_STEP_KEEP)
      write_kept(w, step->node, "row", "writer");
  }
  /* the next row's values take the same shared memory */
  P("%s}\n", w->p->own_shared ? "__syncwarp();\n" : "");
}

/* ---- edges ------------------------------------------------------------- */

/* Does a value read tensors or masks of edges, or what a walk has stored? */
static int reads_edges(const writer *w, int32_t n) {
  int some = 0;
  for (int i = 0; i < at(w, n)->count; i++) {
    const int32_t a = argument(w, n, i);
    some |= w->p->made[a] ? w->job->lowered->fused[a] && reads_edges(w, a)
                          : at(w, a)->place == DFGNN_PLACE_EDGE;
  }
  return some;
}

static int walk_reads_edges(const writer *w) {
  const dfgnn_walk *walk = w->p->walk;
  int some = 0;
  for (int i = 0; i < walk->count; i++)
    some |= walk->steps[i].kind == DFGNN_STEP_COMPUTE
                ? reads_edges(w, walk->steps[i].node)
                : !dfgnn__plan_is_own(w->p, &walk->steps[i]);
  return some;
}

/* ends(): an edge and its nodes of the far places.  tell(): those that another
 * lane has read. */
void dfgnn__code_write_ends(writer *w) {
  const dfgnn_place own = w->p->walk->own;
  const int by_rel = own == DFGNN_PLACE_REL;
  const int has_rel =
      !by_rel && dfgnn__program_needs_relations(w->job->lowered);
  const int in_order = own == DFGNN_PLACE_DST;
  const int has_id = by_rel || has_rel || walk_reads_edges(w);
  const char *far = in_order ? "src" : "dst";
  P("__device__ __forceinline__ edge_ends ends(int64_t e) const {\n"
    "edge_ends x = {};\nx.%s = __ldg(p.indices + e);\n",
    far);
  if (in_order)
    P("x.id = e;\n");
  else if (has_id)
    P("x.id = offsets_t{p.edge_ids, p.wide}[e];\n");
  P("%s%sreturn x;\n}\n", by_rel ? "x.src = __ldg(p.sources + x.id);\n" : "",
    has_rel ? "x.rel = __ldg(p.relations + x.id);\n" : "");
  P("__device__ __forceinline__ edge_ends tell(const edge_ends &from, int "
    "lane, int64_t e) const {\nedge_ends x = {};\n"
    "x.%s = __shfl_sync(kFullMask, from.%s, lane);\n",
    far, far);
  if (in_order)
    P("x.id = e;\n");
  else if (has_id)
    P("x.id = __shfl_sync(kFullMask, (long long)from.id, lane);\n");
  P("%s%sreturn x;\n}\n",
    by_rel ? "x.src = __shfl_sync(kFullMask, from.src, lane);\n" : "",
    has_rel ? "x.rel = __shfl_sync(kFullMask, from.rel, lane);\n" : "");
}

static void write_leaf(writer *w, int stage) {
  const uint64_t bit = 1ull << stage;
  P("struct leaf_%d { edge_ends ends;\n", stage);
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->loaded[n] & bit)
      dfgnn__code_declare(w, "n", n, plan_class(w->p, n), "");
  P("};\n__device__ leaf_%d leaf(stage<%d>) const;\n", stage, stage);
  P("__device__ __forceinline__ void load(stage<%d>, leaf_%d &x) const {\n",
    stage, stage);
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->loaded[n] & bit)
      dfgnn__code_load_leaf(w, n, "x.",
                            dfgnn__code_item_of(w, at(w, n)->place));
  P("}\n");
}

/* Is a step's reduction, if it is one, of this stage, and kept by rows? */
static int is_reduction(const writer *w, const dfgnn_step *step, int stage) {
  return step->stage == stage && dfgnn__plan_reduces_edges(w->p, step) &&
         at(w, step->node)->op != DFGNN_NODE_SUM_ALL;
}

/* Writes a function of the reductions of a stage. */
static void write_of_state(writer *w, int stage, const char *head,
                           void (*write)(writer *, int32_t), const char *tail) {
  const dfgnn_walk *walk = w->p->walk;
  P("%s", head);
  for (int i = 0; i < walk->count; i++)
    if (is_reduction(w, &walk->steps[i], stage))
      write(w, walk->steps[i].node);
  P("%s", tail);
}

/* ---- the edges of a stage ------------------------------------------------ */

static int is_early(const writer *w, int32_t n) { return w->early[n]; }

static int is_lse(const writer *w, const dfgnn_step *step) {
  return step->kind == DFGNN_STEP_COMPUTE &&
         at(w, step->node)->op == DFGNN_NODE_LSE;
}

/* Marks the values of edges that one is made of. */
static void mark_early(writer *w, int32_t n) {
  for (int i = 0; i < at(w, n)->count; i++) {
    const int32_t a = argument(w, n, i);
    if (w->early[a] || w->p->made[a] != 1 + DFGNN_LEVEL_EDGE ||
        dfgnn__node_reduces(at(w, a)->op))
      continue;
    w->early[a] = !w->job->lowered->fused[a];
    mark_early(w, a);
  }
}

/* Finds what the log-sum-exps of a stage look at, which U edges make before
 * any is added. */
static void find_early(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  memset(w->early, 0, (size_t)w->dag->count);
  for (int i = 0; i < walk->count; i++)
    if (walk->steps[i].stage == stage && is_lse(w, &walk->steps[i]))
      mark_early(w, walk->steps[i].node);
}

static void write_work(writer *w, int stage) {
  P("struct work_%d {\n", stage);
  for (int32_t n = 0; n < w->dag->count; n++)
    if (is_early(w, n) && plan_class(w->p, n) != CLASS_OTHER)
      dfgnn__code_declare(w, "n", n, plan_class(w->p, n), "");
  write_of_state(w, stage, "", dfgnn__code_declare_score, "");
  P("};\n__device__ work_%d work(stage<%d>) const;\n", stage, stage);
}

/* Gives the members of y the names that values have. */
static void name_work(writer *w) {
  static const char *const axes[] = {
      [CLASS_HEADS] = "[M::kChunks]", [CLASS_MAIN] = "[M::kMain]"};
  for (int32_t n = 0; n < w->dag->count; n++) {
    const value_class c = plan_class(w->p, n);
    if (!is_early(w, n) || c == CLASS_OTHER)
      continue;
    if (c == CLASS_ONE)
      P("A &n%d = y.n%d;\n", n, n);
    else
      P("A (&n%d)%s = y.n%d;\n", n, axes[c], n);
    P("(void)n%d;\n", n);
  }
}

static void write_before(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  begin_function(w);
  P("__device__ __forceinline__ void before(stage<%d>, work_%d &y, const "
    "leaf_%d &x, bool live) const {\n%s",
    stage, stage, stage, w->p->edge_shared ? "__syncwarp();\n" : "");
  name_work(w);
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (is_lse(w, step) && step->stage == stage) {
      dfgnn__code_write_parts(w, step->node, DFGNN_LEVEL_EDGE);
      dfgnn__code_write_score(w, step->node);
    } else if (step->kind == DFGNN_STEP_COMPUTE && is_early(w, step->node)) {
      dfgnn__code_write_parts(w, step->node, DFGNN_LEVEL_EDGE);
      dfgnn__code_write_value(w, step->node, DFGNN_LEVEL_EDGE);
    }
  }
  P("}\n");
}

static void write_raise(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  int some = 0;
  P("template <int N> __device__ __forceinline__ void raise(stage<%d>, "
    "state_%d &z, const work_%d *y) const {\n",
    stage, stage, stage);
  for (int i = 0; i < walk->count; i++)
    if (is_lse(w, &walk->steps[i]) && walk->steps[i].stage == stage) {
      if (!some++)
        P("bool raised = false;\n");
      dfgnn__code_write_top(w, walk->steps[i].node);
    }
  if (some)
    write_of_state(w, stage, "if (__any_sync(kFullMask, raised)) {\n",
                   dfgnn__code_write_raise, "}\n");
  P("}\n");
}

/* Adds an edge, of which values are there that before() has made. */
static void write_edge(writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  const uint64_t bit = 1ull << stage;
  begin_function(w);
  P("__device__ __forceinline__ void edge(stage<%d>, state_%d &z, work_%d &y, "
    "const leaf_%d &x, bool live) {\n",
    stage, stage, stage, stage);
  name_work(w);
  for (int i = 0; i < walk->count; i++) {
    const dfgnn_step *step = &walk->steps[i];
    if (dfgnn__plan_is_own(w->p, step) || !(step->stages & bit))
      continue;
    if (step->kind == DFGNN_STEP_OUTPUT) {
      dfgnn__code_write_output(w, step->node, "x.ends.id", "live");
      continue;
    }
    if (step->kind == DFGNN_STEP_KEEP) {
      write_kept(w, step->node, "x.ends.id", "live");
      continue;
    }
    if (is_early(w, step->node))
      continue;
    if (is_lse(w, step)) {
      dfgnn__code_write_weight(w, step->node);
      continue;
    }
    if (dfgnn__code_lse_beside(w, step->node) < 0)
      dfgnn__code_write_parts(w, step->node, DFGNN_LEVEL_EDGE);
    if (at(w, step->node)->op == DFGNN_NODE_SUM_ALL)
      dfgnn__code_write_reduce(w, step->node, "", "t", "live");
    else if (dfgnn__plan_reduces_edges(w->p, step))
      dfgnn__code_write_reduce(w, step->node, "z.", "z", "live");
    else
      dfgnn__code_write_made(w, step->node, DFGNN_LEVEL_EDGE);
  }
  P("}\n");
}

int dfgnn__code_has_edges(const writer *w, int stage) {
  const dfgnn_walk *walk = w->p->walk;
  int some = 0;
  for (int i = 0; i < walk->count; i++)
    some |= !dfgnn__plan_is_own(w->p, &walk->steps[i]) &&
            (walk->steps[i].stages >> stage & 1);
  return some;
}

void dfgnn__code_write_stage(writer *w, int stage) {
  write_own(w, stage);
  write_store(w, stage);
  if (!dfgnn__code_has_edges(w, stage))
    return;
  write_leaf(w, stage);
  write_of_state(w, stage, dfgnn__code_text(w, "struct state_%d {\n", stage),
                 dfgnn__code_declare_state, "};\n");
  write_of_state(
      w, stage,
      dfgnn__code_text(w,
                       "__device__ __forceinline__ state_%d begin(stage<%d>) "
                       "const {\nstate_%d z;\n",
                       stage, stage, stage),
      dfgnn__code_write_start, "return z;\n}\n");
  find_early(w, stage);
  write_work(w, stage);
  write_before(w, stage);
  write_raise(w, stage);
  write_edge(w, stage);
  write_of_state(
      w, stage,
      dfgnn__code_text(w,
                       "template <class J> __device__ __forceinline__ void "
                       "join(stage<%d>, state_%d &z, const J &how) const {\n",
                       stage, stage),
      dfgnn__code_write_join, "}\n");
  write_of_state(w, stage,
                 dfgnn__code_text(
                     w,
                     "template <class F> __device__ __forceinline__ void "
                     "numbers(stage<%d>, state_%d &z, const F &each) const {\n"
                     "int k = 0; (void)k;\n",
                     stage, stage),
                 dfgnn__code_write_numbers, "}\n");
  write_of_state(w, stage,
                 dfgnn__code_text(
                     w,
                     "__device__ __forceinline__ void finish(stage<%d>, const "
                     "state_%d &z) {\n",
                     stage, stage),
                 dfgnn__code_write_finish, "}\n");
}

void dfgnn__code_find_cut(writer *w, dfgnn_generated_walk *about) {
  const dfgnn_walk *walk = w->p->walk;
  int stages = 0;
  about->cut = -1;
  about->state = 0;
  for (int stage = 0; stage < walk->stages; stage++)
    if (dfgnn__code_has_edges(w, stage)) {
      stages++;
      about->cut = stage;
    }
  if (stages != 1)
    about->cut = -1;
  for (int i = 0; about->cut >= 0 && i < walk->count; i++)
    if (is_reduction(w, &walk->steps[i], about->cut))
      about->state += dfgnn__code_state_size(w, walk->steps[i].node);
}
