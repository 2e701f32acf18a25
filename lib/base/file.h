/* file.h - opening what the user names, which may be anything */
#ifndef DFGNN_BASE_FILE_H
#define DFGNN_BASE_FILE_H

#include <stdio.h>
#include <sys/types.h>

#include "dfgnn.h"

/* Opens a regular file for reading and tells its size; whatever else has that
 * name is refused with DFGNN_ERROR_IO, "PATH: found a FIFO, expected a job
 * file".  It never waits: a FIFO may have no writer, a device may have no end.
 */
dfgnn_status dfgnn__file_open(int *fd, int64_t *size, const char *path,
                              const char *expected);

/* The same, but a pipe of this process, such as /dev/stdin or what a shell
 * makes of <(command), is accepted too; its size is -1. */
dfgnn_status dfgnn__file_or_pipe_open(int *fd, int64_t *size, const char *path,
                                      const char *expected);

/* The same as a stream. */
dfgnn_status dfgnn__file_or_pipe_stream(FILE **in, const char *path,
                                        const char *expected);

/* The same of a descriptor that was opened with O_NONBLOCK; closes it if that
 * fails. */
dfgnn_status dfgnn__file_or_pipe_check(int fd, const char *path,
                                       const char *expected);

/* Names a mode that is no regular file: "a directory", "a FIFO", "a
 * socket" or "a device". */
const char *dfgnn__file_kind(mode_t mode);

#endif
