/* registry.h - every compiled-in variant, expanded from the families of
 * kernels/sources.am */
#ifndef DFGNN_LIB_REGISTRY_H
#define DFGNN_LIB_REGISTRY_H

#include "kernels/common/variant.h"

typedef struct dfgnn_variant {
  const dfgnn_family *family;
  char name[160];
  const char *parameters; /* within name, after the '/' */
  int parameter[DFGNN_MAX_PARAMETERS];
} dfgnn_variant;

/* Expands the families; DFGNN_ERROR_MEMORY, until there is memory, else what
 * follows knows no variant. */
dfgnn_status dfgnn__registry_open(void);
size_t dfgnn__variant_count(void);
const dfgnn_variant *dfgnn__variant(size_t i);
/* NULL if there is no variant of that name. */
const dfgnn_variant *dfgnn__variant_find(const char *name);

/* Is it offered where no portfolio names it? */
static inline int dfgnn__variant_offered(const dfgnn_variant *variant) {
  return !variant->family->paper;
}

/* Position in the registry, 0 .. count - 1. */
size_t dfgnn__variant_index(const dfgnn_variant *variant);

/* NULL if the variant can run the setting, else the reason.  setting's
 * parameter is ignored. */
const char *dfgnn__variant_refusal(const dfgnn_variant *variant,
                                   const dfgnn_setting *setting);

/* The least workspace of the variants that run the setting if max_workspace
 * allows; -1: there is none.  setting's parameter is ignored. */
int64_t dfgnn__least_workspace(const dfgnn_setting *setting);

/* Whether this library can still use measurements of a variant. */
typedef enum dfgnn_use {
  DFGNN_USE_CURRENT,
  DFGNN_USE_OLDER,   /* of a revision that the library has replaced */
  DFGNN_USE_NEWER,   /* of a revision that a newer library has */
  DFGNN_USE_UNKNOWN, /* of a variant that is gone or never was */
  DFGNN_USE_FOREIGN  /* of a backend that this library does not have */
} dfgnn_use;
dfgnn_use dfgnn__variant_use(const char *variant, int revision);

/* For tests: families appended to the registry before its first use. */
void dfgnn__registry_add(const dfgnn_family *families);

#endif
