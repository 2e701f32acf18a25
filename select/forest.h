/* forest.h - boosted trees that rank candidates, and the files they are kept in
 *
 * A forest has a few members, each a sum of trees; a tree asks of one feature
 * after the other whether it is above a threshold.  Scores are whole numbers,
 * 65536 for a factor of two in time, of which only differences between the
 * candidates of one problem mean something.  Thresholds are compared and whole
 * numbers added: the same forest ranks alike on every machine.
 *
 * This folder knows neither graphs nor kernels.  tuner/boost.h fits forests. */
#ifndef DFGNN_MODEL_FOREST_H
#define DFGNN_MODEL_FOREST_H

#include <stddef.h>
#include <stdint.h>

#include "dfgnn.h"
#include "dfgnn_tune.h"

enum {
  DFGNN_FOREST_FEATURES = 128,
  DFGNN_FOREST_BINS = 64, /* of a feature; bin 0: it is missing */
  DFGNN_FOREST_LEAVES = 32,
  DFGNN_FOREST_NODES = 2 * DFGNN_FOREST_LEAVES - 1,
  DFGNN_FOREST_MEMBERS = 8,
  DFGNN_FOREST_TREES = 1024, /* of a member */
  DFGNN_FOREST_UNIT = 65536, /* difference of scores: a factor of two */
  DFGNN_FOREST_LEAF = 255    /* in place of a feature: the node is a leaf */
};

/* Nodes are in preorder: the left child, of bins up to `bin`, is the next one.
 */
typedef struct dfgnn_forest_node {
  uint8_t feature; /* DFGNN_FOREST_LEAF: a leaf */
  uint8_t bin, right;
  int16_t value; /* of a leaf */
} dfgnn_forest_node;

typedef struct dfgnn_forest_feature {
  char name[40];
  int thresholds;                          /* ascending */
  double threshold[DFGNN_FOREST_BINS - 2]; /* bin k + 2 is above the k-th */
  uint64_t gain; /* total gain of its splits, for reports */
} dfgnn_forest_feature;

/* How widely a family was measured in a cell (lib/cell.h). */
typedef struct dfgnn_forest_cover {
  char cell[64], family[64];
  int graphs;   /* different graphs, at most 65535 */
  int settings; /* different variants, at most 65535 */
} dfgnn_forest_cover;

typedef struct dfgnn_forest {
  char key[64];     /* device and operators: "cuda sm_90 attention.fwd" */
  char origin[256]; /* the rows it was fitted to, in words, for reports */
  int features, members;
  dfgnn_forest_feature *feature;
  int trees[DFGNN_FOREST_MEMBERS];
  size_t nodes;              /* of all trees */
  dfgnn_forest_node *node;   /* tree after tree, member after member */
  uint32_t *root;            /* of each tree: its first node */
  size_t covers;             /* 0: the file does not say */
  dfgnn_forest_cover *cover; /* by cell, then by family */
} dfgnn_forest;

/* The order of covers: by cell, then by family, as strcmp() has it. */
int dfgnn__forest_cover_order(const dfgnn_forest_cover *a,
                              const dfgnn_forest_cover *b);

/* How widely a family was measured in a cell; NULL: not at all. */
const dfgnn_forest_cover *dfgnn__forest_cover_of(const dfgnn_forest *forest,
                                                 const char *cell,
                                                 const char *family);

/* The bin of a value: NaN is 0. */
uint8_t dfgnn__forest_bin(const dfgnn_forest_feature *feature, double x);

/* A feature of the candidates of a ranking.  Those with the same value are a
 * class; a feature of the problem has none and one bin for all. */
typedef struct dfgnn_ranking_feature {
  int classes;
  const uint64_t *set; /* [classes][words] which candidates, as bits */
  uint8_t *bin;        /* [classes], or [1] without classes */
} dfgnn_ranking_feature;

/* Candidates whose scores are asked for at once. */
typedef struct dfgnn_ranking {
  size_t count, words;                  /* words: (count + 63) / 64 */
  const dfgnn_ranking_feature *feature; /* [features] */
  const uint64_t *active;               /* [words] bits of those asked for */
  int trees;                            /* of each member, at most; 0: all */
  int32_t *score;                       /* [members][count], written; 0 for
                                         * those that are not active */
  void *memory;                         /* NULL at first; kept between calls */
} dfgnn_ranking;

dfgnn_status dfgnn__forest_rank(const dfgnn_forest *forest,
                                dfgnn_ranking *ranking);
void dfgnn__ranking_free(dfgnn_ranking *ranking);

/* The score of one candidate by one member, found tree by tree; the same as
 * dfgnn__forest_rank gives. */
int32_t dfgnn__forest_score(const dfgnn_forest *forest, int member,
                            const uint8_t *bins);

void dfgnn__forest_free(dfgnn_forest *forest);

/* ---- files --------------------------------------------------------------- */

/* The forests of a file: a line "dfgnn-model 2", the number of bytes to come
 * (4, little-endian), and these bytes compressed by zlib. */
typedef struct dfgnn_forests {
  size_t count;
  dfgnn_forest *forest;
  char digest[DFGNN_DIGEST_SIZE]; /* of the file's bytes */
} dfgnn_forests;

/* Nothing in the bytes is trusted: DFGNN_ERROR_FORMAT says what is wrong; name
 * is the file's in messages. */
dfgnn_status dfgnn__forests_read(dfgnn_forests *forests, const char *name,
                                 const void *bytes, size_t size);
dfgnn_status dfgnn__forests_load(dfgnn_forests *forests, const char *path);
/* The same forests give the same bytes (with the same zlib).  The file takes
 * its name whole. */
dfgnn_status dfgnn__forests_save(const dfgnn_forests *forests,
                                 const char *path);
void dfgnn__forests_free(dfgnn_forests *forests);

/* The forest of a key; NULL if there is none. */
const dfgnn_forest *dfgnn__forests_find(const dfgnn_forests *forests,
                                        const char *key);

/* The i-th of the models that are embedded in the library; NULL at the end. */
const void *dfgnn__forests_embedded(size_t i, const char **name, size_t *size);

#endif
