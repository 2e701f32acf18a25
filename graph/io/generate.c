/* generate.c - makes a graph from a specification, by tables of kinds, settings
 * and presets */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dfgnn_graph.h"
#include "graph/io/generators.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/locale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SETTINGS 10
#define MAX_NODES 2147483647.0
#define MAX_EDGES 1e12
#define MAX_SEED 9007199254740991.0 /* 2^53 - 1 */

typedef struct setting {
  const char *name;
  double value, least, most; /* default and bounds */
  const char *choices;       /* "random|local": a word, not a number */
  int real;                  /* 1: need not be whole */
} setting;

typedef struct kind {
  dfgnn__generator_info info;
  dfgnn__generate *generate;
  setting settings[MAX_SETTINGS]; /* ends with a NULL name */
} kind;

#define BATCH                                                                  \
  { .name = "batch", .value = 1, .least = 1, .most = 1e7 }
#define SEED                                                                   \
  { .name = "seed", .value = 1, .least = 0, .most = MAX_SEED }

#define GRIDS "octahedral|latitude|icosphere"

static const kind kinds[] = {
    {{"sbm-pattern",
      "PATTERN of Benchmarking-GNNs: 5 communities of 5..34 "
      "nodes, p .5 inside, .35 outside, and a pattern of p .5",
      "batch=1 seed=1"},
     dfgnn__generate_sbm_pattern,
     {BATCH, SEED}},
    {{"sbm-cluster",
      "CLUSTER of Benchmarking-GNNs: 6 communities of 5..34 "
      "nodes, p .55 inside, .25 outside",
      "batch=1 seed=1"},
     dfgnn__generate_sbm_cluster,
     {BATCH, SEED}},
    {{"sbm", "stochastic block models of stated size and mean edges a graph",
      "nodes=119 deviation=18 min-nodes=44 max-nodes=188 communities=5 "
      "inside=0.62 edges=6079 batch=1 seed=1"},
     dfgnn__generate_sbm,
     {{.name = "nodes", .value = 119, .least = 1, .most = 20000},
      {.name = "deviation", .value = 18, .least = 0, .most = 20000, .real = 1},
      {.name = "min-nodes", .value = 44, .least = 1, .most = 20000},
      {.name = "max-nodes", .value = 188, .least = 1, .most = 20000},
      {.name = "communities", .value = 5, .least = 1, .most = 255},
      {.name = "inside", .value = .62, .least = 0, .most = 1, .real = 1},
      {.name = "edges",
       .value = 6079,
       .least = 0,
       .most = MAX_EDGES,
       .real = 1},
      BATCH,
      SEED}},
    {{"knn", "the k nearest neighbours of random points in the plane",
      "nodes=71 k=8 batch=1 seed=1"},
     dfgnn__generate_knn,
     {{.name = "nodes", .value = 71, .least = 2, .most = MAX_NODES},
      {.name = "k", .value = 8, .least = 1, .most = 10000},
      BATCH,
      SEED}},
    {{"region",
      "region adjacency: Delaunay triangulation of random points "
      "less a share of its edges",
      "nodes=479 drop=0.05 batch=1 seed=1"},
     dfgnn__generate_region,
     {{.name = "nodes", .value = 479, .least = 1, .most = MAX_NODES},
      {.name = "drop", .value = .05, .least = 0, .most = 1, .real = 1},
      BATCH,
      SEED}},
    {{"powerlaw",
      "degrees of a power law up to a stated one; columns "
      "anywhere, or 90% near the row",
      "nodes=10000 edges=100000 max-degree=1000 columns=random|local "
      "duplicates=redraw|drop seed=1"},
     dfgnn__generate_powerlaw,
     {{.name = "nodes", .value = 10000, .least = 1, .most = MAX_NODES},
      {.name = "edges", .value = 100000, .least = 1, .most = MAX_EDGES},
      {.name = "max-degree", .value = 1000, .least = 1, .most = MAX_NODES},
      {.name = "columns", .most = 1, .choices = "random|local"},
      {.name = "duplicates", .most = 1, .choices = "redraw|drop"},
      SEED}},
    {{"uniform", "edges between random nodes; sources=0 makes it square",
      "nodes=10000 sources=0 edges=100000 seed=1"},
     dfgnn__generate_uniform,
     {{.name = "nodes", .value = 10000, .least = 1, .most = MAX_NODES},
      {.name = "sources", .value = 0, .least = 0, .most = MAX_NODES},
      {.name = "edges", .value = 100000, .least = 0, .most = MAX_EDGES},
      SEED}},
    {{"grid", "a rectangular mesh, without or with diagonals",
      "rows=100 columns=100 neighbours=4|8"},
     dfgnn__generate_grid,
     {{.name = "rows", .value = 100, .least = 1, .most = MAX_NODES},
      {.name = "columns", .value = 100, .least = 1, .most = MAX_NODES},
      {.name = "neighbours", .most = 1, .choices = "4|8"}}},
    {{"rmat",
      "R-MAT: 2^scale nodes, a skewed quadrant of the matrix at each level, as "
      "Graph 500 has it",
      "scale=12 edges=65536 seed=1"},
     dfgnn__generate_rmat,
     {{.name = "scale", .value = 12, .least = 0, .most = 30},
      {.name = "edges", .value = 65536, .least = 0, .most = MAX_EDGES},
      SEED}},
    {{"bipartite",
      "random edges, a share of which comes from the first, heavy sources",
      "nodes=10000 sources=3000 edges=100000 heavy=8 share=0.3 seed=1"},
     dfgnn__generate_bipartite,
     {{.name = "nodes", .value = 10000, .least = 1, .most = MAX_NODES},
      {.name = "sources", .value = 3000, .least = 1, .most = MAX_NODES},
      {.name = "edges", .value = 100000, .least = 0, .most = MAX_EDGES},
      {.name = "heavy", .value = 8, .least = 0, .most = MAX_NODES},
      {.name = "share", .value = .3, .least = 0, .most = 1, .real = 1},
      SEED}},
    {{"stars", "nodes that hang on the first ones, both ways",
      "nodes=10000 centres=8"},
     dfgnn__generate_stars,
     {{.name = "nodes", .value = 10000, .least = 1, .most = MAX_NODES},
      {.name = "centres", .value = 8, .least = 1, .most = MAX_NODES}}},
    {{"icosphere",
      "the multi-mesh of an icosphere: edges of levels coarsest to level, a "
      "level quartering the triangles of the one before",
      "level=5 coarsest=0"},
     dfgnn__generate_icosphere,
     {{.name = "level", .value = 5, .least = 0, .most = 10},
      {.name = "coarsest", .value = 0, .least = 0, .most = 10}}},
    {{"sphere",
      "neighbours between two grids of the sphere: octahedral (size: rings a "
      "hemisphere), latitude (size: points) or icosphere (size: level); each "
      "row, or with search=sources each source, joins the k nearest (0: all) "
      "within radius (0: any; of a sphere of radius 1)",
      "rows=octahedral|latitude|icosphere row-size=96 "
      "sources=octahedral|latitude|icosphere source-size=96 k=16 radius=0 "
      "search=rows|sources"},
     dfgnn__generate_sphere,
     {{.name = "rows", .most = 2, .choices = GRIDS},
      {.name = "row-size", .value = 96, .least = 0, .most = MAX_NODES},
      {.name = "sources", .most = 2, .choices = GRIDS},
      {.name = "source-size", .value = 96, .least = 0, .most = MAX_NODES},
      {.name = "k", .value = 16, .least = 0, .most = 1e6},
      {.name = "radius", .value = 0, .least = 0, .most = 2, .real = 1},
      {.name = "search", .most = 1, .choices = "rows|sources"}}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* The benchmark graphs of the DF-GNN paper, and those of weather models.
 * Duplicates are dropped, as in the graphs that the measurements of its peers
 * were made on. */
static const dfgnn__generator_info presets[] = {
    {"pattern", "PATTERN, a batch of 1024",
     "sbm:nodes=119,deviation=18,min-nodes=44,max-nodes=188,communities=5,"
     "inside=0.62,edges=6079,batch=1024"},
    {"cluster", "CLUSTER, a batch of 1024",
     "sbm:nodes=117,deviation=18,min-nodes=41,max-nodes=190,communities=6,"
     "inside=0.55,edges=4303,batch=1024"},
    {"mnist", "MNIST superpixels, a batch of 1024",
     "knn:nodes=71,k=8,batch=1024"},
    {"cifar10", "CIFAR10 superpixels, a batch of 1024",
     "knn:nodes=118,k=8,batch=1024"},
    {"voc", "PascalVOC-SP, a batch of 1024",
     "region:nodes=479,drop=0.05,batch=1024"},
    {"coco", "COCO-SP, a batch of 1024",
     "region:nodes=477,drop=0.05,batch=1024"},
    {"arxiv", "ogbn-arxiv: a super node of 13161",
     "powerlaw:nodes=169343,edges=1166243,max-degree=13161,duplicates=drop"},
    {"ppa", "ogbl-ppa: local columns",
     "powerlaw:nodes=576289,edges=42463862,max-degree=3241,columns=local,"
     "duplicates=drop"},
    {"proteins", "ogbn-proteins",
     "powerlaw:nodes=132534,edges=79122504,max-degree=7750,duplicates=drop"},
    {"reddit_comm", "Reddit with local columns",
     "powerlaw:nodes=232965,edges=114615892,max-degree=21657,columns=local,"
     "duplicates=drop"},
    {"reddit_rand", "Reddit with random columns",
     "powerlaw:nodes=232965,edges=114615892,max-degree=21657,duplicates=drop"},
    {"o96_proc", "weather: a processor on the multi-mesh of level 5",
     "icosphere:level=5"},
    {"h_to_h", "weather: a processor on the multi-mesh of level 6",
     "icosphere:level=6"},
    {"o96_knn16", "weather: 16 nearest of 40320 points of the grid O96",
     "sphere:k=16"},
    {"era_to_h", "weather: 542080 points to the mesh they are near",
     "sphere:rows=icosphere,row-size=6,sources=latitude,source-size=542080,k=0,"
     "radius=0.0124"},
    {"dop_enc", "weather: each of 307200 points to 3 of the mesh",
     "sphere:rows=icosphere,row-size=6,sources=latitude,source-size=307200,k=3,"
     "search=sources"},
    {"h_to_era", "weather: the mesh to 542080 points, 3 each",
     "sphere:rows=latitude,row-size=542080,sources=icosphere,source-size=6,k="
     "3"},
};
#define PRESETS (sizeof presets / sizeof *presets)

const dfgnn__generator_info *dfgnn__generator_kind(size_t i) {
  return i < KINDS ? &kinds[i].info : NULL;
}

const dfgnn__generator_info *dfgnn__generator_preset(size_t i) {
  return i < PRESETS ? &presets[i] : NULL;
}

int dfgnn__generator_setting(const char *name) {
  for (size_t k = 0; k < KINDS; k++)
    for (int i = 0; kinds[k].settings[i].name; i++)
      if (!strcmp(kinds[k].settings[i].name, name))
        return 1;
  return !strcmp(name, "preset") || !strcmp(name, "scale");
}

static const kind *find_kind(const char *name) {
  size_t k = 0;
  while (k < KINDS && strcmp(kinds[k].info.name, name))
    k++;
  return k < KINDS ? &kinds[k] : NULL;
}

static const char *list_names(char *list, size_t size,
                              const dfgnn__generator_info *(*get)(size_t)) {
  size_t used = 0;
  *list = 0;
  for (size_t i = 0; get(i) && used < size; i++)
    used += (size_t)snprintf(list + used, size - used, "%s%s", i ? ", " : "",
                             get(i)->name);
  return list;
}

/* The position of word in "a|b|c", or -1. */
static int find_choice(const char *choices, const char *word) {
  size_t n = strlen(word);
  for (int k = 0;; k++) {
    const char *end = strchrnul(choices, '|');
    if ((size_t)(end - choices) == n && !strncmp(choices, word, n))
      return k;
    if (!*end)
      return -1;
    choices = end + 1;
  }
}

static dfgnn_status set_value(double *value, const setting *s,
                              const char *text) {
  if (s->choices) {
    int k = find_choice(s->choices, text);
    if (k < 0)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "found %s=%s, expected %s",
                         s->name, text, s->choices);
    *value = k;
    return DFGNN_OK;
  }
  char *end;
  double v = dfgnn__number_of(text, &end);
  if (end == text || *end || !(v >= s->least && v <= s->most) ||
      (!s->real && v != floor(v)))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found %s=%s, expected a %snumber of %.16g to %.16g",
                       s->name, text, s->real ? "" : "whole ", s->least,
                       s->most);
  *value = v;
  return DFGNN_OK;
}

/* Applies "key=value,key=value" and cuts text up.  scale, a setting of presets,
 * is NULL for kinds. */
static dfgnn_status set_all(const kind *k, double *value, double *scale,
                            char *text) {
  static const setting scale_setting = {
      .name = "scale", .value = 1, .least = 1e-6, .most = 1, .real = 1};
  for (char *next = text; text && *text; text = next) {
    if ((next = strchr(text, ',')))
      *next++ = 0;
    char *equals = strchr(text, '=');
    int i = 0;
    dfgnn_status status;
    if (equals)
      *equals = 0;
    while (k->settings[i].name && strcmp(k->settings[i].name, text))
      i++;
    int scaled = scale && !strcmp(text, scale_setting.name);
    if (!k->settings[i].name && !scaled)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "%s: found the setting '%s', expected one of %s%s",
                         k->info.name, text, k->info.settings,
                         scale ? " scale=1" : "");
    if (!equals)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "%s: found '%s' without a value, expected %s=VALUE",
                         k->info.name, text, text);
    if (scaled)
      status = set_value(scale, &scale_setting, equals + 1);
    else
      status = set_value(&value[i], &k->settings[i], equals + 1);
    if (status)
      return dfgnn__fail_prefix(status, "%s: ", k->info.name);
  }
  return DFGNN_OK;
}

static double *find_value(const kind *k, double *value, const char *name) {
  int i = 0;
  while (k->settings[i].name && strcmp(k->settings[i].name, name))
    i++;
  return k->settings[i].name ? &value[i] : NULL;
}

/* A batch gets fewer graphs.  A single graph gets fewer nodes of the same mean
 * degree and, where that is possible, a largest row with the same share of the
 * edges. */
static dfgnn_status shrink(const kind *k, double *value, double scale) {
  double *batch = find_value(k, value, "batch");
  if (batch) {
    *batch = fmax(1, floor(*batch * scale + 0.5));
    return DFGNN_OK;
  }
  double *nodes = find_value(k, value, "nodes");
  double *edges = find_value(k, value, "edges");
  double *most = find_value(k, value, "max-degree");
  if (!edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: found scale=%g, expected none: its settings %s say "
                       "how large it is",
                       k->info.name, scale, k->info.settings);
  double mean = *edges / *nodes;
  *nodes = fmax(1, floor(*nodes * scale + 0.5));
  *most = fmin(*nodes, fmax(floor(*most * scale + 0.5), ceil(4 * mean)));
  *edges = fmax(*most, fmin(floor(*edges * scale + 0.5), *nodes * *most / 2));
  return DFGNN_OK;
}

static dfgnn_status generate(dfgnn_csr **csr, const char *spec, char *text) {
  char list[512], preset[256], *made = NULL;
  double value[MAX_SETTINGS], scale = 1;
  int is_preset = !strncmp(text, "preset=", 7);
  char *name = is_preset ? text + 7 : text;
  char *settings = strchr(name, is_preset ? ',' : ':');
  if (settings)
    *settings++ = 0;
  if (is_preset) {
    size_t p = 0;
    while (p < PRESETS && strcmp(presets[p].name, name))
      p++;
    if (p == PRESETS)
      return dfgnn__fail(
          DFGNN_ERROR_INVALID, "found preset '%s', expected one of %s", name,
          list_names(list, sizeof list, dfgnn__generator_preset));
    snprintf(preset, sizeof preset, "%s", presets[p].settings);
    name = preset;
    made = strchr(preset, ':');
    *made++ = 0;
  }
  const kind *k = find_kind(name);
  if (!k)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found the kind '%s', expected preset=NAME or one of %s",
                       name,
                       list_names(list, sizeof list, dfgnn__generator_kind));
  for (int i = 0; k->settings[i].name; i++)
    value[i] = k->settings[i].value;
  DFGNN_TRY(set_all(k, value, NULL, made));
  DFGNN_TRY(set_all(k, value, is_preset ? &scale : NULL, settings));
  if (scale < 1)
    DFGNN_TRY(shrink(k, value, scale));
  dfgnn__parts parts = {0};
  const dfgnn_status status = k->generate(&parts, value);
  if (status)
    return dfgnn__fail_prefix(status, "%s: ", k->info.name);
  return dfgnn__csr_own(csr, &parts, is_preset ? spec + 7 : spec);
}

dfgnn_status dfgnn_csr_generate(dfgnn_csr **csr, const char *spec) {
  if (!csr || !spec)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", csr ? "spec" : "csr");
  dfgnn__fork_prepare();
  char *text = strdup(spec);
  if (!text)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot copy a specification");
  dfgnn_status status = generate(csr, spec, text);
  free(text);
  return status;
}

dfgnn_status dfgnn__csr_open(dfgnn_csr **csr, const char *file_or_spec) {
  struct stat about;
  if (!strncmp(file_or_spec, "gen:", 4))
    return dfgnn_csr_generate(csr, file_or_spec + 4);
  if (!stat(file_or_spec, &about) || strchr(file_or_spec, '/') ||
      dfgnn__format_by_name(file_or_spec) != DFGNN__FORMAT_AUTO)
    return dfgnn_csr_read(csr, file_or_spec);
  dfgnn_status status = dfgnn_csr_generate(csr, file_or_spec);
  if (status)
    status = dfgnn__fail_prefix(
        status, "%s: no such file, and no generator: ", file_or_spec);
  return status;
}
