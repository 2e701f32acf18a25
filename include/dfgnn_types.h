/* dfgnn_types.h - what a problem is made of: operators with their formulas,
 * passes, types and modes, and the statistics of a graph
 *
 * dfgnn.h includes this file, and so does device code. */
#ifndef DFGNN_TYPES_H
#define DFGNN_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Operators.  j runs over the in-neighbours of i, x is args.value.
 *
 * Attention: s is the score of edge (i, j), alpha its softmax over the in-edges
 * of i, and out_i = sum_j alpha_ij value_j.
 *   GT     s = scale <q_i, k_j>, value v_j        Dwivedi & Bresson 2020
 *   AGNN   s = beta cos(h_i, h_j), value h_j      Thekumparampil et al. 2018
 *   GAT    s = leaky_relu(a_i + b_j), value h_j   Velickovic et al. 2018
 *   GATV2  s = <att, leaky_relu(x_i + y_j)>, value y_j   Brody et al. 2022
 * With edge features (problem.edge_dim), W e_ij + b being args.edge_projection,
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
  DFGNN_OP_COUNT,
  DFGNN_OP_PROGRAM = 31 /* what problem.program says: dfgnn_program.h */
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
  DFGNN_EFFORT_DEFAULT = 0, /* the context's, or DFGNN_EFFORT, or ESTIMATE */
  DFGNN_EFFORT_STORED = 1,  /* stored measurements only; a miss is a status */
  DFGNN_EFFORT_ESTIMATE = 2,/* stored, else predicted, else the rule */
  DFGNN_EFFORT_MEASURE = 3, /* tune an unmeasured problem now and store it */
  DFGNN_EFFORT_PAPER = 4,   /* the rule of the DF-GNN paper alone */
  DFGNN_EFFORT_RACE = 5     /* as ESTIMATE; for an unmeasured problem the first
                             * calls time the portfolio's first six members in
                             * turn, and the best stays and is stored.  Not for
                             * ranks that must choose alike */
} dfgnn_effort;

/* The source of a plan's choice: the first of these that has one. */
typedef enum dfgnn_source {
  DFGNN_SOURCE_FORCED = 0, /* DFGNN_FORCE_VARIANT */
  DFGNN_SOURCE_PINNED = 1, /* a local pin */
  DFGNN_SOURCE_EXACT = 2,  /* this graph and problem were measured: every member
                            * of the problem's portfolio was seen */
  DFGNN_SOURCE_NEAR = 3,   /* a graph near to it was, or this one for a problem
                            * like it (say, without dropout) or in part */
  DFGNN_SOURCE_MODEL = 4,  /* the member of the portfolio that is predicted to be
                            * fastest */
  DFGNN_SOURCE_RULE = 5,   /* the portfolio's default */
  DFGNN_SOURCE_PAPER = 6   /* the paper's rule, by effort PAPER */
} dfgnn_source;

typedef enum dfgnn_log_level {
  DFGNN_LOG_DEFAULT = 0, /* DFGNN_LOG, else WARN */
  DFGNN_LOG_NONE = 1,
  DFGNN_LOG_ERROR = 2,
  DFGNN_LOG_WARN = 3,
  DFGNN_LOG_INFO = 4,
  DFGNN_LOG_DEBUG = 5
} dfgnn_log_level;

/* Distance in elements between consecutive nodes, heads and features of a
 * tensor.  All zero: dense in the problem's layout. */
typedef struct dfgnn_strides {
  int64_t node, head, feature;
} dfgnn_strides;

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
  double degree_cv;   /* standard deviation over mean */
  double isolated;    /* share of rows without edges */
  double histogram[DFGNN_HISTOGRAM_BINS]; /* share of rows of degree 0, 1, 2..3,
                                           * 4..7, ... */
  double reuse;       /* distinct columns per 16-row window over its edges, by a
                       * sample of windows: 1 none shared, 1/16 all shared */
  double locality;    /* share of sampled edges with |i M/N - j| within 1024 */
  int64_t graphs;     /* connected blocks on the diagonal, 1 if not a batch */
  int64_t largest_graph; /* nodes of the largest */
  double density;     /* edges over the sum of squared block sizes */
  uint64_t fingerprint;  /* hash of offsets and indices */
  /* Degrees of sources: the number of edges of each column.  All 0 where there
   * are edges: not known, as in rows stored before they were computed. */
  int64_t max_source_degree, p50_source_degree, p99_source_degree;
  double source_cv;   /* standard deviation over mean */
  double isolated_sources; /* share of sources without edges */
} dfgnn_signature;

#endif
