/* programs.c - lists of programs, and a program as text */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/internal.h"

struct dfgnn_programs {
  dfgnn_program *program;
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

void dfgnn__program_text(char *text, size_t size, const dfgnn_program *p) {
  int at = snprintf(text, size, "%s%s", p->name, p->count ? "<" : "");
  for (int i = 0; i < p->count && at < (int)size; i++) {
    const char *type = type_name(p->constant[i]);
    const char *comma = i ? ", " : "";
    at += type ? snprintf(text + at, size - (size_t)at, "%s%s", comma, type)
               : snprintf(text + at, size - (size_t)at, "%s%d", comma,
                          p->constant[i]);
  }
  if (p->count && at < (int)size)
    snprintf(text + at, size - (size_t)at, ">");
}

dfgnn_status dfgnn__programs_create(dfgnn_programs **list) {
  *list = calloc(1, sizeof **list);
  return *list ? DFGNN_OK
               : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a list of "
                                                 "programs");
}

void dfgnn__programs_destroy(dfgnn_programs *list) {
  if (list)
    free(list->program);
  free(list);
}

size_t dfgnn__programs_count(const dfgnn_programs *list) { return list->count; }

const dfgnn_program *dfgnn__programs_get(const dfgnn_programs *list, size_t i) {
  return &list->program[i];
}

dfgnn_status dfgnn__programs_add(dfgnn_programs *list,
                                 const dfgnn_program *program) {
  for (size_t i = 0; i < list->count; i++)
    if (dfgnn__program_equal(&list->program[i], program))
      return DFGNN_OK;
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? 2 * list->capacity : 8;
    dfgnn_program *grown =
        realloc(list->program, capacity * sizeof *list->program);
    if (!grown)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a list of "
                                             "programs");
    list->program = grown;
    list->capacity = capacity;
  }
  list->program[list->count++] = *program;
  return DFGNN_OK;
}
