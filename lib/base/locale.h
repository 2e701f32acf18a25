/* locale.h - numbers have a decimal point, whatever the program's locale is */
#ifndef DFGNN_BASE_LOCALE_H
#define DFGNN_BASE_LOCALE_H

#include <locale.h>

/* Gives the thread the locale "C"; returns the one that dfgnn__locale_end()
 * gives back. */
locale_t dfgnn__locale_begin(void);
void dfgnn__locale_end(locale_t before);

/* strtod in the locale "C". */
double dfgnn__number_of(const char *text, char **end);

#endif
