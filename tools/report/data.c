#include "tools/report/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"

/* Rows of a backend that this library does not have are shown, too. */
static int usable(void *unused, const char *variant, int revision) {
  const dfgnn_use use = dfgnn__variant_use(variant, revision);
  (void)unused;
  return use == DFGNN_USE_CURRENT || use == DFGNN_USE_FOREIGN;
}

static int by_problem(const void *a, const void *b) {
  const dfgnn_measurement *x = *(const dfgnn_measurement *const *)a;
  const dfgnn_measurement *y = *(const dfgnn_measurement *const *)b;
  int c = dfgnn__problem_compare(x, y);
  if (!c)
    c = strcmp(x->variant, y->variant);
  return c ? c : (x > y) - (x < y);
}

static void find_rows(report_data *d, report_problem *p) {
  const dfgnn_measurement *wanted = &p->decision->problem;
  size_t low = 0, high = d->input->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (dfgnn__problem_compare(d->sorted[middle], wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  p->row = d->sorted + low;
  while (low + p->rows < d->input->count &&
         !dfgnn__problem_compare(p->row[p->rows], wanted))
    p->rows++;
}

/* ---- devices, graphs and shapes ------------------------------------------ */

static int same_device(const dfgnn_measurement *a, const dfgnn_measurement *b) {
  return !strcmp(a->backend, b->backend) && !strcmp(a->arch, b->arch) &&
         !strcmp(a->model, b->model) && a->units == b->units &&
         a->cache_bytes == b->cache_bytes;
}

/* Decisions are ordered by device, so that it is the last one or a new one. */
static size_t device_of(report_data *d, const dfgnn_measurement *row) {
  if (!d->devices || !same_device(d->device[d->devices - 1].row, row))
    d->device[d->devices++].row = row;
  report_device *last = &d->device[d->devices - 1];
  if (row->time > last->row->time)
    last->row = row;
  last->problems++;
  return d->devices - 1;
}

/* Options are named only where they are not the default, such as cold caches.
 */
static void text_of(char *text, size_t size, const dfgnn_measurement *row) {
  dfgnn_problem problem;
  char extras[128] = "";
  const int math = strcmp(row->math, row->dtype) && strcmp(row->math, "f32");
  if (!dfgnn__key_problem(&problem, row))
    dfgnn__key_extras(extras, sizeof extras, &problem);
  if (*row->program) /* the text as far as it fits */
    snprintf(extras, sizeof extras, " %s: %.90s", row->program,
             row->program_text);
  snprintf(text, size, "%s %s %lldx%lld %s%s%s%s%s%s%s", row->op, row->pass,
           (long long)row->heads, (long long)row->dim, row->dtype,
           math ? " " : "", math ? row->math : "",
           strcmp(row->layout, "nhd") ? " ndh" : "",
           strncmp(row->protocol, "cold", 4) ? "" : " cold",
           row->deterministic ? "" : " any order", extras);
}

/* The slot of a key in a table of open addressing, [places] of index + 1, a
 * power of two; slots that are free have 0. */
static size_t *slot_of(size_t *place, size_t places, uint64_t key,
                       uint64_t (*key_of)(const report_data *, size_t),
                       const report_data *d) {
  size_t i = dfgnn__fold(0, key) & (places - 1);
  while (place[i] && key_of(d, place[i] - 1) != key)
    i = (i + 1) & (places - 1);
  return &place[i];
}

static uint64_t key_of_shape(const report_data *d, size_t i) {
  return d->shape[i].key;
}

static uint64_t key_of_graph(const report_data *d, size_t i) {
  return d->graph[i].row->signature.fingerprint;
}

static size_t shape_of(report_data *d, const dfgnn_measurement *row,
                       size_t device) {
  const uint64_t key = dfgnn__fold(dfgnn__key_sized(row), device);
  size_t *slot = slot_of(d->place, d->places, key, key_of_shape, d);
  if (!*slot) {
    report_shape *s = &d->shape[d->shapes];
    *s = (report_shape){.row = row, .device = device, .key = key};
    text_of(s->text, sizeof s->text, row);
    *slot = ++d->shapes;
  }
  d->shape[*slot - 1].problems++;
  return *slot - 1;
}

static int by_name(const void *a, const void *b) {
  const report_graph *x = a, *y = b;
  const int c = strcmp(x->name, y->name);
  const uint64_t p = x->row->signature.fingerprint;
  const uint64_t q = y->row->signature.fingerprint;
  return c ? c : (p > q) - (p < q);
}

static int by_fingerprint(const void *a, const void *b) {
  const uint64_t p = ((const report_graph *)a)->row->signature.fingerprint;
  const uint64_t q = ((const report_graph *)b)->row->signature.fingerprint;
  return (p > q) - (p < q);
}

static void name_graph(report_data *d, report_graph *g) {
  const dfgnn_report_input *in = d->input;
  g->signature = &g->row->signature;
  for (size_t i = 0; i < in->graphs; i++)
    if (in->graph[i].signature.fingerprint == g->signature->fingerprint) {
      g->given = &in->graph[i];
      g->signature = &g->given->signature;
      break;
    }
  if (*g->row->graph)
    snprintf(g->name, sizeof g->name, "%s", g->row->graph);
  else if (g->given)
    snprintf(g->name, sizeof g->name, "%s", g->given->name);
  else
    snprintf(g->name, sizeof g->name, "%lld nodes, %lld edges",
             (long long)g->signature->destinations,
             (long long)g->signature->edges);
}

/* Graphs are told apart by fingerprint; each has the label of its newest row.
 */
static void find_graphs(report_data *d) {
  for (size_t i = 0; i < d->problems; i++)
    d->graph[i].row = &d->problem[i].decision->problem;
  qsort(d->graph, d->problems, sizeof *d->graph, by_fingerprint);
  for (size_t i = 0; i < d->problems; i++) {
    report_graph *last = d->graphs ? &d->graph[d->graphs - 1] : NULL;
    if (!last || by_fingerprint(last, &d->graph[i])) {
      d->graph[d->graphs] = d->graph[i];
      last = &d->graph[d->graphs++];
    }
    if (d->graph[i].row->time > last->row->time ||
        (d->graph[i].row->time == last->row->time &&
         strcmp(d->graph[i].row->graph, last->row->graph) < 0))
      last->row = d->graph[i].row;
  }
  for (size_t i = 0; i < d->graphs; i++)
    name_graph(d, &d->graph[i]);
  qsort(d->graph, d->graphs, sizeof *d->graph, by_name);
  for (size_t i = 1, twin = 1; i < d->graphs; i++) {
    const size_t length = strlen(d->graph[i - twin].name);
    if (strncmp(d->graph[i - twin].name, d->graph[i].name, length) ||
        d->graph[i].name[length]) {
      twin = 1;
      continue;
    }
    twin++;
    snprintf(d->graph[i].name + length, sizeof d->graph[i].name - length,
             " (%zu)", twin);
  }
}

static size_t graph_of(const report_data *d, const dfgnn_measurement *row) {
  const uint64_t key = row->signature.fingerprint;
  return *slot_of(d->place, d->places, key, key_of_graph, d) - 1;
}

static void index_graphs(report_data *d) {
  memset(d->place, 0, d->places * sizeof *d->place);
  for (size_t i = 0; i < d->graphs; i++)
    *slot_of(d->place, d->places, key_of_graph(d, i), key_of_graph, d) = i + 1;
}

/* ---- problems ------------------------------------------------------------ */

static int by_place(const void *a, const void *b) {
  const report_problem *x = a, *y = b;
  if (x->shape != y->shape)
    return x->shape < y->shape ? -1 : 1;
  if (x->graph != y->graph)
    return x->graph < y->graph ? -1 : 1;
  return (x->decision > y->decision) - (x->decision < y->decision);
}

/* Choices are told for so many devices; a store has one or a few. */
enum { MOST_DEVICES = 16 };

static dfgnn_device_info device_of_row(const dfgnn_measurement *row) {
  dfgnn_device_info d = DFGNN_DEVICE_INFO_INIT;
  snprintf(d.backend, sizeof d.backend, "%s", row->backend);
  snprintf(d.arch, sizeof d.arch, "%s", row->arch);
  snprintf(d.model, sizeof d.model, "%s", row->model);
  d.units = row->units;
  d.cache_bytes = row->cache_bytes;
  d.memory_bytes = row->memory_bytes;
  d.shared_bytes = row->shared_bytes;
  return d;
}

static void open_device(report_data *d, report_device *v) {
  double best = 0;
  v->info = device_of_row(v->row);
  v->bandwidth = dfgnn__report_bandwidth(&v->measured, v->row->model);
  if (d->input->copy_gbps > 0) {
    v->bandwidth = 1e9 * d->input->copy_gbps;
    v->measured = "given";
  }
  for (size_t i = 0; !v->measured && i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    for (size_t k = 0; k < p->rows; k++)
      if (&d->device[p->device] == v && p->row[k]->copy_gbps > best)
        best = p->row[k]->copy_gbps;
  }
  if (best > 0) {
    v->bandwidth = 1e9 * best;
    v->measured = "the largest that a run measured";
  }
  if (dfgnn__table_create(&v->table, NULL, &v->info, d->input->row,
                          d->input->count, d->input->count))
    v->table = NULL;
}

static void count_stale(report_data *d) {
  for (size_t i = 0; i < d->input->count; i++) {
    const dfgnn_measurement *row = &d->input->row[i];
    const dfgnn_use use = dfgnn__variant_use(row->variant, row->revision);
    if (use != DFGNN_USE_CURRENT)
      d->stale[use - 1]++;
  }
}

static int allocate(report_data *d) {
  const size_t count = d->decisions->count + 1;
  size_t arms = 0;
  for (size_t i = 0; i < d->decisions->count; i++)
    arms += d->decisions->decision[i].count;
  d->arms = calloc(arms + 1, sizeof *d->arms);
  d->device = calloc(count, sizeof *d->device);
  d->graph = calloc(count, sizeof *d->graph);
  d->shape = calloc(count, sizeof *d->shape);
  d->problem = calloc(count, sizeof *d->problem);
  d->sorted = calloc(d->input->count + 1, sizeof *d->sorted);
  for (d->places = 16; d->places < 2 * count; d->places *= 2)
    ;
  d->place = calloc(d->places, sizeof *d->place);
  return d->place && d->arms && d->device && d->graph && d->shape &&
         d->problem && d->sorted;
}

dfgnn_status dfgnn__report_data_make(report_data *d,
                                     const dfgnn_report_input *input,
                                     int brief) {
  *d = (report_data){.input = input};
  dfgnn_status status =
      dfgnn__decide(&d->decisions, NULL, input->row, input->count,
                    DFGNN_REPORT_MARGIN, usable, NULL);
  if (status)
    return status;
  if (!allocate(d)) {
    dfgnn__report_data_free(d);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  }
  for (size_t i = 0; i < input->count; i++)
    d->sorted[i] = &input->row[i];
  qsort(d->sorted, input->count, sizeof *d->sorted, by_problem);
  count_stale(d);
  for (size_t i = 0; i < d->decisions->count; i++)
    if (d->decisions->decision[i].count)
      d->problem[d->problems++].decision = &d->decisions->decision[i];
  find_graphs(d);
  for (size_t i = 0; i < d->problems; i++) {
    report_problem *p = &d->problem[i];
    p->device = device_of(d, &p->decision->problem);
    p->shape = shape_of(d, &p->decision->problem, p->device);
  }
  index_graphs(d);
  report_arm *arm = d->arms;
  for (size_t i = 0; i < d->problems; i++) {
    report_problem *p = &d->problem[i];
    find_rows(d, p);
    p->graph = graph_of(d, &p->decision->problem);
    d->graph[p->graph].problems++;
    p->arm = arm;
    arm += p->decision->count;
  }
  qsort(d->problem, d->problems, sizeof *d->problem, by_place);
  for (size_t i = 0; i < d->devices && i < MOST_DEVICES && !brief; i++)
    open_device(d, &d->device[i]);
  for (size_t i = 0; i < d->problems; i++)
    dfgnn__report_facts(d, &d->problem[i], brief);
  return DFGNN_OK;
}

void dfgnn__report_data_free(report_data *d) {
  for (size_t i = 0; i < d->devices; i++)
    if (d->device[i].table)
      dfgnn__table_destroy(d->device[i].table);
  free(d->place);
  free(d->sorted);
  free(d->problem);
  free(d->shape);
  free(d->graph);
  free(d->device);
  free(d->arms);
  dfgnn__decisions_free(d->decisions);
}

const report_problem *dfgnn__report_find(const report_data *d, size_t graph,
                                         size_t shape) {
  size_t low = 0, high = d->problems;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const report_problem *p = &d->problem[middle];
    if (p->shape < shape || (p->shape == shape && p->graph < graph))
      low = middle + 1;
    else
      high = middle;
  }
  const report_problem *p = &d->problem[low];
  return low < d->problems && p->shape == shape && p->graph == graph ? p : NULL;
}
