/* key.h - the key of a problem: the fields in which a measurement must agree
 * with a call to answer it
 *
 * A problem is written into a row as the store keeps it, and whatever compares
 * problems looks at rows, by the one table of fields in db/field.c.  So the key
 * of a call and that of a measurement are made by the same code. */
#ifndef DFGNN_LIB_KEY_H
#define DFGNN_LIB_KEY_H

#include "db/field.h"
#include "db/store.h"

/* Fills the problem's fields of the row, and the first word of its protocol.
 * offsets64: the matrix has 64-bit offsets. */
void dfgnn__key_fill(dfgnn_measurement *row, const dfgnn_problem *problem,
                     int offsets64);

/* The problem that a row was measured for; DFGNN_ERROR_INVALID if it names an
 * operator or option that this library does not have. */
dfgnn_status dfgnn__key_problem(dfgnn_problem *problem,
                                const dfgnn_measurement *row);

/* A hash of the fields that have to match, and of whether caches were cold. */
uint64_t dfgnn__key_gate(const dfgnn_measurement *row);
/* The same with sizes: heads and dim, and the units of the device: threads,
 * or the multiprocessors of a GPU or of a part of one. */
uint64_t dfgnn__key_sized(const dfgnn_measurement *row);

/* "with operator spmm-sum, without dropout": how the problem of a measurement
 * differs from the wanted one; "" if it does not. */
void dfgnn__key_difference(char *text, size_t size,
                           const dfgnn_measurement *measured,
                           const dfgnn_measurement *wanted);

/* "gt forward, 8 heads of 16, f32, with bias and dropout" */
void dfgnn__key_text(char *text, size_t size, const dfgnn_problem *problem);
/* " with bias and dropout": what a problem has beyond its operator; "" for
 * nothing. */
void dfgnn__key_extras(char *text, size_t size, const dfgnn_problem *problem);

/* SplitMix64: folds x, or a text, into the hash h. */
uint64_t dfgnn__fold(uint64_t h, uint64_t x);
uint64_t dfgnn__fold_text(uint64_t h, const char *text);

#endif
