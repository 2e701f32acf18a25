/* dfgnn.h - fused, autotuned kernels for attention graph neural networks
 *
 * The path of a call:
 *
 *   dfgnn_context *ctx;  dfgnn_graph *graph;  dfgnn_plan *plan;
 *   dfgnn_context_create(&ctx, NULL);       // device, tuning stores, logging
 *   dfgnn_graph_create(&graph, ctx, &csr);  // validates a CSR matrix
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

#include <stddef.h>
#include <stdint.h>

/* A descriptor that is zero but for its size. */
#ifdef __cplusplus
template <class Descriptor> inline Descriptor dfgnn_descriptor() {
  Descriptor d = Descriptor();
  d.struct_size = sizeof(Descriptor);
  return d;
}
#define DFGNN_INIT(type) dfgnn_descriptor<type>()
#else
#define DFGNN_INIT(type)                                                       \
  { .struct_size = sizeof(type) }
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
  DFGNN_ERROR_INTERRUPTED = -10, /* the caller asked to stop; work is kept */
  DFGNN_ERROR_WRONG = -11        /* a variant failed its check */
} dfgnn_status;

/* The name of a status, e.g. "invalid argument".  Never NULL. */
DFGNN_API const char *dfgnn_status_string(dfgnn_status status);

/* The message of the last failure in this thread, "" if there was none.  Valid
 * until the thread's next call into the library. */
DFGNN_API const char *dfgnn_last_error(void);

/* The library's version, e.g. "0.1.0". */
DFGNN_API const char *dfgnn_version(void);

/* ---- enumerations ------------------------------------------------------- */

/* Operators.  j runs over the in-neighbours of i, x is args.value.
 *
 * Attention: s is the score of edge (i, j), alpha its softmax over the in-edges
 * of i, and out_i = sum_j alpha_ij value_j.
 *   GT     s = scale <q_i, k_j>, value v_j        Dwivedi & Bresson 2020
 *   AGNN   s = beta cos(h_i, h_j), value h_j      Thekumparampil et al. 2018
 *   GAT    s = leaky_relu(a_i + b_j), value h_j   Velickovic et al. 2018
 *   GATV2  s = <att, leaky_relu(x_i + y_j)>, value y_j   Brody et al. 2022
 * With edge features (problem.edge_dim), W e_ij + b being args.edge_weight,
 * edge_attr and edge_bias:
 *   GT     s = scale <q_i, k_j + W e_ij + b>, value v_j + W e_ij + b, or one of
 *          the two alone (problem.edge_use)              Shi et al. 2021
 *   GATV2  s = <att, leaky_relu(x_i + y_j + W e_ij + b)>, value y_j
 *   GAT    s = leaky_relu(a_i + b_j + c_ij), c = args.score_edge: the scalar
 *          <att_e, W e_ij> = <W^T att_e, e_ij>, which the caller makes
 * SpMM, with optional row and column scales r and c (GCN: both 1/sqrt(degree)):
 *   SPMM_SUM       out_i = r_i sum_j c_j x_j
 *   SPMM_MEAN      the same with sum over the number of edges
 *   SPMM_WEIGHTED  out_i = r_i sum_j c_j w_ij x_j
 * Messages of SPMM_SUM, SPMM_MEAN, REDUCE_MIN, REDUCE_MAX, REDUCE_MEAN and
 * REDUCE_PNA (whose out_std is that of REDUCE_STD): with problem.message, m_ij
 * takes the place of x_j in the formulas and differs from edge to edge:
 *   RELU   relu(x_j + W e_ij + b)                        GINE, GEN
 *   GATE   sigmoid(a_i + b_j [+ W e_ij + b]) x_j         GatedGCN
 *   GATE_VALUE  sigmoid(a_i + b_j + W e_ij + b) (x_j + W' e_ij + b')  ResGated
 *          by feature, a and b being args.gate_dst and gate_src
 * Reductions by feature; a row without edges gives 0 (arg -1):
 *   REDUCE_MIN, REDUCE_MAX  with the edge it came from: the first of equals; a
 *                  NaN comes before all numbers
 *   REDUCE_MEAN, REDUCE_VAR (of the population)
 *   REDUCE_STD     sqrt(var), 0 where var <= 1e-5, as PyG's StdAggregation
 *   REDUCE_PNA     mean, min, max and std in one pass   Corso et al. 2020 */
typedef enum dfgnn_op {
  DFGNN_OP_GT = 0,
  DFGNN_OP_AGNN = 1,
  DFGNN_OP_GAT = 2,
  DFGNN_OP_GATV2 = 3,
  DFGNN_OP_SPMM_SUM = 4,
  DFGNN_OP_SPMM_MEAN = 5,
  DFGNN_OP_SPMM_WEIGHTED = 6,
  DFGNN_OP_REDUCE_MIN = 7,
  DFGNN_OP_REDUCE_MAX = 8,
  DFGNN_OP_REDUCE_MEAN = 9,
  DFGNN_OP_REDUCE_VAR = 10,
  DFGNN_OP_REDUCE_STD = 11,
  DFGNN_OP_REDUCE_PNA = 12,
  DFGNN_OP_COUNT
} dfgnn_op;

/* BACKWARD: gradients of a scalar loss from args.grad_out = dloss/dout. */
typedef enum dfgnn_pass {
  DFGNN_PASS_FORWARD = 0,
  DFGNN_PASS_BACKWARD = 1,
  DFGNN_PASS_COUNT
} dfgnn_pass;

/* Storage type of the feature tensors.  Products and sums are f32 for F32, F16
 * and BF16, f64 for F64. */
typedef enum dfgnn_dtype {
  DFGNN_F32 = 0,
  DFGNN_F16 = 1,
  DFGNN_BF16 = 2,
  DFGNN_F64 = 3,
  DFGNN_DTYPE_COUNT
} dfgnn_dtype;

/* How exact f32 products must be.  TF32 allows tensor cores with 10-bit
 * mantissas, as torch.backends.cuda.matmul.allow_tf32 does. */
typedef enum dfgnn_math {
  DFGNN_MATH_F32 = 0,
  DFGNN_MATH_TF32 = 1,
  DFGNN_MATH_COUNT
} dfgnn_math;

/* Order of a feature tensor's dimensions: [nodes, heads, dim] or
 * [nodes, dim, heads] (heads innermost, as dgl.sparse has it). */
typedef enum dfgnn_layout {
  DFGNN_LAYOUT_NHD = 0,
  DFGNN_LAYOUT_NDH = 1,
  DFGNN_LAYOUT_COUNT
} dfgnn_layout;

/* Where GT adds the features of an edge. */
typedef enum dfgnn_edge_use {
  DFGNN_EDGE_BOTH = 0, /* keys and values */
  DFGNN_EDGE_KEYS = 1,
  DFGNN_EDGE_VALUES = 2,
  DFGNN_EDGE_USE_COUNT
} dfgnn_edge_use;

/* problem.edge_dim of edge features that are [E, H, D] already. */
#define DFGNN_EDGE_PROJECTED (-1)

/* The message of an edge in SpMM and reductions. */
typedef enum dfgnn_message {
  DFGNN_MESSAGE_COPY = 0, /* x_j */
  DFGNN_MESSAGE_RELU = 1,
  DFGNN_MESSAGE_GATE = 2,
  DFGNN_MESSAGE_GATE_VALUE = 3,
  DFGNN_MESSAGE_COUNT
} dfgnn_message;

typedef enum dfgnn_index_type {
  DFGNN_INDEX_I32 = 0,
  DFGNN_INDEX_I64 = 1
} dfgnn_index_type;

/* The time that making a plan may take, after FFTW's planner flags. */
typedef enum dfgnn_effort {
  DFGNN_EFFORT_DEFAULT = 0,  /* the context's, or DFGNN_EFFORT, or ESTIMATE */
  DFGNN_EFFORT_STORED = 1,   /* stored measurements only; a miss is a status */
  DFGNN_EFFORT_ESTIMATE = 2, /* stored, else near, predicted, else the rule */
  DFGNN_EFFORT_MEASURE = 3,  /* tune an unmeasured problem now and store it */
  DFGNN_EFFORT_PAPER = 4,    /* the rule of the DF-GNN paper alone */
  DFGNN_EFFORT_RACE = 5      /* as ESTIMATE; for an unmeasured problem the first
                              * calls time the model's first four in turn, and
                              * the best stays and is stored.  Not for ranks
                              * that must choose alike */
} dfgnn_effort;

/* The source of a plan's choice. */
typedef enum dfgnn_source {
  DFGNN_SOURCE_EXACT = 0,   /* this graph and problem were measured */
  DFGNN_SOURCE_SIMILAR = 1, /* a graph of the same quantised signature was, or
                             * this one for a problem like it (say, without
                             * dropout) */
  DFGNN_SOURCE_NEAREST = 2, /* measured graphs within the trusted radius */
  DFGNN_SOURCE_RULE = 3,    /* nothing near and no model: the refined rule */
  DFGNN_SOURCE_PAPER = 4,   /* the paper's rule, by effort PAPER */
  DFGNN_SOURCE_PINNED = 5,  /* a local pin */
  DFGNN_SOURCE_FORCED = 6,  /* DFGNN_FORCE_VARIANT */
  DFGNN_SOURCE_MODEL = 7    /* a model's prediction: dfgnn-tune model */
} dfgnn_source;

typedef enum dfgnn_log_level {
  DFGNN_LOG_DEFAULT = 0, /* DFGNN_LOG, else WARN */
  DFGNN_LOG_NONE = 1,
  DFGNN_LOG_ERROR = 2,
  DFGNN_LOG_WARN = 3,
  DFGNN_LOG_INFO = 4,
  DFGNN_LOG_DEBUG = 5
} dfgnn_log_level;

/* Names as the command line spells them ("gt", "forward", "bf16", "nhd", ...);
 * NULL for a value out of range.  The _parse functions take the same names and
 * fail with DFGNN_ERROR_INVALID, listing what is accepted. */
DFGNN_API const char *dfgnn_op_name(dfgnn_op op);
DFGNN_API const char *dfgnn_pass_name(dfgnn_pass pass);
DFGNN_API const char *dfgnn_dtype_name(dfgnn_dtype dtype);
DFGNN_API const char *dfgnn_math_name(dfgnn_math math);
DFGNN_API const char *dfgnn_layout_name(dfgnn_layout layout);
DFGNN_API const char *dfgnn_effort_name(dfgnn_effort effort);
DFGNN_API const char *dfgnn_source_name(dfgnn_source source);
DFGNN_API const char *dfgnn_edge_use_name(dfgnn_edge_use use);
DFGNN_API const char *dfgnn_message_name(dfgnn_message message);
DFGNN_API dfgnn_status dfgnn_op_parse(dfgnn_op *op, const char *name);
DFGNN_API dfgnn_status dfgnn_pass_parse(dfgnn_pass *pass, const char *name);
DFGNN_API dfgnn_status dfgnn_dtype_parse(dfgnn_dtype *dtype, const char *name);
DFGNN_API dfgnn_status dfgnn_math_parse(dfgnn_math *math, const char *name);
DFGNN_API dfgnn_status dfgnn_layout_parse(dfgnn_layout *out, const char *name);
DFGNN_API dfgnn_status dfgnn_effort_parse(dfgnn_effort *out, const char *name);
DFGNN_API dfgnn_status dfgnn_edge_use_parse(dfgnn_edge_use *out,
                                            const char *name);
DFGNN_API dfgnn_status dfgnn_message_parse(dfgnn_message *out,
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
 * options or DFGNN_STORE name, which is an error; if only the first of those is
 * missing, which tuning would make, that is a warning. */
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
  char backend[16];     /* "cpu" or "cuda" */
  char arch[32];        /* "sm_90", "x86_64-avx512": the gate of selection */
  char model[128];      /* "NVIDIA H200", "AMD EPYC 9655" */
  int ordinal;          /* CUDA device number, 0 for the CPU */
  int units;            /* multiprocessors, or threads of the CPU backend */
  int64_t cache_bytes;  /* last-level cache: L2 of a GPU, L3 of a CPU */
  int64_t memory_bytes; /* device memory */
  int64_t shared_bytes; /* largest shared memory of a block; 0 on the CPU */
  char driver[32];      /* "13.0"; "" on the CPU */
  char runtime[32];     /* "13.0"; the OpenMP version on the CPU */
} dfgnn_device_info;

#define DFGNN_DEVICE_INFO_INIT DFGNN_INIT(dfgnn_device_info)

/* Fills info, whose struct_size the caller set. */
DFGNN_API dfgnn_status dfgnn_context_device(dfgnn_device_info *info,
                                            const dfgnn_context *ctx);

typedef struct dfgnn_counters {
  size_t struct_size;
  uint64_t exact, similar, nearest; /* plans by source */
  uint64_t misses;                  /* plans that fell back to the rule */
  uint64_t cached;                  /* plans found in the plan cache */
  uint64_t invalid_rows;            /* rows of the stores that were skipped */
  uint64_t loaded_rows;             /* rows of the stores in use */
  uint64_t model;                   /* plans that a model chose */
} dfgnn_counters;

#define DFGNN_COUNTERS_INIT DFGNN_INIT(dfgnn_counters)

DFGNN_API dfgnn_status dfgnn_context_counters(dfgnn_counters *counters,
                                              const dfgnn_context *ctx);

/* A digest of all that the context chooses by: its decisions, pins and models,
 * and the numbers of the device that enter a distance.  Ranks of a job whose
 * digests are equal make the same choices; compare it once after creating the
 * contexts, for example by broadcasting that of rank 0.  Written as 32
 * hexadecimal digits.
 *
 * For a graph of which nothing is stored the context repeats the choice that it
 * made before for a graph like it (of the same family or, with rounding, the
 * same signature), so that ranks have to meet such graphs in one order to
 * choose alike. */
#define DFGNN_DIGEST_SIZE 33
DFGNN_API dfgnn_status dfgnn_context_digest(char digest[DFGNN_DIGEST_SIZE],
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
  int on_device;  /* 0: host arrays, 1: arrays of the context's device */
  int64_t graphs; /* of a batch; 0: not known */
  const int64_t *graph_ptr; /* host, [graphs + 1]: first node of each graph of a
                             * square batch; NULL: not known */
  const char *family;       /* a name shared by graphs of one kind, such as the
                             * mini-batches of a sampler; NULL: none */
  const char *name;         /* a label kept with measurements; NULL: none */
  int trusted;              /* 1: nothing is checked, see below */
  void *stream; /* device arrays are ready when the work that is on it
                 * now has run (as in dfgnn_execute) */
  /* The same edges by source, which backward passes read; NULL: they are made
   * when they are needed.  Source j has the edges column_offsets[j] ..
   * column_offsets[j + 1] - 1: edge column_edges[k] of the matrix, of row
   * column_rows[k], by rising edge. */
  const void *column_offsets; /* [M + 1], of offset_type */
  const void *column_rows;    /* [E], of index_type */
  const void *column_edges;   /* [E], of offset_type */
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
 * columns are taken from csr only if it is trusted, and made anew otherwise. */
DFGNN_API dfgnn_status dfgnn_graph_create(dfgnn_graph **graph,
                                          dfgnn_context *ctx,
                                          const dfgnn_csr *csr);

/* A list of edges: edge e lets dst[e] attend to src[e]. */
typedef struct dfgnn_coo {
  size_t struct_size;
  int64_t destinations, sources, edges;
  const void *dst, *src; /* [E], of index_type */
  dfgnn_index_type index_type;
  int on_device;  /* as in dfgnn_csr */
  int64_t graphs; /* as in dfgnn_csr, with graph_ptr */
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

/* A graph of an edge list in any order.  The arrays are read once the work on
 * the stream (as in dfgnn_execute) has run, and not kept.  Edges of a row keep
 * their order.  DFGNN_ERROR_INVALID names the first edge out of range.
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
 * the graph is reordered or the device has no memory pools. */
DFGNN_API void dfgnn_graph_destroy_on(dfgnn_graph *graph, void *stream);

#define DFGNN_HISTOGRAM_BINS 24

/* The statistics of a graph that selection looks at.  Shares are 0..1.
 * Relabelling nodes leaves all but locality, reuse and fingerprint unchanged.
 */
typedef struct dfgnn_signature {
  size_t struct_size;
  int64_t destinations, sources, edges;
  int64_t max_degree;
  double mean_degree;
  int64_t p50_degree, p90_degree, p99_degree;
  double degree_cv;                       /* standard deviation over mean */
  double isolated;                        /* share of rows without edges */
  double histogram[DFGNN_HISTOGRAM_BINS]; /* share of rows of degree 0, 1, 2..3,
                                           * 4..7, ... */
  double reuse;    /* distinct columns per 16-row window over its edges, by a
                    * sample of windows: 1 none shared, 1/16 all shared */
  double locality; /* share of sampled edges with |i M/N - j| within 1024 */
  int64_t graphs;  /* connected blocks on the diagonal, 1 if not a batch */
  int64_t largest_graph; /* nodes of the largest */
  double density;        /* edges over the sum of squared block sizes */
  uint64_t fingerprint;  /* hash of offsets and indices */
  /* Degrees of sources: the number of edges of each column.  All 0 where there
   * are edges: not known, as in rows stored before they were computed. */
  int64_t max_source_degree, p50_source_degree, p99_source_degree;
  double source_cv;        /* standard deviation over mean */
  double isolated_sources; /* share of sources without edges */
} dfgnn_signature;

#define DFGNN_SIGNATURE_INIT DFGNN_INIT(dfgnn_signature)

DFGNN_API dfgnn_status dfgnn_graph_signature(dfgnn_signature *signature,
                                             const dfgnn_graph *graph);

/* Bytes of device memory that the graph holds for itself: copies and the views
 * (work lists, orders, transposes) that variants asked for. */
DFGNN_API size_t dfgnn_graph_bytes(const dfgnn_graph *graph);

/* ---- graph files and generators ----------------------------------------- */

/* Reads a graph into host arrays.  The format is found from name and content:
 * Matrix Market coordinate files (.mtx; pattern, real, double, integer or
 * complex values, which are skipped; general, symmetric, hermitian or
 * skew-symmetric), SciPy CSR (.npz, optional graph_ptr), undirected graphs of
 * METIS (.graph), SNAP and OGB edge lists (.txt, .csv, .tsv; '#' and '%'
 * comments), each also with .gz except .npz.  Edges "a b" of a list mean that b
 * attends to a (source, destination).  Duplicate edges are kept.  path must be
 * a regular file: pipes and devices are DFGNN_ERROR_IO.  Free it with
 * dfgnn_csr_free. */
DFGNN_API dfgnn_status dfgnn_csr_read(dfgnn_csr **csr, const char *path);

/* Writes host arrays, validated as by dfgnn_csr_order; the format is found from
 * the name (.mtx, .npz, .graph, .txt, .csv, .tsv; .gz where it is read).  A
 * file is replaced whole or not at all. */
DFGNN_API dfgnn_status dfgnn_csr_write(const dfgnn_csr *csr, const char *path);

/* Makes a graph from a specification such as "sbm-pattern:batch=256,seed=1",
 * "powerlaw:nodes=10000,edges=100000,max-degree=900,columns=local" or
 * "preset=arxiv".  dfgnn-graph(1) lists the kinds and their settings. */
DFGNN_API dfgnn_status dfgnn_csr_generate(dfgnn_csr **csr, const char *spec);

DFGNN_API void dfgnn_csr_free(dfgnn_csr *csr);

/* ---- reordering ---------------------------------------------------------- */

/* Ways to number nodes anew, so that rows that are gathered together lie
 * together.
 *   DEGREE     by falling degree, in and out together
 *   RCM        reverse Cuthill-McKee: neighbours get near numbers
 *   METIS      parts with few edges between them, by METIS, if the library was
 *              built with it
 *   COMMUNITY  nested communities by modularity   Arai et al. 2016
 * All but DEGREE look at edges in both directions; for a rectangular matrix
 * they order the bipartite graph of rows and columns. */
typedef enum dfgnn_order {
  DFGNN_ORDER_DEGREE = 0,
  DFGNN_ORDER_RCM = 1,
  DFGNN_ORDER_METIS = 2,
  DFGNN_ORDER_COMMUNITY = 3,
  DFGNN_ORDER_COUNT
} dfgnn_order;

/* "degree", "rcm", "metis", "community", as the enumerations above. */
DFGNN_API const char *dfgnn_order_name(dfgnn_order order);
DFGNN_API dfgnn_status dfgnn_order_parse(dfgnn_order *order, const char *name);

/* Orders the nodes of a matrix in host memory: rows[p], columns[p] become the
 * old number of the row [N] and the column [M] that come to position p.  A
 * square matrix has one order for both, and columns may be NULL; nodes of a
 * batch stay within their graphs.  The same matrix gives the same order
 * everywhere (METIS: with the same C library).  DFGNN_ERROR_UNSUPPORTED without
 * METIS, or if there are 2^31 nodes or more (METIS: neighbours). */
DFGNN_API dfgnn_status dfgnn_csr_order(int64_t *rows, int64_t *columns,
                                       const dfgnn_csr *csr, dfgnn_order order);

/* Makes the matrix in which row p is row rows[p] of csr, and column p its
 * column columns[p]; NULL: as they are.  The edges of a row keep their order.
 * edges (may be NULL) [E] becomes the old number of each edge.  graph_ptr is
 * kept if nodes stay within their graphs.  Free it with dfgnn_csr_free. */
DFGNN_API dfgnn_status dfgnn_csr_permute(dfgnn_csr **permuted, int64_t *edges,
                                         const dfgnn_csr *csr,
                                         const int64_t *rows,
                                         const int64_t *columns);

typedef struct dfgnn_reordering {
  size_t struct_size;
  dfgnn_order order;   /* how to order, if rows is NULL */
  const int64_t *rows; /* [N] host: this order, as dfgnn_csr_order gives it */
  const int64_t *columns; /* [M] host; NULL: a square matrix's rows */
  int keep_columns; /* 1: rows alone are ordered, columns keep their numbers */
  int inside;       /* 1: execute takes and gives tensors in csr's order */
} dfgnn_reordering;

#define DFGNN_REORDERING_INIT DFGNN_INIT(dfgnn_reordering)

/* dfgnn_graph_create of the matrix in another order, with arrays of its own;
 * csr's, in host or device memory, are read and not kept.  Edges of a row keep
 * their order.
 *
 * Without how->inside the caller permutes features: row p of a tensor belongs
 * to node rows[p], or columns[p], of csr (dfgnn_graph_order), edge e of [E,H]
 * to edge dfgnn_graph_edge_order[e].  Do that once, where features are loaded.
 *
 * With how->inside, dfgnn_execute does it in each call: tensors are in csr's
 * order, copied to the plan's workspace (by one kernel a tensor) and back.
 * Tensors that are indexed by columns, which are all that forward passes
 * gather, are copied only without how->keep_columns.  With how->keep_columns,
 * too, rows that share sources run near in time, which is most of the gain;
 * passes along the columns (backward) gain only without it.  Dropout draws by
 * the edges of the new order.
 *
 * A reordered graph is tuned as a graph of its own, named "NAME+community". */
DFGNN_API dfgnn_status dfgnn_graph_reorder(dfgnn_graph **graph,
                                           dfgnn_context *ctx,
                                           const dfgnn_csr *csr,
                                           const dfgnn_reordering *how);

/* The order of a graph's rows and columns, as dfgnn_csr_order gives it; either
 * may be NULL.  0, 1, 2, ... where they were not reordered. */
DFGNN_API dfgnn_status dfgnn_graph_order(int64_t *rows, int64_t *columns,
                                         const dfgnn_graph *graph);

/* ---- partitions ---------------------------------------------------------- */

/* Ways to divide the nodes of a square matrix among the ranks of a job, so that
 * each has about the same work: the edges of its rows, and a little for each
 * row.
 *   METIS  parts with few edges between them, by METIS, if the library was
 *          built with it; beyond 2^20 edges, nodes are grouped first
 *          (Meyerhenke, Sanders & Schulz 2014), so that the memory stays that
 *          of the graph
 *   RANGE  rows in the order they have: for graphs that are in a good one */
typedef enum dfgnn_partitioning {
  DFGNN_PARTITION_METIS = 0,
  DFGNN_PARTITION_RANGE = 1,
  DFGNN_PARTITION_COUNT
} dfgnn_partitioning;

/* "metis", "range", as the enumerations above. */
DFGNN_API const char *dfgnn_partitioning_name(dfgnn_partitioning how);
DFGNN_API dfgnn_status dfgnn_partitioning_parse(dfgnn_partitioning *how,
                                                const char *name);

#define DFGNN_PARTS_MAX 4096

/* owner[i] [N] becomes the part, 0 .. parts - 1, of node i of a matrix in host
 * memory.  The same matrix gives the same parts everywhere.
 * DFGNN_ERROR_UNSUPPORTED without METIS, or if the matrix is not square or has
 * 2^31 rows. */
DFGNN_API dfgnn_status dfgnn_csr_partition(int32_t *owner, const dfgnn_csr *csr,
                                           int parts, dfgnn_partitioning how);

/* A rank's share of a partitioned graph.  Its rows are its own nodes; a
 * column below `nodes` is one of them, the others are its halo: nodes of other
 * ranks that its rows read.  Own nodes rise by their number in the whole graph,
 * the halo lies by owner and rises there.  Edges of a row keep their order. */
typedef struct dfgnn_part {
  size_t struct_size;
  int parts, rank;
  int64_t total_nodes, total_edges; /* of the whole graph */
  int64_t nodes, halo, edges;
  int64_t cut;      /* edges that read the halo */
  int64_t boundary; /* rows that have such edges */
  int64_t sends;    /* rows that other ranks read, counted for each rank */
  const int64_t *node, *halo_node; /* [nodes], [halo]: number in the whole */
  const int64_t *receive;          /* [parts] nodes of the halo by owner */
  const int64_t *send;             /* [parts] rows to send to each rank */
  const int64_t *send_row;   /* [sends] these rows, in the other halo's order */
  const int64_t *first_edge; /* [nodes] number of a row's first edge in the
                              * whole */
  const int64_t *offset;     /* [nodes + 1] */
  const int32_t *index;      /* [edges] column */
  uint64_t fingerprint;      /* of the whole graph, as dfgnn_signature has it */
  uint64_t digest;           /* of graph and owners: the same in every rank */
} dfgnn_part;

/* The part of a rank; owner [N] says the rank of each node.  Free it with
 * dfgnn_part_free. */
DFGNN_API dfgnn_status dfgnn_part_create(dfgnn_part **part,
                                         const dfgnn_csr *csr,
                                         const int32_t *owner, int parts,
                                         int rank);
/* Writes a part as .npz, replaced whole or not: arrays part (version of the
 * format, parts, rank, total_nodes, total_edges, fingerprint, digest), node,
 * halo, receive, send, send_row, first_edge, offset and index. */
DFGNN_API dfgnn_status dfgnn_part_write(const dfgnn_part *part,
                                        const char *path);
DFGNN_API void dfgnn_part_free(dfgnn_part *part);

/* ---- problems and arguments --------------------------------------------- */

typedef struct dfgnn_problem {
  size_t struct_size;
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  dfgnn_math math;
  dfgnn_layout layout;
  dfgnn_effort effort;
  int64_t heads;         /* H >= 1 */
  int64_t dim;           /* D >= 1, features per head */
  int deterministic;     /* 1: bitwise equal from run to run */
  int weights;           /* 1: execute also writes args.weights [E, H] */
  int cold;              /* 1: choose by cold-cache measurements */
  int64_t max_workspace; /* bytes a variant may ask for; -1: any */
  int bias;              /* attention: 1: args.bias [E, H] is added to scores */
  int dropout;           /* attention: 1: args.dropout is in effect */
  /* Bias and dropout are measured as problems of their own.  Until they are,
   * the fastest variant without them that can do both is chosen, as
   * DFGNN_SOURCE_SIMILAR at best. */
  int64_t edge_dim;        /* F, features an edge: args.edge_attr is [E,F] and
                            * args.edge_weight W.  0: no edge features.
                            * DFGNN_EDGE_PROJECTED: args.edge_attr is W e + b,
                            * [E,H,D]; for GAT, which takes no other,
                            * args.score_edge is its scalar, [E,H].  Not for
                            * AGNN and SPMM_WEIGHTED. */
  dfgnn_edge_use edge_use; /* GT with edge features */
  int reserved;            /* 0: the place of qk_norm, which is gone */
  dfgnn_message message;   /* SPMM_SUM, SPMM_MEAN, REDUCE_MIN, _MAX, _MEAN and
                            * _PNA.  RELU needs edge features, GATE may have
                            * them, GATE_VALUE needs edge_dim F, COPY has none.
                            */
  int accumulate;          /* attention backward: 1: grad_query and
                            * grad_score_dst are added to what the arrays hold,
                            * for parts of a graph that share destinations */
} dfgnn_problem;

#define DFGNN_PROBLEM_INIT                                                     \
  {                                                                            \
    sizeof(dfgnn_problem), DFGNN_OP_GT, DFGNN_PASS_FORWARD, DFGNN_F32,         \
        DFGNN_MATH_F32, DFGNN_LAYOUT_NHD, DFGNN_EFFORT_DEFAULT, 1, 64, 1, 0,   \
        0, -1, 0, 0, 0, DFGNN_EDGE_BOTH, 0, DFGNN_MESSAGE_COPY, 0              \
  }

/* Distance in elements between consecutive nodes, heads and features of a
 * tensor.  All zero: dense in the problem's layout. */
typedef struct dfgnn_strides {
  int64_t node, head, feature;
} dfgnn_strides;

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
  double scale;          /* GT; 0: 1 / sqrt(D) */
  double slope;          /* GAT and GATV2 leaky ReLU */
  dfgnn_strides query_strides, key_strides, value_strides, out_strides;

  const void *bias;     /* [E,H].  Scalar; only with problem.bias. */
  double dropout;       /* 0 <= dropout < 1; only with problem.dropout */
  const uint64_t *seed; /* [1], device memory, read when the call runs; NULL:
                         * seed_value */
  uint64_t seed_value;

  const void *edge_weight;           /* SPMM_WEIGHTED w [E,H].  Scalar.  With
                                      * problem.edge_dim F: W [H,D,F], with
                                      * MESSAGE_GATE_VALUE W and W' [2,H,D,F].  Storage.
                                      */
  const void *scale_dst;             /* SPMM r [N].  Scalar; NULL: 1. */
  const void *scale_src;             /* SPMM c [M].  Scalar; NULL: 1. */
  void *out_min, *out_max, *out_std; /* REDUCE_PNA, as out, with its strides */
  int32_t *arg_min, *arg_max; /* [N,H,D] in the problem's layout, dense: which
                               * edge of the row, 0 .. degree - 1, -1: none.
                               * REDUCE_MIN, REDUCE_MAX and REDUCE_PNA; NULL:
                               * not wanted, but backward needs them. */

  const void *grad_out; /* [N,H,D].  Storage. */
  const void *grad_out_min, *grad_out_max, *grad_out_std; /* REDUCE_PNA, as
                                                           * grad_out */
  void *grad_query;       /* [N,H,D].  Storage. */
  void *grad_key;         /* [M,H,D].  Storage. */
  void *grad_value;       /* [M,H,D].  Storage. */
  void *grad_score_dst;   /* [N,H].  Scalar. */
  void *grad_score_src;   /* [M,H].  Scalar. */
  void *grad_att;         /* [H,D].  Scalar. */
  void *grad_beta;        /* [1].  Scalar. */
  void *grad_bias;        /* [E,H].  Scalar; only with problem.bias. */
  void *grad_edge_weight; /* [E,H], or as W.  Scalar. */
  dfgnn_strides grad_out_strides, grad_query_strides, grad_key_strides,
      grad_value_strides;

  /* Edge features, in edge order and dense; dimensions are in the order named
   * here in every layout. */
  const void *edge_attr;  /* e [E,F], or W e + b [E,H,D].  Storage.  Only with
                           * problem.edge_dim. */
  const void *edge_bias;  /* b [H,D], with MESSAGE_GATE_VALUE b and b' [2,H,D].
                           * Storage; NULL: 0.  Only with edge_dim F. */
  const void *score_edge; /* GAT c [E,H].  Scalar; only with edge_dim. */
  const void *reserved_norm[3]; /* NULL: members that are gone */
  const void *gate_dst;  /* a [N,H,D].  Storage; only with MESSAGE_GATE and
                          * MESSAGE_GATE_VALUE. */
  const void *gate_src;  /* b [M,H,D].  Likewise. */
  void *grad_edge_attr;  /* as edge_attr.  Storage. */
  void *grad_edge_bias;  /* as edge_bias.  Scalar. */
  void *grad_score_edge; /* [E,H].  Scalar. */
  void *reserved_grad_norm[2]; /* NULL: members that are gone */
  void *grad_gate_dst;         /* [N,H,D].  Storage. */
  void *grad_gate_src;         /* [M,H,D].  Storage. */
  dfgnn_strides gate_dst_strides, gate_src_strides, grad_gate_dst_strides,
      grad_gate_src_strides;

  /* Attention over a part of a graph's edges.  The results of parts merge: lse
   * is the logarithm of the sum of their exp(lse), out the sum of their
   * exp(lse of the part - lse) out.  Backward of a part reads the merged out
   * and lse, with the whole grad_out, and gives the part's share of each
   * gradient. */
  const void *grad_lse;       /* [N,H], the loss's gradient by lse.  Scalar;
                               * attention backward; NULL: 0. */
  const int64_t *edge_number; /* [E], device memory: the number that dropout
                               * draws by for each edge, so that parts drop what
                               * the whole does; NULL: its place in the
                               * matrix */
} dfgnn_args;

#ifdef __cplusplus
inline dfgnn_args dfgnn_args_descriptor() {
  dfgnn_args args = dfgnn_descriptor<dfgnn_args>();
  args.slope = 0.2;
  return args;
}
#define DFGNN_ARGS_INIT dfgnn_args_descriptor()
#else
#define DFGNN_ARGS_INIT                                                        \
  { .struct_size = sizeof(dfgnn_args), .slope = 0.2 }
#endif

/* ---- plans -------------------------------------------------------------- */

/* The chosen variant for a graph and a problem.  Immutable, shared by threads;
 * a second request for the same problem gets the same plan from the graph's
 * cache. */
typedef struct dfgnn_plan dfgnn_plan;

/* Chooses a variant by the stores' exact, similar or nearest measurements, a
 * model or the rule, as the problem's effort allows.  DFGNN_ERROR_UNSUPPORTED
 * if no variant applies; DFGNN_ERROR_CAPTURING if it would tune during a
 * capture. */
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

typedef struct dfgnn_candidate {
  const char *variant;
  const char *reason; /* "chosen", "slower: 1.31x", "not measured", ... */
  double measured;    /* time over the fastest's on this graph; 0: not known */
  double predicted;   /* time over the least that the model predicts; 0: none */
} dfgnn_candidate;

typedef struct dfgnn_explanation {
  const char *variant;
  dfgnn_source source;
  double distance;     /* to the nearest measured problem; 0 exact; -1 none */
  const char *because; /* one sentence */
  size_t count;
  const dfgnn_candidate *candidates; /* all variants of operator and pass */
  const char *model; /* the model that predicts, and the features that most set
                      * its first choice apart; "": there is none */
} dfgnn_explanation;

/* Explains why the plan has its variant, and why not each of the others.  Free
 * it with dfgnn_explanation_free; it does not outlive the plan. */
DFGNN_API dfgnn_status dfgnn_plan_explain(dfgnn_explanation **explanation,
                                          const dfgnn_plan *plan);
DFGNN_API void dfgnn_explanation_free(dfgnn_explanation *explanation);

/* Runs the plan on a stream (a cudaStream_t; ignored by the CPU, which returns
 * when done).  Allocates nothing, takes no lock, does not synchronise, may be
 * captured in a CUDA graph.  workspace is dfgnn_plan_workspace bytes of device
 * memory that no other call uses meanwhile; NULL if that is 0. */
DFGNN_API dfgnn_status dfgnn_execute(const dfgnn_plan *plan,
                                     const dfgnn_args *args, void *workspace,
                                     void *stream);

/* Plan, workspace and execute in one: a hash lookup after the first call.  The
 * workspace is the context's and grows as needed, so calls of one context are
 * serialised; not for captures. */
DFGNN_API dfgnn_status dfgnn_call(dfgnn_context *ctx, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_args *args, void *stream);

/* ---- variants ----------------------------------------------------------- */

typedef struct dfgnn_variant_info {
  size_t struct_size;
  const char *name;       /* "cpu.attention.fwd.online/simd=avx2,unroll=2" */
  const char *algorithm;  /* "online" */
  const char *backend;    /* "cpu" */
  const char *parameters; /* "simd=avx2,unroll=2", "" if none */
  uint32_t ops, passes;   /* bit masks of dfgnn_op and dfgnn_pass */
  int revision;           /* raised when its speed or results change */
  int deterministic;
} dfgnn_variant_info;

#define DFGNN_VARIANT_INFO_INIT DFGNN_INIT(dfgnn_variant_info)

/* Every compiled-in variant, whether its device is present or not. */
DFGNN_API size_t dfgnn_variant_count(void);
DFGNN_API dfgnn_status dfgnn_variant_get(dfgnn_variant_info *info, size_t i);

/* ---- tuning ------------------------------------------------------------- */

/* The stored candidates that a tuning measures again. */
typedef enum dfgnn_remeasure {
  DFGNN_REMEASURE_NONE = 0,
  DFGNN_REMEASURE_ALL,
  DFGNN_REMEASURE_NOISY /* of one sample, disturbed or with a wide interval, and
                         * the winner or not told apart from it */
} dfgnn_remeasure;

typedef struct dfgnn_tune_options {
  size_t struct_size;
  double budget_s;      /* wall time for the problem; 0: 10 */
  uint64_t seed;        /* of inputs and of the order of rounds */
  double margin;        /* variants whose times differ by less tie; 0: 0.015 */
  int exhaustive;       /* 1: measure all to the end; N > 1: all, N times */
  int remeasure;        /* a dfgnn_remeasure */
  const char *tool;     /* provenance: "dfgnn-tune 0.1.0"; NULL: library */
  const char *job_hash; /* provenance; NULL: none */
  const char *const *variants; /* only these candidates, NULL-terminated; NULL:
                                * all applicable ones */
  void (*progress)(void *data, double done, const char *message);
  int (*stop)(void *data); /* polled between samples; non-zero ends early with
                            * DFGNN_ERROR_INTERRUPTED; measurements are kept */
  void *data;
} dfgnn_tune_options;

#define DFGNN_TUNE_OPTIONS_INIT DFGNN_INIT(dfgnn_tune_options)

typedef struct dfgnn_tune_report {
  size_t struct_size;
  char variant[160];       /* the winner */
  char anchor[160];        /* the variant it was compared with: the rule's */
  double median_ms, ratio; /* of the winner; ratio to the anchor: < 1 faster */
  int candidates, measured, wrong, failed;
  int resumed;   /* candidates whose stored measurements were reused */
  int separated; /* 1: the winner is told apart from the runner-up */
  int kept;      /* 1: written to the store */
  double seconds;
  double payback_calls; /* calls until tuning is earned back; inf: never */
} dfgnn_tune_report;

#define DFGNN_TUNE_REPORT_INIT DFGNN_INIT(dfgnn_tune_report)

/* Measures the candidates for a problem on a graph, checking each against the
 * reference first, writes every finished measurement to the context's first
 * store, or keeps it for the life of the context where there is none to write,
 * and reloads the context's decisions.  report may be NULL. */
DFGNN_API dfgnn_status dfgnn_tune(dfgnn_tune_report *report, dfgnn_context *ctx,
                                  dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_tune_options *options);

/* ---- reports ------------------------------------------------------------- */

typedef struct dfgnn_report_options {
  size_t struct_size;
  const char *store;   /* files, with ':' between them; NULL: those in use, as
                        * dfgnn_options.store says */
  const char *against; /* a store to compare with; NULL: none */
  const char *const *graphs; /* files or specifications of graphs to describe,
                              * NULL-terminated; NULL: none */
  const char *title;         /* NULL: the usual one */
  const char *command; /* how the page was made, for its head; NULL: not told */
  const char *commit;  /* of the library's source; NULL: not told */
  double copy_gbps;    /* the devices' copy bandwidth in GB/s, for floors; 0:
                        * what the library knows of them */
  int all;             /* 1: every variant, not only the best of each problem */
} dfgnn_report_options;

#define DFGNN_REPORT_OPTIONS_INIT DFGNN_INIT(dfgnn_report_options)

/* Writes a page of HTML about the measurements, which needs no other file and
 * no network; the file takes its name whole.  The same rows give the same
 * bytes.  options may be NULL.  DFGNN_ERROR_IO or DFGNN_ERROR_STORE names the
 * file that cannot be read. */
DFGNN_API dfgnn_status dfgnn_report(const char *path,
                                    const dfgnn_report_options *options);

#ifdef __cplusplus
}
#endif
#endif
