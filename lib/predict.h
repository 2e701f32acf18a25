/* predict.h - times of variants as a model predicts them
 *
 * A model consists of files of forests (select/forest.h): those that
 * DFGNN_MODEL names, else the user's and the package's.  It answers for the
 * device architectures and kinds of operators that it was fitted to. */
#ifndef DFGNN_LIB_PREDICT_H
#define DFGNN_LIB_PREDICT_H

#include "lib/evidence.h"
#include "lib/select.h"
#include "select/forest.h"

typedef struct dfgnn_model dfgnn_model;

/* Is told why a file was passed over. */
typedef void (*dfgnn_model_log)(void *data, const char *message);

/* Files that cannot be used are logged and passed over, except one that
 * DFGNN_MODEL names. */
dfgnn_status dfgnn__model_open(dfgnn_model **model, dfgnn_model_log log,
                               void *data);
/* A model of forests that stay the caller's, for tests and for judging a
 * forest. */
dfgnn_status dfgnn__model_of(dfgnn_model **model, const dfgnn_forests *forests);
void dfgnn__model_close(dfgnn_model *model);

/* The user's file, which `dfgnn-tune model train` writes; the caller frees it.
 * NULL: there is no home. */
char *dfgnn__model_user_path(void);

/* The name of the forest for an operator and pass on a device: "cuda sm_90
 * attention.fwd". */
void dfgnn__model_key(char *key, size_t size, const dfgnn_device_info *device,
                      dfgnn_op op, dfgnn_pass pass);

/* Digests all forests, "" without one. */
void dfgnn__model_digest(char *text, size_t size, const dfgnn_model *model);

/* The files in use, in the order in which they are asked; NULL at the end. */
const dfgnn_forests *dfgnn__model_file(const dfgnn_model *model, size_t i,
                                       const char **name);

/* A prediction for the variants that run.  It is valid until the model's next
 * prediction; a model serves one thread at a time. */
typedef struct dfgnn_prediction {
  const dfgnn_forest *forest;
  const char *file;
  size_t count;                        /* of candidates */
  const dfgnn_variant *const *variant; /* [count] */
  const int64_t *score;                /* [count] log2 of relative times, in
                                        * 1 / (members * DFGNN_FOREST_UNIT);
                                        * INT64_MAX: the candidate has none */
  const int32_t *member;               /* [members][count] scores of each, in
                                        * 1 / DFGNN_FOREST_UNIT */
  size_t running;                      /* candidates that run */
  size_t best;                         /* the one of least score, then name */
  double disagreement;                 /* log2 of what the best loses against
                                        * a member's own best, the mean */
} dfgnn_prediction;

/* NULL if no forest answers or no variant runs.  To choose it is enough to
 * score the candidates that may be the best; dfgnn__predict_all scores all that
 * run, which takes longer. */
const dfgnn_prediction *dfgnn__predict(dfgnn_model *model,
                                       const dfgnn_query *query);
const dfgnn_prediction *dfgnn__predict_all(dfgnn_model *model,
                                           const dfgnn_query *query);

/* The predicted time over the best's; 0 if the variant is no candidate. */
double dfgnn__predicted_ratio(const dfgnn_prediction *prediction,
                              const dfgnn_variant *variant);

/* The candidates of least score, best first, at most `most` and one of each
 * score; returns their number. */
size_t dfgnn__predicted_first(const dfgnn_variant **variant, size_t most,
                              const dfgnn_prediction *prediction);

/* The candidates that race (lib/plan_race.h), at most `most`: the rule's choice
 * (NULL: none), the best of each family, by score, and then the candidates of
 * least score.  So a family that the model thinks slow by mistake runs, too.
 * Returns their number. */
size_t dfgnn__predicted_entrants(const dfgnn_variant **variant, size_t most,
                                 const dfgnn_prediction *prediction,
                                 const dfgnn_variant *rule);

/* Says in words which features set the best apart from the candidates after it.
 */
void dfgnn__prediction_text(char *text, size_t size, dfgnn_model *model,
                            const dfgnn_query *query);

/* The model's choice.  Returns 0 if the model knows nothing of this kind of
 * problem.  choice->variant is NULL then, and if the model abstains for lack of
 * evidence; choice->because says which. */
int dfgnn__model_choice(dfgnn_choice *choice, dfgnn_model *model,
                        const dfgnn_query *query);

#endif
