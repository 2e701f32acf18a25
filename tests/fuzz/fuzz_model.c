/* A model of any bytes, and one whose compressed content is any bytes: it is
 * refused with a reason, or what is read of it is written and read again alike.
 */
#include "lib/base/error.h"
#include "select/forest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const void *bytes, size_t size) {
  static char path[64];
  dfgnn_forests forests = {0}, again = {0};
  if (!*path)
    snprintf(path, sizeof path, "%s/dfgnn-fuzz-model-%d",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (int)getpid());
  if (dfgnn__forests_read(&forests, "a model", bytes, size)) {
    if (!*dfgnn_last_error())
      abort();
    return;
  }
  (void)unlink(path);
  if (dfgnn__forests_save(&forests, path) ||
      dfgnn__forests_load(&again, path) || again.count != forests.count)
    abort();
  for (size_t i = 0; i < forests.count; i++)
    if (strcmp(forests.forest[i].key, again.forest[i].key) ||
        forests.forest[i].nodes != again.forest[i].nodes)
      abort();
  (void)unlink(path);
  dfgnn__forests_free(&again);
  dfgnn__forests_free(&forests);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char magic[] = "dfgnn-model 2\n";
  enum { MAGIC = sizeof magic - 1, ROOM = 1 << 16 };
  static unsigned char whole[MAGIC + 4 + ROOM];
  uLongf packed = ROOM;
  use(data, size);
  if (size > ROOM / 2 ||
      compress2(whole + MAGIC + 4, &packed, data, size, 1) != Z_OK)
    return 0;
  memcpy(whole, magic, MAGIC);
  for (int i = 0; i < 4; i++)
    whole[MAGIC + i] = (unsigned char)(size >> (8 * i));
  use(whole, MAGIC + 4 + packed);
  return 0;
}
