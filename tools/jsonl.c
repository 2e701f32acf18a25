/* jsonl.c - a measurement as a JSON object and back, by the table of fields in
 * db/field.c */
#include "tools/jsonl.h"
#include "db/field.h"
#include "dfgnn_graph.h"
#include "lib/base/error.h"
#include "tools/report.h"
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The order of keys: ranges of fields, [begin, end) of each group. */
static const struct segment {
  dfgnn_field_group group;
  size_t begin, end;
} segments[] = {{DFGNN_GROUP_DEVICE, 0, SIZE_MAX},
                {DFGNN_GROUP_PROBLEM, 0, SIZE_MAX},
                {DFGNN_GROUP_GRAPH, 0, SIZE_MAX},
                {DFGNN_GROUP_MEASUREMENT, 0, 2}, /* variant and revision */
                {DFGNN_GROUP_RUN, 0, SIZE_MAX},
                {DFGNN_GROUP_MEASUREMENT, 2, SIZE_MAX}};

typedef int (*field_function)(void *data, const dfgnn_field *field);

/* Calls f for each field in that order until it returns non-zero. */
static int each_field(field_function f, void *data) {
  int stop = 0;
  for (size_t k = 0; k < sizeof segments / sizeof *segments; k++) {
    const dfgnn_fields *fields = &dfgnn__fields[segments[k].group];
    for (size_t i = segments[k].begin;
         i < fields->count && i < segments[k].end && !stop; i++)
      stop = f(data, &fields->field[i]);
  }
  return stop;
}

static const char *key_of(const dfgnn_field *field) {
  return field->json ? field->json : field->name;
}

static json_t *histogram_json(const double *bin) {
  json_t *array = json_array();
  for (int i = 0; i < DFGNN_HISTOGRAM_BINS; i++)
    json_array_append_new(array, tool_number(bin[i]));
  return array;
}

static json_t *field_json(const dfgnn_field *field,
                          const dfgnn_measurement *row) {
  const void *at = dfgnn__field_get(field, row);
  char hex[24];
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT: {
    const char *text = *(const char *const *)at;
    return json_string(text ? text : "");
  }
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64:
    return json_integer(dfgnn__field_whole(field, at));
  case DFGNN_FIELD_UINT64: /* other readers of JSON do not keep 64 bits exact */
    snprintf(hex, sizeof hex, "%016" PRIx64, *(const uint64_t *)at);
    return json_string(hex);
  case DFGNN_FIELD_REAL:
    return tool_number(*(const double *)at);
  case DFGNN_FIELD_REALS:
    return histogram_json(at);
  }
  return NULL;
}

typedef struct writing {
  json_t *object;
  const dfgnn_measurement *row;
} writing;

static int write_field(void *data, const dfgnn_field *field) {
  writing *w = data;
  return !dfgnn__field_is_left_out(field, w->row) &&
         json_object_set_new(w->object, key_of(field),
                             field_json(field, w->row));
}

json_t *tool_measurement_json(const dfgnn_measurement *row) {
  writing w = {json_object(), row};
  if (!each_field(write_field, &w))
    return w.object;
  json_decref(w.object);
  return NULL;
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

static int parse_field(void *at, dfgnn_field_kind kind, const json_t *value) {
  json_int_t x = json_integer_value(value);
  switch (kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT:
    *(const char **)at = json_string_value(value);
    return json_is_string(value);
  case DFGNN_FIELD_INT:
    *(int *)at = (int)x;
    return json_is_integer(value) && x == (int)x;
  case DFGNN_FIELD_INT64:
    *(int64_t *)at = x;
    return json_is_integer(value);
  case DFGNN_FIELD_UINT64:
    return parse_word(at, value);
  case DFGNN_FIELD_REAL:
    *(double *)at = json_is_null(value) ? NAN : json_number_value(value);
    return json_is_number(value) || json_is_null(value);
  case DFGNN_FIELD_REALS:
    return parse_histogram(at, value);
  }
  return 0;
}

typedef struct reading {
  dfgnn_measurement *row;
  const json_t *object;
  size_t found;
  dfgnn_status status;
} reading;

/* A field that a later version added may be missing: it keeps its default. */
static int read_field(void *data, const dfgnn_field *field) {
  static const char *const expected[] = {
      [DFGNN_FIELD_NAME] = "a string",
      [DFGNN_FIELD_TEXT] = "a string",
      [DFGNN_FIELD_INT] = "a whole number",
      [DFGNN_FIELD_INT64] = "a whole number",
      [DFGNN_FIELD_UINT64] = "16 hexadecimal digits",
      [DFGNN_FIELD_REAL] = "a number",
      [DFGNN_FIELD_REALS] = "an array of 24 numbers"};
  reading *r = data;
  const json_t *value = json_object_get(r->object, key_of(field));
  if (!value && field->optional)
    return 0;
  if (!value)
    r->status =
        dfgnn__fail(DFGNN_ERROR_FORMAT, "'%s' is missing", key_of(field));
  else if (!parse_field(dfgnn__field_slot(field, r->row), field->kind, value)) {
    char *found =
        json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    r->status =
        dfgnn__fail(DFGNN_ERROR_FORMAT, "'%s': found %.40s, expected %s",
                    key_of(field), found ? found : "", expected[field->kind]);
    free(found);
  }
  r->found++;
  return r->status != DFGNN_OK;
}

static int is_key(void *data, const dfgnn_field *field) {
  return !strcmp(data, key_of(field));
}

dfgnn_status tool_measurement_parse(dfgnn_measurement *row,
                                    const json_t *object) {
  reading r = {row, object, 0, DFGNN_OK};
  const char *key;
  json_t *value;
  if (!json_is_object(object))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "expected a JSON object");
  *row =
      (dfgnn_measurement){.signature = (dfgnn_signature)DFGNN_SIGNATURE_INIT};
  if (each_field(read_field, &r) || json_object_size(object) == r.found)
    return r.status;
  json_object_foreach((json_t *)object, key, value) {
    if (!each_field(is_key, (void *)key))
      return dfgnn__fail(DFGNN_ERROR_FORMAT, "unknown key '%s'", key);
  }
  return DFGNN_OK;
}

dfgnn_status tool_problem_parse(dfgnn_measurement *row, const json_t *object) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  reading r = {row, object, 0, DFGNN_OK};
  if (!json_is_object(object))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "'problem': expected an object");
  *row = (dfgnn_measurement){.signature = (dfgnn_signature)DFGNN_SIGNATURE_INIT,
                             .protocol = "warm"};
  for (size_t i = 0; i < fields->count && !r.status; i++)
    read_field(&r, &fields->field[i]);
  if (!r.status && json_object_size(object) != r.found)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "'problem': found %zu keys, expected %zu",
                       json_object_size(object), r.found);
  return r.status;
}
