/* The public headers of 0.2.0 as one, without comments and old names.
 * Programs that were built with them are to run with every later library.
 * tests/abi/snapshot.sh prints this file. */
#ifndef DFGNN_TYPES_H
#define DFGNN_TYPES_H
#include <stddef.h>
#include <stdint.h>
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
  DFGNN_OP_MLP = 30,
  DFGNN_OP_PROGRAM = 31
} dfgnn_op;
typedef enum dfgnn_pass {
  DFGNN_PASS_FORWARD = 0,
  DFGNN_PASS_BACKWARD = 1,
  DFGNN_PASS_COUNT
} dfgnn_pass;
typedef enum dfgnn_dtype {
  DFGNN_F32 = 0,
  DFGNN_F16 = 1,
  DFGNN_BF16 = 2,
  DFGNN_F64 = 3,
  DFGNN_DTYPE_COUNT
} dfgnn_dtype;
typedef enum dfgnn_math {
  DFGNN_MATH_F32 = 0,
  DFGNN_MATH_TF32 = 1,
  DFGNN_MATH_COUNT
} dfgnn_math;
typedef enum dfgnn_layout {
  DFGNN_LAYOUT_NHD = 0,
  DFGNN_LAYOUT_NDH = 1,
  DFGNN_LAYOUT_COUNT
} dfgnn_layout;
typedef enum dfgnn_edge_use {
  DFGNN_EDGE_BOTH = 0,
  DFGNN_EDGE_KEYS = 1,
  DFGNN_EDGE_VALUES = 2,
  DFGNN_EDGE_USE_COUNT
} dfgnn_edge_use;
#define DFGNN_EDGE_PROJECTED (-1)
typedef enum dfgnn_message {
  DFGNN_MESSAGE_COPY = 0,
  DFGNN_MESSAGE_RELU = 1,
  DFGNN_MESSAGE_GATE = 2,
  DFGNN_MESSAGE_GATE_VALUE = 3,
  DFGNN_MESSAGE_COUNT
} dfgnn_message;
typedef enum dfgnn_index_type {
  DFGNN_INDEX_I32 = 0,
  DFGNN_INDEX_I64 = 1
} dfgnn_index_type;
typedef enum dfgnn_effort {
  DFGNN_EFFORT_DEFAULT = 0,
  DFGNN_EFFORT_STORED = 1,
  DFGNN_EFFORT_ESTIMATE = 2,
  DFGNN_EFFORT_MEASURE = 3,
  DFGNN_EFFORT_PAPER = 4,
  DFGNN_EFFORT_RACE = 5
} dfgnn_effort;
typedef enum dfgnn_source {
  DFGNN_SOURCE_EXACT = 0,
  DFGNN_SOURCE_SIMILAR = 1,
  DFGNN_SOURCE_NEAREST = 2,
  DFGNN_SOURCE_RULE = 3,
  DFGNN_SOURCE_PAPER = 4,
  DFGNN_SOURCE_PINNED = 5,
  DFGNN_SOURCE_FORCED = 6,
  DFGNN_SOURCE_MODEL = 7
} dfgnn_source;
typedef enum dfgnn_log_level {
  DFGNN_LOG_DEFAULT = 0,
  DFGNN_LOG_NONE = 1,
  DFGNN_LOG_ERROR = 2,
  DFGNN_LOG_WARN = 3,
  DFGNN_LOG_INFO = 4,
  DFGNN_LOG_DEBUG = 5
} dfgnn_log_level;
typedef struct dfgnn_strides {
  int64_t node, head, feature;
} dfgnn_strides;
#define DFGNN_HISTOGRAM_BINS 24
typedef struct dfgnn_signature {
  size_t struct_size;
  int64_t destinations, sources, edges;
  int64_t max_degree;
  double mean_degree;
  int64_t p50_degree, p90_degree, p99_degree;
  double degree_cv;
  double isolated;
  double histogram[DFGNN_HISTOGRAM_BINS];
  double reuse;
  double locality;
  int64_t graphs;
  int64_t largest_graph;
  double density;
  uint64_t fingerprint;
  int64_t max_source_degree, p50_source_degree, p99_source_degree;
  double source_cv;
  double isolated_sources;
} dfgnn_signature;
#endif
#ifndef DFGNN_H
#define DFGNN_H
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
typedef enum dfgnn_status {
  DFGNN_OK = 0,
  DFGNN_ERROR_INVALID = -1,
  DFGNN_ERROR_MEMORY = -2,
  DFGNN_ERROR_UNSUPPORTED = -3,
  DFGNN_ERROR_NOT_TUNED = -4,
  DFGNN_ERROR_DEVICE = -5,
  DFGNN_ERROR_IO = -6,
  DFGNN_ERROR_FORMAT = -7,
  DFGNN_ERROR_STORE = -8,
  DFGNN_ERROR_CAPTURING = -9,
  DFGNN_ERROR_INTERRUPTED = -10,
  DFGNN_ERROR_WRONG = -11
} dfgnn_status;
DFGNN_API const char *dfgnn_status_string(dfgnn_status status);
DFGNN_API const char *dfgnn_last_error(void);
DFGNN_API const char *dfgnn_version(void);
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
DFGNN_API const char *dfgnn_name(dfgnn_names of, int value);
DFGNN_API dfgnn_status dfgnn_parse(int *value, dfgnn_names of,
                                   const char *name);
DFGNN_API size_t dfgnn_dtype_size(dfgnn_dtype dtype);
typedef struct dfgnn_context dfgnn_context;
typedef void (*dfgnn_log_function)(void *data, dfgnn_log_level level,
                                   const char *message);
typedef struct dfgnn_options {
  size_t struct_size;
  const char *device;
  const char *store;
  dfgnn_effort effort;
  int threads;
  int64_t paper_capacity;
  dfgnn_log_level log_level;
  dfgnn_log_function log;
  void *log_data;
} dfgnn_options;
#define DFGNN_OPTIONS_INIT DFGNN_INIT(dfgnn_options)
DFGNN_API dfgnn_status dfgnn_context_create(dfgnn_context **ctx,
                                            const dfgnn_options *options);
DFGNN_API void dfgnn_context_destroy(dfgnn_context *ctx);
DFGNN_API dfgnn_status dfgnn_context_reload(dfgnn_context *ctx);
typedef struct dfgnn_device_info {
  size_t struct_size;
  char backend[16];
  char arch[32];
  char model[128];
  int ordinal;
  int units;
  int64_t cache_bytes;
  int64_t memory_bytes;
  int64_t shared_bytes;
  char driver[32];
  char runtime[32];
} dfgnn_device_info;
#define DFGNN_DEVICE_INFO_INIT DFGNN_INIT(dfgnn_device_info)
DFGNN_API dfgnn_status dfgnn_context_device(dfgnn_device_info *info,
                                            const dfgnn_context *ctx);
typedef struct dfgnn_csr {
  size_t struct_size;
  int64_t destinations;
  int64_t sources;
  int64_t edges;
  const void *offsets;
  const void *indices;
  dfgnn_index_type offset_type, index_type;
  int on_device;
  int64_t graphs;
  const int64_t *graph_ptr;
  const char *family;
  const char *name;
  int trusted;
  void *stream;
  const void *column_offsets;
  const void *column_rows;
  const void *column_edges;
  int refilled;
} dfgnn_csr;
#define DFGNN_CSR_INIT DFGNN_INIT(dfgnn_csr)
typedef struct dfgnn_graph dfgnn_graph;
DFGNN_API dfgnn_status dfgnn_graph_create_csr(dfgnn_graph **graph,
                                              dfgnn_context *ctx,
                                              const dfgnn_csr *csr,
                                              void *stream);
typedef struct dfgnn_coo {
  size_t struct_size;
  int64_t destinations, sources, edges;
  const void *destination, *source;
  dfgnn_index_type index_type;
  int on_device;
  int64_t graphs;
  const int64_t *graph_ptr;
  const char *family, *name;
  int sorted;
  int trusted;
  int self_loops;
} dfgnn_coo;
#define DFGNN_COO_INIT DFGNN_INIT(dfgnn_coo)
DFGNN_API dfgnn_status dfgnn_graph_create_coo(dfgnn_graph **graph,
                                              dfgnn_context *ctx,
                                              const dfgnn_coo *coo,
                                              void *stream);
DFGNN_API const void *dfgnn_graph_edge_order(const dfgnn_graph *graph,
                                             dfgnn_index_type *type);
DFGNN_API dfgnn_status dfgnn_graph_csr(dfgnn_csr *csr,
                                       const dfgnn_graph *graph);
DFGNN_API void dfgnn_graph_destroy(dfgnn_graph *graph);
DFGNN_API void dfgnn_graph_destroy_on(dfgnn_graph *graph, void *stream);
DFGNN_API size_t dfgnn_graph_bytes(const dfgnn_graph *graph);
typedef struct dfgnn_problem {
  size_t struct_size;
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  dfgnn_math math;
  dfgnn_layout layout;
  dfgnn_effort effort;
  int64_t heads;
  int64_t dim;
  int deterministic;
  int weights;
  int cold;
  int64_t max_workspace;
  int bias;
  int dropout;
  int64_t edge_dim;
  dfgnn_edge_use edge_use;
  int reserved;
  dfgnn_message message;
  int accumulate;
  int edge_list;
  int unused;
  const struct dfgnn_edge_program *program;
  const struct dfgnn_mlp_shape *mlp;
} dfgnn_problem;
#define DFGNN_PROBLEM_INIT                                                     \
  {                                                                            \
    sizeof(dfgnn_problem), DFGNN_OP_GT, DFGNN_PASS_FORWARD, DFGNN_F32,         \
        DFGNN_MATH_F32, DFGNN_LAYOUT_NHD, DFGNN_EFFORT_DEFAULT, 1, 64, 1, 0,   \
        0, -1, 0, 0, 0, DFGNN_EDGE_BOTH, 0, DFGNN_MESSAGE_COPY, 0, 0, 0, NULL, \
        NULL                                                                   \
  }
#define DFGNN_SCALE_DEFAULT (-__builtin_inf())
typedef struct dfgnn_args {
  size_t struct_size;
  const void *query;
  const void *key;
  const void *value;
  const void *score_dst;
  const void *score_src;
  const void *att;
  const void *beta;
  void *out;
  void *lse;
  void *weights;
  double scale;
  double slope;
  dfgnn_strides query_strides, key_strides, value_strides, out_strides;
  const void *bias;
  double dropout;
  const uint64_t *seed;
  uint64_t seed_value;
  const void *edge_weight;
  const void *scale_dst;
  const void *scale_src;
  void *out_min, *out_max, *out_std;
  int32_t *arg_min, *arg_max;
  const void *grad_out;
  const void *grad_out_min, *grad_out_max, *grad_out_std;
  void *grad_query;
  void *grad_key;
  void *grad_value;
  void *grad_score_dst;
  void *grad_score_src;
  void *grad_att;
  void *grad_beta;
  void *grad_bias;
  void *grad_edge_weight;
  dfgnn_strides grad_out_strides, grad_query_strides, grad_key_strides,
      grad_value_strides;
  const void *edge_attr;
  const void *edge_bias;
  const void *score_edge;
  const void *reserved_norm[3];
  const void *gate_dst;
  const void *gate_src;
  void *grad_edge_attr;
  void *grad_edge_bias;
  void *grad_score_edge;
  void *reserved_grad_norm[2];
  void *grad_gate_dst;
  void *grad_gate_src;
  dfgnn_strides gate_dst_strides, gate_src_strides, grad_gate_dst_strides,
      grad_gate_src_strides;
  const void *grad_lse;
  const int64_t *edge_number;
  int old_scale;
  int unused;
  const struct dfgnn_edge_tensor *program_inputs, *program_outputs;
  int program_input_count, program_output_count;
  const struct dfgnn_edge_mlp *mlp;
  const struct dfgnn_edge_mlp_args *mlp_args;
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
  {                                                                            \
    .struct_size = sizeof(dfgnn_args), .scale = DFGNN_SCALE_DEFAULT,           \
    .slope = 0.2                                                               \
  }
#endif
typedef struct dfgnn_plan dfgnn_plan;
DFGNN_API dfgnn_status dfgnn_plan_create(dfgnn_plan **plan, dfgnn_context *ctx,
                                         dfgnn_graph *graph,
                                         const dfgnn_problem *problem);
DFGNN_API dfgnn_status dfgnn_plan_create_forced(dfgnn_plan **plan,
                                                dfgnn_context *ctx,
                                                dfgnn_graph *graph,
                                                const dfgnn_problem *problem,
                                                const char *variant);
DFGNN_API void dfgnn_plan_destroy(dfgnn_plan *plan);
DFGNN_API size_t dfgnn_plan_workspace(const dfgnn_plan *plan);
DFGNN_API const char *dfgnn_plan_variant(const dfgnn_plan *plan);
DFGNN_API dfgnn_source dfgnn_plan_source(const dfgnn_plan *plan);
DFGNN_API dfgnn_status dfgnn_execute(const dfgnn_plan *plan,
                                     const dfgnn_args *args, void *workspace,
                                     void *stream);
DFGNN_API dfgnn_status dfgnn_call(dfgnn_context *ctx, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_args *args, void *stream);
#ifdef __cplusplus
}
#endif
#endif
#ifndef DFGNN_GRAPH_H
#define DFGNN_GRAPH_H
#ifdef __cplusplus
extern "C" {
#endif
#define DFGNN_SIGNATURE_INIT DFGNN_INIT(dfgnn_signature)
DFGNN_API dfgnn_status dfgnn_graph_signature(dfgnn_signature *signature,
                                             const dfgnn_graph *graph);
DFGNN_API dfgnn_status dfgnn_graph_create_deferred(dfgnn_graph **graph,
                                                   dfgnn_context *ctx,
                                                   const dfgnn_coo *coo,
                                                   void *stream);
#define DFGNN_STREAM_USED ((void *)-1)
DFGNN_API dfgnn_status dfgnn_graph_fill_loops(const dfgnn_graph *graph,
                                              dfgnn_dtype dtype, int64_t width,
                                              int mean, const void *given,
                                              void *filled);
DFGNN_API dfgnn_status dfgnn_graph_fill_loops_backward(const dfgnn_graph *graph,
                                                       dfgnn_dtype dtype,
                                                       int64_t width, int mean,
                                                       const void *grad_filled,
                                                       void *grad_given);
DFGNN_API dfgnn_status dfgnn_csr_read(dfgnn_csr **csr, const char *path);
DFGNN_API dfgnn_status dfgnn_csr_write(const dfgnn_csr *csr, const char *path);
DFGNN_API dfgnn_status dfgnn_csr_generate(dfgnn_csr **csr, const char *spec);
DFGNN_API void dfgnn_csr_free(dfgnn_csr *csr);
typedef enum dfgnn_order {
  DFGNN_ORDER_DEGREE = 0,
  DFGNN_ORDER_RCM = 1,
  DFGNN_ORDER_METIS = 2,
  DFGNN_ORDER_COMMUNITY = 3,
  DFGNN_ORDER_COUNT
} dfgnn_order;
DFGNN_API dfgnn_status dfgnn_csr_order(int64_t *rows, int64_t *columns,
                                       const dfgnn_csr *csr, dfgnn_order order);
DFGNN_API dfgnn_status dfgnn_csr_permute(dfgnn_csr **permuted, int64_t *edges,
                                         const dfgnn_csr *csr,
                                         const int64_t *rows,
                                         const int64_t *columns);
typedef struct dfgnn_reordering {
  size_t struct_size;
  dfgnn_order order;
  const int64_t *rows;
  const int64_t *columns;
  int keep_columns;
  int inside;
} dfgnn_reordering;
#define DFGNN_REORDERING_INIT DFGNN_INIT(dfgnn_reordering)
DFGNN_API dfgnn_status dfgnn_graph_create_reordered(dfgnn_graph **graph,
                                                    dfgnn_context *ctx,
                                                    const dfgnn_csr *csr,
                                                    const dfgnn_reordering *how,
                                                    void *stream);
DFGNN_API dfgnn_status dfgnn_graph_order(int64_t *rows, int64_t *columns,
                                         const dfgnn_graph *graph);
typedef enum dfgnn_partitioning {
  DFGNN_PARTITION_METIS = 0,
  DFGNN_PARTITION_RANGE = 1,
  DFGNN_PARTITION_COUNT
} dfgnn_partitioning;
#define DFGNN_PARTS_MAX 4096
DFGNN_API dfgnn_status dfgnn_csr_partition(int32_t *owner, const dfgnn_csr *csr,
                                           int parts, dfgnn_partitioning how);
typedef struct dfgnn_part {
  size_t struct_size;
  int parts, rank;
  int64_t total_nodes, total_edges;
  int64_t nodes, halo, edges;
  int64_t cut;
  int64_t boundary;
  int64_t sends;
  const int64_t *node, *halo_node;
  const int64_t *receive;
  const int64_t *send;
  const int64_t *send_row;
  const int64_t *first_edge;
  const int64_t *offset;
  const int32_t *index;
  uint64_t fingerprint;
  uint64_t digest;
} dfgnn_part;
DFGNN_API dfgnn_status dfgnn_part_create(dfgnn_part **part,
                                         const dfgnn_csr *csr,
                                         const int32_t *owner, int parts,
                                         int rank);
DFGNN_API dfgnn_status dfgnn_part_write(const dfgnn_part *part,
                                        const char *path);
DFGNN_API void dfgnn_part_free(dfgnn_part *part);
#ifdef __cplusplus
}
#endif
#endif
#ifndef DFGNN_TUNE_H
#define DFGNN_TUNE_H
#ifdef __cplusplus
extern "C" {
#endif
typedef struct dfgnn_variant_info {
  size_t struct_size;
  const char *name;
  const char *algorithm;
  const char *backend;
  const char *parameters;
  uint32_t ops, passes;
  int revision;
  int deterministic;
} dfgnn_variant_info;
#define DFGNN_VARIANT_INFO_INIT DFGNN_INIT(dfgnn_variant_info)
DFGNN_API size_t dfgnn_variant_count(void);
DFGNN_API dfgnn_status dfgnn_variant_get(dfgnn_variant_info *info, size_t i);
typedef enum dfgnn_remeasure {
  DFGNN_REMEASURE_NONE = 0,
  DFGNN_REMEASURE_ALL,
  DFGNN_REMEASURE_NOISY
} dfgnn_remeasure;
typedef struct dfgnn_tune_options {
  size_t struct_size;
  double budget_s;
  uint64_t seed;
  double margin;
  int exhaustive;
  int remeasure;
  const char *tool;
  const char *job_hash;
  const char *const *variants;
  void (*progress)(void *data, double done, const char *message);
  int (*stop)(void *data);
  void *data;
} dfgnn_tune_options;
#define DFGNN_TUNE_OPTIONS_INIT DFGNN_INIT(dfgnn_tune_options)
typedef struct dfgnn_tune_report {
  size_t struct_size;
  char variant[160];
  char anchor[160];
  double median_ms, ratio;
  int candidates, measured, wrong, failed;
  int resumed;
  int separated;
  int kept;
  double seconds;
  double payback_calls;
} dfgnn_tune_report;
#define DFGNN_TUNE_REPORT_INIT DFGNN_INIT(dfgnn_tune_report)
DFGNN_API dfgnn_status dfgnn_tune(dfgnn_tune_report *report, dfgnn_context *ctx,
                                  dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_tune_options *options);
typedef struct dfgnn_candidate {
  const char *variant;
  const char *reason;
  double measured;
  double predicted;
} dfgnn_candidate;
typedef struct dfgnn_explanation {
  const char *variant;
  dfgnn_source source;
  double distance;
  const char *because;
  size_t count;
  const dfgnn_candidate *candidates;
  const char *model;
} dfgnn_explanation;
DFGNN_API dfgnn_status dfgnn_plan_explain(dfgnn_explanation **explanation,
                                          const dfgnn_plan *plan);
DFGNN_API void dfgnn_explanation_free(dfgnn_explanation *explanation);
typedef struct dfgnn_counters {
  size_t struct_size;
  uint64_t exact, similar, nearest;
  uint64_t misses;
  uint64_t cached;
  uint64_t invalid_rows;
  uint64_t loaded_rows;
  uint64_t model;
} dfgnn_counters;
#define DFGNN_COUNTERS_INIT DFGNN_INIT(dfgnn_counters)
DFGNN_API dfgnn_status dfgnn_context_counters(dfgnn_counters *counters,
                                              const dfgnn_context *ctx);
#define DFGNN_DIGEST_SIZE 33
DFGNN_API dfgnn_status dfgnn_context_digest(char digest[DFGNN_DIGEST_SIZE],
                                            const dfgnn_context *ctx);
typedef struct dfgnn_report_options {
  size_t struct_size;
  const char *store;
  const char *against;
  const char *const *graphs;
  const char *title;
  const char *command;
  const char *commit;
  double copy_gbps;
  int all;
} dfgnn_report_options;
#define DFGNN_REPORT_OPTIONS_INIT DFGNN_INIT(dfgnn_report_options)
DFGNN_API dfgnn_status dfgnn_report(const char *path,
                                    const dfgnn_report_options *options);
#ifdef __cplusplus
}
#endif
#endif
#ifndef DFGNN_OPERATOR_H
#define DFGNN_OPERATOR_H
#ifdef __cplusplus
extern "C" {
#endif
typedef enum dfgnn_role {
  DFGNN_ROLE_INPUT = 0,
  DFGNN_ROLE_MODIFIER = 1,
  DFGNN_ROLE_SAVED = 2,
  DFGNN_ROLE_OUTPUT = 3,
  DFGNN_ROLE_OPTIONAL = 4,
  DFGNN_ROLE_GRADIENT = 5,
  DFGNN_ROLE_COUNT
} dfgnn_role;
typedef enum dfgnn_element {
  DFGNN_ELEMENT_STORAGE = 0,
  DFGNN_ELEMENT_SCALAR = 1,
  DFGNN_ELEMENT_INDEX = 2,
  DFGNN_ELEMENT_COUNT
} dfgnn_element;
typedef enum dfgnn_flag {
  DFGNN_FLAG_NONE = 0,
  DFGNN_FLAG_WEIGHTS = 1,
  DFGNN_FLAG_BIAS = 2,
  DFGNN_FLAG_EDGE = 3,
  DFGNN_FLAG_PROJECTION = 4,
  DFGNN_FLAG_MESSAGE = 5,
  DFGNN_FLAG_GATE = 6,
  DFGNN_FLAG_COUNT
} dfgnn_flag;
typedef struct dfgnn_tensor_info {
  size_t struct_size;
  const char *name;
  char shape[8];
  dfgnn_role role;
  dfgnn_element element;
  dfgnn_flag flag;
  int strided;
  int layer;
  size_t offset;
} dfgnn_tensor_info;
#define DFGNN_TENSOR_INFO_INIT DFGNN_INIT(dfgnn_tensor_info)
DFGNN_API dfgnn_status dfgnn_operator_tensor(dfgnn_tensor_info *info,
                                             dfgnn_op op, dfgnn_pass pass,
                                             int i);
#ifdef __cplusplus
}
#endif
#endif
#ifndef DFGNN_PROGRAM_H
#define DFGNN_PROGRAM_H
#ifdef __cplusplus
extern "C" {
#endif
typedef struct dfgnn_edge_program dfgnn_edge_program;
typedef enum dfgnn_edge_place {
  DFGNN_EDGE_PARAM = 1,
  DFGNN_EDGE_DST = 2,
  DFGNN_EDGE_SRC = 3,
  DFGNN_EDGE_EDGE = 4,
  DFGNN_EDGE_REL = 5
} dfgnn_edge_place;
DFGNN_API dfgnn_status dfgnn_graph_set_relations(dfgnn_graph *graph,
                                                 int64_t count,
                                                 const int32_t *of_edge,
                                                 int on_device, void *stream);
typedef enum dfgnn_edge_role {
  DFGNN_EDGE_OWN = 0,
  DFGNN_EDGE_INPUT = 1,
  DFGNN_EDGE_OUTPUT = 2,
  DFGNN_EDGE_COTANGENT = 3,
  DFGNN_EDGE_GRADIENT = 4
} dfgnn_edge_role;
#define DFGNN_EDGE_NAME 64
typedef struct dfgnn_edge_value {
  size_t struct_size;
  char name[DFGNN_EDGE_NAME];
  dfgnn_edge_place place;
  int rank;
  int64_t axes[3];
  dfgnn_edge_role role;
  int of;
  int kept;
  char argument[DFGNN_EDGE_NAME];
  int reserved;
  int zero;
} dfgnn_edge_value;
#define DFGNN_EDGE_VALUE_INIT DFGNN_INIT(dfgnn_edge_value)
DFGNN_API dfgnn_status dfgnn_edge_program_create(dfgnn_edge_program **program,
                                                 const char *text);
DFGNN_API void dfgnn_edge_program_destroy(dfgnn_edge_program *program);
DFGNN_API const char *
dfgnn_edge_program_text(const dfgnn_edge_program *program);
DFGNN_API uint64_t dfgnn_edge_program_hash(const dfgnn_edge_program *program);
DFGNN_API dfgnn_status dfgnn_edge_program_walks(
    int *rows, int *columns, const dfgnn_edge_program *program);
DFGNN_API int dfgnn_edge_program_input_count(const dfgnn_edge_program *program);
DFGNN_API int
dfgnn_edge_program_output_count(const dfgnn_edge_program *program);
DFGNN_API dfgnn_status dfgnn_edge_program_input(
    dfgnn_edge_value *value, const dfgnn_edge_program *program, int i);
DFGNN_API dfgnn_status dfgnn_edge_program_output(
    dfgnn_edge_value *value, const dfgnn_edge_program *program, int i);
typedef struct dfgnn_edge_operator {
  size_t struct_size;
  int found;
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_message message;
  dfgnn_edge_use edge_use;
  int64_t heads, dim, edge_dim;
  double scale, slope;
  double dropout;
} dfgnn_edge_operator;
#define DFGNN_EDGE_OPERATOR_INIT DFGNN_INIT(dfgnn_edge_operator)
DFGNN_API dfgnn_status dfgnn_edge_program_operator(
    dfgnn_edge_operator *found, const dfgnn_edge_program *program);
DFGNN_API dfgnn_status dfgnn_edge_program_gradient(
    dfgnn_edge_program **gradient, const dfgnn_edge_program *program,
    const unsigned char *outputs, const unsigned char *inputs);
DFGNN_API dfgnn_status dfgnn_edge_program_keep(
    dfgnn_edge_program **kept, const dfgnn_edge_program *program,
    const unsigned char *outputs, const unsigned char *inputs);
typedef struct dfgnn_edge_size {
  const char *name;
  int64_t value;
} dfgnn_edge_size;
DFGNN_API dfgnn_status dfgnn_edge_program_sized(
    dfgnn_edge_program **sized, const dfgnn_edge_program *program,
    const dfgnn_edge_size *sizes, int count);
DFGNN_API dfgnn_status dfgnn_edge_program_problem(
    dfgnn_problem *problem, const dfgnn_edge_program *program,
    dfgnn_dtype dtype);
typedef struct dfgnn_edge_tensor {
  const char *name;
  void *data;
  dfgnn_dtype dtype;
  int rank;
  int64_t axes[3];
} dfgnn_edge_tensor;
DFGNN_API dfgnn_status
dfgnn_edge_program_execute(const dfgnn_edge_program *program,
                           dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                           int input_count, const dfgnn_edge_tensor *outputs,
                           int output_count, uint64_t seed, void *stream);
typedef struct dfgnn_edge_run {
  size_t struct_size;
  uint64_t seed_value;
  const uint64_t *seed;
  void *workspace;
  void *stream;
} dfgnn_edge_run;
#define DFGNN_EDGE_RUN_INIT DFGNN_INIT(dfgnn_edge_run)
DFGNN_API dfgnn_status dfgnn_edge_program_run(const dfgnn_edge_program *program,
                                              dfgnn_graph *graph,
                                              const dfgnn_edge_tensor *inputs,
                                              int input_count,
                                              const dfgnn_edge_tensor *outputs,
                                              int output_count,
                                              const dfgnn_edge_run *how);
DFGNN_API dfgnn_status dfgnn_edge_program_call(
    dfgnn_problem *problem, dfgnn_args *args, const dfgnn_edge_program *program,
    dfgnn_graph *graph, const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count,
    const dfgnn_edge_run *how, int as_program);
DFGNN_API dfgnn_status dfgnn_edge_program_execute_in(
    const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed,
    void *workspace, void *stream);
DFGNN_API dfgnn_status dfgnn_edge_program_workspace(
    size_t *bytes, const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count);
DFGNN_API dfgnn_status dfgnn_edge_program_check(
    double *worst, int *where, const dfgnn_edge_program *program,
    dfgnn_graph *graph, const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed);
#ifdef __cplusplus
}
#endif
#endif
#ifndef DFGNN_MLP_H
#define DFGNN_MLP_H
#ifdef __cplusplus
extern "C" {
#endif
#define DFGNN_MLP_LAYERS 4
#define DFGNN_MLP_WIDTH 4096
typedef enum dfgnn_activation {
  DFGNN_ACTIVATION_NONE = 0,
  DFGNN_ACTIVATION_RELU = 1,
  DFGNN_ACTIVATION_SILU = 2,
  DFGNN_ACTIVATION_GELU = 3,
  DFGNN_ACTIVATION_GELU_TANH = 4,
  DFGNN_ACTIVATION_ELU = 5,
  DFGNN_ACTIVATION_LEAKY_RELU = 6,
  DFGNN_ACTIVATION_TANH = 7,
  DFGNN_ACTIVATION_SIGMOID = 8,
  DFGNN_ACTIVATION_SOFTPLUS = 9,
  DFGNN_ACTIVATION_COUNT
} dfgnn_activation;
typedef enum dfgnn_norm {
  DFGNN_NORM_NONE = 0,
  DFGNN_NORM_LAYER = 1,
  DFGNN_NORM_RMS = 2,
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
typedef struct dfgnn_edge_mlp {
  size_t struct_size;
  dfgnn_dtype dtype;
  dfgnn_math math;
  int layers;
  int64_t edge_dim;
  int64_t width[DFGNN_MLP_LAYERS];
  dfgnn_activation activation;
  dfgnn_activation last;
  double slope;
  int gate;
  dfgnn_norm norm;
  double epsilon;
  int residual;
  dfgnn_reduce reduce_dst, reduce_src;
  int edge_list;
  int reserved;
} dfgnn_edge_mlp;
#define DFGNN_EDGE_MLP_INIT DFGNN_INIT(dfgnn_edge_mlp)
typedef struct dfgnn_edge_mlp_args {
  size_t struct_size;
  const void *edge;
  const void *dst_part;
  const void *src_part;
  const void *weight[DFGNN_MLP_LAYERS];
  const void *bias[DFGNN_MLP_LAYERS];
  const void *norm_weight, *norm_bias;
  const void *dst_factor;
  const void *src_factor;
  void *edge_out;
  void *out_dst;
  void *out_src;
  int32_t *arg_dst;
  int32_t *arg_src;
  const void *grad_edge_out;
  const void *grad_out_dst;
  const void *grad_out_src;
  void *grad_edge;
  void *grad_dst_part;
  void *grad_src_part;
  void *grad_weight[DFGNN_MLP_LAYERS];
  void *grad_bias[DFGNN_MLP_LAYERS];
  void *grad_norm_weight;
  void *grad_norm_bias;
  void *grad_dst_factor;
  void *grad_src_factor;
  void *kept[DFGNN_MLP_LAYERS];
} dfgnn_edge_mlp_args;
#define DFGNN_EDGE_MLP_ARGS_INIT DFGNN_INIT(dfgnn_edge_mlp_args)
DFGNN_API dfgnn_status dfgnn_edge_mlp_execute(const dfgnn_edge_mlp *mlp,
                                              dfgnn_graph *graph,
                                              const dfgnn_edge_mlp_args *args,
                                              dfgnn_pass pass, void *stream);
DFGNN_API dfgnn_status
dfgnn_edge_mlp_execute_in(const dfgnn_edge_mlp *mlp, dfgnn_graph *graph,
                          const dfgnn_edge_mlp_args *args, dfgnn_pass pass,
                          void *workspace, void *stream);
DFGNN_API dfgnn_status dfgnn_edge_mlp_workspace(size_t *bytes,
                                                const dfgnn_edge_mlp *mlp,
                                                dfgnn_graph *graph,
                                                const dfgnn_edge_mlp_args *args,
                                                dfgnn_pass pass);
DFGNN_API dfgnn_status dfgnn_edge_mlp_serves(const dfgnn_edge_mlp *mlp,
                                             dfgnn_graph *graph,
                                             const dfgnn_edge_mlp_args *args,
                                             dfgnn_pass pass);
DFGNN_API int64_t dfgnn_edge_mlp_kept_width(const dfgnn_edge_mlp *mlp,
                                            int layer);
DFGNN_API dfgnn_status dfgnn_edge_mlp_keep(int64_t *bytes,
                                           const dfgnn_edge_mlp *mlp,
                                           dfgnn_graph *graph,
                                           const dfgnn_edge_mlp_args *forward,
                                           const dfgnn_edge_mlp_args *backward);
DFGNN_API dfgnn_status dfgnn_edge_mlp_problem(dfgnn_problem *problem,
                                              const dfgnn_edge_mlp *mlp,
                                              const dfgnn_edge_mlp_args *args,
                                              dfgnn_pass pass);
DFGNN_API dfgnn_status dfgnn_edge_mlp_parse(dfgnn_problem *problem,
                                            const char *text, dfgnn_dtype dtype,
                                            dfgnn_math math, dfgnn_pass pass);
DFGNN_API const char *dfgnn_edge_mlp_text(const dfgnn_problem *problem);
DFGNN_API dfgnn_status dfgnn_edge_mlp_check(double *worst, const char **where,
                                            const dfgnn_edge_mlp *mlp,
                                            dfgnn_graph *graph,
                                            const dfgnn_edge_mlp_args *args,
                                            dfgnn_pass pass);
#ifdef __cplusplus
}
#endif
#endif
