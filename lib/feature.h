/* feature.h - the features of a model: numbers of a problem and of a variant
 *
 * Numbers are made by multiplication, division and comparison alone, so that
 * they are the same on every machine; trees need no logarithms.  NaN: not
 * known, or the variant has no such parameter. */
#ifndef DFGNN_LIB_FEATURE_H
#define DFGNN_LIB_FEATURE_H

#include "lib/registry.h"

/* Numbers of the problem, its graph and the device. */
size_t dfgnn__problem_feature_count(void);
const char *dfgnn__problem_feature_name(size_t i);
double dfgnn__problem_feature(size_t i, const dfgnn_setting *setting);

/* feature_program.c: of an edge program, for each edge or node; NaN where the
 * problem is none. */
double dfgnn__program_edge_numbers(const dfgnn_setting *setting);
double dfgnn__program_node_numbers(const dfgnn_setting *setting);
double dfgnn__program_operations(const dfgnn_setting *setting);
double dfgnn__program_functions(const dfgnn_setting *setting);
double dfgnn__program_sums(const dfgnn_setting *setting);
double dfgnn__program_softmaxes(const dfgnn_setting *setting);
double dfgnn__program_walks(const dfgnn_setting *setting);
double dfgnn__program_written(const dfgnn_setting *setting);

/* A number that depends on a variant's parameters and the problem together. */
#define DFGNN_PAIR_PARAMETERS 3
typedef struct dfgnn_pair_feature {
  const char *name;
  const char *parameter[DFGNN_PAIR_PARAMETERS]; /* NULL: fewer */
  double (*number)(const dfgnn_setting *setting, const int *value);
} dfgnn_pair_feature;
size_t dfgnn__pair_feature_count(void);
const dfgnn_pair_feature *dfgnn__pair_feature(size_t i);

/* The values of the pair's parameters; 0 if the variant lacks one. */
int dfgnn__pair_values(int value[DFGNN_PAIR_PARAMETERS],
                       const dfgnn_pair_feature *pair,
                       const dfgnn_variant *variant);

/* A number of a variant alone: "parameter lanes" is the parameter's value,
 * "algorithm online" 1 for variants of that algorithm and 0 for others.  NaN:
 * it is neither. */
double dfgnn__variant_feature(const char *name, const dfgnn_variant *variant);

#endif
