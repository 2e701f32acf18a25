/* cache.c - the user's kernels.db */
#include "engine/cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "base/filesystem.h"
#include "engine/kernel_file.h"

enum { DEFAULT_MB = 256, WAIT_MS = 5000 };

/* One connection a process; a child after fork() opens its own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sqlite3 *connection;
static pid_t owner;
static int tried;
static char path[4096], problem[512];
static _Atomic int64_t hits, misses, stored;

static int64_t limit_bytes(void) {
  const char *given = getenv("DFGNN_KERNEL_CACHE_MB");
  char *end = NULL;
  long long mb = given ? strtoll(given, &end, 10) : DEFAULT_MB;
  if (given && (end == given || *end || mb < 0 || mb > 1 << 20))
    mb = DEFAULT_MB;
  return mb << 20;
}

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

static int refuse(const char *why) {
  snprintf(problem, sizeof problem, "%.500s", why);
  return 0;
}

/* Makes the cache's folder, and refuses a file that somebody else could have
 * put there; 1 if the place is fit. */
static int place_is_fit(void) {
  struct stat info;
  const char *network = dfgnn__network_filesystem(path);
  if (!path[0])
    return refuse("no file is named");
  if (limit_bytes() == 0)
    return refuse("DFGNN_KERNEL_CACHE_MB is 0");
  if (network) {
    snprintf(problem, sizeof problem, "it lies on a network file system (%s)",
             network);
    return 0;
  }
  if (lstat(path, &info)) {
    char folder[sizeof path];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (errno != ENOENT)
      return refuse(strerror(errno));
    if (slash && slash != folder) {
      *slash = 0;
      if (dfgnn__make_folders(folder))
        return refuse("its folder cannot be made");
    }
    return 1;
  }
  if (!S_ISREG(info.st_mode))
    return refuse("it is not a regular file");
  if (info.st_uid != geteuid())
    return refuse("it belongs to another user");
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return refuse("others can write it");
  return 1;
}

static void remove_files(void) {
  static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
  char name[sizeof path + 16];
  for (int i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
    (void)unlink(name);
  }
}

static int damaged(int rc) {
  return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB;
}

static int try_to_open(void) {
  mode_t mask = umask(077);
  int rc = sqlite3_open_v2(path, &connection,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                               SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                           NULL);
  if (!rc) {
    sqlite3_busy_timeout(connection, WAIT_MS);
    rc = sqlite3_exec(connection,
                      "PRAGMA auto_vacuum = INCREMENTAL;"
                      "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
                      NULL, NULL, NULL);
  }
  umask(mask);
  if (!rc && dfgnn__kernel_file_start(connection, path, 1)) {
    refuse(dfgnn_last_error());
    rc = damaged(sqlite3_errcode(connection)) ? SQLITE_CORRUPT : SQLITE_ERROR;
  } else if (rc) {
    refuse(sqlite3_errmsg(connection));
  }
  if (rc) {
    (void)sqlite3_close(connection);
    connection = NULL;
  }
  return rc;
}

/* A file that SQLite finds damaged is no loss: it is made anew, once. */
static int opened(void) {
  if (owner != getpid()) { /* the parent's connection is not ours to close */
    connection = NULL;
    tried = 0;
    owner = getpid();
  }
  if (tried)
    return connection != NULL;
  tried = 1;
  problem[0] = 0;
  find_path();
  if (!place_is_fit())
    return 0;
  if (damaged(try_to_open())) {
    remove_files();
    problem[0] = 0;
    (void)try_to_open();
  }
  if (connection)
    problem[0] = 0;
  return connection != NULL;
}

static void give_up_if_damaged(int rc) {
  if (!damaged(rc))
    return;
  (void)sqlite3_close(connection);
  connection = NULL;
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
    if (rc == SQLITE_ROW)
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
  char *sql;
  int64_t most = limit_bytes();
  if (dfgnn__kernel_file_count(connection, &info) != SQLITE_ROW ||
      info.bytes <= most)
    return;
  sql = sqlite3_mprintf(
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
  if (opened()) {
    int rc = dfgnn__kernel_file_store(connection, keys, image, target,
                                      expression, Z_BEST_SPEED);
    if (rc == SQLITE_DONE) {
      atomic_fetch_add(&stored, 1);
      make_room();
    }
    give_up_if_damaged(rc);
  }
  pthread_mutex_unlock(&lock);
}

void dfgnn__cache_forget(const dfgnn_keys_of *keys) {
  sqlite3_stmt *row = NULL;
  pthread_mutex_lock(&lock);
  if (opened() &&
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
