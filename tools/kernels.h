/* kernels.h - what the tools say of the compiler and of compiled kernels */
#ifndef DFGNN_TOOLS_KERNELS_H
#define DFGNN_TOOLS_KERNELS_H

#include "tools/report.h"

/* Rows of `info`: the compiler, the user's cache, the packs. */
void tool_kernels_describe(json_t *rows);
/* What `stat` says of the cache, in a line on standard error. */
void tool_kernels_stat(const tool_settings *settings);
/* `stat --kernels`: the cache alone. */
int tool_kernels_report(const tool_settings *settings);
/* `prune --kernels`: empties the cache. */
int tool_kernels_prune(const tool_settings *settings);
/* For `doctor`: 1 if GPU kernels can be had. */
int tool_kernels_diagnose(char *text, size_t size);

#endif
