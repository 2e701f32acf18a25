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

dfgnn_csr hub_make(const hub *h);
void hub_free(dfgnn_csr *csr);
/* Sets the problem of a test on a hub; 0 if the hub does not check it. */
int hub_problem(dfgnn_problem *problem, const hub *h, const variant_test *test);
/* Gives features alternating signs, if the hub wants them. */
dfgnn_status hub_fill(dfgnn_harness *harness, const hub *h,
                      const dfgnn_problem *problem);

typedef struct hub_result {
  const dfgnn_variant *variant;
  const hub *hub;
  dfgnn_problem problem;
  dfgnn_status status;
  dfgnn_accuracy accuracy;
} hub_result;

/* Checks variants of the device on every hub and calls visit with each result.
 * Variants of a large family take turns, unless DFGNN_TEST_FULL is set. Returns
 * the number of checks. */
int hubs_visit(const char *device, const variant_test *test,
               void (*visit)(const hub_result *, void *), void *data);

/* Fails if a variant is called wrong on a row or a column of `degree` edges
 * with features; returns the number of checks. */
int check_edge_hubs(const char *device, const variant_test *test,
                    int64_t degree);

/* Fails if a variant is called wrong on a hub, or none was checked. */
void check_hubs(const char *device, const variant_test *test);

#endif
