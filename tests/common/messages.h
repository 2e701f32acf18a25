/* messages.h - the tests of variants that send messages of edges */
#ifndef DFGNN_TESTS_MESSAGES_H
#define DFGNN_TESTS_MESSAGES_H

#include "tests/common/variants.h"

/* Edge features that are given projected, none, and projections of one feature,
 * of whole vectors of features and of others. */
static const struct {
  dfgnn_message message;
  int64_t edge_dim;
} message_kinds[] = {
    {DFGNN_MESSAGE_RELU, DFGNN_EDGE_PROJECTED},
    {DFGNN_MESSAGE_GATE, 0},
    {DFGNN_MESSAGE_RELU, 1},
    {DFGNN_MESSAGE_GATE, DFGNN_EDGE_PROJECTED},
    {DFGNN_MESSAGE_RELU, 11},
    {DFGNN_MESSAGE_GATE, 8},
    {DFGNN_MESSAGE_GATE_VALUE, 5},
};

/* The problems of a kind of message, pass and type have three operators: every
 * second one of the list, from the first or from the second on. */
enum { MESSAGE_TURNS = 3 };
static const dfgnn_op message_ops[] = {
    DFGNN_OP_SPMM_SUM,    DFGNN_OP_SPMM_MEAN,  DFGNN_OP_REDUCE_MIN,
    DFGNN_OP_REDUCE_MEAN, DFGNN_OP_REDUCE_PNA, DFGNN_OP_REDUCE_MAX};

#define MESSAGE_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define MESSAGE_TESTS                                                          \
  (MESSAGE_COUNT(message_kinds) * (int)DFGNN_PASS_COUNT *                      \
   (int)DFGNN_DTYPE_COUNT * MESSAGE_TURNS)

/* The i-th test, storage types varying fastest.  The operators take turns, so
 * that each kind and pass meets all of them. */
static inline variant_test message_test_make(int i) {
  variant_test test = {.dtype = (dfgnn_dtype)(i % (int)DFGNN_DTYPE_COUNT)};
  int pass = i / (int)DFGNN_DTYPE_COUNT % (int)DFGNN_PASS_COUNT;
  int number = i / (int)(DFGNN_DTYPE_COUNT * DFGNN_PASS_COUNT);
  int kind = number % MESSAGE_COUNT(message_kinds);
  int turn = number / MESSAGE_COUNT(message_kinds);
  test.pass = (dfgnn_pass)pass;
  test.op = message_ops[(kind + pass + (int)test.dtype + 2 * turn) %
                        MESSAGE_COUNT(message_ops)];
  test.message = message_kinds[kind].message;
  test.edge_dim = message_kinds[kind].edge_dim;
  test.share = turn;
  test.shares = MESSAGE_TURNS;
  return test;
}

#endif
