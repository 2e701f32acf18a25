/* io.h - graph files and generators, for the rest of the library and the tools
 */
#ifndef DFGNN_IO_IO_H
#define DFGNN_IO_IO_H

#include "dfgnn.h"
#include "lib/base/descriptor.h"

typedef enum dfgnn__format {
  DFGNN__FORMAT_AUTO = 0, /* from name and content */
  DFGNN__FORMAT_MTX,
  DFGNN__FORMAT_NPZ,
  DFGNN__FORMAT_METIS,
  DFGNN__FORMAT_EDGES
} dfgnn__format;

/* The format that the extensions of a name tell; AUTO if they tell none. */
dfgnn__format dfgnn__format_by_name(const char *path);

/* dfgnn_csr_read with the format given instead of found. */
dfgnn_status dfgnn__csr_read_as(dfgnn_csr **csr, const char *path,
                                dfgnn__format format);

/* The GRAPH argument of every tool: a file if there is one of that name, else
 * the specification of a generator; "gen:SPEC" is always the latter. */
dfgnn_status dfgnn__csr_open(dfgnn_csr **csr, const char *file_or_spec);

/* Fails unless csr is a matrix in host memory: offsets rise from 0 to edges,
 * indices are in range, no edge leaves its graph of a batch. */
dfgnn_status dfgnn__csr_check(const dfgnn_csr *csr);
/* The same of a matrix that a program gave; *whole becomes it, with the members
 * that the program's header lacks. */
dfgnn_status dfgnn__csr_take(dfgnn_csr *whole, const dfgnn_csr *given);
extern const dfgnn_descriptor_kind dfgnn__csr_kind;

/* 1 if every edge (i, j) is there as often as (j, i); 0 if not.  Negative: a
 * dfgnn_status. */
int dfgnn__csr_symmetric(const dfgnn_csr *csr);

/* Attributes [edges, 3] of the edges of a graph that dfgnn_csr_generate made:
 * the length, and the direction of the source, to the east and to the north, as
 * a vector of length one.  NULL for kinds whose nodes have no place. */
const float *dfgnn__csr_edge_attr(const dfgnn_csr *csr);

/* Arrays of an .npz; a NULL name ends the list. */
typedef struct dfgnn__array {
  const char *name;
  const void *data;
  int64_t count;
  int64_t columns; /* 0: a vector of int64; else float32 [count, columns] */
  int narrow;      /* 1: a vector of int32 instead */
} dfgnn__array;
/* Writes them; an archive that is there is replaced if it has all of these
 * arrays.  what names them, for messages: "a part of a graph". */
dfgnn_status dfgnn__arrays_write(const char *path, const char *what,
                                 const dfgnn__array *arrays);

/* Entry i of offsets and entry e of indices, whatever their types. */
static inline int64_t dfgnn__csr_offset(const dfgnn_csr *csr, int64_t i) {
  return csr->offset_type == DFGNN_INDEX_I32
             ? ((const int32_t *)csr->offsets)[i]
             : ((const int64_t *)csr->offsets)[i];
}
static inline int64_t dfgnn__csr_index(const dfgnn_csr *csr, int64_t e) {
  return csr->index_type == DFGNN_INDEX_I32
             ? ((const int32_t *)csr->indices)[e]
             : ((const int64_t *)csr->indices)[e];
}

/* A kind or preset of dfgnn_csr_generate, for --help and the man page. */
typedef struct dfgnn__generator_info {
  const char *name;     /* "knn" */
  const char *summary;  /* one line */
  const char *settings; /* "nodes=71 k=8 batch=1 seed=1": with defaults; of a
                         * preset the graph it is, "knn:nodes=71,k=8" */
} dfgnn__generator_info;

/* 1 if some kind has the setting name, or it is "preset" or "scale". */
int dfgnn__generator_setting(const char *name);

/* The i-th kind, or preset; NULL past the last. */
const dfgnn__generator_info *dfgnn__generator_kind(size_t i);
const dfgnn__generator_info *dfgnn__generator_preset(size_t i);

#endif
