/* code.h - the writing of a walk's kernel: expression.c, value.c, reduce.c and,
 * above them, stage.c and generate.c */
#ifndef DFGNN_PROGRAM_CUDA_CODE_H
#define DFGNN_PROGRAM_CUDA_CODE_H

#include <stdio.h>

#include "kernels/program/cuda/plan.h"

enum { CODE_TEXTS = 4096 };

/* A writer holds the source that is being written, and for which walk. */
typedef struct writer {
  FILE *to;
  walk_plan *p; /* of the walk; without one, values of no place */
  dfgnn_generated *g;
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  uint8_t *written; /* fused products of the function that is written */
  uint8_t *early;   /* values that before() makes, of the stage */
  char **texts;     /* of expressions, freed together */
  int text_count;
} writer;

/* Where an expression is evaluated: the class of its result, and its element.
 */
typedef struct place {
  value_class c;
  int level;
  const char *axis[DFGNN_DAG_AXES], *flat;
} place;

#define P(...) fprintf(w->to, __VA_ARGS__)

static inline const dfgnn_node *at(const writer *w, int32_t n) {
  return &w->dag->nodes[n];
}
static inline int32_t argument(const writer *w, int32_t n, int i) {
  return dfgnn__dag_argument(w->dag, n, i);
}
static inline const dfgnn_extent *extent(const writer *w, int32_t n) {
  return &w->job->extents[n];
}

/* ---- expression.c: what an element is ------------------------------------ */

/* A text of an expression, good for the statement that is being written. */
const char *dfgnn__code_text(writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The type of an array's elements in device code, its number, and the row of it
 * that belongs to a place. */
const char *dfgnn__code_type_name(dfgnn_dtype dtype);
const char *dfgnn__code_array_type(const writer *w, int32_t n);
int dfgnn__code_array_of(const writer *w, int32_t n);
const char *dfgnn__code_item_of(const writer *w, int place);
int dfgnn__code_in_registers(const writer *w, int32_t n);
/* Element `off` of a value; aligned: the lane's own. */
const char *dfgnn__code_element(writer *w, int32_t n, const place *x,
                                const char *off, int aligned);
/* Argument a where it is spread over the axes of the result. */
const char *dfgnn__code_operand(writer *w, int32_t a, const place *x);
/* Declares y, the element of a value at x. */
void dfgnn__code_write_element(writer *w, int32_t n, const place *x);

/* ---- value.c: all elements of a value ------------------------------------ */

/* Begins a loop over what a lane has of a value, and says where it is.  lane,
 * lanes: which of how many share the elements of CLASS_OTHER. */
place dfgnn__code_begin_loop(writer *w, value_class c, const dfgnn_extent *e,
                             int level, const char *lane, const char *lanes);
void dfgnn__code_end_loop(writer *w, value_class c);
/* A lane's number of a value in registers, at a loop's place. */
const char *dfgnn__code_own_number(writer *w, const char *name, int32_t n,
                                   value_class c);
/* Whether the lane is the one that writes the element at a loop's place. */
const char *dfgnn__code_is_writer(value_class c);
void dfgnn__code_declare(writer *w, const char *name, int32_t n, value_class c,
                         const char *start);
/* Puts a value in registers where other lanes read it, if they do. */
void dfgnn__code_write_spill(writer *w, int32_t n);
/* Computes a value, which is declared; write_made declares it, too. */
void dfgnn__code_write_value(writer *w, int32_t n, int level);
void dfgnn__code_write_made(writer *w, int32_t n, int level);
/* The fused products that a step reads. */
void dfgnn__code_write_parts(writer *w, int32_t n, int level);
/* Writes value n, spread to an extent, to an array; an output. */
void dfgnn__code_write_array(writer *w, int32_t n, const dfgnn_extent *e,
                             const char *type, int array, const char *item,
                             const char *condition);
void dfgnn__code_write_output(writer *w, int index, const char *item,
                              const char *condition);

/* ---- reduce.c: sums over edges, or over everything ----------------------- */

/* Numbers of a lane of a reduction whose elements lanes share. */
int dfgnn__code_shared_numbers(const writer *w, int32_t n);
/* Loops over a lane's numbers of a reduction's state. */
void dfgnn__code_begin_state(writer *w, int32_t n, value_class c, place *x);
const char *dfgnn__code_state_number(writer *w, const char *of,
                                     const char *name, int32_t n,
                                     value_class c);
/* The logsumexp that a sum goes along with; -1: none. */
int32_t dfgnn__code_lse_beside(const writer *w, int32_t n);
void dfgnn__code_declare_state(writer *w, int32_t n);
void dfgnn__code_write_start(writer *w, int32_t n);
/* A log-sum-exp, in turn: the score of an edge, a member of work; the largest
 * of N edges; the new maximum, and what is relative to it; the weight of an
 * edge, which sums beside it take. */
void dfgnn__code_declare_score(writer *w, int32_t n);
void dfgnn__code_write_score(writer *w, int32_t n);
void dfgnn__code_write_top(writer *w, int32_t n);
void dfgnn__code_write_raise(writer *w, int32_t n);
void dfgnn__code_write_weight(writer *w, int32_t n);
/* of, name: the state, "z." and "z", or a total's, "" and "t". */
void dfgnn__code_write_reduce(writer *w, int32_t n, const char *of,
                              const char *name, const char *live);
void dfgnn__code_write_join(writer *w, int32_t n);
/* Gives the state's numbers to each(number, k++), which are as many for a lane.
 */
void dfgnn__code_write_numbers(writer *w, int32_t n);
int dfgnn__code_state_size(const writer *w, int32_t n);
void dfgnn__code_write_finish(writer *w, int32_t n);

/* ---- stage.c: a stage's functions ---------------------------------------- */

void dfgnn__code_load_leaf(writer *w, int32_t n, const char *owner,
                           const char *item);
void dfgnn__code_write_ends(writer *w);
int dfgnn__code_has_edges(const writer *w, int stage);
void dfgnn__code_write_stage(writer *w, int stage);
/* Finds the only stage that has edges, and the size of its state. */
void dfgnn__code_find_cut(writer *w, dfgnn_generated_walk *about);

#endif
