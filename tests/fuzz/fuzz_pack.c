/* A pack of any bytes, and a good one with bytes changed: no kernel comes out
 * of it but one whose digest fits. */
#include "kernels/engine/kernel_file.h"
#include "lib/base/xz.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dfgnn_keys_of keys;
static unsigned char *good;
static sqlite3_int64 good_size;

/* A pack with one kernel, in memory. */
static void begin(void) {
  sqlite3 *db = NULL;
  char code[200], symbol[] = "_Z9something";
  memset(code, 'k', sizeof code);
  memset(&keys, 3, sizeof keys);
  const dfgnn_image image = {
      .code = code, .bytes = sizeof code, .symbol = symbol};
  if (sqlite3_open(":memory:", &db) ||
      dfgnn__kernel_file_start(db, "a pack", 1) ||
      dfgnn__kernel_file_store(db, &keys, &image, "sm_90", "f<1>", 0) !=
          SQLITE_DONE ||
      !(good = sqlite3_serialize(db, "main", &good_size, 0)))
    abort();
  sqlite3_close(db);
}

static void use(const unsigned char *bytes, size_t size) {
  dfgnn_kernel_file_info info;
  dfgnn_image image = {0};
  sqlite3 *db = NULL;
  unsigned char *copy = sqlite3_malloc64(size + 1);
  if (!copy)
    return;
  memcpy(copy, bytes, size);
  if (dfgnn__xz_is(copy, size) &&
      dfgnn__xz_unpack(&copy, &size, 1 << 22, "a pack")) {
    sqlite3_free(copy);
    return;
  }
  if (size < 512 || sqlite3_open(":memory:", &db)) {
    sqlite3_free(copy);
    sqlite3_close(db);
    return;
  }
  if (!sqlite3_deserialize(
          db, "main", copy, (sqlite3_int64)size, (sqlite3_int64)size,
          SQLITE_DESERIALIZE_READONLY | SQLITE_DESERIALIZE_FREEONCLOSE) &&
      !dfgnn__kernel_file_start(db, "a pack", 0)) {
    (void)dfgnn__kernel_file_count(db, &info);
    for (int by_program = 0; by_program < 2; by_program++)
      if (dfgnn__kernel_file_find(db, &image,
                                  by_program ? keys.program : keys.full,
                                  by_program) == SQLITE_ROW) {
        if (image.bytes != 200 || strcmp(image.symbol, "_Z9something"))
          abort(); /* another kernel under this key */
        dfgnn__image_free(&image);
      }
  }
  sqlite3_close(db);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static unsigned char changed[1 << 16];
  if (!good)
    begin();
  use(data, size);
  if (good_size > (sqlite3_int64)sizeof changed)
    abort();
  memcpy(changed, good, (size_t)good_size);
  for (; size >= 3; data += 3, size -= 3) /* place, place, byte */
    changed[(size_t)(data[0] << 8 | data[1]) % (size_t)good_size] = data[2];
  use(changed, (size_t)good_size);
  return 0;
}
