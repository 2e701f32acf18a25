/* tensors.h - the tensors of a call of an MLP, as a table
 *
 * What plans, measures and checks MLPs makes their tensors by looping over it.
 */
#ifndef DFGNN_KERNELS_MLP_TENSORS_H
#define DFGNN_KERNELS_MLP_TENSORS_H

#include "kernels/mlp/job.h"

/* What a call may have beside what its dfgnn_edge_mlp says. */
enum {
  DFGNN_MLP_DST_PART = 1 << 0,
  DFGNN_MLP_SRC_PART = 1 << 1,
  DFGNN_MLP_BIAS = 1 << 2,   /* any */
  DFGNN_MLP_AFFINE = 1 << 3, /* the norm's weight and bias, any */
  DFGNN_MLP_DST_FACTOR = 1 << 4,
  DFGNN_MLP_SRC_FACTOR = 1 << 5,
  DFGNN_MLP_EDGE_OUT = 1 << 6, /* e' is written; backward: has a gradient */
  /* Gradients that are wanted: */
  DFGNN_MLP_GRAD_EDGE = 1 << 7,
  DFGNN_MLP_GRAD_PARTS = 1 << 8,
  DFGNN_MLP_GRAD_PARAMETERS = 1 << 9,
  DFGNN_MLP_GRAD_FACTORS = 1 << 10,
  DFGNN_MLP_KEPT = 1 << 11 /* inner values are kept between the passes */
};

/* What a call is, without numbers and memory: calls of the same form run the
 * same kernels. */
typedef struct dfgnn_mlp_form {
  dfgnn_edge_mlp mlp; /* slope, epsilon and edge_list are 0 */
  dfgnn_pass pass;
  unsigned has;
} dfgnn_mlp_form;

/* The form of a checked job; its padding is 0.  A side whose gradient is not
 * given is none, and an activation between layers that nothing is between is
 * none. */
void dfgnn__mlp_form_of(dfgnn_mlp_form *form, const dfgnn_mlp_job *job);
/* Leaves out what the rest of the form rules out. */
void dfgnn__mlp_form_settle(dfgnn_mlp_form *form);

typedef enum dfgnn_mlp_rows {
  DFGNN_MLP_ROWS_ONE, /* a parameter */
  DFGNN_MLP_ROWS_DST,
  DFGNN_MLP_ROWS_SRC,
  DFGNN_MLP_ROWS_EDGE
} dfgnn_mlp_rows;

typedef enum dfgnn_mlp_columns {
  DFGNN_MLP_COLUMNS_ONE,
  DFGNN_MLP_COLUMNS_EDGE,   /* Ce */
  DFGNN_MLP_COLUMNS_FIRST,  /* width[0] */
  DFGNN_MLP_COLUMNS_OUT,    /* C */
  DFGNN_MLP_COLUMNS_WEIGHT, /* a layer's width times what it reads */
  DFGNN_MLP_COLUMNS_BIAS,   /* a layer's width */
  DFGNN_MLP_COLUMNS_KEPT    /* a layer's width as it is kept */
} dfgnn_mlp_columns;

typedef enum dfgnn_mlp_element {
  DFGNN_MLP_STORAGE, /* the MLP's dtype */
  DFGNN_MLP_REAL,    /* float, or double for F64 */
  DFGNN_MLP_INDEX    /* int32 */
} dfgnn_mlp_element;

typedef enum dfgnn_mlp_use {
  DFGNN_MLP_INPUT,     /* of both passes */
  DFGNN_MLP_OUTPUT,    /* of the forward pass */
  DFGNN_MLP_SAVED,     /* an output of the forward pass, read by the other */
  DFGNN_MLP_COTANGENT, /* an input of the backward pass */
  DFGNN_MLP_GRADIENT   /* an output of the backward pass */
} dfgnn_mlp_use;

typedef struct dfgnn_mlp_tensor {
  const char *name;
  size_t offset; /* of the pointer in dfgnn_edge_mlp_args */
  dfgnn_mlp_use use;
  dfgnn_mlp_rows rows;
  dfgnn_mlp_columns columns;
  dfgnn_mlp_element element;
  int layer;
  int reduced;  /* it belongs to the reduction at: 'd'estinations, 's'ources */
  unsigned has; /* it is there if the form has all of these */
} dfgnn_mlp_tensor;

enum { DFGNN_MLP_TENSORS = 48 }; /* at most */

/* The table, which ends with a NULL name. */
extern const dfgnn_mlp_tensor dfgnn__mlp_tensors[];

/* Is the tensor read or written by a call of the form? */
int dfgnn__mlp_tensor_used(const dfgnn_mlp_tensor *tensor,
                           const dfgnn_mlp_form *form);
/* Does a call of the form read it? */
int dfgnn__mlp_tensor_read(const dfgnn_mlp_tensor *tensor,
                           const dfgnn_mlp_form *form);
/* Elements of a row, or of a parameter. */
int64_t dfgnn__mlp_tensor_width(const dfgnn_mlp_tensor *tensor,
                                const dfgnn_edge_mlp *mlp);
/* DFGNN_DTYPE_COUNT: int32. */
dfgnn_dtype dfgnn__mlp_tensor_type(const dfgnn_mlp_tensor *tensor,
                                   dfgnn_dtype dtype);
size_t dfgnn__mlp_tensor_bytes(const dfgnn_mlp_tensor *tensor,
                               const dfgnn_mlp_form *form, int64_t rows);

static inline void **dfgnn__mlp_tensor_slot(const dfgnn_mlp_tensor *tensor,
                                            dfgnn_edge_mlp_args *args) {
  return (void **)((char *)args + tensor->offset);
}

#endif
