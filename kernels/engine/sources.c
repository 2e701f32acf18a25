/* sources.c - device code, embedded or from DFGNN_KERNEL_SOURCE
 *
 * The embedded tree, kernels/engine/sources.gz of the build folder, is a gzip
 * stream of files one after the other, each behind a line "name bytes\n";
 * packaging/build/embed.sh writes it. */
#include "kernels/engine/sources.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/base/error.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".local dfgnn__embedded\n"
        "dfgnn__embedded: .incbin \"kernels/engine/sources.gz\"\n"
        ".local dfgnn__embedded_end\n"
        "dfgnn__embedded_end: .byte 0\n"
        ".previous\n");
/* Hidden, so that their addresses are not loaded through the global offset
 * table: for AArch64 the assembler makes a wrong load of a local label. */
#pragma GCC visibility push(hidden)
extern const unsigned char dfgnn__embedded[], dfgnn__embedded_end[];
#pragma GCC visibility pop

enum { MAX_FILES = 256, MAX_TEXT = 8 << 20 };

static dfgnn_source_file files[MAX_FILES];
static int file_count;
static const char *folder; /* DFGNN_KERNEL_SOURCE */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int unpacked;

/* The C library's headers, as device code knows them, and the public types. */
static const struct {
  const char *name, *file;
} elsewhere[] = {
    {"stdint.h", "kernels/engine/device/stdint.h"},
    {"stddef.h", "kernels/engine/device/stddef.h"},
    {"dfgnn_types.h", "include/dfgnn_types.h"},
};

static dfgnn_status add_file(const char *name, size_t length, const char *text,
                             size_t bytes) {
  char *own_name = strndup(name, length), *own_text = malloc(bytes + 1);
  if (!own_name || !own_text || file_count == MAX_FILES) {
    free(own_name);
    free(own_text);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for device sources");
  }
  memcpy(own_text, text, bytes);
  own_text[bytes] = 0;
  files[file_count++] = (dfgnn_source_file){own_name, own_text, bytes};
  return DFGNN_OK;
}

static dfgnn_status split(char *text, size_t bytes) {
  char *at = text, *end = text + bytes;
  dfgnn_status status = DFGNN_OK;
  while (!status && at < end) {
    char *space = memchr(at, ' ', (size_t)(end - at));
    char *line = memchr(at, '\n', (size_t)(end - at));
    size_t size = space && line ? strtoul(space + 1, NULL, 10) : 0;
    if (!space || !line || space > line || size > (size_t)(end - line - 1))
      return dfgnn__fail(DFGNN_ERROR_FORMAT, "the library's device sources are "
                                             "damaged");
    status = add_file(at, (size_t)(space - at), line + 1, size);
    at = line + 1 + size;
  }
  return status;
}

static dfgnn_status unpack(void) {
  z_stream stream = {0};
  dfgnn_status status = DFGNN_OK;
  char *text = malloc(MAX_TEXT);
  if (!text)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for device sources");
  stream.next_in = (unsigned char *)dfgnn__embedded;
  stream.avail_in = (unsigned)(dfgnn__embedded_end - dfgnn__embedded);
  stream.next_out = (unsigned char *)text;
  stream.avail_out = MAX_TEXT;
  int ok = inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK;
  if (!ok || inflate(&stream, Z_FINISH) != Z_STREAM_END)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT, "the library's device sources are "
                                             "damaged");
  if (!status)
    status = split(text, MAX_TEXT - stream.avail_out);
  if (ok)
    (void)inflateEnd(&stream);
  free(text);
  folder = getenv("DFGNN_KERNEL_SOURCE");
  if (folder && !*folder)
    folder = NULL;
  if (folder) /* every file is read anew from there */
    file_count = 0;
  unpacked = !status;
  return status;
}

static dfgnn_status read_file(const char *name, const char *file) {
  char path[4096];
  size_t bytes = 0, got;
  dfgnn_status status = DFGNN_OK;
  if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
    return dfgnn__fail(DFGNN_ERROR_IO, "DFGNN_KERNEL_SOURCE is too long");
  FILE *in = fopen(path, "rb");
  if (!in)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be opened", path);
  char *text = malloc(MAX_TEXT);
  if (!text)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %s", path);
  while (!status && (got = fread(text + bytes, 1, MAX_TEXT - bytes, in)) > 0)
    bytes += got;
  if (!status && (ferror(in) || bytes == MAX_TEXT))
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be read", path);
  if (!status)
    status = add_file(name, strlen(name), text, bytes);
  free(text);
  fclose(in);
  return status;
}

/* ---- generated sources --------------------------------------------------- */

typedef struct generated {
  struct generated *next;
  dfgnn_source_file file;
  char name[64];
} generated;

static generated *generated_files;

static generated *find_generated(const char *name) {
  generated *g = generated_files;
  while (g && strcmp(g->name, name) != 0)
    g = g->next;
  return g;
}

static generated *make_generated(const char *name, const char *text) {
  generated *g = calloc(1, sizeof *g);
  char *own = strdup(text);
  if (!g || !own) {
    free(g);
    free(own);
    return NULL;
  }
  snprintf(g->name, sizeof g->name, "%s", name);
  g->file = (dfgnn_source_file){g->name, own, strlen(own)};
  g->next = generated_files;
  generated_files = g;
  return g;
}

const char *dfgnn__source_generated(const char *text) {
  unsigned char hash[16];
  char hex[2 * sizeof hash + 1], name[64];
  crypto_generichash(hash, sizeof hash, (const unsigned char *)text,
                     strlen(text), NULL, 0);
  sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
  snprintf(name, sizeof name, "generated/%s.cuh", hex);
  pthread_mutex_lock(&lock);
  generated *g = find_generated(name);
  if (!g)
    g = make_generated(name, text);
  pthread_mutex_unlock(&lock);
  return g ? g->name : NULL;
}

/* ---- files --------------------------------------------------------------- */

static const dfgnn_source_file *find(const char *name) {
  const char *file = name;
  generated *made = find_generated(name);
  if (made)
    return &made->file;
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
    if (!strcmp(elsewhere[i].name, name))
      file = elsewhere[i].file;
  for (int i = 0; i < file_count; i++)
    if (!strcmp(files[i].name, name))
      return &files[i];
  for (int i = 0; i < file_count && file != name; i++)
    if (!strcmp(files[i].name, file)) {
      if (add_file(name, strlen(name), files[i].text, files[i].bytes))
        return NULL;
      return &files[file_count - 1];
    }
  if (folder && !read_file(name, file))
    return &files[file_count - 1];
  return NULL;
}

/* The name that a line of "#include" asks for; 0 if it is no such line. */
static int included(char *name, size_t size, const char *line) {
  line += strspn(line, " \t");
  if (*line != '#')
    return 0;
  line += 1 + strspn(line + 1, " \t");
  if (strncmp(line, "include", 7))
    return 0;
  line += 7 + strspn(line + 7, " \t");
  if (*line != '"' && *line != '<')
    return 0;
  size_t length = strcspn(line + 1, "\">\n");
  if (length == 0 || length >= size)
    return 0;
  memcpy(name, line + 1, length);
  name[length] = 0;
  return 1;
}

static dfgnn_status close_over(const dfgnn_source_file **list, int *count,
                               const char *name, const char *from) {
  char next[256];
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; i < *count; i++)
    if (!strcmp(list[i]->name, name))
      return DFGNN_OK;
  const dfgnn_source_file *file = find(name);
  if (!file)
    return dfgnn__fail(
        DFGNN_ERROR_IO, "device source %s, included by %s, does not exist%s%s",
        name, from, folder ? " in " : "",
        folder ? folder : ": kernels/device.am does not name it");
  if (*count == DFGNN_MAX_CLOSURE)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%s: more than %d device sources", from,
                       DFGNN_MAX_CLOSURE);
  list[(*count)++] = file;
  for (const char *line = file->text; !status && line && *line;
       line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (included(next, sizeof next, line))
      status = close_over(list, count, next, file->name);
  return status;
}

dfgnn_status
dfgnn__source_closure(const dfgnn_source_file *list[DFGNN_MAX_CLOSURE],
                      int *count, const char *name) {
  dfgnn_status status = DFGNN_OK;
  *count = 0;
  pthread_mutex_lock(&lock);
  if (!unpacked)
    status = unpack();
  if (!status)
    status = close_over(list, count, name, "a program");
  pthread_mutex_unlock(&lock);
  return status;
}
