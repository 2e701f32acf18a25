/* bare.h - calls without what they may leave out */
#ifndef DFGNN_TESTS_BARE_H
#define DFGNN_TESTS_BARE_H

#include "tests/common/variants.h"

/* Every deterministic variant gives the same bits without optional outputs, and
 * without scales as with scales of 1; and each gradient alone as with the
 * others, which stay as they were.  Returns the number of checks. */
int check_bare_calls(const char *device, const variant_test *test);

#endif
