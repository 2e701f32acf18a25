/* sign.c - Ed25519 signatures of stores and packs, beside published files */
#include "db/internal.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/output.h"
#include "lib/base/xz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 512

typedef struct signature {
  unsigned char key[crypto_sign_PUBLICKEYBYTES];
  unsigned char sign[crypto_sign_BYTES];
} signature;

struct dfgnn_keys {
  char *path;
  size_t count;
  char exposed[512]; /* why others may have written a key; "": they cannot */
  unsigned char (*key)[crypto_sign_PUBLICKEYBYTES];
};

/* ---- one line of text ---------------------------------------------------- */

static dfgnn_status write_line(const char *path, const char *kind,
                               const void *bytes, size_t size, int flags,
                               mode_t mode) {
  char line[LINE_BYTES], code[LINE_BYTES / 2];
  sodium_bin2base64(code, sizeof code, bytes, size,
                    sodium_base64_VARIANT_ORIGINAL);
  int length = snprintf(line, sizeof line, "%s %s\n", kind, code);
  int fd =
      open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, mode);
  int failed = fd < 0 || write(fd, line, (size_t)length) != length || fsync(fd);
  dfgnn_status status =
      failed ? dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be written: %s", path,
                           strerror(errno))
             : DFGNN_OK;
  if (fd >= 0)
    close(fd);
  if (failed && fd >= 0 && flags & O_EXCL)
    unlink(path); /* half of a key is none */
  sodium_memzero(line, sizeof line);
  sodium_memzero(code, sizeof code);
  return status;
}

/* Reads the line of an open file, which is closed. */
static dfgnn_status take_line(void *bytes, size_t size, int fd,
                              const char *path, const char *kind) {
  char line[LINE_BYTES] = "";
  size_t length = strlen(kind), found = 0;
  FILE *file = fdopen(fd, "r");
  if (!file) {
    close(fd);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot buffer", path);
  }
  int good = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  line[strcspn(line, "\r\n")] = 0;
  good = good && strncmp(line, kind, length) == 0 && line[length] == ' ' &&
         sodium_base642bin(bytes, size, line + length + 1,
                           strlen(line + length + 1), NULL, &found, NULL,
                           sodium_base64_VARIANT_ORIGINAL) == 0 &&
         found == size;
  sodium_memzero(line, sizeof line);
  return good ? DFGNN_OK
              : dfgnn__fail(DFGNN_ERROR_FORMAT,
                            "%s: expected one line \"%s BASE64\" of %zu bytes",
                            path, kind, size);
}

#define KEY_OR_SIGNATURE "a key or signature"

static dfgnn_status read_line(void *bytes, size_t size, const char *path,
                              const char *kind) {
  int64_t bytes_there;
  int fd;
  DFGNN_TRY(
      dfgnn__file_or_pipe_open(&fd, &bytes_there, path, KEY_OR_SIGNATURE));
  return take_line(bytes, size, fd, path, kind);
}

static dfgnn_status suffixed(char name[PATH_MAX], const char *path,
                             const char *suffix) {
  int length = snprintf(name, PATH_MAX, "%s%s", path, suffix);
  return length < PATH_MAX
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_INVALID, "%.64s...: too long", path);
}

static dfgnn_status start(void) {
  return sodium_init() < 0
             ? dfgnn__fail(DFGNN_ERROR_STORE, "libsodium cannot start")
             : DFGNN_OK;
}

/* ---- files --------------------------------------------------------------- */

/* The bytes of a published store; free them. */
static dfgnn_status read_store(unsigned char **bytes, size_t *size,
                               const char *path) {
  char name[PATH_MAX];
  int64_t bytes_there;
  int fd;
  unsigned char *all = NULL;
  DFGNN_TRY(suffixed(name, path, "-wal"));
  int missing = access(path, F_OK) && errno == ENOENT;
  dfgnn_status status =
      dfgnn__file_open(&fd, &bytes_there, path, "a store file");
  if (status)
    return missing ? status : DFGNN_ERROR_STORE;
  if (bytes_there > DFGNN_STORE_CAP_BYTES)
    DFGNN_GO(dfgnn__fail(
        DFGNN_ERROR_STORE, "%s: the file has %lld MiB, expected at most %lld",
        path, (long long)bytes_there >> 20, DFGNN_STORE_CAP_BYTES >> 20));
  size_t length = (size_t)bytes_there, done = 0;
  all = malloc(length + 1);
  for (ssize_t n = 1; all && n > 0 && done < length; done += (size_t)n)
    if ((n = read(fd, all + done, length - done)) <= 0)
      break;
  if (!all || done != length)
    status = dfgnn__fail(all ? DFGNN_ERROR_STORE : DFGNN_ERROR_MEMORY,
                         "%s: cannot be read whole", path);
  else if (length < 100 || all[18] == 2 || all[19] == 2)
    status = dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: not a published store, the only kind that can "
                         "be signed; make one with dfgnn-tune publish",
                         path);
  if (!status) {
    *bytes = all;
    *size = length;
    all = NULL;
  }
out:
  free(all);
  close(fd);
  return status;
}

/* The message that is signed: this text, then the file's hash. */
#define MESSAGE "dfgnn store 1\n"
#define MESSAGE_BYTES (sizeof MESSAGE - 1 + crypto_generichash_BYTES_MAX)

static void message_of(unsigned char message[MESSAGE_BYTES],
                       const unsigned char *bytes, size_t size) {
  memcpy(message, MESSAGE, sizeof MESSAGE - 1);
  crypto_generichash(message + sizeof MESSAGE - 1, crypto_generichash_BYTES_MAX,
                     bytes, size, NULL, 0);
}

dfgnn_status dfgnn__key_generate(const char *stem) {
  unsigned char public[crypto_sign_PUBLICKEYBYTES];
  unsigned char secret[crypto_sign_SECRETKEYBYTES];
  char public_name[PATH_MAX], secret_name[PATH_MAX];
  DFGNN_TRY(start());
  DFGNN_TRY(suffixed(public_name, stem, ".pub"));
  DFGNN_TRY(suffixed(secret_name, stem, ".key"));
  crypto_sign_keypair(public, secret);
  dfgnn_status status = write_line(secret_name, "dfgnn-secret-key", secret,
                                   sizeof secret, O_EXCL, 0600);
  if (!status) {
    status = write_line(public_name, "dfgnn-public-key", public, sizeof public,
                        O_EXCL, 0644);
    if (status)
      unlink(secret_name);
  }
  sodium_memzero(secret, sizeof secret);
  return status;
}

/* A pack of compiled kernels is known by SQLite's application id, at byte 68;
 * the engine checks the rest of the file. */
static int has_id_of_pack(const unsigned char *bytes, size_t size) {
  return size >= 72 && memcmp(bytes + 68, "dfnk", 4) == 0;
}

/* Is the file a pack, plain or compressed by xz? */
static dfgnn_status find_pack(int *found, const unsigned char *bytes,
                              size_t size, const char *path) {
  *found = has_id_of_pack(bytes, size);
  if (*found || !dfgnn__xz_is(bytes, size))
    return DFGNN_OK;
  unsigned char *plain = sqlite3_malloc64(size);
  if (!plain)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  memcpy(plain, bytes, size);
  dfgnn_status status =
      dfgnn__xz_unpack(&plain, &size, DFGNN_STORE_CAP_BYTES, path);
  *found = !status && has_id_of_pack(plain, size);
  sqlite3_free(plain);
  return status;
}

static dfgnn_status write_signature(const char *name, const signature *s) {
  static const dfgnn_output_kind kind = {.name = "a signature",
                                         .mark = {{0, "dfgnn-signature "}}};
  dfgnn_output output;
  DFGNN_TRY(dfgnn__output_open(&output, name, &kind));
  dfgnn_status status =
      write_line(output.made, "dfgnn-signature", s, sizeof *s, 0, 0644);
  output.mode = 0644;
  dfgnn_status closed = dfgnn__output_close(&output, !status);
  return status ? status : closed;
}

dfgnn_status dfgnn__store_sign(const char *path, const char *secret_key) {
  unsigned char secret[crypto_sign_SECRETKEYBYTES], message[MESSAGE_BYTES];
  unsigned char *bytes = NULL;
  signature s;
  size_t size;
  char name[PATH_MAX];
  dfgnn_store *store = NULL;
  int pack = 0;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(start());
  DFGNN_GO(suffixed(name, path, ".sig"));
  DFGNN_GO(read_line(secret, sizeof secret, secret_key, "dfgnn-secret-key"));
  DFGNN_GO(read_store(&bytes, &size, path));
  /* A file that is no store and no pack must not be signed. */
  DFGNN_GO(find_pack(&pack, bytes, size, path));
  if (!pack)
    DFGNN_GO(dfgnn__store_open_bytes(&store, path, bytes, size));
  message_of(message, bytes, size);
  crypto_sign_detached(s.sign, NULL, message, sizeof message, secret);
  crypto_sign_ed25519_sk_to_pk(s.key, secret);
  status = write_signature(name, &s);
out:
  sodium_memzero(secret, sizeof secret);
  dfgnn__store_close(store);
  free(bytes);
  return status;
}

/* ---- trust --------------------------------------------------------------- */

/* Adds the key of an open file, which is closed; fd -1: errno says why not. */
static dfgnn_status add_key(dfgnn_keys *keys, int fd, const char *path) {
  if (fd < 0)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot open: %s", path,
                       strerror(errno));
  DFGNN_TRY(dfgnn__file_or_pipe_check(fd, path, KEY_OR_SIGNATURE));
  void *grown = realloc(keys->key, (keys->count + 1) * sizeof *keys->key);
  if (!grown) {
    close(fd);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  keys->key = grown;
  dfgnn_status status = take_line(keys->key[keys->count], sizeof *keys->key, fd,
                                  path, "dfgnn-public-key");
  keys->count += !status;
  return status;
}

static dfgnn_status add_entry(dfgnn_keys *keys, int folder, const char *name) {
  char path[PATH_MAX];
  struct stat info;
  size_t length = strlen(name);
  if (length < 5 || strcmp(name + length - 4, ".pub") != 0)
    return DFGNN_OK;
  snprintf(path, sizeof path, "%.3800s/%s", keys->path, name);
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &info) || !dfgnn__only_ours(&info)))
    snprintf(keys->exposed, sizeof keys->exposed,
             "%.300s must belong to root or to the user, and nobody else may "
             "be able to write it",
             name);
  return add_key(keys, fd, path);
}

static dfgnn_status add_directory(dfgnn_keys *keys, const char *path) {
  int fd;
  if (!dfgnn__folder_open(&fd, keys->exposed, sizeof keys->exposed, path))
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *directory = fd < 0 ? NULL : fdopendir(fd);
  dfgnn_status status = DFGNN_OK;
  if (!directory) {
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot be read: %s", path,
                         strerror(errno));
    if (fd >= 0)
      close(fd);
    return status;
  }
  for (struct dirent *entry; !status && (entry = readdir(directory));)
    status = add_entry(keys, dirfd(directory), entry->d_name);
  closedir(directory);
  return status;
}

static dfgnn_status add_file(dfgnn_keys *keys, const char *path) {
  return add_key(
      keys, dfgnn__file_open_safely(keys->exposed, sizeof keys->exposed, path),
      path);
}

dfgnn_status dfgnn__keys_load(dfgnn_keys **out, const char *path) {
  struct stat info;
  DFGNN_TRY(start());
  dfgnn_keys *keys = calloc(1, sizeof *keys);
  if (!keys || !(keys->path = strdup(path))) {
    free(keys);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  dfgnn_status status = !stat(path, &info) && S_ISDIR(info.st_mode)
                            ? add_directory(keys, path)
                            : add_file(keys, path);
  if (!status && !keys->count)
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: has no *.pub file", path);
  if (status)
    dfgnn__keys_free(keys);
  else
    *out = keys;
  return status;
}

dfgnn_status dfgnn__keys_check(const dfgnn_keys *keys) {
  return *keys->exposed
             ? dfgnn__fail(DFGNN_ERROR_INVALID,
                           "%s: a key decides what is trusted, and %s",
                           keys->path, keys->exposed)
             : DFGNN_OK;
}

void dfgnn__keys_free(dfgnn_keys *keys) {
  if (!keys)
    return;
  free(keys->path);
  free(keys->key);
  free(keys);
}

dfgnn_status dfgnn__signature_check(const char *path, const dfgnn_keys *keys,
                                    const unsigned char *bytes, size_t size) {
  char name[PATH_MAX];
  unsigned char message[MESSAGE_BYTES];
  signature s;
  int trusted = 0;
  DFGNN_TRY(suffixed(name, path, ".sig"));
  dfgnn_status status = read_line(&s, sizeof s, name, "dfgnn-signature");
  if (status) {
    dfgnn__fail_prefix(status,
                       "%s: not signed, and only files signed with a key of "
                       "%s are accepted: ",
                       path, keys->path);
    return DFGNN_ERROR_STORE;
  }
  for (size_t i = 0; i < keys->count; i++)
    trusted |= memcmp(keys->key[i], s.key, sizeof s.key) == 0;
  if (!trusted)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: signed with a key that is not of %s", path,
                       keys->path);
  message_of(message, bytes, size);
  return crypto_sign_verify_detached(s.sign, message, sizeof message, s.key)
             ? dfgnn__fail(DFGNN_ERROR_STORE,
                           "%s: the signature does not fit: the file was "
                           "changed after it was signed",
                           path)
             : DFGNN_OK;
}

dfgnn_status dfgnn__store_open_signed(dfgnn_store **store, const char *path,
                                      const dfgnn_keys *keys) {
  unsigned char *bytes = NULL;
  size_t size = 0;
  dfgnn_status status = read_store(&bytes, &size, path);
  if (!status)
    status = dfgnn__signature_check(path, keys, bytes, size);
  if (!status)
    status = dfgnn__store_open_bytes(store, path, bytes, size);
  free(bytes);
  return status;
}
