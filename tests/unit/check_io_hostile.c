#include "tests/unit/files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

static void not_read(const char *path, const char *text) {
  dfgnn_csr *csr = NULL;
  ck_fails(dfgnn_csr_read(&csr, path), DFGNN_ERROR_IO, text);
  ck_assert_ptr_null(csr);
}

TEST(a_socket_and_a_pipe_are_named) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", file_path("a.mtx"));
  int server = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(server, (struct sockaddr *)&address, sizeof address),
                   0);
  not_read(file_path("a.mtx"), "found a socket, expected a graph file");
  close(server);
  int ends[2];
  char name[32];
  ck_assert_int_eq(pipe(ends), 0);
  snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
  not_read(name, "found a pipe, expected a graph file");
  close(ends[0]);
  close(ends[1]);
}

/* ---- gzip ---------------------------------------------------------------- */

static void append(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "ab");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
}

TEST(junk_behind_a_gzip_stream_is_refused) {
  const char *path = put_gzip("a.txt.gz", "0 1\n1 2\n");
  reads_as(path, 3, "|0|1");
  append(path, "junk", 4);
  refused(path, "found bytes behind the gzip stream (0x6a ...)");
  path = put_gzip("b.txt.gz", "0 1\n");
  append(path, "x", 1);
  refused(path, "found bytes behind the gzip stream");
}

TEST(padding_and_further_members_are_read) {
  const char *path = put_gzip("a.txt.gz", "0 1\n");
  append(path, "\0\0\0\0", 4);
  reads_as(path, 2, "|0");
  char second[256];
  FILE *file = fopen(put_gzip("b.txt.gz", "1 2\n"), "rb");
  size_t size = fread(second, 1, sizeof second, file);
  fclose(file);
  append(path, second, size);
  reads_as(path, 3, "|0|1");
  truncate(path, 40);
  refused(path, "found a damaged gzip stream");
}

TEST(a_gzip_stream_cut_anywhere_is_refused) {
  char bytes[256];
  FILE *file = fopen(put_gzip("a.txt.gz", "0 1\n1 2\n"), "rb");
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  for (size_t n = 2; n < size; n++)
    refused(put_bytes("b.txt.gz", bytes, n), "found a damaged gzip stream");
  ck_assert_uint_gt(size, 20);
}

/* ---- METIS --------------------------------------------------------------- */

TEST(a_metis_file_must_be_symmetric) {
  refused(put_text("a.graph", "3 1\n2 3\n\n\n"),
          "found node 2 among the neighbours of node 1, but not the other way");
  refused(put_text("b.graph", "3 2\n2 2\n1\n1\n"),
          "found node 1 among the neighbours of node 3, but not the other way");
  refused(put_text("c.graph", "3 3\n2 2 3\n1\n1 1\n"),
          "found an edge more often in the line of one of its ends");
  reads_as(put_text("d.graph", "3 2\n3 2\n1\n1\n"), 3, "1 2|0|0");
}

/* ---- NumPy --------------------------------------------------------------- */

static const int64_t shape2[] = {2, 2};
static const int32_t starts[] = {0, 1, 2}, columns[] = {1, 0};
static const npz_array good[] = {{"indptr", "'<i4'", "(3,)", starts, 12},
                                 {"indices", "'<i4'", "(2,)", columns, 8},
                                 {"format", "'|S3'", "()", "csr", 3},
                                 {"shape", "'<i8'", "(2,)", shape2, 16},
                                 {"data", "'|i1'", "(2,)", "\1\1", 2},
                                 {NULL, NULL, NULL, NULL, 0}};

static size_t load(char *bytes, size_t size, const char *path) {
  FILE *file = fopen(path, "rb");
  size = fread(bytes, 1, size, file);
  fclose(file);
  return size;
}

TEST(an_archive_short_by_a_byte_is_refused) {
  char bytes[4096];
  size_t size = load(bytes, sizeof bytes, put_npz("a.npz", good));
  reads_as(file_path("a.npz"), 2, "1|0");
  refused(put_bytes("b.npz", bytes, size - 1),
          "found the end of a zip archive cut off");
}

TEST(data_short_by_a_byte_is_refused) {
  npz_array a[6];
  memcpy(a, good, sizeof a);
  a[4].size = 1;
  refused(put_npz("a.npz", a), "array 'data': found 1 bytes behind its header, "
                               "expected 2 elements of 1 bytes");
  a[4] = (npz_array){"data", "'<f4'", "(2,)", "\0\0\0\0\0\0\0", 7};
  refused(put_npz("b.npz", a), "found 7 bytes behind its header, expected 2 "
                               "elements of 4 bytes");
}

TEST(a_name_twice_in_an_archive_is_refused) {
  npz_array a[7];
  memcpy(a, good, sizeof good);
  a[5] = a[1];
  a[6] = good[5];
  refused(put_npz("a.npz", a), "found the entry indices.npy twice");
}

TEST(an_encrypted_entry_is_refused) {
  char bytes[4096];
  size_t size = load(bytes, sizeof bytes, put_npz("a.npz", good));
  int changed = 0;
  for (size_t i = 0; i + 10 < size; i++) /* the flags of each record */
    if (!memcmp(bytes + i, "PK\1\2", 4) || !memcmp(bytes + i, "PK\3\4", 4)) {
      bytes[i + (bytes[i + 2] == 1 ? 8 : 6)] |= 1;
      changed++;
    }
  ck_assert_int_eq(changed, 10);
  refused(put_bytes("b.npz", bytes, size), "found the entry indptr.npy "
                                           "encrypted, expected plain arrays");
}

/* ---- writing ------------------------------------------------------------- */

static void not_written(const dfgnn_csr *csr, const char *text) {
  static const char *const names[] = {"w.npz", "w.mtx", "w.graph", "w.txt"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    ck_invalid(dfgnn_csr_write(csr, file_path(names[k])), text);
    ck_assert_int_ne(access(file_path(names[k]), F_OK), 0);
  }
}

TEST(a_matrix_is_checked_before_it_is_written) {
  const int32_t falling[] = {0, 2, 1}, beyond[] = {0, 1, 900000},
                late[] = {1, 1, 2}, outside[] = {1, 7};
  dfgnn_csr csr = csr32(2, 2, starts, columns);
  ck_ok(dfgnn_csr_write(&csr, file_path("good.mtx")));
  csr.offsets = falling;
  not_written(&csr, "csr.offsets[2] is 1, expected 2..2");
  csr.offsets = beyond;
  not_written(&csr, "csr.offsets[2] is 900000, expected 1..2");
  csr.offsets = late;
  not_written(&csr, "csr.offsets[0] is 1, expected 0");
  csr.offsets = starts;
  csr.indices = outside;
  not_written(&csr, "row 1: csr.indices[1] is 7, expected 0..1");
  csr.indices = NULL;
  not_written(&csr, "csr.offsets or csr.indices is NULL");
  csr.indices = columns;
  csr.edges = 3;
  not_written(&csr, "csr.offsets end at 2, expected 3 edges");
  csr.edges = 2;
  csr.index_type = (dfgnn_index_type)7;
  not_written(&csr, "csr.index_type 7, expected DFGNN_INDEX_I32");
  csr.index_type = DFGNN_INDEX_I32;
  csr.destinations = -1;
  not_written(&csr, "csr is -1 x 2");
  csr.destinations = 2;
  csr.struct_size = 1;
  char text[80];
  snprintf(text, sizeof text,
           "csr.struct_size is 1, expected %zu: use DFGNN_CSR_INIT",
           sizeof csr);
  not_written(&csr, text);
}

TEST_MAIN("io_hostile", FILE_TESTS)
