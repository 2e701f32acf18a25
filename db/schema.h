/* schema.h - the tables of each version of the store, and the upgrades */
#ifndef DFGNN_DB_SCHEMA_H
#define DFGNN_DB_SCHEMA_H

#include <stddef.h>

/* "dfgn": the application_id of SQLite's header. */
#define DFGNN_APPLICATION_ID 0x6466676e

#define DFGNN_SCHEMA_TABLES 6

/* One version.  upgrade is SQL that fills its tables from those of the version
 * before, which carry the prefix old_ while it runs; NULL for the first. */
typedef struct dfgnn_schema {
  const char *name[DFGNN_SCHEMA_TABLES]; /* ascending; NULL: not used */
  const char *sql[DFGNN_SCHEMA_TABLES];  /* CREATE TABLE, as SQLite keeps it */
  const char *upgrade;
} dfgnn_schema;

/* Versions 1, 2, ..., count. */
typedef struct dfgnn_schemas {
  int count;
  const dfgnn_schema *version;
} dfgnn_schemas;

extern const dfgnn_schemas dfgnn__schemas;

#endif
