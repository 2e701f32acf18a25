#include "tests/unit/files.h"

#define MM "%%MatrixMarket matrix coordinate "

TEST(a_missing_file_and_a_directory_are_named) {
  dfgnn_csr *csr = NULL;
  ck_fails(dfgnn_csr_read(&csr, file_path("none.mtx")), DFGNN_ERROR_IO,
           "none.mtx: cannot open: No such file");
  ck_fails(dfgnn_csr_read(&csr, files_directory), DFGNN_ERROR_IO,
           "found a directory, expected a graph file");
  ck_invalid(dfgnn_csr_read(&csr, NULL), "path is NULL");
  ck_invalid(dfgnn_csr_read(NULL, "x"), "csr is NULL");
}

TEST(an_unknown_name_lists_the_formats) {
  refused(put_text("a.xyz", "0 1\n"), "expected .npz, or .mtx, .graph, .txt");
  refused(put_text("a.npz", "0 1\n"), "found no zip archive");
}

TEST(a_truncated_text_says_how_much_is_there) {
  refused(put_text("a.mtx", MM "pattern general\n3 3 3\n1 1\n2 2\n"),
          "found the end of the file after 2 entries, expected 3");
  refused(put_text("b.mtx", MM "real general\n3 3 1\n1 1"),
          "line 3: found the end of the file, expected a value");
  refused(put_text("c.mtx", MM "pattern general\n3 3"),
          "line 2: found the end of the file, expected the number of entries");
  refused(put_text("d.mtx", "%%MatrixMarket matrix coord"),
          "line 1: found 'coord', expected coordinate");
  refused(put_text("a.graph", "3 2\n2 3\n"), "found 2 neighbours, expected 4");
  refused(put_text("d.graph", "3 1 10\n7 2\n7 1\n"),
          "found the end of the file after 2 nodes, expected 3");
  refused(put_text("b.graph", "3 2\n2\n1\n\n"),
          "found 2 neighbours, expected 4");
  refused(put_text("a.txt", "0 1\n5\n"),
          "line 2: found the end of the line, expected the destination, a "
          "whole number");
  refused(put_text("a.mtx", ""), "line 1: found ''");
  refused(put_text("c.graph", ""),
          "found the end of the file, expected the number of nodes");
}

TEST(more_than_the_header_says_is_refused) {
  refused(put_text("a.mtx", MM "pattern general\n2 2 1\n1 1\n2 2\n"),
          "line 4: found '2', expected the end of the file");
  refused(put_text("b.mtx", MM "pattern general\n2 2 1\n1 1 1.5\n"),
          "line 3: found '1.5', expected the end of the line");
  refused(put_text("a.graph", "1 0\n\n7\n"),
          "line 3: found '7', expected the end of the file");
}

TEST(binary_text_names_the_byte) {
  refused(put_bytes("a.txt", "0 1\n\0\1\2", 7),
          "line 2: found the byte 0x00, expected the source");
  refused(put_bytes("c.txt", "0 1\0\n", 5),
          "line 1: found the byte 0x00, expected the destination");
  refused(put_bytes("b.txt",
                    "\x7f"
                    "ELF\2\1\1",
                    7),
          "found the byte 0x7f");
  refused(put_bytes("a.mtx", "\xff\xfe\0x", 4), "line 1: found '");
  refused(put_bytes("a.graph", "2 1\n2\n\xc3\xa9", 8),
          "line 3: found the byte 0xc3, expected a neighbour");
}

TEST(a_huge_header_allocates_nothing) {
  refused(put_text("a.mtx", MM "pattern general\n2000000000 2000000000 "
                               "1000000000000000\n1 1\n"),
          "found 2000000000 rows, expected fewer than");
  refused(put_text("b.mtx", MM "pattern general\n3 3 1000000000000000\n1 1\n"),
          "found the end of the file after 1 entries, expected "
          "1000000000000000");
  refused(put_text("c.mtx", MM "pattern general\n99999999999 1 1\n1 1\n"),
          "found 99999999999 as the number of rows, expected 0 to 2147483647");
  refused(put_text("d.mtx", MM "pattern general\n99999999999999999999 1 1\n"),
          "found an integer beyond 64 bits (99999999999999999999)");
  refused(put_text("e.mtx", MM "pattern general\n2 2 1\n"
                               "9223372036854775807 1\n"),
          "line 3: found row 9223372036854775807, expected 1 to 2");
  refused(put_text("a.graph", "2000000000 5\n\n"), "found 2000000000 rows");
  refused(put_text("f.mtx", MM "pattern general\n1 2147483647 1\n1 7\n"),
          "found 2147483647 columns, expected fewer than");
  refused(put_text("a.txt", "0 2147483646\n"), "found 2147483647 rows");
  refused(put_text("b.txt", "# Nodes: 1000000000000\n0 1\n"),
          "found 1000000000000 rows");
}

TEST(negative_numbers_are_named) {
  refused(put_text("a.mtx", MM "pattern general\n2 2 1\n-1 1\n"),
          "line 3: found row -1, expected 1 to 2");
  refused(put_text("b.mtx", MM "pattern general\n-2 2 1\n1 1\n"),
          "line 2: found -2 as the number of rows");
  refused(put_text("a.txt", "0 -3\n"),
          "line 1: found destination -3, expected 0 to 2147483646");
  refused(put_text("a.graph", "2 1\n-2\n1\n"),
          "line 2: found neighbour -2, expected 1 to 2");
  refused(put_text("b.graph", "2 -1\n\n\n"), "found edges -1");
}

TEST(numbers_out_of_range_are_named) {
  refused(put_text("a.mtx", MM "pattern general\n2 3 1\n1 4\n"),
          "line 3: found column 4, expected 1 to 3");
  refused(put_text("b.mtx", MM "pattern general\n2 3 1\n0 1\n"),
          "line 3: found row 0, expected 1 to 2");
  refused(put_text("a.graph", "2 1\n3\n1\n"),
          "line 2: found neighbour 3, expected 1 to 2");
  refused(put_text("a.txt", "0 2147483647\n"), "found destination 2147483647");
}

TEST(text_that_is_no_number_is_named) {
  refused(put_text("a.mtx", MM "pattern general\n2 2 1\none 1\n"),
          "line 3: found 'one', expected the row, a whole number from 1");
  refused(put_text("b.mtx", MM "real general\n2 2 1\n1 1 much\n"),
          "found 'much', expected a value");
  refused(put_text("c.mtx", MM "pattern general\n2 2 1\n1.5 1\n"),
          "found '1.5', expected the row, a whole number");
  refused(put_text("a.txt", "a b\n"),
          "line 1: found 'a', expected the source, a whole number from 0");
  refused(put_text("half.txt", "0.5 1\n"),
          "line 1: found '0.5', expected the source, a whole number from 0");
  refused(put_text("a.csv", "from,to\nfrom,to\n"),
          "line 2: found 'from', expected the source");
  refused(put_text("a.graph", "two 1\n"), "found 'two', expected the number");
}

TEST(matrix_market_headers_say_what_is_supported) {
  refused(put_text("a.mtx", "1 1 1\n"), "expected '%%MatrixMarket matrix");
  refused(put_text("b.mtx", "%%MatrixMarket vector coordinate real general\n"),
          "found 'vector', expected matrix");
  refused(put_text("c.mtx", "%%MatrixMarket matrix array real general\n"),
          "found 'array', expected coordinate");
  refused(put_text("d.mtx", MM "quaternion general\n"),
          "found 'quaternion', expected pattern, real");
  refused(put_text("e.mtx", MM "real diagonal\n"),
          "found 'diagonal', expected general");
  refused(put_text("f.mtx", MM "pattern symmetric\n2 3 0\n"),
          "found 2 rows and 3 columns, expected as many");
  refused(put_text("g.mtx", MM "real skew-symmetric\n2 2 1\n1 1 0\n"),
          "found the diagonal entry 1, expected none");
}

TEST(metis_formats_say_what_is_supported) {
  refused(put_text("a.graph", "2 1 2\n2\n1\n"), "found the format 2");
  refused(put_text("b.graph", "2 1 11 9999\n2\n1\n"),
          "found node weights 9999");
  refused(put_text("c.graph", "2 1 1\n2\n1\n"),
          "found the end of the line, expected the weight of an edge");
}

TEST(a_damaged_gzip_stream_is_refused) {
  refused(put_bytes("b.txt.gz", "\x1f\x8b\x08\0\0\0\0\0\0\3garbage", 17),
          "found a damaged gzip stream");
}

/* 80 MiB of comments pack into less than 100 KiB. */
TEST(a_gzip_bomb_stops_at_the_limit) {
  const char *path = file_path("bomb.txt.gz");
  gzFile file = gzopen(path, "wb9");
  char block[1 << 16];
  memset(block, '#', sizeof block);
  for (int k = 0; k < 80 << 4; k++)
    ck_assert_int_eq(gzwrite(file, block, sizeof block), sizeof block);
  ck_assert_int_eq(gzclose(file), Z_OK);
  /* below 64 MiB + 256 times its size */
  ck_assert_int_eq(read_graph(path)->edges, 0);
  setenv("DFGNN_MAX_FILE", "79M", 1);
  refused(path, "found more than 82837504 bytes of text");
  setenv("DFGNN_MAX_FILE", "80M", 1);
  read_graph(path);
  unsetenv("DFGNN_MAX_FILE");
}

/* The limit is 64 MiB plus 256 times the size of the file.  About 1000 newlines
 * pack into a byte, so 96 MiB of them are beyond it. */
TEST(the_default_limit_follows_the_size_of_the_file) {
  const char *path = file_path("bomb.txt.gz");
  gzFile file = gzopen(path, "wb9");
  static char block[1 << 20];
  memset(block, '\n', sizeof block);
  for (int k = 0; k < 96; k++)
    ck_assert_int_eq(gzwrite(file, block, sizeof block), sizeof block);
  ck_assert_int_eq(gzclose(file), Z_OK);
  struct stat about;
  ck_assert_int_eq(stat(path, &about), 0);
  int64_t limit = (INT64_C(64) << 20) + 256 * (int64_t)about.st_size;
  ck_assert_int_lt(limit, INT64_C(96) << 20);
  char expected[64];
  snprintf(expected, sizeof expected, "found more than %lld bytes",
           (long long)limit);
  refused(path, expected);
}

TEST(a_wrong_limit_is_named) {
  const char *path = put_text("a.txt", "0 1\n");
  static const char *const wrong[] = {
      "0", "-1", "5X", "1GB", "many", "99999999999999999999", "9999999999T"};
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    dfgnn_csr *csr = NULL;
    setenv("DFGNN_MAX_FILE", wrong[k], 1);
    ck_invalid(dfgnn_csr_read(&csr, path), "DFGNN_MAX_FILE is '");
  }
  setenv("DFGNN_MAX_FILE", "1K", 1);
  reads_as(path, 2, "|0");
  unsetenv("DFGNN_MAX_FILE");
}

TEST_MAIN("io_bad", FILE_TESTS)
