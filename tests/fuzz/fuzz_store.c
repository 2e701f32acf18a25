/* A store of any bytes, or a good one with any rows: it opens or says why not,
 * and the rows that are read from it can be decided on and merged. */
#include "db/field.h"
#include "db/internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int usable(void *data, const char *variant, int revision) {
  (void)data;
  return revision < 100 && strchr(variant, '/') != NULL;
}

static int check_row(void *data, const dfgnn_measurement *row) {
  (void)data;
  if (dfgnn__measurement_check(row))
    abort(); /* a row outside its domain came through */
  return 0;
}

static void use(dfgnn_store *store) {
  dfgnn_rows *rows = NULL;
  dfgnn_decisions *decisions = NULL;
  dfgnn_store *copy = NULL;
  uint64_t invalid = 0;
  size_t count = 0;
  dfgnn__store_each(store, &invalid, NULL, check_row, NULL);
  if (dfgnn__rows_create(&rows))
    abort();
  if (!dfgnn__rows_load(rows, NULL, store, NULL)) {
    const dfgnn_measurement *row = dfgnn__rows_get(rows, &count);
    if (dfgnn__decide(&decisions, NULL, row, count, 0.015, usable, NULL))
      abort();
    dfgnn__decisions_free(decisions);
    if (dfgnn__store_open(&copy, ":memory:", DFGNN_STORE_WRITE))
      abort();
    dfgnn_merge_counts counts = {0, 0, 0};
    if (dfgnn__store_merge(copy, &counts, store, NULL) || counts.added != count)
      abort();
    dfgnn__store_close(copy);
  }
  dfgnn__rows_free(rows);
}

/* Takes n bytes of the input; zeros stand for those that it lacks. */
static void take(void *to, size_t n, const uint8_t **data, size_t *size) {
  size_t m = n < *size ? n : *size;
  memset(to, 0, n);
  memcpy(to, *data, m);
  *data += m;
  *size -= m;
}

static void any_row(dfgnn_measurement *row, char text[][64],
                    const uint8_t **data, size_t *size) {
  size_t texts = 0;
  memset(row, 0, sizeof *row);
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[g].field[i];
      void *slot = dfgnn__field_slot(field, row);
      switch (field->kind) {
      case DFGNN_FIELD_NAME:
      case DFGNN_FIELD_TEXT:
        take(text[texts], 16, data, size);
        text[texts][16] = 0;
        *(const char **)slot = text[texts++];
        break;
      case DFGNN_FIELD_INT:
        take(slot, sizeof(int), data, size);
        break;
      case DFGNN_FIELD_INT64:
      case DFGNN_FIELD_UINT64:
      case DFGNN_FIELD_REAL:
        take(slot, 8, data, size);
        break;
      case DFGNN_FIELD_REALS:
        take(slot, 8 * DFGNN_HISTOGRAM_BINS, data, size);
        break;
      }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  dfgnn_store *store = NULL;
  if (size > 100 && memcmp(data, "SQLite", 6) == 0) {
    if (!dfgnn__store_open_bytes(&store, "fuzzed", data, size))
      use(store);
    else if (store)
      abort();
    dfgnn__store_close(store);
    return 0;
  }
  if (dfgnn__store_open(&store, ":memory:", DFGNN_STORE_WRITE))
    abort();
  while (size) {
    static char text[64][64];
    dfgnn_measurement row;
    int added;
    any_row(&row, text, &data, &size);
    dfgnn__store_insert_raw(store, &added, &row); /* a CHECK may refuse it */
    dfgnn__store_insert(store, &added, &row);
  }
  use(store);
  dfgnn__store_close(store);
  return 0;
}
