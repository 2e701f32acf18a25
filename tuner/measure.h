/* measure.h - a trial on the device: checked, then sampled */
#ifndef DFGNN_TUNER_MEASURE_H
#define DFGNN_TUNER_MEASURE_H

#include "tuner/candidates.h"
#include "tuner/gate.h"
#include "tuner/harness.h"
#include "tuner/search.h"

/* A problem on a graph whose variants are measured. */
typedef struct dfgnn_subject {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_problem problem; /* complete */
  dfgnn_harness *harness;
  dfgnn_gate *gate; /* judges samples; NULL: only the backend does */
  int unchecked;    /* results are not compared with the reference */
  int repeats;      /* of a sample, as backend->time() takes them */
} dfgnn_subject;

/* Makes the trial's plan and compares it with the reference; rough_ms is one
 * time if that took long, else 0.  A trial that fails has its status and reason
 * set, and no plan. */
dfgnn_sampled dfgnn__trial_admit(const dfgnn_subject *subject,
                                 dfgnn_trial *trial, double *rough_ms);
/* Times the trial's plan once. */
dfgnn_sampled dfgnn__trial_sample(const dfgnn_subject *subject,
                                  dfgnn_trial *trial, double *ms);

#endif
