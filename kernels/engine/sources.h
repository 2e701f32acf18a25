/* sources.h - the device code that the library carries
 *
 * The files are those that kernels/device.am lists, compressed into the
 * library. DFGNN_KERNEL_SOURCE=DIR takes them from the folder DIR instead, laid
 * out as a checkout is, so that whoever works on a kernel rebuilds nothing. */
#ifndef DFGNN_ENGINE_SOURCES_H
#define DFGNN_ENGINE_SOURCES_H

#include "dfgnn.h"

typedef struct dfgnn_source_file {
  const char *name; /* as an #include names it */
  const char *text; /* ends with a 0 */
  size_t bytes;
} dfgnn_source_file;

enum { DFGNN_MAX_CLOSURE = 64 };

/* A file and all it includes, the file first, each once.  The texts stay valid
 * for the life of the process.  DFGNN_ERROR_IO names the file that is missing
 * and the one that includes it. */
dfgnn_status
dfgnn__source_closure(const dfgnn_source_file *files[DFGNN_MAX_CLOSURE],
                      int *count, const char *name);

/* Adds device code that was generated, for the life of the process, and returns
 * the name by which dfgnn_program.source and includes know it: the same for the
 * same text.  NULL: out of memory. */
const char *dfgnn__source_generated(const char *text);

#endif
