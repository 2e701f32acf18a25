#include "lib/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

/* The width of the control character at c: 1 for ASCII's, 2 for one of U+0080
 * to U+009F in UTF-8, which terminals obey as well; 0: none. */
static int control_width(const unsigned char *c) {
  if (*c < ' ' || *c == 0x7f)
    return 1;
  return *c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f ? 2 : 0;
}

char *dfgnn__escape(char *to, size_t size, const char *text) {
  static const char hex[] = "0123456789abcdef";
  const unsigned char *c = (const unsigned char *)text;
  size_t n = 0;
  while (*c && n + 1 < size) {
    int width = control_width(c);
    if (!width) {
      to[n++] = (char)*c++;
      continue;
    }
    if (n + 4 * (size_t)width + 1 > size)
      break;
    for (; width; width--, c++) {
      memcpy(to + n, "\\x", 2);
      to[n + 2] = hex[*c >> 4];
      to[n + 3] = hex[*c & 15];
      n += 4;
    }
  }
  to[n] = 0;
  return to;
}

const char *dfgnn_last_error(void) { return message; }

dfgnn_status dfgnn__fail(dfgnn_status status, const char *format, ...) {
  char text[sizeof message]; /* an argument may be the old message */
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dfgnn__escape(message, sizeof message, text);
  return status;
}

dfgnn_status dfgnn__check_range(const char *name, int64_t value, int64_t least,
                                int64_t most) {
  if (value >= least && value <= most)
    return DFGNN_OK;
  if (most == INT64_MAX)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is %lld, expected >= %lld",
                       name, (long long)value, (long long)least);
  return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is %lld, expected %lld..%lld",
                     name, (long long)value, (long long)least, (long long)most);
}

dfgnn_status dfgnn__fail_prefix(dfgnn_status status, const char *format, ...) {
  char text[sizeof message];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof text)
    snprintf(text + n, sizeof text - (size_t)n, "%s", message);
  dfgnn__escape(message, sizeof message, text);
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
  const long long i = -(long long)status; /* INT_MIN has no opposite */
  return i >= 0 && i < (long long)(sizeof names / sizeof *names)
             ? names[i]
             : "unknown status";
}
