/* rule.c - the choice where nothing was measured and no model answers
 *
 * The DF-GNN paper's rule picks PMF for super nodes with dot scores and SMMF
 * otherwise.  Where a model answers, it ranks every variant; this rule is for
 * other architectures and odd devices, so it asks little: do tensor cores fit,
 * are rows of uneven length, are they short.  Its rows are tried in order.
 *
 * The settings of CUDA were fitted to the times of every variant for six
 * problems on 54 graphs, on an H200 (data/models/measured.py).  `dfgnn-tune
 * model train` over these rows prints the regret of this rule (RULE) and of the
 * paper's (PAPER); docs/tuning.md has both.  The settings of CPUs are the
 * paper's algorithms, and those found on an AVX-512 machine for
 * bench/results/regret_cpu.json. */
#include <stdio.h>
#include <string.h>

#include "kernels/mlp/cuda/plan.h"
#include "lib/operator.h"
#include "lib/select.h"

/* The kinds of problems, each with rows of its own; sums are SpMM and
 * reductions, in both passes. */
typedef enum rule_kind { FORWARD, BACKWARD, SUMS, PROGRAMS, MLPS } rule_kind;

/* Whether a row replaces the model's choice.  Models were fitted when its
 * algorithm took one head after the other, before walks over edges with
 * features took tiles of heads, or before blocks took long rows; of attention
 * in 16 bits models know better what blocks were not compared with. */
typedef enum certainty { GUESSED, CERTAIN, CERTAIN_IN_F32 } certainty;

typedef struct rule_row {
  const char *backend;
  rule_kind kind;
  certainty certainty;
  int (*holds)(const dfgnn_setting *setting);
  const char *algorithm;
  const char *values; /* instead of the algorithm's preference */
  const char *because;
} rule_row;

/* Settings of an algorithm that do well on most graphs. */
typedef struct preference {
  const char *backend;
  rule_kind kind;
  const char *algorithm; /* NULL: every other one */
  const char *values; /* "name=value,...", the most important first; parameters
                       * not named here take the family's first value */
} preference;

static int always(const dfgnn_setting *s) {
  (void)s;
  return 1;
}

/* One row is more than a quarter of a unit's fair share of the edges. */
static int dominated(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return (double)g->max_degree * 4 * s->device->units > (double)g->edges &&
         g->max_degree > 256;
}

/* Rows are so uneven that long ones are cut to pieces.  Gradients of sources
 * walk columns.  Any threshold from 0.4 to 0.8 gives the same regret. */
static int uneven(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return g->degree_cv > 0.7 ||
         (s->problem->pass == DFGNN_PASS_BACKWARD && g->source_cv > 0.7);
}

/* Most rows are short and a few are very long: warps take two pieces at a time,
 * which are of like size where they are sorted.  GT 1 x 128 on arxiv, github,
 * nell and soc_epinions1 took .96, .79, .75 and .92 of the best time of pieces
 * in order (H200); on wiki_crocodile, whose rows have 29 edges, 1.19. */
static int short_rows_and_hubs(const dfgnn_setting *s) {
  enum { SHORT = 16, HUB = 1536, MANY = 1536 /* edges a unit */ };
  const dfgnn_signature *g = s->signature;
  return uneven(s) && g->mean_degree < SHORT && g->max_degree > HUB &&
         g->edges > (int64_t)s->device->units * MANY && !s->matrix->refilled;
}

/* Rows are uneven, and edges so few that only small pieces fill the device.
 * Any threshold from 256 to 512 edges a unit gives the same regret. */
static int uneven_and_few(const dfgnn_setting *s) {
  return uneven(s) && s->signature->edges < (int64_t)s->device->units * 256;
}

/* Most rows are short, a few are long: a block takes one of these and leaves
 * nothing to merge.  On seven graphs of an H100 with 4 to 15 edges a row, at
 * most 1391, that took .46 to .92 of the time of split
 * (bench/results/h100/block.json).  Sums take a hub by several blocks: on
 * github, whose longest row has 9458 edges, .5 to 1.02 of split's time. */
static int few_long_rows(const dfgnn_setting *s) {
  enum { LONGEST = 1536, LONGEST_OF_SUMS = 10000 };
  const dfgnn_signature *g = s->signature;
  const int64_t longest = s->problem->pass == DFGNN_PASS_BACKWARD
                              ? g->max_source_degree
                              : g->max_degree;
  const int sums = (DFGNN_BIT(s->problem->op) & DFGNN_OPS_SPMM) != 0;
  return uneven(s) && g->mean_degree < 32 &&
         longest <= (sums ? LONGEST_OF_SUMS : LONGEST);
}

/* The same, where a few lanes make an edge of 128 bytes or less, and two rows
 * share a warp. */
static int few_long_narrow(const dfgnn_setting *s) {
  return few_long_rows(s) &&
         s->problem->heads * s->problem->dim *
                 (int64_t)dfgnn_dtype_size(s->problem->dtype) <=
             128;
}

/* Sums without weights, for which tensor cores add as many numbers in fewer
 * instructions: .77 to .91 of the time of blocks on six graphs of an H200. */
static int few_long_narrow_sums(const dfgnn_setting *s) {
  return few_long_narrow(s) && s->problem->op != DFGNN_OP_SPMM_WEIGHTED;
}

static int few_long_few_edges(const dfgnn_setting *s) {
  return few_long_rows(s) && uneven_and_few(s);
}

/* Rows are long, and gather from all over the nodes.  Rows of like length side
 * by side took .57 to .65 of the time of their own order on reddit_rand and a
 * half of it, GT, AGNN, GAT and GATv2 forward, and .62 on proteins (H200). */
static int long_and_scattered(const dfgnn_setting *s) {
  enum { LONG = 128 };
  return s->signature->mean_degree >= LONG && s->signature->locality < 0.25;
}

/* The same, where tables of keys and values (of gradients: queries and dO) are
 * so large that the L2 misses most of what they gather, but not of a slice.  GT
 * 1 x 128 in f32 on reddit_rand, whose tables have four times the L2: 13.8 ms
 * for 21.5 forward, 28.4 for 35 backward; with half of that slices lose. */
static int beyond_the_cache(const dfgnn_setting *s) {
  enum { AT_ONCE = 512, TIMES = 3 }; /* bytes of a row that a warp takes */
  const dfgnn_problem *p = s->problem;
  const int64_t row = p->heads * p->dim * (int64_t)dfgnn_dtype_size(p->dtype);
  const int64_t bytes =
      2 * s->signature->sources * (row < AT_ONCE ? row : AT_ONCE);
  return DFGNN_HAS_KEY(p->op) && long_and_scattered(s) &&
         bytes > TIMES * s->device->cache_bytes && !s->matrix->refilled;
}

/* Rows are so short that a warp takes several.  Any threshold from 12 to 16
 * gives the same regret. */
static int short_rows(const dfgnn_setting *s) {
  return s->signature->mean_degree < 12;
}

/* Batches of small dense graphs. */
static int dense_graphs(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return g->graphs > 16 && g->density > 0.25 && g->mean_degree > 16;
}

/* Scores are products (on tensor cores) or sums of a scalar of each node: dense
 * blocks are twice as fast as walking rows on PATTERN and CLUSTER
 * (bench/results/h200/tensor_cores.json). */
static int dense_blocks(const dfgnn_setting *s) {
  return dense_graphs(s) && s->problem->dim > 32 &&
         s->problem->op != DFGNN_OP_GATV2;
}

/* The same for heads that fit into registers; with a bias, rows are faster, and
 * with dropout backward in f32.  8 x 16 on PATTERN, by direct and by rows,
 * H200, GT: .31 and .45 ms forward, .97 and 1.22 backward; bf16 .17 and .34,
 * .61 and 1.01. */
static int dense_narrow(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return dense_graphs(s) && p->dim <= 32 && !p->bias &&
         !(p->dropout && p->pass == DFGNN_PASS_BACKWARD &&
           p->dtype == DFGNN_F32);
}

/* There are tiles for all multiprocessors.  Models take walks over rows for
 * batches like PATTERN's that were not among theirs, and were fitted when tiles
 * drew for each head apart. */
static int dense_narrow_many(const dfgnn_setting *s) {
  return dense_narrow(s) && s->signature->edges >= 1 << 19;
}

/* Each feature has several sums, so that registers are short.  On ppa and
 * reddit_comm PNA takes 1.4 times as long with two vectors a lane (rows of the
 * package's store). */
static int sums_moments(const dfgnn_setting *s) {
  const dfgnn_op op = s->problem->op;
  return op == DFGNN_OP_REDUCE_PNA || op == DFGNN_OP_REDUCE_VAR ||
         op == DFGNN_OP_REDUCE_STD;
}

/* Several heads of a few vectors at most, which online and split and all
 * gradients take side by side on a CPU (kernels/attention/cpu/heads.h): on cora
 * and one thread 8 x 8 takes .11 to .25 of smmf's time, 4 x 16 .28 to .7. */
static int narrow_heads(const dfgnn_setting *s) {
  return s->problem->heads > 1 && s->problem->dim <= 32;
}

static int dominated_and_narrow(const dfgnn_setting *s) {
  return dominated(s) && narrow_heads(s);
}

/* The same, of rows that are not short and gather from a cache: what is
 * prefetched is there already.  On chameleon_filtered, email_eu_core and
 * wiki_vote, whose nodes have 14 to 25 edges and rows of .2 to 1.8 MB in all,
 * that took .73 to 1.00 of the time of prefetching 24 edges ahead, and .95
 * to 1.1 where nodes have 6 edges or fewer
 * (bench/results/regret_cpu_heads.json). */
static int narrow_and_cached(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return narrow_heads(s) && s->signature->mean_degree >= 12 &&
         s->signature->sources * p->heads * p->dim *
                 (int64_t)dfgnn_dtype_size(p->dtype) <=
             2 << 20;
}

/* Edge features other than the scalars of GAT. */
static int with_edges(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return p->edge_dim && p->op != DFGNN_OP_GAT;
}

static int has_edges(const dfgnn_setting *s) {
  return s->problem->edge_dim != 0;
}

/* Edge features, and rows (of gradients: or columns) that are uneven and longer
 * than four pieces.  Whole rows took 3 to 14 times as long on graphs of R-MAT,
 * yelp_social and ppi_human (data/models/h200_campaign.jsonl.xz). */
static int has_edges_and_hubs(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  const int backward = s->problem->pass == DFGNN_PASS_BACKWARD;
  return has_edges(s) && uneven(s) &&
         (g->max_degree > 512 || (backward && g->max_source_degree > 512));
}

/* Edge features whose products with W the lanes make for 256 features or more
 * of all heads: a lane holds so many that twelve warps have registers, and
 * gradients take tiles of heads.  GATv2 of 16 x 32 in f16 took 1.25 and 9.2 ms
 * on arxiv, where whole rows took 9.1 and 73 (docs/performance.md). */
static int has_edges_and_many_features(const dfgnn_setting *s) {
  return has_edges(s) && s->problem->heads * s->problem->dim >= 256;
}

static int has_edges_hubs_and_many_features(const dfgnn_setting *s) {
  return has_edges_and_hubs(s) && has_edges_and_many_features(s);
}

/* Walks of programs: edges of a row, or of a column where a backward pass may
 * walk those, that a side of lanes has.  What chooses the sides of a program
 * without a variant: kernels/program/cuda/plan.c. */
static int rows_of(const dfgnn_setting *s, int edges) {
  const int64_t nodes = s->matrix->destinations;
  return nodes && s->matrix->edges / nodes >= edges;
}
static int wide_layers(const dfgnn_setting *s) {
  return s->mlp && dfgnn__mlp_is_wide(&s->mlp->mlp);
}
static int rows_of_16(const dfgnn_setting *s) { return rows_of(s, 16); }
static int rows_of_4(const dfgnn_setting *s) { return rows_of(s, 4); }
static int uneven_of_16(const dfgnn_setting *s) {
  return uneven(s) && rows_of(s, 16);
}
static int uneven_of_4(const dfgnn_setting *s) {
  return uneven(s) && rows_of(s, 4);
}

#define SIMD "simd=avx512,simd=avx2,"
#define WALK_LANES "lanes=32,lanes=16,lanes=8,lanes=4,lanes=2,"
#define WALK_REST "unroll=2,vector=4,vector=2,long=256"
#define WALK_CUT "unroll=2,vector=4,vector=2,long=64"

/* clang-format off */
static const preference preferences[] = {
    {"cpu", SUMS, NULL,
     SIMD "prefetch=24,schedule=dynamic,rows=64,edges=1024,parts=16,panel=32"},
    {"cpu", FORWARD, "split", SIMD "edges=1024,prefetch=24"},
    {"cpu", FORWARD, "smmf", SIMD "rows=512,schedule=dynamic"},
    {"cpu", FORWARD, "online",
     SIMD "chunk=64,flight=8,prefetch=24,schedule=dynamic,rows=64"},
    {"cpu", FORWARD, "pmf", SIMD "edges=8192,schedule=balanced"},
    {"cpu", FORWARD, NULL, SIMD "schedule=dynamic,schedule=balanced"},
    {"cpu", BACKWARD, "spill",
     SIMD "first=columns,schedule=dynamic,prefetch=24"},
    {"cpu", BACKWARD, "split", SIMD "edges=1024,prefetch=24"},
    {"cpu", BACKWARD, "twopass", SIMD "schedule=dynamic,prefetch=24"},
    {"cpu", BACKWARD, NULL, SIMD "schedule=dynamic,prefetch=24"},

    {"cpu", PROGRAMS, "blocks", SIMD "kib=96,chunks=64"},
    {"cuda", PROGRAMS, "walks", WALK_LANES "sides=1," WALK_REST},
    {"cpu", MLPS, "tiles", SIMD "tile=384,chunk=8,products=amx"},
    {"cuda", MLPS, NULL,
     "warps=rule,span=rule,lockstep=rule,columns=rule,stages=rule,wgmma=rule,launch=rule"},

    {"cuda", SUMS, "block",
     "edges=64,rows=1,order=place,lanes=16,lanes=8,lanes=32,vectors=2,"
     "unroll=4"},
    {"cuda", SUMS, "fours", "loads=8,loads=4,edges=64,order=place"},
    {"cuda", SUMS, "split",
     "edges=64,rows=1,lanes=16,lanes=8,lanes=32,vectors=2,unroll=4"},
    {"cuda", SUMS, NULL,
     "span=once,rows=1,order=natural,lanes=16,lanes=8,lanes=32,vectors=2,"
     "unroll=4,steps=256"},
    {"cuda", FORWARD, "edges", "lanes=32,rows=16,blocks=1,unroll=2"},
    {"cuda", FORWARD, "lift", "lanes=32,unroll=2,warps=8,blocks=2"},
    {"cuda", FORWARD, "dense", "stages=1,rows=64"},
    {"cuda", FORWARD, "direct", "columns=blocks,rows=16"},
    {"cuda", FORWARD, "online",
     "heads=warp,span=once,order=natural,rows=1,lanes=16,unroll=2,warps=4"},
    {"cuda", FORWARD, "split",
     "heads=warp,edges=128,lanes=16,unroll=4,span=once,warps=4,rows=1"},
    {"cuda", FORWARD, "unfused", "edges=1024,unroll=8,lib=cusparse-alg3"},
    {"cuda", BACKWARD, "edges",
     "lanes=32,rows=16,blocks=1,unroll=1,columns=1"},
    {"cuda", BACKWARD, "lift", "lanes=32,unroll=2,warps=8,blocks=2"},
    {"cuda", BACKWARD, "dense", "rows=64"},
    {"cuda", BACKWARD, "direct", "columns=blocks,rows=16"},
    {"cuda", BACKWARD, "twopass",
     "heads=warp,span=once,order=natural,rows=1,lanes=16,unroll=2"},
    {"cuda", BACKWARD, "spill",
     "heads=warp,span=once,lanes=16,unroll=1,rows=1"},
    {"cuda", BACKWARD, "split",
     "heads=warp,edges=64,lanes=16,unroll=2,span=once"},
};
/* clang-format on */

/* clang-format off */
static const rule_row rules[] = {
    {"cpu", SUMS, GUESSED, dominated, "balanced", NULL, "one row dominates"},
    {"cpu", SUMS, GUESSED, always, "row", NULL,
     "tasks of rows serve most graphs"},
    {"cpu", FORWARD, GUESSED, with_edges, "edges", NULL,
     "edge features are projected by windows of edges"},
    {"cpu", FORWARD, CERTAIN, dominated_and_narrow, "split", NULL,
     "one row dominates, and its narrow heads are taken side by side"},
    {"cpu", FORWARD, GUESSED, dominated, "pmf", NULL, "one row dominates"},
    {"cpu", FORWARD, GUESSED, narrow_and_cached, "online",
     SIMD "chunk=64,flight=8,prefetch=0,schedule=dynamic,rows=64",
     "narrow heads are taken side by side, from a cache"},
    {"cpu", FORWARD, CERTAIN, narrow_heads, "online", NULL,
     "narrow heads are taken side by side"},
    {"cpu", FORWARD, GUESSED, always, "smmf", NULL,
     "blocks of rows serve most graphs"},
    {"cpu", BACKWARD, GUESSED, with_edges, "edges", NULL,
     "edge features are projected by windows of edges"},
    {"cpu", BACKWARD, GUESSED, dominated, "split", NULL, "one row dominates"},
    {"cpu", BACKWARD, CERTAIN, narrow_heads, "spill", NULL,
     "narrow heads are taken side by side"},
    {"cpu", BACKWARD, GUESSED, always, "spill", NULL,
     "a number stored for each edge and head saves two products"},
    {"cpu", BACKWARD, GUESSED, always, "twopass", NULL,
     "no workspace for edges is allowed"},

    {"cpu", PROGRAMS, GUESSED, always, "blocks", NULL,
     "blocks of edges that stay in the cache"},
    {"cuda", PROGRAMS, GUESSED, uneven_of_16, "walks",
     WALK_LANES "sides=8,sides=4,sides=2," WALK_CUT,
     "rows are long, sides of a warp share them; and uneven: they are cut"},
    {"cuda", PROGRAMS, GUESSED, uneven_of_4, "walks",
     WALK_LANES "sides=2," WALK_CUT,
     "two sides share a row; rows are uneven: they are cut"},
    {"cuda", PROGRAMS, GUESSED, uneven, "walks", WALK_LANES "sides=1," WALK_CUT,
     "rows are short and uneven: long ones are cut"},
    {"cuda", PROGRAMS, GUESSED, rows_of_16, "walks",
     WALK_LANES "sides=8,sides=4,sides=2," WALK_REST,
     "rows are long: sides of a warp share them"},
    {"cuda", PROGRAMS, GUESSED, rows_of_4, "walks",
     WALK_LANES "sides=2," WALK_REST, "two sides share a row"},
    {"cuda", PROGRAMS, GUESSED, always, "walks", NULL,
     "rows are short: each has a side of its own"},

    {"cpu", MLPS, GUESSED, always, "tiles", NULL,
     "tiles of edges that stay in the cache"},
    {"cuda", MLPS, GUESSED, wide_layers, "library", NULL,
     "layers are wide: cuBLASLt multiplies, a kernel for what is between"},
    {"cuda", MLPS, GUESSED, always, "resident", NULL,
     "weights fit into the shared memory of a block"},
    {"cuda", MLPS, GUESSED, always, "streamed", NULL,
     "weights are streamed, a kernel for each layer"},

    {"cuda", SUMS, CERTAIN, few_long_narrow_sums, "fours", NULL,
     "rows are uneven and narrow: tensor cores add up four of them"},
    {"cuda", SUMS, CERTAIN, few_long_narrow, "block",
     "edges=64,rows=2,order=place,lanes=8,lanes=4,vectors=1,unroll=4",
     "rows are uneven and narrow: blocks take the long ones"},
    {"cuda", SUMS, CERTAIN, few_long_rows, "block", NULL,
     "rows are uneven: blocks take the long ones"},
    {"cuda", SUMS, GUESSED, uneven, "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", SUMS, GUESSED, sums_moments, "row",
     "vectors=1,span=once,rows=1,order=natural,lanes=32,lanes=16,lanes=8,"
     "unroll=4",
     "several sums for each feature take the registers of one vector"},
    {"cuda", SUMS, GUESSED, short_rows, "row",
     "span=piece,rows=2,lanes=16,lanes=8,lanes=32,vectors=2,unroll=4,"
     "order=natural",
     "rows are short: a group of lanes takes several"},
    {"cuda", SUMS, GUESSED, always, "row", NULL,
     "a group of lanes for each row serves most graphs"},
    {"cuda", FORWARD, GUESSED, has_edges_and_hubs, "edges",
     "edges=128,lanes=8,rows=8,blocks=1,unroll=2",
     "W multiplies sums of edge features once for each row; rows are uneven: "
     "they are cut"},
    {"cuda", FORWARD, CERTAIN, has_edges_hubs_and_many_features, "lift",
     "edges=128,lanes=32,unroll=2,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, of many heads; "
     "rows are uneven: they are cut"},
    {"cuda", FORWARD, GUESSED, has_edges_and_hubs, "lift",
     "edges=128,lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge compute its projected features; rows are uneven: "
     "they are cut"},
    {"cuda", FORWARD, GUESSED, has_edges, "edges", NULL,
     "W multiplies sums of edge features once for each row"},
    {"cuda", FORWARD, CERTAIN, has_edges_and_many_features, "lift",
     "lanes=32,unroll=2,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, of many heads"},
    {"cuda", FORWARD, GUESSED, has_edges, "lift", NULL,
     "the lanes of an edge compute its projected features"},
    {"cuda", FORWARD, GUESSED, dense_blocks, "dense", NULL,
     "small dense graphs on tensor cores"},
    {"cuda", FORWARD, CERTAIN, dense_narrow_many, "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", FORWARD, GUESSED, dense_narrow, "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", FORWARD, CERTAIN, beyond_the_cache, "online",
     "order=slices,heads=warp,span=once,rows=1,lanes=16,unroll=2,warps=4",
     "long rows gather from tables beyond the L2: slice by slice of them"},
    {"cuda", FORWARD, CERTAIN_IN_F32, few_long_few_edges, "block",
     "heads=warp,edges=32,lanes=16,unroll=4,warps=8,rows=1",
     "rows are uneven, edges few: blocks of many warps take the long rows"},
    {"cuda", FORWARD, CERTAIN_IN_F32, few_long_rows, "block",
     "heads=warp,edges=32,lanes=16,unroll=4,warps=4,rows=2",
     "rows are uneven: blocks take the long ones"},
    {"cuda", FORWARD, GUESSED, uneven_and_few, "split",
     "heads=warp,edges=32,lanes=16,unroll=4,span=once,warps=4,rows=1",
     "rows are uneven, edges few: rows are cut to small pieces"},
    {"cuda", FORWARD, CERTAIN_IN_F32, short_rows_and_hubs, "split",
     "heads=warp,span=sorted,edges=128,lanes=16,unroll=4,rows=2,warps=16",
     "rows are short but for a few: these are cut, pieces sorted by size"},
    {"cuda", FORWARD, GUESSED, uneven, "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", FORWARD, GUESSED, long_and_scattered, "online",
     "heads=warp,order=degree,span=once,rows=1,lanes=16,unroll=2,warps=4",
     "long rows gather from all over: those of like length go together"},
    {"cuda", FORWARD, GUESSED, short_rows, "online",
     "heads=warp,span=once,rows=4,lanes=16,unroll=1,warps=4,order=natural",
     "rows are short: a warp takes several"},
    {"cuda", FORWARD, GUESSED, always, "online", NULL,
     "one pass serves most graphs"},
    {"cuda", BACKWARD, GUESSED, has_edges_and_hubs, "edges",
     "edges=128,lanes=8,rows=8,blocks=1,unroll=2,columns=2",
     "W multiplies sums of edge features once for each row; rows are uneven: "
     "they are cut"},
    {"cuda", BACKWARD, CERTAIN, has_edges_hubs_and_many_features, "lift",
     "edges=128,lanes=32,unroll=4,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, tiles of heads at a "
     "time; rows are uneven: they are cut"},
    {"cuda", BACKWARD, GUESSED, has_edges_and_hubs, "lift",
     "edges=128,lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge compute its projected features; rows are uneven: "
     "they are cut"},
    {"cuda", BACKWARD, GUESSED, has_edges, "edges", NULL,
     "W multiplies sums of edge features once for each row"},
    {"cuda", BACKWARD, CERTAIN, has_edges_and_many_features, "lift",
     "lanes=32,unroll=4,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, tiles of heads at a "
     "time"},
    {"cuda", BACKWARD, GUESSED, has_edges, "lift", NULL,
     "the lanes of an edge compute its projected features"},
    {"cuda", BACKWARD, GUESSED, dense_blocks, "dense", NULL,
     "small dense graphs on tensor cores"},
    {"cuda", BACKWARD, CERTAIN, dense_narrow_many, "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", BACKWARD, GUESSED, dense_narrow, "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", BACKWARD, CERTAIN, beyond_the_cache, "twopass",
     "order=slices,heads=warp,span=once,rows=1,lanes=16,unroll=1",
     "long rows gather from tables beyond the L2: slice by slice of them"},
    {"cuda", BACKWARD, GUESSED, uneven_and_few, "split",
     "heads=warp,edges=16,lanes=32,unroll=2,span=dealt",
     "rows are uneven, edges few: rows are cut to small pieces"},
    {"cuda", BACKWARD, GUESSED, uneven, "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", BACKWARD, GUESSED, long_and_scattered, "twopass",
     "heads=warp,order=degree,span=once,rows=1,lanes=16,unroll=2",
     "long rows gather from all over: those of like length go together"},
    {"cuda", BACKWARD, GUESSED, short_rows, "twopass",
     "heads=warp,span=once,order=natural,rows=2,lanes=32,unroll=2",
     "rows are short: a warp takes several"},
    {"cuda", BACKWARD, GUESSED, always, "twopass", NULL,
     "two passes serve most graphs without memory for edges"},
};
/* clang-format on */

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

static rule_kind kind_of(const dfgnn_query *query) {
  const dfgnn_problem *p = query->setting.problem;
  if (p->op == DFGNN_OP_PROGRAM)
    return PROGRAMS;
  if (p->op == DFGNN_OP_MLP)
    return MLPS;
  if (strncmp(dfgnn__operator(p->op, p->pass)->kind, "attention", 9))
    return SUMS;
  return p->pass == DFGNN_PASS_BACKWARD ? BACKWARD : FORWARD;
}

static const char *values_preferred(const dfgnn_query *query,
                                    const char *algorithm) {
  for (size_t r = 0; r < sizeof preferences / sizeof *preferences; r++)
    if (!strcmp(preferences[r].backend, query->setting.device->backend) &&
        preferences[r].kind == kind_of(query) &&
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

/* Offered variants come first; a paper's variant serves where nothing else
 * does. */
static const dfgnn_variant *first_usable(const dfgnn_query *query) {
  for (int paper = 0; paper < 2; paper++)
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (v->family->paper == paper && usable(v, query))
        return v;
    }
  return NULL;
}

static int is_certain(const rule_row *row, const dfgnn_setting *s) {
  return row->certainty == CERTAIN ||
         (row->certainty == CERTAIN_IN_F32 && s->problem->dtype == DFGNN_F32);
}

/* Takes the first row that holds and has a variant; returns 0 if there is none,
 * or it is not certain enough. */
static int follow_rows(dfgnn_choice *choice, const dfgnn_query *query,
                       int certain) {
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_RULE, .distance = -1};
  for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
    const rule_row *row = &rules[r];
    if (strcmp(row->backend, query->setting.device->backend) ||
        row->kind != kind_of(query) || !row->holds(&query->setting))
      continue;
    choice->variant = best_fit(
        query, row->algorithm,
        row->values ? row->values : values_preferred(query, row->algorithm));
    if (choice->variant) {
      snprintf(choice->because, sizeof choice->because, "%s", row->because);
      return !certain || is_certain(row, &query->setting);
    }
  }
  return 0;
}

int dfgnn__rule_knows(dfgnn_choice *choice, const dfgnn_query *query) {
  return follow_rows(choice, query, 1);
}

void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_query *query) {
  if (follow_rows(choice, query, 0))
    return;
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
