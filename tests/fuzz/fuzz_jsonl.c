/* A line of JSON Lines: refused with a reason, or kept and written alike. */
#include "db/store.h"
#include "tools/jsonl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const dfgnn_measurement *row) {
  json_t *object = tool_measurement_json(row);
  char *text = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII |
                                      JSON_REAL_PRECISION(17));
  json_decref(object);
  if (!text)
    abort();
  return text;
}

/* Asserts that a row comes back the same through its text. */
static int round_trip(void *data, const dfgnn_measurement *row) {
  char *text = text_of(row);
  dfgnn_measurement again;
  json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  (void)data;
  if (!object || tool_measurement_parse(&again, object) ||
      dfgnn__measurement_check(&again))
    abort();
  char *second = text_of(&again);
  if (strcmp(text, second) != 0)
    abort();
  json_decref(object);
  free(text);
  free(second);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static dfgnn_store *store;
  static int rows;
  dfgnn_measurement row;
  if (rows++ % 1000 == 0) {
    dfgnn__store_close(store);
    store = NULL;
    if (dfgnn__store_open(&store, ":memory:", DFGNN_STORE_WRITE))
      abort();
  }
  json_t *object =
      json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
  if (!object)
    return 0;
  dfgnn_status status = tool_measurement_parse(&row, object);
  if (!status) {
    status = dfgnn__measurement_check(&row);
    int added = 0;
    if (dfgnn__store_record(store, &added, &row) != status)
      abort();
    if (added)
      dfgnn__store_each(store, NULL, NULL, round_trip, NULL);
  }
  if (status && !*dfgnn_last_error())
    abort();
  json_decref(object);
  return 0;
}
