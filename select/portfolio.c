/* portfolio.c - which members a problem has, and which is their default */
#include "select/portfolio.h"

#include <stdio.h>
#include <string.h>

#include "lib/select.h"

static dfgnn_choice rule_of(const dfgnn_setting *setting,
                            const unsigned char *broken) {
  const dfgnn_query query = {
      .setting = *setting, .family = "", .broken = broken};
  dfgnn_choice choice;
  dfgnn__rule_choice(&choice, &query);
  return choice;
}

int dfgnn__portfolio(const dfgnn_variant **member, int capacity,
                     const dfgnn_setting *setting,
                     const unsigned char *broken) {
  const dfgnn_query query = {
      .setting = *setting, .family = "", .broken = broken};
  const dfgnn_variant *first = rule_of(setting, broken).variant;
  const dfgnn_family *family = NULL;
  int count = 0;
  if (first && capacity > 0)
    member[count++] = first;
  for (size_t i = 0; i < dfgnn__variant_count() && count < capacity; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (v->family == family || !dfgnn__variant_offered(v))
      continue;
    family = v->family;
    const dfgnn_variant *best =
        dfgnn__algorithm_choice(&query, family->algorithm);
    if (best && best->family == family && best != first)
      member[count++] = best;
  }
  return count;
}

int dfgnn__portfolio_rank(double *log_ratio, const dfgnn_variant *const *member,
                          int count, const dfgnn_setting *setting) {
  (void)log_ratio;
  (void)member;
  (void)count;
  (void)setting;
  return 0;
}

const dfgnn_variant *dfgnn__portfolio_default(const dfgnn_setting *setting,
                                              const unsigned char *broken,
                                              const char **because) {
  static _Thread_local char reason[256];
  const dfgnn_choice choice = rule_of(setting, broken);
  snprintf(reason, sizeof reason, "%s", choice.because);
  *because = reason;
  return choice.variant;
}

const char *dfgnn__portfolio_cell(const dfgnn_setting *setting) {
  (void)setting;
  return "";
}

const char *dfgnn__portfolio_digest(void) { return "0"; }
