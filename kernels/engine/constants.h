/* constants.h - programs whose constants have names
 *
 * The constants stand in a struct of ints, whose members a list names:
 *
 *     #define SHAPE(X) X(type) X(lanes)
 *     typedef struct shape { SHAPE(DFGNN_CONSTANT_MEMBER) } shape;
 *
 * The kernel's template takes one type K that has them as members: K::lanes is
 * a number, and K::type a type if that constant was made by DFGNN_TYPE.  The
 * name of such a program ends in the names of its constants,
 * "dfgnn::kernel<type lanes >". */
#ifndef DFGNN_ENGINE_CONSTANTS_H
#define DFGNN_ENGINE_CONSTANTS_H

#include <string.h>

#include "kernels/engine/engine.h"

#define DFGNN_CONSTANT_MEMBER(member) int member;
#define DFGNN_CONSTANT_NAME(member) #member " "

/* The program of a kernel, by its name without constants, and a pointer to the
 * struct of its constants. */
#define DFGNN_PROGRAM_OF(source, name, LIST, constants)                        \
  dfgnn__program_of(source, name "<" LIST(DFGNN_CONSTANT_NAME) ">",            \
                    (constants), sizeof *(constants))
static inline dfgnn_program dfgnn__program_of(const char *source,
                                              const char *name,
                                              const void *constants,
                                              size_t size) {
  dfgnn_program p = {
      .source = source, .name = name, .count = (int)(size / sizeof(int))};
  memcpy(p.constant, constants, size);
  return p;
}

/* The source that a compiler is given, and the name of the kernel in it. */
void dfgnn__program_source(char *text, size_t size,
                           const dfgnn_program *program);
void dfgnn__program_expression(char *text, size_t size,
                               const dfgnn_program *program);

#endif
