#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lib/base/locale.h"

#include <pthread.h>
#include <stdlib.h>

static locale_t plain;
static void make_plain(void) {
  plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* takes no memory */
}

locale_t dfgnn__locale_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_plain);
  return uselocale(plain);
}

void dfgnn__locale_end(locale_t before) { uselocale(before); }

double dfgnn__number_of(const char *text, char **end) {
  const locale_t before = dfgnn__locale_begin();
  const double number = strtod(text, end);
  dfgnn__locale_end(before);
  return number;
}
