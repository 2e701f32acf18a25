#include "tests/unit/files.h"

#define MM "%%MatrixMarket matrix coordinate "

TEST(matrix_market_rows_attend_to_columns) {
  reads_as(put_text("a.mtx", MM "pattern general\n% words\n\n2 3 3\n"
                                "1 3\n2 1\n1 1\n"),
           3, "0 2|0");
}

TEST(matrix_market_values_are_skipped) {
  reads_as(put_text("a.mtx", MM "real general\n2 2 2\n1 2 -1.5e-3\n2 2 0\n"), 2,
           "1|1");
  reads_as(put_text("b.mtx", MM "integer general\n2 2 1\n1 2 7\n"), 2, "1|");
  reads_as(put_text("c.mtx", MM "complex general\n2 2 1\n1 2 1 nan\n"), 2,
           "1|");
  /* as scipy writes what has no sign */
  reads_as(put_text("d.mtx", MM "unsigned-integer general\n2 2 1\n1 2 7\n"), 2,
           "1|");
}

TEST(one_percent_sign_will_do) {
  static const char text[] = "%MatrixMarket matrix coordinate pattern general\n"
                             "2 2 1\n1 2\n";
  reads_as(put_text("a.mtx", text), 2, "1|");
  reads_as(put_text("noname", text), 2, "1|");
}

/* Old Macs end lines by CR, and DOS by CR LF. */
TEST(every_end_of_a_line_is_one) {
  reads_as(put_text("a.txt", "0 1\r1 2\r2 0\r"), 3, "2|0|1");
  reads_as(put_text("b.txt", "0 1\r\n1 2\r\n2 0"), 3, "2|0|1");
  reads_as(put_text("c.txt", "# Nodes: 4\r0 1 weight\r\n1 2\n2 0\r"), 4,
           "2|0|1|");
  reads_as(put_text("a.csv", "from,to\r0,1\r"), 2, "|0");
  reads_as(put_text("a.mtx", MM "pattern general\r% words\r2 2 1\r1 2\r"), 2,
           "1|");
  reads_as(put_text("a.graph", "3 1\r\n2\r\n1\r\n\r\n"), 3, "1|0|");
  reads_as(put_text("b.graph", "3 1\r2\r1\r\r"), 3, "1|0|");
  dfgnn_csr *csr = NULL;
  ck_fails(dfgnn_csr_read(&csr, put_text("d.txt", "0 1\r1 2\rx 0\r")),
           DFGNN_ERROR_FORMAT, "line 3: found 'x'");
}

TEST(symmetric_entries_stand_for_both_directions) {
  reads_as(put_text("a.mtx", MM "pattern symmetric\n3 3 3\n2 1\n3 2\n3 3\n"), 3,
           "1|0 2|1 2");
  reads_as(put_text("b.mtx", MM "real skew-symmetric\n2 2 1\n2 1 4\n"), 2,
           "1|0");
  reads_as(put_text("c.mtx", MM "complex hermitian\n2 2 1\n2 1 4 1\n"), 2,
           "1|0");
}

TEST(header_words_may_be_in_any_case) {
  reads_as(put_text("a.mtx", "%%matrixmarket MATRIX Coordinate PATTERN "
                             "General\r\n1 1 1\r\n1 1\r\n"),
           1, "0");
}

TEST(duplicate_edges_are_kept) {
  reads_as(put_text("a.mtx", MM "pattern general\n1 2 3\n1 2\n1 1\n1 2\n"), 2,
           "0 1 1");
  reads_as(put_text("a.txt", "0 1\n0 1\n"), 2, "|0 0");
}

TEST(a_list_says_source_then_destination) {
  reads_as(put_text("a.txt", "# SNAP\n0\t1\n2 1\n% KONECT\n0 2\n"), 3,
           "|0 2|0");
}

TEST(a_table_may_have_a_header_and_more_columns) {
  reads_as(put_text("a.csv", "id_1,id_2,weight\n0, 1,0.5\n1,0,x\n"), 2, "1|0");
  reads_as(put_text("b.csv", "\"a\";\"b\"\n0;1\n"), 2, "|0");
  reads_as(put_text("c.tsv", "0\t1\t1082040961\n"), 2, "|0");
}

TEST(a_byte_order_mark_is_no_text) {
  reads_as(put_text("a.csv", "\xef\xbb\xbfid_1,id_2\n0,1\n1,0\n"), 2, "1|0");
  reads_as(put_text("b.txt", "\xef\xbb\xbf"
                             "0 1\n"),
           2, "|0");
  reads_as(put_text("c.mtx", "\xef\xbb\xbf" MM "pattern general\n1 1 1\n1 1\n"),
           1, "0");
  reads_as(put_text("d.txt", "\xef\xbb\xbf"), 0, "");
}

TEST(a_list_without_a_last_newline_is_whole) {
  reads_as(put_text("a.txt", "0 1\n1 0"), 2, "1|0");
}

TEST(a_nodes_comment_keeps_trailing_nodes) {
  reads_as(put_text("a.txt", "# Nodes: 4 Edges: 1\n0 1\n"), 4, "|0||");
  reads_as(put_text("b.txt", "# Nodes: 1 Edges: 1\n0 1\n"), 2, "|0");
}

TEST(metis_lines_are_rows) {
  reads_as(put_text("a.graph", "% words\n3 2\n2 3\n1\n% more\n1\n"), 3,
           "1 2|0|0");
  reads_as(put_text("b.graph", "3 1\n2\n1\n\n"), 3, "1|0|");
  /* editors cut empty lines off, and the end of the last */
  reads_as(put_text("c.graph", "4 1\n2\n1"), 4, "1|0||");
}

TEST(metis_weights_are_skipped) {
  reads_as(put_text("a.graph", "2 1 1\n2 50\n1 50\n"), 2, "1|0");
  reads_as(put_text("b.graph", "2 1 10\n7 2\n7 1\n"), 2, "1|0");
  reads_as(put_text("c.graph", "2 1 111 2\n9 7 8 2 50\n9 7 8 1 50\n"), 2,
           "1|0");
}

TEST(every_text_format_may_be_gzip) {
  reads_as(put_gzip("a.mtx.gz", MM "pattern general\n1 1 1\n1 1\n"), 1, "0");
  reads_as(put_gzip("edge.csv.gz", "0,1\n1,0\n"), 2, "1|0");
  reads_as(put_gzip("a.txt.gz", "0 1\n"), 2, "|0");
  reads_as(put_gzip("a.graph.gz", "2 1\n2\n1\n"), 2, "1|0");
}

TEST(content_goes_before_the_name) {
  reads_as(put_text("a.txt", MM "pattern general\n1 2 1\n1 2\n"), 2, "1");
  reads_as(put_text("noname", MM "pattern general\n1 2 1\n1 2\n"), 2, "1");
}

TEST(graphs_without_rows_or_edges_are_graphs) {
  reads_as(put_text("a.mtx", MM "pattern general\n0 0 0\n"), 0, "");
  reads_as(put_text("b.mtx", MM "pattern general\n2 5 0\n"), 5, "|");
  reads_as(put_text("a.txt", "# nothing\n"), 0, "");
  reads_as(put_text("a.graph", "0 0\n"), 0, "");
  reads_as(put_text("b.graph", "2 0\n\n\n"), 2, "|");
}

TEST(the_name_is_the_base_name) {
  dfgnn_csr *csr = read_graph(put_gzip("road.v2.csv.gz", "0,1\n"));
  ck_assert_str_eq(csr->name, "road.v2");
  ck_assert_int_eq(csr->offset_type, DFGNN_INDEX_I32);
  ck_assert_int_eq(csr->index_type, DFGNN_INDEX_I32);
}

/* Long rows are sorted in another way than short ones. */
TEST(columns_of_a_row_ascend) {
  char *text = malloc(1 << 20), *end = text;
  uint64_t state = 12345;
  for (int e = 0; e < 20000; e++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    end += sprintf(end, "%d %d\n", (int)(state >> 33) % 70000, e % 7);
  }
  dfgnn_csr *csr = read_graph(put_text("a.txt", text));
  ck_assert_int_eq(csr->edges, 20000);
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i) + 1;
         e < dfgnn__csr_offset(csr, i + 1); e++)
      ck_assert_int_le(dfgnn__csr_index(csr, e - 1), dfgnn__csr_index(csr, e));
  free(text);
}

/* Text is read in pieces of 64 KiB: lines lie across their ends. */
static void reads_lines(const char *line) {
  size_t lines = 200000;
  char *text = malloc(lines * 16), *end = text;
  for (size_t e = 0; e < lines; e++)
    end += sprintf(end, "%zu %zu%s", e % 1009, e % 1013, line);
  dfgnn_csr *csr = read_graph(put_text("a.txt", text));
  ck_assert_int_eq(csr->edges, (int64_t)lines);
  ck_assert_int_eq(csr->destinations, 1013);
  int64_t sum = 0, expected = 0;
  for (size_t e = 0; e < lines; e++) {
    sum += dfgnn__csr_index(csr, (int64_t)e);
    expected += (int64_t)(e % 1009);
  }
  ck_assert_int_eq(sum, expected);
  free(text);
}

TEST(lines_across_buffers_are_whole) {
  reads_lines("\n");
  reads_lines("\r\n");
  reads_lines("\r");
}

TEST_MAIN("io_text", FILE_TESTS)
