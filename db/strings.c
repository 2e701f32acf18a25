/* strings.c - one copy of each text, in blocks that never move */
#include "db/internal.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 65536

typedef struct block {
  struct block *next;
  size_t used, size;
  char bytes[];
} block;

struct dfgnn_strings {
  block *blocks;
  const char **slot;
  size_t slots, count; /* slots is a power of two, at most half full */
};

dfgnn_strings *dfgnn__strings_create(void) {
  dfgnn_strings *strings = calloc(1, sizeof *strings);
  if (!strings)
    return NULL;
  strings->slots = 256;
  strings->slot = calloc(strings->slots, sizeof *strings->slot);
  if (!strings->slot) {
    free(strings);
    return NULL;
  }
  return strings;
}

void dfgnn__strings_free(dfgnn_strings *strings) {
  if (!strings)
    return;
  while (strings->blocks) {
    block *next = strings->blocks->next;
    free(strings->blocks);
    strings->blocks = next;
  }
  free(strings->slot);
  free(strings);
}

/* FNV-1a */
static size_t hash(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++)
    h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return (size_t)(h ^ h >> 32);
}

static const char **find(const char **slot, size_t slots, const char *s) {
  size_t i = hash(s) & (slots - 1);
  while (slot[i] && strcmp(slot[i], s) != 0)
    i = (i + 1) & (slots - 1);
  return &slot[i];
}

static int grow(dfgnn_strings *strings) {
  size_t slots = 2 * strings->slots;
  const char **slot = calloc(slots, sizeof *slot);
  if (!slot)
    return 0;
  for (size_t i = 0; i < strings->slots; i++)
    if (strings->slot[i])
      *find(slot, slots, strings->slot[i]) = strings->slot[i];
  free(strings->slot);
  strings->slot = slot;
  strings->slots = slots;
  return 1;
}

static char *allocate(dfgnn_strings *strings, size_t size) {
  block *b = strings->blocks;
  if (!b || b->size - b->used < size) {
    size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    b = malloc(sizeof *b + room);
    if (!b)
      return NULL;
    b->next = strings->blocks;
    b->used = 0;
    b->size = room;
    strings->blocks = b;
  }
  char *bytes = b->bytes + b->used;
  b->used += size;
  return bytes;
}

const char *dfgnn__strings_add(dfgnn_strings *strings, const char *s) {
  if (2 * (strings->count + 1) > strings->slots && !grow(strings))
    return NULL;
  const char **slot = find(strings->slot, strings->slots, s);
  if (!*slot) {
    size_t size = strlen(s) + 1;
    char *copy = allocate(strings, size);
    if (!copy)
      return NULL;
    *slot = memcpy(copy, s, size);
    strings->count++;
  }
  return *slot;
}
