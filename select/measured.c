/* measured.c - the sources that rest on measurements: pins, exact and near */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/key.h"
#include "lib/operator.h"
#include "select/table.h"

/* Every variant of five cells was timed on 61 graphs of an H200: what is
 * fastest on the nearest other graph takes 1.04 times the best (worst 1.33) up
 * to this distance, 1.06 (1.47) from here to .7, and 1.11 (2.93) beyond. */
const double dfgnn__near = 0.5;

/* Giving up an extra (dropout, a bias, weights) adds this to a distance. */
#define EXTRA_DISTANCE 0.15
/* Distances that differ by less are equal: then the user's rows go first. */
#define SAME_DISTANCE 0.02

/* The keys of the problem that was asked for, or of one like it. */
typedef struct lookup {
  dfgnn_measurement key; /* the problem's fields, and units, alone */
  uint64_t gate, exact;
  double given_up; /* added to the distance for what the problem lacks */
} lookup;

static lookup lookup_of(const dfgnn_query *q, const dfgnn_problem *problem) {
  lookup l = {.gate = 0};
  dfgnn__key_fill(&l.key, problem, q->setting.matrix->offsets64);
  l.key.units = q->setting.device->units;
  l.gate = dfgnn__key_gate(&l.key);
  l.exact =
      dfgnn__fold(dfgnn__key_sized(&l.key), q->setting.signature->fingerprint);
  return l;
}

const dfgnn_decision *dfgnn__table_exact(const dfgnn_table *table,
                                         const dfgnn_query *query) {
  const dfgnn_entry *e =
      dfgnn__table_find(table, lookup_of(query, query->setting.problem).exact);
  return e ? e->decision : NULL;
}

/* The fastest variant of a decision that runs here. */
static const dfgnn_variant *winner(const dfgnn_decision *d,
                                   const dfgnn_table *t, const dfgnn_query *q) {
  for (size_t i = 0; i < d->count; i++) {
    const dfgnn_variant *v = dfgnn__variant_find(d->ranked[i].variant);
    if (v && dfgnn__may_run(v, t, q))
      return v;
  }
  return NULL;
}

static int was_seen(const dfgnn_decision *d, const char *variant) {
  for (size_t i = 0; i < d->count; i++)
    if (!strcmp(d->ranked[i].variant, variant))
      return 1;
  for (size_t i = 0; i < d->rejections; i++)
    if (!strcmp(d->rejected[i], variant))
      return 1;
  return 0;
}

/* Were all members of the query's portfolio measured in the decision, or found
 * unfit there? */
static int is_complete(const dfgnn_decision *d, const dfgnn_table *table,
                       const dfgnn_query *query) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const size_t count = dfgnn__members(member, NULL, table, query);
  for (size_t i = 0; i < count; i++)
    if (!was_seen(d, member[i]->name))
      return 0;
  return 1;
}

int dfgnn__row_query(dfgnn_row_query *asked, const dfgnn_measurement *row,
                     const dfgnn_device_info *device) {
  const dfgnn_signature *s = &row->signature;
  dfgnn_problem named;
  if (dfgnn__key_problem(&named, row) ||
      dfgnn__problem_complete(&asked->problem, &named))
    return 0;
  asked->matrix = (dfgnn_matrix){.destinations = s->destinations,
                                 .sources = s->sources,
                                 .edges = s->edges,
                                 .max_degree = s->max_degree,
                                 .offsets64 = !strcmp(row->index, "i64")};
  asked->query = (dfgnn_query){.setting = {.problem = &asked->problem,
                                           .matrix = &asked->matrix,
                                           .signature = s,
                                           .device = device},
                               .family = row->family ? row->family : ""};
  return 1;
}

/* Was the decision complete for its own problem on its own graph?  The answer
 * is kept, since each choice asks it of many entries. */
static int was_complete(dfgnn_entry *e, const dfgnn_table *t) {
  enum { UNKNOWN, INCOMPLETE, COMPLETE };
  dfgnn_row_query there;
  int known = __atomic_load_n(&e->complete, __ATOMIC_RELAXED);
  if (known == UNKNOWN) {
    known = dfgnn__row_query(&there, &e->decision->problem, &t->device) &&
                    is_complete(e->decision, t, &there.query)
                ? COMPLETE
                : INCOMPLETE;
    __atomic_store_n(&e->complete, known, __ATOMIC_RELAXED);
  }
  return known == COMPLETE;
}

static const char *graph_label(const dfgnn_decision *d) {
  return d->problem.graph && *d->problem.graph ? d->problem.graph
                                               : "an unnamed graph";
}

static void choose_of(dfgnn_choice *choice, const dfgnn_decision *d,
                      const dfgnn_variant *variant, dfgnn_source source,
                      double distance) {
  *choice = (dfgnn_choice){.variant = variant,
                           .source = source,
                           .distance = distance,
                           .fingerprint = d->problem.signature.fingerprint,
                           .heads = d->problem.heads,
                           .dim = d->problem.dim,
                           .gate = dfgnn__key_gate(&d->problem)};
}

/* Adds to the reason how the measured problem differs from the wanted one. */
static void add_difference(dfgnn_choice *choice, const lookup *measured,
                           const lookup *wanted) {
  char text[128];
  const size_t length = strlen(choice->because);
  dfgnn__key_difference(text, sizeof text, &measured->key, &wanted->key);
  if (*text)
    snprintf(choice->because + length, sizeof choice->because - length,
             "; measured %s", text);
}

static void add_units(dfgnn_choice *choice, const dfgnn_measurement *measured,
                      int units) {
  const size_t length = strlen(choice->because);
  if (measured->units != units)
    snprintf(choice->because + length, sizeof choice->because - length,
             "; measured with %d units, not %d", measured->units, units);
}

/* ---- pins ---------------------------------------------------------------- */

static int pin_answers(const dfgnn_table_pin *n, const dfgnn_query *q) {
  const dfgnn_problem *p = q->setting.problem;
  return n->op == p->op && n->pass == p->pass && n->dtype == p->dtype &&
         n->bias <= p->bias && n->dropout <= p->dropout &&
         (!n->fingerprint ||
          n->fingerprint == q->setting.signature->fingerprint) &&
         dfgnn__variant_runs(n->variant, &q->setting, q->broken);
}

/* Pins of this very graph rank above pins of any graph; then pins rank by how
 * much of the problem they ask for. */
static int pin_rank(const dfgnn_table_pin *n) {
  return 4 * (n->fingerprint != 0) + n->bias + n->dropout;
}

static int choose_pinned(dfgnn_choice *choice, const dfgnn_table *t,
                         const dfgnn_query *q) {
  const dfgnn_table_pin *best = NULL; /* earlier layers first */
  for (size_t k = 0; k < t->pin_count; k++)
    if (pin_answers(&t->pins[k], q) &&
        (!best || pin_rank(&t->pins[k]) > pin_rank(best)))
      best = &t->pins[k];
  if (!best)
    return 0;
  *choice = (dfgnn_choice){.variant = best->variant,
                           .source = DFGNN_SOURCE_PINNED,
                           .because = "a local pin"};
  return 1;
}

/* ---- this graph ---------------------------------------------------------- */

/* A decision that did not see all members answers as a near one, and only if
 * what would be chosen otherwise was measured there, too. */
static int choose_this(dfgnn_choice *choice, const dfgnn_table *t,
                       const dfgnn_query *q, const lookup *l,
                       const lookup *wanted, const dfgnn_variant *otherwise) {
  dfgnn_entry *e = dfgnn__table_find(t, l->exact);
  const dfgnn_variant *v = e ? winner(e->decision, t, q) : NULL;
  if (!v)
    return 0;
  const size_t count = e->decision->count;
  const int same = l->gate == wanted->gate;
  const int complete =
      (same && was_complete(e, t)) || is_complete(e->decision, t, q);
  if (!complete && !(otherwise && was_seen(e->decision, otherwise->name)))
    return 0;
  choose_of(choice, e->decision, v,
            complete && same ? DFGNN_SOURCE_EXACT : DFGNN_SOURCE_NEAR,
            l->given_up);
  snprintf(choice->because, sizeof choice->because,
           complete ? "measured on this graph: best of %zu variants"
                    : "measured on this graph: best of %zu variants, not yet "
                      "of all",
           count);
  add_difference(choice, l, wanted);
  return 1;
}

/* ---- graphs near to it --------------------------------------------------- */

typedef struct neighbour {
  const dfgnn_entry *entry;
  const dfgnn_variant *variant;
  lookup measured;
  double distance;
} neighbour;

/* Graphs of one family answer for each other, whatever their distance. */
static double reach_of(const dfgnn_entry *e, const dfgnn_query *q) {
  const dfgnn_measurement *row = &e->decision->problem;
  const dfgnn_problem *p = q->setting.problem;
  if (q->family && *q->family && row->family &&
      !strcmp(row->family, q->family) && row->heads == p->heads &&
      row->dim == p->dim)
    return HUGE_VAL;
  return dfgnn__near;
}

static int is_nearer(double distance, int own, const neighbour *than) {
  if (!than->entry)
    return 1;
  if (fabs(distance - than->distance) < SAME_DISTANCE &&
      own != than->entry->own)
    return own;
  return distance < than->distance;
}

/* Looks among the decisions of a problem for one that is nearer. */
static void look_near(neighbour *near, const dfgnn_table *t,
                      const dfgnn_query *q, const lookup *l) {
  const dfgnn_setting *s = &q->setting;
  double feature[DFGNN_FEATURES];
  dfgnn__features(feature, s->signature, s->problem->heads, s->problem->dim,
                  dfgnn_dtype_size(s->problem->dtype), &t->device);
  for (size_t i = dfgnn__table_gate(t, l->gate);
       i < t->count && t->entries[i].gate == l->gate; i++) {
    dfgnn_entry *e = &t->entries[i];
    const double distance =
        dfgnn__distance(feature, e->feature) + e->units_distance + l->given_up;
    if (distance > reach_of(e, q) || !is_nearer(distance, e->own, near))
      continue;
    const dfgnn_variant *v =
        was_complete(e, t) ? winner(e->decision, t, q) : NULL;
    if (v)
      *near = (neighbour){e, v, *l, distance};
  }
}

/* ---- problems like the one asked for ------------------------------------- */

/* The operator whose kernels compute another's, too. */
static dfgnn_op measured_op(dfgnn_op op) {
  switch (op) {
  case DFGNN_OP_SPMM_MEAN:
    return DFGNN_OP_SPMM_SUM;
  case DFGNN_OP_REDUCE_MIN:
    return DFGNN_OP_REDUCE_MAX;
  case DFGNN_OP_REDUCE_VAR:
  case DFGNN_OP_REDUCE_STD:
    return DFGNN_OP_REDUCE_PNA;
  default:
    return op;
  }
}

/* The problem as nearly all measurements have it.  If nothing was measured for
 * a problem that waives determinism or exactness, or for its operator, it is
 * served by the fastest variant of this problem that can do it. */
static dfgnn_problem usual(const dfgnn_problem *problem) {
  dfgnn_problem like = *problem;
  like.op = measured_op(problem->op);
  like.deterministic = 1;
  like.math = DFGNN_MATH_F32;
  return like;
}

/* The lookups of a problem, and of it without each set of its extras, fewest
 * first.  Extras only take variants away, so measurements without them rank all
 * that are left.  Dropout, which costs most, is given up last. */
#define EXTRA_SETS 8
static size_t list_lookups(lookup list[EXTRA_SETS], const dfgnn_query *q,
                           const dfgnn_problem *problem) {
  size_t count = 0;
  for (int k = 0; k < EXTRA_SETS; k++) {
    const int weights = k & 1, bias = k >> 1 & 1, dropout = k >> 2 & 1;
    dfgnn_problem like = *problem;
    like.weights -= weights;
    like.bias -= bias;
    like.dropout -= dropout;
    if (like.weights < 0 || like.bias < 0 || like.dropout < 0)
      continue;
    list[count] = lookup_of(q, &like);
    list[count++].given_up = EXTRA_DISTANCE * (weights + bias + dropout);
  }
  return count;
}

/* This very graph decides more than extras do. */
static int choose_like(dfgnn_choice *choice, const dfgnn_table *t,
                       const dfgnn_query *q, const dfgnn_problem *problem,
                       const lookup *wanted, const dfgnn_variant *otherwise) {
  lookup list[EXTRA_SETS];
  neighbour near = {.entry = NULL};
  const size_t count = list_lookups(list, q, problem);
  for (size_t k = 0; k < count; k++)
    if (choose_this(choice, t, q, &list[k], wanted, otherwise))
      return 1;
  for (size_t k = 0; k < count; k++)
    look_near(&near, t, q, &list[k]);
  if (!near.entry)
    return 0;
  choose_of(choice, near.entry->decision, near.variant, DFGNN_SOURCE_NEAR,
            near.distance);
  snprintf(choice->because, sizeof choice->because,
           "the fastest on %.96s, the nearest graph that %s",
           graph_label(near.entry->decision),
           near.entry->own ? "was measured here" : "the package knows");
  add_difference(choice, &near.measured, wanted);
  add_units(choice, &near.entry->decision->problem, t->device.units);
  return 1;
}

void dfgnn__select_measured(dfgnn_choice *choice, const dfgnn_table *table,
                            const dfgnn_query *query,
                            const dfgnn_variant *otherwise) {
  const dfgnn_problem *problem = query->setting.problem;
  const dfgnn_problem like = usual(problem);
  const lookup wanted = lookup_of(query, problem);
  *choice = (dfgnn_choice){.distance = -1};
  if (choose_pinned(choice, table, query) ||
      choose_like(choice, table, query, problem, &wanted, otherwise) ||
      lookup_of(query, &like).gate == wanted.gate)
    return;
  choose_like(choice, table, query, &like, &wanted, otherwise);
}
