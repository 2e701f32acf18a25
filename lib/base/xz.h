/* xz.h - files compressed by xz, as packs are if there is liblzma
 *
 * Compiled kernels have much in common: xz, which looks back over all of a
 * pack, makes it a third of what zlib makes of its images one by one. */
#ifndef DFGNN_BASE_XZ_H
#define DFGNN_BASE_XZ_H

#include <stddef.h>

#include "dfgnn.h"

/* 1 if the bytes begin as those of an .xz file do. */
int dfgnn__xz_is(const unsigned char *bytes, size_t size);
/* 1 if this library was built with liblzma. */
int dfgnn__xz_available(void);
/* Replaces bytes, which sqlite3_malloc64 made, by their decompressed content:
 * at most `most` bytes, else DFGNN_ERROR_FORMAT. */
dfgnn_status dfgnn__xz_unpack(unsigned char **bytes, size_t *size, size_t most,
                              const char *path);
/* Unpacks the beginning of a file, of which `size` bytes are there; returns how
 * many bytes that gave, up to `most`. */
size_t dfgnn__xz_begin(char *to, size_t most, const char *packed, size_t size);
/* Compresses a file in place; messages name it `name`. */
dfgnn_status dfgnn__xz_file(const char *path, const char *name);

#endif
