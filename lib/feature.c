#include "lib/feature.h"

#include <math.h>
#include <string.h>

#include "lib/loads.h"
#include "lib/operator.h"

/* ---- features of the problem --------------------------------------------- */

static double per(double a, double b) { return b > 0 ? a / b : 0; }

static double units(const dfgnn_setting *s) {
  return s->device->units > 0 ? s->device->units : 1;
}

static double element(const dfgnn_setting *s) {
  return (double)dfgnn_dtype_size(s->problem->dtype);
}

static double row_width(const dfgnn_setting *s) {
  return (double)(s->problem->heads * s->problem->dim);
}

/* Rows of stores from before the signature had degrees of sources have none. */
static double of_sources(const dfgnn_setting *s, double x) {
  const dfgnn_signature *g = s->signature;
  return g->edges > 0 && g->max_source_degree == 0 ? NAN : x;
}

#define SIGNATURE(name, member)                                                \
  static double name(const dfgnn_setting *s) {                                 \
    return (double)s->signature->member;                                       \
  }
SIGNATURE(destinations, destinations)
SIGNATURE(sources, sources)
SIGNATURE(edges, edges)
SIGNATURE(mean_degree, mean_degree)
SIGNATURE(max_degree, max_degree)
SIGNATURE(p50_degree, p50_degree)
SIGNATURE(p90_degree, p90_degree)
SIGNATURE(p99_degree, p99_degree)
SIGNATURE(degree_cv, degree_cv)
SIGNATURE(isolated, isolated)
SIGNATURE(reuse, reuse)
SIGNATURE(locality, locality)
SIGNATURE(graphs, graphs)
SIGNATURE(largest_graph, largest_graph)
SIGNATURE(density, density)

#define SOURCES(name, member)                                                  \
  static double name(const dfgnn_setting *s) {                                 \
    return of_sources(s, (double)s->signature->member);                        \
  }
SOURCES(max_source_degree, max_source_degree)
SOURCES(p50_source_degree, p50_source_degree)
SOURCES(p99_source_degree, p99_source_degree)
SOURCES(source_cv, source_cv)
SOURCES(isolated_sources, isolated_sources)

#define PROBLEM(name, member)                                                  \
  static double name(const dfgnn_setting *s) {                                 \
    return (double)s->problem->member;                                         \
  }
PROBLEM(op, op)
PROBLEM(heads, heads)
PROBLEM(dim, dim)
PROBLEM(weights, weights)
PROBLEM(bias, bias)
PROBLEM(dropout, dropout)
PROBLEM(edge_dim, edge_dim)
PROBLEM(message, message)
PROBLEM(math, math)
PROBLEM(layout, layout)
PROBLEM(dtype, dtype)

static double source_mean(const dfgnn_setting *s) {
  return per((double)s->signature->edges, (double)s->signature->sources);
}
static double p99_over_mean(const dfgnn_setting *s) {
  return per((double)s->signature->p99_degree, s->signature->mean_degree);
}
static double p99_sources_over_mean(const dfgnn_setting *s) {
  return of_sources(
      s, per((double)s->signature->p99_source_degree, source_mean(s)));
}
static double heaviest(const dfgnn_setting *s) {
  return per((double)s->signature->max_degree * units(s),
             (double)s->signature->edges);
}
static double heaviest_source(const dfgnn_setting *s) {
  return of_sources(s, per((double)s->signature->max_source_degree * units(s),
                           (double)s->signature->edges));
}
static double sources_a_destination(const dfgnn_setting *s) {
  return per((double)s->signature->sources, (double)s->signature->destinations);
}
static double block_size(const dfgnn_setting *s) {
  return per((double)s->signature->destinations, (double)s->signature->graphs);
}
static double width(const dfgnn_setting *s) { return row_width(s); }
static double row_bytes(const dfgnn_setting *s) {
  return row_width(s) * element(s);
}
static double head_bytes(const dfgnn_setting *s) {
  return (double)s->problem->dim * element(s);
}
static double source_table(const dfgnn_setting *s) {
  return per((double)s->signature->sources * row_bytes(s),
             (double)s->device->cache_bytes);
}
static double destination_table(const dfgnn_setting *s) {
  return per((double)s->signature->destinations * row_bytes(s),
             (double)s->device->cache_bytes);
}
static double rows_a_unit(const dfgnn_setting *s) {
  return (double)s->signature->destinations / units(s);
}
static double edges_a_unit(const dfgnn_setting *s) {
  return (double)s->signature->edges / units(s);
}
static double bytes_a_unit(const dfgnn_setting *s) {
  return (double)s->signature->edges * row_bytes(s) / units(s);
}
static double device_units(const dfgnn_setting *s) { return units(s); }
static double device_cache(const dfgnn_setting *s) {
  return (double)s->device->cache_bytes;
}
static double device_shared(const dfgnn_setting *s) {
  return (double)s->device->shared_bytes;
}

static const struct {
  const char *name;
  double (*number)(const dfgnn_setting *setting);
} problem_features[] = {
    {"destinations", destinations},
    {"sources", sources},
    {"edges", edges},
    {"mean degree", mean_degree},
    {"max degree", max_degree},
    {"p50 degree", p50_degree},
    {"p90 degree", p90_degree},
    {"p99 degree", p99_degree},
    {"p99 over mean degree", p99_over_mean},
    {"degree variation", degree_cv},
    {"isolated rows", isolated},
    {"heaviest row's share", heaviest},
    {"mean source degree", source_mean},
    {"max source degree", max_source_degree},
    {"p50 source degree", p50_source_degree},
    {"p99 source degree", p99_source_degree},
    {"p99 over mean source degree", p99_sources_over_mean},
    {"source degree variation", source_cv},
    {"isolated sources", isolated_sources},
    {"heaviest source's share", heaviest_source},
    {"sources a destination", sources_a_destination},
    {"reuse", reuse},
    {"locality", locality},
    {"graphs", graphs},
    {"largest graph", largest_graph},
    {"nodes a graph", block_size},
    {"density", density},
    {"operator", op},
    {"heads", heads},
    {"features a head", dim},
    {"features a row", width},
    {"dtype", dtype},
    {"math", math},
    {"layout", layout},
    {"weights", weights},
    {"bias", bias},
    {"dropout", dropout},
    {"edge features", edge_dim},
    {"message", message},
    {"bytes a row", row_bytes},
    {"bytes a head", head_bytes},
    {"source table over cache", source_table},
    {"destination table over cache", destination_table},
    {"rows a unit", rows_a_unit},
    {"edges a unit", edges_a_unit},
    {"bytes gathered a unit", bytes_a_unit},
    {"units", device_units},
    {"cache", device_cache},
    {"shared memory", device_shared},
    {"program: numbers read of an edge", dfgnn__program_edge_numbers},
    {"program: numbers read of nodes", dfgnn__program_node_numbers},
    {"program: operations of an edge", dfgnn__program_operations},
    {"program: functions of an edge", dfgnn__program_functions},
    {"program: sums over edges", dfgnn__program_sums},
    {"program: softmaxes over edges", dfgnn__program_softmaxes},
    {"program: walks", dfgnn__program_walks},
    {"program: numbers written of an edge", dfgnn__program_written},
};

size_t dfgnn__problem_feature_count(void) {
  return sizeof problem_features / sizeof *problem_features;
}

const char *dfgnn__problem_feature_name(size_t i) {
  return problem_features[i].name;
}

double dfgnn__problem_feature(size_t i, const dfgnn_setting *setting) {
  return problem_features[i].number(setting);
}

/* ---- features of a variant on a problem ---------------------------------- */

static double at_least_one(int x) { return x > 0 ? x : 1; }

/* The features of a head, and of a row, that each lane holds. */
static double head_a_lane(const dfgnn_setting *s, const int *v) {
  return (double)s->problem->dim / at_least_one(v[0]);
}
static double row_a_lane(const dfgnn_setting *s, const int *v) {
  return row_width(s) / at_least_one(v[0]);
}

/* The loads of an edge by each of its lanes, one after the other; lanes that a
 * head leaves take the next one.  Widths between powers of two leave lanes
 * idle: 3 x 24 floats are 18 loads, 3 of each of 8 lanes, or 2 of each of 16.
 */
static double loads_a_lane(const dfgnn_setting *s, const int *v) {
  const int64_t lanes = v[0] > 0 ? v[0] : 1, loads = dfgnn__loads(s->problem);
  const int64_t head_lanes = dfgnn__ceil_power(loads);
  const int64_t beside = head_lanes < lanes ? lanes / head_lanes : 1;
  const int64_t turns = dfgnn__ceil_div(dfgnn__loads_heads(s->problem), beside);
  return (double)(turns * dfgnn__ceil_div(loads, lanes));
}

/* The lanes that take part in a load of all heads, over those that load. */
static double lanes_a_load(const dfgnn_setting *s, const int *v) {
  const int64_t loads =
      dfgnn__loads(s->problem) * dfgnn__loads_heads(s->problem);
  return per(loads_a_lane(s, v) * at_least_one(v[0]), (double)loads);
}

/* Edges that a warp has in flight. */
static double in_flight(const int *v) {
  const double groups = v[0] > 0 && v[0] < 32 ? 32 / v[0] : 1;
  return groups * at_least_one(v[1]);
}

/* The degree that stands for a class of the histogram: 3/4 of its upper end. */
static double class_degree(int b) {
  return b == 1 ? 1 : 0.75 * (double)(1u << b);
}

/* Slots over edges, if each row is filled up to a multiple of the edges in
 * flight. */
static double idle_slots(const dfgnn_setting *s, const int *v) {
  const double *share = s->signature->histogram, chunk = in_flight(v);
  double slots = 0, edges = 0;
  for (int b = 1; b < DFGNN_HISTOGRAM_BINS; b++) {
    const double degree = class_degree(b);
    const double chunks = ceil(degree / chunk);
    const double bin_slots = share[b] * chunks;
    const double bin_edges = share[b] * degree;
    slots += bin_slots;
    edges += bin_edges;
  }
  return per(slots * chunk, edges);
}
static double degree_over_flight(const dfgnn_setting *s, const int *v) {
  return s->signature->mean_degree / in_flight(v);
}
static double flights_of_source(const dfgnn_setting *s, const int *v) {
  return source_mean(s) / in_flight(v);
}

/* The steps that the longest row, or its longest piece, takes one after the
 * other: the kernel ends no sooner. */
static double steps_of_heaviest(const dfgnn_setting *s, const int *v) {
  return ceil((double)s->signature->max_degree / in_flight(v));
}
static double steps_of_piece(const dfgnn_setting *s, const int *v) {
  const double longest = (double)s->signature->max_degree;
  const double piece = at_least_one(v[2]);
  return ceil((piece < longest ? piece : longest) / in_flight(v));
}

static double steps_of_heaviest_source(const dfgnn_setting *s, const int *v) {
  return of_sources(
      s, ceil((double)s->signature->max_source_degree / in_flight(v)));
}

/* The steps of a unit (multiprocessor) if each row has a warp of its own. */
static double steps_a_unit(const dfgnn_setting *s, const int *v) {
  const double *share = s->signature->histogram, chunk = in_flight(v);
  double steps = 0;
  for (int b = 1; b < DFGNN_HISTOGRAM_BINS; b++) {
    const double degree = class_degree(b);
    const double bin_steps = share[b] * ceil(degree / chunk);
    steps += bin_steps;
  }
  return steps * (double)s->signature->destinations / units(s);
}
static double heaviest_over_unit(const dfgnn_setting *s, const int *v) {
  return per(steps_of_heaviest(s, v), steps_a_unit(s, v));
}
static double piece_over_unit(const dfgnn_setting *s, const int *v) {
  return per(steps_of_piece(s, v), steps_a_unit(s, v));
}

/* The pieces of a unit, if each row is cut into one at least. */
static double cut_rows_a_unit(const dfgnn_setting *s, const int *v) {
  const double *share = s->signature->histogram, piece = at_least_one(v[0]);
  double pieces = 0;
  for (int b = 1; b < DFGNN_HISTOGRAM_BINS; b++) {
    const double degree = class_degree(b);
    const double bin_pieces = share[b] * ceil(degree / piece);
    pieces += bin_pieces;
  }
  return pieces * (double)s->signature->destinations / units(s);
}

/* The warps of a unit that rows keep busy. */
static double warps_a_unit(const dfgnn_setting *s, const int *v) {
  const double lanes = v[0] > 0 && v[0] < 32 ? v[0] : 32;
  return (double)s->signature->destinations * lanes / 32 / at_least_one(v[1]) /
         units(s);
}

static double pieces_a_unit(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->edges / at_least_one(v[0]) / units(s);
}
static double pieces_of_heaviest(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->max_degree / at_least_one(v[0]);
}
static double pieces_of_heaviest_source(const dfgnn_setting *s, const int *v) {
  return of_sources(s, (double)s->signature->max_source_degree /
                           at_least_one(v[0]));
}
static double pieces_of_p99(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->p99_degree / at_least_one(v[0]);
}

static double row_groups_a_unit(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->destinations / at_least_one(v[0]) / units(s);
}
static double blocks_a_unit(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->destinations /
         (at_least_one(v[0]) * at_least_one(v[1])) / units(s);
}
static double rows_of_graph(const dfgnn_setting *s, const int *v) {
  return (double)s->signature->largest_graph / at_least_one(v[0]);
}

/* A tile of `rows` rows whose columns are theirs all together has no more of
 * them than the window around the heaviest row: how many, and all their slots
 * over the edges of a unit.  A hub makes both large. */
static double columns_of_window(const dfgnn_setting *s, const int *v) {
  const double most = at_least_one(v[0]) * (double)s->signature->max_degree;
  const double sources = (double)s->signature->sources;
  return most < sources ? most : sources;
}
static double window_over_unit(const dfgnn_setting *s, const int *v) {
  return per(columns_of_window(s, v) * at_least_one(v[0]) * units(s),
             (double)s->signature->edges);
}

static double panels(const dfgnn_setting *s, const int *v) {
  return row_width(s) / at_least_one(v[0]);
}

static const dfgnn_pair_feature pair_features[] = {
    {"features a lane of a head", {"lanes"}, head_a_lane},
    {"features a lane of a row", {"lanes"}, row_a_lane},
    {"loads a lane", {"lanes"}, loads_a_lane},
    {"lanes a load", {"lanes"}, lanes_a_load},
    {"slots an edge", {"lanes", "unroll"}, idle_slots},
    {"mean degree over flight", {"lanes", "unroll"}, degree_over_flight},
    {"mean source degree over flight", {"lanes", "unroll"}, flights_of_source},
    {"steps of the heaviest row", {"lanes", "unroll"}, steps_of_heaviest},
    {"steps of a piece", {"lanes", "unroll", "edges"}, steps_of_piece},
    {"steps of the heaviest source",
     {"lanes", "unroll"},
     steps_of_heaviest_source},
    {"steps a unit", {"lanes", "unroll"}, steps_a_unit},
    {"heaviest row's steps over a unit's",
     {"lanes", "unroll"},
     heaviest_over_unit},
    {"a piece's steps over a unit's",
     {"lanes", "unroll", "edges"},
     piece_over_unit},
    {"pieces of cut rows a unit", {"edges"}, cut_rows_a_unit},
    {"warps a unit", {"lanes", "rows"}, warps_a_unit},
    {"pieces a unit", {"edges"}, pieces_a_unit},
    {"pieces of the heaviest row", {"edges"}, pieces_of_heaviest},
    {"pieces of the heaviest source", {"edges"}, pieces_of_heaviest_source},
    {"pieces of a p99 row", {"edges"}, pieces_of_p99},
    {"groups of rows a unit", {"rows"}, row_groups_a_unit},
    {"blocks a unit", {"rows", "warps"}, blocks_a_unit},
    {"tiles of the largest graph", {"rows"}, rows_of_graph},
    {"columns of the heaviest window", {"rows"}, columns_of_window},
    {"heaviest window's slots over a unit's edges", {"rows"}, window_over_unit},
    {"panels", {"panel"}, panels},
};

size_t dfgnn__pair_feature_count(void) {
  return sizeof pair_features / sizeof *pair_features;
}

const dfgnn_pair_feature *dfgnn__pair_feature(size_t i) {
  return &pair_features[i];
}

/* ---- features of a variant ----------------------------------------------- */

static const int *parameter_of(const dfgnn_variant *variant, const char *name) {
  for (int p = 0; p < DFGNN_MAX_PARAMETERS; p++) {
    const char *own = variant->family->parameters[p].name;
    if (!own)
      return NULL;
    if (!strcmp(own, name))
      return &variant->parameter[p];
  }
  return NULL;
}

int dfgnn__pair_values(int value[DFGNN_PAIR_PARAMETERS],
                       const dfgnn_pair_feature *pair,
                       const dfgnn_variant *variant) {
  for (int k = 0; k < DFGNN_PAIR_PARAMETERS && pair->parameter[k]; k++) {
    const int *own = parameter_of(variant, pair->parameter[k]);
    if (!own)
      return 0;
    value[k] = *own;
  }
  return 1;
}

double dfgnn__variant_feature(const char *name, const dfgnn_variant *variant) {
  static const char parameter[] = "parameter ", algorithm[] = "algorithm ";
  if (!strncmp(name, parameter, sizeof parameter - 1)) {
    const int *own = parameter_of(variant, name + sizeof parameter - 1);
    return own ? *own : NAN;
  }
  if (!strncmp(name, algorithm, sizeof algorithm - 1))
    return !strcmp(variant->family->algorithm, name + sizeof algorithm - 1);
  return NAN;
}
