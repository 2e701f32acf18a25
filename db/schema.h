/* schema.h - the tables of a store */
#ifndef DFGNN_DB_SCHEMA_H
#define DFGNN_DB_SCHEMA_H

/* "dfgn": the application_id of SQLite's header. */
#define DFGNN_APPLICATION_ID 0x6466676e

/* SQLite's user_version.  It goes up with every change of a table; a library
 * reads and writes this version alone. */
#define DFGNN_SCHEMA_VERSION 10

#define DFGNN_SCHEMA_TABLES 7

typedef struct dfgnn_schema_table {
  const char *name; /* ascending */
  const char *sql;  /* CREATE TABLE, as SQLite keeps it */
} dfgnn_schema_table;

extern const dfgnn_schema_table dfgnn__schema[DFGNN_SCHEMA_TABLES];

#endif
