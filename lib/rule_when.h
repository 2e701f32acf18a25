/* rule_when.h - what the rows of the rule ask of a graph, a problem and a
 * device
 *
 * Each condition stands with the measurements that speak for it in rule_when.c.
 */
#ifndef DFGNN_LIB_RULE_WHEN_H
#define DFGNN_LIB_RULE_WHEN_H

#include "lib/registry.h"

int dfgnn__when_always(const dfgnn_setting *setting);
int dfgnn__when_dominated(const dfgnn_setting *setting);
int dfgnn__when_uneven(const dfgnn_setting *setting);
int dfgnn__when_short_rows_and_hubs(const dfgnn_setting *setting);
int dfgnn__when_uneven_and_few(const dfgnn_setting *setting);
int dfgnn__when_few_long_rows(const dfgnn_setting *setting);
int dfgnn__when_few_long_many_short(const dfgnn_setting *setting);
int dfgnn__when_few_long_narrow(const dfgnn_setting *setting);
int dfgnn__when_few_long_narrow_sums(const dfgnn_setting *setting);
int dfgnn__when_few_long_few_edges(const dfgnn_setting *setting);
int dfgnn__when_long_and_scattered(const dfgnn_setting *setting);
int dfgnn__when_beyond_the_cache(const dfgnn_setting *setting);
int dfgnn__when_short_rows(const dfgnn_setting *setting);
int dfgnn__when_short_and_wide(const dfgnn_setting *setting);
int dfgnn__when_dense_blocks(const dfgnn_setting *setting);
int dfgnn__when_dense_narrow(const dfgnn_setting *setting);
int dfgnn__when_dense_narrow_many(const dfgnn_setting *setting);
int dfgnn__when_sums_moments(const dfgnn_setting *setting);
int dfgnn__when_narrow_heads(const dfgnn_setting *setting);
int dfgnn__when_dominated_and_narrow(const dfgnn_setting *setting);
int dfgnn__when_narrow_and_cached(const dfgnn_setting *setting);
int dfgnn__when_with_edges(const dfgnn_setting *setting);
int dfgnn__when_has_edges(const dfgnn_setting *setting);
int dfgnn__when_has_edges_and_hubs(const dfgnn_setting *setting);
int dfgnn__when_has_edges_and_many_features(const dfgnn_setting *setting);
int dfgnn__when_has_edges_hubs_and_many_features(const dfgnn_setting *setting);
int dfgnn__when_wide_layers(const dfgnn_setting *setting);
int dfgnn__when_rows_of_16(const dfgnn_setting *setting);
int dfgnn__when_rows_of_4(const dfgnn_setting *setting);
int dfgnn__when_uneven_of_16(const dfgnn_setting *setting);
int dfgnn__when_uneven_of_4(const dfgnn_setting *setting);

#endif
