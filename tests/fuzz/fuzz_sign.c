/* Signatures and keys: whatever is in FILE.sig, in a public key or in the store
 * itself, only the genuine three together are accepted. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "db/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static char genuine_key[512], genuine_signature[512];
static dfgnn_keys *keys;

static const char *name_of(const char *file) {
  static char names[4][128];
  static int next;
  char *name = names[next++ % 4];
  snprintf(name, sizeof *names, "%s/%s", folder, file);
  return name;
}

static void put(const char *file, const void *bytes, size_t size) {
  FILE *out = fopen(name_of(file), "wb");
  if (!out || fwrite(bytes, 1, size, out) != size || fclose(out))
    abort();
}

static void get(char text[512], const char *file) {
  FILE *in = fopen(name_of(file), "rb");
  if (!in || !fgets(text, 512, in))
    abort();
  fclose(in);
  text[strcspn(text, "\r\n")] = 0;
}

static void remove_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  if (system(command))
    perror(folder);
}

static void begin(void) {
  dfgnn_store *store = NULL;
  snprintf(folder, sizeof folder, "%s/dfgnn-fuzz-XXXXXX",
           access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
  if (!mkdtemp(folder))
    abort();
  atexit(remove_folder);
  if (dfgnn__store_open(&store, name_of("s.db"), DFGNN_STORE_WRITE) ||
      dfgnn__store_publish(store, name_of("p.db")) ||
      dfgnn__key_generate(name_of("k")) ||
      dfgnn__store_sign(name_of("p.db"), name_of("k.key")) ||
      dfgnn__keys_load(&keys, name_of("k.pub")))
    abort();
  dfgnn__store_close(store);
  get(genuine_key, "k.pub");
  get(genuine_signature, "p.db.sig");
}

/* Whether the first line of the bytes is `line`. */
static int is_line(const uint8_t *data, size_t size, const char *line) {
  size_t n = strlen(line);
  return size >= n && !memcmp(data, line, n) &&
         (size == n || strchr("\r\n", data[n]));
}

static int opens(const char *file, const dfgnn_keys *trusted) {
  dfgnn_store *store = NULL;
  dfgnn_status status =
      dfgnn__store_open_signed(&store, name_of(file), trusted);
  if (status && (store || !*dfgnn_last_error()))
    abort();
  dfgnn__store_close(store);
  return !status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!keys)
    begin();
  put("p.db.sig", data, size);
  if (opens("p.db", keys) != is_line(data, size, genuine_signature))
    abort();
  put("p.db.sig", genuine_signature, strlen(genuine_signature));
  if (!opens("p.db", keys))
    abort();
  put("x.pub", data, size);
  dfgnn_keys *others = NULL;
  if (!dfgnn__keys_load(&others, name_of("x.pub")) &&
      opens("p.db", others) != is_line(data, size, genuine_key))
    abort();
  dfgnn__keys_free(others);
  put("x.key", data, size);
  if (!dfgnn__store_sign(name_of("p.db"), name_of("x.key")) &&
      opens("p.db", keys))
    abort(); /* signed by a key that nobody trusts */
  put("q.db", data, size);
  put("q.db.sig", genuine_signature, strlen(genuine_signature));
  if (opens("q.db", keys))
    abort();
  return 0;
}
