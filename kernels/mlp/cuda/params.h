/* params.h - what the kernels of MLPs on edges take, for C and CUDA */
#ifndef DFGNN_MLP_CUDA_PARAMS_H
#define DFGNN_MLP_CUDA_PARAMS_H

#include <stdint.h>

enum {
  MLP_LAYERS = 4,
  MLP_TILE = 16,      /* edges that a warp computes at a time */
  MLP_CHUNK = 16,     /* bytes that a lane loads at a time */
  MLP_PAD = 16,       /* bytes behind a row in shared memory */
  MLP_STAGE_ROW = 144 /* bytes of a staged row: 32 floats and padding */
};

/* The numbers are those of dfgnn_activation and dfgnn_norm (run.c compares). */
enum {
  MLP_NONE = 0,
  MLP_RELU = 1,
  MLP_SILU = 2,
  MLP_GELU = 3,
  MLP_GELU_TANH = 4,
  MLP_ELU = 5,
  MLP_LEAKY_RELU = 6,
  MLP_TANH = 7,
  MLP_SIGMOID = 8,
  MLP_SOFTPLUS = 9
};
enum { MLP_NORM_NONE = 0, MLP_NORM_LAYER = 1, MLP_NORM_RMS = 2 };

/* Constants of a kernel. */
enum {
  MLP_VECTOR = 1,   /* rows of all tensors lie at multiples of 16 bytes */
  MLP_RESIDUAL = 2, /* e is added to e' */
  MLP_EXACT = 4,    /* float: three products of TF32 numbers for each */
  MLP_WEIGHTS = 8,  /* backward: the gradients of weights are asked for */
  /* backward: gradients with respect to which outputs there are */
  MLP_GRAD_EDGES = 16,
  MLP_GRAD_DST = 32,
  MLP_GRAD_SRC = 64,
  MLP_GRAD_FACTORS = 128, /* with respect to factors of edges */
  MLP_MAX = 256,          /* destinations have the maximum of e', not sums */
  MLP_MIN = 512,
  MLP_GATE = 1024,
  MLP_LOCKSTEP = 2048,    /* warps of a block begin tiles together */
  MLP_STORED_LAST = 4096, /* rows of the last layer's z are of the MLP's type,
                           * not float */
  MLP_LAST_BIAS = 8192,   /* backward: mlp_last_rows adds up the gradient of the
                           * last layer's bias */
  MLP_ROUND = 16384, /* float: rows that a library multiplies are rounded to
                      * TF32, since tensor cores cut off */
  MLP_KEPT = 32768 /* the forward pass keeps z of the layers in memory, and the
                    * backward pass reads it */
};

/* The weights and other numbers of all layers, padded and in the order of
 * fragments (tile.cuh): pack.cuh writes them, each block copies them. */
typedef struct mlp_pack {
  const void *weight[MLP_LAYERS], *bias[MLP_LAYERS];
  const void *norm_weight, *norm_bias;
  void *packed;
} mlp_pack;

/* Sums of rows of edges at their destination.  Spans of tiles are summed apart;
 * a row that a span's end cuts has a part in each span. */
typedef struct mlp_sums {
  void *out;    /* [rows, width]; NULL: no sums */
  int32_t *arg; /* [rows, width]: the edge of a row that an extreme is of;
                 * NULL: nobody asks */
  int32_t *partial_arg; /* as partial, of extremes */
  float *partial;       /* [spans, 2, padded width]: of the row that begins
                         * before the span, and of the one that goes on */
  const void *offsets;  /* of rows; NULL: sums are not divided */
  int wide;             /* offsets are of 64 bits */
} mlp_sums;

typedef struct mlp_graph {
  const int32_t *row_of_edge, *indices;
  const void *edge_order; /* NULL: the same */
  int wide;               /* edge_order and offsets are of 64 bits */
  int64_t edges;
} mlp_graph;

typedef struct mlp_forward_params {
  mlp_graph graph;
  const void *packed;
  const void *edge, *dst_part, *src_part;
  void *edge_out;
  void *edge_rows; /* [E, padded C] in the order of the graph, times their
                    * factors at sources; or NULL */
  void *kept[MLP_LAYERS]; /* [E, padded width] in the order of the graph: z of
                           * layer l; or NULL */
  const void *dst_factor, *src_factor; /* [E]; NULL: 1 */
  mlp_sums sums;
  int64_t first_span, spans; /* of this launch */
  int span;                  /* tiles */
  float slope, epsilon;
} mlp_forward_params;

typedef struct mlp_backward_params {
  mlp_forward_params forward; /* sums: of grad_dst_part */
  const void *grad_edge_out, *grad_out_dst, *grad_out_src;
  const void *dst_offsets, *src_offsets; /* NULL: sums, not means */
  const int32_t *arg_dst;                /* of extremes, and */
  const void *row_offsets;               /* where rows begin */
  void *grad_edge;
  void *grad_dst_factor, *grad_src_factor; /* [E], or NULL */
  void *grad_first; /* [E, padded width[0]]: with respect to z_0, in the order
                     * of the graph; NULL: nobody reads it */
  /* weights.cuh reads these rows of the edges of this launch, [edges, padded
   * width]: the input of layer l, and the gradient with respect to z_l. */
  void *input[MLP_LAYERS], *grad_z[MLP_LAYERS];
  void *z[MLP_LAYERS]; /* of the layers but the last, likewise; with MLP_KEPT
                        * in forward.kept */
  float *norm_partial; /* [warps, 2, padded width]; NULL: not asked for */
  int add;             /* norm_partial has sums of earlier launches */
} mlp_backward_params;

/* Gradients of weights and biases: sums over edges of grad_z^T input. */
typedef struct mlp_product {
  const void *grad_z, *input; /* [edges, stride] */
  int64_t grad_stride, input_stride;
  const void *edge_order; /* input's row of an edge; NULL: the same */
  int out, in;            /* padded widths */
  int first;              /* block of the first tile of the product */
  int tiles_in;           /* tiles along `in`, at least 1 */
} mlp_product;

typedef struct mlp_weights_params {
  mlp_product product[MLP_LAYERS];
  int products, tiles; /* of all products */
  int wide;
  int64_t first_edge, edges; /* of this launch */
  float *partial;            /* [splits, tiles, MLP_WEIGHT_TILE numbers] */
  int splits, add;
} mlp_weights_params;

/* A tile of a gradient of weights, and sums of biases behind it. */
enum { MLP_SIDE = 128, MLP_WEIGHT_TILE = MLP_SIDE * MLP_SIDE + MLP_SIDE };

typedef struct mlp_finish_params {
  const float *partial; /* [splits, stride] */
  int64_t stride;
  int splits;
  float *weight, *bias; /* [out, in] and [out]; NULL: not asked for */
  int out, in, tiles_in;
} mlp_finish_params;

typedef struct mlp_finish_layers {
  mlp_finish_params layer[MLP_LAYERS];
} mlp_finish_layers;

/* Sums at sources: of rows of `from` over the columns of the graph.  Sums at
 * destinations: over its rows. */
typedef struct mlp_gather_params {
  const void *from; /* [E, stride] */
  int64_t stride, columns;
  const void *offsets;
  const void *edges; /* of columns; NULL: they follow each other */
  void *to;          /* [columns, width] */
  int32_t *arg;      /* of extremes: which edge of a column; NULL: not asked */
  int width, wide, mean, long_column;
} mlp_gather_params;

/* ---- streamed weights ---------------------------------------------------- */

enum {
  MLP_ROWS = 128,     /* edges of a block */
  MLP_STEP = 128,     /* bytes of k in a copy of a row */
  MLP_ROW_SPAN = 32,  /* edges whose rows a warp sums together; divides MLP_ROWS
                       */
  MLP_ROW_BLOCKS = 4, /* of mlp_last_rows on a multiprocessor */
  MLP_ROW_WARPS = 8,  /* of such a block, and */
  MLP_COPY_BYTES = 96 * 1024 /* its copies of rows, at most */
};

/* What a product's sums become. */
enum {
  MLP_TO_HIDDEN = 0,   /* z and the activated rows of a layer */
  MLP_TO_LAST = 1,     /* z of the last layer, as floats */
  MLP_TO_GRADIENT = 2, /* with respect to z of the layer before */
  MLP_TO_EDGE = 3      /* with respect to e */
};

/* A weight [out, in], or its transpose, as rows of `stride` numbers that are
 * padded with zeros: `rows` of them. */
typedef struct mlp_table {
  const void *from;
  void *to;
  int out, in, rows, stride, transposed;
} mlp_table;

typedef struct mlp_tables {
  mlp_table table[2 * MLP_LAYERS]; /* those of the backward pass behind */
} mlp_tables;

/* A launch's edges. */
typedef struct mlp_streamed_params {
  mlp_backward_params pass; /* spans are counted from the first launch's */
  int64_t first, edges;     /* of the launch, which has rows from 0 on */
  int edge_dim, first_width, out_width; /* Ce, width[0], C */
  const void *norm_weight, *norm_bias;
  void *last;       /* z of the last layer, [edges, last_stride] floats, or with
                     * MLP_STORED_LAST of the MLP's type */
  float *last_bias; /* with MLP_LAST_BIAS: [blocks, last_stride] */
  int last_stride, last_width, residual;
  const int32_t *arg_src;
  const int32_t *position; /* [E]: which edge of its source it is */
} mlp_streamed_params;

typedef struct mlp_product_params {
  mlp_streamed_params of;
  const void *input; /* rows of `in` numbers */
  int64_t input_stride;
  const void *edge_order; /* input's row of an edge; NULL: that of the launch */
  int in;
  const void *weight; /* [columns, weight_stride] */
  int weight_stride;
  int columns, column_blocks; /* that the product has */
  const void *bias;           /* [columns], or NULL */
  int parts;                  /* 1: those of nodes are added */
  const void *z; /* MLP_TO_GRADIENT: of the layer before, [edges, out_stride] */
  void *z_out, *out; /* rows of out_stride numbers; z_out: or NULL */
  void *activated;   /* MLP_TO_GRADIENT: rows of what the layer that is gone
                      * back through has read, made of z again; or NULL */
  int out_stride;
  const void *sums;    /* mlp_end_layer: [edges, columns], or NULL: zeros */
  float *bias_partial; /* mlp_end_layer, MLP_TO_GRADIENT: sums of `out` over a
                        * block's edges, [blocks of edges, columns]; or NULL */
} mlp_product_params;

/* Rows of e, padded. */
typedef struct mlp_copy_params {
  const void *from, *edge_order;
  void *to;
  int64_t first, edges;
  int wide, width, stride;
} mlp_copy_params;

#endif
