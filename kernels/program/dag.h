/* dag.h - an edge program: values, each made of earlier ones
 *
 * A value lives at a place: const < param < {dst, src, rel} < edge.  An edge
 * has three ends, its destination, its source and its relation, and a value of
 * a lower place is spread over a higher one (every edge that arrives at a
 * destination sees its values), as one of size 1 along an axis is spread along
 * that axis.  Every value has three axes, of size 1 where it was declared with
 * fewer: x is [1,1,1], x[D] is [1,1,D], x[H,D] is [1,H,D].
 *
 * Nodes are numbered so that arguments come before those that use them, and
 * equal nodes are one node.  The functions of make.h are the only ones that add
 * nodes: they keep the normal form.  They return the number of a node; the
 * first failure is kept in dag->status (its message is dfgnn_last_error()) and
 * later calls return 0. */
#ifndef DFGNN_PROGRAM_DAG_H
#define DFGNN_PROGRAM_DAG_H

#include <stddef.h>

#include "kernels/program/size.h"
#include "lib/base/error.h"

/* The limits of a program; more is refused. */
enum {
  DFGNN_DAG_TEXT = 1 << 18,      /* bytes of text */
  DFGNN_DAG_NODES = 1 << 14,     /* values */
  DFGNN_DAG_ARGUMENTS = 1 << 18, /* of all of them together */
  DFGNN_DAG_INPUTS = 96,
  DFGNN_DAG_OUTPUTS = 96,
  DFGNN_DAG_NAME = 64,  /* bytes of a name, with its end */
  DFGNN_DAG_DEPTH = 64, /* brackets inside one another */
  DFGNN_DAG_CAT = 16,   /* arguments of cat */
  DFGNN_POW_SQUARED = 8 /* whole exponents up to it are products of squares */
};

typedef enum dfgnn_place {
  DFGNN_PLACE_CONST,
  DFGNN_PLACE_PARAM,
  DFGNN_PLACE_DST,
  DFGNN_PLACE_SRC,
  DFGNN_PLACE_EDGE,
  DFGNN_PLACE_REL, /* the relation of an edge */
  DFGNN_PLACES
} dfgnn_place;

typedef enum dfgnn_node_op {
  DFGNN_NODE_NUMBER, /* .number */
  DFGNN_NODE_SIZE,   /* .at, as a number */
  DFGNN_NODE_COUNT,  /* how many there are of the place .index */
  DFGNN_NODE_DEGREE, /* edges of a destination, source or relation */
  DFGNN_NODE_INPUT,  /* .index */
  DFGNN_NODE_KEEP,   /* 0 or 1 / (1 - p): dropout .index, p = .number */
  /* of each element */
  DFGNN_NODE_ADD,
  DFGNN_NODE_MUL, /* two factors or more */
  DFGNN_NODE_POW, /* to .number */
  DFGNN_NODE_EXP,
  DFGNN_NODE_EXPM1,
  DFGNN_NODE_LOG,
  DFGNN_NODE_LOG1P,
  DFGNN_NODE_TANH,
  DFGNN_NODE_SIGMOID,
  DFGNN_NODE_SOFTPLUS,
  DFGNN_NODE_ERF,
  DFGNN_NODE_SIN,
  DFGNN_NODE_COS,
  DFGNN_NODE_ABS,
  DFGNN_NODE_SIGN,
  DFGNN_NODE_RELU,
  DFGNN_NODE_LEAKY,  /* slope .number */
  DFGNN_NODE_DETACH, /* the same, without a gradient */
  DFGNN_NODE_ATAN2,
  DFGNN_NODE_MAX,
  DFGNN_NODE_LT, /* comparisons are 1 or 0 */
  DFGNN_NODE_LE,
  DFGNN_NODE_EQ,
  DFGNN_NODE_WHERE,
  /* of the axes of a value */
  DFGNN_NODE_FSUM, /* along .axis, which becomes 1 */
  DFGNN_NODE_FMAX,
  DFGNN_NODE_SLICE,   /* from .at on, along the last axis */
  DFGNN_NODE_CAT,     /* along the last axis */
  DFGNN_NODE_RESHAPE, /* the same elements in order */
  DFGNN_NODE_EXPAND,
  DFGNN_NODE_SWAP,   /* axes .axis and .flags */
  DFGNN_NODE_MATMUL, /* last two axes; .flags: DFGNN_MATMUL_... */
  /* over the edges that have the result's place as an end, or over all of a
   * place */
  DFGNN_NODE_SUM,
  DFGNN_NODE_MAX_EDGES,
  DFGNN_NODE_LSE, /* log(sum(exp())) */
  DFGNN_NODE_SUM_ALL,
  DFGNN_NODE_OPS
} dfgnn_node_op;

enum { DFGNN_MATMUL_FIRST = 1, DFGNN_MATMUL_SECOND = 2 }; /* transposed */

static inline int dfgnn__node_is_leaf(int op) { return op <= DFGNN_NODE_KEEP; }
static inline int dfgnn__node_reduces(int op) {
  return op >= DFGNN_NODE_SUM && op <= DFGNN_NODE_SUM_ALL;
}

typedef struct dfgnn_node {
  uint8_t op, place, axis, flags;
  int32_t count, first; /* arguments: dag->arguments[first ...] */
  int32_t index;
  double number;
  dfgnn_size shape[DFGNN_DAG_AXES], at;
  uint64_t hash; /* of the value, whatever names and numbers of nodes are */
  int finite;    /* 1: neither infinite nor NaN, whatever the inputs are */
} dfgnn_node;

/* The meaning of a gradient's port to the program that it is derived
 * from. */
typedef enum dfgnn_port_role {
  DFGNN_PORT_OWN,       /* of no gradient's program, or a kept output */
  DFGNN_PORT_INPUT,     /* input .of */
  DFGNN_PORT_OUTPUT,    /* what output .of was, read again */
  DFGNN_PORT_COTANGENT, /* the gradient that comes for output .of */
  DFGNN_PORT_GRADIENT   /* the gradient that goes to input .of */
} dfgnn_port_role;

/* An input or an output, with its own place and shape: an output's value is
 * spread over them.  rank: the axes that it is declared with, 0 to 3. */
typedef struct dfgnn_port {
  char name[DFGNN_DAG_NAME];
  int32_t node;
  int rank;
  dfgnn_place place; /* never CONST */
  dfgnn_port_role role;
  int of;
  int kept;   /* for the gradient, in the type that sums have */
  int unread; /* of an output: the gradient computes its value again */
  dfgnn_size shape[DFGNN_DAG_AXES];
} dfgnn_port;

typedef struct dfgnn_dag {
  dfgnn_status status;
  dfgnn_node *nodes;
  int32_t count, capacity;
  int32_t *arguments;
  int32_t argument_count, argument_capacity;
  int32_t *table; /* open addressing by hash; -1: free */
  int32_t table_size;
  dfgnn_port *inputs, *outputs;
  int input_count, output_count;
  char names[DFGNN_SIZE_NAMES][DFGNN_DAG_NAME]; /* of sizes */
  int name_count;
  int dropouts;    /* the next dropout's index */
  int as_written;  /* sums keep what is in them, as the text has it */
  int32_t derived; /* nodes below are those of a program that is derived: its
                    * reductions stay as they are, so that they can be kept */
} dfgnn_dag;

/* An empty program; node 0 is the number 0.  NULL: out of memory, with the
 * message set. */
dfgnn_dag *dfgnn__dag_new(void);
void dfgnn__dag_free(dfgnn_dag *dag);

/* Keeps the first failure: status and the message. */
void dfgnn__dag_fail(dfgnn_dag *dag, dfgnn_status status, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* The node with these arguments, made if there is none. */
int32_t dfgnn__dag_intern(dfgnn_dag *dag, const dfgnn_node *node,
                          const int32_t *arguments);

static inline int32_t dfgnn__dag_argument(const dfgnn_dag *dag, int32_t node,
                                          int i) {
  return dag->arguments[dag->nodes[node].first + i];
}

/* Adds an input (its node is made), or an output that is given a node.  Names
 * must be new among the inputs, or outputs. */
int32_t dfgnn__dag_input(dfgnn_dag *dag, const dfgnn_port *port);
void dfgnn__dag_output(dfgnn_dag *dag, const dfgnn_port *port);
/* The port of a node as it is, with its place (PARAM for CONST), shape and
 * `rank` axes or as many as it needs. */
dfgnn_port dfgnn__dag_port(const dfgnn_dag *dag, const char *name, int rank,
                           int32_t node);
/* The input or output of a name; -1: none. */
int dfgnn__dag_find(const dfgnn_port *ports, int count, const char *name);
/* The number of a size's name, new if there is none of it. */
int dfgnn__dag_name(dfgnn_dag *dag, const char *name);

/* Does an output hold its node's value, which is not spread? */
static inline int dfgnn__port_holds(const dfgnn_dag *dag,
                                    const dfgnn_port *port) {
  const dfgnn_node *node = &dag->nodes[port->node];
  return port->place == (dfgnn_place)node->place &&
         dfgnn__shape_same(port->shape, node->shape);
}

/* A number below 0 for each node, which the caller frees; NULL: no memory. */
int32_t *dfgnn__dag_unnumbered(const dfgnn_dag *dag);
/* Makes each node n of `from` in `to`, in order, unless number[n] says already
 * what it is there; `data` is for make(), which may change the arguments. */
typedef int32_t (*dfgnn_remake)(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                                int32_t *arguments, const void *data);
void dfgnn__dag_remake(dfgnn_dag *to, const dfgnn_dag *from, int32_t *number,
                       dfgnn_remake make, const void *data);

/* Flags, one a node, of those that roots need; the caller frees them.  Nodes of
 * `stops` (NULL: none) are flagged, but not what they are made of.  NULL: out
 * of memory. */
uint8_t *dfgnn__dag_needed(const dfgnn_dag *dag, const int32_t *roots,
                           int count, const uint8_t *stops);

/* Takes names and ports of `from`, whose node n is number[n], when the nodes
 * are there. */
void dfgnn__dag_take_ports(dfgnn_dag *to, const dfgnn_dag *from,
                           const int32_t *number);

/* A copy with nothing but the inputs and what the outputs need. */
dfgnn_dag *dfgnn__dag_compact(const dfgnn_dag *dag);

/* A hash of what the program computes; names do not enter, their order does. */
uint64_t dfgnn__dag_hash(const dfgnn_dag *dag);

const char *dfgnn__place_name(int place); /* "dst" */
/* "2 x D + 3", "[H, D]", in a buffer of the thread that the next call but four
 * takes again. */
const char *dfgnn__size_text(const dfgnn_dag *dag, dfgnn_size size);
const char *dfgnn__shape_text(const dfgnn_dag *dag, const dfgnn_size *shape);

/* print.c: the program as text, which parses to the same program; the caller
 * frees it.  NULL: out of memory. */
char *dfgnn__dag_text(const dfgnn_dag *dag);
/* parse.c: a program of a text.  Messages name line and column. */
dfgnn_status dfgnn__dag_parse(dfgnn_dag **dag, const char *text);
/* The same with its sums as they are written, for the reference. */
dfgnn_status dfgnn__dag_parse_as_written(dfgnn_dag **dag, const char *text);

#endif
