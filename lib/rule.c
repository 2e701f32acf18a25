/* rule.c - the choice where nothing was measured
 *
 * The DF-GNN paper's rule picks PMF for super nodes with dot scores and SMMF
 * otherwise.  The refined rule below knows the other algorithms; its rows are
 * tried in order. */
#include <stdio.h>
#include <string.h>

#include "lib/operator.h"
#include "lib/select.h"

typedef struct rule_row {
  const char *backend;
  const char *kind; /* of the operator: "attention.fwd" */
  int (*holds)(const dfgnn_setting *setting);
  const char *algorithm;
  const char *values; /* as below; NULL: those */
  const char *because;
} rule_row;

/* Settings of an algorithm that do well on most graphs. */
typedef struct preference {
  const char *backend;
  const char *kind;      /* as above */
  const char *algorithm; /* NULL: every other one */
  const char *values; /* "name=value,...", the most important first; what is not
                       * named takes the family's first value */
} preference;

static int always(const dfgnn_setting *s) {
  (void)s;
  return 1;
}

/* One row is more than a unit's fair share of the work. */
static int dominated(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return (double)g->max_degree * 4 * s->device->units > (double)g->edges &&
         g->max_degree > 256;
}

/* The gathered table over the cache. */
static double table_share(const dfgnn_setting *s) {
  return (double)s->signature->sources *
         (double)(s->problem->heads * s->problem->dim) *
         (double)dfgnn_dtype_size(s->problem->dtype) /
         (double)s->device->cache_bytes;
}

/* Rows gathered at random from two tables well beyond the cache. */
static int beyond_cache(const dfgnn_setting *s) {
  const dfgnn_operator *op = dfgnn__operator(s->problem->op, s->problem->pass);
  return op->gathers > 1 && s->problem->heads == 1 && table_share(s) > 1.5 &&
         s->signature->locality < 0.3 && s->signature->mean_degree > 64;
}

/* Too few edges to fill the device: rows are cut to use more of it. */
static int starved(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return g->edges < (int64_t)s->device->units * 256 && g->max_degree > 64;
}

static int batched(const dfgnn_setting *s) { return s->signature->graphs > 16; }

static int batched_thin(const dfgnn_setting *s) {
  return batched(s) && s->signature->mean_degree < 12;
}

/* Rows that meet most of their graph, with scores that tensor cores or a scalar
 * a node give. */
static int dense_blocks(const dfgnn_setting *s) {
  return batched(s) && s->signature->density > 0.25 &&
         s->signature->mean_degree > 16 && s->problem->op != DFGNN_OP_GATV2;
}

static int dense_dot(const dfgnn_setting *s) {
  return dense_blocks(s) && s->problem->op == DFGNN_OP_GT;
}

/* The same of heads so narrow that eight of their rows are a few loads. */
static int dense_narrow(const dfgnn_setting *s) {
  return dense_blocks(s) && s->problem->heads > 1 && s->problem->dim <= 32;
}

static int narrow_types(const dfgnn_setting *s) {
  return s->problem->dtype == DFGNN_F16 || s->problem->dtype == DFGNN_BF16;
}

/* Sums of two products an edge are worth it in 16 bits alone. */
static int dense_narrow_gradients(const dfgnn_setting *s) {
  return dense_narrow(s) && (narrow_types(s) || s->problem->op == DFGNN_OP_GAT);
}

/* Less exact products are allowed, and 16 rows share most of what they gather.
 */
static int shared_columns(const dfgnn_setting *s) {
  return (narrow_types(s) || s->problem->math == DFGNN_MATH_TF32) &&
         s->problem->op == DFGNN_OP_GT && s->signature->reuse < 0.5 &&
         s->signature->mean_degree > 64;
}

/* Several sums a feature: registers are short. */
static int sums_moments(const dfgnn_setting *s) {
  const dfgnn_op op = s->problem->op;
  return (op == DFGNN_OP_REDUCE_PNA || op == DFGNN_OP_REDUCE_VAR ||
          op == DFGNN_OP_REDUCE_STD) &&
         !starved(s) && !dominated(s);
}

/* Several heads narrow enough to share a warp. */
static int batched_heads(const dfgnn_setting *s) {
  return batched(s) && s->problem->heads > 1 && s->problem->dim <= 32;
}

static int scattered(const dfgnn_setting *s) {
  return s->signature->locality < 0.3;
}

static int scattered_moments(const dfgnn_setting *s) {
  return sums_moments(s) && scattered(s) && !batched(s);
}

/* Rows gathered at random from a table beyond the cache: panels of features
 * fit. */
static int panels(const dfgnn_setting *s) {
  return table_share(s) > 0.9 && scattered(s) && s->signature->mean_degree > 64;
}

/* A score of as many operations as features: few lanes share one. */
static int long_rows_of_sums(const dfgnn_setting *s) {
  return s->problem->op == DFGNN_OP_GATV2 && s->signature->mean_degree > 64;
}

static int thin_panels(const dfgnn_setting *s) {
  return panels(s) && table_share(s) > 2.2;
}

#define SIMD "simd=avx512,simd=avx2,"

/* One scalar an edge and head saves the gather of a row. */
static int scores_scalars(const dfgnn_setting *s) {
  return s->problem->op == DFGNN_OP_GAT;
}

/* Edge features of scores that are products, or normalised queries and keys. */
static int with_edges(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return (p->edge_dim && p->op != DFGNN_OP_GAT) || p->qk_norm;
}

static int has_edges(const dfgnn_setting *s) {
  return s->problem->edge_dim != 0;
}

#define FORWARD "attention.fwd"
#define BACKWARD "attention.bwd"

/* The settings of SpMM and reductions on a CPU. */
#define CPU_GATHER                                                             \
  SIMD "prefetch=24,schedule=dynamic,rows=64,edges=1024,parts=16,panel=32"

/* Two vectors a lane, or the widest that the features fill. */
#define CUDA_LANES "lanes=16,lanes=8,lanes=32,vectors=2,"
#define CUDA_GATHER                                                            \
  CUDA_LANES "span=once,order=natural,unroll=4,rows=1,edges=256,steps=256"

static const preference preferences[] = {
    {"cuda", "spmm.fwd", "cusparse", "alg=3"},
    {"cuda", "spmm.bwd", "cusparse", "alg=3"},
    {"cuda", "spmm.fwd", NULL, CUDA_GATHER},
    {"cuda", "spmm.bwd", NULL, CUDA_GATHER},
    {"cuda", "reduce.fwd", NULL, CUDA_GATHER},
    {"cuda", "reduce.bwd", NULL, CUDA_GATHER},
    {"cpu", "spmm.fwd", NULL, CPU_GATHER},
    {"cpu", "spmm.bwd", NULL, CPU_GATHER},
    {"cpu", "reduce.fwd", NULL, CPU_GATHER},
    {"cpu", "reduce.bwd", NULL, CPU_GATHER},
    {"cpu", FORWARD, "split", SIMD "edges=1024,prefetch=24"},
    {"cpu", FORWARD, "smmf", SIMD "rows=512,schedule=dynamic"},
    {"cpu", FORWARD, "pmf", SIMD "edges=8192,schedule=balanced"},
    {"cpu", FORWARD, NULL, SIMD "schedule=dynamic,schedule=balanced"},
    {"cpu", BACKWARD, "spill",
     SIMD "first=columns,schedule=dynamic,prefetch=24"},
    {"cpu", BACKWARD, "split", SIMD "edges=1024,prefetch=24"},
    {"cpu", BACKWARD, NULL, SIMD "schedule=dynamic,prefetch=24"},
    {"cuda", FORWARD, "online",
     "heads=warp,span=once,order=natural,lanes=16,unroll=4,warps=4"},
    {"cuda", FORWARD, "split",
     "heads=warp,edges=256,lanes=16,unroll=4,span=dealt"},
    {"cuda", FORWARD, "sliced", "edges=1024,unroll=8,panel=32"},
    {"cuda", FORWARD, "unfused", "edges=1024,unroll=8,lib=cusparse-alg3"},
    {"cuda", BACKWARD, "twopass",
     "heads=warp,span=once,order=natural,lanes=16,unroll=2,rows=1"},
    {"cuda", BACKWARD, "spill",
     "heads=warp,span=once,lanes=16,unroll=1,rows=1"},
    {"cuda", BACKWARD, "split",
     "heads=warp,edges=512,lanes=16,unroll=2,span=dealt"},
};

#define CUDA_GATHER_ROWS(kind, heavy)                                          \
  {"cuda",                                                                     \
   kind,                                                                       \
   starved,                                                                    \
   "split",                                                                    \
   CUDA_LANES "edges=64,rows=1,unroll=4",                                      \
   "too few edges to fill the device"},                                        \
      {"cuda", kind, dominated, heavy, NULL, "one row dominates"},             \
      {"cuda",                                                                 \
       kind,                                                                   \
       thin_panels,                                                            \
       "row",                                                                  \
       "lanes=8,vectors=1,unroll=8,span=once,order=degree,rows=1",             \
       "a gathered table well beyond the L2 without locality"},                \
      {"cuda",                                                                 \
       kind,                                                                   \
       panels,                                                                 \
       "row",                                                                  \
       "lanes=16,vectors=1,unroll=8,span=once,order=degree,rows=1",            \
       "a gathered table beyond the L2 without locality"},                     \
      {"cuda",                                                                 \
       kind,                                                                   \
       batched_thin,                                                           \
       "row",                                                                  \
       "lanes=8,vectors=4,lanes=16,vectors=2,span=once,unroll=2,rows=4",       \
       "small graphs with short rows"},                                        \
      {"cuda",                                                                 \
       kind,                                                                   \
       batched,                                                                \
       "row",                                                                  \
       CUDA_LANES "span=once,unroll=4,rows=2",                                 \
       "small graphs stay in the L1"},                                         \
      {"cuda",                                                                 \
       kind,                                                                   \
       scattered,                                                              \
       "row",                                                                  \
       CUDA_LANES "span=once,order=degree,unroll=4,rows=1",                    \
       "rows of like degree run together"},                                    \
  {                                                                            \
    "cuda", kind, always, "row", NULL, "a group of lanes a row"                \
  }

static const rule_row refined[] = {
    {"cpu", "spmm.fwd", dominated, "balanced", NULL, "one row dominates"},
    {"cpu", "spmm.fwd", always, "row", NULL, "tasks of rows serve most graphs"},
    {"cpu", "spmm.bwd", dominated, "balanced", NULL, "one row dominates"},
    {"cpu", "spmm.bwd", always, "row", NULL, "tasks of rows serve most graphs"},
    {"cpu", "reduce.fwd", dominated, "balanced", NULL, "one row dominates"},
    {"cpu", "reduce.fwd", always, "row", NULL,
     "tasks of rows serve most graphs"},
    {"cpu", "reduce.bwd", dominated, "balanced", NULL, "one row dominates"},
    {"cpu", "reduce.bwd", always, "row", NULL,
     "tasks of rows serve most graphs"},
    {"cpu", FORWARD, with_edges, "edges", NULL,
     "edge features meet blocks of rows"},
    {"cpu", FORWARD, dominated, "pmf", NULL, "one row dominates"},
    {"cpu", FORWARD, always, "smmf", NULL, "blocks of rows serve most graphs"},
    {"cpu", BACKWARD, with_edges, "edges", NULL,
     "edge features meet blocks of rows"},
    {"cpu", BACKWARD, dominated, "split", NULL, "one row dominates"},
    {"cpu", BACKWARD, always, "spill", NULL,
     "a number an edge and head saves two products"},
    {"cpu", BACKWARD, always, "twopass", NULL, "no memory by edges is allowed"},
    CUDA_GATHER_ROWS("spmm.fwd", "balanced"),
    CUDA_GATHER_ROWS("spmm.bwd", "balanced"),
    {"cuda", "reduce.fwd", scattered_moments, "row",
     "lanes=16,lanes=8,vectors=1,unroll=4,span=once,order=degree,rows=1",
     "rows of like degree run together"},
    {"cuda", "reduce.fwd", sums_moments, "row",
     "lanes=32,lanes=16,lanes=8,vectors=1,unroll=4,span=once,order=natural,"
     "rows=1",
     "several sums a feature take the registers of few vectors"},
    CUDA_GATHER_ROWS("reduce.fwd", "split"),
    CUDA_GATHER_ROWS("reduce.bwd", "split"),
    {"cuda", FORWARD, has_edges, "edges", "lanes=32,rows=16,blocks=1,unroll=2",
     "products with W once a row"},
    {"cuda", FORWARD, has_edges, "lift", "lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge make its W e"},
    {"cuda", FORWARD, dense_narrow, "direct", "columns=blocks,rows=16",
     "small dense graphs of narrow heads on tensor cores"},
    {"cuda", FORWARD, dense_dot, "dense", "stages=1,rows=64",
     "small dense graphs on tensor cores"},
    {"cuda", FORWARD, dense_blocks, "dense", "stages=2,rows=32",
     "small dense graphs on tensor cores"},
    {"cuda", FORWARD, shared_columns, "window", "stages=1,rows=32,chunks=any",
     "near rows share columns, on tensor cores"},
    {"cuda", FORWARD, beyond_cache, "sliced", NULL,
     "gathered tables beyond the L2 without locality"},
    {"cuda", FORWARD, beyond_cache, "unfused", "edges=1024,unroll=8",
     "narrow tables beyond the L2 without locality"},
    {"cuda", FORWARD, starved, "split", "heads=warp,edges=32,lanes=16,unroll=4",
     "too few edges to fill the device"},
    {"cuda", FORWARD, dominated, "split",
     "heads=warp,edges=128,span=dealt,lanes=16,unroll=2", "one row dominates"},
    {"cuda", FORWARD, batched_heads, "online",
     "heads=warp,span=piece,rows=2,lanes=16,unroll=4,warps=16",
     "small graphs, several heads in a warp"},
    {"cuda", FORWARD, batched_thin, "online",
     "span=piece,rows=4,lanes=8,unroll=2,warps=16",
     "small graphs with short rows"},
    {"cuda", FORWARD, batched, "online",
     "span=piece,rows=2,lanes=8,unroll=2,warps=16",
     "small graphs stay in the L1"},
    {"cuda", FORWARD, scattered, "online",
     "heads=warp,span=once,order=degree,lanes=16,unroll=2,warps=4",
     "rows of like degree run together"},
    {"cuda", FORWARD, always, "online", NULL, "one pass serves most graphs"},
    {"cuda", BACKWARD, has_edges, "edges",
     "lanes=32,rows=16,blocks=1,unroll=1,columns=1",
     "products with W once a row"},
    {"cuda", BACKWARD, has_edges, "lift", "lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge make its W e"},
    {"cuda", BACKWARD, starved, "split",
     "heads=warp,edges=16,lanes=32,unroll=2,span=dealt",
     "too few edges to fill the device"},
    {"cuda", BACKWARD, dominated, "split",
     "heads=warp,edges=128,span=dealt,lanes=16,unroll=2", "one row dominates"},
    {"cuda", BACKWARD, dense_narrow_gradients, "direct",
     "columns=blocks,rows=16",
     "small dense graphs of narrow heads on tensor cores"},
    {"cuda", BACKWARD, batched_heads, "twopass",
     "heads=warp,span=once,rows=1,lanes=32,unroll=2,order=natural",
     "small graphs, several heads in a warp"},
    {"cuda", BACKWARD, dense_dot, "dense", "rows=64",
     "small dense graphs on tensor cores"},
    {"cuda", BACKWARD, scores_scalars, "spill", NULL,
     "a scalar an edge spares the gather of a row"},
    {"cuda", BACKWARD, batched_thin, "twopass",
     "span=piece,rows=4,lanes=8,unroll=1", "small graphs with short rows"},
    {"cuda", BACKWARD, batched, "twopass",
     "heads=warp,span=once,rows=2,lanes=8,unroll=1",
     "small graphs stay in the L1"},
    {"cuda", BACKWARD, long_rows_of_sums, "twopass",
     "heads=warp,span=once,order=natural,lanes=8,unroll=1,rows=1",
     "few lanes share a score of many operations"},
    {"cuda", BACKWARD, panels, "twopass",
     "heads=warp,span=once,order=degree,lanes=16,unroll=1,rows=1",
     "a gathered table beyond the L2 without locality"},
    {"cuda", BACKWARD, scattered, "twopass",
     "heads=warp,span=once,order=degree,lanes=16,unroll=2",
     "rows of like degree run together"},
    {"cuda", BACKWARD, always, "twopass", NULL,
     "two passes serve most graphs without memory for edges"},
};

/* How well a variant fits a list of preferred "name=value": each one weighs
 * more than all after it together. */
static int preferred(const dfgnn_variant *v, const char *prefer) {
  int score = 0;
  for (const char *part = prefer; *part;) {
    size_t length = strcspn(part, ",");
    score *= 2;
    for (const char *own = v->parameters; *own;) {
      size_t own_length = strcspn(own, ",");
      score += own_length == length && !strncmp(own, part, length);
      own += own_length + (own[own_length] == ',');
    }
    part += length + (part[length] == ',');
  }
  return score;
}

static int usable(const dfgnn_variant *v, const dfgnn_query *query) {
  return !v->family->reference &&
         !(query->broken && query->broken[dfgnn__variant_index(v)]) &&
         !dfgnn__variant_refusal(v, &query->setting);
}

static const char *kind_of(const dfgnn_query *query) {
  const dfgnn_problem *p = query->setting.problem;
  return dfgnn__operator(p->op, p->pass)->kind;
}

static const char *values_preferred(const dfgnn_query *query,
                                    const char *algorithm) {
  for (size_t r = 0; r < sizeof preferences / sizeof *preferences; r++)
    if (!strcmp(preferences[r].backend, query->setting.device->backend) &&
        !strcmp(preferences[r].kind, kind_of(query)) &&
        (!preferences[r].algorithm ||
         !strcmp(preferences[r].algorithm, algorithm)))
      return preferences[r].values;
  return "";
}

/* The best fitting variant that applies; the first of equals. */
static const dfgnn_variant *
best_fit(const dfgnn_query *query, const char *algorithm, const char *values) {
  const dfgnn_variant *best = NULL;
  int best_score = -1;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (strcmp(v->family->algorithm, algorithm))
      continue;
    int score = preferred(v, values);
    if (score > best_score && usable(v, query)) {
      best = v;
      best_score = score;
    }
  }
  return best;
}

const dfgnn_variant *dfgnn__algorithm_choice(const dfgnn_query *query,
                                             const char *algorithm) {
  return best_fit(query, algorithm, values_preferred(query, algorithm));
}

static const dfgnn_variant *first_usable(const dfgnn_query *query) {
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (usable(dfgnn__variant(i), query))
      return dfgnn__variant(i);
  return NULL;
}

void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_query *query) {
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_RULE, .distance = -1};
  for (size_t r = 0; r < sizeof refined / sizeof *refined; r++) {
    if (strcmp(refined[r].backend, query->setting.device->backend) ||
        strcmp(refined[r].kind, kind_of(query)) ||
        !refined[r].holds(&query->setting))
      continue;
    const char *values = refined[r].values;
    if (!values)
      values = values_preferred(query, refined[r].algorithm);
    choice->variant = best_fit(query, refined[r].algorithm, values);
    if (choice->variant) {
      snprintf(choice->because, sizeof choice->because, "%s",
               refined[r].because);
      return;
    }
  }
  choice->variant = first_usable(query);
  snprintf(choice->because, sizeof choice->because,
           "the first variant that applies");
}

void dfgnn__paper_choice(dfgnn_choice *choice, const dfgnn_query *query,
                         int64_t capacity) {
  const dfgnn_problem *p = query->setting.problem;
  int64_t limit = capacity / (int64_t)dfgnn_dtype_size(p->dtype);
  int64_t max_degree = query->setting.signature->max_degree;
  int super = max_degree >= limit;
  const char *const *paper = dfgnn__operator(p->op, p->pass)->paper;
  const char *algorithm = paper[super];
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_PAPER, .distance = -1};
  choice->variant = dfgnn__algorithm_choice(query, algorithm);
  snprintf(choice->because, sizeof choice->because,
           "max degree %lld %s capacity %lld%s: %s", (long long)max_degree,
           super ? ">=" : "<", (long long)limit,
           super && paper[0] == paper[1] ? " but the score is no dot product"
                                         : "",
           algorithm);
}
