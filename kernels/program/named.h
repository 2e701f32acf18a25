/* named.h - the operators of named.txt, whose head has its format */
#ifndef DFGNN_PROGRAM_NAMED_H
#define DFGNN_PROGRAM_NAMED_H

enum { DFGNN_NAMED_TEXT = 4096 };

typedef struct dfgnn_named {
  const char *name;
  const char *is;    /* "gt keys"; NULL: no operator of the library */
  const char *about; /* a line; NULL: a part */
  const char *lines;
} dfgnn_named;

/* The i-th operator; NULL beyond the last. */
const dfgnn_named *dfgnn__named(int i);

/* Writes the program of the name or, if `pattern` is 1, the pattern.  choice:
 * of PART|PART, 0 for the first.  Returns 0 if there is no such choice.  A
 * text with a wrong part, or one that is too long, does not parse. */
int dfgnn__named_text(char text[DFGNN_NAMED_TEXT], const dfgnn_named *named,
                      int choice, int pattern);

#endif
