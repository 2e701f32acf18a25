/* check_engine_pack.c - packs of compiled kernels, in place of a compiler */
#include <sqlite3.h>

#include "kernels/engine/cache.h"
#include "lib/base/error.h"
#include "lib/base/filesystem.h"
#include "lib/base/xz.h"
#include "tests/unit/engine_script.h"

/* ---- packs --------------------------------------------------------------- */

TEST(a_pack_serves_a_machine_without_a_compiler) {
  write_pack(3, "sm_90");
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  dfgnn__compiler_replace(NULL);
  open_engine();
  for (int i = 0; i < 3; i++)
    ck_ok(launch(i, one));
  ck_assert_int_eq(dfgnn__pack_count(), 1);
  ck_fails(launch(3, one), DFGNN_ERROR_UNSUPPORTED, "no CUDA compiler");
}

TEST(a_pack_is_compressed_where_xz_is_there) {
  char first[6] = "";
  struct stat info;
  write_pack(40, "sm_90");
  ck_assert(!stat(pack_path, &info));
  FILE *file = fopen(pack_path, "rb");
  ck_assert_uint_eq(fread(first, 1, sizeof first, file), sizeof first);
  ck_assert(!fclose(file));
  ck_assert_int_eq(dfgnn__xz_is((unsigned char *)first, sizeof first),
                   dfgnn__xz_available());
  if (dfgnn__xz_available()) /* forty programs that are much alike */
    ck_assert_int_lt(info.st_size, 40 * 200);
}

TEST(a_pack_that_grows_beyond_all_bounds_is_refused) {
  unsigned char *bytes = sqlite3_malloc64(1 << 20);
  size_t size = 1 << 20;
  if (!dfgnn__xz_available()) {
    sqlite3_free(bytes);
    return;
  }
  memset(bytes, 0, size);
  FILE *file = fopen(pack_path, "wb");
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert(!fclose(file));
  ck_ok(dfgnn__xz_file(pack_path, pack_path));
  file = fopen(pack_path, "rb");
  size = fread(bytes, 1, size, file);
  ck_assert_uint_lt(size, 1000);
  ck_assert(!fclose(file));
  ck_fails(dfgnn__xz_unpack(&bytes, &size, (1 << 20) - 1, pack_path),
           DFGNN_ERROR_FORMAT, "when decompressed");
  ck_ok(dfgnn__xz_unpack(&bytes, &size, 1 << 20, pack_path));
  ck_assert_uint_eq(size, 1 << 20);
  sqlite3_free(bytes);
}

TEST(a_pack_for_another_architecture_is_of_no_use) {
  write_pack(3, "sm_80");
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  dfgnn__compiler_replace(NULL);
  open_engine();
  ck_fails(launch(0, one), DFGNN_ERROR_UNSUPPORTED, "no CUDA compiler");
}

TEST(a_pack_that_others_can_write_is_refused) {
  write_pack(1, "sm_90");
  ck_assert(!chmod(pack_path, 0666));
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  ck_assert_int_eq(dfgnn__pack_count(), 0);
  ck_assert_ptr_nonnull(
      strstr(problem_of_the_pack(), "nobody else may be able to write it"));
}

TEST(without_a_compiler_a_device_is_usable_if_a_pack_is) {
  char why[1024];
  write_pack(1, "sm_90");
  dfgnn__compiler_replace(NULL);
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  IN_A_NEW_PROCESS({ EXPECT(dfgnn__engine_usable(why, sizeof why)); });
  ck_assert(!chmod(pack_path, 0666));
  IN_A_NEW_PROCESS({
    EXPECT(!dfgnn__engine_usable(why, sizeof why));
    EXPECT(strstr(why, "no CUDA compiler"));
    EXPECT(strstr(why, "nobody else may be able to write it"));
  });
  setenv("DFGNN_KERNEL_PACK", "", 1);
  IN_A_NEW_PROCESS({
    EXPECT(!dfgnn__engine_usable(why, sizeof why));
    EXPECT(strstr(why, "nvidia-cuda-nvrtc"));
  });
}

TEST(a_pack_that_is_none_is_refused) {
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  static const struct {
    const char *text;
    off_t size; /* negative: bytes that a whole pack lacks */
  } cases[] = {{"", 0}, {"junk", 4096}, {NULL, -1000}, {NULL, 200}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    IN_A_NEW_PROCESS({
      dfgnn_pack_info info;
      (void)unlink(pack_path);
      if (cases[i].text)
        overwrite(pack_path, cases[i].text, -1);
      else
        write_pack(40, "sm_90");
      struct stat whole;
      EXPECT(!stat(pack_path, &whole));
      EXPECT(!truncate(pack_path, cases[i].size < 0
                                      ? whole.st_size + cases[i].size
                                      : cases[i].size));
      EXPECT(dfgnn__pack_describe(&info, 0));
      EXPECT(*info.problem || info.entries == 0);
      open_engine();
      EXPECT(!launch(0, one)); /* the compiler does it */
    });
}

static dfgnn_status distrust(const char *path, const unsigned char *bytes,
                             size_t size) {
  (void)bytes, (void)size;
  return dfgnn__fail(DFGNN_ERROR_STORE, "%s: not signed by anybody", path);
}

TEST(where_keys_are_set_a_pack_must_be_signed) {
  write_pack(1, "sm_90");
  setenv("DFGNN_KERNEL_PACK", pack_path, 1);
  dfgnn__pack_trust(distrust);
  ck_assert_int_eq(dfgnn__pack_count(), 0);
  ck_assert_ptr_nonnull(strstr(problem_of_the_pack(), "not signed by anybody"));
}

TEST(a_pack_that_is_given_up_leaves_no_file) {
  dfgnn_pack_writer *writer = NULL;
  char command[128];
  ck_ok(dfgnn__pack_create(&writer, pack_path));
  ck_ok(dfgnn__pack_close(writer, 0, NULL));
  snprintf(command, sizeof command, "test -z \"$(ls %s)\"", folder);
  ck_assert_int_eq(system(command), 0);
}

TEST_MAIN("all", .setup = engine_setup, .teardown = engine_teardown,
          .timeout = 60)
