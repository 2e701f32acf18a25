/* dfgnn.h - fused, autotuned kernels for attention graph neural networks
 *
 * The path of a call:
 *
 *   dfgnn_context *ctx;  dfgnn_graph *graph;  dfgnn_plan *plan;
 *   dfgnn_context_create(&ctx, NULL);       // device, tuning stores, logging
 *   dfgnn_graph_create_csr(&graph, ctx, &csr, stream);  // checks a matrix
 *   dfgnn_problem problem = DFGNN_PROBLEM_INIT;
 *   problem.op = DFGNN_OP_GT;  problem.dim = 64;  problem.heads = 8;
 *   dfgnn_plan_create(&plan, ctx, graph, &problem);
 *   size_t bytes = dfgnn_plan_workspace(plan);
 *   dfgnn_execute(plan, &args, workspace, stream);
 *
 * Conventions
 *   - Functions return a dfgnn_status; the thread's message is in
 *     dfgnn_last_error().  Output parameters come first and are written on
 *     success only.
 *   - Descriptors are structs that begin with their own size and have an _INIT
 *     macro, so that a program built against an older header keeps working.
 *   - "Destination" i is a row of the CSR matrix, "source" j a column; an edge
 *     e = (i, j) says that i attends to j.  N destinations, M sources, E edges,
 *     H heads, D features per head.
 *   - A stream is the last parameter: a cudaStream_t, which the CPU ignores.
 *     Device arrays that are given are read when what is on it now has run.
 *   - "Device memory" is what the context's device can read: host memory for
 *     the CPU, GPU memory for CUDA.
 *   - A handle that is NULL, of another type or destroyed (as far as its memory
 *     still tells) is DFGNN_ERROR_INVALID; functions that return no status then
 *     return NULL or 0, those that destroy do nothing.
 *   - After fork() the child may use what the parent made on the CPU, in
 *     parallel too, unless another thread of the parent was inside a call at
 *     that moment.  CUDA does not survive fork(): contexts of a GPU made by the
 *     parent return DFGNN_ERROR_DEVICE in the child.
 */
#ifndef DFGNN_H
#define DFGNN_H

#include "dfgnn_types.h"

/* A descriptor that is zero except for its size. */
#ifdef __cplusplus
template <class Descriptor> inline Descriptor dfgnn_descriptor() {
  Descriptor d = Descriptor();
  d.struct_size = sizeof(Descriptor);
  return d;
}
#define DFGNN_INIT(type) dfgnn_descriptor<type>()
#else
#define DFGNN_INIT(type) { .struct_size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DFGNN_API
#define DFGNN_API __attribute__((visibility("default")))
#endif

/* ---- status ------------------------------------------------------------- */

typedef enum dfgnn_status {
  DFGNN_OK = 0,
  DFGNN_ERROR_INVALID = -1,     /* an argument is wrong; the message names it */
  DFGNN_ERROR_MEMORY = -2,      /* an allocation failed */
  DFGNN_ERROR_UNSUPPORTED = -3, /* no variant can do this; explain says why */
  DFGNN_ERROR_NOT_TUNED = -4,   /* effort STORED and nothing stored matches */
  DFGNN_ERROR_DEVICE = -5,      /* the device refused a launch or a copy */
  DFGNN_ERROR_IO = -6,          /* a file cannot be opened, read or written */
  DFGNN_ERROR_FORMAT = -7,      /* a file is not what it claims to be */
  DFGNN_ERROR_STORE = -8,       /* a tuning store is invalid or not writable */
  DFGNN_ERROR_CAPTURING = -9,   /* not allowed while a stream is capturing */
  DFGNN_ERROR_INTERRUPTED = -10,/* the caller asked to stop; work is kept */
  DFGNN_ERROR_WRONG = -11       /* a variant failed its check */
} dfgnn_status;

/* The name of a status, e.g. "invalid argument".  Never NULL. */
DFGNN_API const char *dfgnn_status_string(dfgnn_status status);

/* The message of the last failure in this thread, "" if there was none.  Valid
 * until the thread's next call into the library. */
DFGNN_API const char *dfgnn_last_error(void);

/* The library's version, e.g. "0.3.0". */
DFGNN_API const char *dfgnn_version(void);

/* ---- names -------------------------------------------------------------- */

/* The enumerations of dfgnn_types.h and dfgnn_graph.h that have names. */
typedef enum dfgnn_names {
  DFGNN_NAMES_NONE = 0,
  DFGNN_NAMES_OP,
  DFGNN_NAMES_PASS,
  DFGNN_NAMES_DTYPE,
  DFGNN_NAMES_MATH,
  DFGNN_NAMES_LAYOUT,
  DFGNN_NAMES_EDGE_USE,
  DFGNN_NAMES_MESSAGE,
  DFGNN_NAMES_EFFORT,
  DFGNN_NAMES_SOURCE,
  DFGNN_NAMES_ORDER,
  DFGNN_NAMES_PARTITIONING,
  DFGNN_NAMES_COUNT
} dfgnn_names;

/* The name of a value as the command line spells it ("gt", "forward", "bf16",
 * ...), for example dfgnn_name(DFGNN_NAMES_OP, problem.op); NULL for a value
 * out of range. */
DFGNN_API const char *dfgnn_name(dfgnn_names of, int value);

/* The value of a name.  DFGNN_ERROR_INVALID lists the names there are. */
DFGNN_API dfgnn_status dfgnn_parse(int *value, dfgnn_names of,
                                   const char *name);

/* Bytes of one element: 4, 2, 2, 8. */
DFGNN_API size_t dfgnn_dtype_size(dfgnn_dtype dtype);

/* ---- context ------------------------------------------------------------ */

/* A device with its tuning decisions.  May be shared between threads. */
typedef struct dfgnn_context dfgnn_context;

typedef void (*dfgnn_log_function)(void *data, dfgnn_log_level level,
                                   const char *message);

typedef struct dfgnn_options {
  size_t struct_size;
  const char *device; /* "auto" (NULL): a GPU if there is one, else the CPU;
                       * "cpu", "cuda", "cuda:N" */
  const char *store;  /* colon-separated store files, first is the one written;
                       * NULL: DFGNN_STORE, else the user's, the site's and the
                       * package's.  "" reads and writes none. */
  dfgnn_effort effort;
  int threads;            /* of the CPU backend, at most 4096; 0: what OpenMP
                           * would use */
  int64_t paper_capacity; /* bytes of shared memory in the paper's rule; 0:
                           * DFGNN_PAPER_CAPACITY, else 12288 */
  dfgnn_log_level log_level;
  dfgnn_log_function log; /* NULL: one line on standard error */
  void *log_data;
} dfgnn_options;

#define DFGNN_OPTIONS_INIT DFGNN_INIT(dfgnn_options)

/* Opens the device and loads its decisions from the stores.  options may be
 * NULL.  A store that cannot be used is logged and skipped, except one that
 * options or DFGNN_STORE name, which is an error; the first of those may be
 * missing, but not the folder that options name for it; tuning makes it. */
DFGNN_API dfgnn_status dfgnn_context_create(dfgnn_context **ctx,
                                            const dfgnn_options *options);

/* Destroys the context.  Its graphs and plans must be destroyed before; graphs
 * that are left, which is logged, keep its memory until the last is destroyed.
 */
DFGNN_API void dfgnn_context_destroy(dfgnn_context *ctx);

/* Loads the stores anew.  Existing plans keep their choice. */
DFGNN_API dfgnn_status dfgnn_context_reload(dfgnn_context *ctx);

typedef struct dfgnn_device_info {
  size_t struct_size;
  char backend[16];      /* "cpu" or "cuda" */
  char arch[32];         /* "sm_90", "x86_64-avx512": the gate of selection */
  char model[128];       /* "NVIDIA H200", "AMD EPYC 9655" */
  int ordinal;           /* CUDA device number, 0 for the CPU */
  int units;             /* multiprocessors, or threads of the CPU backend */
  int64_t cache_bytes;   /* last-level cache: L2 of a GPU, L3 of a CPU */
  int64_t memory_bytes;  /* device memory */
  int64_t shared_bytes;  /* largest shared memory of a block; 0 on the CPU */
  char driver[32];       /* "13.0"; "" on the CPU */
  char runtime[32];      /* "13.0"; the OpenMP version on the CPU */
} dfgnn_device_info;

#define DFGNN_DEVICE_INFO_INIT DFGNN_INIT(dfgnn_device_info)

/* Fills info, whose struct_size the caller set. */
DFGNN_API dfgnn_status dfgnn_context_device(dfgnn_device_info *info,
                                            const dfgnn_context *ctx);

/* ---- graphs ------------------------------------------------------------- */

/* A CSR matrix: row i has the edges offsets[i] .. offsets[i + 1] - 1, whose
 * sources are indices[e].  Duplicate edges and self loops are edges like all
 * others; rows may be unsorted. */
typedef struct dfgnn_csr {
  size_t struct_size;
  int64_t destinations; /* N, rows */
  int64_t sources;      /* M, columns; below 2^31 */
  int64_t edges;        /* E = offsets[N] */
  const void *offsets;  /* [N + 1], of offset_type */
  const void *indices;  /* [E], of index_type */
  dfgnn_index_type offset_type, index_type;
  int on_device;        /* 0: host arrays, 1: arrays of the context's device */
  int64_t graphs;       /* of a batch; 0: not known */
  const int64_t *graph_ptr; /* host, [graphs + 1]: first node of each graph of a
                             * square batch; NULL: not known */
  const char *family;   /* a name shared by graphs of one kind, such as the
                         * mini-batches of a sampler; NULL: none */
  const char *name;     /* a label kept with measurements; NULL: none */
  int trusted;          /* 1: nothing is checked, see below */
  /* The same edges by source, which backward passes read; NULL: they are made
   * when they are needed.  Source j has the edges column_offsets[j] ..
   * column_offsets[j + 1] - 1: edge column_edges[k] of the matrix, of row
   * column_rows[k], by rising edge. */
  const void *column_offsets; /* [M + 1], of offset_type */
  const void *column_rows;    /* [E], of index_type */
  const void *column_edges;   /* [E], of offset_type */
  int refilled; /* 1: the arrays get the edges of other graphs, see below */
} dfgnn_csr;

#define DFGNN_CSR_INIT DFGNN_INIT(dfgnn_csr)

/* A graph on a context's device. */
typedef struct dfgnn_graph dfgnn_graph;

/* Validates csr (offsets start at 0, never fall and end at edges; indices are
 * in range; graph_ptr is monotone and no edge leaves its graph) and computes
 * its signature.  DFGNN_ERROR_INVALID names the first row that is wrong.
 * Arrays already in device memory are borrowed: they must outlive the graph
 * and not change.  Host arrays are copied to a GPU, borrowed by the CPU.
 * 64-bit indices are narrowed into a copy.
 *
 * Where the arrays are in a GPU's memory already the host does not wait: they
 * are checked while it goes on, and the first call that has to know fails if
 * they are wrong (dfgnn_plan_create, dfgnn_graph_signature, dfgnn_graph_csr).
 *
 * With csr.trusted nothing is checked at all, and the signature is made when
 * somebody asks for it: an index out of range, offsets that fall or columns
 * that are not those of the matrix are then undefined behaviour.  On a GPU the
 * columns are taken from csr only if it is trusted, and made anew otherwise.
 *
 * With csr.refilled the caller may write the edges of another graph with the
 * same numbers of nodes and edges into the arrays, columns included, in the
 * order of the streams that calls run on; a CUDA graph of such calls then
 * serves the other graph.  Plans keep nothing of what the arrays hold, nor does
 * the signature tell of it.  Such a graph is trusted, has columns and 32-bit
 * indices, and its arrays are in the device's memory; it is not measured. */
DFGNN_API dfgnn_status dfgnn_graph_create_csr(dfgnn_graph **graph,
                                              dfgnn_context *ctx,
                                              const dfgnn_csr *csr,
                                              void *stream);

/* A list of edges: edge e lets destination[e] attend to source[e]. */
typedef struct dfgnn_coo {
  size_t struct_size;
  int64_t destinations, sources, edges;
  const void *destination, *source; /* [E], of index_type */
  dfgnn_index_type index_type;
  int on_device;               /* as in dfgnn_csr */
  int64_t graphs;              /* as in dfgnn_csr, with graph_ptr */
  const int64_t *graph_ptr;
  const char *family, *name;
  int sorted;     /* 1: by destination, so that nobody has to find out */
  int trusted;    /* 1: nothing is checked: an end out of range, or a list that
                   * is not sorted as was said, is undefined behaviour */
  int self_loops; /* 1: edges from a node to itself are left out, and one for
                   * each of the first min(N, M) nodes follows the others, as
                   * edge E + i */
} dfgnn_coo;

#define DFGNN_COO_INIT DFGNN_INIT(dfgnn_coo)

/* A graph of an edge list in any order.  The arrays are not kept.  Edges of a
 * row keep their order.  DFGNN_ERROR_INVALID names the first edge out of range.
 *
 * For a list in a GPU's memory the host waits once, for the result of the
 * checks, and not at all if the list is sorted or trusted (and has no
 * self_loops): the first call that has to know then fails if a sorted list is
 * wrong.  The signature of up to 2^18 edges stays on the device until a plan or
 * a caller asks for it; a plan does not ask if one was made before for a graph
 * of this family, or of about this many nodes and edges. */
DFGNN_API dfgnn_status dfgnn_graph_create_coo(dfgnn_graph **graph,
                                              dfgnn_context *ctx,
                                              const dfgnn_coo *coo,
                                              void *stream);

/* The position in the list of each edge of the graph: [E] in device memory, of
 * *type, valid as long as the graph.  NULL: the graph has the list's order (the
 * list is sorted by destination), or was made from a matrix.  With self_loops
 * there is always an order; its numbers are those of edges and then of loops.
 */
DFGNN_API const void *dfgnn_graph_edge_order(const dfgnn_graph *graph,
                                             dfgnn_index_type *type);

/* The graph's matrix, in device memory, valid as long as the graph; indices are
 * 32-bit.  Fills csr, whose struct_size the caller set. */
DFGNN_API dfgnn_status dfgnn_graph_csr(dfgnn_csr *csr,
                                       const dfgnn_graph *graph);

/* Destroys the graph; its plans must be destroyed before: plans that are left
 * can only be destroyed, which is logged as debug.  NULL is allowed.
 * Waits for the device if work on the graph was put on a stream other than the
 * default one (NULL).  The memory of a GPU is kept for the next graphs, up to a
 * 32nd of what the GPU has, until the context is destroyed. */
DFGNN_API void dfgnn_graph_destroy(dfgnn_graph *graph);

/* The same, in the order of a stream: work that was put on it may still use the
 * graph, work on other streams must be over.  The host does not wait, unless
 * the device has no memory pools. */
DFGNN_API void dfgnn_graph_destroy_on(dfgnn_graph *graph, void *stream);

/* Bytes of device memory that the graph holds for itself: copies and the views
 * (work lists, orders, transposes) that variants asked for. */
DFGNN_API size_t dfgnn_graph_bytes(const dfgnn_graph *graph);

/* ---- problems and arguments --------------------------------------------- */

typedef struct dfgnn_problem {
  size_t struct_size;
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  dfgnn_math math;
  dfgnn_layout layout;
  dfgnn_effort effort;
  int64_t heads;       /* H >= 1 */
  int64_t dim;         /* D >= 1, features per head */
  int deterministic;   /* 1: bitwise equal from run to run */
  int weights;         /* 1: execute also writes args.weights [E, H] */
  int cold;            /* 1: choose by cold-cache measurements */
  int64_t max_workspace; /* bytes a variant may ask for; -1: any */
  int bias;            /* attention: 1: args.bias [E, H] is added to scores */
  int dropout;         /* attention: 1: args.dropout is in effect */
  /* Bias and dropout are measured as problems of their own.  Until they are,
   * the fastest variant without them that can do both is chosen, as
   * DFGNN_SOURCE_NEAR at best. */
  int64_t edge_dim;        /* F, features an edge: args.edge_attr is [E,F] and
                            * args.edge_projection W.  0: no edge features.
                            * DFGNN_EDGE_PROJECTED: args.edge_attr is W e + b,
                            * [E,H,D]; for GAT, which takes no other,
                            * args.score_edge is its scalar, [E,H].  Not for
                            * AGNN and SPMM_WEIGHTED. */
  dfgnn_edge_use edge_use; /* GT with edge features */
  dfgnn_message message;   /* SPMM_SUM, SPMM_MEAN, REDUCE_MIN, _MAX, _MEAN and
                            * _PNA.  RELU needs edge features, GATE may have
                            * them, GATE_VALUE needs edge_dim F, COPY has none.
                            */
  int accumulate;          /* attention backward: 1: grad_query and
                            * grad_score_dst are added to what the arrays hold,
                            * for parts of a graph that share destinations */
  int edge_list; /* 1: args.edge_attr and args.grad_edge_attr are in the order
                  * of the list that dfgnn_graph_create_coo read, not in the
                  * graph's: nobody has to copy them.  Other tensors by edge
                  * are in the graph's order.  Not for graphs with self_loops.
                  * CPU: attention, and sums and means of messages whose part
                  * of the edge is projected already; DFGNN_ERROR_UNSUPPORTED
                  * elsewhere. */
  const struct dfgnn_edge_program *program; /* OP_PROGRAM: one whose sizes are
                  * numbers.  Pass, heads and dim are then the program's: the
                  * gradient of a program is BACKWARD, heads and dim are those
                  * of its widest row.  Plans hold it.  Else NULL. */
} dfgnn_problem;

#define DFGNN_PROBLEM_INIT                                                     \
  { sizeof(dfgnn_problem), DFGNN_OP_GT, DFGNN_PASS_FORWARD, DFGNN_F32,         \
    DFGNN_MATH_F32, DFGNN_LAYOUT_NHD, DFGNN_EFFORT_DEFAULT, 1, 64, 1, 0, 0,  \
    -1, 0, 0, 0, DFGNN_EDGE_BOTH, DFGNN_MESSAGE_COPY, 0, 0, NULL }

/* args.scale of DFGNN_ARGS_INIT: minus infinity. */
#define DFGNN_SCALE_DEFAULT (-__builtin_inf())

/* Tensors of a call, in device memory.  Types: "storage" is the problem's
 * dtype; "scalar" is double for F64, float otherwise.  NaN and infinite inputs
 * follow IEEE arithmetic: a NaN score makes its row NaN, a row whose scores are
 * all -inf gives zeros and lse -inf, like a row without edges; such rows give
 * zero gradients.
 *
 * Results are within rounding of the exact ones.  A variant computes in float
 * (in double for F64), u = 2^-24, in an order of its own: the error of a sum of
 * n terms t is at most 5 u sqrt(h) T, beside what the terms err themselves and
 * the rounding of the result to its type.  T is the sum of |t| or, over rows of
 * more than 256 edges, of the magnitudes of 32 parts of the sum; h is n where a
 * variant adds one edge after the other, less where it adds blocks (Higham and
 * Mary, A new approach to probabilistic rounding error analysis, 2019).  So an
 * error is judged by the terms, not by a sum that cancels.  Attention may round
 * scores and weights to the storage type, or to TF32 where the problem allows
 * it.  Equal terms err alike and may go beyond.  kernels/common/accuracy.h
 * derives the bound, and no variant is tuned that exceeds it.
 *
 * A backward pass reads what forward read, what forward wrote (out and lse of
 * attention; arg_min, arg_max, out and out_std of reductions) and grad_out, and
 * writes each gradient whose pointer is not NULL, whole: nothing is added to
 * what was there, except to two gradients with problem.accumulate.  Where one
 * array was both query and value (AGNN), its gradient is the sum of grad_query
 * and grad_value.
 *
 * Dropout multiplies a weight by 0 with probability args.dropout, else by 1 /
 * (1 - dropout), by a counter-based generator: the same for (seed, edge, head)
 * in every variant, pass and backend.  args.weights are those before dropout.
 */
typedef struct dfgnn_args {
  size_t struct_size;
  const void *query;     /* [N,H,D]: GT q, AGNN h of destinations, GATV2 x.
                          * Storage. */
  const void *key;       /* GT k [M,H,D].  Storage. */
  const void *value;     /* GT v, AGNN h, GAT h, GATV2 y, else x [M,H,D].
                          * Storage.  AGNN on a square graph may pass one array
                          * as both. */
  const void *score_dst; /* GAT a [N,H].  Scalar. */
  const void *score_src; /* GAT b [M,H].  Scalar. */
  const void *att;       /* GATV2 att [H,D].  Storage. */
  const void *beta;      /* AGNN [1].  Scalar; NULL: 1. */
  void *out;             /* [N,H,D].  Storage.  REDUCE_PNA: the mean. */
  void *lse;             /* [N,H] log-sum-exp of the scores, natural logarithm,
                          * -inf for a row without edges.  Scalar; or NULL. */
  void *weights;         /* [E,H] softmax in edge order.  Scalar; only with
                          * problem.weights. */
  double scale;          /* GT; DFGNN_SCALE_DEFAULT: 1 / sqrt(D) */
  double slope;          /* GAT and GATV2 leaky ReLU */
  dfgnn_strides query_strides, key_strides, value_strides, out_strides;

  const void *bias;      /* [E,H].  Scalar; only with problem.bias. */
  double dropout;        /* 0 <= dropout < 1; only with problem.dropout */
  const uint64_t *seed;  /* [1], device memory, read when the call runs; NULL:
                          * seed_value */
  uint64_t seed_value;

  const void *edge_weight; /* SPMM_WEIGHTED w [E,H].  Scalar. */
  const void *scale_dst;   /* SPMM r [N].  Scalar; NULL: 1. */
  const void *scale_src;   /* SPMM c [M].  Scalar; NULL: 1. */
  void *out_min, *out_max, *out_std; /* REDUCE_PNA, as out, with its strides */
  int32_t *arg_min, *arg_max; /* [N,H,D] in the problem's layout, dense: which
                               * edge of the row, 0 .. degree - 1, -1: none.
                               * REDUCE_MIN, REDUCE_MAX and REDUCE_PNA; NULL:
                               * not wanted, but backward needs them. */

  const void *grad_out;  /* [N,H,D].  Storage. */
  const void *grad_out_min, *grad_out_max, *grad_out_std; /* REDUCE_PNA, as
                                                           * grad_out */
  void *grad_query;      /* [N,H,D].  Storage. */
  void *grad_key;        /* [M,H,D].  Storage. */
  void *grad_value;      /* [M,H,D].  Storage. */
  void *grad_score_dst;  /* [N,H].  Scalar. */
  void *grad_score_src;  /* [M,H].  Scalar. */
  void *grad_att;        /* [H,D].  Scalar. */
  void *grad_beta;       /* [1].  Scalar. */
  void *grad_bias;       /* [E,H].  Scalar; only with problem.bias. */
  void *grad_edge_weight; /* [E,H].  Scalar. */
  dfgnn_strides grad_out_strides, grad_query_strides, grad_key_strides,
      grad_value_strides;

  /* Edge features, in edge order and dense; dimensions are in the order named
   * here in every layout. */
  const void *edge_attr; /* e [E,F], or W e + b [E,H,D].  Storage.  Only with
                          * problem.edge_dim. */
  const void *edge_projection; /* W [H,D,F], with MESSAGE_GATE_VALUE W and W'
                                * [2,H,D,F].  Storage; only with edge_dim F. */
  const void *edge_bias; /* b [H,D], with MESSAGE_GATE_VALUE b and b' [2,H,D].
                          * Storage; NULL: 0.  Only with edge_dim F. */
  const void *score_edge; /* GAT c [E,H].  Scalar; only with edge_dim. */
  const void *gate_dst;  /* a [N,H,D].  Storage; only with MESSAGE_GATE and
                          * MESSAGE_GATE_VALUE. */
  const void *gate_src;  /* b [M,H,D].  Likewise. */
  void *grad_edge_attr;  /* as edge_attr.  Storage. */
  void *grad_edge_projection; /* as edge_projection.  Scalar. */
  void *grad_edge_bias;  /* as edge_bias.  Scalar. */
  void *grad_score_edge; /* [E,H].  Scalar. */
  void *grad_gate_dst;   /* [N,H,D].  Storage. */
  void *grad_gate_src;   /* [M,H,D].  Storage. */
  dfgnn_strides gate_dst_strides, gate_src_strides, grad_gate_dst_strides,
      grad_gate_src_strides;

  /* Attention over a part of a graph's edges.  The results of parts merge: lse
   * is the logarithm of the sum of their exp(lse), out the sum of their
   * exp(lse of the part - lse) out.  Backward of a part reads the merged out
   * and lse, with the whole grad_out, and gives the part's share of each
   * gradient. */
  const void *grad_lse;  /* [N,H], the loss's gradient by lse.  Scalar;
                          * attention backward; NULL: 0. */
  const int64_t *edge_number; /* [E], device memory: the number that dropout
                               * draws by for each edge, so that parts drop what
                               * the whole does; NULL: its place in the
                               * matrix */

  /* OP_PROGRAM: the tensors of a program, by name, with seed or seed_value of
   * its dropout; nothing else is read. */
  const struct dfgnn_edge_tensor *program_inputs, *program_outputs;
  int program_input_count, program_output_count;
} dfgnn_args;

#ifdef __cplusplus
inline dfgnn_args dfgnn_args_descriptor() {
  dfgnn_args args = dfgnn_descriptor<dfgnn_args>();
  args.scale = DFGNN_SCALE_DEFAULT;
  args.slope = 0.2;
  return args;
}
#define DFGNN_ARGS_INIT dfgnn_args_descriptor()
#else
#define DFGNN_ARGS_INIT                                                        \
  { .struct_size = sizeof(dfgnn_args), .scale = DFGNN_SCALE_DEFAULT,           \
    .slope = 0.2 }
#endif

/* ---- plans -------------------------------------------------------------- */

/* The chosen variant for a graph and a problem.  Immutable, shared by threads;
 * a second request for the same problem gets the same plan from the graph's
 * cache. */
typedef struct dfgnn_plan dfgnn_plan;

/* Chooses a variant by the stores' measurements, the model or the rule, as the
 * problem's effort allows (dfgnn_source).  DFGNN_ERROR_UNSUPPORTED if no
 * variant applies; DFGNN_ERROR_CAPTURING if it would tune during a capture. */
DFGNN_API dfgnn_status dfgnn_plan_create(dfgnn_plan **plan, dfgnn_context *ctx,
                                         dfgnn_graph *graph,
                                         const dfgnn_problem *problem);

/* The same with a named variant, for experiments.  Not cached.
 * DFGNN_ERROR_UNSUPPORTED, with the reason, if it does not apply. */
DFGNN_API dfgnn_status dfgnn_plan_create_forced(dfgnn_plan **plan,
                                                dfgnn_context *ctx,
                                                dfgnn_graph *graph,
                                                const dfgnn_problem *problem,
                                                const char *variant);

/* Gives the plan back.  NULL is allowed. */
DFGNN_API void dfgnn_plan_destroy(dfgnn_plan *plan);

/* Bytes of device memory that execute needs, aligned to 64 on the CPU and to
 * 256 on a GPU; execute refuses a smaller alignment. */
DFGNN_API size_t dfgnn_plan_workspace(const dfgnn_plan *plan);

DFGNN_API const char *dfgnn_plan_variant(const dfgnn_plan *plan);
/* (dfgnn_source)-1, which has no name, if plan is no plan. */
DFGNN_API dfgnn_source dfgnn_plan_source(const dfgnn_plan *plan);

/* Runs the plan on a stream; the CPU returns when done.  Allocates nothing,
 * takes no lock, does not synchronise, may be captured in a CUDA graph.
 * workspace is dfgnn_plan_workspace bytes of device memory that no other call
 * uses meanwhile; NULL if that is 0. */
DFGNN_API dfgnn_status dfgnn_execute(const dfgnn_plan *plan,
                                     const dfgnn_args *args, void *workspace,
                                     void *stream);

/* Plan, workspace and execute in one: a hash lookup after the first call.  The
 * workspace is the context's and grows as needed, so calls of one context are
 * serialised; not for captures. */
DFGNN_API dfgnn_status dfgnn_call(dfgnn_context *ctx, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_args *args, void *stream);

#ifdef __cplusplus
}
#endif

#endif
