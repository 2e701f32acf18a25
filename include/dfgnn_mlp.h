/* dfgnn_mlp.h - an MLP on edges: MeshGraphNet, GraphCast, EdgeConv in one call
 *
 * Each edge from source j to destination i computes
 *
 *   z_0 = dst_part_i + src_part_j + W_0 e + b_0
 *   z_l = W_l a(z_{l-1}) + b_l           for each further layer
 *   e'  = norm(last(z of the last layer)) (+ e)
 *
 * and e' is written, reduced at the destination, at the source, or any of
 * these. The parts of the first layer that depend on nodes alone are the
 * caller's: dst_part = x_dst W_dst^T and src_part = x_src W_src^T are two
 * products over nodes, which spares the edges two thirds of the first layer.
 * Nothing of [edges, width] is kept between the passes, and a backward pass
 * computes the inner values again, unless the caller lends memory for them
 * (args.kept).
 *
 *   dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
 *   mlp.layers = 3;
 *   mlp.edge_dim = mlp.width[0] = mlp.width[1] = mlp.width[2] = 128;
 *   mlp.activation = DFGNN_ACTIVATION_SILU;
 *   mlp.norm = DFGNN_NORM_LAYER;
 *   mlp.residual = 1;
 *   mlp.reduce_dst = DFGNN_REDUCE_SUM;
 *   dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
 *   args.edge = e;  ...
 *   dfgnn_edge_mlp_execute(&mlp, graph, &args, DFGNN_PASS_FORWARD, NULL);
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
  DFGNN_ACTIVATION_ELU = 5,       /* slope (e^x - 1) below 0 */
  DFGNN_ACTIVATION_LEAKY_RELU = 6,
  DFGNN_ACTIVATION_TANH = 7,
  DFGNN_ACTIVATION_SIGMOID = 8,
  DFGNN_ACTIVATION_SOFTPLUS = 9, /* log(1 + e^x) */
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
  DFGNN_REDUCE_MAX = 3,
  DFGNN_REDUCE_MIN = 4,
  DFGNN_REDUCE_COUNT
} dfgnn_reduce;

/* The formula.  The width C of e' is that of the last layer, or half of it with
 * `gate`. */
typedef struct dfgnn_edge_mlp {
  size_t struct_size;
  dfgnn_dtype dtype; /* of all tensors but those that say otherwise */
  dfgnn_math math;   /* DFGNN_MATH_TF32: one TF32 product may stand for one of
                      * F32, where the device has them */
  int layers;        /* 1 to 4 */
  int64_t edge_dim;  /* Ce: width of e; 0: edges have no features */
  int64_t width[DFGNN_MLP_LAYERS]; /* output width of each layer */
  dfgnn_activation activation;     /* between the layers */
  dfgnn_activation last;           /* after the last layer */
  double slope;                    /* of leaky_relu and elu, between the layers
                                    * and after the last */
  int gate;                        /* 1: the last layer has width 2 C, and
                                    * sigmoid(its first half) * last(its second half)
                                    * goes on (CGConv) */
  dfgnn_norm norm;                 /* of e' before the residual */
  double epsilon;                  /* of the norm */
  int residual;                    /* 1: e is added to e', and Ce is C */
  dfgnn_reduce reduce_dst, reduce_src;
  int edge_list; /* 1: tensors by edge are in the order of the list that
                  * dfgnn_graph_create_coo read, not in the graph's */
} dfgnn_edge_mlp;

#define DFGNN_EDGE_MLP_INIT DFGNN_INIT(dfgnn_edge_mlp)

/* The tensors of a call, dense, in memory of the graph's device.  N
 * destinations, M sources, E edges; `real` is F32, and F64 if dtype is F64.
 *
 * Forward: of edge_out, out_dst and out_src those that are not NULL are
 * written; reduce_dst wants out_dst, reduce_src wants out_src.  A row without
 * edges becomes 0. Backward reads the inputs of the forward pass, and of the
 * gradients with respect to outputs those that are not NULL; it writes the
 * gradients that are not NULL (and adds to none). */
typedef struct dfgnn_edge_mlp_args {
  size_t struct_size;
  /* inputs of both passes */
  const void *edge;                     /* [E, Ce]; NULL if Ce is 0 */
  const void *dst_part;                 /* [N, width[0]], or NULL */
  const void *src_part;                 /* [M, width[0]], or NULL */
  const void *weight[DFGNN_MLP_LAYERS]; /* [out, in], as torch.nn.Linear has it;
                                         * weight[0] is [width[0], Ce], NULL if
                                         * Ce is 0 */
  const void *bias[DFGNN_MLP_LAYERS];   /* [out], or NULL */
  const void *norm_weight, *norm_bias;  /* [C], or NULL; norm_bias with
                                         * DFGNN_NORM_LAYER alone */
  const void *dst_factor; /* [E], or NULL: an edge's factor in out_dst, SUM or
                           * MEAN: ORB's gate, a cutoff.  A mean is still
                           * divided by the number of edges */
  const void *src_factor; /* [E], or NULL: the same in out_src */

  /* outputs of the forward pass */
  void *edge_out; /* [E, C] */
  void *out_dst;  /* [N, C] */
  void *out_src;  /* [M, C] */
  /* For MAX and MIN, int32: the edge that was taken, the first if several are
   * equal, counted from 0 among the edges of its destination (its source), in
   * the order of the graph; -1 if there is none.  The forward pass writes them
   * if they are not NULL, the backward pass reads them and needs them where
   * grad_out_dst (grad_out_src) is there. */
  int32_t *arg_dst; /* [N, C] */
  int32_t *arg_src; /* [M, C] */

  /* gradients with respect to outputs: inputs of the backward pass */
  const void *grad_edge_out; /* [E, C], or NULL: zero */
  const void *grad_out_dst;  /* [N, C], or NULL: zero */
  const void *grad_out_src;  /* [M, C], or NULL: zero */

  /* gradients with respect to inputs: outputs of the backward pass */
  void *grad_edge;                     /* [E, Ce], or NULL */
  void *grad_dst_part;                 /* [N, width[0]], or NULL */
  void *grad_src_part;                 /* [M, width[0]], or NULL */
  void *grad_weight[DFGNN_MLP_LAYERS]; /* [out, in] of real, or NULL */
  void *grad_bias[DFGNN_MLP_LAYERS];   /* [out] of real, or NULL */
  void *grad_norm_weight;              /* [C] of real, or NULL */
  void *grad_norm_bias;                /* [C] of real, or NULL */
  void *grad_dst_factor;               /* [E], or NULL */
  void *grad_src_factor;               /* [E], or NULL */

  /* Inner values: kept[l] has z_l of each edge in the order of the graph, rows
   * of dfgnn_edge_mlp_kept_width numbers, 64-byte aligned.  The forward pass
   * writes them if they are not NULL; the backward pass then reads them in
   * place of computing them again, which it does if they are NULL.  All that
   * have a width are given, or none. */
  void *kept[DFGNN_MLP_LAYERS];
} dfgnn_edge_mlp_args;

#define DFGNN_EDGE_MLP_ARGS_INIT DFGNN_INIT(dfgnn_edge_mlp_args)

/* Runs a pass.  The same call gives the same bits in every run on a device,
 * with any number of threads.  Products and sums are of float, of double for
 * F64; on GPUs, products of 16-bit types and TF32 round their operands to that,
 * as do products of BF16 on CPUs with AMX, and rows that are reduced at sources
 * may be rounded to dtype. DFGNN_ERROR_INVALID names what was found and what
 * was expected; DFGNN_ERROR_UNSUPPORTED: the graph's device has no kernel for
 * it.  On a GPU the work is put on the stream, and its memory is the context's.
 */
DFGNN_API dfgnn_status dfgnn_edge_mlp_execute(const dfgnn_edge_mlp *mlp,
                                              dfgnn_graph *graph,
                                              const dfgnn_edge_mlp_args *args,
                                              dfgnn_pass pass, void *stream);

/* dfgnn_edge_mlp_execute in memory of the caller's: of the graph's device,
 * 256-byte aligned, of as many bytes as dfgnn_edge_mlp_workspace says, and in
 * use until the stream is done.  A CUDA graph that records the call keeps the
 * address.  NULL: the context's memory. */
DFGNN_API dfgnn_status
dfgnn_edge_mlp_execute_in(const dfgnn_edge_mlp *mlp, dfgnn_graph *graph,
                          const dfgnn_edge_mlp_args *args, dfgnn_pass pass,
                          void *workspace, void *stream);
/* May be 0. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_workspace(size_t *bytes,
                                                const dfgnn_edge_mlp *mlp,
                                                dfgnn_graph *graph,
                                                const dfgnn_edge_mlp_args *args,
                                                dfgnn_pass pass);

/* Can the graph's device run the pass?  DFGNN_OK, or what execute would say of
 * `mlp` and the tensors that are there; pointers of args are looked at, never
 * what they point to. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_serves(const dfgnn_edge_mlp *mlp,
                                             dfgnn_graph *graph,
                                             const dfgnn_edge_mlp_args *args,
                                             dfgnn_pass pass);

/* Numbers of a row of args.kept[layer]; 0: there is no such tensor, since the
 * backward pass does not read it. */
DFGNN_API int64_t dfgnn_edge_mlp_kept_width(const dfgnn_edge_mlp *mlp,
                                            int layer);

/* Are inner values worth keeping between the passes of a call?  *bytes: of all
 * of args.kept, 0: they are not, or cannot be.  Where both passes with and
 * without (kept=1 of a problem's text) were measured on this graph, or on one
 * that answers for it, the sum of both decides; else they are kept where they
 * take at most a 64th of the device's memory.  Pointers are looked at, never
 * what they point to; those in `kept` do not matter. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_keep(int64_t *bytes,
                                           const dfgnn_edge_mlp *mlp,
                                           dfgnn_graph *graph,
                                           const dfgnn_edge_mlp_args *forward,
                                           const dfgnn_edge_mlp_args *backward);

/* ---- MLPs as problems ----------------------------------------------------
 *
 * Executions choose among variants, as dfgnn_call does: by what was measured
 * for such a problem on such a graph, else by the model or the rule.  A problem is
 * the widths, activations, norm, gate, residual and reductions, the types, and
 * which tensors there are; slope, epsilon and the order of edges are no part of
 * it.  dfgnn_tune measures it; dfgnn_plan_create and dfgnn_plan_explain take
 * it; dfgnn_execute of its plan reads args.mlp and args.mlp_args. */

/* Fills in the problem that a call is: the pointers of args are looked at,
 * never what they point to. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_problem(dfgnn_problem *problem,
                                              const dfgnn_edge_mlp *mlp,
                                              const dfgnn_edge_mlp_args *args,
                                              dfgnn_pass pass);

/* Fills in the problem of a text of words "key=value" with commas between them:
 *   edge=N        Ce, 0 for edges without features; the first word
 *   width=NxN     output width of each layer
 *   activation=   none, relu, silu, gelu, gelu-tanh, elu, leaky-relu, tanh,
 *                 sigmoid, softplus: between the layers (default: none)
 *   last=         the same, after the last layer (none)
 *   gate=1, residual=1
 *   norm=         none, layer, rms
 *   reduce=, reduce-src=  none, sum, mean, max, min: at destinations (sum) and
 *                 at sources (none)
 *   parts=        both, dst, src, none: parts of the first layer that are given
 *                 (both)
 *   bias=0, affine=0  layers without bias, a norm without weight and bias
 *   factor=       none, dst, src, both: factors of edges (none)
 *   out=0         e' is not written; backward: it has no gradient
 *   kept=1        inner values are kept between the passes
 *   grads=        backward: which gradients are wanted, of edge, parts,
 *                 parameters and factors with + between them; none (default:
 *                 all that there may be)
 * DFGNN_ERROR_FORMAT or _INVALID names what was found and what was expected. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_parse(dfgnn_problem *problem,
                                            const char *text, dfgnn_dtype dtype,
                                            dfgnn_math math, dfgnn_pass pass);

/* The text of a problem of OP_MLP, in which each key stands once, in this
 * order, and defaults are left out.  NULL for other problems. */
DFGNN_API const char *dfgnn_edge_mlp_text(const dfgnn_problem *problem);

/* Compares the outputs in args, which an execution wrote on this device or on
 * another, with an evaluation in double whose error bound is computed beside
 * it. The graph is on the CPU and all is in host memory.  *worst is the largest
 * ratio of an error to its bound, so that 1 or less is right; *where (may be
 * NULL) the name of the tensor that it is of, a constant.  The bound of 16-bit
 * types, and of F32 with mlp->math TF32, allows for operands of products that
 * are rounded to such a type.  Takes memory for a few rows of each edge. */
DFGNN_API dfgnn_status dfgnn_edge_mlp_check(double *worst, const char **where,
                                            const dfgnn_edge_mlp *mlp,
                                            dfgnn_graph *graph,
                                            const dfgnn_edge_mlp_args *args,
                                            dfgnn_pass pass);

#ifdef __cplusplus
}
#endif
#endif
