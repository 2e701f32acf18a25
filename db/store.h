/* store.h - the tuning store: immutable measurements in SQLite
 *
 * One row is one measured (or rejected) variant of one problem on one device in
 * one run.  Its key is the BLAKE2b hash of its content, so a store is a set and
 * merging is a union.  The store knows names and numbers, nothing of kernels. */
#ifndef DFGNN_DB_STORE_H
#define DFGNN_DB_STORE_H

#include "dfgnn.h"

/* A measurement as it is written and read.  Strings are UTF-8 without control
 * characters, "" where not known; when read they are the store's and valid
 * inside the callback only. */
typedef struct dfgnn_measurement {
  /* device and environment */
  const char *backend, *arch, *model;
  int units;
  int64_t cache_bytes, memory_bytes, shared_bytes;
  const char *driver, *runtime, *library;
  /* problem: names as the command line spells them */
  const char *op, *pass, *dtype, *math, *layout;
  const char *index; /* "i32" or "i64" offsets */
  int64_t heads, dim;
  int deterministic, weights;
  const char *graph, *family; /* labels */
  dfgnn_signature signature;
  /* variant */
  const char *variant;
  int revision;
  /* run */
  const char *tool, *host, *job;
  const char *protocol; /* "warm" or "cold", then settings: "warm,graph" */
  const char *run;      /* 32 hex digits: rows of one run share it; ratios to the
                         * anchor are comparable within it */
  uint64_t seed;
  int64_t time;         /* seconds since 1970 */
  /* figures */
  const char *status;   /* "ok", "wrong", "failed", "refused" */
  const char *reason;   /* of the last three */
  const char *anchor;   /* variant that ratio compares with */
  double median_ms, ci_low_ms, ci_high_ms;
  double ratio, ratio_low, ratio_high; /* to the anchor, paired, 95 % interval */
  int64_t samples;
  double rel_error;     /* against the float64 reference */
  int64_t workspace_bytes;
} dfgnn_measurement;

typedef struct dfgnn_store dfgnn_store;

typedef enum dfgnn_store_mode {
  DFGNN_STORE_READ,  /* the file must exist; never written */
  DFGNN_STORE_WRITE  /* created, with its directory, or migrated, if needed */
} dfgnn_store_mode;

/* path ":memory:" with WRITE is a store in memory.  Errors name the file, what
 * it is (a directory, another application's database, truncated, of a newer
 * version) and what was expected. */
dfgnn_status dfgnn__store_open(dfgnn_store **store, const char *path,
                               dfgnn_store_mode mode);
void dfgnn__store_close(dfgnn_store *store);
const char *dfgnn__store_path(const dfgnn_store *store);

/* Adds one measurement in its own transaction; what is there already is left.
 * Safe against other processes doing the same.  added may be NULL. */
dfgnn_status dfgnn__store_record(dfgnn_store *store, int *added,
                                 const dfgnn_measurement *measurement);

/* Which rows to visit: a NULL or negative field does not restrict. */
typedef struct dfgnn_store_filter {
  const char *backend, *arch, *op, *pass, *dtype, *protocol_prefix, *status;
  const uint64_t *fingerprint;
  int64_t heads, dim;
} dfgnn_store_filter;
#define DFGNN_STORE_FILTER_INIT                                                \
  { NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1 }

/* Calls visit for each valid row in the order of the content hash until it
 * returns non-zero; rows that break a domain are counted in invalid (may be
 * NULL) and skipped. */
typedef int (*dfgnn_store_visit)(void *data, const dfgnn_measurement *row);
dfgnn_status dfgnn__store_each(dfgnn_store *store, uint64_t *invalid,
                               const dfgnn_store_filter *filter,
                               dfgnn_store_visit visit, void *data);

/* A pinned variant, local to a store file: op, pass, dtype and fingerprint (0:
 * any graph) name what it answers.  variant NULL removes it. */
dfgnn_status dfgnn__store_pin(dfgnn_store *store, const char *op,
                              const char *pass, const char *dtype,
                              uint64_t fingerprint, const char *variant);
typedef int (*dfgnn_store_visit_pin)(void *data, const char *op,
                                     const char *pass, const char *dtype,
                                     uint64_t fingerprint,
                                     const char *variant);
dfgnn_status dfgnn__store_each_pin(dfgnn_store *store,
                                   dfgnn_store_visit_pin visit, void *data);

/* ---- decisions ---------------------------------------------------------- */

/* What all measurements of one problem on one device say.  A problem is
 * everything from backend to fingerprint above plus the protocol's first word;
 * different models of one arch are different devices. */
typedef struct dfgnn_ranked {
  const char *variant;
  int revision;
  double log_ratio;  /* natural log of its time over the winner's, >= 0 */
  double median_ms;  /* of its best evidence: for reports, never for choice */
  int tied;          /* 1: cannot be told apart from the fastest */
  int64_t samples;
} dfgnn_ranked;

typedef struct dfgnn_decision {
  dfgnn_measurement problem; /* device and problem fields only */
  size_t count;
  const dfgnn_ranked *ranked; /* [0] is the winner: the canonical (first by
                               * name) member of the tie set; then by time */
  size_t rejected;            /* variants with a wrong or failed status */
} dfgnn_decision;

typedef struct dfgnn_decisions {
  size_t count;
  const dfgnn_decision *decision; /* ordered by device, then problem */
} dfgnn_decisions;

/* Pure: the same set of rows gives the same decisions in any order.  Per
 * problem and variant only rows of the newest usable revision count; ratios of
 * runs with different anchors are joined through runs that measured both;
 * variants within `margin` (e.g. 0.015) or inside each other's interval of the
 * fastest are tied.  usable says whether the caller has a variant of that name
 * and revision (NULL: all).  Rows it refuses are counted in unusable (may be
 * NULL). */
typedef int (*dfgnn_usable_function)(void *data, const char *variant,
                                     int revision);
dfgnn_status dfgnn__decide(dfgnn_decisions **decisions, uint64_t *unusable,
                           const dfgnn_measurement *rows, size_t count,
                           double margin, dfgnn_usable_function usable,
                           void *data);
void dfgnn__decisions_free(dfgnn_decisions *decisions);

/* Copies rows out of stores into one array that owns its strings. */
typedef struct dfgnn_rows dfgnn_rows;
dfgnn_status dfgnn__rows_create(dfgnn_rows **rows);
/* Adds every valid row of the store that matches; duplicates (same hash) are
 * added once. */
dfgnn_status dfgnn__rows_load(dfgnn_rows *rows, uint64_t *invalid,
                              dfgnn_store *store,
                              const dfgnn_store_filter *filter);
const dfgnn_measurement *dfgnn__rows_get(const dfgnn_rows *rows, size_t *count);
void dfgnn__rows_free(dfgnn_rows *rows);

#endif
