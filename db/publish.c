/* publish.c - a store as one immutable file, for many readers on any file
 * system */
#include "base/error.h"
#include "db/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Messages name the path that is published, not the copy in memory. */
static dfgnn_status vacuum_into(dfgnn_store *store, const char *name,
                                const char *path) {
  dfgnn_store named = {.db = store->db, .path = (char *)path};
  const char *attempt = "cannot be published";
  sqlite3_stmt *query = NULL;
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(store->db, "VACUUM INTO ?1", -1, &query, NULL);
  if (!rc)
    rc = sqlite3_bind_text(query, 1, name, -1, SQLITE_STATIC);
  if (!rc)
    rc = sqlite3_step(query);
  dfgnn_status status =
      rc == SQLITE_DONE ? DFGNN_OK : dfgnn__store_fail(&named, rc, attempt);
  sqlite3_finalize(query);
  return status;
}

/* Makes the finished file read-only, writes it to the disk and renames it; 0 or
 * an errno. */
static int settle(const char *name, const char *path) {
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  int failed = fd < 0 || fchmod(fd, 0444) || fsync(fd);
  int error = failed ? errno : 0;
  if (fd >= 0)
    close(fd);
  if (!error && rename(name, path))
    error = errno;
  if (!error)
    dfgnn__sync_directory(path);
  return error;
}

dfgnn_status dfgnn__store_publish(dfgnn_store *store, const char *path) {
  dfgnn_store *memory = NULL;
  char *name = dfgnn__temporary_name(path);
  if (!name)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  /* A copy in memory has no pins, no log and no traces of removed rows. */
  dfgnn_status status =
      dfgnn__store_open(&memory, ":memory:", DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_merge(memory, NULL, store, NULL);
  if (!status) {
    status = vacuum_into(memory, name, path);
    int error = status ? 0 : settle(name, path);
    if (error)
      status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: cannot be published: %s",
                           path, strerror(error));
    unlink(name);
  }
  dfgnn__store_close(memory);
  free(name);
  return status;
}
