/* library.h - where libraries of the GPU's maker may lie besides the loader's
 * own path */
#ifndef DFGNN_ENGINE_LIBRARY_H
#define DFGNN_ENGINE_LIBRARY_H

#include <stddef.h>

/* 1 if the library at the path was taken, which ends the search. */
typedef int dfgnn_take_library(const char *path, void *context);

/* Offers the files of a toolkit in /usr/local whose names match, such as
 * "libnvrtc.so.1[23]", then those of Python's packages: in the given folders of
 * each environment whose bin is in PATH, the highest version of each first.
 * folders ends with NULL.  Returns 1 if one was taken. */
int dfgnn__library_find(const char *file, const char *const *folders,
                        dfgnn_take_library *take, void *context);

/* A function of a library, and where its address stands in a table of them. */
typedef struct dfgnn_library_function {
  const char *name;
  size_t offset;
} dfgnn_library_function;

/* Fills the table with the functions of a library that dlopen() gave.  Returns
 * NULL, or the name of the first that the library does not have. */
const char *dfgnn__library_functions(void *table, void *library,
                                     const dfgnn_library_function *functions,
                                     size_t count);

#endif
