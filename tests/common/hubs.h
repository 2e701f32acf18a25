/* hubs.h - graphs with a row, or a column, of up to 10^6 edges, where long sums
 * show how well a variant adds up */
#ifndef DFGNN_TESTS_HUBS_H
#define DFGNN_TESTS_HUBS_H

#include "lib/registry.h"
#include "tests/common/variants.h"
#include "tuner/harness.h"

enum { HUBS = 6 };

typedef struct hub {
  const char *name;
  int64_t degree;   /* edges of the hub */
  int column;       /* 1: it is a source, which only backward sums over */
  int64_t distinct; /* neighbours; if fewer than degree, edges repeat */
  int alternates;   /* 1: neighbours' features alternate in sign */
  int heads, dim;
  int f32_only; /* 1: for time's sake no other type is checked */
} hub;

extern const hub hubs[HUBS];

/* The graph of a hub, of memory of the test. */
dfgnn_csr hub_make(const hub *h);
/* Sets the problem of a test on a hub; 0 if the hub does not check it. */
int hub_problem(dfgnn_problem *problem, const hub *h, const variant_test *test);
/* Gives features alternating signs, if the hub wants them. */
void hub_fill(dfgnn_harness *harness, const hub *h,
              const dfgnn_problem *problem);

/* Fails if a variant is called wrong on a row or a column of `degree` edges
 * with features; returns the number of checks. */
int check_edge_hubs(const char *device, const variant_test *test,
                    int64_t degree);

/* Fails if a variant is called wrong on a hub, or none was checked.  Variants
 * of a large family take turns, unless DFGNN_TEST_FULL is set. */
void check_hubs(const char *device, const variant_test *test);

#endif
