/* decide.h - types and functions of the files behind dfgnn__decide */
#ifndef DFGNN_DB_DECIDE_H
#define DFGNN_DB_DECIDE_H

#include "db/combine.h"
#include "db/internal.h"

typedef struct item {
  const dfgnn_measurement *row;
  uint32_t problem; /* its place in the order of problems */
  int usable;
} item;

/* db/problems.c: sets the problems of the items; 0: no memory. */
int dfgnn__number_problems(item *items, size_t count);

/* A variant of one revision: a candidate, or only an anchor of candidates. */
typedef struct node {
  const char *variant;
  int revision;
  int candidate;
  double median_ms;
  int64_t samples, best_samples;
  int64_t workspace_bytes; /* INT64_MAX: not known */
  dfgnn_noise noise;       /* of its best row */
  int may;                 /* 1: it may win */
} node;

typedef struct rank {
  const node *variant;
  double distance, error;
  int tied, sure;
} rank;

typedef struct owned_decisions {
  dfgnn_decisions public; /* first: the pointer that callers hold */
  dfgnn_strings *strings;
  size_t room;
} owned_decisions;

/* By name, then revision; for qsort and bsearch. */
int dfgnn__compare_nodes(const void *a, const void *b);

/* Ranks the candidates among the nodes that have a place, the winner first;
 * returns their number.  nodes are in the order of dfgnn__compare_nodes. */
size_t dfgnn__rank_nodes(rank *ranks, node *nodes, size_t count,
                         const dfgnn_estimate *place, double margin);

/* Adds the decision of the rows from begin to end, with strings of its own and
 * the names of the rejected variants; 0 without memory. */
int dfgnn__add_decision(owned_decisions *all, const item *begin,
                        const item *end, const rank *ranks, size_t count,
                        const char *const *rejected, size_t rejections);

#endif
