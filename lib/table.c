/* table.c - stored decisions of one device, indexed for selection */
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/operator.h"
#include "lib/select.h"

#define MARGIN 0.015 /* what cannot be told apart ties */
#define NEIGHBOURS 4 /* that vote */
#define ABSENT_PENALTY                                                         \
  0.2                  /* log-ratio of a variant a neighbour did not see       \
                        */
#define WORST_VOTE 1.5 /* log-ratios beyond it count alike */

typedef struct entry {
  const dfgnn_decision *decision;
  uint64_t gate;    /* operator, pass, dtype, math, layout, ... */
  uint64_t exact;   /* gate, heads, dim, fingerprint */
  uint64_t similar; /* gate, heads, dim, quantised signature */
  uint64_t family;  /* gate, heads, dim, family; 0 without one */
  int same_model;
  double feature[DFGNN_FEATURES];
} entry;

typedef struct pin {
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  uint64_t fingerprint;
  const dfgnn_variant *variant;
} pin;

struct dfgnn_table {
  dfgnn_device_info device;
  dfgnn_decisions *decisions;
  entry *entries; /* those of this arch, ordered by gate */
  size_t count;
  uint32_t *by_exact; /* open addressing: index + 1 */
  size_t slots;
  pin *pins;
  size_t pin_count;
};

static uint64_t combine(uint64_t h, uint64_t x) {
  x += h + 0x9e3779b97f4a7c15u; /* SplitMix64 */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t combine_text(uint64_t h, const char *text) {
  uint64_t t = 14695981039346656037u;
  for (; *text; text++)
    t = (t ^ (unsigned char)*text) * 1099511628211u;
  return combine(h, t);
}

static uint64_t gate_of(const char *op, const char *pass, const char *dtype,
                        const char *math, const char *layout, int offsets64,
                        int deterministic, int weights, int cold) {
  uint64_t h = combine_text(1, op);
  h = combine_text(h, pass);
  h = combine_text(h, dtype);
  h = combine_text(h, math);
  h = combine_text(h, layout);
  return combine(
      h, (uint64_t)(offsets64 | deterministic << 1 | weights << 2 | cold << 3));
}

static uint64_t sized(uint64_t gate, int64_t heads, int64_t dim) {
  return combine(combine(gate, (uint64_t)heads), (uint64_t)dim);
}

static uint64_t quantised(uint64_t h, const double f[DFGNN_FEATURES]) {
  for (int k = 0; k < DFGNN_FEATURES; k++)
    h = combine(h, (uint64_t)(int64_t)floor(f[k] * 4 + 0.5));
  return h;
}

static int usable_row(void *data, const char *name, int revision) {
  (void)data;
  const dfgnn_variant *v = dfgnn__variant_find(name);
  return v && !v->family->reference && v->family->revision == revision;
}

/* By gate, then the decisions of this very model first. */
static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->gate != y->gate)
    return x->gate < y->gate ? -1 : 1;
  if (x->same_model != y->same_model)
    return y->same_model - x->same_model;
  if (x->exact != y->exact)
    return x->exact < y->exact ? -1 : 1;
  return x->decision < y->decision ? -1 : x->decision > y->decision;
}

static void fill_entry(entry *e, const dfgnn_decision *d,
                       const dfgnn_device_info *device) {
  const dfgnn_measurement *p = &d->problem;
  dfgnn_dtype dtype = DFGNN_F32;
  dfgnn_dtype_parse(&dtype, p->dtype);
  e->decision = d;
  e->gate = gate_of(p->op, p->pass, p->dtype, p->math, p->layout,
                    !strcmp(p->index, "i64"), !!p->deterministic, !!p->weights,
                    !strncmp(p->protocol, "cold", 4));
  uint64_t size = sized(e->gate, p->heads, p->dim);
  dfgnn__features(e->feature, &p->signature, p->heads, p->dim,
                  dfgnn_dtype_size(dtype), device);
  e->exact = combine(size, p->signature.fingerprint);
  e->similar = quantised(size, e->feature);
  e->family = p->family && *p->family ? combine_text(size, p->family) : 0;
  e->same_model = !strcmp(p->model, device->model) && p->units == device->units;
}

static dfgnn_status index_entries(dfgnn_table *t) {
  t->slots = 16;
  while (t->slots < 2 * t->count)
    t->slots *= 2;
  t->by_exact = calloc(t->slots, sizeof *t->by_exact);
  if (!t->by_exact)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < t->count; i++) {
    size_t s = t->entries[i].exact & (t->slots - 1);
    while (t->by_exact[s])
      s = (s + 1) & (t->slots - 1);
    t->by_exact[s] = (uint32_t)i + 1;
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__table_create(dfgnn_table **table, uint64_t *invalid,
                                 const dfgnn_device_info *device,
                                 const dfgnn_measurement *rows, size_t count) {
  dfgnn_table *t = calloc(1, sizeof *t);
  if (!t)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  t->device = *device;
  dfgnn_status status = dfgnn__decide(&t->decisions, invalid, rows, count,
                                      MARGIN, usable_row, NULL);
  if (status)
    goto fail;
  t->entries = calloc(t->decisions->count + 1, sizeof *t->entries);
  if (!t->entries) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    goto fail;
  }
  for (size_t i = 0; i < t->decisions->count; i++) {
    const dfgnn_decision *d = &t->decisions->decision[i];
    if (d->count && !strcmp(d->problem.backend, device->backend) &&
        !strcmp(d->problem.arch, device->arch))
      fill_entry(&t->entries[t->count++], d, device);
  }
  qsort(t->entries, t->count, sizeof *t->entries, compare_entries);
  status = index_entries(t);
  if (status)
    goto fail;
  *table = t;
  return DFGNN_OK;
fail:
  dfgnn__table_destroy(t);
  return status;
}

void dfgnn__table_destroy(dfgnn_table *table) {
  if (!table)
    return;
  dfgnn__decisions_free(table->decisions);
  free(table->entries);
  free(table->by_exact);
  free(table->pins);
  free(table);
}

const dfgnn_decisions *dfgnn__table_decisions(const dfgnn_table *table) {
  return table->decisions;
}

dfgnn_status dfgnn__table_pin(dfgnn_table *table, const char *op,
                              const char *pass, const char *dtype,
                              uint64_t fingerprint, const char *variant) {
  pin p = {.fingerprint = fingerprint};
  dfgnn_status status = dfgnn_op_parse(&p.op, op);
  if (!status)
    status = dfgnn_pass_parse(&p.pass, pass);
  if (!status)
    status = dfgnn_dtype_parse(&p.dtype, dtype);
  if (status)
    return status;
  p.variant = dfgnn__variant_find(variant);
  if (!p.variant)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "it names the variant '%s', which this library does "
                       "not have",
                       variant);
  pin *grown = realloc(table->pins, (table->pin_count + 1) * sizeof *grown);
  if (!grown)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  table->pins = grown;
  table->pins[table->pin_count++] = p;
  return DFGNN_OK;
}

/* ---- digest ------------------------------------------------------------- */

static void digest_text(crypto_generichash_state *state, const char *text) {
  const char *given = text ? text : "";
  crypto_generichash_update(state, (const void *)given, strlen(given) + 1);
}

static void digest_number(crypto_generichash_state *state, uint64_t x) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++)
    bytes[i] = (unsigned char)(x >> (8 * i));
  crypto_generichash_update(state, bytes, sizeof bytes);
}

static void digest_real(crypto_generichash_state *state, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  digest_number(state, bits);
}

static void digest_entry(crypto_generichash_state *state, const entry *e) {
  const dfgnn_decision *d = e->decision;
  const uint64_t keys[] = {
      e->gate, e->exact, e->similar, e->family, (uint64_t)e->same_model,
      d->count};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    digest_number(state, keys[i]);
  for (int k = 0; k < DFGNN_FEATURES; k++)
    digest_real(state, e->feature[k]);
  for (size_t i = 0; i < d->count; i++) {
    digest_text(state, d->ranked[i].variant);
    digest_number(state, (uint64_t)d->ranked[i].revision);
    digest_real(state, d->ranked[i].log_ratio);
  }
}

void dfgnn__table_digest(char digest[DFGNN_DIGEST_SIZE],
                         const dfgnn_table *table) {
  unsigned char hash[(DFGNN_DIGEST_SIZE - 1) / 2];
  crypto_generichash_state state;
  const dfgnn_device_info *device = &table->device;
  crypto_generichash_init(&state, NULL, 0, sizeof hash);
  digest_text(&state, device->backend);
  digest_text(&state, device->arch);
  digest_number(&state, (uint64_t)device->units);
  digest_number(&state, (uint64_t)device->cache_bytes);
  digest_number(&state, (uint64_t)device->shared_bytes);
  digest_number(&state, table->count);
  for (size_t i = 0; i < table->count; i++)
    digest_entry(&state, &table->entries[i]);
  for (size_t i = 0; i < table->pin_count; i++) {
    const pin *n = &table->pins[i];
    digest_number(&state, (uint64_t)n->op);
    digest_number(&state, (uint64_t)n->pass);
    digest_number(&state, (uint64_t)n->dtype);
    digest_number(&state, n->fingerprint);
    digest_text(&state, n->variant->name);
  }
  crypto_generichash_final(&state, hash, sizeof hash);
  sodium_bin2hex(digest, DFGNN_DIGEST_SIZE, hash, sizeof hash);
}

/* ---- selection ---------------------------------------------------------- */

typedef struct lookup {
  uint64_t gate, size, exact;
} lookup;

static lookup lookup_of(const dfgnn_query *q, const dfgnn_problem *p) {
  lookup l;
  l.gate = gate_of(dfgnn_op_name(p->op), dfgnn_pass_name(p->pass),
                   dfgnn_dtype_name(p->dtype), dfgnn_math_name(p->math),
                   dfgnn_layout_name(p->layout), q->setting.matrix->offsets64,
                   p->deterministic, p->weights, p->cold);
  l.size = sized(l.gate, p->heads, p->dim);
  l.exact = combine(l.size, q->setting.signature->fingerprint);
  return l;
}

static const entry *find_exact(const dfgnn_table *t, uint64_t exact) {
  for (size_t s = exact & (t->slots - 1); t->by_exact[s];
       s = (s + 1) & (t->slots - 1))
    if (t->entries[t->by_exact[s] - 1].exact == exact)
      return &t->entries[t->by_exact[s] - 1];
  return NULL;
}

const dfgnn_decision *dfgnn__table_exact(const dfgnn_table *table,
                                         const dfgnn_query *query) {
  const entry *e =
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
}

/* A pin of this very graph before one of any graph; earlier layers first. */
static int choose_pinned(dfgnn_choice *choice, const dfgnn_table *t,
                         const dfgnn_query *q) {
  const dfgnn_problem *p = q->setting.problem;
  const uint64_t wanted[] = {q->setting.signature->fingerprint, 0};
  for (size_t k = 0; k < 2 * t->pin_count; k++) {
    const pin *n = &t->pins[k % t->pin_count];
    if (n->op == p->op && n->pass == p->pass && n->dtype == p->dtype &&
        n->fingerprint == wanted[k / t->pin_count] && runs(n->variant, q)) {
      *choice =
          (dfgnn_choice){.variant = n->variant, .source = DFGNN_SOURCE_PINNED};
      snprintf(choice->because, sizeof choice->because, "a local pin");
      return 1;
    }
  }
  return 0;
}

static int choose_exact(dfgnn_choice *choice, const dfgnn_table *t,
                        const dfgnn_query *q, const lookup *l) {
  const entry *e = find_exact(t, l->exact);
  const dfgnn_variant *v = e ? winner(e->decision, q) : NULL;
  if (!v)
    return 0;
  *choice = (dfgnn_choice){.variant = v, .source = DFGNN_SOURCE_EXACT};
  note_origin(choice, e->decision);
  snprintf(choice->because, sizeof choice->because,
           "measured on this graph: best of %zu variants", e->decision->count);
  return 1;
}

/* The range of entries of a gate. */
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
  const entry *entry;
  double distance;
} neighbour;

/* Keeps the NEIGHBOURS nearest, nearest first; ties by table order. */
static void keep_nearest(neighbour near[NEIGHBOURS], int *count, const entry *e,
                         double distance) {
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

/* -1: it was not measured. */
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
  similar = quantised(l->size, feature);
  family = q->family && *q->family ? combine_text(l->size, q->family) : 0;
  for (size_t i = gate_begin(t, l->gate);
       i < t->count && t->entries[i].gate == l->gate; i++) {
    const entry *e = &t->entries[i];
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
    keep_nearest(near, &count, e, dfgnn__distance(feature, e->feature));
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
}

static void choose_measured(dfgnn_choice *choice, const dfgnn_table *t,
                            const dfgnn_query *q, const lookup *l,
                            uint64_t exclude) {
  if (q->setting.signature->fingerprint != exclude &&
      choose_exact(choice, t, q, l))
    return;
  choose_near(choice, t, q, l, exclude);
}

/* An operator that runs the same kernels with another sum. */
static dfgnn_op alike(dfgnn_op op) {
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

/* The problem as nearly all measurements are made.  Whoever waives determinism
 * or exactness, asks for weights or for a like operator is served by its
 * fastest variant that can do it, rather than by no measurement. */
static dfgnn_problem plainest(const dfgnn_problem *problem) {
  dfgnn_problem plain = *problem;
  plain.op = alike(problem->op);
  plain.deterministic = 1;
  plain.weights = 0;
  plain.math = DFGNN_MATH_F32;
  return plain;
}

void dfgnn__table_select(dfgnn_choice *choice, const dfgnn_table *table,
                         const dfgnn_query *query, uint64_t exclude) {
  const dfgnn_problem plain = plainest(query->setting.problem);
  const lookup wanted = lookup_of(query, query->setting.problem);
  const lookup near = lookup_of(query, &plain);
  if (choose_pinned(choice, table, query))
    return;
  choose_measured(choice, table, query, &wanted, exclude);
  if (choice->variant || near.gate == wanted.gate)
    return;
  choose_measured(choice, table, query, &near, exclude);
  if (choice->source == DFGNN_SOURCE_EXACT)
    choice->source = DFGNN_SOURCE_SIMILAR;
}
