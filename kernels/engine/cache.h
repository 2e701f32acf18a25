/* cache.h - compiled kernels that outlive a process
 *
 * The user's cache is DFGNN_KERNEL_CACHE, else
 * $XDG_CACHE_HOME/dfgnn/kernels.db, else ~/.cache/dfgnn/kernels.db; an empty
 * DFGNN_KERNEL_CACHE means none.  It holds at most DFGNN_KERNEL_CACHE_MB
 * (256): the least recently used kernels go first.  It is left alone on a
 * network file system, where somebody else could write it, its folder or what
 * SQLite puts beside it, and where the name is that of a file of another kind.
 * Where it cannot be written it is read.  Whatever is wrong with it, at worst
 * kernels are compiled again.
 *
 * Packs are read-only files of kernels, for machines without a compiler:
 * DFGNN_KERNEL_PACK names them, separated by colons, else those that were
 * installed are used.  Kernels are code, so a pack must belong to root or to
 * the user and nobody else may be able to write it or its folder, or it must be
 * signed. */
#ifndef DFGNN_ENGINE_CACHE_H
#define DFGNN_ENGINE_CACHE_H

#include "kernels/engine/compiler.h"

/* ---- the user's cache -----------------------------------------------------
 */

/* Finds an image in the cache; 0 if it is not there. */
int dfgnn__cache_find(dfgnn_image *image, const dfgnn_keys_of *keys);
/* Keeps an image, unless it cannot be written. */
void dfgnn__cache_store(const dfgnn_keys_of *keys, const dfgnn_image *image,
                        const char *target, const char *expression);
/* Forgets an image that the driver refused. */
void dfgnn__cache_forget(const dfgnn_keys_of *keys);

typedef struct dfgnn_cache_info {
  char path[4096];   /* "" if there is none */
  char problem[512]; /* why it is not used; "" if it is */
  int64_t entries, bytes, limit_bytes;
  int64_t uses; /* times that entries were found, by any process */
  int64_t hits, misses, stored; /* of this process */
  int64_t lost;                 /* kernels that it could not store */
} dfgnn_cache_info;
void dfgnn__cache_describe(dfgnn_cache_info *info);
/* 1 and the reason, once a process, if the cache cannot be used although nobody
 * turned it off. */
int dfgnn__cache_complaint(char *text, size_t size);
/* Empties the cache; *entries becomes the number of images it had. */
dfgnn_status dfgnn__cache_clear(int64_t *entries);

/* ---- packs ----------------------------------------------------------------
 */

/* 1 and the image if a pack has the program for the target. */
int dfgnn__pack_find(dfgnn_image *image, const dfgnn_keys_of *keys);
int dfgnn__pack_count(void);

typedef struct dfgnn_pack_info {
  const char *path;
  const char *problem; /* why it is refused; "" if it is used */
  int64_t entries, bytes;
} dfgnn_pack_info;
/* Describes the i-th pack; 0 beyond the last. */
int dfgnn__pack_describe(dfgnn_pack_info *info, int i);

/* Says whether a pack is signed; lib installs the function.  DFGNN_OK: one of
 * the keys that are set has signed the bytes of the file.
 * DFGNN_ERROR_UNSUPPORTED: no keys are set, so the file's owner decides. */
typedef dfgnn_status dfgnn_pack_judge(const char *path,
                                      const unsigned char *bytes, size_t size);
void dfgnn__pack_trust(dfgnn_pack_judge *judge);

/* A pack that is being written; it appears under its name when it is closed
 * and complete. */
typedef struct dfgnn_pack_writer dfgnn_pack_writer;
dfgnn_status dfgnn__pack_create(dfgnn_pack_writer **writer, const char *path);
dfgnn_status dfgnn__pack_add(dfgnn_pack_writer *writer,
                             const dfgnn_keys_of *keys,
                             const dfgnn_image *image, const char *target,
                             const char *expression);
/* keep 0: the file is not made.  info (may be NULL) gets the number of kernels
 * and the bytes. */
dfgnn_status dfgnn__pack_close(dfgnn_pack_writer *writer, int keep,
                               dfgnn_cache_info *info);

#endif
