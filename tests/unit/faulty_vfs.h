/* faulty_vfs.h - an SQLite VFS over the default one whose n-th change of a file
 * fails, as when the disk is full or broken */
#ifndef DFGNN_TESTS_FAULTY_VFS_H
#define DFGNN_TESTS_FAULTY_VFS_H

#include <sqlite3.h>
#include <string.h>

/* The number of changes before the one that fails, -1 if none does; with
 * faulty_stays all later changes fail, too. */
static int faulty_left = -1, faulty_code, faulty_stays, faulty_hits;

typedef struct faulty_file {
  sqlite3_file base;
  sqlite3_file *real;
} faulty_file;

static sqlite3_vfs *faulty_real;

static int faulty(void) {
  if (faulty_left < 0)
    return SQLITE_OK;
  if (faulty_left > 0) {
    faulty_left--;
    return SQLITE_OK;
  }
  faulty_hits++;
  if (!faulty_stays)
    faulty_left = -1;
  return faulty_code;
}

#define REAL(file) (((faulty_file *)(file))->real)
#define CALL(file, method, ...)                                                \
  REAL(file)->pMethods->method(REAL(file), __VA_ARGS__)

static int faulty_close(sqlite3_file *f) {
  return REAL(f)->pMethods->xClose(REAL(f));
}
static int faulty_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at) {
  return CALL(f, xRead, to, n, at);
}
static int faulty_write(sqlite3_file *f, const void *from, int n,
                        sqlite3_int64 at) {
  int rc = faulty();
  if (rc && n > 1) /* the write is torn: its first half is done */
    CALL(f, xWrite, from, n / 2, at);
  return rc ? rc : CALL(f, xWrite, from, n, at);
}
static int faulty_truncate(sqlite3_file *f, sqlite3_int64 size) {
  int rc = faulty();
  return rc ? SQLITE_IOERR_TRUNCATE : CALL(f, xTruncate, size);
}
static int faulty_sync(sqlite3_file *f, int flags) {
  int rc = faulty();
  return rc ? SQLITE_IOERR_FSYNC : CALL(f, xSync, flags);
}
static int faulty_size(sqlite3_file *f, sqlite3_int64 *size) {
  return CALL(f, xFileSize, size);
}
static int faulty_lock(sqlite3_file *f, int lock) {
  return CALL(f, xLock, lock);
}
static int faulty_unlock(sqlite3_file *f, int lock) {
  return CALL(f, xUnlock, lock);
}
static int faulty_reserved(sqlite3_file *f, int *held) {
  return CALL(f, xCheckReservedLock, held);
}
static int faulty_control(sqlite3_file *f, int op, void *data) {
  return CALL(f, xFileControl, op, data);
}
static int faulty_sector(sqlite3_file *f) {
  return REAL(f)->pMethods->xSectorSize(REAL(f));
}
static int faulty_traits(sqlite3_file *f) {
  return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
static int faulty_map(sqlite3_file *f, int page, int size, int extend,
                      void volatile **to) {
  int rc = extend ? faulty() : SQLITE_OK;
  return rc ? SQLITE_IOERR_SHMSIZE : CALL(f, xShmMap, page, size, extend, to);
}
static int faulty_shm_lock(sqlite3_file *f, int at, int n, int flags) {
  return CALL(f, xShmLock, at, n, flags);
}
static void faulty_barrier(sqlite3_file *f) {
  REAL(f)->pMethods->xShmBarrier(REAL(f));
}
static int faulty_unmap(sqlite3_file *f, int delete) {
  return CALL(f, xShmUnmap, delete);
}

static int faulty_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file,
                       int flags, int *out) {
  static const sqlite3_io_methods methods = {2,
                                             faulty_close,
                                             faulty_read,
                                             faulty_write,
                                             faulty_truncate,
                                             faulty_sync,
                                             faulty_size,
                                             faulty_lock,
                                             faulty_unlock,
                                             faulty_reserved,
                                             faulty_control,
                                             faulty_sector,
                                             faulty_traits,
                                             faulty_map,
                                             faulty_shm_lock,
                                             faulty_barrier,
                                             faulty_unmap,
                                             NULL,
                                             NULL};
  faulty_file *f = (faulty_file *)file;
  (void)vfs;
  f->base.pMethods = NULL;
  f->real = (sqlite3_file *)(f + 1);
  int rc = faulty_real->xOpen(faulty_real, name, f->real, flags, out);
  if (f->real->pMethods)
    f->base.pMethods = &methods;
  return rc;
}

static int faulty_delete(sqlite3_vfs *vfs, const char *name, int sync) {
  int rc = faulty();
  (void)vfs;
  return rc ? SQLITE_IOERR_DELETE
            : faulty_real->xDelete(faulty_real, name, sync);
}

/* Makes this VFS the default of the process. */
static void faulty_install(void) {
  static sqlite3_vfs vfs;
  if (faulty_real)
    return;
  faulty_real = sqlite3_vfs_find(NULL);
  vfs = *faulty_real;
  vfs.zName = "faulty";
  vfs.szOsFile = (int)sizeof(faulty_file) + faulty_real->szOsFile;
  vfs.pNext = NULL;
  vfs.xOpen = faulty_open;
  vfs.xDelete = faulty_delete;
  sqlite3_vfs_register(&vfs, 1);
}

#endif
