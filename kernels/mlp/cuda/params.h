/* params.h - what the kernels of MLPs on edges take, for C and CUDA */
#ifndef DFGNN_MLP_CUDA_PARAMS_H
#define DFGNN_MLP_CUDA_PARAMS_H

#include <stdint.h>

enum {
  MLP_LAYERS = 4,
  MLP_TILE = 16,      /* edges that a warp computes at a time */
  MLP_CHUNK = 16,     /* bytes that a lane loads at a time */
  MLP_GROUP = 32,     /* numbers of four chunks, which divides all widths */
  MLP_PAD = 16,       /* bytes behind a row in shared memory */
  MLP_STAGE_ROW = 144 /* bytes of a staged row: 32 floats and padding */
};

/* The numbers are those of dfgnn_activation and dfgnn_norm (plan.c compares).
 */
enum {
  MLP_NONE = 0,
  MLP_RELU = 1,
  MLP_SILU = 2,
  MLP_GELU = 3,
  MLP_GELU_TANH = 4
};
enum { MLP_NORM_NONE = 0, MLP_NORM_LAYER = 1, MLP_NORM_RMS = 2 };

/* Constants of a kernel. */
enum {
  MLP_RESIDUAL = 1, /* e is added to e' */
  MLP_KEPT = 2,     /* forward: z of the layers is written for the way back */
  MLP_WEIGHTS = 4,  /* backward: the gradients of weights are asked for */
  /* backward: gradients with respect to which outputs there are */
  MLP_GRAD_EDGES = 8,
  MLP_GRAD_DST = 16
};

/* The weights and other numbers of all layers in the order of fragments
 * (tile.cuh): pack.cuh writes them, each block copies them. */
typedef struct mlp_pack {
  const void *weight[MLP_LAYERS], *bias[MLP_LAYERS];
  const void *norm_weight, *norm_bias;
  void *packed;
} mlp_pack;

/* Sums of rows of edges at their destination.  Spans of tiles are summed apart;
 * a row that a span's end cuts has a part in each span. */
typedef struct mlp_sums {
  void *out;           /* [rows, width]; NULL: no sums */
  float *partial;      /* [spans, 2, width]: of the row that begins before the
                        * span, and of the one that goes on */
  const void *offsets; /* of rows; NULL: sums are not divided */
  int wide;            /* offsets are of 64 bits */
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
  void *kept[MLP_LAYERS]; /* [E, width] in the order of the graph: z of layer l;
                           * or NULL */
  mlp_sums sums;
  int64_t first_span, spans; /* of this launch */
  int span;                  /* tiles */
  float epsilon;
} mlp_forward_params;

typedef struct mlp_backward_params {
  mlp_forward_params forward; /* sums: of grad_dst_part */
  const void *grad_edge_out, *grad_out_dst;
  const void *dst_offsets; /* NULL: sums, not means */
  void *grad_edge;
  void *grad_first; /* [E, width[0]]: with respect to z_0, in the order of the
                     * graph; NULL: nobody reads it */
  /* weights.cuh reads these rows of the edges of this launch, [edges, width]:
   * the input of layer l, and the gradient with respect to z_l. */
  void *input[MLP_LAYERS], *grad_z[MLP_LAYERS];
  const void *z[MLP_LAYERS]; /* of the launch's edges, as they were kept */
  float *norm_partial;       /* [blocks, 2, width]; NULL: not asked for */
  int add;                   /* norm_partial has sums of earlier launches */
} mlp_backward_params;

/* Gradients of weights and biases: sums over edges of grad_z^T input. */
typedef struct mlp_product {
  const void *grad_z, *input; /* [edges, out] and [edges, in] */
  const void *edge_order;     /* input's row of an edge; NULL: the same */
  int out, in;
  int first;    /* block of the first tile of the product */
  int tiles_in; /* tiles along `in` */
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

/* Sums of rows of `from` at sources, over the columns of the graph. */
typedef struct mlp_gather_params {
  const void *from; /* [E, width] */
  int64_t columns;
  const void *offsets;
  const void *edges; /* of columns */
  void *to;          /* [columns, width] */
  int width, wide, long_column;
} mlp_gather_params;

/* ---- rows of the last layer, backward ------------------------------------ */

enum {
  MLP_ROWS = 128,     /* edges of a block */
  MLP_ROW_BLOCKS = 4, /* of mlp_last_rows on a multiprocessor */
  MLP_ROW_WARPS = 8   /* of such a block */
};

/* A launch's edges. */
typedef struct mlp_rows_params {
  mlp_backward_params pass; /* spans are counted from the first launch's */
  int64_t first, edges;     /* of the launch, which has rows from 0 on */
  int out_width;            /* C */
  const void *norm_weight;
  const void *last; /* z of the last layer, [edges, C] */
} mlp_rows_params;

#endif
