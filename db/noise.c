/* noise.c - how far a stored measurement can be trusted */
#include "db/store.h"

#include <math.h>
#include <string.h>

dfgnn_noise dfgnn__row_noise(const dfgnn_measurement *row) {
  if (strcmp(row->status, "ok"))
    return DFGNN_NOISE_NONE;
  if (2 * row->disturbed > row->samples)
    return DFGNN_NOISE_DISTURBED;
  if (row->samples < 2)
    return DFGNN_NOISE_ALONE;
  if (row->ratio_low > 0 &&
      log(row->ratio_high / row->ratio_low) > 2 * log(DFGNN_NOISE_FACTOR))
    return DFGNN_NOISE_WIDE;
  return DFGNN_NOISE_NONE;
}

const char *dfgnn__noise_name(dfgnn_noise noise) {
  static const char *const names[] = {[DFGNN_NOISE_NONE] = "calm",
                                      [DFGNN_NOISE_ALONE] = "one sample",
                                      [DFGNN_NOISE_DISTURBED] = "disturbed",
                                      [DFGNN_NOISE_WIDE] = "wide"};
  return names[noise];
}

int dfgnn__ranked_doubtful(const dfgnn_decision *decision, size_t i) {
  const dfgnn_ranked *ranked = &decision->ranked[i];
  const double least = ranked->log_ratio - 1.96 * ranked->error;
  if (ranked->noise == DFGNN_NOISE_DISTURBED) /* it may be any faster */
    return 1;
  return ranked->noise != DFGNN_NOISE_NONE &&
         (i == 0 || least <= decision->ranked[0].log_ratio);
}
