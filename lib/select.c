/* select.c - the order in which near measurements and the model choose */
#include "lib/select.h"

#include <stdio.h>
#include <string.h>

#include "lib/predict.h"

static int is_certain(const dfgnn_choice *choice) {
  return choice->variant && (choice->source != DFGNN_SOURCE_NEAREST ||
                             choice->distance <= dfgnn__near_distance);
}

static void add_words(dfgnn_choice *choice, const char *words) {
  const size_t length = strlen(choice->because);
  snprintf(choice->because + length, sizeof choice->because - length, "; %s",
           words);
}

void dfgnn__select(dfgnn_choice *choice, const dfgnn_table *table,
                   struct dfgnn_model *model, const dfgnn_query *query,
                   uint64_t exclude) {
  dfgnn_choice predicted, known;
  dfgnn__table_select(choice, table, query, exclude);
  if (!model || is_certain(choice))
    return;
  dfgnn__model_choice(&predicted, model, query);
  if (predicted.variant && dfgnn__rule_knows(&known, query))
    predicted = known;
  if (predicted.variant) {
    predicted.distance = choice->distance;
    *choice = predicted;
  } else if (choice->variant) {
    add_words(choice, predicted.because);
  }
}
