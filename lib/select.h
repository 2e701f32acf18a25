/* select.h - the choice of a variant: by stored decisions, the model, the rule
 *
 * Everything here is a pure function of its arguments: the same rows give the
 * same choice on every rank. */
#ifndef DFGNN_LIB_SELECT_H
#define DFGNN_LIB_SELECT_H

#include "db/store.h"
#include "dfgnn_tune.h"
#include "lib/registry.h"

/* The problem, graph and device that a choice is made for. */
typedef struct dfgnn_query {
  dfgnn_setting setting;       /* parameter unused */
  const char *family;          /* of the graph; "" if none */
  const unsigned char *broken; /* by variant index; NULL: none */
} dfgnn_query;

typedef struct dfgnn_choice {
  const dfgnn_variant *variant; /* NULL: none applies */
  dfgnn_source source;
  double distance; /* to the nearest decision; 0 exact; -1 none */
  /* for stored decisions: where variant was measured, or nearest to here */
  uint64_t fingerprint;
  int64_t heads, dim;
  uint64_t gate; /* dfgnn__key_gate of the problem there */
  char because[256];
} dfgnn_choice;

/* An index over decisions of one device. */
typedef struct dfgnn_table dfgnn_table;

/* rows may be of any device: those of another backend or arch are ignored.
 * Takes its own copy.  invalid (may be NULL) counts rows that name no variant
 * of this library, or an older revision. */
dfgnn_status dfgnn__table_create(dfgnn_table **table, uint64_t *invalid,
                                 const dfgnn_device_info *device,
                                 const dfgnn_measurement *rows, size_t count);
void dfgnn__table_destroy(dfgnn_table *table);
/* The decisions of the rows that it was created from; those that were put in
 * later are not among them. */
const dfgnn_decisions *dfgnn__table_decisions(const dfgnn_table *table);
/* Decides one problem by these rows alone, in place of the decision that there
 * was; the table is then as if it had been created with them. */
dfgnn_status dfgnn__table_put(dfgnn_table *table, const dfgnn_measurement *rows,
                              size_t count);
/* Copies the pin; earlier ones come first. */
dfgnn_status dfgnn__table_pin(dfgnn_table *table, const dfgnn_pin *pin);

/* Is anything stored of this very graph, or of one with these numbers of nodes
 * and edges, whatever the problem? */
int dfgnn__table_has_graph(const dfgnn_table *table, uint64_t fingerprint);
int dfgnn__table_has_shape(const dfgnn_table *table, int64_t destinations,
                           int64_t sources, int64_t edges);
int dfgnn__table_has_pins(const dfgnn_table *table);

/* Digests everything that dfgnn__select looks at. */
struct dfgnn_model; /* lib/predict.h */
void dfgnn__table_digest(char digest[DFGNN_DIGEST_SIZE],
                         const dfgnn_table *table,
                         const struct dfgnn_model *model);

/* The tiers pinned, exact, similar and nearest, in this order.  A measurement
 * of another problem (without dropout, say) counts as similar at best, and
 * `because` says so.  choice->variant is NULL if no tier answers; `distance` is
 * then that of the nearest.  exclude: the fingerprint of a graph that is
 * treated as not measured (0: none), for leave-one-out. */
void dfgnn__table_select(dfgnn_choice *choice, const dfgnn_table *table,
                         const dfgnn_query *query, uint64_t exclude);

/* The decision of exactly this problem and graph, or NULL. */
const dfgnn_decision *dfgnn__table_exact(const dfgnn_table *table,
                                         const dfgnn_query *query);

/* All tiers but the rule: pinned, exact, similar, nearest within
 * dfgnn__near_distance, the model (NULL: none); nearest within the trusted
 * radius if no model knows this kind of problem.  choice->variant is NULL if
 * none answers; choice->because says why. */
void dfgnn__select(dfgnn_choice *choice, const dfgnn_table *table,
                   struct dfgnn_model *model, const dfgnn_query *query,
                   uint64_t exclude);

/* Replaces a choice without a variant by the rule's, and keeps the reason why
 * no tier answered; choice->variant stays NULL if no variant applies. */
void dfgnn__rule_after(dfgnn_choice *choice, const dfgnn_query *query);

/* The refined rule (lib/rule.c), and the paper's with its capacity in bytes. */
void dfgnn__rule_choice(dfgnn_choice *choice, const dfgnn_query *query);
/* The rule where it is known to be better than models that were fitted before;
 * 0 if it is not. */
int dfgnn__rule_knows(dfgnn_choice *choice, const dfgnn_query *query);
#define DFGNN_PAPER_CAPACITY 12288 /* unless options or environment set it */
void dfgnn__paper_choice(dfgnn_choice *choice, const dfgnn_query *query,
                         int64_t capacity);

/* The first applicable variant of an algorithm, by the rule's preferred
 * parameters; NULL if none applies. */
const dfgnn_variant *dfgnn__algorithm_choice(const dfgnn_query *query,
                                             const char *algorithm);

/* The features between which distances are taken (lib/distance.c). */
#define DFGNN_FEATURES 16
void dfgnn__features(double feature[DFGNN_FEATURES],
                     const dfgnn_signature *signature, int64_t heads,
                     int64_t dim, size_t element_size,
                     const dfgnn_device_info *device);
double dfgnn__distance(const double a[DFGNN_FEATURES],
                       const double b[DFGNN_FEATURES]);
/* What other units, of which rows have another share, add to a distance. */
double dfgnn__units_distance(int units, int other);
/* Beyond this distance the tier nearest abstains. */
extern const double dfgnn__trusted_radius;
/* Up to this distance it comes before the model. */
extern const double dfgnn__near_distance;

#endif
