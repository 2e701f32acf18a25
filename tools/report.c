/* report.c - rows of results, printed as a table or as one JSON array */
#include "tools/report.h"
#include "db/field.h"
#include "lib/key.h"
#include <libsmartcols.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

void tool_put_edges(json_t *row, const dfgnn_measurement *problem) {
  if (problem->edge_dim)
    tool_put_count(row, "edge_dim", problem->edge_dim);
  if (problem->edge_use)
    tool_put(row, "edge_use",
             dfgnn_name(DFGNN_NAMES_EDGE_USE, (int)problem->edge_use));
  if (problem->message)
    tool_put(row, "message",
             dfgnn_name(DFGNN_NAMES_MESSAGE, (dfgnn_message)problem->message));
  if (problem->program && *problem->program) {
    tool_put(row, "program", problem->program);
    tool_put(row, "program_text", problem->program_text);
  }
}

json_t *tool_row_of(const dfgnn_measurement *problem) {
  json_t *row = json_object();
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  tool_put(row, "graph", problem->graph);
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const char *key = field->name;
    const void *value = dfgnn__field_get(field, problem);
    if (!field->in_problem)
      continue;
    if (field->optional && !dfgnn__field_is_flag(field))
      continue; /* tool_put_edges() writes these */
    if (dfgnn__field_is_flag(field))
      tool_put_flag(row, key, *(const int *)value);
    else if (field->kind == DFGNN_FIELD_NAME)
      tool_put(row, key, *(const char *const *)value);
    else
      tool_put_count(row, key, *(const int64_t *)value);
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
  int hits = 0, near = 0, misses = 0;
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    const char *source = json_string_value(json_object_get(row, key));
    if (!source)
      continue;
    hits += !strcmp(source, "exact") || !strcmp(source, "pinned");
    near += !strcmp(source, "near");
    misses += !strcmp(source, "rule");
  }
  if (!settings->quiet && hits + near + misses)
    fprintf(stderr, "%s: %s: %d hits, %d near, %d misses\n", tool_name, what,
            hits, near, misses);
}

static void with_unit(char *text, size_t size, double x, double step,
                      const char *const *units) {
  while (fabs(x) >= step && units[1]) {
    x /= step;
    units++;
  }
  snprintf(text, size, "%.3g %s", x, *units);
}

/* The cell's text; "" for a missing or null value. */
static void cell(char *text, size_t size, json_t *value, tool_format format) {
  static const char *const times[] = {"ns", "us", "ms", "s", NULL};
  static const char *const bytes[] = {"B", "kB", "MB", "GB", NULL};
  double x = json_number_value(value);
  *text = 0;
  if (json_is_string(value)) {
    snprintf(text, size, "%s", json_string_value(value));
  } else if (json_is_boolean(value) && format == TOOL_FLAG) {
    snprintf(text, size, "%s", json_is_true(value) ? "yes" : "");
  } else if (json_is_boolean(value)) {
    snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
  } else if (json_is_number(value)) {
    switch (format) {
    case TOOL_TEXT:
    case TOOL_COUNT:
    case TOOL_FLAG:
      snprintf(text, size, "%.0f", x);
      break;
    case TOOL_FIGURE:
      snprintf(text, size, "%.3g", x);
      break;
    case TOOL_MS:
      with_unit(text, size, x * 1e6, 1000, times);
      break;
    case TOOL_SECONDS:
      with_unit(text, size, x * 1e9, 1000, times);
      break;
    case TOOL_NS:
      with_unit(text, size, x, 1000, times);
      break;
    case TOOL_BYTES:
      with_unit(text, size, x, 1000, bytes);
      break;
    case TOOL_SHARE:
      snprintf(text, size, "%.3g %%", 100 * x);
      break;
    case TOOL_TIMES:
      snprintf(text, size, "%.3gx", x);
      break;
    }
  }
}

static int print_json(json_t *rows) {
  int bad =
      json_dumpf(rows, stdout,
                 JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
  putchar('\n');
  return bad ? tool_error("cannot write JSON") : TOOL_DONE;
}

static int print_table(json_t *rows, const tool_column *columns) {
  char text[512];
  size_t i;
  json_t *row;
  struct libscols_table *table = scols_new_table();
  const tool_column *shown[64];
  size_t count = 0;
  int status = TOOL_FAILED;
  if (!table)
    return tool_error("out of memory");
  for (const tool_column *c = columns; c->heading && count < 64; c++) {
    int filled = 0, right = c->format != TOOL_TEXT && c->format != TOOL_FLAG;
    json_array_foreach(rows, i, row) {
      cell(text, sizeof text, json_object_get(row, c->key), c->format);
      filled |= *text != 0;
    }
    if (!filled)
      continue;
    if (!scols_table_new_column(table, c->heading, 0,
                                right ? SCOLS_FL_RIGHT : 0))
      goto out;
    shown[count++] = c;
  }
  json_array_foreach(rows, i, row) {
    struct libscols_line *line = scols_table_new_line(table, NULL);
    for (size_t c = 0; line && c < count; c++) {
      cell(text, sizeof text, json_object_get(row, shown[c]->key),
           shown[c]->format);
      if (scols_line_set_data(line, c, text))
        goto out;
    }
  }
  /* a terminal that is narrower than the table wraps it, as cat would */
  scols_table_enable_nowrap(table, 0);
  scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
  if (tool_colour(stdout))
    scols_table_enable_colors(table, 1);
  status = count && scols_print_table(table) ? TOOL_FAILED : TOOL_DONE;
out:
  scols_unref_table(table);
  return status;
}

int tool_report(const tool_settings *settings, json_t *rows,
                const tool_column *columns) {
  int status = settings->json ? print_json(rows) : print_table(rows, columns);
  json_decref(rows);
  return status;
}
