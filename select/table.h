/* table.h - the index over decisions, shared by its making and its use */
#ifndef DFGNN_SELECT_TABLE_H
#define DFGNN_SELECT_TABLE_H

#include "select/select.h"

typedef struct dfgnn_entry {
  const dfgnn_decision *decision;
  uint64_t gate;  /* the fields that have to match, lib/key.h */
  uint64_t exact; /* gate, heads, dim, units, fingerprint */
  int own;        /* some of its rows are the user's or the site's */
  int same_model;
  int complete; /* of what selection asked about it already: measured.c */
  double feature[DFGNN_FEATURES];
  double units_distance; /* from the device's units to those of the row */
} dfgnn_entry;

typedef struct dfgnn_table_pin {
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  int bias, dropout; /* 1: problems with it alone; 0: with or without */
  uint64_t fingerprint;
  const dfgnn_variant *variant;
} dfgnn_table_pin;

struct dfgnn_table {
  dfgnn_device_info device;
  dfgnn_decisions *decisions;
  dfgnn_decisions **put; /* those of problems that were put in later */
  size_t puts;
  dfgnn_entry *entries; /* the decisions for this arch, ordered by gate */
  size_t count;
  uint32_t *by_exact; /* open addressing: index + 1 */
  size_t slots;
  uint64_t *graphs, *shapes; /* [count] of the entries' graphs; each sorted */
  dfgnn_table_pin *pins;
  size_t pin_count;
  unsigned char *banned; /* by variant index; NULL: none */
};

/* The entry of exactly this problem and graph, by its key, or NULL; and the
 * first entry of a gate, whose entries follow each other. */
dfgnn_entry *dfgnn__table_find(const dfgnn_table *table, uint64_t exact);
size_t dfgnn__table_gate(const dfgnn_table *table, uint64_t gate);

#endif
