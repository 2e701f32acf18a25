/* select.h - the choice of a variant
 *
 * The sources of a choice, in order: a pin, measurements of this graph and
 * problem (exact), measurements near to them (near), the portfolio's ranking
 * (model), the portfolio's default (rule).  Everything here is a pure function
 * of its arguments: the same rows give the same choice on every rank. */
#ifndef DFGNN_SELECT_SELECT_H
#define DFGNN_SELECT_SELECT_H

#include "db/store.h"
#include "dfgnn_tune.h"
#include "lib/registry.h"
#include "select/portfolio.h"

/* The problem, graph and device that a choice is made for. */
typedef struct dfgnn_query {
  dfgnn_setting setting;       /* parameter unused */
  const char *family;          /* of the graph; "" if none */
  const unsigned char *broken; /* by variant index; NULL: none */
} dfgnn_query;

typedef struct dfgnn_choice {
  const dfgnn_variant *variant; /* NULL: none applies */
  dfgnn_source source;
  double distance; /* to the measurements that chose; -1: none did */
  /* of exact and near choices: where the variant was measured */
  uint64_t fingerprint;
  int64_t heads, dim;
  uint64_t gate; /* dfgnn__key_gate of the problem there */
  char because[256];
} dfgnn_choice;

/* ---- table.c: an index over the decisions of one device ------------------ */

typedef struct dfgnn_table dfgnn_table;

/* rows may be of any device: those of another backend or arch are ignored.  The
 * first `own` of them are the user's and the site's.  Takes its own copy.
 * invalid (may be NULL) counts rows that name no variant of this library, or an
 * older revision. */
dfgnn_status dfgnn__table_create(dfgnn_table **table, uint64_t *invalid,
                                 const dfgnn_device_info *device,
                                 const dfgnn_measurement *rows, size_t own,
                                 size_t count);
void dfgnn__table_destroy(dfgnn_table *table);
/* The decisions of the rows that it was created from; those that were put in
 * later are not among them. */
const dfgnn_decisions *dfgnn__table_decisions(const dfgnn_table *table);
/* Decides one problem by these rows alone, in place of the decision that there
 * was; the table is then as if it had been created with them as the user's. */
dfgnn_status dfgnn__table_put(dfgnn_table *table, const dfgnn_measurement *rows,
                              size_t count);
/* Copies the pin; earlier ones come first. */
dfgnn_status dfgnn__table_pin(dfgnn_table *table, const dfgnn_pin *pin);
/* Bans a variant, or a family's variants, by name.  Only a pin or a forced
 * choice runs a banned variant. */
dfgnn_status dfgnn__table_ban(dfgnn_table *table, const char *name);
int dfgnn__table_bans(const dfgnn_table *table, const dfgnn_variant *variant);

/* Is anything stored of this very graph, or of one with these numbers of nodes
 * and edges, whatever the problem? */
int dfgnn__table_has_graph(const dfgnn_table *table, uint64_t fingerprint);
int dfgnn__table_has_shape(const dfgnn_table *table, int64_t destinations,
                           int64_t sources, int64_t edges);
int dfgnn__table_has_pins(const dfgnn_table *table);

/* Digests everything that dfgnn__select looks at. */
void dfgnn__table_digest(char digest[DFGNN_DIGEST_SIZE],
                         const dfgnn_table *table);

/* The decision of exactly this problem and graph, or NULL. */
const dfgnn_decision *dfgnn__table_exact(const dfgnn_table *table,
                                         const dfgnn_query *query);

/* ---- measured.c: what was measured --------------------------------------- */

/* The query that a row answered; row and device outlive it. */
typedef struct dfgnn_row_query {
  dfgnn_problem problem;
  dfgnn_matrix matrix;
  dfgnn_query query;
} dfgnn_row_query;
/* 0: the row's problem is none of this library's. */
int dfgnn__row_query(dfgnn_row_query *asked, const dfgnn_measurement *row,
                     const dfgnn_device_info *device);

/* The sources pinned, exact and near; choice->variant is NULL if none of them
 * answers.  otherwise: the variant that would be chosen without measurements;
 * an incomplete decision of this very graph answers only if it was measured
 * beside it (NULL: never). */
void dfgnn__select_measured(dfgnn_choice *choice, const dfgnn_table *table,
                            const dfgnn_query *query,
                            const dfgnn_variant *otherwise);

/* Graphs within this distance are near. */
extern const double dfgnn__near;

/* ---- select.c: the one question ------------------------------------------ */

/* Chooses by all sources; choice->variant is NULL only if no variant applies.
 * table NULL: nothing was measured. */
void dfgnn__select(dfgnn_choice *choice, const dfgnn_table *table,
                   const dfgnn_query *query);

/* May the variant run: is it neither broken nor banned, and does it apply?
 * table NULL: nothing is banned. */
int dfgnn__may_run(const dfgnn_variant *v, const dfgnn_table *table,
                   const dfgnn_query *query);

/* The rule alone, and the rule of the DF-GNN paper with its capacity in bytes.
 */
void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_table *table,
                        const dfgnn_query *query);
#define DFGNN_PAPER_CAPACITY 12288 /* unless options or environment set it */
void dfgnn__paper_choice(dfgnn_choice *choice, const dfgnn_table *table,
                         const dfgnn_query *query, int64_t capacity);

/* The members of the query's portfolio that are neither broken nor banned, best
 * first as far as the model knows; ratio[i]: predicted time over the best
 * member's, 0: not known.  ratio NULL: in the portfolio's order, without asking
 * the model.  Returns their number, 0 only if no variant applies. */
size_t dfgnn__members(const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST],
                      double ratio[DFGNN_PORTFOLIO_MOST],
                      const dfgnn_table *table, const dfgnn_query *query);

/* For tests: these members, as far as they apply, in place of every
 * portfolio's; the list ends with a name NULL.  NULL: the portfolios' again. */
typedef struct dfgnn_test_member {
  const char *name;
  double log_ratio; /* predicted; the model knows nothing if the first's is NaN
                     */
} dfgnn_test_member;
void dfgnn__members_for_tests(const dfgnn_test_member *members);

/* A variant of an algorithm that applies: a member of the portfolio, else the
 * first of the registry with the widest vectors; NULL if none applies. */
const dfgnn_variant *dfgnn__algorithm_choice(const dfgnn_table *table,
                                             const dfgnn_query *query,
                                             const char *algorithm);

/* ---- distance.c: how far two problems on graphs are apart ---------------- */

#define DFGNN_FEATURES 16
void dfgnn__features(double feature[DFGNN_FEATURES],
                     const dfgnn_signature *signature, int64_t heads,
                     int64_t dim, size_t element_size,
                     const dfgnn_device_info *device);
double dfgnn__distance(const double a[DFGNN_FEATURES],
                       const double b[DFGNN_FEATURES]);
/* What other units, of which rows have another share, add to a distance. */
double dfgnn__units_distance(int units, int other);
/* Folds features, rounded to quarters, into the hash h. */
uint64_t dfgnn__quantised(uint64_t h, const double feature[DFGNN_FEATURES]);

#endif
