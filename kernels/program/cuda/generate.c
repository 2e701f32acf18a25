#define _GNU_SOURCE /* open_memstream */
#include <stdlib.h>
#include <string.h>

#include "kernels/program/cuda/code.h"
#include "lib/base/error.h"
#include "lib/base/locale.h"

static void write_members(writer *w) {
  const walk_plan *p = w->p;
  for (int32_t n = 0; n < w->dag->count; n++) {
    value_class c = plan_class(p, n);
    if ((p->made[n] == 1 + DFGNN_LEVEL_OWN && c != CLASS_OTHER) || p->kept[n])
      dfgnn__code_declare(w, "n", n, c, "");
  }
}

static int has_dropout(const writer *w) {
  int some = 0;
  for (int32_t n = 0; n < w->dag->count; n++)
    some |= w->job->lowered->needed[n] && at(w, n)->op == DFGNN_NODE_KEEP;
  return some;
}

static void write_prepare(writer *w, const dfgnn_generated_walk *about) {
  P("__device__ __forceinline__ void prepare() {\n%s",
    has_dropout(w) ? "read_seed();\n" : "");
  for (int32_t n = 0; n < w->dag->count; n++)
    if (w->p->kept[n] && at(w, n)->place <= DFGNN_PLACE_PARAM)
      dfgnn__code_load_leaf(w, n, "", "0");
  for (int k = 0; k < about->total_count; k++) {
    const dfgnn_program_total *t = &w->g->totals[about->total_first + k];
    value_class c = plan_class(w->p, t->node);
    place x;
    dfgnn__code_begin_state(w, t->node, c, &x);
    P("%s = A(0);\n", dfgnn__code_state_number(w, "", "t", t->node, c));
    dfgnn__code_end_loop(w, c);
  }
  P("}\n");
}

static void write_totals(writer *w, const dfgnn_generated_walk *about) {
  if (!about->totals)
    return;
  P("template <class J> __device__ __forceinline__ void totals(A *to, const J "
    "&how, bool lower) {\n");
  for (int k = 0; k < about->total_count; k++) {
    const dfgnn_program_total *t = &w->g->totals[about->total_first + k];
    value_class c = plan_class(w->p, t->node);
    place x;
    dfgnn__code_begin_state(w, t->node, c, &x);
    const char *z = dfgnn__code_state_number(w, "", "t", t->node, c);
    P("how.sum(%s);\n", z);
    if (c == CLASS_OTHER)
      P("if (lower && j < %lld)", (long long)extent(w, t->node)->all);
    else
      P("if (lower && %s)", dfgnn__code_is_writer(c));
    P(" to[%d + %s] = %s;\n", t->first, x.flat, z);
    dfgnn__code_end_loop(w, c);
  }
  P("}\n");
}

static void declare_totals(writer *w, const dfgnn_generated_walk *about) {
  for (int k = 0; k < about->total_count; k++) {
    int32_t n = w->g->totals[about->total_first + k].node;
    value_class c = plan_class(w->p, n);
    if (c == CLASS_OTHER)
      P("A t%d[%d];\n", n, dfgnn__code_shared_numbers(w, n));
    else
      dfgnn__code_declare(w, "t", n, c, "");
  }
}

static void write_walk(writer *w, int number) {
  const walk_plan *p = w->p;
  dfgnn_generated_walk *about = &w->g->walks[number];
  uint64_t edges = 0;
  dfgnn__code_find_cut(w, about);
  for (int stage = 0; stage < p->walk->stages; stage++)
    edges |= (uint64_t)dfgnn__code_has_edges(w, stage) << stage;
  P("\ntemplate <> struct walk<%d> : position<A_> {\nusing A = A_;\n"
    "using M = layout<%lld, %lld, %d, %d>;\n",
    number, (long long)p->heads, (long long)p->shape[2], p->vector, p->lanes);
  P("static constexpr int kLanes = %d, kGroup = %d, kUnroll = %d, kStages = "
    "%d;\nstatic constexpr int kOwnShared = %d, kEdgeShared = %d, kTotals = "
    "%d;\nstatic constexpr int kCut = %d, kState = %d;\n",
    p->lanes, p->group, p->unroll, p->walk->stages, p->own_shared,
    p->edge_shared, about->totals, about->cut, about->state);
  P("static constexpr bool has_edges(int s) { return %lluull >> s & 1; }\n",
    (unsigned long long)edges);
  write_members(w);
  declare_totals(w, about);
  write_prepare(w, about);
  write_totals(w, about);
  if (edges)
    dfgnn__code_write_ends(w);
  for (int stage = 0; stage < p->walk->stages; stage++)
    dfgnn__code_write_stage(w, stage);
  P("};\n");
}

/* ---- values of no place -------------------------------------------------- */

static int is_computed_param(const writer *w, int32_t n, int before) {
  const dfgnn_node *node = at(w, n);
  return w->job->lowered->needed[n] && node->place <= DFGNN_PLACE_PARAM &&
         w->job->lowered->before[n] == before &&
         node->op != DFGNN_NODE_SUM_ALL && node->op != DFGNN_NODE_INPUT &&
         node->op > DFGNN_NODE_KEEP;
}

static void write_params(writer *w, int before) {
  P("\ntemplate <> struct values<%d> {\nusing A = A_;\nstatic "
    "__device__ __forceinline__ void run(const program_walk &p, const unsigned "
    "long long *arrays_) {\nptx::wait_for_previous();\n"
    "ptx::let_next_begin();\nposition<A> here = {p, arrays_}; (void)here;\n%s",
    before, has_dropout(w) ? "here.read_seed();\n" : "");
  w->p = NULL;
  for (int32_t n = 0; n < w->dag->count; n++) {
    if (!is_computed_param(w, n, before))
      continue;
    place x = dfgnn__code_begin_loop(w, CLASS_OTHER, extent(w, n), 0,
                                     "threadIdx.x", "blockDim.x");
    dfgnn__code_write_element(w, n, &x);
    P("here.out<A>(%d)[j] = y;\n", w->g->array_of[n]);
    dfgnn__code_end_loop(w, CLASS_OTHER);
    P("__syncthreads();\n");
  }
  for (int i = 0;
       before == w->job->lowered->walk_count && i < w->dag->output_count; i++) {
    const dfgnn_port *port = &w->dag->outputs[i];
    if (port->place != DFGNN_PLACE_PARAM)
      continue;
    dfgnn_extent e = dfgnn__bind_port(port, w->job->binding);
    place x = dfgnn__code_begin_loop(w, CLASS_OTHER, &e, 0, "threadIdx.x",
                                     "blockDim.x");
    P("write(here.out<%s>(%d), j, %s);\n",
      dfgnn__code_type_name(w->job->outputs[i].dtype), w->dag->input_count + i,
      dfgnn__code_operand(w, port->node, &x));
    dfgnn__code_end_loop(w, CLASS_OTHER);
  }
  P("}\n};\n");
}

/* ---- the whole source ---------------------------------------------------- */

static const char head[] =
    "#include \"kernels/program/cuda/walk.cuh\"\n\n"
    "namespace dfgnn {\nnamespace edge_program {\n\n"
    "using A_ = %s;\n"
    "struct arrays { unsigned long long at[%d]; };\n"
    "template <int W> struct walk;\ntemplate <int W> struct values;\n"
    "";
static const char tail[] =
    "\n} // namespace edge_program\n\n"
    "template <int W>\n"
    "__global__ void edge_program_rows(const __grid_constant__ program_walk "
    "p, const __grid_constant__ edge_program::arrays a) {\n"
    "  edge_program::walk_rows<edge_program::walk<W>>(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_merge(const __grid_constant__ program_walk "
    "p, const __grid_constant__ edge_program::arrays a) {\n"
    "  edge_program::walk_merge<edge_program::walk<W>>(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_values(const __grid_constant__ program_walk "
    "p, const __grid_constant__ edge_program::arrays a) {\n"
    "  edge_program::values<W>::run(p, a.at);\n}\n"
    "template <int W>\n"
    "__global__ void edge_program_totals(const __grid_constant__ "
    "program_totals "
    "p) {\n"
    "  edge_program::add_totals<edge_program::A_>(p);\n}\n"
    "\n} // namespace dfgnn\n";

/* Numbers the arrays of nodes: what walks store for others, and values of no
 * place. */
static dfgnn_status number_arrays(dfgnn_generated *g,
                                  const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  g->array_count = dag->input_count + dag->output_count;
  for (int32_t n = 0; n < dag->count; n++) {
    const dfgnn_node *node = &dag->nodes[n];
    int computed =
        node->place <= DFGNN_PLACE_PARAM && node->op > DFGNN_NODE_KEEP;
    g->array_of[n] = -1;
    if (job->lowered->needed[n] && (computed || job->lowered->stored[n]))
      g->array_of[n] = g->array_count++;
  }
  if (g->array_count > DFGNN_GENERATED_ARRAYS)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the program's walks read and write %d arrays, at most "
                       "%d are passed to a kernel",
                       g->array_count, DFGNN_GENERATED_ARRAYS);
  return DFGNN_OK;
}

static void find_totals(dfgnn_generated *g, const dfgnn_program_job *job) {
  const dfgnn_lowered *l = job->lowered;
  for (int w = 0; w < l->walk_count; w++) {
    g->walks[w].total_first = g->total_count;
    for (int i = 0; i < l->walks[w].count; i++) {
      const dfgnn_step *step = &l->walks[w].steps[i];
      if (step->kind != DFGNN_STEP_COMPUTE ||
          l->dag->nodes[step->node].op != DFGNN_NODE_SUM_ALL)
        continue;
      g->totals[g->total_count++] = (dfgnn_program_total){
          .node = step->node, .walk = w, .first = g->walks[w].totals};
      g->walks[w].totals += (int)job->extents[step->node].all;
      g->walks[w].total_count++;
    }
  }
}

static dfgnn_status write_one_walk(writer *w, int number,
                                   const dfgnn_program_tuning *tuning) {
  const size_t nodes = (size_t)w->dag->count;
  dfgnn_walk walk = {0};
  walk_plan p = {.job = w->job,
                 .dag = w->dag,
                 .lowered = w->job->lowered,
                 .walk = &walk,
                 .generated = w->g,
                 .made = calloc(nodes, 1),
                 .spilled = calloc(nodes, 1),
                 .kept = calloc(nodes, 1),
                 .loaded = calloc(nodes, sizeof *p.loaded),
                 .soft = calloc(nodes, sizeof *p.soft),
                 .reread = calloc(nodes, sizeof *p.reread),
                 .slot = calloc(nodes, sizeof *p.slot)};
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  if (p.made && p.spilled && p.kept && p.loaded && p.soft && p.reread && p.slot)
    status = dfgnn__program_reread(&walk, p.reread, w->job, number);
  else
    dfgnn__fail(status, "out of memory");
  if (!status) {
    dfgnn__plan_layout(&p, tuning);
    dfgnn__plan_soften(&p);
    status = dfgnn__plan_memory(&p);
  }
  if (!status) {
    w->g->walks[number].lanes = p.lanes;
    w->g->walks[number].group = p.group;
    w->g->walks[number].own_shared = p.own_shared;
    w->g->walks[number].edge_shared = p.edge_shared;
    w->p = &p;
    write_walk(w, number);
    w->p = NULL;
  }
  free(p.made);
  free(p.spilled);
  free(p.kept);
  free(p.loaded);
  free(p.soft);
  free(p.reread);
  free(walk.steps);
  free(p.slot);
  return status;
}

static dfgnn_status generate(dfgnn_generated **generated,
                             const dfgnn_program_job *job,
                             const dfgnn_program_tuning *tuning) {
  const dfgnn_lowered *l = job->lowered;
  const size_t nodes = (size_t)l->dag->count;
  dfgnn_generated *g = calloc(1, sizeof *g);
  writer w = {.job = job, .dag = l->dag, .g = g};
  size_t bytes = 0;
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  w.written = calloc(nodes, 1);
  w.early = calloc(nodes, 1);
  w.texts = calloc(CODE_TEXTS, sizeof *w.texts);
  if (g) {
    g->array_of = calloc(nodes, sizeof *g->array_of);
    g->totals = calloc(nodes, sizeof *g->totals);
    g->is_double = dfgnn__program_is_double(job);
    g->long_row = tuning->long_row;
    w.to = open_memstream(&g->text, &bytes);
  }
  if (!g || !w.to || !w.written || !w.early || !w.texts || !g->array_of ||
      !g->totals) {
    dfgnn__fail(status, "out of memory");
    goto out;
  }
  if ((status = number_arrays(g, job)))
    goto out;
  find_totals(g, job);
  fprintf(w.to, head, g->is_double ? "double" : "float",
          g->array_count ? g->array_count : 1);
  for (int i = 0; !status && i < l->walk_count; i++)
    status = write_one_walk(&w, i, tuning);
  for (int i = 0; i <= l->walk_count; i++)
    write_params(&w, i);
  fputs(tail, w.to);
out:
  if (w.to && fclose(w.to) && !status)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int i = 0; i < w.text_count; i++)
    free(w.texts[i]);
  free(w.texts);
  free(w.written);
  free(w.early);
  if (status)
    dfgnn__generated_free(g);
  else
    *generated = g;
  return status;
}

void dfgnn__generated_free(dfgnn_generated *g) {
  if (!g)
    return;
  free(g->text);
  free(g->array_of);
  free(g->totals);
  free(g);
}

dfgnn_status dfgnn__program_generate(dfgnn_generated **generated,
                                     const dfgnn_program_job *job,
                                     const dfgnn_program_tuning *tuning) {
  const locale_t before = dfgnn__locale_begin();
  const dfgnn_status status = generate(generated, job, tuning);
  dfgnn__locale_end(before);
  return status;
}
