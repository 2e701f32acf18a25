/* programs.c - lists of programs, and a program as text */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/constants.h"
#include "kernels/engine/internal.h"
#include "lib/base/error.h"

/* Lists of all kernels have tens of thousands of programs, so that a program is
 * found by its hash: a slot has its place in the list and 1, or 0.  There are
 * twice as many slots as places. */
struct dfgnn_programs {
  dfgnn_program *program;
  size_t *slot;
  size_t count, capacity;
};

uint64_t dfgnn__program_hash(const dfgnn_program *p) {
  uint64_t h = (uint64_t)(uintptr_t)p->source * 0x9e3779b97f4a7c15u;
  h ^= (uint64_t)(uintptr_t)p->name;
  for (int i = 0; i < p->count; i++)
    h = (h ^ (unsigned)p->constant[i]) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

int dfgnn__program_equal(const dfgnn_program *a, const dfgnn_program *b) {
  return a->source == b->source && a->name == b->name && a->count == b->count &&
         !memcmp(a->constant, b->constant,
                 (size_t)a->count * sizeof *a->constant);
}

static const char *type_name(int constant) {
  switch (constant) {
  case DFGNN_TYPE(DFGNN_F32):
    return "float";
  case DFGNN_TYPE(DFGNN_F16):
    return "dfgnn::half_t";
  case DFGNN_TYPE(DFGNN_BF16):
    return "dfgnn::bfloat_t";
  case DFGNN_TYPE(DFGNN_F64):
    return "double";
  case DFGNN_TYPE_I32:
    return "int32_t";
  case DFGNN_TYPE_I64:
    return "int64_t";
  default:
    return NULL;
  }
}

/* Appends to a text of which `at` characters are there. */
static void append(char *text, size_t size, size_t *at, const char *format,
                   ...) {
  va_list values;
  va_start(values, format);
  if (*at < size) {
    const int length = vsnprintf(text + *at, size - *at, format, values);
    *at += length > 0 ? (size_t)length : 0;
  }
  va_end(values);
}

/* The names of constants in the name of a program; NULL: they have none. */
static const char *names_of(const dfgnn_program *p) {
  const char *bracket = strchr(p->name, '<');
  return bracket ? bracket + 1 : NULL;
}

/* The next of the names, whose length becomes *length; NULL: there is none. */
static const char *next_name(const char **names, int *length) {
  const char *name = *names;
  if (!name)
    return NULL;
  *length = (int)strcspn(name, " ");
  *names = name + *length + 1;
  return name;
}

void dfgnn__program_text(char *text, size_t size, const dfgnn_program *p) {
  const char *names = names_of(p);
  size_t at = 0;
  append(text, size, &at, "%.*s%s", (int)strcspn(p->name, "<"), p->name,
         p->count ? "<" : "");
  for (int i = 0; i < p->count; i++) {
    const char *type = type_name(p->constant[i]);
    int length = 0;
    const char *name = next_name(&names, &length);
    append(text, size, &at, "%s%.*s%s", i ? ", " : "", length, name ? name : "",
           name ? "=" : "");
    if (type)
      append(text, size, &at, "%s", type);
    else
      append(text, size, &at, "%d", p->constant[i]);
  }
  append(text, size, &at, "%s", p->count ? ">" : "");
}

void dfgnn__program_source(char *text, size_t size, const dfgnn_program *p) {
  const char *names = names_of(p), *name;
  size_t at = 0;
  int length = 0;
  append(text, size, &at, "#include \"%s\"\n", p->source);
  if (!names)
    return;
  append(text, size, &at, "struct program_constants {\n");
  for (int i = 0; i < p->count && (name = next_name(&names, &length)); i++) {
    const char *type = type_name(p->constant[i]);
    if (type)
      append(text, size, &at, "  using %.*s = %s;\n", length, name, type);
    else
      append(text, size, &at, "  static constexpr int %.*s = %d;\n", length,
             name, p->constant[i]);
  }
  append(text, size, &at, "};\n");
}

void dfgnn__program_expression(char *text, size_t size,
                               const dfgnn_program *p) {
  if (names_of(p))
    snprintf(text, size, "%.*s<program_constants>", (int)strcspn(p->name, "<"),
             p->name);
  else
    dfgnn__program_text(text, size, p);
}

dfgnn_status dfgnn__programs_create(dfgnn_programs **list) {
  *list = calloc(1, sizeof **list);
  return *list ? DFGNN_OK
               : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a list of "
                                                 "programs");
}

void dfgnn__programs_destroy(dfgnn_programs *list) {
  if (list) {
    free(list->program);
    free(list->slot);
  }
  free(list);
}

size_t dfgnn__programs_count(const dfgnn_programs *list) { return list->count; }

const dfgnn_program *dfgnn__programs_get(const dfgnn_programs *list, size_t i) {
  return &list->program[i];
}

/* The slot of a program, which is free if the list lacks it. */
static size_t *slot_of(const dfgnn_programs *list,
                       const dfgnn_program *program) {
  const size_t mask = 2 * list->capacity - 1;
  size_t s = dfgnn__program_hash(program) & mask;
  while (list->slot[s] &&
         !dfgnn__program_equal(&list->program[list->slot[s] - 1], program))
    s = (s + 1) & mask;
  return &list->slot[s];
}

static dfgnn_status grow(dfgnn_programs *list) {
  const size_t capacity = list->capacity ? 2 * list->capacity : 8;
  dfgnn_program *program = realloc(list->program, capacity * sizeof *program);
  size_t *slot = calloc(2 * capacity, sizeof *slot);
  if (program)
    list->program = program;
  if (!program || !slot) {
    free(slot);
    return dfgnn__fail(DFGNN_ERROR_MEMORY,
                       "out of memory for a list of programs");
  }
  free(list->slot);
  list->slot = slot;
  list->capacity = capacity;
  for (size_t i = 0; i < list->count; i++)
    *slot_of(list, &program[i]) = i + 1;
  return DFGNN_OK;
}

dfgnn_status dfgnn__programs_add(dfgnn_programs *list,
                                 const dfgnn_program *program) {
  if (list->count == list->capacity)
    DFGNN_TRY(grow(list));
  size_t *slot = slot_of(list, program);
  if (*slot)
    return DFGNN_OK;
  list->program[list->count++] = *program;
  *slot = list->count;
  return DFGNN_OK;
}
