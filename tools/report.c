/* report.c - rows of results, printed as a table or as one JSON array */
#include "tools/report.h"
#include "db/field.h"
#include "lib/key.h"
#include "tools/programs.h"
#include <math.h>
#include <string.h>

json_t *tool_number(double x) {
  return isfinite(x) ? json_real(x) : json_null();
}

/* JSON has UTF-8 alone, and names of files may be anything. */
json_t *tool_text(const char *text) {
  json_t *made = json_string(text);
  if (made)
    return made;
  char copy[4096];
  snprintf(copy, sizeof copy, "%s", text);
  for (char *c = copy; *c; c++)
    if ((unsigned char)*c >= 0x80)
      *c = '?';
  return json_string(copy);
}

void tool_put(json_t *row, const char *key, const char *text) {
  json_object_set_new(row, key, text ? tool_text(text) : json_null());
}
void tool_put_number(json_t *row, const char *key, double x) {
  json_object_set_new(row, key, tool_number(x));
}
void tool_put_count(json_t *row, const char *key, int64_t x) {
  json_object_set_new(row, key, json_integer(x));
}
void tool_put_fingerprint(json_t *row, uint64_t fingerprint) {
  char hex[24];
  snprintf(hex, sizeof hex, "%016llx", (unsigned long long)fingerprint);
  tool_put(row, "fingerprint", hex);
}

void tool_put_flag(json_t *row, const char *key, int x) {
  json_object_set_new(row, key, json_boolean(x));
}

static void put_field(json_t *row, const dfgnn_field *field,
                      const dfgnn_measurement *problem) {
  const void *value = dfgnn__field_get(field, problem);
  const char *name = NULL;
  if (field->kind == DFGNN_FIELD_NAME || field->kind == DFGNN_FIELD_TEXT)
    name = dfgnn__field_string(field, problem);
  else if (field->names)
    name = dfgnn_name(field->names, *(const int *)value);
  if (name)
    tool_put(row, field->name, name);
  else if (dfgnn__field_is_flag(field))
    tool_put_flag(row, field->name, *(const int *)value);
  else
    tool_put_count(row, field->name, *(const int64_t *)value);
}

void tool_put_edges(json_t *row, const dfgnn_measurement *problem) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    if (field->optional && !dfgnn__field_is_flag(field) &&
        !dfgnn__field_is_left_out(field, problem))
      put_field(row, field, problem);
  }
  const char *program =
      problem->program && *problem->program ? tool_program_name(problem) : NULL;
  if (program)
    tool_put(row, "program_name", program);
}

json_t *tool_row_of(const dfgnn_measurement *problem) {
  json_t *row = json_object();
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  tool_put(row, "graph", problem->graph);
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    if (field->in_problem && (!field->optional || dfgnn__field_is_flag(field)))
      put_field(row, field, problem);
  }
  tool_put_edges(row, problem);
  tool_put(row, "device", problem->model);
  tool_put(row, "backend", problem->backend);
  tool_put(row, "arch", problem->arch);
  return row;
}

json_t *tool_row(const char *graph, const dfgnn_problem *problem,
                 const dfgnn_device_info *device) {
  dfgnn_measurement row = {.graph = graph,
                           .model = device->model,
                           .backend = device->backend,
                           .arch = device->arch};
  dfgnn__key_fill(&row, problem, 0);
  return tool_row_of(&row);
}

void tool_say_sources(const tool_settings *settings, const json_t *rows,
                      const char *key, const char *what) {
  char text[256] = "";
  size_t i;
  json_t *row;
  for (int source = 0;; source++) {
    const char *name = dfgnn_name(DFGNN_NAMES_SOURCE, source);
    const size_t n = strlen(text);
    int count = 0;
    if (!name)
      break;
    json_array_foreach(rows, i, row) {
      const char *found = json_string_value(json_object_get(row, key));
      count += found && !strcmp(found, name);
    }
    if (count)
      snprintf(text + n, sizeof text - n, "%s%d %s", n ? ", " : "", count,
               name);
  }
  if (*text)
    tool_note(settings, "%s: %s", what, text);
}

static int print_json(json_t *rows) {
  int bad =
      json_dumpf(rows, stdout,
                 JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
  putchar('\n');
  return bad ? tool_error("cannot write JSON") : TOOL_DONE;
}

int tool_report(const tool_settings *settings, json_t *rows,
                const tool_column *columns) {
  int status =
      settings->json ? print_json(rows) : tool_table(settings, rows, columns);
  json_decref(rows);
  return status;
}
