/* Every CPU variant, against the float64 reference. */
#include <math.h>

#include "kernels/common/cpu_halves.h"
#include "kernels/common/half.h"
#include "tests/common/variants.h"

#define BACKEND "cpu"
#define TESTS VARIANT_TESTS
#define TAKE(i)                                                                \
  variant_test test = variant_test_make(i);                                    \
  if (variant_test_count(BACKEND, &test) == 0)                                 \
  return
#include "tests/common/promises.h"

/* Without this test a mistake in a list of sources would pass for a success. */
TEST(attention_has_variants_of_every_storage_type) {
  for (int i = 0; i < VARIANT_TESTS; i++) {
    variant_test test = variant_test_make(i);
    if (test.op <= DFGNN_OP_GATV2)
      ck_assert_int_gt(variant_test_count(BACKEND, &test), 1);
  }
}

/* Every 16-bit number, and floats of every exponent with bits that round. */
TEST_LOOP(rows_of_16_bits_convert_as_single_numbers_do, 0, 2) {
  enum { NUMBERS = (1 << 16) + 3 };
  const dfgnn_dtype dtype = _i ? DFGNN_BF16 : DFGNN_F16;
  uint16_t *narrow = malloc(NUMBERS * sizeof *narrow);
  float *wide = malloc(NUMBERS * sizeof *wide);
  for (int i = 0; i < NUMBERS; i++)
    narrow[i] = (uint16_t)i;
  dfgnn__widen_row(dtype, wide, narrow, NUMBERS);
  for (int i = 0; i < NUMBERS; i++) {
    const float one =
        _i ? dfgnn__bf16_to_float(narrow[i]) : dfgnn__f16_to_float(narrow[i]);
    ck_assert_int_eq(isnan(wide[i]), isnan(one));
    ck_assert(isnan(one) || !memcmp(&wide[i], &one, sizeof one));
  }
  for (int i = 0; i < NUMBERS; i++)
    wide[i] = dfgnn__bits_float((uint32_t)i * 2654435761u);
  dfgnn__narrow_row(dtype, narrow, wide, NUMBERS);
  for (int i = 0; i < NUMBERS; i++)
    ck_assert_uint_eq(narrow[i], _i ? dfgnn__bf16_from_float(wide[i])
                                    : dfgnn__f16_from_float(wide[i]));
  free(narrow);
  free(wide);
}

TEST_MAIN("variants", .timeout = 120)
