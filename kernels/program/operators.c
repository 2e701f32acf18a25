/* operators.c - the library's operators as programs */
#include <pthread.h>
#include <stdio.h>

#include "kernels/program/match.h"
#include "kernels/program/named.h"

typedef struct known {
  const dfgnn_named *named;
  int choice;
  dfgnn_op op;
  dfgnn_message message;
  dfgnn_edge_use edge_use;
  dfgnn_dag *dag; /* NULL: out of memory, and such programs run themselves */
  uint8_t optional[DFGNN_DAG_INPUTS];
} known;

enum { MOST = 128 };

static known table[MOST];
static int count;

/* Reads "spmm-sum relu". */
static void read_operator(known *k) {
  char op[32] = "", more[32] = "";
  int value;
  k->op = DFGNN_OP_COUNT;
  sscanf(k->named->is, "%31s %31s", op, more);
  if (!dfgnn_parse(&value, DFGNN_NAMES_OP, op))
    k->op = (dfgnn_op)value;
  if (*more && !dfgnn_parse(&value, DFGNN_NAMES_MESSAGE, more))
    k->message = (dfgnn_message)value;
  else if (*more && !dfgnn_parse(&value, DFGNN_NAMES_EDGE_USE, more))
    k->edge_use = (dfgnn_edge_use)value;
}

/* Parses a pattern.  Inputs that the program of the name lacks are optional. */
static void read_pattern(known *k) {
  char text[DFGNN_NAMED_TEXT];
  dfgnn_dag *plain = NULL;
  dfgnn__named_text(text, k->named, k->choice, 0);
  if (dfgnn__dag_parse(&plain, text))
    return;
  dfgnn__named_text(text, k->named, k->choice, 1);
  if (dfgnn__dag_parse(&k->dag, text))
    k->dag = NULL;
  for (int i = 0; k->dag && i < k->dag->input_count; i++)
    k->optional[i] = dfgnn__dag_find(plain->inputs, plain->input_count,
                                     k->dag->inputs[i].name) < 0;
  dfgnn__dag_free(plain);
}

static void make_table(void) {
  char text[DFGNN_NAMED_TEXT];
  const dfgnn_named *named;
  for (int i = 0; (named = dfgnn__named(i)); i++)
    for (int choice = 0;
         named->is && count < MOST && dfgnn__named_text(text, named, choice, 1);
         choice++) {
      known *k = &table[count++];
      *k = (known){.named = named, .choice = choice};
      read_operator(k);
      read_pattern(k);
    }
}

static void read_table(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_table);
}

int dfgnn__operator_text(char text[DFGNN_NAMED_TEXT], dfgnn_op *op, int i) {
  read_table();
  if (i >= count)
    return 0;
  *op = table[i].op;
  return dfgnn__named_text(text, table[i].named, table[i].choice, 1);
}

int dfgnn__dag_match(dfgnn_match *match, const dfgnn_dag *dag) {
  read_table();
  for (int i = 0; i < count; i++) {
    const known *k = &table[i];
    *match = (dfgnn_match){
        .op = k->op, .message = k->message, .edge_use = k->edge_use};
    if (k->dag && dfgnn__match_pattern(match, dag, k->dag, k->optional))
      return 1;
  }
  return 0;
}
