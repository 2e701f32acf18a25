/* names.c - enumerations as the command line spells them */
#include <string.h>

#include "base/error.h"
#include "dfgnn.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

static const char *const op_names[] = {
    "gt",         "agnn",          "gat",        "gatv2",      "spmm-sum",
    "spmm-mean",  "spmm-weighted", "reduce-min", "reduce-max", "reduce-mean",
    "reduce-var", "reduce-std",    "reduce-pna"};
static const char *const pass_names[] = {"forward", "backward"};
static const char *const dtype_names[] = {"f32", "f16", "bf16", "f64"};
static const char *const math_names[] = {"f32", "tf32"};
static const char *const layout_names[] = {"nhd", "ndh"};
static const char *const effort_names[] = {"default", "stored", "estimate",
                                           "measure", "paper",  "race"};
static const char *const edge_use_names[] = {"both", "keys", "values"};
static const char *const message_names[] = {"copy", "relu", "gate",
                                            "gate-value"};
static const char *const source_names[] = {"exact",  "similar", "nearest",
                                           "rule",   "paper",   "pinned",
                                           "forced", "model"};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *name_of(const char *const *table, size_t count, int value) {
  return value >= 0 && (size_t)value < count ? table[value] : NULL;
}

/* The value named, or -1 with a message that lists the names from `first`. */
static int parse(const char *kind, const char *const *table, size_t count,
                 size_t first, const char *name) {
  char list[256] = "";
  for (size_t i = first; i < count; i++) {
    if (name && !strcmp(name, table[i]))
      return (int)i;
    strcat(strcat(list, i > first ? ", " : ""), table[i]);
  }
  dfgnn__fail(DFGNN_ERROR_INVALID, "unknown %s '%s', expected one of: %s", kind,
              name ? name : "(null)", list);
  return -1;
}

#define DEFINE(type, kind, first)                                              \
  const char *dfgnn_##type##_name(dfgnn_##type value) {                        \
    return name_of(type##_names, COUNT(type##_names), (int)value);             \
  }                                                                            \
  dfgnn_status dfgnn_##type##_parse(dfgnn_##type *out, const char *name) {     \
    if (!out) {                                                                \
      dfgnn__fail(DFGNN_ERROR_INVALID, "the place for the %s is NULL", kind);  \
      return DFGNN_ERROR_INVALID;                                              \
    }                                                                          \
    int value = parse(kind, type##_names, COUNT(type##_names), first, name);   \
    if (value < 0)                                                             \
      return DFGNN_ERROR_INVALID;                                              \
    *out = (dfgnn_##type)value;                                                \
    return DFGNN_OK;                                                           \
  }

DEFINE(op, "operator", 0)
DEFINE(pass, "pass", 0)
DEFINE(dtype, "dtype", 0)
DEFINE(math, "math mode", 0)
DEFINE(layout, "layout", 0)
DEFINE(effort, "effort", 1)
DEFINE(edge_use, "use of edge features", 0)
DEFINE(message, "message", 0)

const char *dfgnn_source_name(dfgnn_source source) {
  return name_of(source_names, COUNT(source_names), (int)source);
}

size_t dfgnn_dtype_size(dfgnn_dtype dtype) {
  static const size_t sizes[] = {4, 2, 2, 8};
  return (unsigned)dtype < COUNT(sizes) ? sizes[dtype] : 0;
}

const char *dfgnn_version(void) {
#ifdef PACKAGE_VERSION
  return PACKAGE_VERSION;
#else
  return "unversioned";
#endif
}
