/* names.c - enumerations as the command line spells them */
#include <string.h>

#include "dfgnn.h"
#include "lib/base/error.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define NAMES(...)                                                             \
  .name = (const char *const[]) { __VA_ARGS__, NULL }

static const struct {
  const char *kind;        /* for messages */
  const char *const *name; /* by value, then NULL */
  int first;               /* the least value that may be asked for */
} enumerations[DFGNN_NAMES_COUNT] = {
    [DFGNN_NAMES_OP] = {"operator",
                        NAMES("gt", "agnn", "gat", "gatv2", "spmm-sum",
                              "spmm-mean", "spmm-weighted", "reduce-min",
                              "reduce-max", "reduce-mean", "reduce-var",
                              "reduce-std", "reduce-pna")},
    [DFGNN_NAMES_PASS] = {"pass", NAMES("forward", "backward")},
    [DFGNN_NAMES_DTYPE] = {"dtype", NAMES("f32", "f16", "bf16", "f64")},
    [DFGNN_NAMES_MATH] = {"math mode", NAMES("f32", "tf32")},
    [DFGNN_NAMES_LAYOUT] = {"layout", NAMES("nhd", "ndh")},
    [DFGNN_NAMES_EDGE_USE] = {"use of edge features",
                              NAMES("both", "keys", "values")},
    [DFGNN_NAMES_MESSAGE] = {"message",
                             NAMES("copy", "relu", "gate", "gate-value")},
    [DFGNN_NAMES_EFFORT] = {"effort",
                            NAMES("default", "stored", "estimate", "measure",
                                  "paper", "race"),
                            .first = DFGNN_EFFORT_STORED},
    [DFGNN_NAMES_SOURCE] = {"source", NAMES("forced", "pinned", "exact", "near",
                                            "model", "rule", "paper")},
    [DFGNN_NAMES_ORDER] = {"order",
                           NAMES("degree", "rcm", "metis", "community")},
    [DFGNN_NAMES_PARTITIONING] = {"partitioning", NAMES("metis", "range")},
};

/* Operators outside the range of the others. */
static const struct {
  dfgnn_op op;
  const char *name;
} beyond[] = {{DFGNN_OP_PROGRAM, "program"}};
enum { BEYOND = sizeof beyond / sizeof *beyond };

static int known(dfgnn_names of) {
  return of > DFGNN_NAMES_NONE && of < DFGNN_NAMES_COUNT;
}

const char *dfgnn_name(dfgnn_names of, int value) {
  for (int i = 0; of == DFGNN_NAMES_OP && i < BEYOND; i++)
    if (value == (int)beyond[i].op)
      return beyond[i].name;
  for (int i = 0; known(of) && i <= value && enumerations[of].name[i]; i++)
    if (i == value)
      return enumerations[of].name[i];
  return NULL;
}

dfgnn_status dfgnn_parse(int *value, dfgnn_names of, const char *name) {
  char list[256] = "";
  if (!known(of))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "there is no enumeration %d",
                       (int)of);
  if (!value)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "the place for the %s is NULL",
                       enumerations[of].kind);
  for (int i = 0; of == DFGNN_NAMES_OP && name && i < BEYOND; i++)
    if (!strcmp(name, beyond[i].name)) {
      *value = (int)beyond[i].op;
      return DFGNN_OK;
    }
  for (int i = enumerations[of].first; enumerations[of].name[i]; i++) {
    const char *candidate = enumerations[of].name[i];
    if (name && !strcmp(name, candidate)) {
      *value = i;
      return DFGNN_OK;
    }
    strcat(strcat(list, *list ? ", " : ""), candidate);
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "unknown %s '%s', expected one of: %s",
                     enumerations[of].kind, name ? name : "(null)", list);
}

size_t dfgnn_dtype_size(dfgnn_dtype dtype) {
  static const size_t sizes[DFGNN_DTYPE_COUNT] = {4, 2, 2, 8};
  return (unsigned)dtype < DFGNN_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *dfgnn_version(void) {
#ifdef PACKAGE_VERSION
  return PACKAGE_VERSION;
#else
  return "unversioned";
#endif
}
