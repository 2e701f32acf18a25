/* kernels.h - describes the compiler and the compiled kernels */
#ifndef DFGNN_TOOLS_KERNELS_H
#define DFGNN_TOOLS_KERNELS_H

#include "tools/report.h"

/* Adds the rows of `info`: the compiler, the user's cache, the packs. */
void tool_kernels_describe(json_t *rows);
/* Prints the line of `stat` about the cache on standard error. */
void tool_kernels_stat(const tool_settings *settings);
/* Prints the table of `stat --kernels`: the cache alone. */
int tool_kernels_report(const tool_settings *settings);
/* Empties the cache, for `prune --kernels`. */
int tool_kernels_prune(const tool_settings *settings);
/* Writes the diagnosis of `doctor`; returns 1 if GPU kernels can be run. */
int tool_kernels_diagnose(char *text, size_t size);

#endif
