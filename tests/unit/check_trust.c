/* Processes killed and disks that fail at any moment: a store keeps what it
 * reported as kept, and is whole.  DFGNN_SOAK=N makes N kills of each kind. */
#include "tests/unit/faulty_vfs.h"
#include "tests/unit/store_fixture.h"

#include <signal.h>

#define BEFORE 5 /* rows in the store */
#define MANY 300 /* rows that are added at once */

static char source[600];

static dfgnn_measurement many_row(int64_t i) {
  dfgnn_measurement row = row_of(RUN_B, "y", 1.25);
  row.time = 1000 + i;
  row.seed = (uint64_t)i;
  return row;
}

static dfgnn_status give_many(void *data, const dfgnn_measurement **row) {
  static dfgnn_measurement current;
  int64_t *i = data;
  current = many_row(*i);
  *row = (*i)++ < MANY ? &current : NULL;
  return DFGNN_OK;
}

static dfgnn_status import_many(dfgnn_store *store) {
  int64_t i = 0;
  return dfgnn__store_record_from(store, NULL, give_many, &i);
}

/* ---- what is done to a store --------------------------------------------- */

typedef dfgnn_status (*action)(void);

static dfgnn_status with_store(dfgnn_status (*body)(dfgnn_store *)) {
  dfgnn_store *store = NULL;
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_WRITE);
  if (!status)
    status = body(store);
  dfgnn__store_close(store);
  return status;
}

static dfgnn_status do_import(void) { return with_store(import_many); }

static dfgnn_status merge_source(dfgnn_store *store) {
  dfgnn_store *in = NULL;
  dfgnn_status status = dfgnn__store_open(&in, source, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__store_merge_all(store, NULL, &in, 1, NULL);
  dfgnn__store_close(in);
  return status;
}

static dfgnn_status do_merge(void) { return with_store(merge_source); }

static dfgnn_status do_publish(void) {
  dfgnn_store *in = NULL;
  dfgnn_status status = dfgnn__store_open(&in, source, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__store_publish(in, path);
  dfgnn__store_close(in);
  return status;
}

static int not_y(void *data, const dfgnn_measurement *row) {
  (void)data;
  return strcmp(row->variant, "y") != 0;
}

static dfgnn_status prune_y(dfgnn_store *store) {
  return dfgnn__store_prune(store, NULL, not_y, NULL);
}

static dfgnn_status do_prune(void) { return with_store(prune_y); }

typedef struct deed {
  const char *name;
  action act;
  size_t before, after; /* rows */
} deed;

static const deed deeds[] = {
    {"import", do_import, BEFORE, BEFORE + MANY},
    {"merge", do_merge, BEFORE, BEFORE + MANY},
    {"publish", do_publish, BEFORE, MANY},
    {"prune", do_prune, BEFORE + MANY, BEFORE},
};
#define DEEDS ((int)(sizeof deeds / sizeof *deeds))

/* ---- before and after ---------------------------------------------------- */

static void empty_directory(void) {
  char command[600];
  snprintf(command, sizeof command, "rm -rf '%s'/*", directory);
  ck_assert_int_eq(system(command), 0);
}

static void copy_file(const char *to, const char *from) {
  char command[1400];
  snprintf(command, sizeof command, "cp -f '%s' '%s'", from, to);
  ck_assert_int_eq(system(command), 0);
}

/* Makes the files that each attempt begins with. */
static void make_originals(const deed *d) {
  char original[600];
  dfgnn_store *store;
  empty_directory();
  snprintf(source, sizeof source, "%s/source.db", directory);
  ck_ok(dfgnn__store_open(&store, source, DFGNN_STORE_WRITE));
  ck_ok(import_many(store));
  dfgnn__store_close(store);
  make_store(BEFORE);
  if (d->before > BEFORE)
    ck_ok(do_import());
  snprintf(original, sizeof original, "%s/original", directory);
  if (d->act != do_publish) {
    copy_file(original, path);
    return;
  }
  store = open_store(DFGNN_STORE_READ); /* publishing replaces its like */
  ck_ok(dfgnn__store_publish(store, original));
  dfgnn__store_close(store);
}

static void restore(void) {
  char original[600], command[1400];
  snprintf(original, sizeof original, "%s/original", directory);
  snprintf(command, sizeof command, "rm -f '%s'*", path);
  ck_assert_int_eq(system(command), 0);
  copy_file(path, original);
}

static size_t rows_now(void) {
  dfgnn_store *store = open_store(DFGNN_STORE_READ);
  seen s = {NULL, 0, 0, 0};
  uint64_t invalid = 0;
  ck_ok(dfgnn__store_each(store, &invalid, NULL, look_for, &s));
  ck_ok(dfgnn__store_check(store));
  ck_assert_uint_eq(invalid, 0);
  dfgnn__store_close(store);
  return s.count;
}

/* ---- kills --------------------------------------------------------------- */

static int kills(void) {
  const char *soak = getenv("DFGNN_SOAK");
  int count = soak ? atoi(soak) : 20;
  ck_assert_msg(count > 0, "DFGNN_SOAK is %s, expected a number above 0", soak);
  return count;
}

/* Runs the deed in a process and kills the process after `us` microseconds, or,
 * if us < 0, after it reported success.  Returns 1 if it reported success. */
static int attempt(const deed *d, int64_t us) {
  int pipes[2], status;
  char done = 0;
  ck_assert_int_eq(pipe(pipes), 0);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    dfgnn_status failed = d->act();
    if (failed || write(pipes[1], "+", 1) != 1)
      _exit(1);
    pause();
  }
  close(pipes[1]);
  if (us < 0) {
    ck_assert_int_eq(read(pipes[0], &done, 1), 1);
  } else {
    usleep((useconds_t)us);
  }
  kill(child, SIGKILL);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFSIGNALED(status));
  if (us >= 0)
    done = read(pipes[0], &done, 1) == 1;
  close(pipes[0]);
  return done != 0;
}

TEST_LOOP(a_deed_that_is_killed_is_done_or_not_done, 0, DEEDS) {
  const deed *d = &deeds[_i];
  uint64_t seed = (uint64_t)time(NULL);
  int done = 0, effective = 0;
  printf("%s: seed %llu\n", d->name, (unsigned long long)seed);
  make_originals(d);
  restore();
  double began = seconds_now();
  ck_assert_int_eq(attempt(d, -1), 1);
  int64_t whole = (int64_t)(1e6 * (seconds_now() - began));
  for (int i = 0; i < kills(); i++) {
    restore();
    int reported =
        attempt(d, (int64_t)(random_next(&seed) % (uint64_t)(1.2 * whole)));
    size_t rows = rows_now();
    ck_assert_msg(rows == d->after || (rows == d->before && !reported),
                  "%s: %zu rows, %s", d->name, rows,
                  reported ? "reported as done" : "not reported");
    done += reported;
    effective += rows == d->after;
    if (strcmp(d->name, "publish") != 0) { /* the next attempt completes it */
      ck_ok(d->act());
      ck_assert_uint_eq(rows_now(), d->after);
    }
  }
  printf("%s: %d kills, %d after it was reported, %d after it was done\n",
         d->name, kills(), done, effective);
}

/* ---- disks --------------------------------------------------------------- */

static const struct {
  const char *name;
  int code, stays;
} faults[] = {
    {"the disk is full", SQLITE_FULL, 1},
    {"the disk is full for a moment", SQLITE_FULL, 0},
    {"the disk is broken", SQLITE_IOERR_WRITE, 1},
    {"a write is torn", SQLITE_IOERR_WRITE, 0},
};
#define FAULTS ((int)(sizeof faults / sizeof *faults))

TEST_LOOP(a_disk_that_fails_leaves_a_whole_store, 0, DEEDS *FAULTS) {
  const deed *d = &deeds[_i / FAULTS];
  int fault = _i % FAULTS, refused = 0, attempts = 0;
  make_originals(d);
  faulty_install();
  faulty_code = faults[fault].code;
  faulty_stays = faults[fault].stays;
  for (int n = 0;; n += 1 + n / 5) {
    restore();
    faulty_hits = 0;
    faulty_left = n;
    dfgnn_status status = d->act();
    faulty_left = -1;
    attempts++;
    size_t rows = rows_now();
    ck_assert_msg(rows == d->after || (rows == d->before && status),
                  "%s, %s at change %d: %zu rows after status %d", d->name,
                  faults[fault].name, n, rows, status);
    if (status) {
      ck_assert_int_eq(status, DFGNN_ERROR_STORE);
      ck_assert_msg(strstr(dfgnn_last_error(), directory) &&
                        !strstr(dfgnn_last_error(), ":memory:"),
                    "%s", dfgnn_last_error());
      refused++;
    }
    if (!faulty_hits)
      break;
  }
  printf("%s, %s: %d of %d attempts refused\n", d->name, faults[fault].name,
         refused, attempts);
  ck_assert_int_gt(attempts, 1);
}

TEST(a_full_disk_keeps_every_row_that_was_reported) {
  make_store(BEFORE);
  faulty_install();
  faulty_code = SQLITE_FULL;
  faulty_stays = 1;
  for (int n = 0; n < 60; n++) {
    dfgnn_store *store = NULL;
    size_t reported = count_rows(NULL);
    faulty_left = n;
    if (!dfgnn__store_open(&store, path, DFGNN_STORE_WRITE)) {
      for (int i = 0; i < 10; i++) {
        dfgnn_measurement row = row_of(RUN_C, "z", 1.5);
        row.time = 100 * n + i;
        if (!dfgnn__store_record(store, NULL, &row))
          reported++;
        else
          ck_assert_msg(strstr(dfgnn_last_error(), "disk ") != NULL, "%s",
                        dfgnn_last_error());
      }
      dfgnn__store_close(store);
    }
    faulty_left = -1;
    uint64_t invalid = 0;
    size_t kept = count_rows(&invalid);
    ck_assert_uint_ge(kept, reported); /* one may be kept and not reported */
    ck_assert_uint_le(kept, reported + 1);
    ck_assert_uint_eq(invalid, 0);
  }
}

TEST(a_store_on_a_full_disk_is_readable) {
  dfgnn_store *store = NULL;
  char log[600];
  make_store(BEFORE);
  const size_t rows = count_rows(NULL);
  faulty_install();
  faulty_code = SQLITE_FULL;
  faulty_stays = 1;
  faulty_left = faulty_hits = 0;
  ck_assert_uint_eq(count_rows(NULL), rows);
  ck_assert_int_gt(faulty_hits, 0);
  snprintf(log, sizeof log, "%s-wal", path);
  FILE *file = fopen(log, "w");
  fputs("a log that was left behind", file);
  fclose(file);
  ck_assert_int_eq(dfgnn__store_open(&store, path, DFGNN_STORE_READ),
                   DFGNN_ERROR_STORE);
  ck_assert_msg(strstr(dfgnn_last_error(), "still in the log beside it and "
                                           "cannot be read on a full disk"),
                "%s", dfgnn_last_error());
  faulty_left = -1;
  ck_assert_uint_eq(count_rows(NULL), rows);
}

TEST(a_store_that_cannot_be_created_leaves_no_file) {
  faulty_install();
  faulty_code = SQLITE_FULL;
  faulty_stays = 1;
  for (int n = 0;; n++) {
    dfgnn_store *store = NULL;
    faulty_left = n;
    faulty_hits = 0;
    dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_WRITE);
    dfgnn__store_close(store);
    faulty_left = -1;
    if (!status)
      break;
    ck_assert_int_eq(status, DFGNN_ERROR_STORE);
    if (access(path, F_OK) == 0)
      ck_assert_uint_eq(count_rows(NULL), 0);
    ck_assert_int_lt(n, 1000);
  }
}

TEST_MAIN("trust", .setup = set_up, .timeout = 900)
