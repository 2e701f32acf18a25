/* files.h - graph files for the tests of io, in a directory of their own */
#ifndef DFGNN_TESTS_FILES_H
#define DFGNN_TESTS_FILES_H

#include "graph/io/io.h"
#include "tests/unit/fixture.h"

#include <minizip/zip.h>
#include <sys/stat.h>
#include <zlib.h>

static char files_directory[64];

static inline void files_begin(void) { test_folder(files_directory); }

/* The path of a file in the directory; good until the eighth call after. */
static inline const char *file_path(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof *paths, "%s/%s", files_directory, name);
  return path;
}

static inline const char *put_bytes(const char *name, const void *bytes,
                                    size_t size) {
  const char *path = file_path(name);
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
  return path;
}

static inline const char *put_text(const char *name, const char *text) {
  return put_bytes(name, text, strlen(text));
}

static inline const char *put_gzip(const char *name, const char *text) {
  const char *path = file_path(name);
  gzFile file = gzopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(gzputs(file, text), (int)strlen(text));
  ck_assert_int_eq(gzclose(file), Z_OK);
  return path;
}

/* An array of an .npz; a NULL name ends a list of them. */
typedef struct npz_array {
  const char *name, *type, *shape;
  const void *data;
  size_t size;
} npz_array;

static inline const char *put_npz(const char *name, const npz_array *arrays) {
  const char *path = file_path(name);
  zipFile zip = zipOpen64(path, APPEND_STATUS_CREATE);
  ck_assert_ptr_nonnull(zip);
  for (; arrays->name; arrays++) {
    char entry[64], text[256];
    snprintf(entry, sizeof entry, "%s.npy", arrays->name);
    int n = snprintf(text + 10, sizeof text - 10,
                     "{'descr': %s, 'fortran_order': False, 'shape': %s, }\n",
                     arrays->type, arrays->shape);
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)n;
    text[9] = 0;
    ck_assert_int_eq(zipOpenNewFileInZip(zip, entry, NULL, NULL, 0, NULL, 0,
                                         NULL, Z_DEFLATED, 6),
                     0);
    ck_assert_int_eq(zipWriteInFileInZip(zip, text, 10 + (unsigned)n), 0);
    ck_assert_int_eq(
        zipWriteInFileInZip(zip, arrays->data, (unsigned)arrays->size), 0);
    ck_assert_int_eq(zipCloseFileInZip(zip), 0);
  }
  ck_assert_int_eq(zipClose(zip, NULL), 0);
  return path;
}

/* The columns of each row as text: "1 2||0" for three rows. */
static inline const char *csr_text(const dfgnn_csr *csr) {
  static char text[4096];
  size_t used = 0;
  *text = 0;
  for (int64_t i = 0; i < csr->destinations; i++) {
    if (i)
      used += (size_t)snprintf(text + used, sizeof text - used, "|");
    int64_t begin = dfgnn__csr_offset(csr, i);
    for (int64_t e = begin; e < dfgnn__csr_offset(csr, i + 1); e++)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld",
                               e > begin ? " " : "",
                               (long long)dfgnn__csr_index(csr, e));
    ck_assert_uint_lt(used, sizeof text);
  }
  return text;
}

static inline dfgnn_csr *read_graph(const char *path) {
  dfgnn_csr *csr = NULL;
  ck_ok(dfgnn_csr_read(&csr, path));
  return own_csr(csr);
}

/* Asserts that a file is read as a graph of these sources and rows. */
static inline void reads_as(const char *path, int64_t sources,
                            const char *rows) {
  const dfgnn_csr *csr = read_graph(path);
  ck_assert_int_eq(csr->sources, sources);
  ck_assert_str_eq(csr_text(csr), rows);
}

/* Asserts that a file is refused with a message that holds its name and the
 * text. */
static inline void refused(const char *path, const char *text) {
  dfgnn_csr *csr = NULL;
  ck_fails(dfgnn_csr_read(&csr, path), DFGNN_ERROR_FORMAT, text);
  ck_assert_ptr_null(csr);
  ck_assert_msg(strstr(dfgnn_last_error(), path) != NULL,
                "'%s' does not name %s", dfgnn_last_error(), path);
}

/* Of TEST_MAIN: a folder of its own for the files of each test. */
#define FILE_TESTS .setup = files_begin, .timeout = 60

#endif
