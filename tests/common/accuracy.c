/* accuracy.c - prints how exact each family is on the graphs of hubs.h, as the
 * table of docs/performance.md
 *
 *     tests/accuracy [cpu|cuda]
 *
 * DFGNN_TEST_FULL checks every variant of a family, not some. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/common/hubs.h"

enum { FAMILIES = 256 };

typedef struct line {
  const dfgnn_family *family;
  dfgnn_accuracy worst[DFGNN_DTYPE_COUNT];
  int checks[DFGNN_DTYPE_COUNT], wrong;
} line;

typedef struct table {
  line lines[FAMILIES];
  int count, wrong;
} table;

static line *line_of(table *t, const dfgnn_family *family) {
  for (int i = 0; i < t->count; i++)
    if (t->lines[i].family == family)
      return &t->lines[i];
  if (t->count == FAMILIES) {
    fprintf(stderr, "more than %d families\n", FAMILIES);
    exit(EXIT_FAILURE);
  }
  t->lines[t->count] = (line){.family = family};
  return &t->lines[t->count++];
}

static void take(const hub_result *r, void *data) {
  table *t = data;
  line *l = line_of(t, r->variant->family);
  dfgnn_accuracy *worst = &l->worst[r->problem.dtype];
  l->checks[r->problem.dtype]++;
  if (r->accuracy.rel_error > worst->rel_error)
    worst->rel_error = r->accuracy.rel_error;
  if (r->accuracy.of_bound > worst->of_bound)
    worst->of_bound = r->accuracy.of_bound;
  if (r->status == DFGNN_OK)
    return;
  t->wrong++;
  fprintf(stderr, "%s on %s, %s %s %s: %s\n", r->variant->name, r->hub->name,
          dfgnn_name(DFGNN_NAMES_OP, r->problem.op),
          dfgnn_name(DFGNN_NAMES_PASS, r->problem.pass),
          dfgnn_name(DFGNN_NAMES_DTYPE, r->problem.dtype), dfgnn_last_error());
}

static void print(const line *l) {
  static const dfgnn_dtype order[] = {DFGNN_F32, DFGNN_F16, DFGNN_BF16,
                                      DFGNN_F64};
  printf("| `%s` |", l->family->name);
  for (int i = 0; i < DFGNN_DTYPE_COUNT; i++) {
    const dfgnn_accuracy *a = &l->worst[order[i]];
    if (l->checks[order[i]])
      printf(" %.1e (%.0f %%) |", a->rel_error, 100 * a->of_bound);
    else
      printf(" - |");
  }
  printf("\n");
}

int main(int argc, char **argv) {
  static table t;
  const char *device = argc > 1 ? argv[1] : "cpu";
  for (int i = 0; i < VARIANT_TESTS; i++) {
    variant_test test = variant_test_make(i);
    if (variant_test_count(device, &test))
      hubs_visit(device, &test, take, &t);
  }
  printf("| family | f32 | f16 | bf16 | f64 |\n| --- | --- | --- | --- | --- "
         "|\n");
  for (int i = 0; i < t.count; i++)
    print(&t.lines[i]);
  return t.count && !t.wrong ? EXIT_SUCCESS : EXIT_FAILURE;
}
