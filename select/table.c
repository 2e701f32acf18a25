/* table.c - stored decisions of one device, indexed for selection */
#include "select/table.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"

#define MARGIN 0.015 /* variants whose times differ by less tie */

static int usable_row(void *data, const char *name, int revision) {
  (void)data;
  const dfgnn_variant *v = dfgnn__variant_find(name);
  return v && v->family->revision == revision;
}

/* Orders entries by gate, and decisions of this very model before others. */
static int compare_entries(const void *a, const void *b) {
  const dfgnn_entry *x = a, *y = b;
  if (x->gate != y->gate)
    return x->gate < y->gate ? -1 : 1;
  if (x->same_model != y->same_model)
    return y->same_model - x->same_model;
  if (x->exact != y->exact)
    return x->exact < y->exact ? -1 : 1;
  return dfgnn__problem_compare(&x->decision->problem, &y->decision->problem);
}

static void fill_entry(dfgnn_entry *e, const dfgnn_decision *d,
                       const dfgnn_device_info *device, int own) {
  const dfgnn_measurement *p = &d->problem;
  dfgnn_dtype dtype = DFGNN_F32;
  dfgnn_parse((int *)&dtype, DFGNN_NAMES_DTYPE, p->dtype);
  e->decision = d;
  e->own = own;
  e->gate = dfgnn__key_gate(p);
  uint64_t size = dfgnn__key_sized(p);
  dfgnn__features(e->feature, &p->signature, p->heads, p->dim,
                  dfgnn_dtype_size(dtype), device);
  e->exact = dfgnn__fold(size, p->signature.fingerprint);
  e->units_distance = dfgnn__units_distance(p->units, device->units);
  e->same_model = !strcmp(p->model, device->model) && p->units == device->units;
}

static dfgnn_status index_entries(dfgnn_table *t) {
  size_t slots = 16;
  while (slots < 2 * t->count)
    slots *= 2;
  uint32_t *by_exact = calloc(slots, sizeof *by_exact);
  if (!by_exact)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  free(t->by_exact);
  t->by_exact = by_exact;
  t->slots = slots;
  for (size_t i = 0; i < t->count; i++) {
    size_t s = t->entries[i].exact & (t->slots - 1);
    while (t->by_exact[s])
      s = (s + 1) & (t->slots - 1);
    t->by_exact[s] = (uint32_t)i + 1;
  }
  return DFGNN_OK;
}

dfgnn_entry *dfgnn__table_find(const dfgnn_table *t, uint64_t exact) {
  for (size_t s = exact & (t->slots - 1); t->by_exact[s];
       s = (s + 1) & (t->slots - 1))
    if (t->entries[t->by_exact[s] - 1].exact == exact)
      return &t->entries[t->by_exact[s] - 1];
  return NULL;
}

size_t dfgnn__table_gate(const dfgnn_table *t, uint64_t gate) {
  size_t low = 0, high = t->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (t->entries[middle].gate < gate)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Marks the entries of rows. */
static void mark_own(dfgnn_table *t, const dfgnn_measurement *rows,
                     size_t count) {
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *row = &rows[i];
    if (i && dfgnn__same_problem(row, &rows[i - 1]))
      continue;
    const uint64_t exact =
        dfgnn__fold(dfgnn__key_sized(row), row->signature.fingerprint);
    for (size_t s = exact & (t->slots - 1); t->by_exact[s];
         s = (s + 1) & (t->slots - 1)) {
      dfgnn_entry *e = &t->entries[t->by_exact[s] - 1];
      if (e->exact == exact && dfgnn__same_problem(row, &e->decision->problem))
        e->own = 1;
    }
  }
}

/* ---- which graphs are measured ------------------------------------------- */

static int compare_numbers(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static uint64_t shape_key(int64_t destinations, int64_t sources,
                          int64_t edges) {
  return dfgnn__fold(
      dfgnn__fold(dfgnn__fold(1, (uint64_t)destinations), (uint64_t)sources),
      (uint64_t)edges);
}

static dfgnn_status index_graphs(dfgnn_table *t) {
  uint64_t *graphs = calloc(t->count + 1, sizeof *graphs);
  uint64_t *shapes = calloc(t->count + 1, sizeof *shapes);
  if (!graphs || !shapes) {
    free(graphs);
    free(shapes);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  free(t->graphs);
  free(t->shapes);
  t->graphs = graphs;
  t->shapes = shapes;
  for (size_t i = 0; i < t->count; i++) {
    const dfgnn_signature *s = &t->entries[i].decision->problem.signature;
    t->graphs[i] = s->fingerprint;
    t->shapes[i] = shape_key(s->destinations, s->sources, s->edges);
  }
  qsort(t->graphs, t->count, sizeof *t->graphs, compare_numbers);
  qsort(t->shapes, t->count, sizeof *t->shapes, compare_numbers);
  return DFGNN_OK;
}

static int holds(const uint64_t *sorted, size_t count, uint64_t key) {
  return bsearch(&key, sorted, count, sizeof key, compare_numbers) != NULL;
}

int dfgnn__table_has_graph(const dfgnn_table *table, uint64_t fingerprint) {
  return holds(table->graphs, table->count, fingerprint);
}

int dfgnn__table_has_shape(const dfgnn_table *table, int64_t destinations,
                           int64_t sources, int64_t edges) {
  return holds(table->shapes, table->count,
               shape_key(destinations, sources, edges));
}

int dfgnn__table_has_pins(const dfgnn_table *table) {
  return table->pin_count > 0;
}

static int is_of_device(const dfgnn_measurement *row,
                        const dfgnn_device_info *device) {
  return !strcmp(row->backend, device->backend) &&
         !strcmp(row->arch, device->arch);
}

dfgnn_status dfgnn__table_create(dfgnn_table **table, uint64_t *invalid,
                                 const dfgnn_device_info *device,
                                 const dfgnn_measurement *rows, size_t own,
                                 size_t count) {
  dfgnn_table *t = calloc(1, sizeof *t);
  if (!t)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  t->device = *device;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__decide(&t->decisions, invalid, rows, count, MARGIN,
                         usable_row, NULL));
  t->entries = calloc(t->decisions->count + 1, sizeof *t->entries);
  if (!t->entries)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory"));
  for (size_t i = 0; i < t->decisions->count; i++) {
    const dfgnn_decision *d = &t->decisions->decision[i];
    if (d->count && is_of_device(&d->problem, device))
      fill_entry(&t->entries[t->count++], d, device, 0);
  }
  qsort(t->entries, t->count, sizeof *t->entries, compare_entries);
  DFGNN_GO(index_entries(t));
  mark_own(t, rows, own);
  DFGNN_GO(index_graphs(t));
  *table = t;
out:
  if (status)
    dfgnn__table_destroy(t);
  return status;
}

/* ---- one problem more ---------------------------------------------------- */

static void remove_entry(dfgnn_table *t, const dfgnn_measurement *problem) {
  for (size_t i = 0; i < t->count; i++)
    if (dfgnn__same_problem(&t->entries[i].decision->problem, problem)) {
      memmove(&t->entries[i], &t->entries[i + 1],
              (t->count - i - 1) * sizeof *t->entries);
      t->count--;
      return;
    }
}

/* There is room for it. */
static void insert_entry(dfgnn_table *t, const dfgnn_decision *d) {
  dfgnn_entry entry;
  size_t low = 0, high = t->count;
  fill_entry(&entry, d, &t->device, 1);
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (compare_entries(&t->entries[middle], &entry) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  memmove(&t->entries[low + 1], &t->entries[low],
          (t->count - low) * sizeof *t->entries);
  t->entries[low] = entry;
  t->count++;
}

dfgnn_status dfgnn__table_put(dfgnn_table *t, const dfgnn_measurement *rows,
                              size_t count) {
  dfgnn_decisions *decided;
  if (!count || !is_of_device(&rows[0], &t->device))
    return DFGNN_OK;
  dfgnn_decisions **puts = realloc(t->put, (t->puts + 1) * sizeof *puts);
  if (puts)
    t->put = puts;
  dfgnn_entry *entries =
      realloc(t->entries, (t->count + 2) * sizeof *t->entries);
  if (entries)
    t->entries = entries;
  if (!puts || !entries)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  DFGNN_TRY(
      dfgnn__decide(&decided, NULL, rows, count, MARGIN, usable_row, NULL));
  t->put[t->puts++] = decided;
  remove_entry(t, &rows[0]);
  if (decided->count && decided->decision[0].count)
    insert_entry(t, &decided->decision[0]);
  dfgnn_status status = index_entries(t);
  return status ? status : index_graphs(t);
}

void dfgnn__table_destroy(dfgnn_table *table) {
  if (!table)
    return;
  for (size_t i = 0; i < table->puts; i++)
    dfgnn__decisions_free(table->put[i]);
  free(table->put);
  dfgnn__decisions_free(table->decisions);
  free(table->entries);
  free(table->by_exact);
  free(table->graphs);
  free(table->shapes);
  free(table->pins);
  free(table->banned);
  free(table);
}

const dfgnn_decisions *dfgnn__table_decisions(const dfgnn_table *table) {
  return table->decisions;
}

dfgnn_status dfgnn__table_pin(dfgnn_table *table, const dfgnn_pin *pin) {
  dfgnn_table_pin p = {.bias = pin->bias,
                       .dropout = pin->dropout,
                       .fingerprint = pin->fingerprint};
  DFGNN_TRY(dfgnn_parse((int *)&p.op, DFGNN_NAMES_OP, pin->op));
  DFGNN_TRY(dfgnn_parse((int *)&p.pass, DFGNN_NAMES_PASS, pin->pass));
  DFGNN_TRY(dfgnn_parse((int *)&p.dtype, DFGNN_NAMES_DTYPE, pin->dtype));
  p.variant = dfgnn__variant_find(pin->variant);
  if (!p.variant)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "it names the variant '%s', which this library does "
                       "not have",
                       pin->variant);
  dfgnn_table_pin *grown =
      realloc(table->pins, (table->pin_count + 1) * sizeof *grown);
  if (!grown)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  table->pins = grown;
  table->pins[table->pin_count++] = p;
  return DFGNN_OK;
}

dfgnn_status dfgnn__table_ban(dfgnn_table *table, const char *name) {
  const size_t count = dfgnn__variant_count();
  int known = 0;
  if (!table->banned && !(table->banned = calloc(count + 1, 1)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < count; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!strcmp(v->name, name) || !strcmp(v->family->name, name)) {
      table->banned[i] = 1;
      known = 1;
    }
  }
  return known ? DFGNN_OK
               : dfgnn__fail(DFGNN_ERROR_STORE,
                             "it names '%s', which is no variant or family of "
                             "this library",
                             name);
}

int dfgnn__table_bans(const dfgnn_table *table, const dfgnn_variant *variant) {
  return table && table->banned && table->banned[dfgnn__variant_index(variant)];
}

/* ---- digest ------------------------------------------------------------- */

static void digest_text(crypto_generichash_state *state, const char *text) {
  const char *string = text ? text : "";
  crypto_generichash_update(state, (const void *)string, strlen(string) + 1);
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

static void digest_entry(crypto_generichash_state *state,
                         const dfgnn_entry *e) {
  const dfgnn_decision *d = e->decision;
  const uint64_t keys[] = {e->gate,          e->exact,
                           (uint64_t)e->own, (uint64_t)e->same_model,
                           d->count,         d->rejections};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    digest_number(state, keys[i]);
  for (int k = 0; k < DFGNN_FEATURES; k++)
    digest_real(state, e->feature[k]);
  for (size_t i = 0; i < d->count; i++) {
    digest_text(state, d->ranked[i].variant);
    digest_number(state, (uint64_t)d->ranked[i].revision);
    digest_real(state, d->ranked[i].log_ratio);
  }
  for (size_t i = 0; i < d->rejections; i++)
    digest_text(state, d->rejected[i]);
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
    const dfgnn_table_pin *n = &table->pins[i];
    digest_number(&state, (uint64_t)n->op);
    digest_number(&state, (uint64_t)n->pass);
    digest_number(&state, (uint64_t)n->dtype);
    digest_number(&state, (uint64_t)(n->bias | n->dropout << 1));
    digest_number(&state, n->fingerprint);
    digest_text(&state, n->variant->name);
  }
  for (size_t i = 0; table->banned && i < dfgnn__variant_count(); i++)
    if (table->banned[i])
      digest_text(&state, dfgnn__variant(i)->name);
  digest_text(&state, dfgnn__portfolio_digest());
  crypto_generichash_final(&state, hash, sizeof hash);
  sodium_bin2hex(digest, DFGNN_DIGEST_SIZE, hash, sizeof hash);
}
