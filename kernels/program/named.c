#include "kernels/program/named.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
        ".local dfgnn__named_bytes\n"
        "dfgnn__named_bytes: .incbin \"kernels/program/embedded.txt\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char dfgnn__named_bytes[];

/* ---- the blocks of the file ---------------------------------------------- */

enum { MOST_BLOCKS = 256 };

static dfgnn_named blocks[MOST_BLOCKS];
static int count;

/* Ends the text before `after` and returns what follows it; NULL: `line` does
 * not have it. */
static char *cut(char *line, const char *after) {
  char *at = strstr(line, after);
  if (!at)
    return NULL;
  *at = 0;
  return at + strlen(after);
}

static void read_blocks(void) {
  char *line = strdup(dfgnn__named_bytes), *next; /* which blocks keep */
  for (; line && *line && count < MOST_BLOCKS; line = next) {
    char *begin = line;
    next = line + strcspn(line, "\n");
    next += *next == '\n';
    if (!isalpha((unsigned char)*begin))
      continue;
    if (count)
      begin[-1] = 0;
    next[-1] = 0;
    dfgnn_named *block = &blocks[count++];
    *block = (dfgnn_named){.name = begin, .lines = next};
    block->about = cut(begin, ": ");
    block->is = cut(begin, " is ");
  }
}

static const dfgnn_named *block_of(int i) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_blocks);
  return i < count ? &blocks[i] : NULL;
}

static const dfgnn_named *find(const char *name, size_t length) {
  const dfgnn_named *block;
  for (int i = 0; (block = block_of(i)); i++)
    if (strlen(block->name) == length && !strncmp(block->name, name, length))
      return block;
  return NULL;
}

const dfgnn_named *dfgnn__named(int i) {
  const dfgnn_named *block = NULL;
  for (int k = 0; i >= 0 && (block = block_of(k)); k++)
    if (block->about && !i--)
      return block;
  return NULL;
}

/* ---- the text of one ----------------------------------------------------- */

typedef struct writer {
  char *text;
  size_t used;
  int choice, pattern, full;
} writer;

static void put(writer *w, char c) {
  if (w->used + 1 == DFGNN_NAMED_TEXT)
    w->full = 1;
  else
    w->text[w->used++] = c;
  w->text[w->used] = 0;
}

static void write_block(writer *w, const dfgnn_named *block);

/* Takes one of PART|PART and, if it is wanted, writes it. */
static void use(writer *w, const char *parts, size_t length, int wanted) {
  int alternatives = 1;
  for (size_t i = 0; i < length; i++)
    alternatives += parts[i] == '|';
  for (int skip = w->choice % alternatives; skip; skip--)
    parts += strcspn(parts, "|") + 1;
  w->choice /= alternatives;
  length = strcspn(parts, "| }\n");
  const dfgnn_named *part = find(parts, length);
  if (part && wanted)
    write_block(w, part);
  for (size_t i = 0; !part && i < length; i++)
    put(w, parts[i]); /* which no program can have */
}

/* Writes what "use PART ..." stands for. */
static void write_parts(writer *w, const char *parts, int wanted) {
  for (size_t length; (length = strcspn(parts, " }\n"));) {
    use(w, parts, length, wanted);
    parts += length;
    parts += strspn(parts, " ");
  }
}

static void write_line(writer *w, const char *line, size_t length) {
  static const char keyword[] = "use ";
  const int braced = *line == '{';
  int depth = 0;
  if (!strncmp(line + braced, keyword, strlen(keyword))) {
    write_parts(w, line + braced + strlen(keyword), w->pattern || !braced);
    return;
  }
  for (size_t i = 0; i < length; i++) {
    depth += (line[i] == '{') - (line[i] == '}');
    if (line[i] != '{' && line[i] != '}' && (w->pattern || !depth))
      put(w, line[i]);
  }
  put(w, '\n');
}

static void write_block(writer *w, const dfgnn_named *block) {
  const char *line = block->lines;
  while (*line && !w->full) {
    const size_t length = strcspn(line, "\n"), blanks = strspn(line, " ");
    if (blanks && blanks < length)
      write_line(w, line + blanks, length - blanks);
    line += length + (line[length] == '\n');
  }
}

int dfgnn__named_text(char text[DFGNN_NAMED_TEXT], const dfgnn_named *named,
                      int choice, int pattern) {
  writer w = {.text = text, .choice = choice, .pattern = pattern};
  *text = 0;
  write_block(&w, named);
  if (w.full)
    strcpy(text, "too long for DFGNN_NAMED_TEXT");
  return !w.choice;
}
