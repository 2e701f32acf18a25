/* cache.c - the user's kernels.db */
#include "kernels/engine/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "kernels/engine/kernel_file.h"
#include "lib/base/error.h"
#include "lib/base/filesystem.h"

enum { DEFAULT_MB = 256, MOST_MB = 1 << 20, WAIT_MS = 5000 };

/* One connection a process; a child after fork() opens its own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sqlite3 *connection;
static pid_t owner;
static int tried, reads_only;
static char path[PATH_MAX], problem[512];
static int folder = -1;      /* that path is in */
static char place[PATH_MAX]; /* path by the descriptor of its folder */
static _Atomic int64_t hits, misses, stored, lost;

/* -1: the variable holds no such number. */
static int64_t limit_bytes(void) {
  const char *given = getenv("DFGNN_KERNEL_CACHE_MB");
  char *end;
  if (!given || !*given)
    return (int64_t)DEFAULT_MB << 20;
  const long long mb = strtoll(given, &end, 10);
  return *end || mb < 0 || mb > MOST_MB ? -1 : (int64_t)mb << 20;
}

static int refuse(const char *why) {
  snprintf(problem, sizeof problem, "%.500s", why);
  return 0;
}

/* ---- the place ------------------------------------------------------------
 */

static void find_path(void) {
  const char *given = getenv("DFGNN_KERNEL_CACHE");
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  path[0] = 0;
  if (given)
    snprintf(path, sizeof path, "%s", given);
  else if (cache && cache[0] == '/')
    snprintf(path, sizeof path, "%s/dfgnn/kernels.db", cache);
  else if (home && home[0] == '/')
    snprintf(path, sizeof path, "%s/.cache/dfgnn/kernels.db", home);
}

/* The name of the cache's file in its folder. */
static const char *file_name(void) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Opens the cache's folder, whose links are followed, as a home is one on many
 * clusters. */
static int open_folder(void) {
  char directory[PATH_MAX], resolved[PATH_MAX];
  if (folder >= 0)
    close(folder);
  folder = -1;
  dfgnn__directory_of(directory, path);
  int error = dfgnn__make_folders(directory);
  if (!error)
    error = dfgnn__resolve_folder(resolved, path);
  if (error) {
    snprintf(problem, sizeof problem, "its folder cannot be made: %s",
             strerror(error));
    return 0;
  }
  strcpy(path, resolved);
  dfgnn__directory_of(directory, path);
  if (!dfgnn__folder_open(&folder, problem, sizeof problem, directory))
    return 0;
  snprintf(place, sizeof place, "/proc/self/fd/%d/%s", folder, file_name());
  return 1;
}

/* SQLite reads the log and the journal as it reads the file, so what holds for
 * one holds for all. */
static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
enum { SUFFIXES = sizeof suffixes / sizeof *suffixes };

/* Looks at the file with a suffix; 0 or an errno. */
static int look_at(struct stat *info, const char *suffix) {
  char name[sizeof path + 16];
  snprintf(name, sizeof name, "%s%s", file_name(), suffix);
  return fstatat(folder, name, info, AT_SYMLINK_NOFOLLOW) ? errno : 0;
}

static int file_is_safe(const char *suffix) {
  struct stat info;
  const char *why = NULL;
  int error = look_at(&info, suffix);
  if (error)
    return error == ENOENT ? 1 : refuse(strerror(error));
  if (!S_ISREG(info.st_mode))
    why = "is not a regular file";
  else if (info.st_uid != geteuid() && info.st_uid != 0)
    why = "belongs to another user";
  else if (info.st_mode & (S_IWGRP | S_IWOTH))
    why = "can be written by others";
  if (why)
    snprintf(problem, sizeof problem, "%s%s %s", *suffix ? "the file " : "it",
             suffix, why);
  return !why;
}

/* Makes the cache's folder, and refuses a place where somebody else could put
 * code; 1 if it is fit. */
static int place_is_fit(void) {
  if (!path[0])
    return refuse("no file is named");
  if (limit_bytes() == 0)
    return refuse("DFGNN_KERNEL_CACHE_MB is 0");
  if (limit_bytes() < 0) {
    snprintf(problem, sizeof problem,
             "DFGNN_KERNEL_CACHE_MB is '%.100s', expected MiB from 0 to %d",
             getenv("DFGNN_KERNEL_CACHE_MB"), MOST_MB);
    return 0;
  }
  const char *network = dfgnn__network_filesystem(path);
  if (network) {
    snprintf(problem, sizeof problem, "it lies on a network file system (%s)",
             network);
    return 0;
  }
  if (!open_folder())
    return 0;
  for (int i = 0; i < SUFFIXES; i++)
    if (!file_is_safe(suffixes[i]))
      return 0;
  return 1;
}

/* ---- the file -------------------------------------------------------------
 */

static int damaged(int rc) {
  return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB;
}

static int has_content(const char *suffix) {
  struct stat info;
  return !look_at(&info, suffix) && info.st_size > 0;
}

static int keep_name(sqlite3_vfs *vfs, const char *name, int size,
                     char *whole) {
  (void)vfs;
  return snprintf(whole, (size_t)size, "%s", name) < size ? SQLITE_OK
                                                          : SQLITE_CANTOPEN;
}

/* Opens a file by the descriptor of its folder.  SQLite's own opening would
 * turn its name into one that begins at the root, whose folders others may have
 * exchanged since they were looked at. */
static int open_place(sqlite3 **db, const char *name, int flags) {
  static sqlite3_vfs by_descriptor;
  if (!by_descriptor.zName) {
    const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    if (!usual)
      return SQLITE_ERROR;
    by_descriptor = *usual;
    by_descriptor.zName = "dfgnn-folder";
    by_descriptor.xFullPathname = keep_name;
    int rc = sqlite3_vfs_register(&by_descriptor, 0);
    if (rc) {
      by_descriptor.zName = NULL;
      return rc;
    }
  }
  return sqlite3_open_v2(name, db,
                         flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                         by_descriptor.zName);
}

/* Is a database's header still in its log, or being written by the process that
 * makes it?  Then SQLite tells the application id, once nobody writes. */
static int is_being_made(void) {
  enum { SECONDS = 10 };
  struct stat info;
  return has_content("-wal") || has_content("-journal") ||
         (!look_at(&info, "") && info.st_mtime > time(NULL) - SECONDS);
}

static int id_is_ours(void) {
  sqlite3 *db = NULL;
  sqlite3_stmt *row = NULL;
  int ours = 0;
  if (!open_place(&db, place, SQLITE_OPEN_READONLY) &&
      !sqlite3_busy_timeout(db, WAIT_MS) &&
      !sqlite3_prepare_v2(db, "PRAGMA application_id", -1, &row, NULL) &&
      sqlite3_step(row) == SQLITE_ROW)
    ours = sqlite3_column_int(row, 0) == DFGNN_KERNEL_FILE_ID;
  sqlite3_finalize(row);
  (void)sqlite3_close(db);
  return ours;
}

/* Is there nothing yet, or a file of kernels, perhaps damaged?  Whatever else
 * the user named is neither opened for writing nor removed. */
static int is_ours_or_none(void) {
  static const char magic[16] = "SQLite format 3";
  unsigned char bytes[100] = {0};
  int fd = openat(folder, file_name(),
                  O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return errno == ENOENT ? 1 : refuse(strerror(errno));
  ssize_t count = read(fd, bytes, sizeof bytes);
  close(fd);
  if (count < 0)
    return refuse(strerror(errno));
  const unsigned id = (unsigned)bytes[68] << 24 | (unsigned)bytes[69] << 16 |
                      (unsigned)bytes[70] << 8 | bytes[71];
  if (count == 0 || id == DFGNN_KERNEL_FILE_ID)
    return 1;
  if (memcmp(bytes, magic, sizeof magic))
    return refuse("it is no file of kernels but a file of another kind, which "
                  "is left as it is; name another file, or remove it");
  if (id == 0 && is_being_made() && id_is_ours())
    return 1;
  snprintf(problem, sizeof problem,
           "it is a database of another application (application_id 0x%08x, "
           "expected 0x%08x), which is left as it is",
           id, DFGNN_KERNEL_FILE_ID);
  return 0;
}

static void remove_files(void) {
  char name[sizeof path + 16];
  if (!is_ours_or_none())
    return;
  for (int i = 0; i < SUFFIXES; i++) {
    snprintf(name, sizeof name, "%s%s", file_name(), suffixes[i]);
    (void)unlinkat(folder, name, 0);
  }
}

static int close_after(int rc, const char *why) {
  refuse(why);
  (void)sqlite3_close(connection);
  connection = NULL;
  return rc;
}

static int try_to_open(void) {
  /* So that the file, and what SQLite puts beside it, is the user's alone. */
  int fd = openat(folder, file_name(),
                  O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0)
    close(fd);
  else if (errno == ENOENT || errno == ENOSPC)
    return close_after(SQLITE_ERROR, strerror(errno));
  int rc = fd < 0 ? SQLITE_READONLY
                  : open_place(&connection, place, SQLITE_OPEN_READWRITE);
  if (rc)
    return close_after(rc, connection ? sqlite3_errmsg(connection)
                                      : sqlite3_errstr(rc));
  sqlite3_busy_timeout(connection, WAIT_MS);
  (void)sqlite3_exec(connection, "PRAGMA auto_vacuum = INCREMENTAL", NULL, NULL,
                     NULL); /* before the first table */
  if (dfgnn__kernel_file_start(connection, path, 1))
    return close_after(damaged(sqlite3_errcode(connection)) ? SQLITE_CORRUPT
                                                            : SQLITE_ERROR,
                       dfgnn_last_error());
  rc = sqlite3_exec(connection,
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
                    NULL, NULL, NULL);
  return rc ? close_after(rc, sqlite3_errmsg(connection)) : SQLITE_OK;
}

/* Reads a cache on a disk that cannot be written; with no log beside it SQLite
 * need not lock it either. */
static int try_to_read(void) {
  char why[sizeof problem];
  snprintf(why, sizeof why, "%s", problem);
  for (int immutable = 0; immutable < (has_content("-wal") ? 1 : 2);
       immutable++) {
    char *uri = dfgnn__sqlite_uri(place, immutable ? "immutable=1" : "");
    int rc = uri ? open_place(&connection, uri,
                              SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
                 : SQLITE_NOMEM;
    free(uri);
    if (!rc && !dfgnn__kernel_file_start(connection, path, 0)) {
      reads_only = 1;
      return 1;
    }
    (void)close_after(rc, why);
  }
  return 0;
}

/* A cache that SQLite finds damaged is no loss: it is made anew, once. */
static int opened(void) {
  if (owner != getpid()) { /* the parent's connection is not ours to close */
    connection = NULL;
    tried = 0;
    owner = getpid();
  }
  if (tried)
    return connection != NULL;
  tried = 1;
  reads_only = 0;
  problem[0] = 0;
  find_path();
  if (!place_is_fit() || !is_ours_or_none())
    return 0;
  int rc = try_to_open();
  if (damaged(rc)) {
    remove_files();
    problem[0] = 0;
    rc = try_to_open();
  }
  if (rc && !damaged(rc) && has_content(""))
    (void)try_to_read();
  if (connection)
    problem[0] = 0;
  return connection != NULL;
}

static int can_write(void) { return opened() && !reads_only; }

static void give_up_if_damaged(int rc) {
  if (!damaged(rc))
    return;
  (void)sqlite3_close(connection);
  connection = NULL;
  if (reads_only) {
    refuse("it is damaged, and cannot be written");
    return;
  }
  remove_files();
  tried = 0;
}

/* Counts a use, unless another process holds the file: it is not worth waiting.
 */
static void touch(const dfgnn_keys_of *keys) {
  sqlite3_stmt *row = NULL;
  sqlite3_busy_timeout(connection, 0);
  if (!sqlite3_prepare_v2(connection,
                          "UPDATE kernel SET uses = uses + 1, "
                          "used = strftime('%s', 'now') / 86400 "
                          "WHERE key = ?1",
                          -1, &row, NULL)) {
    sqlite3_bind_blob(row, 1, keys->full, DFGNN_KEY_BYTES, SQLITE_STATIC);
    (void)sqlite3_step(row);
  }
  sqlite3_finalize(row);
  sqlite3_busy_timeout(connection, WAIT_MS);
}

int dfgnn__cache_find(dfgnn_image *image, const dfgnn_keys_of *keys) {
  int rc = SQLITE_DONE;
  pthread_mutex_lock(&lock);
  if (opened()) {
    rc = dfgnn__kernel_file_find(connection, image, keys->full, 0);
    if (rc == SQLITE_ROW && !reads_only)
      touch(keys);
    give_up_if_damaged(rc);
  }
  pthread_mutex_unlock(&lock);
  atomic_fetch_add(rc == SQLITE_ROW ? &hits : &misses, 1);
  return rc == SQLITE_ROW;
}

/* Removes the least recently used kernels until a tenth of the limit is free.
 */
static void make_room(void) {
  dfgnn_kernel_file_info info;
  int64_t most = limit_bytes();
  if (dfgnn__kernel_file_count(connection, &info) != SQLITE_ROW ||
      info.bytes <= most)
    return;
  char *sql = sqlite3_mprintf(
      "DELETE FROM kernel WHERE key IN (SELECT key FROM (SELECT key, "
      "sum(length(code)) OVER (ORDER BY used DESC, rowid DESC) AS total FROM "
      "kernel) WHERE total > %lld); PRAGMA incremental_vacuum",
      (long long)(most - most / 10));
  if (sql)
    (void)sqlite3_exec(connection, sql, NULL, NULL, NULL);
  sqlite3_free(sql);
}

void dfgnn__cache_store(const dfgnn_keys_of *keys, const dfgnn_image *image,
                        const char *target, const char *expression) {
  pthread_mutex_lock(&lock);
  if (can_write()) {
    int rc = dfgnn__kernel_file_store(connection, keys, image, target,
                                      expression, Z_BEST_SPEED);
    if (rc == SQLITE_DONE) {
      atomic_fetch_add(&stored, 1);
      make_room();
    } else {
      atomic_fetch_add(&lost, 1);
    }
    give_up_if_damaged(rc);
  }
  pthread_mutex_unlock(&lock);
}

void dfgnn__cache_forget(const dfgnn_keys_of *keys) {
  sqlite3_stmt *row = NULL;
  pthread_mutex_lock(&lock);
  if (can_write() &&
      !sqlite3_prepare_v2(connection, "DELETE FROM kernel WHERE key = ?1", -1,
                          &row, NULL)) {
    sqlite3_bind_blob(row, 1, keys->full, DFGNN_KEY_BYTES, SQLITE_STATIC);
    (void)sqlite3_step(row);
  }
  sqlite3_finalize(row);
  pthread_mutex_unlock(&lock);
}

void dfgnn__cache_describe(dfgnn_cache_info *info) {
  dfgnn_kernel_file_info count = {0};
  memset(info, 0, sizeof *info);
  pthread_mutex_lock(&lock);
  if (opened())
    (void)dfgnn__kernel_file_count(connection, &count);
  snprintf(info->path, sizeof info->path, "%s", path);
  snprintf(info->problem, sizeof info->problem, "%s", problem);
  pthread_mutex_unlock(&lock);
  info->entries = count.entries;
  info->bytes = count.bytes;
  info->uses = count.uses;
  info->limit_bytes = limit_bytes();
  info->hits = atomic_load(&hits);
  info->misses = atomic_load(&misses);
  info->stored = atomic_load(&stored);
  info->lost = atomic_load(&lost);
}

int dfgnn__cache_complaint(char *text, size_t size) {
  static int said;
  const char *given = getenv("DFGNN_KERNEL_CACHE");
  const int off = (given && !*given) || limit_bytes() == 0;
  pthread_mutex_lock(&lock);
  const int says = !said && !off && !opened();
  if (says) {
    snprintf(text, size, "%s: %s", path, problem);
    said = 1;
  }
  pthread_mutex_unlock(&lock);
  return says;
}

dfgnn_status dfgnn__cache_clear(int64_t *entries) {
  dfgnn_kernel_file_info count = {0};
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&lock);
  if (opened()) {
    (void)dfgnn__kernel_file_count(connection, &count);
    if (sqlite3_exec(connection, "DELETE FROM kernel; VACUUM", NULL, NULL,
                     NULL))
      status = dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path,
                           sqlite3_errmsg(connection));
  }
  pthread_mutex_unlock(&lock);
  if (!status && entries)
    *entries = count.entries;
  return status;
}
