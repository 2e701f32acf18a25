/* Files that the user names to be written: what is replaced, followed, written
 * to and refused. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <zlib.h>

#include "lib/base/output.h"
#include "lib/base/xz.h"
#include "tests/unit/fixture.h"

static char folder[64], name[128], other[128];

static void setup(void) {
  test_folder(folder);
  snprintf(name, sizeof name, "%s/name", folder);
  snprintf(other, sizeof other, "%s/other", folder);
  setenv("TMPDIR", folder, 1);
}

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  ck_assert(!fclose(file));
}

static void holds(const char *path, const char *text) {
  char found[256] = "";
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  (void)!fread(found, 1, sizeof found - 1, file);
  fclose(file);
  ck_assert_str_eq(found, text);
}

/* The folder has these entries and no temporary file. */
static void has_entries(int count) {
  char command[128];
  snprintf(command, sizeof command, "test $(ls -A %s | wc -l) = %d", folder,
           count);
  ck_assert_int_eq(system(command), 0);
}

static const dfgnn_output_kind any = {.name = "a file", .mark = {{0, ""}}};

static dfgnn_status write_text(const char *path, const char *text) {
  return dfgnn__write_bytes(path, &any, text, strlen(text));
}

TEST(a_file_is_made_or_replaced_whole) {
  struct stat before, after;
  umask(027);
  ck_ok(write_text(name, "one"));
  holds(name, "one");
  ck_assert(!stat(name, &before));
  ck_assert_int_eq(before.st_mode & 0777, 0640);
  ck_assert(!chmod(name, 0600)); /* what was private stays so */
  ck_ok(write_text(name, "two"));
  holds(name, "two");
  ck_assert(!stat(name, &after));
  ck_assert_int_eq(after.st_mode & 0777, 0600);
  ck_assert(before.st_ino != after.st_ino);
  has_entries(1);
}

static dfgnn_status fails_half_way(const void *data, const char *path,
                                   const char *temporary) {
  (void)data, (void)path;
  put(temporary, "half");
  return DFGNN_ERROR_MEMORY;
}

TEST(what_fails_leaves_the_old_file_and_no_other) {
  put(name, "old");
  ck_assert_int_eq(dfgnn__write_whole(name, &any, fails_half_way, NULL),
                   DFGNN_ERROR_MEMORY);
  holds(name, "old");
  has_entries(1);
  ck_fails(write_text("/proc/none/at/all", "x"), DFGNN_ERROR_IO,
           "/proc/none/at/all: cannot write: No such file");
}

/* Stands before the C library's: other threads make files meanwhile, which
 * would get the mask. */
static int masks_set;
mode_t umask(mode_t mask) {
  masks_set++;
  return (mode_t)syscall(SYS_umask, mask);
}

TEST(the_mask_of_the_process_is_left_alone) {
  struct stat info;
  umask(027);
  ck_assert_int_eq(masks_set, 1); /* the one above is called */
  ck_ok(write_text(name, "one"));
  ck_ok(write_text(name, "two"));
  ck_assert_int_eq(masks_set, 1);
  ck_assert(!stat(name, &info));
  ck_assert_int_eq(info.st_mode & 0777, 0640);
}

TEST(what_a_killed_process_left_is_removed_after_a_day) {
  const struct timespec old[2] = {{time(NULL) - 90000, 0},
                                  {time(NULL) - 90000, 0}};
  static const char *const stale[] = {"name.new-0123456789abcdef",
                                      "name.new-0123456789abcdef-journal"};
  static const char *const kept[] = {
      "name.new-0123456789abcde", "name.new-0123456789abcdeg",
      "other.new-0123456789abcdef", "name.new-fedcba9876543210"};
  char path[160];
  for (int i = 0; i < 6; i++) {
    snprintf(path, sizeof path, "%s/%s", folder,
             i < 2 ? stale[i] : kept[i - 2]);
    put(path, "left");
    if (i < 5)
      ck_assert(!utimensat(AT_FDCWD, path, old, 0));
  }
  ck_ok(write_text(name, "new"));
  for (int i = 0; i < 6; i++) {
    snprintf(path, sizeof path, "%s/%s", folder,
             i < 2 ? stale[i] : kept[i - 2]);
    ck_assert_msg(access(path, F_OK) == (i < 2 ? -1 : 0), "%s", path);
  }
  has_entries(5);
}

TEST(a_link_is_followed) {
  struct stat info;
  put(other, "old");
  ck_assert(!symlink("other", name)); /* relative */
  ck_ok(write_text(name, "new"));
  ck_assert(!lstat(name, &info) && S_ISLNK(info.st_mode));
  holds(other, "new");
  ck_assert(!unlink(other)); /* now it leads nowhere */
  ck_ok(write_text(name, "newer"));
  holds(other, "newer");
  ck_assert(!unlink(name) && !symlink(name, name));
  ck_fails(write_text(name, "x"), DFGNN_ERROR_IO, "symbolic links");
  has_entries(2);
}

TEST(a_fifo_is_written_to) {
  ck_assert(!mkfifo(name, 0600));
  pid_t child = fork();
  if (child == 0) {
    holds(name, "through");
    _exit(0);
  }
  ck_ok(write_text(name, "through"));
  int code = -1;
  waitpid(child, &code, 0);
  ck_assert_int_eq(code, 0);
  struct stat info;
  ck_assert(!lstat(name, &info) && S_ISFIFO(info.st_mode));
  has_entries(1);
}

TEST(a_device_is_written_to) {
  struct stat info;
  if (mknod(name, S_IFCHR | 0600, makedev(1, 3)) ||  /* /dev/null */
      mknod(other, S_IFCHR | 0600, makedev(1, 7)) || /* /dev/full */
      (errno = 0, close(open(name, O_WRONLY)))) {
    ck_assert(errno == EPERM || errno == EACCES || errno == EBADF);
    return;
  }
  ck_ok(write_text(name, "gone"));
  ck_fails(write_text(other, "x"), DFGNN_ERROR_IO, strerror(ENOSPC));
  ck_assert(!lstat(name, &info) && S_ISCHR(info.st_mode));
  ck_assert(!lstat(other, &info) && S_ISCHR(info.st_mode));
  has_entries(2);
}

TEST(an_open_file_is_written_where_it_stands) {
  char link[64];
  put(name, "kept, ");
  int fd = open(name, O_WRONLY | O_APPEND);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ck_ok(write_text(link, "then this"));
  holds(name, "kept, then this");
  int ends[2];
  char text[16] = "";
  ck_assert(!pipe(ends));
  snprintf(link, sizeof link, "/dev/fd/%d", ends[1]);
  ck_ok(write_text(link, "in a pipe"));
  ck_assert_int_eq(read(ends[0], text, sizeof text), 9);
  ck_assert_str_eq(text, "in a pipe");
}

TEST(all_else_is_refused) {
  struct stat info;
  ck_assert(!mkdir(name, 0700));
  ck_fails(write_text(name, "x"), DFGNN_ERROR_IO, "found a directory");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", other);
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert(!bind(s, (struct sockaddr *)&address, sizeof address));
  ck_fails(write_text(other, "x"), DFGNN_ERROR_IO, "found a socket");
  ck_assert(!lstat(other, &info) && S_ISSOCK(info.st_mode));
  has_entries(2);
}

TEST(a_file_of_another_kind_is_not_replaced) {
  const dfgnn_output_kind kind = {.name = "a tuning store",
                                  .mark = {{4, "dfgn"}, {0, "store"}}};
  static const char *const others[] = {"my\nthesis", "0000dfg", "xdfgn"};
  for (int i = 0; i < 3; i++) {
    put(name, others[i]);
    ck_invalid(dfgnn__write_bytes(name, &kind, "new", 3),
               "not a tuning store is there");
    holds(name, others[i]);
  }
  put(name, others[0]);
  ck_invalid(dfgnn__write_bytes(name, &kind, "new", 3),
             "begins with 'my.thesis'; remove it");
  static const char *const fine[] = {"", "0000dfgn", "store of old"};
  for (int i = 0; i < 3; i++) {
    put(name, fine[i]);
    ck_ok(dfgnn__write_bytes(name, &kind, "new", 3));
    holds(name, "new");
  }
  has_entries(1);
}

/* Writes text packed by gzip or xz. */
static void put_packed(int xz, const char *text) {
  put(name, text);
  if (xz) {
    ck_ok(dfgnn__xz_file(name, name));
    return;
  }
  gzFile file = gzopen(name, "wb");
  ck_assert_int_eq(gzwrite(file, text, (unsigned)strlen(text)),
                   (int)strlen(text));
  ck_assert_int_eq(gzclose(file), Z_OK);
}

TEST(what_is_packed_is_known_by_what_it_holds) {
  const dfgnn_output_kind kind = {.name = "a pack", .mark = {{2, "dfnk"}}};
  for (int xz = 0; xz < 1 + dfgnn__xz_available(); xz++) {
    put_packed(xz, "00dfnk and more");
    ck_ok(dfgnn__write_bytes(name, &kind, "new", 3));
    holds(name, "new");
    put_packed(xz, "my thesis");
    ck_invalid(dfgnn__write_bytes(name, &kind, "new", 3),
               "not a pack is there");
    put_packed(xz, "");
    ck_invalid(dfgnn__write_bytes(name, &kind, "new", 3),
               "not a pack is there");
  }
  put(name, "\xfd"
            "7zXZ"); /* the rest is missing */
  ck_invalid(dfgnn__write_bytes(name, &kind, "new", 3), "not a pack is there");
}

TEST_MAIN("output", .setup = setup)
