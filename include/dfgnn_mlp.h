/* dfgnn_mlp.h - an MLP on edges: MeshGraphNet's and GraphCast's blocks
 *
 * Each edge from source j to destination i computes
 *
 *   z_0 = dst_part_i + src_part_j + W_0 e + b_0
 *   z_l = W_l a(z_{l-1}) + b_l           for each further layer
 *   e'  = norm(z of the last layer) (+ e)
 *
 * and e' is written, reduced at the destination, or both.  The parts of the
 * first layer that depend on nodes alone are the caller's: dst_part = x_dst
 * W_dst^T and src_part = x_src W_src^T are two products over nodes, which
 * spares the edges two thirds of the first layer.
 *
 * There are kernels where they are faster than these products by a library and
 * what follows them by a compiler: GPUs with tensor cores (sm_80), types f16
 * and bf16, widths that are multiples of 32 and at most 128.
 * dfgnn_edge_mlp_serves tells; other calls are the caller's to make of
 * products.
 *
 *   dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
 *   mlp.dtype = DFGNN_BF16;
 *   mlp.layers = 3;
 *   mlp.edge_dim = mlp.width[0] = mlp.width[1] = mlp.width[2] = 128;
 *   mlp.activation = DFGNN_ACTIVATION_SILU;
 *   mlp.norm = DFGNN_NORM_LAYER;
 *   mlp.residual = 1;
 *   mlp.reduce_dst = DFGNN_REDUCE_SUM;
 *   dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
 *   args.edge = e;  ...
 *   dfgnn_edge_mlp_execute(&mlp, graph, &args, DFGNN_PASS_FORWARD, NULL, NULL);
 */
#ifndef DFGNN_MLP_H
#define DFGNN_MLP_H

#include "dfgnn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DFGNN_MLP_LAYERS 4
#define DFGNN_MLP_WIDTH 4096 /* the widest layer */

typedef enum dfgnn_activation {
  DFGNN_ACTIVATION_NONE = 0,
  DFGNN_ACTIVATION_RELU = 1,
  DFGNN_ACTIVATION_SILU = 2,
  DFGNN_ACTIVATION_GELU = 3,      /* x Phi(x), by erf */
  DFGNN_ACTIVATION_GELU_TANH = 4, /* torch's approximate="tanh" */
  DFGNN_ACTIVATION_COUNT
} dfgnn_activation;

typedef enum dfgnn_norm {
  DFGNN_NORM_NONE = 0,
  DFGNN_NORM_LAYER = 1, /* (x - mean) / sqrt(variance + epsilon) */
  DFGNN_NORM_RMS = 2,   /* x / sqrt(mean of x^2 + epsilon) */
  DFGNN_NORM_COUNT
} dfgnn_norm;

typedef enum dfgnn_reduce {
  DFGNN_REDUCE_NONE = 0,
  DFGNN_REDUCE_SUM = 1,
  DFGNN_REDUCE_MEAN = 2,
  DFGNN_REDUCE_COUNT
} dfgnn_reduce;

/* The formula.  The width C of e' is that of the last layer. */
typedef struct dfgnn_edge_mlp {
  size_t struct_size;
  dfgnn_dtype dtype; /* of all tensors except those that say otherwise */
  int layers;        /* 2 to 4 */
  int64_t edge_dim;  /* Ce: width of e */
  int64_t width[DFGNN_MLP_LAYERS]; /* output width of each layer */
  dfgnn_activation activation;     /* between the layers */
  dfgnn_norm norm;                 /* of e' before the residual */
  double epsilon;                  /* of the norm */
  int residual;                    /* 1: e is added to e', and Ce is C */
  dfgnn_reduce reduce_dst;
  int edge_list; /* 1: tensors by edge are in the order of the list that
                  * dfgnn_graph_create_coo read, not in the graph's */
} dfgnn_edge_mlp;

#define DFGNN_EDGE_MLP_INIT DFGNN_INIT(dfgnn_edge_mlp)

/* The tensors of a call, dense, in memory of the graph's device, aligned to 16
 * bytes.  N destinations, M sources, E edges.
 *
 * Forward: of edge_out and out_dst those that are not NULL are written;
 * reduce_dst wants out_dst.  A row without edges becomes 0.  Backward reads the
 * inputs of the forward pass and what it kept, and of the gradients with
 * respect to outputs those that are not NULL; it writes the gradients that are
 * not NULL (and adds to none). */
typedef struct dfgnn_edge_mlp_args {
  size_t struct_size;
  /* inputs of both passes */
  const void *edge;                     /* [E, Ce] */
  const void *dst_part;                 /* [N, width[0]], or NULL */
  const void *src_part;                 /* [M, width[0]], or NULL */
  const void *weight[DFGNN_MLP_LAYERS]; /* [out, in], as torch.nn.Linear has
                                         * it; weight[0] is [width[0], Ce] */
  const void *bias[DFGNN_MLP_LAYERS];   /* [out], or NULL */
  const void *norm_weight, *norm_bias;  /* [C], or NULL; norm_bias with
                                         * DFGNN_NORM_LAYER alone */

  /* outputs of the forward pass */
  void *edge_out; /* [E, C] */
  void *out_dst;  /* [N, C] */

  /* gradients with respect to outputs: inputs of the backward pass */
  const void *grad_edge_out; /* [E, C], or NULL: zero */
  const void *grad_out_dst;  /* [N, C], or NULL: zero */

  /* gradients with respect to inputs: outputs of the backward pass */
  void *grad_edge;                     /* [E, Ce], or NULL */
  void *grad_dst_part;                 /* [N, width[0]], or NULL */
  void *grad_src_part;                 /* [M, width[0]], or NULL */
  void *grad_weight[DFGNN_MLP_LAYERS]; /* [out, in] of F32, or NULL */
  void *grad_bias[DFGNN_MLP_LAYERS];   /* [out] of F32, or NULL */
  void *grad_norm_weight;              /* [C] of F32, or NULL */
  void *grad_norm_bias;                /* [C] of F32, or NULL */

  /* Inner values: kept[l] has z_l of each edge in the order of the graph, rows
   * of dfgnn_edge_mlp_kept_width numbers.  The forward pass writes them if they
   * are not NULL; the backward pass reads them.  All that have a width are
   * given, or none. */
  void *kept[DFGNN_MLP_LAYERS];
} dfgnn_edge_mlp_args;

#define DFGNN_EDGE_MLP_ARGS_INIT DFGNN_INIT(dfgnn_edge_mlp_args)

/* Runs a pass.  The same call gives the same bits in every run on a device.
 * Sums are of float; products round their operands to dtype.
 * DFGNN_ERROR_INVALID names what was found and what was expected;
 * DFGNN_ERROR_UNSUPPORTED: the graph's device has no kernel for it.  workspace:
 * device memory, 256-byte aligned, of as many bytes as dfgnn_edge_mlp_workspace
 * says, in use until the stream is done; NULL: the context's memory. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_execute(const dfgnn_edge_mlp *mlp,
                                              dfgnn_graph *graph,
                                              const dfgnn_edge_mlp_args *args,
                                              dfgnn_pass pass, void *workspace,
                                              void *stream);
DFGNN_API dfgnn_status dfgnn_edge_mlp_workspace(size_t *bytes,
                                                const dfgnn_edge_mlp *mlp,
                                                dfgnn_graph *graph,
                                                const dfgnn_edge_mlp_args *args,
                                                dfgnn_pass pass);

/* Can the graph's device run it?  DFGNN_OK, or what execute would say. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_serves(const dfgnn_edge_mlp *mlp,
                                             dfgnn_graph *graph);

/* Numbers of a row of args.kept[layer]; 0: there is no such tensor, since the
 * backward pass does not read it. */
DFGNN_API int64_t dfgnn_edge_mlp_kept_width(const dfgnn_edge_mlp *mlp,
                                            int layer);

#ifdef __cplusplus
}
#endif
#endif
