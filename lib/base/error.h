/* error.h - how every part of the library fails */
#ifndef DFGNN_BASE_ERROR_H
#define DFGNN_BASE_ERROR_H

#include "dfgnn.h"

/* Stores the thread's message and returns status, so that a caller can write
 * `return dfgnn__fail(DFGNN_ERROR_INVALID, "dim is %d, expected >= 1", d);` */
dfgnn_status dfgnn__fail(dfgnn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts context in front of the thread's message: "cora.mtx: " + message. */
dfgnn_status dfgnn__fail_prefix(dfgnn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns what a call returned from the function around it, unless that is 0:
 * DFGNN_OK, or a tool's TOOL_DONE. */
#define DFGNN_TRY(...)                                                         \
  do {                                                                         \
    const __typeof__(__VA_ARGS__) failed_ = (__VA_ARGS__);                     \
    if (failed_)                                                               \
      return failed_;                                                          \
  } while (0)

/* The same where something is to be released: goes to `out` with it. */
#define DFGNN_GO(...)                                                          \
  do {                                                                         \
    status = (__VA_ARGS__);                                                    \
    if (status)                                                                \
      goto out;                                                                \
  } while (0)

/* DFGNN_OK, or DFGNN_ERROR_INVALID: "NAME is 7, expected 0..3", or
 * "expected >= 0" where most is INT64_MAX. */
dfgnn_status dfgnn__check_range(const char *name, int64_t value, int64_t least,
                                int64_t most);

/* Copies text with its control characters as \xNN, cut to size - 1 bytes, and
 * returns `to`: names of files come from anywhere, and a terminal obeys what is
 * in them.  Messages of the two functions above are escaped so. */
char *dfgnn__escape(char *to, size_t size, const char *text);

#endif
