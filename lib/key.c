/* key.c - the key of a problem: filled into rows, hashed, and as text */
#include "lib/key.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "db/field.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"

/* Members of a problem that are enumerations are read and written as int. */
_Static_assert(sizeof(dfgnn_op) == sizeof(int) &&
                   sizeof(dfgnn_pass) == sizeof(int) &&
                   sizeof(dfgnn_dtype) == sizeof(int) &&
                   sizeof(dfgnn_math) == sizeof(int) &&
                   sizeof(dfgnn_layout) == sizeof(int) &&
                   sizeof(dfgnn_edge_use) == sizeof(int) &&
                   sizeof(dfgnn_message) == sizeof(int),
               "enumerations are not of the size of int");

static const dfgnn_fields *problem_fields(void) {
  return &dfgnn__fields[DFGNN_GROUP_PROBLEM];
}

void dfgnn__key_fill(dfgnn_measurement *row, const dfgnn_problem *problem,
                     int offsets64) {
  const dfgnn_fields *fields = problem_fields();
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *member = (const char *)problem + field->in_problem;
    void *slot = dfgnn__field_slot(field, row);
    if (!field->in_problem)
      continue;
    if (field->kind == DFGNN_FIELD_NAME)
      *(const char **)slot = dfgnn_name(field->names, *(const int *)member);
    else
      dfgnn__field_set_whole(field, slot, dfgnn__field_whole(field, member));
  }
  row->program = row->program_text = "";
  if (problem->program) {
    row->program = problem->program->name;
    row->program_text = problem->program->line;
  }
  row->index = offsets64 ? "i64" : "i32";
  row->protocol = problem->cold ? "cold" : "warm";
}

static int is_cold(const dfgnn_measurement *row) {
  return !strncmp(row->protocol, "cold", 4);
}

dfgnn_status dfgnn__key_problem(dfgnn_problem *problem,
                                const dfgnn_measurement *row) {
  const dfgnn_fields *fields = problem_fields();
  dfgnn_problem found = DFGNN_PROBLEM_INIT;
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < fields->count && !status; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *value = dfgnn__field_get(field, row);
    void *member = (char *)&found + field->in_problem;
    if (!field->in_problem)
      continue;
    if (field->kind == DFGNN_FIELD_NAME)
      status = dfgnn_parse(member, field->names, *(const char *const *)value);
    else
      dfgnn__field_set_whole(field, member, dfgnn__field_whole(field, value));
  }
  found.cold = is_cold(row);
  if (!status && found.op == DFGNN_OP_PROGRAM)
    status = dfgnn__edge_program_known(&found.program, row->program,
                                       row->program_text, found.pass);
  if (!status)
    *problem = found;
  return status;
}

/* ---- hashes -------------------------------------------------------------- */

uint64_t dfgnn__fold(uint64_t h, uint64_t x) {
  x += h + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t dfgnn__fold_text(uint64_t h, const char *text) {
  uint64_t t = 14695981039346656037u; /* FNV-1a */
  for (; *text; text++)
    t = (t ^ (unsigned char)*text) * 1099511628211u;
  return dfgnn__fold(h, t);
}

static uint64_t fold_fields(uint64_t h, const dfgnn_measurement *row,
                            dfgnn_field_key key) {
  const dfgnn_fields *fields = problem_fields();
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *value = dfgnn__field_get(field, row);
    if (field->key != key)
      continue;
    if (field->kind == DFGNN_FIELD_NAME) {
      const char *name = *(const char *const *)value;
      h = dfgnn__fold_text(h, name ? name : "");
    } else
      h = dfgnn__fold(h, (uint64_t)dfgnn__field_whole(field, value));
  }
  return h;
}

uint64_t dfgnn__key_gate(const dfgnn_measurement *row) {
  return dfgnn__fold(fold_fields(1, row, DFGNN_KEY_GATE),
                     (uint64_t)is_cold(row));
}

uint64_t dfgnn__key_sized(const dfgnn_measurement *row) {
  return dfgnn__fold(fold_fields(dfgnn__key_gate(row), row, DFGNN_KEY_SIZE),
                     (uint64_t)row->units);
}

/* ---- texts --------------------------------------------------------------- */

static void __attribute__((format(printf, 3, 4)))
append(char *text, size_t size, const char *format, ...) {
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  if (length < size)
    vsnprintf(text + length, size - length, format, arguments);
  va_end(arguments);
}

/* "11 edge features"; below 0: "projected edge features". */
static void append_count(char *text, size_t size, const char *joint,
                         int64_t count, const char *word) {
  if (count < 0)
    append(text, size, "%sprojected %s", joint, word);
  else
    append(text, size, "%s%lld %s", joint, (long long)count, word);
}

void dfgnn__key_difference(char *text, size_t size,
                           const dfgnn_measurement *measured,
                           const dfgnn_measurement *wanted) {
  const dfgnn_fields *fields = problem_fields();
  *text = 0;
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *x = dfgnn__field_get(field, measured);
    const char *comma = *text ? ", " : "";
    if (field->key != DFGNN_KEY_GATE ||
        !dfgnn__field_compare(field, measured, wanted))
      continue;
    if (dfgnn__field_is_flag(field))
      append(text, size, "%swith%s %s", comma, *(const int *)x ? "" : "out",
             field->word);
    else if (field->kind == DFGNN_FIELD_NAME)
      append(text, size, "%swith %s %s", comma, field->word,
             *(const char *const *)x);
    else if (field->kind == DFGNN_FIELD_INT)
      append(text, size, "%swith %s %s", comma, field->word,
             dfgnn_name(field->names, *(const int *)x));
    else {
      append(text, size, "%s", comma);
      append_count(text, size, "with ", *(const int64_t *)x, field->word);
    }
  }
}

void dfgnn__key_extras(char *text, size_t size, const dfgnn_problem *problem) {
  const dfgnn_fields *fields = problem_fields();
  const dfgnn_problem usual = DFGNN_PROBLEM_INIT;
  *text = 0;
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *value = (const char *)problem + field->in_problem;
    const char *joint = *text ? " and " : " with ";
    if (!field->in_problem)
      continue;
    if (field->key == DFGNN_KEY_GATE && field->kind == DFGNN_FIELD_INT64) {
      if (*(const int64_t *)value)
        append_count(text, size, joint, *(const int64_t *)value, field->word);
    } else if (field->kind == DFGNN_FIELD_INT && *(const int *)value &&
               !*(const int *)((const char *)&usual + field->in_problem)) {
      append(text, size, "%s%s", joint, field->word);
      if (field->names)
        append(text, size, " %s",
               dfgnn_name(field->names, *(const int *)value));
    }
  }
}

void dfgnn__key_text(char *text, size_t size, const dfgnn_problem *problem) {
  char extras[160];
  dfgnn__key_extras(extras, sizeof extras, problem);
  if (problem->program)
    snprintf(extras + strlen(extras), sizeof extras - strlen(extras),
             " with hash %s", problem->program->name);
  snprintf(text, size, "%s %s, %lld heads of %lld, %s%s%s",
           dfgnn_name(DFGNN_NAMES_OP, problem->op),
           dfgnn_name(DFGNN_NAMES_PASS, problem->pass),
           (long long)problem->heads, (long long)problem->dim,
           dfgnn_name(DFGNN_NAMES_DTYPE, problem->dtype), *extras ? "," : "",
           extras);
}
