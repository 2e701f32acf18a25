/* bare.h - calls that leave out tensors which they may leave out */
#ifndef DFGNN_TESTS_BARE_H
#define DFGNN_TESTS_BARE_H

#include "tests/common/variants.h"

/* Asserts that every deterministic variant gives the same bits without optional
 * outputs, and without scales and bias as with scales of 1 and a bias of 0; and
 * that each gradient has the same bits where it is wanted alone, and the others
 * are not written.  A family of many variants sends three of them.  Returns the
 * number of checks. */
int check_bare_calls(const char *device, const variant_test *test);

#endif
