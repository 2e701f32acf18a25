#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

const char *dfgnn_last_error(void) { return message; }

dfgnn_status dfgnn__fail(dfgnn_status status, const char *format, ...) {
  char text[sizeof message]; /* an argument may be the old message */
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(message, text, sizeof message);
  return status;
}

dfgnn_status dfgnn__fail_prefix(dfgnn_status status, const char *format, ...) {
  char text[sizeof message];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof text)
    snprintf(text + n, sizeof text - (size_t)n, "%s", message);
  memcpy(message, text, sizeof message);
  return status;
}

const char *dfgnn_status_string(dfgnn_status status) {
  static const char *const names[] = {"success",
                                      "invalid argument",
                                      "out of memory",
                                      "unsupported",
                                      "not tuned",
                                      "device error",
                                      "input/output error",
                                      "invalid file format",
                                      "invalid store",
                                      "stream is capturing",
                                      "interrupted",
                                      "wrong result"};
  int i = -(int)status;
  return i >= 0 && i < (int)(sizeof names / sizeof *names) ? names[i]
                                                           : "unknown status";
}
