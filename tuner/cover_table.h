/* cover_table.h - counts, by cell of problems and family, the graphs and the
 * settings that were measured */
#ifndef DFGNN_TUNER_COVER_TABLE_H
#define DFGNN_TUNER_COVER_TABLE_H

#include <stdint.h>

#include "select/forest.h"

typedef struct dfgnn_cover_table {
  dfgnn_forest_cover *entry; /* [count], in the order of first mention */
  size_t count, room;
  uint32_t *index; /* [2 * room] entries by the hash of their names, plus 1; 0:
                    * none */
  uint64_t *slot;  /* of the open hash table of what was counted; 0: empty */
  size_t used, slots;
} dfgnn_cover_table; /* all 0: an empty one */

void dfgnn__cover_table_free(dfgnn_cover_table *table);

/* The number of a cell's and family's entry, which is made with counts of 0 if
 * need be; SIZE_MAX without memory. */
size_t dfgnn__cover_table_find(dfgnn_cover_table *table, const char *cell,
                               const char *family);

/* Count a graph, or a setting (the number of a variant), for an entry; one that
 * was counted before is not counted again.  0 without memory. */
int dfgnn__cover_table_graph(dfgnn_cover_table *table, size_t entry,
                             uint64_t fingerprint);
int dfgnn__cover_table_setting(dfgnn_cover_table *table, size_t entry,
                               size_t variant);

/* Puts the entries into the order of dfgnn__forest_cover_order, for reading: no
 * entry can be found or counted after it. */
void dfgnn__cover_table_sort(dfgnn_cover_table *table);

#endif
