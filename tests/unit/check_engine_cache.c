/* check_engine_cache.c - the cache of compiled kernels: what is kept, for whom,
 * and what damage and other users can do to it */
#define _GNU_SOURCE /* renameat2 */
#include <fcntl.h>
#include <sqlite3.h>

#include "kernels/engine/cache.h"
#include "lib/base/filesystem.h"
#include "tests/unit/engine_script.h"

/* ---- the user's cache ---------------------------------------------------- */

TEST(a_new_process_finds_what_another_compiled) {
  open_engine();
  ck_ok(launch(1, one));
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(1, one));
    EXPECT(nvrtc_script.compiled == 0);
    EXPECT(!launch(2, one));
    EXPECT(nvrtc_script.compiled == 1);
  });
  dfgnn_cache_info info;
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.path, cache);
  ck_assert_int_eq(info.entries, 2);
}

TEST(many_processes_that_ask_at_once_all_get_it) {
  enum { PROCESSES = 64 };
  pid_t child[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    child[i] = fork();
    if (child[i] == 0) {
      open_engine();
      EXPECT(!launch(1, one));
      EXPECT(gpu.launched == 1);
      _exit(0);
    }
  }
  for (int i = 0; i < PROCESSES; i++) {
    int result = 0;
    ck_assert_int_eq(waitpid(child[i], &result, 0), child[i]);
    ck_assert(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  }
  dfgnn_cache_info info;
  dfgnn__cache_describe(&info);
  ck_assert_int_eq(info.entries, 1);
}

TEST(a_damaged_entry_is_compiled_again) {
  IN_A_NEW_PROCESS(fill_cache(3));
  EXPECT_COMPILED(0);
  in_sql("UPDATE kernel SET code = CAST(x'00' || substr(code, 2) AS BLOB) "
         "WHERE rowid = (SELECT min(rowid) FROM kernel)");
  EXPECT_COMPILED(1);
  in_sql("UPDATE kernel SET code = substr(code, 1, 10)");
  EXPECT_COMPILED(3);
  in_sql("UPDATE kernel SET symbol = 'another'");
  EXPECT_COMPILED(3);
  in_sql("UPDATE kernel SET bytes = 9999999");
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
}

TEST(an_entry_under_a_wrong_key_is_a_miss) {
  IN_A_NEW_PROCESS(fill_cache(3));
  in_sql("CREATE TEMP TABLE t AS SELECT key FROM kernel WHERE rowid = 2;"
         "DELETE FROM kernel WHERE rowid = 2;"
         "UPDATE kernel SET key = (SELECT key FROM t) WHERE rowid = 1");
  EXPECT_COMPILED(2);
}

TEST(code_that_the_driver_refuses_is_compiled_again) {
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "of another GPU");
  IN_A_NEW_PROCESS(fill_cache(3));
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "good code");
  strcpy(gpu.refuses, "of another GPU");
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0); /* the refused code was replaced */
}

/* Moves all of the cache into its one file. */
static void settle(void) { in_sql("PRAGMA wal_checkpoint(TRUNCATE)"); }

TEST(a_file_that_is_damaged_is_made_anew) {
  IN_A_NEW_PROCESS(fill_cache(3));
  settle();
  overwrite(cache, "this is no database, whatever its name", -1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  settle();
  overwrite(cache, "", 3000);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  settle();
  overwrite(cache, "", 0);
  EXPECT_COMPILED(3);
}

TEST(the_database_of_somebody_else_is_left_alone) {
  struct stat before, after;
  in_sql("PRAGMA application_id = 7; CREATE TABLE photos (x)");
  ck_assert(!stat(cache, &before));
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  ck_assert(!stat(cache, &after));
  ck_assert_int_eq(before.st_ino, after.st_ino);
  in_sql("INSERT INTO photos VALUES (1)"); /* it is still theirs */
}

TEST(a_file_of_another_kind_is_left_alone) {
  static const char thesis[] = "Chapter 1: on the fusion of kernels\n";
  char text[sizeof thesis + 1] = "";
  dfgnn_cache_info info;
  overwrite(cache, thesis, -1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  FILE *file = fopen(cache, "r");
  ck_assert_uint_eq(fread(text, 1, sizeof text, file), strlen(thesis));
  ck_assert(!fclose(file));
  ck_assert_str_eq(text, thesis);
  dfgnn__cache_describe(&info);
  ck_assert_ptr_nonnull(strstr(info.problem, "a file of another kind"));
}

/* ---- what others could write ----------------------------------------------
 */

static void expect_refused(const char *reason) {
  char why[PATH_MAX + 512] = "";
  EXPECT_COMPILED(3);
  IN_A_NEW_PROCESS({
    EXPECT(dfgnn__cache_complaint(why, sizeof why));
    EXPECT(strstr(why, reason));
    EXPECT(!dfgnn__cache_complaint(why, sizeof why)); /* it is said once */
  });
}

TEST(a_log_of_another_user_is_not_read) {
  static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
  char name[128], reason[128];
  for (int i = 0; i < 3; i++) {
    IN_A_NEW_PROCESS(fill_cache(3));
    settle();
    EXPECT_COMPILED(0);
    snprintf(name, sizeof name, "%s%s", cache, suffixes[i]);
    overwrite(name, "", -1);
    ck_assert(!chmod(name, 0666));
    snprintf(reason, sizeof reason, "%s can be written by others", suffixes[i]);
    expect_refused(reason);
    ck_assert(!chmod(name, 0600));
    if (!chown(name, 65534, (gid_t)-1)) { /* as root */
      snprintf(reason, sizeof reason, "%s belongs to another", suffixes[i]);
      if (geteuid() == 0)
        expect_refused(reason);
    }
    ck_assert(!unlink(name));
    ck_assert(!symlink("/dev/null", name));
    expect_refused("is not a regular file");
    ck_assert(!unlink(name));
  }
}

TEST(a_folder_that_others_can_write_is_refused) {
  static const mode_t modes[] = {0777, 01777, 0770, 0707};
  IN_A_NEW_PROCESS(fill_cache(3));
  write_pack(3, "sm_90");
  EXPECT_COMPILED(0);
  for (int i = 0; i < 4; i++) {
    ck_assert(!chmod(folder, modes[i]));
    expect_refused("others can write the folder");
    setenv("DFGNN_KERNEL_PACK", pack_path, 1);
    IN_A_NEW_PROCESS({
      EXPECT(dfgnn__pack_count() == 0);
      EXPECT(strstr(problem_of_the_pack(), "others can write the folder"));
    });
    setenv("DFGNN_KERNEL_PACK", "", 1);
  }
  ck_assert(!chmod(folder, 0700));
  EXPECT_COMPILED(0);
}

/* The moment before SQLite opens a file: another user, who can write a folder
 * above, exchanges it for one with a cache of foreign code. */
static char shared[128], foreign[128];
static sqlite3_vfs exchanging, *usual;
static int open_exchanged(sqlite3_vfs *vfs, sqlite3_filename name,
                          sqlite3_file *file, int flags, int *out) {
  static int exchanged;
  (void)vfs;
  if (!exchanged++)
    EXPECT(!renameat2(AT_FDCWD, shared, AT_FDCWD, foreign, RENAME_EXCHANGE));
  return usual->xOpen(usual, name, file, flags, out);
}

static void exchange_when_opened(void) {
  usual = sqlite3_vfs_find(NULL);
  exchanging = *usual;
  exchanging.zName = "exchanging";
  exchanging.xOpen = open_exchanged;
  EXPECT(!sqlite3_vfs_register(&exchanging, 1));
}

TEST(a_folder_above_that_others_exchange_does_not_matter) {
  char ours[160], theirs[160];
  struct stat info;
  snprintf(shared, sizeof shared, "%s/shared", folder);
  snprintf(foreign, sizeof foreign, "%s/foreign", folder);
  snprintf(ours, sizeof ours, "%s/cache/kernels.db", shared);
  snprintf(theirs, sizeof theirs, "%s/cache/kernels.db", foreign);
  setenv("DFGNN_KERNEL_CACHE", theirs, 1);
  IN_A_NEW_PROCESS(fill_cache(3));
  EXPECT_COMPILED(0);
  setenv("DFGNN_KERNEL_CACHE", ours, 1);
  ck_assert(!mkdir(shared, 0700) && !chmod(shared, 02775));
  IN_A_NEW_PROCESS({
    exchange_when_opened();
    open_engine();
    for (int i = 0; i < 3; i++)
      EXPECT(!launch(i, one));
    EXPECT(nvrtc_script.compiled == 3);
    EXPECT(!stat(ours, &info)); /* the folders were exchanged */
    EXPECT(!stat(theirs, &info));
  });
  /* What was compiled is in the folder that was looked at. */
  setenv("DFGNN_KERNEL_CACHE", theirs, 1);
  EXPECT_COMPILED(0);
}

TEST(a_home_that_is_a_link_has_a_cache) {
  char home[128], link[128], made[128];
  struct stat info;
  snprintf(home, sizeof home, "%s/disk7", folder);
  snprintf(link, sizeof link, "%s/home", folder);
  snprintf(made, sizeof made, "%s/disk7/.cache/dfgnn", folder);
  ck_assert(!mkdir(home, 0755));
  ck_assert(!symlink("disk7", link));
  unsetenv("DFGNN_KERNEL_CACHE");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", link, 1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  ck_assert(!stat(made, &info));
  ck_assert_int_eq(info.st_mode & 0777, 0700);
}

/* Whoever has no right to write sees a disk that cannot be written. */
TEST(a_cache_that_cannot_be_written_is_read) {
  char command[256];
  IN_A_NEW_PROCESS(fill_cache(3));
  settle();
  snprintf(command, sizeof command,
           "rm -f %s-wal %s-shm; chmod 555 %s; chmod 444 %s", cache, cache,
           folder, cache);
  ck_assert_int_eq(system(command), 0);
  IN_A_NEW_PROCESS({
    EXPECT(geteuid() != 0 || !setuid(65534));
    open_engine();
    for (int i = 0; i < 4; i++)
      EXPECT(!launch(i, one));
    EXPECT(nvrtc_script.compiled == 1);
  });
  ck_assert(!chmod(folder, 0700));
}

TEST(a_cache_that_others_can_write_is_not_used) {
  dfgnn_cache_info info;
  IN_A_NEW_PROCESS(fill_cache(3));
  ck_assert(!chmod(cache, 0666));
  EXPECT_COMPILED(3);
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.problem, "it can be written by others");
}

TEST(a_folder_that_cannot_be_written_means_no_cache) {
  setenv("DFGNN_KERNEL_CACHE", "/proc/none/kernels.db", 1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
}

static const char *on_nfs(const char *path) {
  (void)path;
  return "NFS";
}

TEST(a_network_file_system_means_no_cache) {
  dfgnn_cache_info info;
  dfgnn__network_filesystem = on_nfs;
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.problem, "it lies on a network file system (NFS)");
  ck_assert_int_ne(access(cache, F_OK), 0);
}

TEST(a_size_that_is_no_number_means_no_cache) {
  dfgnn_cache_info info;
  setenv("DFGNN_KERNEL_CACHE_MB", "1G", 1);
  EXPECT_COMPILED(3);
  dfgnn__cache_describe(&info);
  ck_assert_ptr_nonnull(strstr(info.problem, "'1G', expected MiB"));
  ck_assert_int_ne(access(cache, F_OK), 0);
}

TEST(the_cache_is_bounded_and_the_least_used_go_first) {
  dfgnn_cache_info info;
  setenv("DFGNN_KERNEL_CACHE_MB", "1", 1);
  IN_A_NEW_PROCESS(fill_cache(3));
  /* Two of the three entries become large and were used long ago. */
  in_sql("UPDATE kernel SET code = randomblob(600000), used = 1 "
         "WHERE rowid IN (SELECT rowid FROM kernel ORDER BY rowid LIMIT 2)");
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(9, one));
  });
  dfgnn__cache_describe(&info);
  ck_assert_int_lt(info.bytes, 1 << 20);
  ck_assert_int_eq(info.entries, 3);
  int64_t gone = 0;
  ck_ok(dfgnn__cache_clear(&gone));
  ck_assert_int_eq(gone, 3);
  dfgnn__cache_describe(&info);
  ck_assert_int_eq(info.entries, 0);
}

TEST(a_process_killed_while_it_stores_harms_nobody) {
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      open_engine();
      for (int n = 100 * i;; n++)
        (void)launch(n, one);
    }
    usleep(10000 + 1500 * (unsigned)i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(0, one));
    EXPECT(gpu.launched == 1);
  });
}

TEST_MAIN("all", .setup = engine_setup, .teardown = engine_teardown,
          .timeout = 60)
