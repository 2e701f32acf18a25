#include "tests/unit/files.h"

static const int64_t square3[] = {3, 3};
static const int32_t offsets3[] = {0, 2, 2, 4, 0}, indices4[] = {2, 0, 1, 1};
static const char ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

/* The arrays of a good file; each test spoils one of them. */
enum { FORMAT, SHAPE, DATA, INDICES, INDPTR, EXTRA, ARRAYS };
/* clang-format off */
#define GOOD                                                                   \
  {                                                                            \
    {"format", "'|S3'", "()", "csr", 3},                                       \
    {"shape", "'<i8'", "(2,)", square3, sizeof square3},                       \
    {"data", "'|i1'", "(4,)", ones, 4},                                        \
    {"indices", "'<i4'", "(4,)", indices4, sizeof indices4},                   \
    {"indptr", "'<i4'", "(4,)", offsets3, 16},                                 \
    {NULL, NULL, NULL, NULL, 0},                                               \
    {NULL, NULL, NULL, NULL, 0}                                                \
  }
/* clang-format on */

TEST(rows_keep_the_order_of_their_columns) {
  npz_array a[ARRAYS + 1] = GOOD;
  reads_as(put_npz("a.npz", a), 3, "2 0||1 1");
}

TEST(wide_arrays_and_unicode_names_are_read) {
  static const int64_t offsets[] = {0, 2, 2, 4}, indices[] = {2, 0, 1, 1};
  npz_array a[ARRAYS + 1] = GOOD;
  a[FORMAT] = (npz_array){"format", "'<U3'", "()", "c\0\0\0s\0\0\0r\0\0\0", 12};
  a[INDICES] = (npz_array){"indices", "'<i8'", "(4,)", indices, sizeof indices};
  a[INDPTR] = (npz_array){"indptr", "'<i8'", "(4,)", offsets, sizeof offsets};
  reads_as(put_npz("a.npz", a), 3, "2 0||1 1");
}

TEST(graph_ptr_makes_a_batch) {
  static const int32_t starts[] = {0, 1, 3};
  npz_array a[ARRAYS + 1] = GOOD;
  a[EXTRA] = (npz_array){"graph_ptr", "'<i4'", "(3,)", starts, sizeof starts};
  dfgnn_csr *csr = read_graph(put_npz("a.npz", a));
  ck_assert_int_eq(csr->graphs, 2);
  ck_assert_int_eq(csr->graph_ptr[1], 1);
  ck_assert_int_eq(csr->graph_ptr[2], 3);
}

TEST(a_graph_without_rows_is_read) {
  static const int64_t shape[] = {0, 5};
  npz_array a[ARRAYS + 1] = GOOD;
  a[SHAPE].data = shape;
  a[DATA] = (npz_array){"data", "'|i1'", "(0,)", "", 0};
  a[INDICES] = (npz_array){"indices", "'<i4'", "(0,)", "", 0};
  a[INDPTR] = (npz_array){"indptr", "'<i4'", "(1,)", offsets3, 4};
  reads_as(put_npz("a.npz", a), 5, "");
}

/* The last two bytes of an archive without a comment say how long it is. */
TEST(a_file_that_is_cut_in_its_comment_is_refused) {
  npz_array a[ARRAYS + 1] = GOOD;
  const char *path = put_npz("a.npz", a);
  FILE *file = fopen(path, "r+b");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, -2, SEEK_END), 0);
  ck_assert_int_eq((int)fwrite("\x0a\0", 1, 2, file), 2);
  ck_assert_int_eq(fclose(file), 0);
  refused(path, "the end of a zip archive cut off");
  file = fopen(path, "ab");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs("a comment.", file), 0);
  ck_assert_int_eq(fclose(file), 0);
  reads_as(path, 3, "2 0||1 1");
}

TEST(a_pickled_array_is_never_loaded) {
  npz_array a[ARRAYS + 1] = GOOD;
  a[INDICES].type = "'|O'";
  refused(put_npz("a.npz", a),
          "array 'indices': found a pickled array of Python objects");
  a[INDICES].type = "'<i4'";
  a[DATA].type = "'|O'";
  refused(put_npz("b.npz", a), "array 'data': found a pickled array");
}

TEST(wrong_types_are_named) {
  static const char *const types[] = {"'<f8'", "'>i4'", "'<u4'", "'<i2'",
                                      "'|S4'"};
  for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
    char text[64];
    npz_array a[ARRAYS + 1] = GOOD;
    a[INDPTR].type = types[k];
    snprintf(text, sizeof text,
             "array 'indptr': found type %s, expected '<i4' or '<i8'",
             types[k]);
    refused(put_npz("a.npz", a), text);
  }
  static const char *const no_numbers[] = {"'|S9999999999'", "'|S1'", "'<U1'",
                                           "'<M8[ns]'", "'|i'"};
  for (size_t k = 0; k < sizeof no_numbers / sizeof *no_numbers; k++) {
    char text[64];
    npz_array a[ARRAYS + 1] = GOOD;
    a[DATA].type = no_numbers[k];
    snprintf(text, sizeof text, "array 'data': found type %s, expected numbers",
             no_numbers[k]);
    refused(put_npz("c.npz", a), text);
    a[DATA].type = "'|i1'";
    a[FORMAT].type = "'|S9999999999'";
    refused(put_npz("d.npz", a), "array 'format': found type '|S9999999999'");
  }
  npz_array a[ARRAYS + 1] = GOOD;
  a[INDICES].type = "[('a', '<i4')]";
  refused(put_npz("b.npz", a), "array 'indices': found a structured type");
}

TEST(lying_sizes_are_refused) {
  npz_array a[ARRAYS + 1] = GOOD;
  a[INDICES].size = 12;
  refused(put_npz("a.npz", a),
          "array 'indices': found fewer bytes than the 4 elements");
  a[INDICES].shape = "(3,)";
  refused(put_npz("b.npz", a), "found 3 elements, expected 4, the last of");
  a[INDICES].size = sizeof indices4;
  a[INDICES].shape = "(2,)";
  refused(put_npz("g.npz", a), "found more bytes than the 2 elements");
  a[INDICES].shape = "(1000000000000,)";
  refused(put_npz("c.npz", a),
          "found 1000000000000 elements, expected at most");
  a[INDICES].shape = "(9223372036854775807, 9223372036854775807)";
  refused(put_npz("d.npz", a), "found a shape that is no tuple");
  a[INDICES].shape = "(4,)";
  a[DATA].shape = "(5,)";
  refused(put_npz("e.npz", a), "array 'data': found 5 elements, expected 4");
  a[DATA].shape = "(4,)";
  a[INDPTR].size = 20;
  refused(put_npz("f.npz", a), "array 'indptr': found");
}

TEST(shapes_and_offsets_must_agree) {
  static const int64_t shapes[][2] = {{4, 3}, {-1, 3}, {3, INT64_MAX}};
  static const char *const texts[] = {"expected one more than the 4 rows",
                                      "found -1 x 3", "expected rows >= 0"};
  for (int k = 0; k < 3; k++) {
    npz_array a[ARRAYS + 1] = GOOD;
    a[SHAPE].data = shapes[k];
    refused(put_npz("a.npz", a), texts[k]);
  }
  static const int32_t falling[] = {0, 2, 1, 4}, late[] = {1, 2, 2, 4};
  npz_array a[ARRAYS + 1] = GOOD;
  a[INDPTR].data = falling;
  refused(put_npz("b.npz", a), "array 'indptr': found 1 at 2, expected at "
                               "least 2");
  a[INDPTR].data = late;
  refused(put_npz("c.npz", a), "array 'indptr': found 1 at 0, expected 0");
}

TEST(columns_out_of_range_are_named) {
  static const int32_t big[] = {2, 0, 3, 1}, negative[] = {2, -1, 0, 1};
  npz_array a[ARRAYS + 1] = GOOD;
  a[INDICES].data = big;
  refused(put_npz("a.npz", a),
          "array 'indices': found column 3 at 2, expected 0 to 2");
  a[INDICES].data = negative;
  refused(put_npz("b.npz", a), "found column -1 at 1");
}

TEST(graph_ptr_must_cover_the_rows) {
  static const int32_t starts[] = {0, 1, 2};
  static const int64_t wide[] = {3, 4};
  npz_array a[ARRAYS + 1] = GOOD;
  a[EXTRA] = (npz_array){"graph_ptr", "'<i4'", "(3,)", starts, sizeof starts};
  refused(put_npz("a.npz", a),
          "array 'graph_ptr': found 2 as its last element, expected 3");
  a[SHAPE].data = wide;
  refused(put_npz("b.npz", a), "expected a square matrix");
  a[SHAPE].data = square3;
  a[EXTRA] = (npz_array){"graph_ptr", "'<i4'", "(0,)", "", 0};
  refused(put_npz("c.npz", a), "array 'graph_ptr': found");
}

TEST(other_formats_and_archives_are_named) {
  npz_array a[ARRAYS + 1] = GOOD;
  a[FORMAT].data = "csc";
  refused(put_npz("a.npz", a), "array 'format': found 'csc', expected 'csr'");
  npz_array features[] = {{"x_indptr", "'<i4'", "(4,)", offsets3, 16},
                          {"y", "'<i4'", "(4,)", indices4, 16},
                          {NULL, NULL, NULL, NULL, 0}};
  refused(put_npz("b.npz", features),
          "found arrays x_indptr, y, expected 'indptr'");
}

TEST(headers_that_are_no_dictionary_are_refused) {
  static const char *const shapes[] = {"(4", "4", "(4.0,)", "(1,2,3)", "()x"};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    npz_array a[ARRAYS + 1] = GOOD;
    a[INDICES].shape = shapes[k];
    refused(put_npz("a.npz", a), "array 'indices': found");
  }
}

TEST(a_truncated_archive_is_refused) {
  npz_array a[ARRAYS + 1] = GOOD;
  const char *path = put_npz("a.npz", a);
  struct stat about;
  ck_assert_int_eq(stat(path, &about), 0);
  ck_assert_int_eq(truncate(path, about.st_size / 2), 0);
  refused(path, "found no zip directory");
}

TEST(a_flipped_bit_is_found) {
  npz_array a[ARRAYS + 1] = GOOD;
  const char *path = put_npz("a.npz", a);
  char bytes[4096];
  FILE *file = fopen(path, "rb");
  size_t size = fread(bytes, 1, sizeof bytes, file), at = 0;
  fclose(file);
  while (memcmp(bytes + at, "indptr.npy", 10))
    at++;
  bytes[at + 40] ^= 4; /* within the deflated header and data */
  refused(put_bytes("b.npz", bytes, size), "array 'indptr': found");
}

/* 128 MiB of zeros as indptr pack into 130 KB; 64 MiB plus 256 times that are
 * less. */
TEST(a_zip_bomb_stops_at_the_limit) {
  size_t size = (size_t)1 << 27;
  void *zeros = calloc(1, size);
  static const int64_t shape[] = {(1 << 25) - 1, 3};
  npz_array a[ARRAYS + 1] = GOOD;
  a[SHAPE].data = shape;
  a[INDPTR] = (npz_array){"indptr", "'<i4'", "(33554432,)", zeros, size};
  refused(put_npz("a.npz", a), "found 33554431 rows, expected fewer than");
  free(zeros);
}

TEST_MAIN("io_npz", FILE_TESTS)
