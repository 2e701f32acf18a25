#include "graph/io/generators.h"
#include "tests/unit/files.h"

static void wrong(const char *spec, const char *text) {
  dfgnn_csr *csr = NULL;
  ck_invalid(dfgnn_csr_generate(&csr, spec), text);
  ck_assert_ptr_null(csr);
}

static int64_t degree(const dfgnn_csr *csr, int64_t i) {
  return dfgnn__csr_offset(csr, i + 1) - dfgnn__csr_offset(csr, i);
}

static int64_t max_degree(const dfgnn_csr *csr) {
  int64_t most = 0;
  for (int64_t i = 0; i < csr->destinations; i++)
    most = degree(csr, i) > most ? degree(csr, i) : most;
  return most;
}

/* Rows ascend without duplicates, in range, and within their graph.  (An
 * assertion of each edge would take longer than the graph: Check notes them
 * all.) */
static void well_formed(const dfgnn_csr *csr) {
  int64_t wrong = 0;
  ck_assert_int_eq(dfgnn__csr_offset(csr, csr->destinations), csr->edges);
  for (int64_t i = 0, g = 0; i < csr->destinations; i++) {
    int64_t low = 0, high = csr->sources, last = -1;
    if (csr->graph_ptr) {
      while (i >= csr->graph_ptr[g + 1])
        g++;
      low = csr->graph_ptr[g];
      high = csr->graph_ptr[g + 1];
    }
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      int64_t j = dfgnn__csr_index(csr, e);
      wrong += j <= last || j < low || j >= high;
      last = j;
    }
  }
  ck_assert_int_eq(wrong, 0);
}

static uint64_t hash(const dfgnn_csr *csr) {
  uint64_t h = 14695981039346656037u;
  for (int64_t i = 0; i <= csr->destinations; i++)
    h = (h ^ (uint64_t)dfgnn__csr_offset(csr, i)) * 1099511628211u;
  for (int64_t e = 0; e < csr->edges; e++)
    h = (h ^ (uint64_t)dfgnn__csr_index(csr, e)) * 1099511628211u;
  return h;
}

static void near(double found, double expected, double share) {
  ck_assert_msg(
      found > expected * (1 - share) && found < expected * (1 + share),
      "found %.6g, expected %.6g within %.3g %%", found, expected, 100 * share);
}

static double mean_nodes(const dfgnn_csr *csr) {
  return (double)csr->destinations / (double)(csr->graphs ? csr->graphs : 1);
}
static double mean_edges(const dfgnn_csr *csr) {
  return (double)csr->edges / (double)(csr->graphs ? csr->graphs : 1);
}

/* Six groups of U{5..34}, mean 19.5, E[s^2] = 455.17: E[n] = 117; pairs
 * within E[s(s-1)] / 2 = 217.8 each, between 19.5^2 = 380.25. */
TEST(pattern_has_the_parameters_of_the_benchmark) {
  dfgnn_csr *csr = generated("sbm-pattern:batch=600,seed=7");
  well_formed(csr);
  ck_assert_int_eq(csr->graphs, 600);
  ck_assert_int_eq(dfgnn__csr_symmetric(csr), 1);
  near(mean_nodes(csr), 117, .02);
  near(mean_edges(csr), 2 * (6 * 217.8 * .5 + 380.25 * (10 * .35 + 5 * .5)),
       .05);
}

TEST(cluster_has_the_parameters_of_the_benchmark) {
  dfgnn_csr *csr = generated("sbm-cluster:batch=600,seed=7");
  well_formed(csr);
  ck_assert_int_eq(dfgnn__csr_symmetric(csr), 1);
  near(mean_nodes(csr), 117, .02);
  near(mean_edges(csr), 2 * (6 * 217.8 * .55 + 380.25 * 15 * .25), .05);
}

/* The nodes and edges of a graph are those of the data sets that the presets
 * imitate. */
TEST(presets_of_batches_have_the_stated_sizes) {
  static const struct {
    const char *spec;
    double nodes, edges, share;
    int symmetric;
  } rows[] = {{"preset=pattern,scale=0.25", 119, 6079, .02, 1},
              {"preset=cluster,scale=0.25", 117, 4303, .02, 1},
              {"preset=mnist,scale=0.1", 71, 8 * 71, 1e-9, 0},
              {"preset=cifar10,scale=0.1", 118, 8 * 118, 1e-9, 0},
              {"preset=voc,scale=0.1", 479, 2709, .01, 1},
              {"preset=coco,scale=0.1", 477, 2693, .01, 1}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    dfgnn_csr *csr = generated(rows[k].spec);
    well_formed(csr);
    near(mean_nodes(csr), rows[k].nodes, .02);
    near(mean_edges(csr), rows[k].edges, rows[k].share);
    ck_assert_int_eq(dfgnn__csr_symmetric(csr), rows[k].symmetric);
  }
}

TEST(arxiv_has_its_super_node) {
  dfgnn_csr *csr = generated("preset=arxiv");
  well_formed(csr);
  ck_assert_str_eq(csr->name, "arxiv");
  ck_assert_int_eq(csr->destinations, 169343);
  near((double)csr->edges, 1166243, .005);
  near((double)max_degree(csr), 13161, .05); /* less its duplicates */
}

TEST(scaled_presets_keep_the_mean_degree) {
  static const struct {
    const char *spec;
    double mean;
  } rows[] = {{"preset=ppa,scale=0.02", 42463862. / 576289},
              {"preset=proteins,scale=0.05", 79122504. / 132534},
              {"preset=reddit_rand,scale=0.05", 114615892. / 232965}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    dfgnn_csr *csr = generated(rows[k].spec);
    well_formed(csr);
    near((double)csr->edges / (double)csr->destinations, rows[k].mean, .1);
  }
}

TEST(the_largest_degree_is_the_stated_one) {
  dfgnn_csr *csr = generated("powerlaw:nodes=5000,edges=60000,max-degree=800,"
                             "columns=local");
  well_formed(csr);
  ck_assert_int_eq(max_degree(csr), 800);
  near((double)csr->edges, 60000, .01);
  int64_t local = 0;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      int64_t d = i - dfgnn__csr_index(csr, e);
      local += d >= -1024 && d <= 1024;
    }
  ck_assert_double_gt((double)local, .88 * (double)csr->edges);
  done(csr);
  csr = generated(
      "powerlaw:nodes=600,edges=60000,max-degree=600"); /* dense rows */
  well_formed(csr);
  ck_assert_int_eq(max_degree(csr), 600);
}

TEST(uniform_graphs_have_exactly_the_edges) {
  dfgnn_csr *csr = generated("uniform:nodes=300,sources=700,edges=5000");
  well_formed(csr);
  ck_assert_int_eq(csr->edges, 5000);
  ck_assert_int_eq(csr->sources, 700);
  done(csr);
  csr = generated("uniform:nodes=7,sources=5,edges=35"); /* full */
  well_formed(csr);
  ck_assert_int_eq(csr->edges, 35);
}

TEST(grids_have_four_or_eight_neighbours) {
  dfgnn_csr *csr = generated("grid:rows=2,columns=3");
  ck_assert_str_eq(csr_text(csr), "1 3|0 2 4|1 5|0 4|1 3 5|2 4");
  done(csr);
  csr = generated("grid:rows=2,columns=3,neighbours=8");
  ck_assert_str_eq(csr_text(csr),
                   "1 3 4|0 2 3 4 5|1 4 5|0 1 4|0 1 2 3 5|1 2 4");
}

/* The sizes of the graphs of weather models that the presets make. */
typedef struct sizes {
  const char *spec;
  int64_t rows, sources, edges, most; /* edges of a row */
} sizes;

static void has_sizes(const sizes *s) {
  dfgnn_csr *csr = generated(s->spec);
  well_formed(csr);
  ck_assert_int_eq(csr->destinations, s->rows);
  ck_assert_int_eq(csr->sources, s->sources);
  ck_assert_int_eq(csr->edges, s->edges);
  ck_assert_int_eq(max_degree(csr), s->most);
}

TEST(weather_presets_have_the_stated_sizes) {
  has_sizes(&(sizes){"preset=o96_proc", 10242, 10242, 81900, 30});
  has_sizes(&(sizes){"preset=h_to_h", 40962, 40962, 327660, 36});
  has_sizes(&(sizes){"preset=o96_knn16", 40320, 40320, 16 * 40320, 16});
}

TEST(weather_encoders_have_the_stated_sizes) {
  has_sizes(&(sizes){"preset=era_to_h", 40962, 542080, 852456, 30});
  has_sizes(&(sizes){"preset=dop_enc", 40962, 307200, 3 * 307200, 31});
}

TEST(weather_decoders_have_the_stated_sizes) {
  has_sizes(&(sizes){"preset=h_to_era", 542080, 40962, 3 * 542080, 3});
}

TEST(a_multi_mesh_has_the_edges_of_its_levels) {
  dfgnn_csr *csr = generated("icosphere:level=3");
  well_formed(csr);
  ck_assert_int_eq(dfgnn__csr_symmetric(csr), 1);
  ck_assert_int_eq(csr->destinations, 642);
  ck_assert_int_eq(csr->edges, 60 * (1 + 4 + 16 + 64));
  done(csr);
  csr = generated("icosphere:level=3,coarsest=3");
  ck_assert_int_eq(csr->edges, 60 * 64);
  ck_assert_int_eq(max_degree(csr), 6);
}

/* Fewer than k points are nearer than the farthest of k neighbours. */
TEST(neighbours_are_the_nearest) {
  enum { N = 400, K = 5 };
  static dfgnn__point points[N];
  dfgnn__random random = dfgnn__random_stream(3, 0);
  dfgnn__random_points(points, N, &random);
  dfgnn_csr *csr = generated("knn:nodes=400,k=5,seed=3");
  for (int64_t i = 0; i < N; i++) {
    int64_t farthest = 0, nearer = 0;
    for (int64_t e = K * i; e < K * (i + 1); e++) {
      const dfgnn__point *p = &points[dfgnn__csr_index(csr, e)];
      int64_t dx = p->x - points[i].x, dy = p->y - points[i].y;
      int64_t d = dx * dx + dy * dy;
      farthest = d > farthest ? d : farthest;
    }
    for (int64_t j = 0; j < N; j++) {
      int64_t dx = points[j].x - points[i].x, dy = points[j].y - points[i].y;
      nearer += j != i && dx * dx + dy * dy < farthest;
    }
    ck_assert_int_eq(degree(csr, i), K);
    ck_assert_int_lt(nearer, K);
  }
}

static int64_t cross(const dfgnn__point *a, const dfgnn__point *b,
                     const dfgnn__point *c) {
  return (b->x - a->x) * (c->y - a->y) - (b->y - a->y) * (c->x - a->x);
}

/* Whether edges (a, b) and (c, d) cross in a point inside both. */
static int intersect(const dfgnn__point *a, const dfgnn__point *b,
                     const dfgnn__point *c, const dfgnn__point *d) {
  return (cross(a, b, c) > 0) != (cross(a, b, d) > 0) &&
         (cross(c, d, a) > 0) != (cross(c, d, b) > 0) && cross(a, b, c) &&
         cross(a, b, d) && cross(c, d, a) && cross(c, d, b);
}

/* Asserts that no two edges cross, that each point's nearest is its neighbour,
 * and that there are 3 n - 3 - (points on the hull) edges, as Euler's formula
 * says. */
static void check_triangulation(dfgnn__point *points, int64_t n) {
  dfgnn__edges edges = {0};
  ck_ok(dfgnn__delaunay(&edges, points, n));
  int64_t crossing = 0;
  for (int64_t e = 0; e < edges.count; e++)
    for (int64_t f = 0; f < e; f++)
      crossing +=
          intersect(&points[edges.edge[e].row], &points[edges.edge[e].column],
                    &points[edges.edge[f].row], &points[edges.edge[f].column]);
  ck_assert_int_eq(crossing, 0);
  for (int64_t i = 0; i < n; i++) {
    int64_t best = -1, least = INT64_MAX, tied = 0, found = 0;
    for (int64_t j = 0; j < n; j++) {
      int64_t dx = points[j].x - points[i].x, dy = points[j].y - points[i].y;
      int64_t d = dx * dx + dy * dy;
      if (j != i && d <= least) {
        tied = d == least;
        least = d;
        best = j;
      }
    }
    for (int64_t e = 0; e < edges.count; e++)
      found |= (edges.edge[e].row == i && edges.edge[e].column == best) ||
               (edges.edge[e].row == best && edges.edge[e].column == i);
    ck_assert(tied || found);
  }
  int64_t hull = 0; /* edges with all points on one side */
  for (int64_t e = 0; e < edges.count; e++) {
    int left = 0, right = 0;
    for (int64_t k = 0; k < n; k++) {
      int64_t c = cross(&points[edges.edge[e].row],
                        &points[edges.edge[e].column], &points[k]);
      left |= c > 0;
      right |= c < 0;
    }
    hull += !left || !right;
  }
  ck_assert_int_eq(edges.count, 3 * n - 3 - hull);
  dfgnn__edges_free(&edges);
}

TEST(triangulations_are_planar_and_complete) {
  dfgnn__point points[150];
  for (uint64_t seed = 1; seed <= 20; seed++) {
    dfgnn__random random = dfgnn__random_stream(seed, 0);
    int64_t n = 4 + dfgnn__random_below(&random, 120);
    dfgnn__random_points(points, n, &random);
    check_triangulation(points, n);
  }
}

TEST(triangulations_survive_points_on_lines_and_circles) {
  dfgnn__point points[144];
  for (int k = 0; k < 144; k++) /* a lattice: every circle has four points */
    points[k] = (dfgnn__point){1000 * (k % 12), 1000 * (k / 12)};
  check_triangulation(points, 144);
  dfgnn__edges edges = {0};
  for (int k = 0; k < 100; k++)
    points[k] = (dfgnn__point){k * k, 2 * k * k};
  ck_ok(dfgnn__delaunay(&edges, points, 100));
  ck_assert_int_eq(edges.count, 99);
  dfgnn__edges_free(&edges);
}

TEST(points_on_one_place_are_refused) {
  dfgnn__point points[3] = {{5, 5}, {1, 2}, {5, 5}};
  dfgnn__edges edges = {0};
  ck_invalid(dfgnn__delaunay(&edges, points, 3),
             "found points 0 and 2 in one place");
  dfgnn__edges_free(&edges);
}

/* The hashes are fixed: graphs are the same on every machine and in every
 * release. */
TEST(the_same_specification_makes_the_same_graph) {
  static const struct {
    const char *spec;
    uint64_t hash;
  } rows[] = {
      {"sbm-pattern:batch=3,seed=5", 0x33357a41012c3087},
      {"sbm-cluster:batch=3,seed=5", 0x28a77809c5adaccb},
      {"sbm:batch=3,seed=5", 0x28c33dc48a87147d},
      {"knn:batch=3,seed=5", 0x183e0ccaee567172},
      {"region:batch=3,seed=5", 0x63ed0ade4506fd6b},
      {"powerlaw:columns=local,seed=5", 0x8c71aec79b018c12},
      {"powerlaw:columns=random,duplicates=drop,seed=5", 0x4ed244875e6c3113},
      {"uniform:seed=5", 0x0a5b243a2e327ca1},
      {"grid:rows=9,columns=8", 0x8cccf3ac9a3c3631},
      {"rmat:scale=8,edges=999,seed=5", 0x8495817632c8dd26},
      {"icosphere:level=4", 0x7d0e61d210048e6d},
      {"sphere:row-size=20,source-size=20", 0x079b20f626a28645},
      {"sphere:rows=icosphere,row-size=3,sources=latitude,source-size=9000,"
       "k=0,radius=.1",
       0x442775132a319f28},
  };
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    dfgnn_csr *csr = generated(rows[k].spec);
    ck_assert_msg(hash(csr) == rows[k].hash, "%s: 0x%016llx", rows[k].spec,
                  (unsigned long long)hash(csr));
  }
}

TEST(another_seed_makes_another_graph) {
  static const char *const kinds[] = {"sbm-pattern", "sbm-cluster", "sbm",
                                      "knn",         "region",      "powerlaw",
                                      "uniform"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    char spec[64];
    uint64_t seen[2];
    for (int seed = 0; seed < 2; seed++) {
      snprintf(spec, sizeof spec, "%s:seed=%d", kinds[k], seed);
      dfgnn_csr *csr = generated(spec);
      seen[seed] = hash(csr);
    }
    ck_assert_msg(seen[0] != seen[1], "%s ignores its seed", kinds[k]);
  }
}

TEST(a_wrong_specification_lists_what_exists) {
  wrong("mesh", "found the kind 'mesh', expected preset=NAME or one of "
                "sbm-pattern, sbm-cluster, sbm, knn, region, powerlaw");
  wrong("", "found the kind ''");
  wrong("preset=imagenet", "found preset 'imagenet', expected one of pattern, "
                           "cluster, mnist");
  wrong("knn:size=4", "knn: found the setting 'size', expected one of nodes=71 "
                      "k=8 batch=1 seed=1");
  wrong("knn:scale=.5", "found the setting 'scale'");
  wrong("knn:k", "found 'k' without a value, expected k=VALUE");
  wrong("knn:k=", "found k=, expected a whole number of 1");
  wrong("knn:k=2.5", "found k=2.5, expected a whole number");
  wrong("knn:k=nan", "found k=nan");
  wrong("knn:seed=-1", "found seed=-1, expected a whole number of 0");
  wrong("powerlaw:columns=near", "found columns=near, expected random|local");
  wrong("preset=arxiv,scale=2", "found scale=2, expected a number of 1e-06");
}

TEST(settings_that_contradict_are_named) {
  wrong("knn:nodes=8,k=8", "knn: found k=8, expected fewer than nodes=8");
  wrong("powerlaw:max-degree=20000", "expected at most nodes=10000");
  wrong("powerlaw:edges=500", "found edges=500, expected max-degree=1000 to");
  wrong("uniform:nodes=2,edges=5", "found edges=5, expected at most");
  wrong("sbm:min-nodes=200", "expected at most max-nodes=188");
  wrong("sbm:edges=1000000", "sbm: found edges=1000000, expected");
  wrong("knn:nodes=1000000,batch=10000", "expected at most 2147483647 nodes");
  wrong("icosphere:level=2,coarsest=3", "found coarsest=3, expected at most "
                                        "level=2");
  wrong("sphere:k=0", "sphere: found k=0 and radius=0, expected one of them");
  wrong("sphere:row-size=0", "row-size: found the size 0, expected 1 to 10000");
  wrong("sphere:sources=icosphere", "source-size: found the size 96, expected "
                                    "0 to 10, the level of an icosphere");
  wrong("sphere:source-size=1,k=41", "found k=41, expected at most 40");
  wrong("preset=h_to_h,scale=.5", "icosphere: found scale=0.5, expected none");
}

TEST(a_graph_argument_is_a_file_or_a_specification) {
  dfgnn_csr *csr = NULL;
  ck_ok(dfgnn__csr_open(&csr, put_text("a.txt", "0 1\n")));
  ck_assert_int_eq(csr->edges, 1);
  dfgnn_csr_free(csr);
  ck_ok(dfgnn__csr_open(&csr, "grid:rows=2,columns=2"));
  ck_assert_int_eq(csr->edges, 8);
  dfgnn_csr_free(csr);
  ck_ok(dfgnn__csr_open(&csr, "gen:grid:rows=2,columns=2"));
  ck_assert_int_eq(csr->edges, 8);
  dfgnn_csr_free(csr);
  ck_invalid(dfgnn__csr_open(&csr, "cora"),
             "cora: no such file, and no generator: found the kind 'cora'");
  ck_fails(dfgnn__csr_open(&csr, "cora.npz"), DFGNN_ERROR_IO,
           "cora.npz: cannot open");
}

TEST_MAIN("io_generate", FILE_TESTS)
