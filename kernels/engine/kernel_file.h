/* kernel_file.h - a SQLite file of compiled kernels: the user's kernels.db, and
 * packs
 *
 * A row is one compiled program.  Its digest covers all columns that are used,
 * so that a damaged row, or one under a wrong key, is a miss.  The digest has
 * no secret key: it would have to lie where the user can read it, so whoever
 * can write the user's files could read it or put another in its place.  That
 * nobody else writes the file is what cache.c and pack.c check. */
#ifndef DFGNN_ENGINE_KERNEL_FILE_H
#define DFGNN_ENGINE_KERNEL_FILE_H

#include <sqlite3.h>

#include "kernels/engine/compiler.h"

#define DFGNN_KERNEL_FILE_ID 0x64666e6b /* SQLite's application id: "dfnk" */

enum { DFGNN_KERNEL_MAX_BYTES = 32 << 20 }; /* of one image */

/* Confines a connection as an untrusted file needs it, then checks that the
 * file is one of ours; `make` lays an empty one out.  DFGNN_ERROR_FORMAT for a
 * file of somebody else or of another version. */
dfgnn_status dfgnn__kernel_file_start(sqlite3 *db, const char *path, int make);

/* The image under a key: the full key, or, with by_program, the key of the
 * program whatever the compiler.  SQLITE_ROW: found; SQLITE_DONE: there is
 * none, or its row is damaged; else SQLite's error. */
int dfgnn__kernel_file_find(sqlite3 *db, dfgnn_image *image,
                            const unsigned char *key, int by_program);
/* Adds or replaces an image; SQLITE_DONE on success.  level: zlib's, 0 to 9. */
int dfgnn__kernel_file_store(sqlite3 *db, const dfgnn_keys_of *keys,
                             const dfgnn_image *image, const char *target,
                             const char *expression, int level);

typedef struct dfgnn_kernel_file_info {
  int64_t entries, bytes, uses; /* bytes: of images, compressed */
} dfgnn_kernel_file_info;
int dfgnn__kernel_file_count(sqlite3 *db, dfgnn_kernel_file_info *info);

#endif
