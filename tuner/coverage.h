/* coverage.h - how widely families were measured, and what to measure next
 *
 * A model that is fitted to measurements which it led itself never learns that
 * a family it thinks slow is fast.  So measurements for training are planned by
 * coverage: in each cell of problems (lib/cell.h), every family that is legal
 * there is measured with a few settings on several graphs, whatever a model
 * predicts. */
#ifndef DFGNN_TUNER_COVERAGE_H
#define DFGNN_TUNER_COVERAGE_H

#include "db/store.h"
#include "lib/select.h"
#include "select/forest.h"
#include "tuner/cover_table.h"

/* Settings of a family that the plan measures on one graph, and the different
 * draws of them that graphs have. */
enum { DFGNN_COVER_SETTINGS = 4, DFGNN_COVER_DRAWS = 3 };

/* Counts, by cell and family and in this order, the graphs and the variants in
 * decisions.  key: only decisions of this forest's key (dfgnn__train_key);
 * NULL: all.  The caller frees *cover. */
dfgnn_status dfgnn__coverage(dfgnn_forest_cover **cover, size_t *count,
                             const dfgnn_decisions *decisions, const char *key);

/* The same into a table that may have counts already. */
dfgnn_status dfgnn__coverage_count(dfgnn_cover_table *table,
                                   const dfgnn_decisions *decisions,
                                   const char *key);

/* Lists the cells and families that are legal on a device, with graphs and
 * settings 0, in order: of the operators and passes in the forest keys that
 * dfgnn__model_key makes for it; key NULL: all.  A family is legal in a cell if
 * one of its variants runs some problem of the cell on one of a few typical
 * graphs.  f64 is left out, which no package trains for.  The caller frees
 * *cover. */
dfgnn_status dfgnn__coverage_legal(dfgnn_forest_cover **cover, size_t *count,
                                   const dfgnn_device_info *device,
                                   const char *key);

/* Draws the variants that the plan measures for a query: the rule's choice, and
 * of each family that is legal DFGNN_COVER_SETTINGS settings, by a scheme in
 * which each value of each parameter comes up as evenly as can be.  The seed
 * and the graph decide which.  variant has room for dfgnn__variant_count();
 * returns the number. */
size_t dfgnn__coverage_draw(const dfgnn_variant **variant,
                            const dfgnn_query *query, uint64_t seed);

#endif
