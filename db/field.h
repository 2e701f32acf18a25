/* field.h - the one list of a measurement's fields: domain, table and use of
 * each
 *
 * Hashing, SQL, export, import and comparison loop over this list, and so does
 * whatever looks at a problem: its key, gate and description (lib/key.h).  A
 * new field of a problem is a member of dfgnn_measurement, a row in db/field.c
 * and a version of the schema. */
#ifndef DFGNN_DB_FIELD_H
#define DFGNN_DB_FIELD_H

#include "db/store.h"

typedef enum dfgnn_field_kind {
  DFGNN_FIELD_NAME,   /* graphic ASCII without quotes and backslashes */
  DFGNN_FIELD_TEXT,   /* UTF-8 without control characters, may be empty */
  DFGNN_FIELD_INT,    /* int */
  DFGNN_FIELD_INT64,  /* int64_t */
  DFGNN_FIELD_UINT64, /* uint64_t, any value */
  DFGNN_FIELD_REAL,   /* double, finite */
  DFGNN_FIELD_REALS   /* double[DFGNN_HISTOGRAM_BINS] */
} dfgnn_field_kind;

/* The tables of the store. */
typedef enum dfgnn_field_group {
  DFGNN_GROUP_DEVICE,
  DFGNN_GROUP_PROBLEM,
  DFGNN_GROUP_GRAPH,
  DFGNN_GROUP_RUN,
  DFGNN_GROUP_MEASUREMENT,
  DFGNN_GROUP_COUNT
} dfgnn_field_group;

#define DFGNN_PART_COUNT DFGNN_GROUP_MEASUREMENT

/* The part of a field in the question which rows answer a problem. */
typedef enum dfgnn_field_key {
  DFGNN_KEY_NONE,   /* provenance, features and figures */
  DFGNN_KEY_DEVICE, /* tells devices apart */
  DFGNN_KEY_GATE,   /* a field of the problem that has to match */
  DFGNN_KEY_SIZE,   /* one whose near values may answer, too */
  DFGNN_KEY_GRAPH,  /* tells graphs apart */
  DFGNN_KEY_WORD    /* has to match up to its first comma */
} dfgnn_field_key;

typedef struct dfgnn_field {
  const char *name; /* column */
  const char *json; /* key in JSON; NULL: name */
  const char *word; /* for messages, of a field of the problem */
  size_t offset;    /* in dfgnn_measurement */
  dfgnn_field_kind kind;
  double low, high;          /* range of a number, or of a string's bytes */
  double least;              /* of a real number other than 0; 0: none */
  const char *const *choice; /* the allowed names, then NULL; NULL: any */
  dfgnn_field_key key;
  size_t in_problem; /* offset in dfgnn_problem; 0: it has no such member */
  dfgnn_names names; /* the member's, if it is an enumerator */
  int optional;      /* 1: the default is 0, which neither the hash nor the
                      * export mentions */
} dfgnn_field;

typedef struct dfgnn_fields {
  const char *table;
  size_t count;
  const dfgnn_field *field;
} dfgnn_fields;

extern const dfgnn_fields dfgnn__fields[DFGNN_GROUP_COUNT];

static inline void *dfgnn__field_slot(const dfgnn_field *field,
                                      dfgnn_measurement *row) {
  return (char *)row + field->offset;
}
static inline const void *dfgnn__field_get(const dfgnn_field *field,
                                           const dfgnn_measurement *row) {
  return (const char *)row + field->offset;
}
static inline const char *dfgnn__field_string(const dfgnn_field *field,
                                              const dfgnn_measurement *row) {
  return *(const char *const *)dfgnn__field_get(field, row);
}

/* The whole number at `value`, of a field of INT or INT64, or the bits of a
 * UINT64. */
static inline int64_t dfgnn__field_whole(const dfgnn_field *field,
                                         const void *value) {
  return field->kind == DFGNN_FIELD_INT ? *(const int *)value
                                        : *(const int64_t *)value;
}
static inline void dfgnn__field_set_whole(const dfgnn_field *field, void *value,
                                          int64_t x) {
  if (field->kind == DFGNN_FIELD_INT)
    *(int *)value = (int)x;
  else
    *(int64_t *)value = x;
}

/* A field of the problem that is 0 or 1. */
static inline int dfgnn__field_is_flag(const dfgnn_field *field) {
  return field->kind == DFGNN_FIELD_INT && field->low == 0 && field->high == 1;
}

/* 1 if the field is optional and its value is the default. */
int dfgnn__field_is_left_out(const dfgnn_field *field,
                             const dfgnn_measurement *row);

/* NULL if the value is in its domain, else the reason. */
const char *dfgnn__field_refusal(const dfgnn_field *field,
                                 const dfgnn_measurement *row);
/* The same for the fields of one group, alone and against each other; *field
 * (may be NULL) becomes the name of the refused field. */
const char *dfgnn__group_refusal(dfgnn_field_group group,
                                 const dfgnn_measurement *row,
                                 const char **field);

/* The order of two rows' values of a field; NULL counts as "". */
int dfgnn__field_compare(const dfgnn_field *field, const dfgnn_measurement *a,
                         const dfgnn_measurement *b);
/* A total order over all fields: 0 only for rows that are bit for bit equal. */
int dfgnn__measurement_compare(const dfgnn_measurement *a,
                               const dfgnn_measurement *b);

#define DFGNN_HASH_BYTES 16

/* The hash of a group's fields; for the measurement, `parts` are the hashes of
 * the other groups.  A valid row has one. */
void dfgnn__group_hash(unsigned char hash[DFGNN_HASH_BYTES],
                       dfgnn_field_group group, const dfgnn_measurement *row,
                       unsigned char parts[][DFGNN_HASH_BYTES]);

/* A copy that can be stored: NULL strings are "", control characters and broken
 * UTF-8 in free text become '?', long text is cut, -0 is 0, an infinite or
 * missing rel_error is DBL_MAX.  buffer holds what was changed. */
#define DFGNN_CLEAN_BYTES 32768
void dfgnn__measurement_clean(dfgnn_measurement *clean,
                              const dfgnn_measurement *row,
                              char buffer[DFGNN_CLEAN_BYTES]);

#endif
