/* file.c - the creation of a store */
#define _GNU_SOURCE
#include "db/internal.h"
#include "lib/base/error.h"
#include "lib/base/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Makes the folder of the user's own store, which nobody has made before; the
 * folder of any other is where somebody says that it is. */
static dfgnn_status make_directories(const char *path) {
  static const char own[] = "/dfgnn/tuning.db";
  const size_t length = strlen(path);
  char directory[PATH_MAX];
  dfgnn__directory_of(directory, path);
  if (length < sizeof own || strcmp(path + length - (sizeof own - 1), own))
    return access(directory, F_OK)
               ? dfgnn__fail(DFGNN_ERROR_STORE,
                             "%s: there is no folder %s; make it, or name "
                             "another store",
                             path, directory)
               : DFGNN_OK;
  int error = dfgnn__make_folders(directory);
  return error ? dfgnn__fail(DFGNN_ERROR_STORE,
                             "%s: cannot make the directory %s: %s", path,
                             directory, strerror(error))
               : DFGNN_OK;
}

dfgnn_status dfgnn__store_create(const char *path) {
  dfgnn_store made = {.path = (char *)path};
  if (strlen(path) > PATH_MAX - 64)
    return dfgnn__fail(DFGNN_ERROR_STORE, "%.64s...: the name is too long",
                       path);
  DFGNN_TRY(make_directories(path));
  dfgnn_status status = DFGNN_OK;
  dfgnn__remove_stale(path);
  char *name = dfgnn__temporary_name(path);
  if (!name)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);

  /* SQLite would tell of a missing file where a folder cannot be written. */
  const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: cannot be created: %s", path,
                         strerror(errno));
    free(name);
    return status;
  }
  close(fd);
  int rc = dfgnn__connect(&made.db, name, "", SQLITE_OPEN_READWRITE);
  if (rc)
    status = dfgnn__store_fail(&made, rc, "cannot be created");
  else
    status = dfgnn__schema_create(&made);
  if (!status)
    status = dfgnn__store_execute(&made, "PRAGMA journal_mode = WAL",
                                  "cannot be created");
  sqlite3_close(made.db);
  int error = status ? 0 : dfgnn__link_new(name, path);
  if (error && error != EEXIST)
    status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: cannot be created: %s", path,
                         strerror(error));
  unlink(name);
  free(name);
  return status;
}
