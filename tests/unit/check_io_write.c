#include "tests/unit/files.h"

static const int32_t offsets[] = {0, 2, 2, 3, 3}, indices[] = {3, 0, 2};

static void same_after(const dfgnn_csr *csr, const char *name) {
  char rows[4096];
  strcpy(rows, csr_text(csr));
  ck_ok(dfgnn_csr_write(csr, file_path(name)));
  reads_as(file_path(name), csr->sources, rows);
}

TEST(what_is_written_reads_back) {
  dfgnn_csr csr = csr32(4, 4, offsets, indices);
  static const char *const sorted[] = {"a.mtx",    "a.mtx.gz", "a.txt",
                                       "a.txt.gz", "a.csv",    "a.csv.gz",
                                       "a.tsv",    "a.tsv.gz"};
  const int32_t ascending[] = {0, 3, 2};
  same_after(&csr, "a.npz");
  csr.indices = ascending; /* text formats sort */
  for (size_t k = 0; k < sizeof sorted / sizeof *sorted; k++)
    same_after(&csr, sorted[k]);
}

TEST(a_file_of_another_kind_is_not_replaced) {
  static const char *const names[] = {"a.npz",      "a.mtx",    "a.mtx.gz",
                                      "a.graph",    "a.txt",    "a.txt.gz",
                                      "a.graph.gz", "a.csv.gz", "a.tsv"};
  const int32_t o[] = {0, 1, 3, 4, 4}, i[] = {1, 0, 2, 1};
  dfgnn_csr csr = csr32(4, 4, o, i);
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    const char *path = put_text(names[k], "my thesis");
    ck_invalid(dfgnn_csr_write(&csr, path),
               "is not replaced by one: it begins with 'my thesis'");
    char text[16] = "";
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
    fclose(file);
    ck_assert_str_eq(text, "my thesis");
    put_text(names[k], "");
    same_after(&csr, names[k]);
    same_after(&csr, names[k]);
  }
}

TEST(rectangular_graphs_read_back) {
  dfgnn_csr csr = csr32(4, 9, offsets, indices);
  same_after(&csr, "a.npz");
  const int32_t ascending[] = {0, 3, 2};
  csr.indices = ascending;
  same_after(&csr, "a.mtx");
}

TEST(undirected_graphs_read_back_from_metis) {
  const int32_t o[] = {0, 1, 3, 4, 4}, i[] = {1, 0, 2, 1};
  dfgnn_csr csr = csr32(4, 4, o, i);
  same_after(&csr, "a.graph");
  same_after(&csr, "a.graph.gz");
}

TEST(empty_graphs_read_back) {
  static const char *const names[] = {"a.npz", "a.mtx", "a.txt", "a.graph"};
  const int32_t zeros[4] = {0};
  for (size_t k = 0; k < 4; k++)
    for (int64_t n = 0; n < 4; n += 3) {
      dfgnn_csr csr = csr32(n, n, zeros, zeros);
      same_after(&csr, names[k]);
    }
}

TEST(wide_arrays_read_back) {
  const int64_t o[] = {0, 1, 2}, i[] = {1, 0};
  static const char *const names[] = {"a.npz", "a.mtx", "a.txt", "a.graph"};
  dfgnn_csr csr = csr32(2, 2, offsets, indices);
  csr.edges = 2;
  csr.offsets = o;
  csr.indices = i;
  csr.offset_type = csr.index_type = DFGNN_INDEX_I64;
  for (size_t k = 0; k < 4; k++)
    same_after(&csr, names[k]);
}

TEST(graph_ptr_reads_back_from_npz) {
  const int64_t starts[] = {0, 0, 4};
  dfgnn_csr csr = csr32(4, 4, offsets, indices), *back = NULL;
  csr.graphs = 2;
  csr.graph_ptr = starts;
  ck_ok(dfgnn_csr_write(&csr, file_path("a.npz")));
  ck_ok(dfgnn_csr_read(&back, file_path("a.npz")));
  ck_assert_int_eq(back->graphs, 2);
  ck_assert_mem_eq(back->graph_ptr, starts, sizeof starts);
  dfgnn_csr_free(back);
}

TEST(what_a_format_cannot_hold_is_refused) {
  dfgnn_csr csr = csr32(4, 4, offsets, indices);
  ck_invalid(dfgnn_csr_write(&csr, file_path("a.graph")),
             "not symmetric, expected an undirected one");
  csr.sources = 9;
  ck_invalid(dfgnn_csr_write(&csr, file_path("a.txt")),
             "found 4 x 9 nodes, expected a square graph");
  ck_invalid(dfgnn_csr_write(&csr, file_path("a.xyz")),
             "found no known extension, expected .npz");
  csr.on_device = 1;
  ck_invalid(dfgnn_csr_write(&csr, file_path("a.npz")),
             "csr.on_device is set, expected host arrays");
}

TEST(symmetry_counts_both_directions) {
  const int32_t o[] = {0, 2, 3, 4};
  const int32_t both[] = {2, 1, 0, 0}, one[] = {2, 1, 0, 1};
  const int32_t doubled[] = {1, 1, 0, 2};
  dfgnn_csr csr = csr32(3, 3, o, both);
  ck_assert_int_eq(dfgnn__csr_symmetric(&csr), 1);
  csr.indices = one;
  ck_assert_int_eq(dfgnn__csr_symmetric(&csr), 0);
  csr.indices = doubled;
  ck_assert_int_eq(dfgnn__csr_symmetric(&csr), 0);
}

TEST_MAIN("io_write", FILE_TESTS)
