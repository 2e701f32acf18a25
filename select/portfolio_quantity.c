/* portfolio_quantity.c - the numbers by which graphs and problems differ */
#include <stddef.h>
#include <string.h>

#include "select/portfolio_table.h"

static double units(const dfgnn_setting *s) {
  return s->device->units > 0 ? s->device->units : 1;
}
static double cache(const dfgnn_setting *s) {
  return s->device->cache_bytes > 0 ? (double)s->device->cache_bytes : 1;
}
static double head_bytes(const dfgnn_setting *s) {
  return (double)s->problem->dim * (double)dfgnn_dtype_size(s->problem->dtype);
}
static double row_bytes(const dfgnn_setting *s) {
  return (double)s->problem->heads * head_bytes(s);
}
static double heads(const dfgnn_setting *s) {
  return (double)s->problem->heads;
}
static double edge_dim(const dfgnn_setting *s) {
  return (double)s->problem->edge_dim;
}

/* Members of the signature come first, in the order of its columns in the text.
 */
typedef enum number_type { WHOLE, REAL, COMPUTED } number_type;
typedef struct number {
  const char *name;
  number_type type;
  size_t offset; /* in the signature */
  double (*compute)(const dfgnn_setting *setting);
} number;

#define OF(type, name)                                                         \
  { #name, type, offsetof(dfgnn_signature, name), NULL }
#define BY(name)                                                               \
  { #name, COMPUTED, 0, name }
static const number numbers[] = {OF(WHOLE, destinations),
                                 OF(WHOLE, sources),
                                 OF(WHOLE, edges),
                                 OF(WHOLE, max_degree),
                                 OF(REAL, mean_degree),
                                 OF(WHOLE, p50_degree),
                                 OF(WHOLE, p90_degree),
                                 OF(WHOLE, p99_degree),
                                 OF(REAL, degree_cv),
                                 OF(REAL, isolated),
                                 OF(REAL, reuse),
                                 OF(REAL, locality),
                                 OF(WHOLE, graphs),
                                 OF(WHOLE, largest_graph),
                                 OF(REAL, density),
                                 OF(WHOLE, max_source_degree),
                                 OF(WHOLE, p50_source_degree),
                                 OF(WHOLE, p99_source_degree),
                                 OF(REAL, source_cv),
                                 OF(REAL, isolated_sources),
                                 BY(units),
                                 BY(cache),
                                 BY(head_bytes),
                                 BY(row_bytes),
                                 BY(heads),
                                 BY(edge_dim)};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

size_t dfgnn__signature_columns(void) {
  size_t count = 0;
  while (numbers[count].type != COMPUTED)
    count++;
  return count;
}

const char *dfgnn__signature_column(size_t i) { return numbers[i].name; }

void dfgnn__signature_set(dfgnn_signature *signature, size_t i, double value) {
  char *at = (char *)signature + numbers[i].offset;
  if (numbers[i].type == WHOLE)
    *(int64_t *)(void *)at = (int64_t)value;
  else
    *(double *)(void *)at = value;
}

static double number_of(const number *n, const dfgnn_setting *setting) {
  const char *at = (const char *)setting->signature + n->offset;
  return n->type == COMPUTED ? n->compute(setting)
         : n->type == WHOLE  ? (double)*(const int64_t *)(const void *)at
                             : *(const double *)(const void *)at;
}

int dfgnn__quantity_parse(dfgnn_quantity *quantity, const char *text) {
  const char *at = text;
  int power = 1;
  memset(quantity, 0, sizeof *quantity);
  if (strlen(text) >= sizeof quantity->text)
    return 0;
  strcpy(quantity->text, text);
  for (;;) {
    const size_t length = strcspn(at, "*/");
    int i = 0;
    while (i < NUMBERS && (strlen(numbers[i].name) != length ||
                           strncmp(numbers[i].name, at, length)))
      i++;
    if (i == NUMBERS || quantity->factors == DFGNN_FACTORS)
      return 0;
    quantity->factor[quantity->factors].number = (unsigned char)i;
    quantity->factor[quantity->factors++].power = (signed char)power;
    if (!at[length])
      return 1;
    power = at[length] == '/' ? -1 : 1;
    at += length + 1;
  }
}

/* Nothing over nothing is 0. */
double dfgnn__quantity(const dfgnn_quantity *quantity,
                       const dfgnn_setting *setting) {
  double product = 1;
  for (int i = 0; i < quantity->factors; i++) {
    const double x = number_of(&numbers[quantity->factor[i].number], setting);
    if (quantity->factor[i].power < 0)
      product = x > 0 ? product / x : 0;
    else
      product *= x;
  }
  return product;
}
