/* open.c - checks that a file is a store, and opens it */
#include "db/internal.h"
#include "lib/base/error.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CAP_BYTES DFGNN_STORE_CAP_BYTES
#define QUICK_CHECK_BYTES (1ll << 20)

/* ---- the file's header --------------------------------------------------- */

typedef struct header {
  int64_t size;
  int wal;     /* written with a write-ahead log */
  int pending; /* a log or journal with content lies beside it */
} header;

static int has_content(const char *path, const char *suffix) {
  char place[PATH_MAX];
  struct stat info;
  dfgnn__follow_links(place, path); /* as SQLite does */
  char *name = sqlite3_mprintf("%s%s", place, suffix);
  int has = name && stat(name, &info) == 0 && info.st_size > 0;
  sqlite3_free(name);
  return has;
}

static int64_t big_endian(const unsigned char *bytes) {
  return (int64_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

/* Reads the header through SQLite's own file handle: closing another one would
 * drop the locks that this process may hold on the file (fcntl(2)). */
static dfgnn_status inspect(header *h, dfgnn_store *store) {
  static const char magic[16] = "SQLite format 3";
  unsigned char b[100] = {0};
  const char *path = store->path;
  sqlite3_file *file = NULL;
  sqlite3_int64 size = 0;
  int rc =
      sqlite3_file_control(store->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (!rc && (!file || !file->pMethods))
    rc = SQLITE_CANTOPEN;
  if (!rc)
    rc = file->pMethods->xFileSize(file, &size);
  if (!rc)
    rc = file->pMethods->xRead(file, b, sizeof b, 0);
  if (rc && rc != SQLITE_IOERR_SHORT_READ)
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: cannot be read: %s", path,
                       sqlite3_errstr(rc));
  h->size = size;
  h->wal = b[18] == 2 || b[19] == 2;
  h->pending = has_content(path, "-wal") || has_content(path, "-journal");
  if (size == 0)
    return dfgnn__fail(
        DFGNN_ERROR_STORE,
        "%s: the file is empty but for a byte at most, expected a "
        "tuning store; remove it to start a new one",
        path); /* SQLite reports 0 bytes for a file of one */
  if (size > CAP_BYTES)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file has %lld MiB, expected at most %lld", path,
                       size >> 20, CAP_BYTES >> 20);
  if (memcmp(b, magic, sizeof magic) != 0)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: not a tuning store: the file is no SQLite database",
                       path);
  int64_t page = b[16] << 8 | b[17];
  page = page == 1 ? 65536 : page;
  if (size < 512)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file is truncated: it has %lld bytes, fewer "
                       "than any store",
                       path, size);
  if (page < 512)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file is damaged: its header gives pages of "
                       "%lld bytes, expected 512 or more",
                       path, (long long)page);
  if (!h->pending && size % page != 0)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file is truncated: %lld bytes are no whole "
                       "number of pages of %lld",
                       path, size, (long long)page);
  if (big_endian(b + 68) != DFGNN_APPLICATION_ID)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: an SQLite database of another application "
                       "(application_id 0x%08llx, expected 0x%08x)",
                       path, (long long)big_endian(b + 68),
                       DFGNN_APPLICATION_ID);
  /* The page count is valid if it was written with the last change. */
  int64_t expected = big_endian(b + 28) * page;
  if (!h->pending && memcmp(b + 24, b + 92, 4) == 0 && size < expected)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file is truncated: %lld bytes, expected %lld",
                       path, size, (long long)expected);
  return DFGNN_OK;
}

static dfgnn_status check_pages(dfgnn_store *store, const char *pragma) {
  sqlite3_stmt *query = NULL;
  dfgnn_status status = DFGNN_OK;
  int rc = sqlite3_prepare_v2(store->db, pragma, -1, &query, NULL);
  if (!rc)
    rc = sqlite3_step(query);
  if (rc != SQLITE_ROW)
    status = dfgnn__store_fail(store, rc, "cannot be checked");
  else if (strcmp((const char *)sqlite3_column_text(query, 0), "ok") != 0)
    status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: the file is damaged: %s",
                         store->path, sqlite3_column_text(query, 0));
  sqlite3_finalize(query);
  return status;
}

static dfgnn_status quick_check(dfgnn_store *store) {
  return check_pages(store, "PRAGMA quick_check(1)");
}

dfgnn_status dfgnn__store_check(dfgnn_store *store) {
  dfgnn__store_begin(store);
  return check_pages(store, "PRAGMA integrity_check(1)");
}

/* ---- opening ------------------------------------------------------------- */

static dfgnn_status open_memory(dfgnn_store *store) {
  DFGNN_TRY(dfgnn__store_connect(store, store->path, "",
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  DFGNN_TRY(dfgnn__store_pragmas(store));
  return dfgnn__schema_create(store);
}

static void note_file(int64_t *size, int64_t *modified_ns, uint64_t *inode,
                      const char *path) {
  struct stat info;
  if (stat(path, &info) != 0)
    memset(&info, 0, sizeof info);
  *size = info.st_size;
  *modified_ns = info.st_mtim.tv_sec * 1000000000ll + info.st_mtim.tv_nsec;
  *inode = info.st_ino;
}

dfgnn_status dfgnn__store_unchanged(const dfgnn_store *store) {
  int64_t size, modified_ns;
  uint64_t inode;
  if (!store->immutable)
    return DFGNN_OK;
  note_file(&size, &modified_ns, &inode, store->path);
  if (inode && inode != store->inode) /* replaced: our file is unchanged */
    return DFGNN_OK;
  return size == store->size && modified_ns == store->modified_ns &&
                 !has_content(store->path, "-wal")
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_STORE,
                           "%s: changed while it was read without locks; try "
                           "again",
                           store->path);
}

uint64_t dfgnn__store_stamp(const char *path) {
  char place[PATH_MAX];
  dfgnn__follow_links(place, path);
  char *log = sqlite3_mprintf("%s-wal", place);
  int64_t state[6] = {0};
  uint64_t inode[2] = {0, 0}, stamp[2] = {0, 0};
  note_file(&state[0], &state[1], &inode[0], path);
  if (log)
    note_file(&state[3], &state[4], &inode[1], log);
  sqlite3_free(log);
  state[2] = (int64_t)inode[0];
  if (state[3]) /* a connection makes an empty log, and takes it away */
    state[5] = (int64_t)inode[1];
  else
    state[4] = 0;
  if (!inode[0])
    return 0;
  crypto_generichash((unsigned char *)stamp, sizeof stamp,
                     (const unsigned char *)state, sizeof state, NULL, 0);
  return stamp[0] ? stamp[0] : 1;
}

int64_t dfgnn__store_version(dfgnn_store *store) {
  sqlite3_stmt *query = NULL;
  int64_t version = -1;
  dfgnn__store_begin(store);
  if (!sqlite3_prepare_v2(store->db, "PRAGMA data_version", -1, &query, NULL) &&
      sqlite3_step(query) == SQLITE_ROW)
    version = sqlite3_column_int64(query, 0);
  sqlite3_finalize(query);
  return version;
}

/* Does SQLite's error say that the disk has no room for a lock file? */
static int is_full(int rc) {
  return rc == SQLITE_FULL || rc == SQLITE_IOERR_SHMSIZE ||
         rc == SQLITE_IOERR_SHMMAP;
}

/* Does it say that no log or lock file can be made here? */
static int cannot_lock(int rc) {
  return (rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY ||
         rc == SQLITE_IOERR_SHMOPEN || rc == SQLITE_IOERR_LOCK || is_full(rc);
}

static dfgnn_status open_read(dfgnn_store *store, const header *h) {
  const char *network = dfgnn__network_filesystem(store->path);
  int rc = SQLITE_OK;
  if (!network) {
    rc = sqlite3_exec(store->db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL,
                      NULL, NULL);
    if (rc == SQLITE_READONLY_ROLLBACK)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: a change of it was cut off, which %s-journal "
                         "takes back: open it once with sqlite3",
                         store->path, store->path);
    if (!h->wal || !cannot_lock(rc))
      return rc ? dfgnn__store_fail(store, rc, "cannot be read") : DFGNN_OK;
  }
  if (h->pending)
    return dfgnn__fail(
        DFGNN_ERROR_STORE,
        "%s: the last changes are still in the log beside it and "
        "cannot be read %s%s; open it once where it can be "
        "written, for example by dfgnn-tune stat --store",
        store->path,
        network       ? "over "
        : is_full(rc) ? "on a full disk"
                      : "in a read-only directory",
        network ? network : "");
  store->immutable = 1;
  note_file(&store->size, &store->modified_ns, &store->inode, store->path);
  return dfgnn__store_connect(store, store->path, "immutable=1",
                              SQLITE_OPEN_READONLY);
}

static dfgnn_status limit_pages(dfgnn_store *store) {
  char sql[64];
  sqlite3_stmt *query = NULL;
  dfgnn_status status;
  int rc = sqlite3_prepare_v2(store->db, "PRAGMA page_size", -1, &query, NULL);
  if (!rc && sqlite3_step(query) == SQLITE_ROW) {
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %lld",
             CAP_BYTES / sqlite3_column_int64(query, 0));
    status = dfgnn__store_execute(store, sql, "cannot be opened");
  } else {
    status = dfgnn__store_fail(store, rc, "cannot be opened");
  }
  sqlite3_finalize(query);
  return status;
}

/* Opens for writing a file that was checked through a connection that cannot
 * write. */
static dfgnn_status open_write(dfgnn_store *store, const header *h) {
  DFGNN_TRY(
      dfgnn__store_connect(store, store->path, "", SQLITE_OPEN_READWRITE));
  if (sqlite3_db_readonly(store->db, "main") == 1)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file is read-only, expected one that can be "
                       "written",
                       store->path);
  DFGNN_TRY(dfgnn__store_pragmas(store));
  DFGNN_TRY(dfgnn__schema_check(store));
  DFGNN_TRY(limit_pages(store));
  /* One page is written; a kill would leave a journal that no reader may play
   * back. */
  if (!h->wal)
    DFGNN_TRY(dfgnn__store_execute(
        store, "PRAGMA journal_mode = MEMORY; PRAGMA journal_mode = WAL",
        "cannot be opened for writing"));
  return DFGNN_OK;
}

/* Refuses files beside a store that are not regular: SQLite would open them,
 * and wait for the writer of a FIFO; it follows no links. */
static dfgnn_status check_beside(const char *path) {
  static const char *const suffixes[] = {"-wal", "-journal", "-shm"};
  char place[PATH_MAX];
  dfgnn__follow_links(place, path);
  for (int k = 0; k < 3; k++) {
    char *name = sqlite3_mprintf("%s%s", place, suffixes[k]);
    struct stat info;
    int odd = name && lstat(name, &info) == 0 && !S_ISREG(info.st_mode);
    sqlite3_free(name);
    if (odd)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s%s: is no regular file, expected none or one of "
                         "SQLite's",
                         place, suffixes[k]);
  }
  return DFGNN_OK;
}

static dfgnn_status check_kind(const char *path, dfgnn_store_mode mode,
                               int *missing) {
  struct stat info;
  *missing = 0;
  if (stat(path, &info) != 0) {
    *missing = errno == ENOENT;
    if (*missing && mode == DFGNN_STORE_WRITE)
      return DFGNN_OK;
    return dfgnn__fail(*missing ? DFGNN_ERROR_IO : DFGNN_ERROR_STORE, "%s: %s",
                       path,
                       *missing ? "there is no such file" : strerror(errno));
  }
  if (S_ISDIR(info.st_mode))
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: is a directory, expected a store file", path);
  if (!S_ISREG(info.st_mode))
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: is no regular file, expected a store file", path);
  if (mode == DFGNN_STORE_WRITE && info.st_nlink > 1)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the file has %llu names (hard links), expected one "
                       "where it is written: who writes it by another name "
                       "knows neither its log nor its locks; write to a copy",
                       path, (unsigned long long)info.st_nlink);
  return check_beside(path);
}

/* known: the pages of a file that is in this state were looked at before. */
static dfgnn_status open_file(dfgnn_store *store, dfgnn_store_mode mode,
                              uint64_t known) {
  char place[PATH_MAX];
  header h = {0};
  int missing;
  dfgnn__follow_links(place, store->path);
  const char *network =
      mode == DFGNN_STORE_WRITE ? dfgnn__network_filesystem(place) : NULL;
  DFGNN_TRY(check_kind(store->path, mode, &missing));
  if (network)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: on a network file system (%s), where locks cannot "
                       "be trusted; write to a store on a local disk and copy "
                       "or merge it afterwards",
                       store->path, network);
  const int again = known && known == dfgnn__store_stamp(store->path);
  if (missing)
    DFGNN_TRY(dfgnn__store_create(place));
  DFGNN_TRY(dfgnn__store_connect(store, store->path, "", SQLITE_OPEN_READONLY));
  DFGNN_TRY(inspect(&h, store));
  DFGNN_TRY(open_read(store, &h));
  DFGNN_TRY(dfgnn__store_pragmas(store));
  if (!again && (mode == DFGNN_STORE_WRITE || h.size < QUICK_CHECK_BYTES))
    DFGNN_TRY(quick_check(store));
  DFGNN_TRY(dfgnn__schema_check(store));
  if (mode == DFGNN_STORE_WRITE)
    DFGNN_TRY(open_write(store, &h));
  return DFGNN_OK;
}

static dfgnn_status allocate(dfgnn_store **out, const char *path) {
  if (sodium_init() < 0)
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: libsodium cannot start", path);
  dfgnn_store *store = calloc(1, sizeof *store);
  if (!store || !(store->path = strdup(path))) {
    free(store);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  }
  store->jitter = randombytes_random();
  *out = store;
  return DFGNN_OK;
}

static dfgnn_status open_bytes(dfgnn_store *store, const void *bytes,
                               size_t size) {
  header h = {0};
  unsigned char *copy = sqlite3_malloc64(size + 1);
  dfgnn_status status =
      copy ? DFGNN_OK
           : dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  if (!status)
    status = dfgnn__store_connect(store, ":memory:", "",
                                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (status) {
    sqlite3_free(copy);
    return status;
  }
  memcpy(copy, bytes, size);
  /* SQLite frees the copy, even if this fails. */
  int rc = sqlite3_deserialize(
      store->db, "main", copy, (sqlite3_int64)size, (sqlite3_int64)size,
      SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY);
  if (rc)
    return dfgnn__store_fail(store, rc, "cannot be read");
  DFGNN_TRY(inspect(&h, store));
  DFGNN_TRY(dfgnn__store_pragmas(store));
  DFGNN_TRY(quick_check(store));
  return dfgnn__schema_check(store);
}

dfgnn_status dfgnn__store_open_bytes(dfgnn_store **out, const char *path,
                                     const void *bytes, size_t size) {
  dfgnn_store *store = NULL;
  DFGNN_TRY(allocate(&store, path));
  dfgnn_status status = open_bytes(store, bytes, size);
  if (status)
    dfgnn__store_close(store);
  else
    *out = store;
  return status;
}

static dfgnn_status open_store(dfgnn_store **out, const char *path,
                               dfgnn_store_mode mode, uint64_t known) {
  dfgnn_store *store = NULL;
  DFGNN_TRY(allocate(&store, path));
  dfgnn_status status = DFGNN_OK;
  if (*path == 0)
    status = dfgnn__fail(DFGNN_ERROR_INVALID, "the name of a store is empty");
  else if (strcmp(path, ":memory:") == 0 && mode == DFGNN_STORE_WRITE)
    status = open_memory(store);
  else
    status = open_file(store, mode, known);
  if (status)
    dfgnn__store_close(store);
  else
    *out = store;
  return status;
}

dfgnn_status dfgnn__store_open_unsigned(dfgnn_store **out, const char *path,
                                        dfgnn_store_mode mode) {
  return open_store(out, path, mode, 0);
}

dfgnn_status dfgnn__store_open_known(dfgnn_store **out, const char *path,
                                     uint64_t stamp) {
  return open_store(out, path, DFGNN_STORE_WRITE, stamp);
}

void dfgnn__store_close(dfgnn_store *store) {
  if (!store)
    return;
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++)
    sqlite3_finalize(store->insert[i]);
  sqlite3_close(store->db);
  free(store->path);
  free(store);
}

const char *dfgnn__store_path(const dfgnn_store *store) { return store->path; }
