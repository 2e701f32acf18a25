/* edge_program.h - a program behind its handle */
#ifndef DFGNN_LIB_EDGE_PROGRAM_H
#define DFGNN_LIB_EDGE_PROGRAM_H

#include "dfgnn_program.h"
#include "program/lower.h"

struct dfgnn_edge_program {
  uint32_t kind; /* lib/handle.h */
  dfgnn_dag *dag;
  dfgnn_lowered *lowered;
  char *text;
};

/* DFGNN_ERROR_INVALID unless it is one. */
dfgnn_status dfgnn__check_edge_program(const dfgnn_edge_program *program);

#endif
