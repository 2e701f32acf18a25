/* jsonl.c - a measurement as a JSON object and back, by one table of fields */
#include "tools/jsonl.h"
#include "base/error.h"
#include "tools/report.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { TEXT, INT, INT64, WORD64, REAL, HISTOGRAM } kind;

typedef struct field {
  const char *name;
  kind kind;
  size_t offset;
} field;

#define F(kind, name)                                                          \
  { #name, kind, offsetof(dfgnn_measurement, name) }
#define S(kind, name)                                                          \
  { #name, kind, offsetof(dfgnn_measurement, signature.name) }

static const field fields[] = {
    F(TEXT, backend),
    F(TEXT, arch),
    F(TEXT, model),
    F(INT, units),
    F(INT64, cache_bytes),
    F(INT64, memory_bytes),
    F(INT64, shared_bytes),
    F(TEXT, driver),
    F(TEXT, runtime),
    F(TEXT, library),
    F(TEXT, op),
    F(TEXT, pass),
    F(TEXT, dtype),
    F(TEXT, math),
    F(TEXT, layout),
    F(TEXT, index),
    F(INT64, heads),
    F(INT64, dim),
    F(INT, deterministic),
    F(INT, weights),
    F(TEXT, graph),
    F(TEXT, family),
    S(INT64, destinations),
    S(INT64, sources),
    S(INT64, edges),
    S(INT64, max_degree),
    S(REAL, mean_degree),
    S(INT64, p50_degree),
    S(INT64, p90_degree),
    S(INT64, p99_degree),
    S(REAL, degree_cv),
    S(REAL, isolated),
    S(HISTOGRAM, histogram),
    S(REAL, reuse),
    S(REAL, locality),
    S(INT64, graphs),
    S(INT64, largest_graph),
    S(REAL, density),
    S(WORD64, fingerprint),
    F(TEXT, variant),
    F(INT, revision),
    F(TEXT, tool),
    F(TEXT, host),
    F(TEXT, job),
    F(TEXT, protocol),
    F(TEXT, run),
    F(WORD64, seed),
    F(INT64, time),
    F(TEXT, status),
    F(TEXT, reason),
    F(TEXT, anchor),
    F(INT, anchor_revision),
    F(REAL, median_ms),
    F(REAL, ci_low_ms),
    F(REAL, ci_high_ms),
    F(REAL, ratio),
    F(REAL, ratio_low),
    F(REAL, ratio_high),
    F(INT64, samples),
    F(REAL, rel_error),
    F(INT64, workspace_bytes),
};
#define FIELDS (sizeof fields / sizeof *fields)

static json_t *histogram_json(const double *bin) {
  json_t *array = json_array();
  for (int i = 0; i < DFGNN_HISTOGRAM_BINS; i++)
    json_array_append_new(array, tool_number(bin[i]));
  return array;
}

static json_t *field_json(const field *f, const dfgnn_measurement *row) {
  const char *at = (const char *)row + f->offset;
  char hex[24];
  switch (f->kind) {
  case TEXT: {
    const char *text = *(const char *const *)at;
    return json_string(text ? text : "");
  }
  case INT:
    return json_integer(*(const int *)at);
  case INT64:
    return json_integer(*(const int64_t *)at);
  case WORD64: /* beyond what other readers of JSON keep exact */
    snprintf(hex, sizeof hex, "%016" PRIx64, *(const uint64_t *)at);
    return json_string(hex);
  case REAL:
    return tool_number(*(const double *)at);
  case HISTOGRAM:
    return histogram_json((const double *)at);
  }
  return NULL;
}

json_t *tool_measurement_json(const dfgnn_measurement *row) {
  json_t *object = json_object();
  for (size_t i = 0; i < FIELDS; i++)
    json_object_set_new(object, fields[i].name, field_json(&fields[i], row));
  return object;
}

static int parse_histogram(double *bin, const json_t *value) {
  int good = json_array_size(value) == DFGNN_HISTOGRAM_BINS;
  for (int i = 0; good && i < DFGNN_HISTOGRAM_BINS; i++) {
    const json_t *x = json_array_get(value, (size_t)i);
    good = json_is_number(x);
    bin[i] = json_number_value(x);
  }
  return good;
}

static int parse_word(uint64_t *out, const json_t *value) {
  const char *text = json_string_value(value);
  if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
    return 0;
  *out = strtoull(text, NULL, 16);
  return 1;
}

static int parse_field(char *at, kind kind, const json_t *value) {
  json_int_t x = json_integer_value(value);
  switch (kind) {
  case TEXT:
    *(const char **)at = json_string_value(value);
    return json_is_string(value);
  case INT:
    *(int *)at = (int)x;
    return json_is_integer(value) && x == (int)x;
  case INT64:
    *(int64_t *)at = x;
    return json_is_integer(value);
  case WORD64:
    return parse_word((uint64_t *)at, value);
  case REAL:
    *(double *)at = json_is_null(value) ? NAN : json_number_value(value);
    return json_is_number(value) || json_is_null(value);
  case HISTOGRAM:
    return parse_histogram((double *)at, value);
  }
  return 0;
}

dfgnn_status tool_measurement_parse(dfgnn_measurement *row,
                                    const json_t *object) {
  static const char *const expected[] = {
      "a string",       "a whole number",
      "a whole number", "16 hexadecimal digits",
      "a number",       "an array of 24 numbers"};
  if (!json_is_object(object))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "expected a JSON object");
  *row =
      (dfgnn_measurement){.signature = (dfgnn_signature)DFGNN_SIGNATURE_INIT};
  for (size_t i = 0; i < FIELDS; i++) {
    const json_t *value = json_object_get(object, fields[i].name);
    if (!value)
      return dfgnn__fail(DFGNN_ERROR_FORMAT, "'%s' is missing", fields[i].name);
    if (!parse_field((char *)row + fields[i].offset, fields[i].kind, value))
      return dfgnn__fail(DFGNN_ERROR_FORMAT, "'%s': expected %s",
                         fields[i].name, expected[fields[i].kind]);
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    size_t i = 0;
    while (i < FIELDS && strcmp(fields[i].name, key))
      i++;
    if (i == FIELDS)
      return dfgnn__fail(DFGNN_ERROR_FORMAT, "unknown key '%s'", key);
  }
  return DFGNN_OK;
}
