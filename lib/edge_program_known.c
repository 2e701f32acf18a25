/* edge_program_known.c - programs that stored rows name
 *
 * A row has the hash of its program and a text of it.  Whoever asks what a row
 * measured gets a program that is parsed once and stays. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_program.h"

enum { MOST = 4096 }; /* programs of a process; a store may have more */

typedef struct known {
  struct known *next;
  char hash[17];
  dfgnn_pass pass;
  dfgnn_edge_program *program; /* NULL: the text is no such program */
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *all;
static int count;

/* The text is a stranger's: it has to be the program that the hash names. */
static dfgnn_edge_program *read_program(const char *hash, const char *text,
                                        dfgnn_pass pass) {
  dfgnn_edge_program *program = NULL;
  if (!*text || dfgnn_edge_program_create(&program, text))
    return NULL;
  if (strcmp(program->name, hash) || program->dag->name_count ||
      program->unfit) {
    dfgnn_edge_program_destroy(program);
    return NULL;
  }
  program->is_gradient = pass == DFGNN_PASS_BACKWARD;
  program->is_operator = 0; /* it was measured as a program */
  return program;
}

static known *find(const char *hash, dfgnn_pass pass) {
  for (known *k = all; k; k = k->next)
    if (k->pass == pass && !strcmp(k->hash, hash))
      return k;
  return NULL;
}

static known *add(const char *hash, const char *text, dfgnn_pass pass) {
  known *k = count < MOST ? calloc(1, sizeof *k) : NULL;
  if (!k)
    return NULL;
  strcpy(k->hash, hash);
  k->pass = pass;
  k->program = read_program(hash, text, pass);
  k->next = all;
  all = k;
  count++;
  return k;
}

dfgnn_status dfgnn__edge_program_known(const dfgnn_edge_program **program,
                                       const char *hash, const char *text,
                                       dfgnn_pass pass) {
  known *k = NULL;
  if (!hash || !text || strlen(hash) != sizeof k->hash - 1)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "the program is \"%s\", expected 16 hexadecimal digits",
                       hash ? hash : "");
  pthread_mutex_lock(&lock);
  k = find(hash, pass);
  if (k && !k->program && *text) /* another row's text may be right */
    k->program = read_program(hash, text, pass);
  if (!k)
    k = add(hash, text, pass);
  *program = k ? k->program : NULL;
  pthread_mutex_unlock(&lock);
  return *program ? DFGNN_OK
                  : dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                                "the text of program %s is not known", hash);
}
