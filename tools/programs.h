/* programs.h - the edge programs that --program names, as problems */
#ifndef DFGNN_TOOLS_PROGRAMS_H
#define DFGNN_TOOLS_PROGRAMS_H

#include "dfgnn_program.h"
#include "tools/common.h"

/* The problems of the files of settings->program or, without it, of programs
 * that settings->op names: for each program, pass, type, number of heads (the
 * size H) and width (the other sizes).  BACKWARD: the program with what its
 * gradient keeps, if that is another, and its gradient.  Programs that are
 * operators give the operator's problem.  Called again it gives the same
 * programs, which live as long as the process.  NULL with a message if one is
 * wrong; the caller frees the array. */
dfgnn_problem *tool_program_problems(size_t *count,
                                     const tool_settings *settings);

/* 1 if the problem is one of these. */
int tool_program_repeats(const dfgnn_problem *problems, size_t count,
                         const dfgnn_problem *problem);

/* 1 if the row is of such a program, or its gradient, of any size. */
int tool_program_wanted(const tool_settings *settings,
                        const dfgnn_measurement *row);

/* The name that --op has for the program of a row, or for its gradient; NULL:
 * none. */
const char *tool_program_name(const dfgnn_measurement *row);

/* Gives the edges of a graph relations, one of 8 each, the same in every run,
 * if the program (NULL: none) has values of them. */
dfgnn_status tool_program_relate(dfgnn_graph *graph,
                                 const dfgnn_edge_program *program);

#endif
