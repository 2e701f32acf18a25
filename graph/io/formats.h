/* formats.h - one reader and one writer per format */
#ifndef DFGNN_IO_FORMATS_H
#define DFGNN_IO_FORMATS_H

#include "graph/io/build.h"

/* Readers give parts; the file at path is of their format. */
dfgnn_status dfgnn__read_mtx(dfgnn__parts *parts, const char *path);
dfgnn_status dfgnn__read_npz(dfgnn__parts *parts, const char *path);
dfgnn_status dfgnn__read_metis(dfgnn__parts *parts, const char *path);
dfgnn_status dfgnn__read_edges(dfgnn__parts *parts, const char *path);

/* Writers write to temporary, and name path in their messages. */
dfgnn_status dfgnn__write_mtx(const dfgnn_csr *csr, const char *path,
                              const char *temporary);
dfgnn_status dfgnn__write_npz(const dfgnn_csr *csr, const char *path,
                              const char *temporary);
dfgnn_status dfgnn__write_metis(const dfgnn_csr *csr, const char *path,
                                const char *temporary);
dfgnn_status dfgnn__write_edges(const dfgnn_csr *csr, const char *path,
                                const char *temporary);

/* Whether the file is an .npz archive that has the arrays of a matrix, and
 * whether it begins as a METIS graph does; data is NULL. */
int dfgnn__is_npz_graph(const char *path, const void *data);
int dfgnn__is_metis(const char *path, const void *data);

#endif
