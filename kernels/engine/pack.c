/* pack.c - read-only files of compiled kernels, and writing them */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "kernels/engine/cache.h"
#include "kernels/engine/kernel_file.h"
#include "lib/base/error.h"
#include "lib/base/filesystem.h"
#include "lib/base/output.h"
#include "lib/base/xz.h"

enum { MOST_PACKS = 16, LEAST_BYTES = 64, MOST_BYTES = 512 << 20 };

typedef struct pack {
  char *path;
  sqlite3 *db; /* in memory, so that the bytes that were checked are used */
  char problem[512];
  dfgnn_kernel_file_info info;
} pack;

static pack packs[MOST_PACKS];
static int pack_count;
static _Atomic(dfgnn_pack_judge *) judge; /* every context sets it */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* SQLite's calls */

void dfgnn__pack_trust(dfgnn_pack_judge *trusted) {
  atomic_store(&judge, trusted);
}

/* ---- reading --------------------------------------------------------------
 */

static dfgnn_status read_all(unsigned char **bytes, size_t *size, char *unsafe,
                             size_t unsafe_size, const char *path) {
  struct stat info;
  size_t done = 0;
  dfgnn_status status = DFGNN_OK;
  int fd = dfgnn__file_open_safely(unsafe, unsafe_size, path);
  if (fd < 0)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, strerror(errno));
  *bytes = NULL;
  if (fstat(fd, &info) || !S_ISREG(info.st_mode) ||
      info.st_size < LEAST_BYTES || info.st_size > MOST_BYTES) {
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: expected a regular file of %d bytes to %d MiB",
                         path, LEAST_BYTES, MOST_BYTES >> 20);
    goto out;
  }
  *size = (size_t)info.st_size;
  *bytes = sqlite3_malloc64(*size);
  for (ssize_t n = 1; *bytes && n > 0 && done < *size; done += (size_t)n)
    if ((n = read(fd, *bytes + done, *size - done)) <= 0)
      break;
  if (!*bytes || done != *size)
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be read whole", path);
out:
  close(fd);
  if (status) {
    sqlite3_free(*bytes);
    *bytes = NULL;
  }
  return status;
}

/* unsafe: why others might have written the file, or "". */
static dfgnn_status trust(const char *path, const char *unsafe,
                          const unsigned char *bytes, size_t size) {
  dfgnn_pack_judge *signed_by = atomic_load(&judge);
  dfgnn_status status = signed_by
                            ? signed_by(path, bytes, size)
                            : DFGNN_ERROR_UNSUPPORTED; /* no keys are set */
  if (status != DFGNN_ERROR_UNSUPPORTED)
    return status;
  if (!*unsafe)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s: a pack is code, and %s, or have it signed", path,
                     unsafe);
}

static dfgnn_status open_pack(pack *p) {
  unsigned char *bytes = NULL;
  size_t size = 0;
  char unsafe[PATH_MAX + 128];
  dfgnn_status status = read_all(&bytes, &size, unsafe, sizeof unsafe, p->path);
  if (!status)
    status = trust(p->path, unsafe, bytes, size);
  if (!status && dfgnn__xz_is(bytes, size))
    status = dfgnn__xz_unpack(&bytes, &size, MOST_BYTES, p->path);
  if (!status && size < 512) /* less than SQLite's smallest page */
    status = dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: not a pack", p->path);
  if (!status && (bytes[18] == 2 || bytes[19] == 2))
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: a cache in use, not a pack; dfgnn-tune compile "
                         "--pack writes packs",
                         p->path);
  if (!status &&
      sqlite3_open_v2(":memory:", &p->db,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status) {
    sqlite3_free(bytes);
    return status;
  }
  /* SQLite frees the bytes, also when it fails. */
  if (sqlite3_deserialize(
          p->db, "main", bytes, (sqlite3_int64)size, (sqlite3_int64)size,
          SQLITE_DESERIALIZE_READONLY | SQLITE_DESERIALIZE_FREEONCLOSE))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: not a pack", p->path);
  status = dfgnn__kernel_file_start(p->db, p->path, 0);
  if (!status && dfgnn__kernel_file_count(p->db, &p->info) != SQLITE_ROW)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: the pack is damaged: %s",
                         p->path, sqlite3_errmsg(p->db));
  return status;
}

static void add(const char *path, size_t length) {
  if (pack_count == MOST_PACKS || !length)
    return;
  pack *p = &packs[pack_count];
  p->path = strndup(path, length);
  if (!p->path)
    return;
  pack_count++;
  if (open_pack(p)) {
    snprintf(p->problem, sizeof p->problem, "%s", dfgnn_last_error());
    (void)sqlite3_close(p->db);
    p->db = NULL;
  }
}

static void find_packs(void) {
  const char *paths = getenv("DFGNN_KERNEL_PACK");
  glob_t files;
  if (paths) {
    for (size_t n; *paths; paths += n + (paths[n] == ':')) {
      n = strcspn(paths, ":");
      add(paths, n);
    }
    return;
  }
  char pattern[PATH_MAX + 8];
  snprintf(pattern, sizeof pattern, "%s/*.pack", dfgnn__package_folder());
  if (!glob(pattern, 0, NULL, &files)) {
    for (size_t i = 0; i < files.gl_pathc; i++)
      add(files.gl_pathv[i], strlen(files.gl_pathv[i]));
    globfree(&files);
  }
}

int dfgnn__pack_find(dfgnn_image *image, const dfgnn_keys_of *keys) {
  int hit = 0;
  pthread_once(&once, find_packs);
  pthread_mutex_lock(&lock);
  for (int i = 0; !hit && i < pack_count; i++)
    if (packs[i].db)
      hit = dfgnn__kernel_file_find(packs[i].db, image, keys->program, 1) ==
            SQLITE_ROW;
  pthread_mutex_unlock(&lock);
  return hit;
}

int dfgnn__pack_count(void) {
  int usable = 0;
  pthread_once(&once, find_packs);
  for (int i = 0; i < pack_count; i++)
    usable += packs[i].db != NULL;
  return usable;
}

int dfgnn__pack_describe(dfgnn_pack_info *info, int i) {
  pthread_once(&once, find_packs);
  if (i < 0 || i >= pack_count)
    return 0;
  *info = (dfgnn_pack_info){.path = packs[i].path,
                            .problem = packs[i].problem,
                            .entries = packs[i].info.entries,
                            .bytes = packs[i].info.bytes};
  return 1;
}

/* ---- writing --------------------------------------------------------------
 */

struct dfgnn_pack_writer {
  dfgnn_output output;
  sqlite3 *db;
};

/* Fails with SQLite's message, or with the system's reason: a full disk. */
static dfgnn_status writing_fails(const dfgnn_pack_writer *w) {
  int rc = w->db ? sqlite3_errcode(w->db) : SQLITE_NOMEM;
  int error = w->db ? sqlite3_system_errno(w->db) : 0;
  error = rc == SQLITE_FULL ? ENOSPC : error;
  return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", w->output.path,
                     error   ? strerror(error)
                     : w->db ? sqlite3_errmsg(w->db)
                             : "out of memory");
}

static dfgnn_status start_writing(dfgnn_pack_writer *w) {
  if (sqlite3_open_v2(w->output.made, &w->db,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                          SQLITE_OPEN_NOMUTEX,
                      NULL))
    return writing_fails(w);
  dfgnn_status status = dfgnn__kernel_file_start(w->db, w->output.path, 1);
  if (!status && sqlite3_exec(w->db, "BEGIN", NULL, NULL, NULL))
    status = writing_fails(w);
  return status;
}

dfgnn_status dfgnn__pack_create(dfgnn_pack_writer **writer, const char *path) {
  static const dfgnn_output_kind kind = {.name = "a pack of kernels",
                                         .mark = {{68, "dfnk"}}};
  dfgnn_pack_writer *w = calloc(1, sizeof *w);
  dfgnn_status status = w ? dfgnn__output_open(&w->output, path, &kind)
                          : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status) {
    free(w);
    return status;
  }
  status = start_writing(w);
  if (status)
    (void)dfgnn__pack_close(w, 0, NULL);
  else
    *writer = w;
  return status;
}

dfgnn_status dfgnn__pack_add(dfgnn_pack_writer *writer,
                             const dfgnn_keys_of *keys,
                             const dfgnn_image *image, const char *target,
                             const char *expression) {
  /* xz compresses better what zlib has not compressed. */
  const int level =
      dfgnn__xz_available() ? Z_NO_COMPRESSION : Z_BEST_COMPRESSION;
  return dfgnn__kernel_file_store(writer->db, keys, image, target, expression,
                                  level) == SQLITE_DONE
             ? DFGNN_OK
             : writing_fails(writer);
}

dfgnn_status dfgnn__pack_close(dfgnn_pack_writer *w, int keep,
                               dfgnn_cache_info *info) {
  dfgnn_kernel_file_info count = {0};
  struct stat file = {0};
  dfgnn_status status = DFGNN_OK;
  if (keep && (dfgnn__kernel_file_count(w->db, &count) != SQLITE_ROW ||
               sqlite3_exec(w->db, "COMMIT; VACUUM", NULL, NULL, NULL)))
    status = writing_fails(w);
  if (w->db && sqlite3_close(w->db) && keep && !status)
    status =
        dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be closed", w->output.path);
  if (keep && !status && dfgnn__xz_available())
    status = dfgnn__xz_file(w->output.made, w->output.path);
  if (keep && !status && info) {
    info->entries = count.entries;
    info->bytes = stat(w->output.made, &file) ? count.bytes : file.st_size;
  }
  w->output.mode = 0644;
  dfgnn_status closed = dfgnn__output_close(&w->output, keep && !status);
  free(w);
  return status ? status : closed;
}
