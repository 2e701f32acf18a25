/* job.h - a program, its tensors and a graph */
#ifndef DFGNN_KERNELS_PROGRAM_JOB_H
#define DFGNN_KERNELS_PROGRAM_JOB_H

#include <math.h>

#include "kernels/common/variant.h"
#include "kernels/program/lower.h"

/* A dense tensor: the rows of its place one after the other. */
typedef struct dfgnn_program_array {
  void *data; /* an input's is only read */
  dfgnn_dtype dtype;
} dfgnn_program_array;

/* The error that storing a number may add. */
static inline double dfgnn__rounding(dfgnn_dtype dtype, double x) {
  static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8, 0x1p-53};
  static const double least[] = {0x1p-149, 0x1p-25, 0x1p-133, 0x1p-1074};
  return fabs(x) * unit[dtype] + least[dtype];
}

/* A number that is too large for its type is stored as this. */
static inline double dfgnn__in_range(dfgnn_dtype dtype, double x) {
  static const double least_infinite[] = {0x1.ffffffp127, 65520, 0x1.ffp127,
                                          INFINITY};
  return fabs(x) >= least_infinite[dtype] ? copysign(INFINITY, x) : x;
}

/* Parameters of the evaluator on CPUs. */
typedef struct dfgnn_program_blocks {
  int simd;        /* that of kernels/common/cpu_simd.h */
  int block_bytes; /* of the values of a block's edges */
  int chunks;      /* parts of the rows, which threads take */
} dfgnn_program_blocks;

enum { DFGNN_PROGRAM_CHUNKS = 512 }; /* at most */

struct body_block;
typedef struct dfgnn_program_job {
  const dfgnn_lowered *lowered;
  const dfgnn_binding *binding;
  const dfgnn_extent *extents; /* of lowered->dag */
  dfgnn_matrix rows, columns;  /* columns: by source */
  const void *column_edges;    /* [E]: positions in rows of columns' edges, of
                                * the type of offsets */
  dfgnn_matrix relations;      /* by relation; its indices are destinations */
  const void *relation_edges;  /* likewise */
  const int32_t *relation_of;  /* [E]: of each edge; NULL: none has one */
  const dfgnn_program_array *inputs, *outputs;
  uint64_t seed;               /* of dropout */
  const uint64_t *device_seed; /* on a GPU, in its memory; NULL: seed */
  int threads;
  /* On a GPU, WORK_ITEMS of the places that have long rows: those that blocks
   * take, and those that are cut (kernels/program/cuda/run.h). */
  const dfgnn_view *long_rows[DFGNN_PLACES], *hubs[DFGNN_PLACES];
  const dfgnn_view *order[DFGNN_PLACES]; /* by falling degree; NULL: natural */
  dfgnn_program_blocks blocks;
  struct dfgnn_program_codes *codes; /* of the program, that were generated */
  const struct dfgnn_body *body;     /* on CPUs: steps that are compiled */
  void (*const *functions)(const struct body_block *block); /* of it */
} dfgnn_program_job;

/* The matrix whose rows are the nodes of a place, with their edges. */
static inline const dfgnn_matrix *
dfgnn__program_matrix(const dfgnn_program_job *job, int place) {
  return place == DFGNN_PLACE_SRC   ? &job->columns
         : place == DFGNN_PLACE_REL ? &job->relations
                                    : &job->rows;
}
/* The positions in rows of that matrix's edges; NULL: its own. */
static inline const void *dfgnn__program_edges(const dfgnn_program_job *job,
                                               int place) {
  return place == DFGNN_PLACE_SRC   ? job->column_edges
         : place == DFGNN_PLACE_REL ? job->relation_edges
                                    : NULL;
}

/* Are sums of double, as a tensor is? */
int dfgnn__program_is_double(const dfgnn_program_job *job);

/* The widest row that many values of the program have. */
dfgnn_extent dfgnn__program_widest(const dfgnn_lowered *lowered,
                                   const dfgnn_extent *extents);

/* The job of a setting's program on its graph, with its tensors if the setting
 * is a launch's; views as dfgnn__program_views has asked for.  The job is
 * valid as long as binding is. */
void dfgnn__program_job_of(dfgnn_program_job *job, dfgnn_binding *binding,
                           const dfgnn_setting *setting,
                           const dfgnn_view *const *views);
int dfgnn__program_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests);
/* The views that a program needs; columns: those, too, if it does not. */
int dfgnn__program_views_of(const dfgnn_lowered *lowered, int columns,
                            dfgnn_view_request *requests);
/* How many rows the tensors of each place have. */
void dfgnn__program_counts(int64_t counts[DFGNN_PLACES],
                           const dfgnn_matrix *matrix);

/* Gives a job the matrices of views, whose list NULL ends. */
void dfgnn__program_take_views(dfgnn_program_job *job, const dfgnn_matrix *rows,
                               const dfgnn_view *const *views);

/* Runs the program in blocks of edges that stay in the cache.  Sums are of
 * double if a tensor is F64, else of float, in an order that does not depend on
 * the number of threads. */
dfgnn_status dfgnn__program_cpu(const dfgnn_program_job *job);
/* Has what it runs with the best instruction set been compiled, or cannot be?
 * The first call begins that. */
int dfgnn__program_cpu_prepared(const dfgnn_program_job *job);

/* reread.c: a walk with steps of its own, which the caller frees.  It leaves
 * out values of edges that an earlier walk has written where reading them costs
 * no more: outputs[n] becomes the output that holds such a value n, -1 for all
 * others. */
dfgnn_status dfgnn__program_reread(dfgnn_walk *walk, int32_t *outputs,
                                   const dfgnn_program_job *job, int number);
/* (*types)[n] is the type of 16 bits of the output whose elements sum n of
 * job->lowered adds so, 0 for all others; NULL: there is none.  The caller
 * frees them. */
dfgnn_status dfgnn__program_terms(uint8_t **types,
                                  const dfgnn_program_job *job);

/* The plain evaluation in double, each value for all places at once, with a
 * bound of how far one in sums of type `dtype` may be from it.  values[i] and
 * bounds[i] are those of output i, [count, elements].  types: those to which
 * the terms of sums are rounded; NULL: none is. */
dfgnn_status dfgnn__program_reference(const dfgnn_program_job *job,
                                      const dfgnn_dag *dag, dfgnn_dtype dtype,
                                      const uint8_t *types, double **values,
                                      double **bounds);

#endif
