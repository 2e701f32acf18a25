/* select.c - the order in which near measurements and the model choose */
#include "lib/select.h"

#include <stdio.h>
#include <string.h>

#include "lib/predict.h"

static int is_certain(const dfgnn_choice *choice) {
  return choice->variant && (choice->source != DFGNN_SOURCE_NEAREST ||
                             choice->distance <= dfgnn__near_distance);
}

/* Adds to the reason, as far as there is room. */
static void add_words(dfgnn_choice *choice, const char *words) {
  const size_t length = strlen(choice->because);
  const size_t room = sizeof choice->because - length;
  if (room > 3)
    snprintf(choice->because + length, room, "; %.*s", (int)(room - 3), words);
}

/* Where a model knows the kind of problem and abstains for lack of evidence,
 * graphs that are not near are left aside, too: over 51 such problems of an
 * H200, on graphs that were left out, their choice was at 1.16 times the best
 * (worst 8.6), the rule's at 1.09 (2.2). */
void dfgnn__select(dfgnn_choice *choice, const dfgnn_table *table,
                   struct dfgnn_model *model, const dfgnn_query *query,
                   uint64_t exclude) {
  dfgnn_choice predicted, known;
  dfgnn__table_select(choice, table, query, exclude);
  if (!model || is_certain(choice))
    return;
  const int knows = dfgnn__model_choice(&predicted, model, query);
  if (predicted.variant && dfgnn__rule_knows(&known, query))
    predicted = known;
  if (knows) {
    predicted.distance = choice->distance;
    *choice = predicted;
  } else if (choice->variant) {
    add_words(choice, predicted.because);
  } else {
    memcpy(choice->because, predicted.because, sizeof choice->because);
  }
}

void dfgnn__rule_after(dfgnn_choice *choice, const dfgnn_query *query) {
  dfgnn_choice rule;
  dfgnn__rule_choice(&rule, query);
  rule.distance = choice->distance;
  if (*choice->because)
    add_words(&rule, choice->because);
  *choice = rule;
}
