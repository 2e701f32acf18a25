/* library.h - where libraries of the GPU's maker may lie besides the loader's
 * own path */
#ifndef DFGNN_ENGINE_LIBRARY_H
#define DFGNN_ENGINE_LIBRARY_H

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if the library at the path was taken, which ends the search. */
typedef int dfgnn_take_library(const char *path);

/* Offers the files of a toolkit in /usr/local whose names match, such as
 * "libnvrtc.so.1[23]", then those of Python's packages: in the given folders of
 * each environment whose bin is in PATH, the highest version of each first.
 * folders ends with NULL.  Returns 1 if one was taken. */
int dfgnn__library_find(const char *file, const char *const *folders,
                        dfgnn_take_library *take);

#ifdef __cplusplus
}
#endif
#endif
