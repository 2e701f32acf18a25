#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lib/base/file.h"
#include "lib/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIPE_FILE_SYSTEM 0x50495045 /* PIPEFS_MAGIC of linux/magic.h */

const char *dfgnn__file_kind(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/* A FIFO lies in a file system of files, a pipe in one of its own. */
static int is_pipe(int fd, mode_t mode) {
  struct statfs system;
  return S_ISFIFO(mode) && !fstatfs(fd, &system) &&
         (unsigned long)system.f_type == PIPE_FILE_SYSTEM;
}

static dfgnn_status check_kind(int64_t *size, int fd, const char *path,
                               const char *expected, int pipes) {
  struct stat about;
  if (fstat(fd, &about)) {
    const int error = errno;
    close(fd);
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot open: %s", path,
                       strerror(error));
  }
  int pipe = is_pipe(fd, about.st_mode);
  if (!S_ISREG(about.st_mode) && !(pipe && pipes)) {
    close(fd);
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: found %s, expected %s", path,
                       pipe ? "a pipe" : dfgnn__file_kind(about.st_mode),
                       expected);
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  *size = pipe ? -1 : (int64_t)about.st_size;
  return DFGNN_OK;
}

static dfgnn_status open_kind(int *out, int64_t *size, const char *path,
                              const char *expected, int pipes) {
  /* Without O_NONBLOCK a FIFO waits here for somebody to write to it. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 && errno == ENXIO)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: found a socket, expected %s", path,
                       expected);
  if (fd < 0)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot open: %s", path,
                       strerror(errno));
  dfgnn_status status = check_kind(size, fd, path, expected, pipes);
  if (!status)
    *out = fd;
  return status;
}

dfgnn_status dfgnn__file_or_pipe_check(int fd, const char *path,
                                       const char *expected) {
  int64_t size;
  return check_kind(&size, fd, path, expected, 1);
}

dfgnn_status dfgnn__file_open(int *fd, int64_t *size, const char *path,
                              const char *expected) {
  return open_kind(fd, size, path, expected, 0);
}

dfgnn_status dfgnn__file_or_pipe_open(int *fd, int64_t *size, const char *path,
                                      const char *expected) {
  return open_kind(fd, size, path, expected, 1);
}

dfgnn_status dfgnn__file_or_pipe_stream(FILE **in, const char *path,
                                        const char *expected) {
  int64_t size;
  int fd;
  dfgnn_status status = dfgnn__file_or_pipe_open(&fd, &size, path, expected);
  if (!status && !(*in = fdopen(fd, "r"))) {
    close(fd);
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  }
  return status;
}
