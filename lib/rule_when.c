#include "lib/rule_when.h"

#include "kernels/mlp/cuda/plan.h"
#include "lib/loads.h"
#include "lib/operator.h"

int dfgnn__when_always(const dfgnn_setting *s) {
  (void)s;
  return 1;
}

/* One row is more than a quarter of a unit's fair share of the edges. */
int dfgnn__when_dominated(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return (double)g->max_degree * 4 * s->device->units > (double)g->edges &&
         g->max_degree > 256;
}

/* Rows are so uneven that long ones are cut to pieces.  Gradients of sources
 * walk columns.  Any threshold from 0.4 to 0.8 gives the same regret. */
int dfgnn__when_uneven(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return g->degree_cv > 0.7 ||
         (s->problem->pass == DFGNN_PASS_BACKWARD && g->source_cv > 0.7);
}

/* Most rows are short and a few are very long: warps take two pieces at a time,
 * which are of like size where they are sorted.  GT 1 x 128 on arxiv, github,
 * nell and soc_epinions1 took .96, .79, .75 and .92 of the best time of pieces
 * in order (H200); on wiki_crocodile, whose rows have 29 edges, 1.19. */
int dfgnn__when_short_rows_and_hubs(const dfgnn_setting *s) {
  enum { SHORT = 16, HUB = 1536, MANY = 1536 /* edges a unit */ };
  const dfgnn_signature *g = s->signature;
  return dfgnn__when_uneven(s) && g->mean_degree < SHORT &&
         g->max_degree > HUB && g->edges > (int64_t)s->device->units * MANY &&
         !s->matrix->refilled;
}

/* Rows are uneven, and edges so few that only small pieces fill the device.
 * Any threshold from 256 to 512 edges a unit gives the same regret. */
int dfgnn__when_uneven_and_few(const dfgnn_setting *s) {
  return dfgnn__when_uneven(s) &&
         s->signature->edges < (int64_t)s->device->units * 256;
}

/* Most rows are short, a few are long: a block takes one of these and leaves
 * nothing to merge.  On seven graphs of an H100 with 4 to 15 edges a row, at
 * most 1391, that took .46 to .92 of the time of split
 * (data/results/h100.jsonl.xz, block).  Sums take a hub by several blocks: on
 * github, whose longest row has 9458 edges, .5 to 1.02 of split's time. */
int dfgnn__when_few_long_rows(const dfgnn_setting *s) {
  enum { LONGEST = 1536, LONGEST_OF_SUMS = 10000 };
  const dfgnn_signature *g = s->signature;
  const int64_t longest = s->problem->pass == DFGNN_PASS_BACKWARD
                              ? g->max_source_degree
                              : g->max_degree;
  const int sums = (DFGNN_BIT(s->problem->op) & DFGNN_OPS_SPMM) != 0;
  return dfgnn__when_uneven(s) && g->mean_degree < 32 &&
         longest <= (sums ? LONGEST_OF_SUMS : LONGEST);
}

/* The same, where a few lanes make an edge of 128 bytes or less, and two rows
 * share a warp. */
int dfgnn__when_few_long_narrow(const dfgnn_setting *s) {
  return dfgnn__when_few_long_rows(s) &&
         s->problem->heads * s->problem->dim *
                 (int64_t)dfgnn_dtype_size(s->problem->dtype) <=
             128;
}

/* Sums without weights, for which tensor cores add as many numbers in fewer
 * instructions: .77 to .91 of the time of blocks on six graphs of an H200. */
int dfgnn__when_few_long_narrow_sums(const dfgnn_setting *s) {
  return dfgnn__when_few_long_narrow(s) &&
         s->problem->op != DFGNN_OP_SPMM_WEIGHTED;
}

/* The same, where most rows are so short, and there are so many, that a warp
 * takes two: SpMM of 96 and 128 features on pubmed, ca_condmat and a graph of
 * stars took .58 to .85 of the time of one (H200); where rows have 10
 * edges, 1.02. */
int dfgnn__when_few_long_many_short(const dfgnn_setting *s) {
  enum { SHORT = 10, WARPS = 48 };
  const dfgnn_signature *g = s->signature;
  return dfgnn__when_few_long_rows(s) && g->mean_degree < SHORT &&
         g->destinations > (int64_t)s->device->units * WARPS;
}

/* The same, edges few, and a warp of its own for each row at once.  On a graph
 * of 9000 rows of 2 edges, 150 of 59, warps that take two rows and blocks of
 * four took .52 to .87 of the time: GT, GAT and GATv2, in three types (H200).
 */
int dfgnn__when_few_long_few_edges(const dfgnn_setting *s) {
  enum { WARPS = 48 };
  return dfgnn__when_few_long_rows(s) && dfgnn__when_uneven_and_few(s) &&
         s->signature->destinations <= (int64_t)s->device->units * WARPS;
}

/* Rows are long, and gather from all over the nodes.  Rows of like length side
 * by side took .57 to .65 of the time of their own order on reddit_rand and a
 * half of it, GT, AGNN, GAT and GATv2 forward, and .62 on proteins (H200). */
int dfgnn__when_long_and_scattered(const dfgnn_setting *s) {
  enum { LONG = 128 };
  return s->signature->mean_degree >= LONG && s->signature->locality < 0.25;
}

/* The same, where tables of keys and values (of gradients: queries and dO) are
 * so large that the L2 misses most of what they gather, but not of a slice.  GT
 * 1 x 128 in f32 on reddit_rand, whose tables have four times the L2: 13.8 ms
 * for 21.5 forward, 28.4 for 35 backward; with half of that slices lose. */
int dfgnn__when_beyond_the_cache(const dfgnn_setting *s) {
  enum { AT_ONCE = 512, TIMES = 3 }; /* bytes of a row that a warp takes */
  const dfgnn_problem *p = s->problem;
  const int64_t row = p->heads * p->dim * (int64_t)dfgnn_dtype_size(p->dtype);
  const int64_t bytes =
      2 * s->signature->sources * (row < AT_ONCE ? row : AT_ONCE);
  return DFGNN_HAS_KEY(p->op) && dfgnn__when_long_and_scattered(s) &&
         bytes > TIMES * s->device->cache_bytes && !s->matrix->refilled;
}

/* Rows are so short that a warp takes several.  Any threshold from 12 to 16
 * gives the same regret. */
int dfgnn__when_short_rows(const dfgnn_setting *s) {
  return s->signature->mean_degree < 12;
}

/* The same, where all lanes of a warp have several loads of an edge: two rows a
 * warp took .76 to .9 of the time of four (H200, 19 problems). */
int dfgnn__when_short_and_wide(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return dfgnn__when_short_rows(s) &&
         dfgnn__loads_heads(p) * dfgnn__ceil_power(dfgnn__loads(p)) > 32;
}

/* Batches of small dense graphs. */
static int dense_graphs(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  return g->graphs > 16 && g->density > 0.25 && g->mean_degree > 16;
}

/* Scores are products (on tensor cores) or sums of a scalar of each node: dense
 * blocks are twice as fast as walking rows on PATTERN and CLUSTER
 * (data/results/h200.jsonl.xz, tensor_cores). */
int dfgnn__when_dense_blocks(const dfgnn_setting *s) {
  return dense_graphs(s) && s->problem->dim > 32 &&
         s->problem->op != DFGNN_OP_GATV2;
}

/* The same for heads that fit into registers; with a bias, rows are faster, and
 * with dropout backward in f32.  8 x 16 on PATTERN, by direct and by rows,
 * H200, GT: .31 and .45 ms forward, .97 and 1.22 backward; bf16 .17 and .34,
 * .61 and 1.01. */
int dfgnn__when_dense_narrow(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return dense_graphs(s) && p->dim <= 32 && !p->bias &&
         !(p->dropout && p->pass == DFGNN_PASS_BACKWARD &&
           p->dtype == DFGNN_F32);
}

/* There are tiles for all multiprocessors.  Models take walks over rows for
 * batches like PATTERN's that were not among theirs, and were fitted when tiles
 * drew for each head apart. */
int dfgnn__when_dense_narrow_many(const dfgnn_setting *s) {
  return dfgnn__when_dense_narrow(s) && s->signature->edges >= 1 << 19;
}

/* Each feature has several sums, so that registers are short.  On ppa and
 * reddit_comm PNA takes 1.4 times as long with two vectors a lane (rows of the
 * package's store). */
int dfgnn__when_sums_moments(const dfgnn_setting *s) {
  const dfgnn_op op = s->problem->op;
  return op == DFGNN_OP_REDUCE_PNA || op == DFGNN_OP_REDUCE_VAR ||
         op == DFGNN_OP_REDUCE_STD;
}

/* Several heads of a few vectors at most, which online and split and all
 * gradients take side by side on a CPU (kernels/attention/cpu/heads.h): on cora
 * and one thread 8 x 8 takes .11 to .25 of smmf's time, 4 x 16 .28 to .7. */
int dfgnn__when_narrow_heads(const dfgnn_setting *s) {
  return s->problem->heads > 1 && s->problem->dim <= 32;
}

int dfgnn__when_dominated_and_narrow(const dfgnn_setting *s) {
  return dfgnn__when_dominated(s) && dfgnn__when_narrow_heads(s);
}

/* The same, of rows that are not short and gather from a cache: what is
 * prefetched is there already.  On chameleon_filtered, email_eu_core and
 * wiki_vote, whose nodes have 14 to 25 edges and rows of .2 to 1.8 MB in all,
 * that took .73 to 1.00 of the time of prefetching 24 edges ahead, and .95
 * to 1.1 where nodes have 6 edges or fewer
 * (data/results/cpu.jsonl.xz, regret_heads). */
int dfgnn__when_narrow_and_cached(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return dfgnn__when_narrow_heads(s) && s->signature->mean_degree >= 12 &&
         s->signature->sources * p->heads * p->dim *
                 (int64_t)dfgnn_dtype_size(p->dtype) <=
             2 << 20;
}

/* Edge features other than the scalars of GAT. */
int dfgnn__when_with_edges(const dfgnn_setting *s) {
  const dfgnn_problem *p = s->problem;
  return p->edge_dim && p->op != DFGNN_OP_GAT;
}

int dfgnn__when_has_edges(const dfgnn_setting *s) {
  return s->problem->edge_dim != 0;
}

/* Edge features, and rows (of gradients: or columns) that are uneven and longer
 * than four pieces.  Whole rows took 3 to 14 times as long on graphs of R-MAT,
 * yelp_social and ppi_human (data/models/h200_campaign.jsonl.xz). */
int dfgnn__when_has_edges_and_hubs(const dfgnn_setting *s) {
  const dfgnn_signature *g = s->signature;
  const int backward = s->problem->pass == DFGNN_PASS_BACKWARD;
  return dfgnn__when_has_edges(s) && dfgnn__when_uneven(s) &&
         (g->max_degree > 512 || (backward && g->max_source_degree > 512));
}

/* Edge features whose products with W the lanes make for 256 features or more
 * of all heads: a lane holds so many that twelve warps have registers, and
 * gradients take tiles of heads.  GATv2 of 16 x 32 in f16 took 1.25 and 9.2 ms
 * on arxiv, where whole rows took 9.1 and 73 (docs/performance.md). */
int dfgnn__when_has_edges_and_many_features(const dfgnn_setting *s) {
  return dfgnn__when_has_edges(s) && s->problem->heads * s->problem->dim >= 256;
}

int dfgnn__when_has_edges_hubs_and_many_features(const dfgnn_setting *s) {
  return dfgnn__when_has_edges_and_hubs(s) &&
         dfgnn__when_has_edges_and_many_features(s);
}

/* Walks of programs: edges of a row, or of a column where a backward pass may
 * walk those, that a side of lanes has.  What chooses the sides of a program
 * without a variant: kernels/program/cuda/plan.c. */
static int rows_of(const dfgnn_setting *s, int edges) {
  const int64_t nodes = s->matrix->destinations;
  return nodes && s->matrix->edges / nodes >= edges;
}
int dfgnn__when_wide_layers(const dfgnn_setting *s) {
  return s->mlp && dfgnn__mlp_is_wide(&s->mlp->mlp);
}
int dfgnn__when_rows_of_16(const dfgnn_setting *s) { return rows_of(s, 16); }
int dfgnn__when_rows_of_4(const dfgnn_setting *s) { return rows_of(s, 4); }
int dfgnn__when_uneven_of_16(const dfgnn_setting *s) {
  return dfgnn__when_uneven(s) && rows_of(s, 16);
}
int dfgnn__when_uneven_of_4(const dfgnn_setting *s) {
  return dfgnn__when_uneven(s) && rows_of(s, 4);
}
