/* match.h - programs that are operators of the library
 *
 * Each operator is a program of named.txt, whose inputs and outputs have the
 * names of dfgnn_args.  A program is that operator if the two are the same
 * except for names, the order of terms and factors, and axes of size 1:
 * whoever writes GT as a program then gets GT's kernels. */
#ifndef DFGNN_PROGRAM_MATCH_H
#define DFGNN_PROGRAM_MATCH_H

#include "kernels/program/bind.h"
#include "kernels/program/named.h"

enum { DFGNN_MATCH_PORTS = 16 };

/* An argument of the operator and the program's input or output that it is. */
typedef struct dfgnn_match_port {
  const char *argument; /* a member of dfgnn_args, "query" */
  int port;
} dfgnn_match_port;

typedef struct dfgnn_match {
  dfgnn_op op;
  dfgnn_message message;
  dfgnn_edge_use edge_use;
  int input_count, output_count;
  dfgnn_match_port inputs[DFGNN_MATCH_PORTS], outputs[DFGNN_MATCH_PORTS];
  dfgnn_size heads, dim[DFGNN_DAG_AXES]; /* features a head: the product */
  dfgnn_size edge_dim; /* F; 0 where edge features are none or projected */
  double scale;        /* times scale_size to the power of scale_power */
  dfgnn_size scale_size;
  double scale_power;
  double slope;
  double dropout;
  int dropout_index; /* -1: there is none */
} dfgnn_match;

/* 1 if the program is an operator, forward.  Outputs are `out` and, where the
 * program has them too, `lse` and `weights`. */
int dfgnn__dag_match(dfgnn_match *match, const dfgnn_dag *dag);

/* The i-th pattern, a program with all that may be missing in others; 0 beyond
 * the last. */
int dfgnn__operator_text(char text[DFGNN_NAMED_TEXT], dfgnn_op *op, int i);

/* The port of an argument; -1: it has none. */
int dfgnn__match_find(const dfgnn_match_port *ports, int count,
                      const char *argument);

/* ---- for operators.c ----------------------------------------------------- */

/* 1 if `dag` is the program `pattern`, in which
 *   - inputs i with optional[i], and dropout, may be missing;
 *   - a power of a size is any number, and the slope of leaky_relu is. */
int dfgnn__match_pattern(dfgnn_match *match, const dfgnn_dag *dag,
                         const dfgnn_dag *pattern, const uint8_t *optional);

#endif
