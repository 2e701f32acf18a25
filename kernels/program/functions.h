/* functions.h - the functions that a program's text may call */
#ifndef DFGNN_PROGRAM_FUNCTIONS_H
#define DFGNN_PROGRAM_FUNCTIONS_H

#include "kernels/program/make.h"

/* An argument in a text: a value, or a place and shape (edge[H,D], dst, [D]).
 */
typedef struct dfgnn_word {
  int is_shape;
  int32_t node;
  double number; /* of a value that is one */
  int is_number;
  int place; /* of a shape; -1: not given */
  int rank;
  dfgnn_size shape[DFGNN_DAG_AXES];
} dfgnn_word;

typedef struct dfgnn_function dfgnn_function;
struct dfgnn_function {
  const char *name;
  const char *kinds; /* a letter an argument: v value, n number, s shape */
  int least;         /* arguments; as many as kinds has letters at most */
  int op;            /* for make */
  int32_t (*make)(dfgnn_dag *dag, const dfgnn_function *function,
                  const dfgnn_word *words, int count);
};

/* Does a function's value have the axes where those of its arguments meet? */
int dfgnn__function_is_elementwise(const dfgnn_function *function);

/* NULL: there is none of that name. */
const dfgnn_function *dfgnn__function(const char *name);

#endif
