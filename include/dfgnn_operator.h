/* dfgnn_operator.h - the tensors of each operator, as a table
 *
 * For programs that bind the library to another language or framework: which
 * members of dfgnn_args a pass of an operator reads and writes, of which shapes
 * and types, and which problems have them.  The formulas are in dfgnn_types.h,
 * the members in dfgnn.h. */
#ifndef DFGNN_OPERATOR_H
#define DFGNN_OPERATOR_H

#include "dfgnn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dfgnn_role {
  DFGNN_ROLE_INPUT = 0,
  DFGNN_ROLE_MODIFIER = 1, /* an input that may be NULL */
  DFGNN_ROLE_SAVED = 2, /* an input of backward that the forward pass wrote */
  DFGNN_ROLE_OUTPUT = 3,
  DFGNN_ROLE_OPTIONAL = 4, /* an output that is written if it is not NULL */
  DFGNN_ROLE_GRADIENT = 5, /* likewise: a gradient */
  DFGNN_ROLE_COUNT
} dfgnn_role;

typedef enum dfgnn_element {
  DFGNN_ELEMENT_STORAGE = 0, /* the problem's dtype */
  DFGNN_ELEMENT_SCALAR = 1,  /* float, or double for F64 */
  DFGNN_ELEMENT_INDEX = 2,   /* int32 */
  DFGNN_ELEMENT_COUNT
} dfgnn_element;

/* The member of a problem that a tensor depends on. */
typedef enum dfgnn_flag {
  DFGNN_FLAG_NONE = 0,
  DFGNN_FLAG_WEIGHTS = 1,
  DFGNN_FLAG_BIAS = 2,
  DFGNN_FLAG_EDGE = 3,       /* edge_dim is not 0 */
  DFGNN_FLAG_PROJECTION = 4, /* edge_dim is above 0: a matrix W projects them */
  DFGNN_FLAG_MESSAGE = 5,    /* message is not COPY */
  DFGNN_FLAG_GATE = 6,       /* message is GATE or GATE_VALUE */
  DFGNN_FLAG_COUNT
} dfgnn_flag;

typedef struct dfgnn_tensor_info {
  size_t struct_size;
  const char *name; /* member of dfgnn_args; NULL: the pass has no more */
  /* A letter for each dimension: N destinations, M sources, E edges, H heads,
   * D features, F features of an edge (H x D where they are projected).  With a
   * PROJECTION and the message GATE_VALUE there are two such tensors, one after
   * the other.  "" is one number. */
  char shape[8];
  dfgnn_role role;
  dfgnn_element element;
  dfgnn_flag flag;
  int strided;   /* 1: dfgnn_args has strides for it */
  size_t offset; /* of its pointer in the struct that `name` is a member of */
} dfgnn_tensor_info;
#define DFGNN_TENSOR_INFO_INIT DFGNN_INIT(dfgnn_tensor_info)

/* Tensor i, from 0, of a pass; names have the library's lifetime.
 * ERROR_UNSUPPORTED: there is no such pass.  An edge program's are those of
 * dfgnn_program.h. */
DFGNN_API dfgnn_status dfgnn_operator_tensor(dfgnn_tensor_info *info,
                                             dfgnn_op op, dfgnn_pass pass,
                                             int i);

#ifdef __cplusplus
}
#endif
#endif
