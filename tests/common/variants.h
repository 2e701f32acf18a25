/* variants.h - what every variant of a device has to keep, by looping over the
 * registry: the same tests for the CPU and for GPUs
 *
 * Each function asserts with libcheck and belongs into a test. */
#ifndef DFGNN_TESTS_VARIANTS_H
#define DFGNN_TESTS_VARIANTS_H

#include "dfgnn.h"

/* Every variant that applies gives the reference's out, lse and, in every other
 * problem, weights, on every shape; widths, heads, layouts and index widths
 * take turns so that each variant meets each of them.  Returns the number of
 * checks; fails if a variant of the device met no problem it applies to. */
int check_every_variant(const char *device, dfgnn_op op, dfgnn_dtype dtype);

/* NaN, infinities, zero norms and scores far below zero. */
void check_special_values(const char *device, dfgnn_op op, dfgnn_dtype dtype);

/* Strides that are dense in neither layout. */
void check_strides(const char *device, dfgnn_op op, dfgnn_dtype dtype);

/* Two calls of a deterministic variant agree in every bit. */
void check_repeats(const char *device, dfgnn_op op, dfgnn_dtype dtype);

#endif
