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
 * data/results/cpu.jsonl.xz, regret. */
#include <stdio.h>
#include <string.h>

#include "kernels/common/cuda_host.h"
#include "lib/loads.h"
#include "lib/operator.h"
#include "lib/rule_when.h"
#include "lib/select.h"

/* The kinds of problems, each with rows of its own; sums are SpMM and
 * reductions, in both passes. */
typedef enum rule_kind { FORWARD, BACKWARD, SUMS, PROGRAMS, MLPS } rule_kind;

/* Whether a row replaces the model's choice.  Models were fitted when its
 * algorithm took one head after the other, before walks over edges with
 * features took tiles of heads, before blocks took long rows of sums, or before
 * pieces were sorted, which 16-bit types were not measured with. */
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
                       * not named here take the family's first value, and
                       * lanes=fill and lanes=half stand for lanes_of() */
} preference;

#define WHEN(condition) dfgnn__when_##condition
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
     "heads=warp,span=once,order=natural,rows=1,lanes=fill,unroll=4,unroll=2,"
     "warps=4"},
    {"cuda", FORWARD, "split",
     "heads=warp,edges=128,lanes=fill,unroll=4,span=once,warps=4,rows=1"},
    {"cuda", FORWARD, "unfused", "edges=1024,unroll=8,lib=cusparse-alg3"},
    {"cuda", BACKWARD, "edges",
     "lanes=32,rows=16,blocks=1,unroll=1,columns=1"},
    {"cuda", BACKWARD, "lift", "lanes=32,unroll=2,warps=8,blocks=2"},
    {"cuda", BACKWARD, "dense", "rows=64"},
    {"cuda", BACKWARD, "direct", "columns=blocks,rows=16"},
    {"cuda", BACKWARD, "twopass",
     "heads=warp,span=once,order=natural,rows=1,lanes=fill,unroll=2"},
    {"cuda", BACKWARD, "spill",
     "heads=warp,span=once,lanes=fill,unroll=1,rows=1"},
    {"cuda", BACKWARD, "split",
     "heads=warp,edges=64,lanes=fill,unroll=2,span=once"},
};
/* clang-format on */

/* clang-format off */
static const rule_row rules[] = {
    {"cpu", SUMS, GUESSED, WHEN(dominated), "balanced", NULL, "one row dominates"},
    {"cpu", SUMS, GUESSED, WHEN(always), "row", NULL,
     "tasks of rows serve most graphs"},
    {"cpu", FORWARD, GUESSED, WHEN(with_edges), "edges", NULL,
     "edge features are projected by windows of edges"},
    {"cpu", FORWARD, CERTAIN, WHEN(dominated_and_narrow), "split", NULL,
     "one row dominates, and its narrow heads are taken side by side"},
    {"cpu", FORWARD, GUESSED, WHEN(dominated), "pmf", NULL, "one row dominates"},
    {"cpu", FORWARD, GUESSED, WHEN(narrow_and_cached), "online",
     SIMD "chunk=64,flight=8,prefetch=0,schedule=dynamic,rows=64",
     "narrow heads are taken side by side, from a cache"},
    {"cpu", FORWARD, CERTAIN, WHEN(narrow_heads), "online", NULL,
     "narrow heads are taken side by side"},
    {"cpu", FORWARD, GUESSED, WHEN(always), "smmf", NULL,
     "blocks of rows serve most graphs"},
    {"cpu", BACKWARD, GUESSED, WHEN(with_edges), "edges", NULL,
     "edge features are projected by windows of edges"},
    {"cpu", BACKWARD, GUESSED, WHEN(dominated), "split", NULL, "one row dominates"},
    {"cpu", BACKWARD, CERTAIN, WHEN(narrow_heads), "spill", NULL,
     "narrow heads are taken side by side"},
    {"cpu", BACKWARD, GUESSED, WHEN(always), "spill", NULL,
     "a number stored for each edge and head saves two products"},
    {"cpu", BACKWARD, GUESSED, WHEN(always), "twopass", NULL,
     "no workspace for edges is allowed"},

    {"cpu", PROGRAMS, GUESSED, WHEN(always), "blocks", NULL,
     "blocks of edges that stay in the cache"},
    {"cuda", PROGRAMS, GUESSED, WHEN(uneven_of_16), "walks",
     WALK_LANES "sides=8,sides=4,sides=2," WALK_CUT,
     "rows are long, sides of a warp share them; and uneven: they are cut"},
    {"cuda", PROGRAMS, GUESSED, WHEN(uneven_of_4), "walks",
     WALK_LANES "sides=2," WALK_CUT,
     "two sides share a row; rows are uneven: they are cut"},
    {"cuda", PROGRAMS, GUESSED, WHEN(uneven), "walks", WALK_LANES "sides=1," WALK_CUT,
     "rows are short and uneven: long ones are cut"},
    {"cuda", PROGRAMS, GUESSED, WHEN(rows_of_16), "walks",
     WALK_LANES "sides=8,sides=4,sides=2," WALK_REST,
     "rows are long: sides of a warp share them"},
    {"cuda", PROGRAMS, GUESSED, WHEN(rows_of_4), "walks",
     WALK_LANES "sides=2," WALK_REST, "two sides share a row"},
    {"cuda", PROGRAMS, GUESSED, WHEN(always), "walks", NULL,
     "rows are short: each has a side of its own"},

    {"cpu", MLPS, GUESSED, WHEN(always), "tiles", NULL,
     "tiles of edges that stay in the cache"},
    {"cuda", MLPS, GUESSED, WHEN(wide_layers), "library", NULL,
     "layers are wide: cuBLASLt multiplies, a kernel for what is between"},
    {"cuda", MLPS, GUESSED, WHEN(always), "resident", NULL,
     "weights fit into the shared memory of a block"},
    {"cuda", MLPS, GUESSED, WHEN(always), "streamed", NULL,
     "weights are streamed, a kernel for each layer"},

    {"cuda", SUMS, CERTAIN, WHEN(few_long_narrow_sums), "fours", NULL,
     "rows are uneven and narrow: tensor cores add up four of them"},
    {"cuda", SUMS, CERTAIN, WHEN(few_long_narrow), "block",
     "edges=64,rows=2,order=place,lanes=8,lanes=4,vectors=1,unroll=4",
     "rows are uneven and narrow: blocks take the long ones"},
    {"cuda", SUMS, CERTAIN, WHEN(few_long_many_short), "block",
     "edges=64,rows=2,order=place,lanes=16,lanes=8,lanes=32,vectors=2,unroll=4",
     "rows are uneven, most of them short: a warp takes two, blocks the long "
     "ones"},
    {"cuda", SUMS, CERTAIN, WHEN(few_long_rows), "block", NULL,
     "rows are uneven: blocks take the long ones"},
    {"cuda", SUMS, GUESSED, WHEN(uneven), "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", SUMS, GUESSED, WHEN(sums_moments), "row",
     "vectors=1,span=once,rows=1,order=natural,lanes=32,lanes=16,lanes=8,"
     "unroll=4",
     "several sums for each feature take the registers of one vector"},
    {"cuda", SUMS, GUESSED, WHEN(short_rows), "row",
     "span=piece,lanes=half,rows=8,rows=4,rows=2,vectors=2,unroll=4,"
     "order=natural",
     "rows are short: a group of lanes takes several"},
    {"cuda", SUMS, GUESSED, WHEN(always), "row", NULL,
     "a group of lanes for each row serves most graphs"},
    {"cuda", FORWARD, GUESSED, WHEN(has_edges_and_hubs), "edges",
     "edges=128,lanes=8,rows=8,blocks=1,unroll=2",
     "W multiplies sums of edge features once for each row; rows are uneven: "
     "they are cut"},
    {"cuda", FORWARD, CERTAIN, WHEN(has_edges_hubs_and_many_features), "lift",
     "edges=128,lanes=32,unroll=2,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, of many heads; "
     "rows are uneven: they are cut"},
    {"cuda", FORWARD, GUESSED, WHEN(has_edges_and_hubs), "lift",
     "edges=128,lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge compute its projected features; rows are uneven: "
     "they are cut"},
    {"cuda", FORWARD, GUESSED, WHEN(has_edges), "edges", NULL,
     "W multiplies sums of edge features once for each row"},
    {"cuda", FORWARD, CERTAIN, WHEN(has_edges_and_many_features), "lift",
     "lanes=32,unroll=2,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, of many heads"},
    {"cuda", FORWARD, GUESSED, WHEN(has_edges), "lift", NULL,
     "the lanes of an edge compute its projected features"},
    {"cuda", FORWARD, GUESSED, WHEN(dense_blocks), "dense", NULL,
     "small dense graphs on tensor cores"},
    {"cuda", FORWARD, CERTAIN, WHEN(dense_narrow_many), "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", FORWARD, GUESSED, WHEN(dense_narrow), "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", FORWARD, CERTAIN, WHEN(beyond_the_cache), "online",
     "order=slices,heads=warp,span=once,rows=1,lanes=16,unroll=2,warps=4",
     "long rows gather from tables beyond the L2: slice by slice of them"},
    {"cuda", FORWARD, GUESSED, WHEN(few_long_few_edges), "block",
     "heads=warp,edges=32,lanes=fill,unroll=4,warps=8,rows=1",
     "rows are uneven, edges few: blocks of many warps take the long rows"},
    {"cuda", FORWARD, GUESSED, WHEN(few_long_rows), "block",
     "heads=warp,edges=32,lanes=fill,unroll=4,warps=4,rows=2",
     "rows are uneven: blocks take the long ones"},
    {"cuda", FORWARD, GUESSED, WHEN(uneven_and_few), "split",
     "heads=warp,edges=32,lanes=fill,unroll=4,span=once,warps=4,rows=1",
     "rows are uneven, edges few: rows are cut to small pieces"},
    {"cuda", FORWARD, CERTAIN_IN_F32, WHEN(short_rows_and_hubs), "split",
     "heads=warp,span=sorted,edges=128,lanes=fill,unroll=4,rows=2,warps=16",
     "rows are short but for a few: these are cut, pieces sorted by size"},
    {"cuda", FORWARD, GUESSED, WHEN(uneven), "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", FORWARD, GUESSED, WHEN(long_and_scattered), "online",
     "heads=warp,order=degree,span=once,rows=1,lanes=16,unroll=2,warps=4",
     "long rows gather from all over: those of like length go together"},
    {"cuda", FORWARD, GUESSED, WHEN(short_and_wide), "online",
     "heads=warp,span=once,rows=2,lanes=16,unroll=2,warps=4,order=natural",
     "rows are short, of many features: a warp takes two"},
    {"cuda", FORWARD, GUESSED, WHEN(short_rows), "online",
     "heads=warp,span=once,rows=4,lanes=8,unroll=2,warps=8,order=natural",
     "rows are short: a warp takes several"},
    {"cuda", FORWARD, GUESSED, WHEN(always), "online", NULL,
     "one pass serves most graphs"},
    {"cuda", BACKWARD, GUESSED, WHEN(has_edges_and_hubs), "edges",
     "edges=128,lanes=8,rows=8,blocks=1,unroll=2,columns=2",
     "W multiplies sums of edge features once for each row; rows are uneven: "
     "they are cut"},
    {"cuda", BACKWARD, CERTAIN, WHEN(has_edges_hubs_and_many_features), "lift",
     "edges=128,lanes=32,unroll=4,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, tiles of heads at a "
     "time; rows are uneven: they are cut"},
    {"cuda", BACKWARD, GUESSED, WHEN(has_edges_and_hubs), "lift",
     "edges=128,lanes=32,unroll=2,warps=8,blocks=2",
     "the lanes of an edge compute its projected features; rows are uneven: "
     "they are cut"},
    {"cuda", BACKWARD, GUESSED, WHEN(has_edges), "edges", NULL,
     "W multiplies sums of edge features once for each row"},
    {"cuda", BACKWARD, CERTAIN, WHEN(has_edges_and_many_features), "lift",
     "lanes=32,unroll=4,warps=4,blocks=3",
     "the lanes of an edge compute its projected features, tiles of heads at a "
     "time"},
    {"cuda", BACKWARD, GUESSED, WHEN(has_edges), "lift", NULL,
     "the lanes of an edge compute its projected features"},
    {"cuda", BACKWARD, GUESSED, WHEN(dense_blocks), "dense", NULL,
     "small dense graphs on tensor cores"},
    {"cuda", BACKWARD, CERTAIN, WHEN(dense_narrow_many), "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", BACKWARD, GUESSED, WHEN(dense_narrow), "direct", NULL,
     "small dense graphs on tensor cores, narrow heads side by side"},
    {"cuda", BACKWARD, CERTAIN, WHEN(beyond_the_cache), "twopass",
     "order=slices,heads=warp,span=once,rows=1,lanes=16,unroll=1",
     "long rows gather from tables beyond the L2: slice by slice of them"},
    {"cuda", BACKWARD, GUESSED, WHEN(uneven_and_few), "split",
     "heads=warp,edges=16,lanes=fill,unroll=2,span=once",
     "rows are uneven, edges few: rows are cut to small pieces"},
    {"cuda", BACKWARD, GUESSED, WHEN(uneven), "split", NULL,
     "rows are uneven: they are cut"},
    {"cuda", BACKWARD, GUESSED, WHEN(long_and_scattered), "twopass",
     "heads=warp,order=degree,span=once,rows=1,lanes=16,unroll=2",
     "long rows gather from all over: those of like length go together"},
    {"cuda", BACKWARD, GUESSED, WHEN(short_rows), "twopass",
     "heads=warp,span=once,order=natural,rows=2,lanes=32,unroll=2",
     "rows are short: a warp takes several"},
    {"cuda", BACKWARD, GUESSED, WHEN(always), "twopass", NULL,
     "two passes serve most graphs without memory for edges"},
};
/* clang-format on */

/* The lanes of an edge, a power of two from 4 to 32.  lanes=fill: as many as
 * the rows of all heads have loads, and half as many from 32 loads on.
 * lanes=half: half as many always. */
static int lanes_of(const dfgnn_problem *p, int fill) {
  const int loads = dfgnn__ceil_power(dfgnn__loads_heads(p) *
                                      dfgnn__ceil_power(dfgnn__loads(p)));
  const int lanes = fill && loads < 32 ? loads : loads / 2;
  return lanes < 4 ? 4 : lanes < 32 ? lanes : 32;
}

enum { LONGEST_LIST = 256 };

/* The list with lanes=fill and lanes=half as numbers. */
static void number_lanes(char list[LONGEST_LIST], const char *values,
                         const dfgnn_problem *problem) {
  size_t at = 0;
  for (const char *part = values; *part && at < LONGEST_LIST;) {
    const size_t length = strcspn(part, ","), room = LONGEST_LIST - at;
    const int fill = !strncmp(part, "lanes=fill", length);
    if (fill || !strncmp(part, "lanes=half", length))
      at += (size_t)snprintf(list + at, room, "lanes=%d,",
                             lanes_of(problem, fill));
    else
      at += (size_t)snprintf(list + at, room, "%.*s,", (int)length, part);
    part += length + (part[length] == ',');
  }
  list[at < LONGEST_LIST ? at : LONGEST_LIST - 1] = 0;
}

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
  const dfgnn_family *family = NULL;
  char list[LONGEST_LIST];
  int best_score = -1, serves = 0;
  number_lanes(list, values, query->setting.problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (v->family != family) { /* its variants are neighbours */
      family = v->family;
      serves = !strcmp(family->algorithm, algorithm) &&
               family->passes & DFGNN_BIT(query->setting.problem->pass) &&
               !strcmp(family->backend, query->setting.device->backend);
    }
    if (!serves)
      continue;
    int score = preferred(v, list);
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
