/* npy.h - the header of a NumPy array file (NEP 1) */
#ifndef DFGNN_IO_NPY_H
#define DFGNN_IO_NPY_H

#include "dfgnn.h"

#define DFGNN__NPY_HEADER 4096 /* longest header that is read */

typedef struct dfgnn__npy {
  char type[16];  /* "<i4", as descr has it */
  int dimensions; /* 0: a scalar */
  int64_t shape[2];
  int64_t count; /* elements */
  size_t header; /* bytes before the data */
} dfgnn__npy;

/* The bytes of header and preamble together, from the first 12 bytes of the
 * file; 0 if it is not a NumPy array. */
size_t dfgnn__npy_header_size(const unsigned char preamble[12]);

/* Parses a whole header; what ("x.npz: array 'indptr'") starts messages. */
dfgnn_status dfgnn__npy_parse(dfgnn__npy *npy, const char *header, size_t size,
                              const char *what);

#endif
