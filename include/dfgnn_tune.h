/* dfgnn_tune.h - how a variant is chosen: what there is, what was measured, why
 * a plan has its variant, and measuring
 *
 * Part of libdfgnn, as dfgnn.h is, whose conventions hold here. */
#include "dfgnn.h"

#ifndef DFGNN_TUNE_H
#define DFGNN_TUNE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- variants ----------------------------------------------------------- */

typedef struct dfgnn_variant_info {
  size_t struct_size;
  const char *name;       /* "cpu.attention.fwd.online/simd=avx2,unroll=2" */
  const char *algorithm;  /* "online" */
  const char *backend;    /* "cpu" */
  const char *parameters; /* "simd=avx2,unroll=2", "" if none */
  uint32_t ops, passes;   /* bit masks of dfgnn_op and dfgnn_pass */
  int revision;           /* raised when its speed or results change */
  int deterministic;
} dfgnn_variant_info;

#define DFGNN_VARIANT_INFO_INIT DFGNN_INIT(dfgnn_variant_info)

/* Every compiled-in variant, whether its device is present or not. */
DFGNN_API size_t dfgnn_variant_count(void);
DFGNN_API dfgnn_status dfgnn_variant_get(dfgnn_variant_info *info, size_t i);

/* ---- tuning ------------------------------------------------------------- */

/* The stored candidates that a tuning measures again. */
typedef enum dfgnn_remeasure {
  DFGNN_REMEASURE_NONE = 0,
  DFGNN_REMEASURE_ALL,
  DFGNN_REMEASURE_NOISY /* of one sample, disturbed or with a wide interval, and
                         * the winner or not told apart from it */
} dfgnn_remeasure;

typedef struct dfgnn_tune_options {
  size_t struct_size;
  double budget_s;       /* wall time, compilation included; 0: 10 */
  uint64_t seed;         /* of inputs and of the order of rounds */
  double margin;         /* variants whose times differ by less tie; 0: 0.015 */
  int exhaustive;        /* 1: all variants to the end; N > 1: all, N times */
  int remeasure;         /* a dfgnn_remeasure */
  const char *tool;      /* provenance: "dfgnn-tune 0.2.0"; NULL: library */
  const char *job_hash;  /* provenance; NULL: none */
  const char *const *variants; /* only these candidates, NULL-terminated; NULL:
                                * the members of the problem's portfolio, or
                                * all that apply if exhaustive */
  void (*progress)(void *data, double done, const char *message);
  int (*stop)(void *data); /* polled between samples; non-zero ends early with
                            * DFGNN_ERROR_INTERRUPTED; measurements are kept */
  void *data;
} dfgnn_tune_options;

#define DFGNN_TUNE_OPTIONS_INIT DFGNN_INIT(dfgnn_tune_options)

typedef struct dfgnn_tune_report {
  size_t struct_size;
  char variant[160];      /* the winner */
  char anchor[160];       /* the variant it was compared with: the rule's */
  double median_ms, ratio;/* of the winner; ratio to the anchor: < 1 faster */
  int candidates, measured, wrong, failed;
  int resumed;            /* candidates whose stored measurements were reused */
  int separated;          /* 1: the winner is told apart from the runner-up */
  int kept;               /* 1: written to the store */
  double seconds;
  double payback_calls;   /* calls until tuning is earned back; inf: never */
} dfgnn_tune_report;

#define DFGNN_TUNE_REPORT_INIT DFGNN_INIT(dfgnn_tune_report)

/* Measures the candidates for a problem on a graph, on inputs and outputs of its
 * own, checking each against the reference first: what would be chosen without
 * it and the rule's choice whatever the budget is, so that no choice becomes
 * worse, and the others in the order of the model as long as there is time.  It
 * writes every finished measurement to the context's first store, or keeps it
 * for the life of the context where there is none to write, and reloads the
 * context's decisions.  report may be NULL. */
DFGNN_API dfgnn_status dfgnn_tune(dfgnn_tune_report *report,
                                  dfgnn_context *ctx, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_tune_options *options);

/* Measures the members of the problem's portfolio with the tensors of a call,
 * whose inputs are read and whose outputs are overwritten, before that call is
 * made: it takes the time of some 40 to 60 calls.  Results are not compared
 * with the reference.  It waits for all work on the device, and keeps and stores
 * measurements as dfgnn_tune does, in whose other respects it is alike.
 * DFGNN_ERROR_NOT_TUNED if it would take longer than most_s: a race takes no
 * time of its own (DFGNN_EFFORT_RACE).  DFGNN_ERROR_UNSUPPORTED with
 * problem.accumulate, since each run would add to the outputs. */
DFGNN_API dfgnn_status dfgnn_tune_call(dfgnn_tune_report *report,
                                       dfgnn_context *ctx, dfgnn_graph *graph,
                                       const dfgnn_problem *problem,
                                       const dfgnn_args *args, double most_s);

/* Kernels that dfgnn_tune of a problem will measure, while they are being
 * compiled in the background, on all cores.  Nothing is executed, and no call
 * waits.  The context must outlive it. */
typedef struct dfgnn_tune_kernels dfgnn_tune_kernels;

/* Begins to compile what dfgnn_tune of the same problem would compile, so that
 * its budget goes to measuring: with .05 s it then sees a whole portfolio.
 * There may be nothing to compile, as on a CPU. */
DFGNN_API dfgnn_status dfgnn_tune_prepare(dfgnn_tune_kernels **kernels,
                                          dfgnn_context *ctx,
                                          dfgnn_graph *graph,
                                          const dfgnn_problem *problem);
/* 1 once all are compiled, or have failed, and 1 for NULL. */
DFGNN_API int dfgnn_tune_prepared(const dfgnn_tune_kernels *kernels);
/* Frees it; what has not begun to be compiled never is.  A process that ends
 * before may crash in the threads of its compiler. */
DFGNN_API void dfgnn_tune_release(dfgnn_tune_kernels *kernels);

/* ---- explanations -------------------------------------------------------- */

/* A member of a problem's portfolio, or a variant that was measured for it.
 * Candidates stand in an array of the library's: this struct never changes. */
typedef struct dfgnn_candidate {
  const char *variant;
  const char *reason; /* "chosen", "slower: 1.31x", "not measured", ... */
  double measured;    /* time over the fastest's on this graph; 0: not known */
  double predicted;   /* time over the least that the model predicts; 0: none */
} dfgnn_candidate;

/* The library makes explanations, so that they may grow at their end. */
typedef struct dfgnn_explanation {
  const char *variant;
  dfgnn_source source;
  double distance;      /* to the measurements that chose; 0 exact; -1 none */
  const char *because;  /* one sentence */
  size_t count;
  const dfgnn_candidate *candidates; /* the chosen one first */
  const char *portfolio; /* the one that serves: "gt128 of sm_90"; "": none */
} dfgnn_explanation;

/* Explains why the plan has its variant, and why not each of the others.  Free
 * it with dfgnn_explanation_free; it does not outlive the plan. */
DFGNN_API dfgnn_status dfgnn_plan_explain(dfgnn_explanation **explanation,
                                          const dfgnn_plan *plan);
DFGNN_API void dfgnn_explanation_free(dfgnn_explanation *explanation);

/* ---- what a context chooses by ------------------------------------------- */

typedef struct dfgnn_counters {
  size_t struct_size;
  uint64_t exact, near, model, rule; /* plans by source */
  uint64_t cached;                   /* plans found in the plan cache */
  uint64_t invalid_rows;             /* rows of the stores that were skipped */
  uint64_t loaded_rows;              /* rows of the stores in use */
} dfgnn_counters;

#define DFGNN_COUNTERS_INIT DFGNN_INIT(dfgnn_counters)

DFGNN_API dfgnn_status dfgnn_context_counters(dfgnn_counters *counters,
                                              const dfgnn_context *ctx);

/* A digest, 32 hexadecimal digits, of all that the context chooses by: its
 * decisions, pins, bans and portfolios, and the numbers of the device that enter
 * a distance.  Ranks of a job whose digests are equal make the same choices;
 * compare it once after creating the contexts, for example with rank 0's.
 *
 * For a graph of which nothing is stored the context repeats the choice that it
 * made before for a graph like it (of the same family or, with rounding, the
 * same signature), so that ranks have to meet such graphs in one order to
 * choose alike. */
#define DFGNN_DIGEST_SIZE 33
DFGNN_API dfgnn_status dfgnn_context_digest(char digest[DFGNN_DIGEST_SIZE],
                                            const dfgnn_context *ctx);

/* Writes what the context chooses by, except the package's store, as a store
 * file: a new one, or one that gets it added. */
DFGNN_API dfgnn_status dfgnn_context_save_choices(dfgnn_context *ctx,
                                                  const char *path);
/* Makes the context choose by such a file and the package's store alone, as
 * that of another rank does, and keep what it measures to itself.  The file must
 * stay as long as the context.  Existing plans keep their choice.  No other
 * thread may use the context meanwhile. */
DFGNN_API dfgnn_status dfgnn_context_take_choices(dfgnn_context *ctx,
                                                  const char *path);

#ifdef __cplusplus
}
#endif
#endif
