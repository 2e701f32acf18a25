/* output.c - files that the user names to be written */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lib/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/filesystem.h"
#include "lib/base/xz.h"

#define PROCESS_FILE_SYSTEM 0x9fa0 /* PROC_SUPER_MAGIC of linux/magic.h */
enum {
  MOST_READ = 4096, /* of a file that is there */
  MOST_MARK = 96,   /* of what is packed in it */
  MOST_SHOWN = 40   /* in a message */
};

static dfgnn_status fail(const char *path, int error) {
  return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", path,
                     strerror(error));
}

/* ---- the place of the output ---------------------------------------------
 */

/* A link in /proc/self/fd, to which /dev/stdout leads, names an open file,
 * whose position a new opening would not have: 1 and a duplicate of it. */
static int is_descriptor(int *fd, const char *place, const char *folder) {
  struct statfs system;
  struct stat named, opened;
  const char *number = strrchr(place, '/');
  if (statfs(folder, &system) ||
      (unsigned long)system.f_type != PROCESS_FILE_SYSTEM || !number)
    return 0;
  int given = atoi(number + 1);
  if (stat(place, &named) || fstat(given, &opened) ||
      named.st_dev != opened.st_dev || named.st_ino != opened.st_ino)
    return 0;
  *fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
  return *fd >= 0;
}

/* Follows the symbolic links of place, whose end need not exist. */
static dfgnn_status follow(char place[PATH_MAX], int *fd, const char *path) {
  char folder[PATH_MAX], before[PATH_MAX];
  for (int links = 0;; links++) {
    strcpy(before, place);
    int followed = dfgnn__follow_link(place);
    if (followed <= 0)
      return followed ? fail(path, errno) : DFGNN_OK;
    if (links == DFGNN_MOST_LINKS)
      return fail(path, ELOOP);
    dfgnn__directory_of(folder, before);
    if (is_descriptor(fd, before, folder)) {
      strcpy(place, before);
      return DFGNN_OK;
    }
  }
}

/* ---- what is there already ------------------------------------------------
 */

static int has_mark(const char *bytes, int count,
                    const dfgnn_output_kind *kind) {
  for (int i = 0; i < 2; i++) {
    const char *mark = kind->mark[i].bytes;
    if (mark && kind->mark[i].at + (int)strlen(mark) <= count &&
        !memcmp(bytes + kind->mark[i].at, mark, strlen(mark)))
      return 1;
  }
  return 0;
}

static dfgnn_status refuse(const char *path, const char *bytes, int count,
                           const dfgnn_output_kind *kind) {
  char begin[MOST_SHOWN + 1] = "";
  for (int i = 0; i < MOST_SHOWN && i < count; i++)
    begin[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '.';
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s: a file that is not %s is there, and is not replaced "
                     "by one: it begins with '%s'; remove it, or choose "
                     "another name",
                     path, kind->name, begin);
}

static dfgnn_status check_kind(const char *path, const char *place,
                               const dfgnn_output_kind *kind) {
  char bytes[MOST_READ], unpacked[MOST_MARK];
  int fd = open(place, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  gzFile file = fd < 0 ? NULL : gzdopen(fd, "rb"); /* plain files, too */
  if (!file) {
    int error = fd < 0 ? errno : ENOMEM;
    if (fd >= 0)
      close(fd);
    return fail(path, error);
  }
  int count = gzread(file, bytes, sizeof bytes);
  int error = errno, empty = count == 0 && gzdirect(file);
  gzclose(file);
  if (count < 0 && error == EIO)
    return fail(path, error);
  if (count > 0 && dfgnn__xz_is((unsigned char *)bytes, (size_t)count)) {
    count = (int)dfgnn__xz_begin(unpacked, MOST_MARK, bytes, (size_t)count);
    memcpy(bytes, unpacked, (size_t)count);
  }
  if (empty || has_mark(bytes, count, kind) ||
      (kind->is && kind->is(place, kind->data)))
    return DFGNN_OK;
  return refuse(path, bytes, count, kind);
}

/* Finds out whether the output gets its name by rename or is copied. */
static dfgnn_status look_at(dfgnn_output *o, const dfgnn_output_kind *kind) {
  struct stat info;
  if (o->target >= 0)
    return DFGNN_OK;
  if (stat(o->place, &info))
    return errno == ENOENT ? DFGNN_OK : fail(o->path, errno);
  if (S_ISREG(info.st_mode)) {
    o->mode = info.st_mode & 0777;
    o->replaces = 1;
    return check_kind(o->path, o->place, kind);
  }
  if (!S_ISCHR(info.st_mode) && !S_ISFIFO(info.st_mode))
    return dfgnn__fail(DFGNN_ERROR_IO,
                       "%s: found %s, expected a file to be written", o->path,
                       dfgnn__file_kind(info.st_mode));
  o->target = open(o->place, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  return o->target < 0 ? fail(o->path, errno) : DFGNN_OK;
}

/* ---- the file that is written ---------------------------------------------
 */

/* A folder of its own, since SQLite puts files beside the one it writes. */
static char *name_elsewhere(dfgnn_output *o) {
  const char *place = getenv("TMPDIR");
  char *name = NULL;
  if (asprintf(&o->folder, "%s/dfgnn-output.XXXXXX",
               place && *place ? place : P_tmpdir) < 0)
    o->folder = NULL;
  if (!o->folder || !mkdtemp(o->folder) ||
      asprintf(&name, "%s/made", o->folder) < 0)
    return NULL;
  return name;
}

/* Makes the file that is written.  A new one has the mode that the process
 * gives to files, which only making one tells without changing it. */
static int make(dfgnn_output *o) {
  struct stat info;
  const mode_t mode = o->replaces || o->target >= 0 ? 0600 : 0666;
  int fd = open(o->made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  int failed = fd < 0 || fstat(fd, &info);
  int error = failed ? errno : 0;
  if (!failed && !o->replaces)
    o->mode = info.st_mode & 0777;
  if (fd >= 0)
    close(fd);
  return error;
}

dfgnn_status dfgnn__output_open(dfgnn_output *o, const char *path,
                                const dfgnn_output_kind *kind) {
  char place[PATH_MAX];
  *o = (dfgnn_output){.target = -1};
  if (strlen(path) >= PATH_MAX - 64)
    return dfgnn__fail(DFGNN_ERROR_IO, "%.64s...: the name is too long", path);
  strcpy(place, path);
  dfgnn_status status = follow(place, &o->target, path);
  if (!status && (!(o->path = strdup(path)) || !(o->place = strdup(place))))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  if (!status)
    status = look_at(o, kind);
  if (!status) {
    if (o->target < 0)
      dfgnn__remove_stale(place);
    o->made = o->target < 0 ? dfgnn__temporary_name(place) : name_elsewhere(o);
    int error = o->made ? make(o) : errno;
    if (error)
      status = fail(path, error);
  }
  if (status)
    (void)dfgnn__output_close(o, 0);
  return status;
}

/* The new file is on the disk before it takes the old one's name. */
static int replace(const dfgnn_output *o) {
  int fd = open(o->made, O_RDONLY | O_CLOEXEC);
  int failed = fd < 0 || fchmod(fd, o->mode) || fsync(fd);
  int error = failed ? errno : 0;
  if (fd >= 0)
    close(fd);
  if (!error && rename(o->made, o->place))
    error = errno;
  if (!error)
    dfgnn__sync_directory(o->place);
  return error;
}

/* Copies what was made; 0 or an errno. */
static int copy(const dfgnn_output *o) {
  char block[1 << 16];
  ssize_t count = 0;
  int fd = open(o->made, O_RDONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  while (!error && (count = read(fd, block, sizeof block)) != 0) {
    for (ssize_t done = 0, n; count > 0 && done < count && !error; done += n)
      if ((n = write(o->target, block + done, (size_t)(count - done))) < 0) {
        n = 0;
        error = errno == EINTR ? 0 : errno;
      }
    if (count < 0)
      error = errno;
  }
  if (fd >= 0)
    close(fd);
  return error;
}

dfgnn_status dfgnn__output_close(dfgnn_output *o, int keep) {
  dfgnn_status status = DFGNN_OK;
  if (keep) {
    int error = o->target < 0 ? replace(o) : copy(o);
    status = error ? fail(o->path, error) : DFGNN_OK;
  }
  if (o->made && (!keep || status || o->folder))
    unlink(o->made);
  if (o->folder)
    rmdir(o->folder);
  if (o->target >= 0)
    close(o->target);
  free(o->path);
  free(o->place);
  free(o->folder);
  free(o->made);
  *o = (dfgnn_output){.target = -1};
  return status;
}

dfgnn_status dfgnn__write_whole(const char *path, const dfgnn_output_kind *kind,
                                dfgnn__file_writer *write, const void *data) {
  dfgnn_output output;
  DFGNN_TRY(dfgnn__output_open(&output, path, kind));
  dfgnn_status status = write(data, path, output.made);
  dfgnn_status closed = dfgnn__output_close(&output, !status);
  return status ? status : closed;
}

typedef struct block {
  const void *bytes;
  size_t count;
} block;

static dfgnn_status write_block(const void *data, const char *path,
                                const char *temporary) {
  const block *b = data;
  FILE *file = fopen(temporary, "wb");
  int error =
      file && fwrite(b->bytes, 1, b->count, file) == b->count ? 0 : errno;
  if (file && fclose(file) && !error)
    error = errno;
  return error ? fail(path, error) : DFGNN_OK;
}

dfgnn_status dfgnn__write_bytes(const char *path, const dfgnn_output_kind *kind,
                                const void *bytes, size_t count) {
  const block all = {bytes, count};
  return dfgnn__write_whole(path, kind, write_block, &all);
}
