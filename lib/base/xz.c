/* xz.c - files compressed by xz */
#include "lib/base/xz.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/error.h"

int dfgnn__xz_is(const unsigned char *bytes, size_t size) {
  static const unsigned char magic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
  return size >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

#ifndef HAVE_LZMA

int dfgnn__xz_available(void) { return 0; }

dfgnn_status dfgnn__xz_unpack(unsigned char **bytes, size_t *size, size_t most,
                              const char *path) {
  (void)bytes, (void)size, (void)most;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "%s: compressed by xz, and this libdfgnn was built "
                     "without liblzma; decompress it by `xz -d`",
                     path);
}

size_t dfgnn__xz_begin(char *to, size_t most, const char *packed, size_t size) {
  (void)to, (void)most, (void)packed, (void)size;
  return 0;
}

dfgnn_status dfgnn__xz_file(const char *path, const char *name) {
  (void)path;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s: there is no liblzma", name);
}

#else
#include <lzma.h>

/* A decoder needs little more than the window that the encoder had. */
enum { WINDOW_BYTES = 64 << 20, DECODER_BYTES = WINDOW_BYTES + (16 << 20) };

int dfgnn__xz_available(void) { return 1; }

static const char *reason(lzma_ret code) {
  switch (code) {
  case LZMA_MEM_ERROR:
    return "out of memory";
  case LZMA_MEMLIMIT_ERROR:
    return "its window is larger than 64 MiB";
  case LZMA_OPTIONS_ERROR:
    return "it uses an option that this liblzma does not know";
  default:
    return "it is damaged";
  }
}

dfgnn_status dfgnn__xz_unpack(unsigned char **bytes, size_t *size, size_t most,
                              const char *path) {
  lzma_stream stream = LZMA_STREAM_INIT;
  dfgnn_status status = DFGNN_OK;
  unsigned char *out = NULL;
  size_t room = 0, done = 0;
  lzma_ret code = lzma_stream_decoder(&stream, DECODER_BYTES, 0);
  stream.next_in = *bytes;
  stream.avail_in = *size;
  while (code == LZMA_OK && done <= most) {
    if (done == room) { /* one byte more than `most` tells that it is more */
      room = room ? room * 2 : *size * 4;
      room = room <= most ? room : most + 1;
      unsigned char *more = sqlite3_realloc64(out, room);
      if (!more)
        DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory"));
      out = more;
    }
    stream.next_out = out + done;
    stream.avail_out = room - done;
    code = lzma_code(&stream, LZMA_FINISH);
    done = room - stream.avail_out;
  }
  if (done > most)
    status =
        dfgnn__fail(DFGNN_ERROR_FORMAT,
                    "%s: more than %zu bytes when decompressed", path, most);
  else if (code != LZMA_STREAM_END || stream.avail_in)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: xz cannot read it: %s", path,
                         reason(code));
out:
  lzma_end(&stream);
  if (status) {
    sqlite3_free(out);
    return status;
  }
  sqlite3_free(*bytes);
  *bytes = out;
  *size = done;
  return DFGNN_OK;
}

size_t dfgnn__xz_begin(char *to, size_t most, const char *packed, size_t size) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, DECODER_BYTES, 0) != LZMA_OK)
    return 0;
  stream.next_in = (const uint8_t *)packed;
  stream.avail_in = size;
  stream.next_out = (uint8_t *)to;
  stream.avail_out = most;
  while (stream.avail_out && lzma_code(&stream, LZMA_RUN) == LZMA_OK)
    if (!stream.avail_in)
      break;
  lzma_end(&stream);
  return most - stream.avail_out;
}

static dfgnn_status read_file(unsigned char **bytes, size_t *size,
                              const char *path) {
  struct stat info;
  FILE *file = fopen(path, "rb");
  int read =
      file && !fstat(fileno(file), &info) &&
      (*bytes = malloc((size_t)info.st_size + 1)) &&
      fread(*bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size;
  if (file)
    (void)fclose(file);
  *size = read ? (size_t)info.st_size : 0;
  return read ? DFGNN_OK
              : dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be read", path);
}

static dfgnn_status write_file(const char *path, const char *name,
                               const unsigned char *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  int error = file && fwrite(bytes, 1, size, file) == size ? 0 : errno;
  if (file && fclose(file) && !error)
    error = errno;
  return error ? dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot write: %s", name,
                             strerror(error))
               : DFGNN_OK;
}

dfgnn_status dfgnn__xz_file(const char *path, const char *name) {
  unsigned char *plain = NULL, *packed = NULL;
  size_t size = 0, room, done = 0;
  lzma_options_lzma options;
  const lzma_filter filters[] = {{.id = LZMA_FILTER_LZMA2, .options = &options},
                                 {.id = LZMA_VLI_UNKNOWN}};
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_file(&plain, &size, path));
  room = lzma_stream_buffer_bound(size);
  packed = malloc(room);
  if (!packed || lzma_lzma_preset(&options, 9 | LZMA_PRESET_EXTREME))
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory"));
  /* A window beyond the file would only take memory of readers. */
  options.dict_size = size < LZMA_DICT_SIZE_MIN ? LZMA_DICT_SIZE_MIN
                      : size < WINDOW_BYTES     ? (uint32_t)size
                                                : WINDOW_BYTES;
  if (lzma_stream_buffer_encode((lzma_filter *)filters, LZMA_CHECK_CRC32, NULL,
                                plain, size, packed, &done, room))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: xz cannot compress it", name);
  else
    status = write_file(path, name, packed, done);
out:
  free(plain);
  free(packed);
  return status;
}
#endif
