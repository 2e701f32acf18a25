/* choose.c - which stored decision answers a problem */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/cell.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "lib/table.h"

/* The number of neighbours that vote. */
#define NEIGHBOURS 4
/* A variant that was not measured on a neighbour counts as slower than all that
 * were: the worst log-ratio plus this. */
#define ABSENT_PENALTY 0.2
/* Log-ratios beyond this one count alike. */
#define WORST_VOTE 1.5

/* The keys of the problem that was asked for, or of one like it. */
typedef struct lookup {
  dfgnn_measurement key; /* the problem's fields, and units, alone */
  uint64_t gate, size, exact;
} lookup;

static lookup lookup_of(const dfgnn_query *q, const dfgnn_problem *problem) {
  lookup l = {.gate = 0};
  dfgnn__key_fill(&l.key, problem, q->setting.matrix->offsets64);
  l.key.units = q->setting.device->units;
  l.gate = dfgnn__key_gate(&l.key);
  l.size = dfgnn__key_sized(&l.key);
  l.exact = dfgnn__fold(l.size, q->setting.signature->fingerprint);
  return l;
}

static const dfgnn_entry *find_exact(const dfgnn_table *t, uint64_t exact) {
  for (size_t s = exact & (t->slots - 1); t->by_exact[s];
       s = (s + 1) & (t->slots - 1))
    if (t->entries[t->by_exact[s] - 1].exact == exact)
      return &t->entries[t->by_exact[s] - 1];
  return NULL;
}

const dfgnn_decision *dfgnn__table_exact(const dfgnn_table *table,
                                         const dfgnn_query *query) {
  const dfgnn_entry *e =
      find_exact(table, lookup_of(query, query->setting.problem).exact);
  return e ? e->decision : NULL;
}

static int runs(const dfgnn_variant *v, const dfgnn_query *q) {
  return v && !(q->broken && q->broken[dfgnn__variant_index(v)]) &&
         !dfgnn__variant_refusal(v, &q->setting);
}

/* The fastest variant of a decision that runs here. */
static const dfgnn_variant *winner(const dfgnn_decision *d,
                                   const dfgnn_query *q) {
  for (size_t i = 0; i < d->count; i++) {
    const dfgnn_variant *v = dfgnn__variant_find(d->ranked[i].variant);
    if (runs(v, q))
      return v;
  }
  return NULL;
}

static const char *graph_label(const dfgnn_decision *d) {
  return d->problem.graph && *d->problem.graph ? d->problem.graph
                                               : "an unnamed graph";
}

static void note_origin(dfgnn_choice *choice, const dfgnn_decision *d) {
  choice->fingerprint = d->problem.signature.fingerprint;
  choice->heads = d->problem.heads;
  choice->dim = d->problem.dim;
  choice->gate = dfgnn__key_gate(&d->problem);
}

/* ---- pins ---------------------------------------------------------------- */

static int pin_answers(const dfgnn_table_pin *n, const dfgnn_query *q) {
  const dfgnn_problem *p = q->setting.problem;
  return n->op == p->op && n->pass == p->pass && n->dtype == p->dtype &&
         n->bias <= p->bias && n->dropout <= p->dropout &&
         (!n->fingerprint ||
          n->fingerprint == q->setting.signature->fingerprint) &&
         runs(n->variant, q);
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
  *choice =
      (dfgnn_choice){.variant = best->variant, .source = DFGNN_SOURCE_PINNED};
  snprintf(choice->because, sizeof choice->because, "a local pin");
  return 1;
}

/* ---- measurements -------------------------------------------------------- */

/* Adds to the reason how the measured problem differs from the wanted one. */
static void add_difference(dfgnn_choice *choice, const lookup *measured,
                           const lookup *wanted) {
  char text[128];
  size_t length = strlen(choice->because);
  dfgnn__key_difference(text, sizeof text, &measured->key, &wanted->key);
  if (*text)
    snprintf(choice->because + length, sizeof choice->because - length,
             "; measured %s", text);
}

static void add_units(dfgnn_choice *choice, const dfgnn_measurement *measured,
                      int units) {
  size_t length = strlen(choice->because);
  if (measured->units != units)
    snprintf(choice->because + length, sizeof choice->because - length,
             "; measured with %d units, not %d", measured->units, units);
}

static int choose_exact(dfgnn_choice *choice, const dfgnn_table *t,
                        const dfgnn_query *q, const lookup *l) {
  const dfgnn_entry *e = find_exact(t, l->exact);
  const dfgnn_variant *v = e ? winner(e->decision, q) : NULL;
  if (!v)
    return 0;
  *choice = (dfgnn_choice){.variant = v, .source = DFGNN_SOURCE_EXACT};
  note_origin(choice, e->decision);
  snprintf(choice->because, sizeof choice->because,
           "measured on this graph: best of %zu variants", e->decision->count);
  return 1;
}

/* The first entry of a gate; its entries follow each other. */
static size_t gate_begin(const dfgnn_table *t, uint64_t gate) {
  size_t low = 0, high = t->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (t->entries[middle].gate < gate)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

typedef struct neighbour {
  const dfgnn_entry *entry;
  double distance;
} neighbour;

/* Keeps the NEIGHBOURS nearest, nearest first; ties by table order. */
static void keep_nearest(neighbour near[NEIGHBOURS], int *count,
                         const dfgnn_entry *e, double distance) {
  int k = *count;
  if (k == NEIGHBOURS && distance >= near[k - 1].distance)
    return;
  if (k < NEIGHBOURS)
    (*count)++;
  else
    k--;
  for (; k > 0 && near[k - 1].distance > distance; k--)
    near[k] = near[k - 1];
  near[k] = (neighbour){e, distance};
}

/* The log-ratio of a variant in a decision; -1: it was not measured. */
static double loss_of(const dfgnn_decision *d, const char *variant) {
  for (size_t i = 0; i < d->count; i++)
    if (!strcmp(d->ranked[i].variant, variant))
      return d->ranked[i].log_ratio;
  return -1;
}

static double vote(const neighbour near[], int count, const char *variant) {
  double sum = 0, total = 0;
  for (int k = 0; k < count; k++) {
    const dfgnn_decision *d = near[k].entry->decision;
    double weight = 1 / (0.05 + near[k].distance);
    double loss = loss_of(d, variant);
    weight *= weight;
    if (loss < 0)
      loss = d->count ? d->ranked[d->count - 1].log_ratio + ABSENT_PENALTY
                      : ABSENT_PENALTY;
    sum += weight * (loss < WORST_VOTE ? loss : WORST_VOTE);
    total += weight;
  }
  return sum / total;
}

/* The variant with the least expected loss over the neighbours. */
static const dfgnn_variant *elect(const neighbour near[], int count,
                                  const dfgnn_query *q) {
  const dfgnn_variant *best = NULL;
  double best_loss = HUGE_VAL;
  for (int k = 0; k < count; k++) {
    const dfgnn_decision *d = near[k].entry->decision;
    for (size_t i = 0; i < d->count; i++) {
      double loss = vote(near, count, d->ranked[i].variant);
      if (loss > best_loss)
        continue;
      const dfgnn_variant *v = dfgnn__variant_find(d->ranked[i].variant);
      int earlier = best && v && strcmp(v->name, best->name) < 0;
      if ((loss < best_loss || earlier) && runs(v, q)) {
        best = v;
        best_loss = loss;
      }
    }
  }
  return best;
}

static void choose_near(dfgnn_choice *choice, const dfgnn_table *t,
                        const dfgnn_query *q, const lookup *l,
                        uint64_t exclude) {
  const dfgnn_setting *s = &q->setting;
  double feature[DFGNN_FEATURES];
  neighbour near[NEIGHBOURS];
  int count = 0;
  uint64_t similar, family;
  dfgnn__features(feature, s->signature, s->problem->heads, s->problem->dim,
                  dfgnn_dtype_size(s->problem->dtype), &t->device);
  similar = dfgnn__quantised(l->size, feature);
  family = q->family && *q->family ? dfgnn__fold_text(l->size, q->family) : 0;
  for (size_t i = gate_begin(t, l->gate);
       i < t->count && t->entries[i].gate == l->gate; i++) {
    const dfgnn_entry *e = &t->entries[i];
    if (exclude && e->decision->problem.signature.fingerprint == exclude)
      continue;
    if (e->similar == similar || (family && e->family == family)) {
      const dfgnn_variant *v = winner(e->decision, q);
      if (v) {
        *choice =
            (dfgnn_choice){.variant = v,
                           .source = DFGNN_SOURCE_SIMILAR,
                           .distance = dfgnn__distance(feature, e->feature)};
        note_origin(choice, e->decision);
        snprintf(choice->because, sizeof choice->because,
                 e->similar == similar ? "the same signature as %.96s"
                                       : "the same family as %.96s",
                 graph_label(e->decision));
        return;
      }
    }
    keep_nearest(near, &count, e,
                 dfgnn__distance(feature, e->feature) + e->units_distance);
  }
  *choice = (dfgnn_choice){.distance = count ? near[0].distance : -1};
  while (count && near[count - 1].distance > dfgnn__trusted_radius)
    count--;
  if (!count)
    return;
  choice->variant = elect(near, count, q);
  choice->source = DFGNN_SOURCE_NEAREST;
  for (int k = count; choice->variant && k-- > 0;)
    if (loss_of(near[k].entry->decision, choice->variant->name) >= 0)
      note_origin(choice, near[k].entry->decision);
  snprintf(choice->because, sizeof choice->because,
           "least expected loss over %d near graphs, the nearest %.96s", count,
           graph_label(near[0].entry->decision));
  add_units(choice, &near[0].entry->decision->problem, t->device.units);
}

/* ---- problems like the one asked for ------------------------------------- */

/* The problem as nearly all measurements have it.  If nothing was measured for
 * a problem that waives determinism or exactness, or for its operator, it is
 * served by the fastest variant of this problem that can do it. */
static dfgnn_problem usual(const dfgnn_problem *problem) {
  dfgnn_problem like = *problem;
  like.op = dfgnn__measured_op(problem->op);
  like.deterministic = 1;
  like.math = DFGNN_MATH_F32;
  return like;
}

/* Makes *like the problem without the k-th set of extras; returns the number of
 * extras in the set, -1 if the problem does not have them all.  Extras only
 * take variants away, so measurements without them rank all that are left.
 * Dropout, which costs most, is given up last. */
#define EXTRA_SETS 8
static int without_extras(dfgnn_problem *like, const dfgnn_problem *problem,
                          int k) {
  int weights = k & 1, bias = k >> 1 & 1, dropout = k >> 2 & 1;
  *like = *problem;
  like->weights -= weights;
  like->bias -= bias;
  like->dropout -= dropout;
  return like->weights < 0 || like->bias < 0 || like->dropout < 0
             ? -1
             : weights + bias + dropout;
}

/* Looks for this very graph, whatever extras it was measured with: the graph
 * decides more than extras do. */
static int choose_graph(dfgnn_choice *choice, const dfgnn_table *t,
                        const dfgnn_query *q, const dfgnn_problem *problem,
                        const lookup *wanted) {
  dfgnn_problem like;
  for (int k = 0; k < EXTRA_SETS; k++) {
    if (without_extras(&like, problem, k) < 0)
      continue;
    lookup l = lookup_of(q, &like);
    if (!choose_exact(choice, t, q, &l))
      continue;
    if (l.gate != wanted->gate)
      choice->source = DFGNN_SOURCE_SIMILAR;
    add_difference(choice, &l, wanted);
    return 1;
  }
  return 0;
}

/* Giving up an extra adds this to the distance of a graph.  It is a guess:
 * nothing was measured with extras when it was made. */
#define EXTRA_DISTANCE 0.5

/* Looks for graphs like this one; if none is near enough, notes the distance of
 * the nearest. */
static void choose_others(dfgnn_choice *choice, const dfgnn_table *t,
                          const dfgnn_query *q, const dfgnn_problem *problem,
                          const lookup *wanted, uint64_t exclude) {
  double least = HUGE_VAL;
  dfgnn_problem like;
  for (int k = 0; k < EXTRA_SETS; k++) {
    dfgnn_choice found;
    int given_up = without_extras(&like, problem, k);
    if (given_up < 0)
      continue;
    lookup l = lookup_of(q, &like);
    choose_near(&found, t, q, &l, exclude);
    double distance = found.distance + EXTRA_DISTANCE * given_up;
    if (found.distance < 0 || (choice->variant && !found.variant) ||
        (!choice->variant == !found.variant && distance >= least))
      continue;
    least = distance;
    *choice = found;
    if (found.variant)
      add_difference(choice, &l, wanted);
  }
}

static void choose_like(dfgnn_choice *choice, const dfgnn_table *t,
                        const dfgnn_query *q, const dfgnn_problem *problem,
                        const lookup *wanted, uint64_t exclude) {
  if (q->setting.signature->fingerprint != exclude &&
      choose_graph(choice, t, q, problem, wanted))
    return;
  choose_others(choice, t, q, problem, wanted, exclude);
}

void dfgnn__table_select(dfgnn_choice *choice, const dfgnn_table *table,
                         const dfgnn_query *query, uint64_t exclude) {
  const dfgnn_problem *problem = query->setting.problem;
  const dfgnn_problem like = usual(problem);
  const lookup wanted = lookup_of(query, problem);
  *choice = (dfgnn_choice){.distance = -1};
  if (choose_pinned(choice, table, query))
    return;
  choose_like(choice, table, query, problem, &wanted, exclude);
  if (choice->variant || lookup_of(query, &like).gate == wanted.gate)
    return;
  choose_like(choice, table, query, &like, &wanted, exclude);
}
