/* check_store.c - rows, pins, filters and merges of a store */
#include <float.h>
#include <math.h>

#include "tests/unit/store_fixture.h"

static const char *random_text(uint64_t *seed, const dfgnn_field *field,
                               char *buffer) {
  static const char *const letters[] = {"a", "Z", "0", "=", "/", ",", ".", "-"};
  static const char *const more[] = {
      " ", "\"", "\\", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
      "'", "%"};
  if (strcmp(field->name, "run") == 0) {
    snprintf(buffer, 40, "%016llx%016llx",
             (unsigned long long)random_next(seed),
             (unsigned long long)random_next(seed));
    return buffer;
  }
  if (field->choice)
    return field->choice[random_next(seed) % 2];
  size_t length = (size_t)field->low + random_next(seed) % 20, n = 0;
  if (field->kind == DFGNN_FIELD_NAME && length > (size_t)field->high)
    length = (size_t)field->high;
  while (n < length) {
    uint64_t x = random_next(seed);
    const char *c = field->kind == DFGNN_FIELD_TEXT && x % 3 == 0
                        ? more[x / 8 % 8]
                        : letters[x / 8 % 8];
    n += (size_t)sprintf(buffer + n, "%s", c);
  }
  buffer[n] = 0;
  return buffer;
}

static double random_real(uint64_t *seed, const dfgnn_field *field) {
  uint64_t x = random_next(seed);
  if (x % 8 == 0)
    return field->low;
  if (x % 8 == 1)
    return field->high;
  if (x % 8 == 2)
    return field->least > 0 ? field->least : DBL_MIN / 64; /* subnormal */
  return field->high * ((double)(x >> 11) / 9007199254740992.);
}

/* An integer of the range of a field; 0 for reals, whose range may not fit. */
static int64_t random_integer(uint64_t x, const dfgnn_field *field) {
  if (field->kind != DFGNN_FIELD_INT && field->kind != DFGNN_FIELD_INT64)
    return 0;
  int64_t limit = (int64_t)(field->high - field->low);
  return (int64_t)field->low +
         (limit > 0 ? (int64_t)(x % ((uint64_t)limit + 1)) : 0);
}

static dfgnn_measurement random_row(uint64_t *seed, char (*buffer)[256]) {
  dfgnn_measurement row;
  memset(&row, 0, sizeof row);
  row.signature.struct_size = sizeof row.signature;
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[g].field[i];
      void *slot = dfgnn__field_slot(field, &row);
      uint64_t x = random_next(seed);
      int64_t integer = random_integer(x, field);
      switch (field->kind) {
      case DFGNN_FIELD_NAME:
      case DFGNN_FIELD_TEXT:
        *(const char **)slot = random_text(seed, field, *buffer++);
        break;
      case DFGNN_FIELD_INT:
        *(int *)slot = (int)integer;
        break;
      case DFGNN_FIELD_INT64:
        *(int64_t *)slot = integer;
        break;
      case DFGNN_FIELD_UINT64:
        *(uint64_t *)slot = x;
        break;
      case DFGNN_FIELD_REAL:
        *(double *)slot = random_real(seed, field);
        break;
      case DFGNN_FIELD_REALS:
        for (int k = 0; k < DFGNN_HISTOGRAM_BINS; k++)
          ((double *)slot)[k] = random_real(seed, field);
        break;
      }
    }
  row.median_ms = fmax(row.median_ms, 1e-9);
  row.ratio = fmax(row.ratio, 1e-9);
  row.ratio_low = fmax(row.ratio_low, 1e-9);
  row.ci_high_ms = fmax(row.ci_low_ms, row.ci_high_ms);
  row.ratio_high = fmax(row.ratio_low, row.ratio_high);
  if (row.disturbed > row.samples)
    row.disturbed = row.samples;
  return row;
}

TEST(every_field_comes_back_bit_for_bit) {
  static char buffers[30][40][256];
  dfgnn_measurement rows[30];
  uint64_t invalid = 0, seed = (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)seed);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  for (int i = 0; i < 30; i++) {
    rows[i] = random_row(&seed, buffers[i]);
    ck_assert_int_eq(record(store, &rows[i]), 1);
  }
  for (int reopened = 0; reopened < 2; reopened++) {
    seen s = {rows, 0, 30, 0};
    ck_ok(dfgnn__store_each(store, &invalid, NULL, look_for, &s));
    ck_assert_uint_eq(s.count, 30);
    ck_assert_uint_eq(s.found, 30);
    ck_assert_uint_eq(invalid, 0);
    dfgnn__store_close(store);
    store = open_store(DFGNN_STORE_READ);
  }
  ck_assert_str_eq(dfgnn__store_path(store), path);
  dfgnn__store_close(store);
}

TEST(a_measurement_is_kept_once) {
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_assert_int_eq(record(store, &row), 1);
  ck_assert_int_eq(record(store, &row), 0);
  row.time++;
  ck_assert_int_eq(record(store, &row), 1);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 2);
}

TEST(a_store_in_memory_works_alike) {
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  dfgnn_store *store = NULL;
  ck_ok(dfgnn__store_open(&store, ":memory:", DFGNN_STORE_WRITE));
  ck_assert_int_eq(record(store, &row), 1);
  ck_assert_int_eq(record(store, &row), 0);
  seen s = {&row, 0, 1, 0};
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  ck_assert_uint_eq(s.found, 1);
  dfgnn__store_close(store);
  dfgnn__store_close(NULL);
}

TEST(free_text_is_cleaned_and_names_are_refused) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = rejected_of(RUN_A, "x", "wrong");
  char longest[4000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  row.reason = longest;
  row.host = "a\nb\x1b[31m\xff\xc3\xa9";
  row.job = NULL;
  row.rel_error = INFINITY;
  record(store, &row);
  dfgnn_measurement wanted = row;
  longest[1023] = 0;
  wanted.host = "a?b?[31m?\xc3\xa9";
  wanted.job = "";
  wanted.rel_error = DBL_MAX;
  seen s = {&wanted, 0, 1, 0};
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  ck_assert_uint_eq(s.found, 1);

#define REFUSED(field, assignment)                                             \
  row = row_of(RUN_A, "x", 1.5);                                               \
  row.assignment;                                                              \
  ck_invalid(dfgnn__store_record(store, NULL, &row), field);
  REFUSED("variant", variant = "a b")
  REFUSED("variant", variant = "")
  REFUSED("variant", variant = NULL)
  REFUSED("variant", variant = longest)
  REFUSED("op", op = "g\nt")
  REFUSED("index_type", index = "i16")
  REFUSED("status", status = "good")
  REFUSED("run", run = "abc")
  REFUSED("run", run = "zaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
  REFUSED("median_ms", median_ms = -1)
  REFUSED("median_ms", median_ms = 0)
  REFUSED("median_ms", median_ms = NAN)
  REFUSED("median_ms", median_ms = 1e-307)
  REFUSED("median_ms", median_ms = 9e-10)
  REFUSED("ci_low_ms", ci_low_ms = 1e-307)
  REFUSED("ci_high_ms", ci_high_ms = 1.1e9)
  REFUSED("ratio", ratio = 1e-307)
  REFUSED("ratio_high", ratio_high = 1e307)
  REFUSED("heads", heads = 65536)
  REFUSED("dim", dim = 65537)
  REFUSED("edges", signature.edges = (1ll << 40) + 1)
  REFUSED("sources", signature.sources = INT64_MAX)
  REFUSED("ratio", ratio = INFINITY)
  REFUSED("ratio", ratio = 0)
  REFUSED("ratio_high", ratio_high = 1)
  REFUSED("ci_high_ms", ci_high_ms = 0)
  REFUSED("heads", heads = 0)
  REFUSED("dim", dim = -5)
  REFUSED("edges", signature.edges = -1)
  REFUSED("isolated", signature.isolated = 1.5)
  REFUSED("histogram", signature.histogram[3] = NAN)
  REFUSED("deterministic", deterministic = 2)
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 1);
}

TEST(filters_restrict_what_is_visited) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  const uint64_t fingerprint = 7;
  record(store, &row);
  row.signature.fingerprint = fingerprint, row.arch = "sm_80", row.op = "gat";
  row.dim = 16, row.heads = 8, row.protocol = "cold", row.dtype = "bf16";
  record(store, &row);
  row.backend = "cpu", row.status = "failed", row.pass = "backward";
  record(store, &row);
  const dfgnn_store_filter filters[] = {
      {.arch = "sm_90", .heads = -1, .dim = -1},
      {.backend = "cpu", .heads = -1, .dim = -1},
      {.op = "gat", .heads = -1, .dim = -1},
      {.pass = "forward", .heads = -1, .dim = -1},
      {.dtype = "bf16", .heads = -1, .dim = -1},
      {.protocol_prefix = "warm", .heads = -1, .dim = -1},
      {.status = "failed", .heads = -1, .dim = -1},
      {.fingerprint = &fingerprint, .heads = -1, .dim = -1},
      {.heads = 8, .dim = -1},
      {.heads = -1, .dim = 16},
      {.heads = 2, .dim = -1},
      DFGNN_STORE_FILTER_INIT};
  const size_t counts[] = {1, 1, 2, 2, 2, 1, 1, 2, 2, 2, 0, 3};
  for (int i = 0; i < 12; i++) {
    seen s = {NULL, 0, 0, 0};
    ck_ok(dfgnn__store_each(store, NULL, &filters[i], look_for, &s));
    ck_assert_msg(s.count == counts[i], "filter %d gives %zu", i, s.count);
  }
  dfgnn__store_close(store);
}

TEST(rows_of_several_stores_are_a_union) {
  dfgnn_store *store[2];
  dfgnn_rows *rows = NULL;
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  ck_ok(dfgnn__rows_create(&rows));
  for (int i = 0; i < 2; i++) {
    ck_ok(dfgnn__store_open(&store[i], ":memory:", DFGNN_STORE_WRITE));
    row.time = 1;
    record(store[i], &row);
    row.time = 2 + i;
    record(store[i], &row);
  }
  for (int i = 0; i < 4; i++)
    ck_ok(dfgnn__rows_load(rows, NULL, store[i & 1], NULL));
  for (int i = 0; i < 2; i++)
    dfgnn__store_close(store[i]);
  size_t count;
  const dfgnn_measurement *loaded = dfgnn__rows_get(rows, &count);
  ck_assert_uint_eq(count, 3);
  for (size_t i = 0; i < count; i++) /* the strings are the rows' own */
    ck_assert_str_eq(loaded[i].variant, "x");
  dfgnn__rows_free(rows);
  dfgnn__rows_free(NULL);
}

TEST(rows_are_copied_and_added_as_a_store_would_give_them) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_rows *rows[3];
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  char reason[] = "a\nb";
  row.reason = reason; /* which is cleaned */
  for (int i = 0; i < 3; i++)
    ck_ok(dfgnn__rows_create(&rows[i]));
  record(store, &row);
  ck_ok(dfgnn__rows_load(rows[0], NULL, store, NULL));
  dfgnn__store_close(store);
  ck_ok(dfgnn__rows_add(rows[0], &row)); /* it is there already */
  ck_ok(dfgnn__rows_add(rows[1], &row));
  memset(reason, '-', 3);
  row.time++;
  ck_ok(dfgnn__rows_add(rows[0], &row));
  filter.op = "gt";
  ck_ok(dfgnn__rows_copy(rows[1], rows[0], &filter));
  filter.op = "gat";
  ck_ok(dfgnn__rows_copy(rows[2], rows[0], &filter));
  size_t count;
  dfgnn__rows_get(rows[2], &count);
  ck_assert_uint_eq(count, 0);
  dfgnn__rows_free(rows[0]);
  const dfgnn_measurement *found = dfgnn__rows_get(rows[1], &count);
  ck_assert_uint_eq(count, 2);
  ck_assert_str_eq(found[0].reason, "a?b");
  ck_assert_str_eq(found[1].reason, "---");
  ck_assert_str_eq(found[1].graph, "cora");
  dfgnn__rows_free(rows[1]);
  dfgnn__rows_free(rows[2]);
}

TEST(a_stamp_changes_when_the_store_does) {
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  ck_assert_uint_eq(dfgnn__store_stamp("/there/is/no/such.db"), 0);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  const char *path = dfgnn__store_path(store);
  const uint64_t empty = dfgnn__store_stamp(path);
  ck_assert_uint_ne(empty, 0);
  ck_assert_uint_eq(dfgnn__store_stamp(path), empty);
  record(store, &row);
  ck_assert_uint_ne(dfgnn__store_stamp(path), empty);
  const int64_t version = dfgnn__store_version(store);
  row.time++;
  record(store, &row);
  ck_assert_int_eq(dfgnn__store_version(store), version);
  dfgnn_store *other = open_store(DFGNN_STORE_WRITE);
  row.time++;
  record(other, &row);
  dfgnn__store_close(other);
  ck_assert_int_ne(dfgnn__store_version(store), version);
  char copy[256];
  snprintf(copy, sizeof copy, "%s", path);
  dfgnn__store_close(store);
  const uint64_t full = dfgnn__store_stamp(copy);
  ck_ok(dfgnn__store_open_known(&store, copy, full));
  dfgnn__store_close(store);
  ck_ok(dfgnn__store_open_known(&store, copy, full + 1)); /* it is looked at */
  dfgnn__store_close(store);
  ck_assert_uint_eq(dfgnn__store_stamp(copy), full);
}

/* Appends the hash of a row to a list, whose end is `data`. */
static int add_hash(void *data, const unsigned char *hash,
                    const dfgnn_measurement *row) {
  unsigned char **end = data;
  (void)row;
  memcpy(*end, hash, DFGNN_HASH_BYTES);
  *end += DFGNN_HASH_BYTES;
  return 0;
}

static size_t hashes_of(dfgnn_store *store, unsigned char *hashes) {
  unsigned char *end = hashes;
  dfgnn_strings *strings = dfgnn__strings_create();
  ck_ok(dfgnn__store_scan(store, NULL, NULL, strings, add_hash, &end));
  dfgnn__strings_free(strings);
  return (size_t)(end - hashes);
}

TEST(merging_is_a_union_in_any_order_and_number) {
  static unsigned char hashes[2][200 * DFGNN_HASH_BYTES];
  static const int orders[2][6] = {{0, 1, 2, 2, 0, 1}, {2, 1, 1, 0, 0, 2}};
  dfgnn_store *in[3], *out[2];
  size_t sizes[2];
  for (int i = 0; i < 3; i++) {
    dfgnn_measurement rows[40];
    uint64_t added = 0;
    for (int k = 0; k < 40; k++) {
      rows[k] = row_of(RUN_A, "x", 1.5);
      rows[k].time = 20 * i + k; /* half of them shared with the next */
    }
    ck_ok(dfgnn__store_open(&in[i], ":memory:", DFGNN_STORE_WRITE));
    ck_ok(dfgnn__store_record_all(in[i], &added, rows, 40));
    ck_ok(dfgnn__store_record_all(in[i], &added, rows, 40));
    ck_assert_uint_eq(added, 40);
  }
  for (int i = 0; i < 2; i++) {
    dfgnn_merge_counts counts = {0, 0, 0};
    ck_ok(dfgnn__store_open(&out[i], ":memory:", DFGNN_STORE_WRITE));
    for (int k = 0; k < 6; k++)
      ck_ok(dfgnn__store_merge(out[i], &counts, in[orders[i][k]], NULL));
    ck_assert_uint_eq(counts.added, 80);
    ck_assert_uint_eq(counts.known, 160);
    ck_assert_uint_eq(counts.skipped, 0);
    sizes[i] = hashes_of(out[i], hashes[i]);
  }
  ck_assert_uint_eq(sizes[0], 80 * DFGNN_HASH_BYTES);
  ck_assert_uint_eq(sizes[1], sizes[0]);
  ck_assert(memcmp(hashes[0], hashes[1], sizes[0]) == 0);
  ck_invalid(dfgnn__store_merge(out[0], NULL, out[0], NULL), "into itself");
  dfgnn_store_filter none = DFGNN_STORE_FILTER_INIT;
  dfgnn_merge_counts counts = {0, 0, 0};
  none.arch = "sm_70";
  ck_ok(dfgnn__store_merge(out[0], &counts, in[0], &none));
  ck_assert_uint_eq(counts.known, 0);
  for (int i = 0; i < 3; i++)
    dfgnn__store_close(in[i]);
  for (int i = 0; i < 2; i++)
    dfgnn__store_close(out[i]);
}

TEST(many_rows_are_recorded_all_or_none) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "x", 1.5), row_of(RUN_A, "y", 1.5),
                              row_of(RUN_A, "a b", 1.5)};
  uint64_t added = 0;
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_invalid(dfgnn__store_record_all(store, &added, rows, 3), "variant");
  ck_assert_uint_eq(added, 0);
  ck_ok(dfgnn__store_record_all(store, &added, rows, 2));
  ck_assert_uint_eq(added, 2);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 2);
}

/* Pins a variant, or none where it is NULL, for an operator on a graph. */
static dfgnn_status pin(dfgnn_store *store, const char *op,
                        uint64_t fingerprint, const char *variant) {
  return dfgnn__store_pin(store, &(dfgnn_pin){.op = op,
                                              .pass = "forward",
                                              .dtype = "f32",
                                              .fingerprint = fingerprint,
                                              .variant = variant});
}

TEST(pins_are_set_replaced_and_removed) {
  char text[1024] = "";
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  const uint64_t high = 0xffffffffffffffffu;
  ck_ok(pin(store, "gt", 0, "a"));
  ck_ok(pin(store, "gt", high, "b"));
  ck_ok(pin(store, "gat", 0, "c"));
  ck_ok(pin(store, "gt", 0, "d"));
  ck_ok(pin(store, "gat", 0, NULL));
  ck_ok(pin(store, "gat", 5, NULL));
  ck_assert_int_eq(pin(store, "g t", 0, "a"), DFGNN_ERROR_INVALID);
  dfgnn__store_close(store);
  store = open_store(DFGNN_STORE_READ);
  ck_ok(dfgnn__store_each_pin(store, join_pins, text));
  ck_assert_str_eq(text, "gt forward f32 ffffffffffffffff b;"
                         "gt forward f32 0 d;");
  ck_assert_int_eq(pin(store, "gt", 0, "a"), DFGNN_ERROR_STORE);
  dfgnn__store_close(store);
}

TEST(the_hash_is_what_the_documentation_says) {
  /* The hashes are BLAKE2b-128 of the bytes that db/hash.c describes, by
   * Python's hashlib. */
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  unsigned char hash[DFGNN_GROUP_COUNT][DFGNN_HASH_BYTES];
  char text[2 * DFGNN_HASH_BYTES + 1];
  static const char *const expected[] = {
      "016d260e75ca4657d97570e3f9342710", "4031a530e6240206b0a53a3f563f1bec",
      "8b35f7b19a9f440433c9bdf4f39123da", "bb22c7a50851dc62de0debccd4e29e7b",
      "1de08e239e887e0aa92704721213c2f0"};
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++) {
    dfgnn__group_hash(hash[i], (dfgnn_field_group)i, &row, hash);
    for (int k = 0; k < DFGNN_HASH_BYTES; k++)
      sprintf(text + 2 * k, "%02x", hash[i][k]);
    ck_assert_str_eq(text, expected[i]);
  }
}

TEST(fields_that_came_later_are_hashed_where_they_say_something) {
  /* The hashes are of the same bytes and, for each later field that is not 0,
   * its name, a byte 0 and 8 bytes. */
  static const char *const expected[] = {
      "4031a530e6240206b0a53a3f563f1bec", "63ec58c26af3769c61b7a6fd649561f3",
      "f6e34147b0cae021e6539c8d506eebbe", "69b544adfc0f9cca614d337e3cf0ab5f"};
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  unsigned char hash[DFGNN_HASH_BYTES];
  char text[2 * DFGNN_HASH_BYTES + 1];
  for (int i = 0; i < 4; i++) {
    row.bias = i & 1;
    row.dropout = i >> 1;
    row.edge_dim = i == 3 ? 16 : 0;
    dfgnn__group_hash(hash, DFGNN_GROUP_PROBLEM, &row, NULL);
    for (int k = 0; k < DFGNN_HASH_BYTES; k++)
      sprintf(text + 2 * k, "%02x", hash[k]);
    ck_assert_str_eq(text, expected[i]);
  }
}

TEST_MAIN("store", .setup = set_up, .timeout = 120)
