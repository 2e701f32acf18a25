#include "tuner/coverage.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/fingerprint.h"
#include "lib/base/error.h"
#include "lib/cell.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "lib/predict.h"
#include "tuner/train_rows.h"

/* ---- what was measured --------------------------------------------------- */

/* Counts a decision's variants; 0 without memory. */
static int count_decision(dfgnn_cover_table *table, const dfgnn_decision *d,
                          const dfgnn_problem *problem) {
  char cell[DFGNN_CELL_SIZE];
  dfgnn__cell(cell, problem);
  for (size_t k = 0; k < d->count; k++) {
    const dfgnn_variant *v = dfgnn__variant_find(d->ranked[k].variant);
    if (!v)
      continue;
    const size_t i = dfgnn__cover_table_find(table, cell, v->family->name);
    if (i == SIZE_MAX ||
        !dfgnn__cover_table_graph(table, i, d->problem.signature.fingerprint) ||
        !dfgnn__cover_table_setting(table, i, dfgnn__variant_index(v)))
      return 0;
  }
  return 1;
}

dfgnn_status dfgnn__coverage_count(dfgnn_cover_table *table,
                                   const dfgnn_decisions *decisions,
                                   const char *key) {
  for (size_t i = 0; i < decisions->count; i++) {
    const dfgnn_decision *d = &decisions->decision[i];
    dfgnn_problem problem;
    char own[64];
    if (!dfgnn__train_key(own, &d->problem) || (key && strcmp(own, key)) ||
        dfgnn__key_problem(&problem, &d->problem))
      continue;
    if (!count_decision(table, d, &problem))
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__coverage(dfgnn_forest_cover **cover, size_t *count,
                             const dfgnn_decisions *decisions,
                             const char *key) {
  dfgnn_cover_table table = {.count = 0};
  dfgnn_status status = dfgnn__coverage_count(&table, decisions, key);
  if (!status && !table.count && !(table.entry = calloc(1, sizeof **cover)))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status) {
    dfgnn__cover_table_sort(&table);
    *count = table.count;
    *cover = table.entry;
    table.entry = NULL; /* it is the caller's */
  }
  dfgnn__cover_table_free(&table);
  return status;
}

/* ---- what is legal ------------------------------------------------------- */

/* Typical graphs, on some of which each family runs: a mesh, a graph with hubs,
 * and a batch of small dense graphs. */
static const dfgnn_signature typical[] = {
    {.struct_size = sizeof(dfgnn_signature),
     .destinations = 20000,
     .sources = 20000,
     .edges = 160000,
     .max_degree = 8,
     .mean_degree = 8,
     .p50_degree = 8,
     .p90_degree = 8,
     .p99_degree = 8,
     .reuse = 4,
     .locality = 0.9,
     .graphs = 1,
     .largest_graph = 20000,
     .max_source_degree = 8,
     .p50_source_degree = 8,
     .p99_source_degree = 8,
     .fingerprint = 1},
    {.struct_size = sizeof(dfgnn_signature),
     .destinations = 100000,
     .sources = 100000,
     .edges = 1000000,
     .max_degree = 10000,
     .mean_degree = 10,
     .p50_degree = 4,
     .p90_degree = 20,
     .p99_degree = 100,
     .degree_cv = 5,
     .reuse = 1,
     .graphs = 1,
     .largest_graph = 100000,
     .max_source_degree = 10000,
     .p50_source_degree = 4,
     .p99_source_degree = 100,
     .source_cv = 5,
     .fingerprint = 2},
    {.struct_size = sizeof(dfgnn_signature),
     .destinations = 12000,
     .sources = 12000,
     .edges = 600000,
     .max_degree = 90,
     .mean_degree = 50,
     .p50_degree = 50,
     .p90_degree = 70,
     .p99_degree = 80,
     .degree_cv = 0.2,
     .reuse = 8,
     .locality = 0.9,
     .graphs = 100,
     .largest_graph = 120,
     .density = 0.42,
     .max_source_degree = 90,
     .p50_source_degree = 50,
     .p99_source_degree = 80,
     .source_cv = 0.2,
     .fingerprint = 3}};

/* Problems that stand for cells: these times operators, passes, messages,
 * heads, types and edge features. */
static const int64_t cell_heads[] = {1, 4, 8}, cell_dims[] = {128, 32, 16};
static const int64_t cell_edges[] = {0, 11, 64, DFGNN_EDGE_PROJECTED};
static const dfgnn_dtype cell_dtypes[] = {DFGNN_F32, DFGNN_F16};
#define COUNT(list) (sizeof(list) / sizeof *(list))

typedef struct legal {
  dfgnn_cover_table table;
  const dfgnn_device_info *device;
  const char *key;
} legal;

/* Adds the families that run a problem; 0 without memory. */
static int add_families(legal *l, const dfgnn_problem *problem) {
  char cell[DFGNN_CELL_SIZE];
  const dfgnn_family *last = NULL;
  dfgnn__cell(cell, problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    int runs = 0;
    if (v->family == last || !dfgnn__variant_offered(v) ||
        strcmp(v->family->backend, l->device->backend))
      continue;
    for (size_t g = 0; g < COUNT(typical) && !runs; g++) {
      const dfgnn_signature *s = &typical[g];
      const dfgnn_matrix matrix = {.destinations = s->destinations,
                                   .sources = s->sources,
                                   .edges = s->edges,
                                   .max_degree = s->max_degree};
      const dfgnn_setting setting = {.problem = problem,
                                     .matrix = &matrix,
                                     .signature = s,
                                     .device = l->device};
      runs = !dfgnn__variant_refusal(v, &setting);
    }
    if (!runs)
      continue;
    last = v->family;
    if (dfgnn__cover_table_find(&l->table, cell, v->family->name) == SIZE_MAX)
      return 0;
  }
  return 1;
}

/* Adds the cells of an operator, a pass and a message; 0 without memory. */
static int add_cells(legal *l, dfgnn_op op, dfgnn_pass pass,
                     dfgnn_message message) {
  for (size_t h = 0; h < COUNT(cell_heads); h++)
    for (size_t t = 0; t < COUNT(cell_dtypes); t++)
      for (size_t e = 0; e < COUNT(cell_edges); e++) {
        dfgnn_problem given = DFGNN_PROBLEM_INIT, problem;
        given.op = op;
        given.pass = pass;
        given.message = message;
        given.heads = cell_heads[h];
        given.dim = cell_dims[h];
        given.dtype = cell_dtypes[t];
        given.edge_dim = cell_edges[e];
        if (dfgnn__problem_complete(&problem, &given))
          continue; /* there is no such problem */
        if (!add_families(l, &problem))
          return 0;
      }
  return 1;
}

dfgnn_status dfgnn__coverage_legal(dfgnn_forest_cover **cover, size_t *count,
                                   const dfgnn_device_info *device,
                                   const char *key) {
  legal l = {.device = device, .key = key};
  int memory = 1;
  for (int op = 0; op < DFGNN_OP_COUNT && memory; op++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT && memory; pass++) {
      char own[64];
      dfgnn__model_key(own, sizeof own, device, (dfgnn_op)op, (dfgnn_pass)pass);
      if (!dfgnn__operator((dfgnn_op)op, (dfgnn_pass)pass) ||
          dfgnn__measured_op((dfgnn_op)op) != (dfgnn_op)op ||
          (key && strcmp(own, key)))
        continue;
      for (int m = 0; m < DFGNN_MESSAGE_COUNT && memory; m++)
        memory =
            add_cells(&l, (dfgnn_op)op, (dfgnn_pass)pass, (dfgnn_message)m);
    }
  if (!memory) {
    dfgnn__cover_table_free(&l.table);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  dfgnn__cover_table_sort(&l.table);
  *cover = l.table.entry;
  *count = l.table.count;
  return DFGNN_OK;
}

/* ---- what to measure ----------------------------------------------------- */

/* How often the values of a variant's parameters were drawn before. */
static int times_drawn(const int used[][DFGNN_MAX_VALUES],
                       const dfgnn_variant *v) {
  int sum = 0;
  for (int p = 0; p < DFGNN_MAX_PARAMETERS && v->family->parameters[p].name;
       p++)
    for (int k = 0; k < v->family->parameters[p].count; k++)
      if (v->family->parameters[p].values[k] == v->parameter[p])
        sum += used[p][k];
  return sum;
}

static void note_drawn(int used[][DFGNN_MAX_VALUES], const dfgnn_variant *v) {
  for (int p = 0; p < DFGNN_MAX_PARAMETERS && v->family->parameters[p].name;
       p++)
    for (int k = 0; k < v->family->parameters[p].count; k++)
      used[p][k] += v->family->parameters[p].values[k] == v->parameter[p];
}

static int is_drawn(const dfgnn_variant *const *list, size_t count,
                    const dfgnn_variant *v) {
  for (size_t i = 0; i < count; i++)
    if (list[i] == v)
      return 1;
  return 0;
}

/* Draws one more variant of a family, whose variants are first .. end - 1 of
 * the registry: of those with the least-drawn values the one with the least
 * hash.  NULL: no other runs. */
static const dfgnn_variant *draw_one(const dfgnn_query *q,
                                     const dfgnn_variant *const *list,
                                     size_t count,
                                     const int used[][DFGNN_MAX_VALUES],
                                     size_t first, size_t end, uint64_t seed) {
  const dfgnn_variant *best = NULL;
  int least = 0;
  uint64_t lot = 0;
  for (size_t i = first; i < end; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if ((q->broken && q->broken[i]) || is_drawn(list, count, v) ||
        dfgnn__variant_refusal(v, &q->setting))
      continue;
    const int times = times_drawn(used, v);
    const uint64_t own = dfgnn__fold_text(seed, v->name);
    if (!best || times < least || (times == least && own < lot)) {
      best = v;
      least = times;
      lot = own;
    }
  }
  return best;
}

size_t dfgnn__coverage_draw(const dfgnn_variant **variant,
                            const dfgnn_query *query, uint64_t seed) {
  const size_t all = dfgnn__variant_count();
  size_t count = 0, end;
  dfgnn_choice rule;
  dfgnn__rule_choice(&rule, query);
  if (rule.variant)
    variant[count++] = rule.variant;
  /* Few different draws, so that graphs share most programs to compile. */
  seed = dfgnn__fold(dfgnn__mix(seed),
                     query->setting.signature->fingerprint % DFGNN_COVER_DRAWS);
  for (size_t first = 0; first < all; first = end) {
    const dfgnn_family *family = dfgnn__variant(first)->family;
    int used[DFGNN_MAX_PARAMETERS][DFGNN_MAX_VALUES] = {{0}};
    for (end = first; end < all && dfgnn__variant(end)->family == family;)
      end++;
    if (family->reference || family->paper)
      continue;
    for (int k = 0; k < DFGNN_COVER_SETTINGS; k++) {
      const dfgnn_variant *v =
          draw_one(query, variant, count, (const int(*)[DFGNN_MAX_VALUES])used,
                   first, end, seed);
      if (!v)
        break;
      note_drawn(used, v);
      variant[count++] = v;
    }
  }
  return count;
}
