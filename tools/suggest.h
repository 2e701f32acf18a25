/* suggest.h - the name that somebody meant who wrote another */
#ifndef DFGNN_TOOLS_SUGGEST_H
#define DFGNN_TOOLS_SUGGEST_H

#include <stddef.h>

/* "; did you mean --dim?" if one of the names, each after `before`, is near the
 * word; else "".  names ends with NULL.  Returns text. */
const char *tool_suggest(char *text, size_t size, const char *word,
                         const char *before, const char *const *names);

#endif
