#include "lib/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/halves.h"

#define DFGNN_KERNEL(stem) extern const dfgnn_family dfgnn__families_##stem[];
#include "dfgnn_tune.h"
#include "kernels/families.def"
#undef DFGNN_KERNEL

#define MAX_EXTRA 8

static const dfgnn_family *const compiled_in[] = {
#define DFGNN_KERNEL(stem) dfgnn__families_##stem,
#include "kernels/families.def"
#undef DFGNN_KERNEL
    NULL};

static const dfgnn_family *extra[MAX_EXTRA + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int expanded;
static dfgnn_variant *variants;
static size_t count, capacity;
static size_t *by_name; /* open addressing: index + 1 */
static size_t slots;

static uint64_t hash_name(const char *name) {
  uint64_t h = 14695981039346656037u; /* FNV-1a */
  for (; *name; name++)
    h = (h ^ (unsigned char)*name) * 1099511628211u;
  return h;
}

static dfgnn_variant *append(void) {
  if (count == capacity) {
    size_t larger = capacity ? 2 * capacity : 256;
    dfgnn_variant *grown = realloc(variants, larger * sizeof *variants);
    if (!grown)
      return NULL;
    variants = grown;
    capacity = larger;
  }
  return memset(&variants[count++], 0, sizeof *variants);
}

static void name_variant(dfgnn_variant *v, const int *index) {
  const dfgnn_family *f = v->family;
  size_t size = sizeof v->name;
  size_t n = (size_t)snprintf(v->name, size, "%s", f->name);
  for (int p = 0; p < DFGNN_MAX_PARAMETERS && f->parameters[p].name; p++) {
    const dfgnn_parameter *parameter = &f->parameters[p];
    const char *label =
        index[p] < DFGNN_MAX_LABELS ? parameter->labels[index[p]] : NULL;
    v->parameter[p] = parameter->values[index[p]];
    n += (size_t)snprintf(v->name + n, n < size ? size - n : 0,
                          "%c%s=", p ? ',' : '/', parameter->name);
    if (n < size)
      n += label
               ? (size_t)snprintf(v->name + n, size - n, "%s", label)
               : (size_t)snprintf(v->name + n, size - n, "%d", v->parameter[p]);
  }
}

/* Adds every combination of a family's parameter values, the last varying
 * fastest; 0 without memory. */
static int expand_family(const dfgnn_family *f) {
  int index[DFGNN_MAX_PARAMETERS] = {0};
  int parameters = 0;
  while (parameters < DFGNN_MAX_PARAMETERS && f->parameters[parameters].name)
    parameters++;
  for (;;) {
    int value[DFGNN_MAX_PARAMETERS] = {0};
    for (int p = 0; p < parameters; p++)
      value[p] = f->parameters[p].values[index[p]];
    if (!f->legal || f->legal(value)) {
      dfgnn_variant *v = append();
      if (!v)
        return 0;
      v->family = f;
      name_variant(v, index);
    }
    int p = parameters - 1;
    while (p >= 0 && ++index[p] == f->parameters[p].count)
      index[p--] = 0;
    if (p < 0)
      return 1;
  }
}

static int index_names(void) {
  slots = 16;
  while (slots < 2 * count)
    slots *= 2;
  by_name = calloc(slots, sizeof *by_name);
  if (!by_name)
    return 0;
  for (size_t i = 0; i < count; i++) {
    char *slash = strchr(variants[i].name, '/');
    variants[i].parameters = slash ? slash + 1 : "";
    size_t s = hash_name(variants[i].name) & (slots - 1);
    while (by_name[s])
      s = (s + 1) & (slots - 1);
    by_name[s] = i + 1;
  }
  return 1;
}

static int expand_tables(const dfgnn_family *const *table) {
  for (; *table; table++)
    for (const dfgnn_family *f = *table; f->name; f++)
      if (!expand_family(f))
        return 0;
  return 1;
}

static int expand(void) {
  if (expand_tables(compiled_in) && expand_tables(extra) && index_names())
    return 1;
  free(variants);
  variants = NULL;
  count = capacity = 0;
  return 0;
}

static int is_expanded(void) {
  if (atomic_load_explicit(&expanded, memory_order_acquire))
    return 1;
  pthread_mutex_lock(&lock);
  int done = atomic_load_explicit(&expanded, memory_order_relaxed);
  if (!done && (done = expand()))
    atomic_store_explicit(&expanded, 1, memory_order_release);
  pthread_mutex_unlock(&lock);
  return done;
}

dfgnn_status dfgnn__registry_open(void) {
  return is_expanded() ? DFGNN_OK
                       : dfgnn__fail(DFGNN_ERROR_MEMORY,
                                     "out of memory for the list of variants");
}

void dfgnn__registry_add(const dfgnn_family *families) {
  for (int i = 0; i < MAX_EXTRA; i++)
    if (!extra[i]) {
      extra[i] = families;
      return;
    }
}

size_t dfgnn__variant_count(void) { return is_expanded() ? count : 0; }

const dfgnn_variant *dfgnn__variant(size_t i) {
  return i < dfgnn__variant_count() ? &variants[i] : NULL;
}

const dfgnn_variant *dfgnn__variant_find(const char *name) {
  if (!is_expanded())
    return NULL;
  for (size_t s = hash_name(name) & (slots - 1); by_name[s];
       s = (s + 1) & (slots - 1))
    if (!strcmp(variants[by_name[s] - 1].name, name))
      return &variants[by_name[s] - 1];
  return NULL;
}

size_t dfgnn__variant_index(const dfgnn_variant *variant) {
  return (size_t)(variant - variants);
}

/* Variants are named for their backend first: "cuda.attention..." */
static int has_backend(const char *variant) {
  size_t length = strcspn(variant, ".");
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const char *backend = dfgnn__variant(i)->family->backend;
    if (strlen(backend) == length && !strncmp(backend, variant, length))
      return 1;
  }
  return 0;
}

dfgnn_use dfgnn__variant_use(const char *variant, int revision) {
  const dfgnn_variant *found = dfgnn__variant_find(variant);
  if (!found)
    return has_backend(variant) ? DFGNN_USE_UNKNOWN : DFGNN_USE_FOREIGN;
  int ours = found->family->revision;
  return revision == ours  ? DFGNN_USE_CURRENT
         : revision < ours ? DFGNN_USE_OLDER
                           : DFGNN_USE_NEWER;
}

/* Does the variant keep something of what the graph's arrays hold? */
static int keeps_contents(const dfgnn_family *family,
                          const dfgnn_setting *setting) {
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const int views = family->views ? family->views(setting, requests) : 0;
  for (int k = 0; k < views; k++)
    if (requests[k].kind != DFGNN_VIEW_TRANSPOSE)
      return 1;
  return family->prepare != NULL;
}

const char *dfgnn__variant_refusal(const dfgnn_variant *variant,
                                   const dfgnn_setting *setting) {
  const dfgnn_family *f = variant->family;
  const dfgnn_problem *p = setting->problem;
  if (strcmp(f->backend, setting->device->backend))
    return "another backend";
  if (!(f->ops & DFGNN_BIT(p->op)))
    return "another operator";
  if (!(f->passes & DFGNN_BIT(p->pass)))
    return "another pass";
  if (!(f->dtypes & DFGNN_BIT(p->dtype)))
    return "does not take this dtype";
  if (p->weights && !f->weights)
    return "does not write attention weights";
  if (p->bias && !f->bias)
    return "does not take an edge bias";
  if (p->dropout && !f->dropout)
    return "has no dropout";
  if (p->accumulate && !f->accumulate)
    return "does not add to gradients";
  if (p->edge_dim && !(f->edge_ops & DFGNN_BIT(p->op)))
    return "does not take edge features";
  if (!p->edge_dim && f->edges_only)
    return "is for edge features alone";
  if (p->edge_list && !f->edge_list)
    return "takes edge features in the graph's order alone";
  if (p->message && !(f->messages & DFGNN_BIT(p->message)))
    return "does not compute such messages";
  if (p->deterministic && !f->deterministic)
    return "not deterministic";
  dfgnn_setting full = *setting;
  full.parameter = variant->parameter;
  if (!full.program)
    full.program = dfgnn__edge_program_job(p);
  const char *reason = f->applicable ? f->applicable(&full) : NULL;
  if (reason)
    return reason;
  if (full.matrix->refilled && keeps_contents(f, &full))
    return "keeps what it learns of the edges, which are refilled";
  if (p->max_workspace >= 0 &&
      dfgnn__family_workspace(f, &full) > (size_t)p->max_workspace)
    return "needs more workspace than max_workspace";
  return NULL;
}

int64_t dfgnn__least_workspace(const dfgnn_setting *setting) {
  dfgnn_problem problem = *setting->problem;
  dfgnn_setting full = *setting;
  int64_t least = -1;
  problem.max_workspace = -1;
  full.problem = &problem;
  full.program = dfgnn__edge_program_job(&problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!dfgnn__variant_offered(v) || dfgnn__variant_refusal(v, &full))
      continue;
    full.parameter = v->parameter;
    const int64_t bytes = (int64_t)dfgnn__family_workspace(v->family, &full);
    if (least < 0 || bytes < least)
      least = bytes;
  }
  return least;
}

size_t dfgnn_variant_count(void) { return dfgnn__variant_count(); }

dfgnn_status dfgnn_variant_get(dfgnn_variant_info *info, size_t i) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("info", dfgnn_variant_info, "DFGNN_VARIANT_INFO_INIT");
  const dfgnn_variant *v = dfgnn__variant(i);
  DFGNN_TRY(dfgnn__can_give(info, &kind));
  if (!v)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "variant %zu does not exist, there are %zu", i,
                       dfgnn__variant_count());
  const dfgnn_variant_info whole = {.name = v->name,
                                    .algorithm = v->family->algorithm,
                                    .backend = v->family->backend,
                                    .parameters = v->parameters,
                                    .ops = v->family->ops,
                                    .passes = v->family->passes,
                                    .revision = v->family->revision,
                                    .deterministic = v->family->deterministic};
  dfgnn__give(info, &whole, &kind);
  return DFGNN_OK;
}
