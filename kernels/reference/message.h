/* message.h - the message of one edge in float64, with the variance of its
 * rounding errors */
#ifndef DFGNN_KERNELS_REFERENCE_MESSAGE_H
#define DFGNN_KERNELS_REFERENCE_MESSAGE_H

#include "kernels/reference/number.h"

/* The operands of one edge's message, the message and its derivatives.  Arrays
 * have one number a head and feature, heads first. */
typedef struct dfgnn_ref_message {
  const dfgnn_problem *problem;
  const dfgnn_args *args;
  int64_t width;  /* heads times features */
  int parts;      /* of an edge; 2: one is of the value; 0: a copy */
  int64_t fields; /* of args.edge_attr, where a matrix projects them */
  double unit;    /* unit roundoff of the type that kernels compute in */
  /* [parts][width][fields] and [parts][width], of fields; NULL: 0 */
  const double *matrix, *offset;

  double *value, *gate_dst, *gate_src; /* of the edge's nodes */
  double *attr;                        /* [fields or width] of the edge */
  dfgnn_ref_number *edge; /* [2][width] its part of the gate or sum, and that of
                           * the value; 0 if none */
  dfgnn_ref_number *message;
  dfgnn_ref_number *by_value; /* the message's derivative by value, and by the
                               * edge's part of it */
  dfgnn_ref_number *by_edge; /* its derivative by the edge's part of the gate or
                              * sum, and by either gate */
} dfgnn_ref_message;

/* The number of parameters of messages, [parts][width][fields + 1]. */
int64_t dfgnn__ref_message_parameters(const dfgnn_problem *problem);
/* Converts matrix and offset, which all threads read. */
double *dfgnn__ref_message_convert(dfgnn_ref_call *call);
/* parameters: the result of that. */
dfgnn_ref_message dfgnn__ref_message(const dfgnn_ref_call *call,
                                     const double *parameters,
                                     dfgnn_ref_memory *memory);

/* Reads all heads of a node. */
void dfgnn__ref_message_load(double *to, const dfgnn_ref_message *m,
                             const void *array, const dfgnn_strides *strides,
                             int64_t node);
void dfgnn__ref_message_destination(dfgnn_ref_message *m, int64_t row);
/* Reads the source and the edge, and computes the message and its
 * derivatives. */
void dfgnn__ref_message_edge(dfgnn_ref_message *m, int64_t column,
                             int64_t edge);

#endif
