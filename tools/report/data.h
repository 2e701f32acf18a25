/* data.h - the rows of a report, arranged: devices, graphs, shapes, problems
 *
 * A shape is a problem without its graph; shapes are the columns of the map and
 * graphs its rows. */
#ifndef DFGNN_REPORT_DATA_H
#define DFGNN_REPORT_DATA_H

#include "select/select.h"
#include "tools/report/report.h"

/* Variants tie within this margin, as in the tuner and contexts. */
#define DFGNN_REPORT_MARGIN 0.015

typedef struct report_device {
  const dfgnn_measurement *row; /* the newest problem on it */
  dfgnn_device_info info;
  dfgnn_table *table;   /* NULL: the library cannot choose for it */
  double bandwidth;     /* bytes/s; NaN: not known */
  const char *measured; /* the file that has the bandwidth, or "given" */
  size_t problems;
} report_device;

typedef struct report_graph {
  const dfgnn_measurement *row; /* a problem on it */
  const dfgnn_signature
      *signature; /* given's if the graph is given, else row's */
  const dfgnn_report_graph *given; /* NULL: the graph is not given */
  char name[300];                  /* twins of one label are numbered */
  size_t problems;
} report_graph;

typedef struct report_shape {
  const dfgnn_measurement *row;
  size_t device;
  uint64_t key;
  char text[320]; /* "gt forward 8x16 f32 bias" */
  size_t problems;
} report_shape;

/* A way to choose without having measured the graph. */
typedef enum report_way {
  REPORT_WAY_LEFT_OUT,  /* near graphs, the model, the rule: its rows hidden */
  REPORT_WAY_MODEL,     /* the model, which may know the graph */
  REPORT_WAY_PORTFOLIO, /* the best member of the portfolio */
  REPORT_WAY_RULE,
  REPORT_WAY_PAPER,
  REPORT_WAYS
} report_way;

typedef struct report_arm {
  const dfgnn_ranked *ranked;
  const dfgnn_measurement *row; /* its row of most samples; NULL: it was
                                 * measured as an anchor only */
  double predicted; /* time over that of the model's choice; NaN: none */
} report_arm;

/* The figures of every problem are made with the data; its choices only for
 * those that the page has room for, since they take a walk over the store. */

typedef struct report_problem {
  const dfgnn_decision *decision;
  size_t device, graph, shape;
  const dfgnn_measurement *const *row; /* [rows]: all rows of the problem */
  size_t rows;
  int known;  /* 1: the library has the operator, and `problem` is filled in */
  int judged; /* 1: chosen, regret, distance and left_out are filled in */
  dfgnn_problem problem;
  dfgnn_matrix matrix;
  report_arm *arm; /* [decision->count] */
  double fastest;  /* least log_ratio: the winner's may be larger */
  double best_ms;  /* the winner's */
  double over_rule, over_unfused;  /* their times over the winner's, or NaN */
  int noisy;                       /* 1: the winner rests on noisy rows */
  double bytes, gather_bytes;      /* that have to be moved; NaN: not known */
  const char *chosen[REPORT_WAYS]; /* variants; NULL: none */
  double regret[REPORT_WAYS];      /* NaN: not measured */
  double distance;                 /* to the nearest other graph; -1: none */
  dfgnn_source left_out;           /* the source of the choice LEFT_OUT */
} report_problem;

typedef struct report_data {
  const dfgnn_report_input *input;
  dfgnn_decisions *decisions;
  const dfgnn_measurement **sorted; /* by problem */
  report_arm *arms;
  report_device *device;
  report_graph *graph;
  report_shape *shape;
  report_problem *problem; /* by device, shape, then name of the graph */
  size_t devices, graphs, shapes, problems;
  size_t *place, places; /* a hash table of shapes, then of graphs */
  uint64_t stale[4];     /* rows by dfgnn_use: older, newer, unknown, foreign */
} report_data;

/* A geometric mean and the standard error of its logarithm. */
typedef struct report_mean {
  double value, error; /* NaN: none */
  size_t count;
} report_mean;

/* A graph and a shape that were not measured together, and the source of the
 * choice that a program would get. */
typedef struct report_cell {
  size_t graph, shape;
  dfgnn_source source;
} report_cell;

typedef struct report_summary {
  report_mean over_rule, over_unfused; /* of all problems */
  size_t tied;  /* problems whose winner cannot be told from another */
  size_t noisy; /* problems whose winner rests on noisy rows, which are not in
                 * the means */
  size_t unmeasured; /* pairs of a graph and a shape */
  report_cell *cell; /* [cells]; none if there are too many */
  size_t cells;
  const report_cell *next; /* worth most to be tuned; NULL: none is known */
} report_summary;

dfgnn_status dfgnn__report_summary_make(report_summary *summary,
                                        const report_data *data);
void dfgnn__report_summary_free(report_summary *summary);

/* brief: problems get their measured figures, but neither bytes nor the
 * rule's choice. */
dfgnn_status dfgnn__report_data_make(report_data *data,
                                     const dfgnn_report_input *input,
                                     int brief);
void dfgnn__report_data_free(report_data *data);

/* facts.c: fills the figures of a problem whose decision, rows, graph and shape
 * are known. */
void dfgnn__report_facts(report_data *data, report_problem *problem, int brief);
/* Fills what other choices would have cost. */
void dfgnn__report_judge(const report_data *data, report_problem *problem);
/* Finds the choice of a context for a graph and shape that were not measured
 * together; choice->variant is NULL if nothing applies. */
void dfgnn__report_foretell(dfgnn_choice *choice, const report_data *data,
                            const report_graph *graph,
                            const report_shape *shape);
/* The copy bandwidth of a device's model in bytes/s, and the file that has it;
 * NaN if it is not known. */
double dfgnn__report_bandwidth(const char **measured, const char *model);

/* The geometric mean of the values that are finite and above zero; NaN if there
 * are none.  count gets their number, error the standard error of its
 * logarithm. */
double dfgnn__report_mean(size_t *count, double *error, const double *value,
                          size_t values);

/* The problem of a graph and shape; NULL if it was not measured. */
const report_problem *dfgnn__report_find(const report_data *data, size_t graph,
                                         size_t shape);

#endif
