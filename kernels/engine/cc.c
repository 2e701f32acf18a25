#define _GNU_SOURCE /* memfd_create */
#include "kernels/engine/cc.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/engine/cache.h"
#include "kernels/engine/kernel_file.h"
#include "lib/base/error.h"
#include "lib/base/load.h"

extern char **environ;

enum { MOST_S = 60, GRACE_S = 2, MOST_OPTIONS = 32 };

/* Exact to the bit whatever compiles: no product and sum become one. */
static const char *const common_options[] = {"-std=gnu11",
                                             "-O3",
                                             "-ffp-contract=off",
                                             "-fno-math-errno",
                                             "-fno-trapping-math",
                                             "-fopenmp-simd",
                                             "-fPIC",
                                             "-shared",
                                             "-fvisibility=hidden",
                                             "-w"};
enum { COMMON = sizeof common_options / sizeof *common_options };

/* ---- the compiler -------------------------------------------------------- */

static int is_program(struct stat *info, const char *path) {
  return !stat(path, info) && S_ISREG(info->st_mode) && !access(path, X_OK);
}

/* The file that a shell would run. */
static int find_compiler(char path[PATH_MAX], struct stat *info) {
  const char *name = getenv("DFGNN_CC"), *folders = getenv("PATH");
  if (!name)
    name = "cc";
  if (!*name || getauxval(AT_SECURE))
    return 0;
  if (strchr(name, '/'))
    return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX &&
           is_program(info, path);
  for (size_t n; folders && *folders; folders += n + (folders[n] == ':')) {
    n = strcspn(folders, ":");
    if (n &&
        snprintf(path, PATH_MAX, "%.*s/%s", (int)n, folders, name) < PATH_MAX &&
        is_program(info, path))
      return 1;
  }
  return 0;
}

static void add_text(crypto_generichash_state *state, const char *text) {
  crypto_generichash_update(state, (const unsigned char *)text,
                            strlen(text) + 1);
}

static void make_keys(dfgnn_keys_of *keys, const char *text,
                      const char *const *options, const char *compiler,
                      const struct stat *info) {
  crypto_generichash_state state;
  char version[64];
  crypto_generichash_init(&state, NULL, 0, DFGNN_KEY_BYTES);
  add_text(&state, "dfgnn C 1");
  for (int i = 0; i < COMMON; i++)
    add_text(&state, common_options[i]);
  for (; *options; options++)
    add_text(&state, *options);
  add_text(&state, text);
  crypto_generichash_final(&state, keys->program, DFGNN_KEY_BYTES);
  snprintf(version, sizeof version, "%lld %lld", (long long)info->st_size,
           (long long)info->st_mtime);
  crypto_generichash_init(&state, NULL, 0, DFGNN_KEY_BYTES);
  crypto_generichash_update(&state, keys->program, DFGNN_KEY_BYTES);
  add_text(&state, compiler);
  add_text(&state, version);
  crypto_generichash_final(&state, keys->full, DFGNN_KEY_BYTES);
}

/* ---- running it ---------------------------------------------------------- */

/* Waits for a compiler until `end`; 1 and its status if it has ended. */
static int wait_until(int *status, pid_t child, double end,
                      const atomic_int *stop) {
  enum { MS = 5 };
  for (;;) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child)
      return 1;
    if (ended < 0 && errno != EINTR) {
      *status = -1; /* the process has children waited for elsewhere */
      return 1;
    }
    if (dfgnn__seconds() >= end || (stop && atomic_load(stop)))
      return 0;
    (void)poll(NULL, 0, MS);
  }
}

/* Ends a compiler and what it started, which may remove its files first. */
static void end_compiler(pid_t child) {
  int status;
  (void)kill(-child, SIGTERM);
  if (wait_until(&status, child, dfgnn__seconds() + GRACE_S, NULL))
    return;
  (void)kill(-child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
}

static int spawn(pid_t *child, const char *path, char *const *arguments,
                 const char *log) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, usual;
  int error = posix_spawn_file_actions_init(&actions);
  if (error)
    return error;
  if ((error = posix_spawnattr_init(&attributes))) {
    posix_spawn_file_actions_destroy(&actions);
    return error;
  }
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGTERM);
  sigaddset(&usual, SIGPIPE);
  sigaddset(&usual, SIGCHLD);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                            POSIX_SPAWN_SETSIGMASK |
                                            POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, log,
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  error = posix_spawn(child, path, &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* The first line of the log that has the word "error", else its first. */
static void take_error(char *line, size_t size, const char *log) {
  char next[256];
  FILE *in = fopen(log, "r");
  snprintf(line, size, "it gives no reason");
  for (int i = 0; in && fgets(next, sizeof next, in); i++) {
    next[strcspn(next, "\n")] = 0;
    if (i == 0 || strstr(next, "error"))
      snprintf(line, size, "%s", next);
    if (strstr(next, "error"))
      break;
  }
  if (in)
    fclose(in);
}

static dfgnn_status run_compiler(const char *path, char *const *arguments,
                                 const char *log, const atomic_int *stop) {
  pid_t child;
  int status = 0;
  char why[256];
  const int error = spawn(&child, path, arguments, log);
  if (error)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s: %s", path,
                       strerror(error));
  if (!wait_until(&status, child, dfgnn__seconds() + MOST_S, stop)) {
    end_compiler(child);
    return stop && atomic_load(stop)
               ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s was told to stop",
                             path)
               : dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                             "%s takes longer than %d s", path, MOST_S);
  }
  if (status == 0)
    return DFGNN_OK;
  take_error(why, sizeof why, log);
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s fails: %s", path, why);
}

/* ---- its files ----------------------------------------------------------- */

static int write_file(int folder, const char *name, const char *text) {
  const int fd =
      openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  size_t done = 0, size = strlen(text);
  for (ssize_t n; fd >= 0 && done < size; done += (size_t)n)
    if ((n = write(fd, text + done, size - done)) <= 0)
      break;
  return (fd < 0 || close(fd) || done != size) ? -1 : 0;
}

static int read_file(dfgnn_image *image, int folder, const char *name) {
  struct stat info;
  size_t done = 0;
  const int fd =
      openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) &&
      info.st_size > 0 && info.st_size <= DFGNN_KERNEL_MAX_BYTES) {
    image->bytes = (size_t)info.st_size;
    image->code = malloc(image->bytes);
  }
  for (ssize_t n; image->code && done < image->bytes; done += (size_t)n)
    if ((n = read(fd, (char *)image->code + done, image->bytes - done)) <= 0)
      break;
  if (fd >= 0)
    close(fd);
  return image->code && done == image->bytes ? 0 : -1;
}

static void remove_folder(int folder, const char *path) {
  DIR *list = fdopendir(folder); /* which closes it */
  for (struct dirent *entry; list && (entry = readdir(list));)
    (void)unlinkat(folder, entry->d_name, 0);
  if (list)
    closedir(list);
  else
    close(folder);
  (void)rmdir(path);
}

/* Compiles in a folder of its own, which only the user can enter. */
static dfgnn_status compile(dfgnn_image *image, const char *text,
                            const char *compiler, const char *const *options,
                            const atomic_int *stop) {
  const char *place = getenv("TMPDIR");
  char path[PATH_MAX], in[PATH_MAX + 16], out[PATH_MAX + 16],
      log[PATH_MAX + 16];
  const char *arguments[COMMON + MOST_OPTIONS + 8] = {compiler};
  int count = 1;
  dfgnn_status status = DFGNN_OK;
  if (snprintf(path, sizeof path, "%s/dfgnn-XXXXXX",
               place && *place ? place : "/tmp") >= (int)sizeof path ||
      !mkdtemp(path))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s: %s", path,
                       strerror(errno));
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    (void)rmdir(path);
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s: %s", path,
                       strerror(errno));
  }
  snprintf(in, sizeof in, "%s/body.c", path);
  snprintf(out, sizeof out, "%s/body.so", path);
  snprintf(log, sizeof log, "%s/log", path);
  for (int i = 0; i < COMMON; i++)
    arguments[count++] = common_options[i];
  for (; *options && count < COMMON + MOST_OPTIONS; options++)
    arguments[count++] = *options;
  arguments[count++] = "-o";
  arguments[count++] = out;
  arguments[count++] = in;
  arguments[count++] = "-lm";
  if (write_file(folder, "body.c", text))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s cannot be written", in);
  if (!status)
    status = run_compiler(compiler, (char *const *)arguments, log, stop);
  if (!status && read_file(image, folder, "body.so"))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s cannot be read", out);
  remove_folder(folder, path);
  return status;
}

/* ---- loading ------------------------------------------------------------- */

/* The name of a descriptor's file.  The loader takes two names that are equal
 * for the same library, and descriptors' numbers come again, so that each name
 * goes through the folder itself in another way, and in each copy of this
 * library that a process has. */
static void name_file(char *name, size_t size, int fd) {
  static atomic_uint next;
  const uint64_t copy = (uint64_t)(uintptr_t)&next >> 12;
  const uint64_t number = copy << 20 | atomic_fetch_add(&next, 1);
  size_t n = (size_t)snprintf(name, size, "/proc/self/fd/");
  for (int bit = 0; bit < 44; bit++)
    n += (size_t)snprintf(name + n, size - n, number >> bit & 1 ? "./" : "/");
  snprintf(name + n, size - n, "%d", fd);
}

static dfgnn_status load(void **found, const dfgnn_image *image,
                         const char *symbol) {
  char name[128];
  size_t done = 0;
  const int fd = memfd_create("dfgnn body", MFD_CLOEXEC);
  void *library = NULL;
  for (ssize_t n; fd >= 0 && done < image->bytes; done += (size_t)n)
    if ((n = write(fd, (const char *)image->code + done,
                   image->bytes - done)) <= 0)
      break;
  if (fd >= 0 && done == image->bytes) {
    name_file(name, sizeof name, fd);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  *found = library ? dlsym(library, symbol) : NULL;
  if (fd >= 0)
    close(fd);
  if (*found)
    return DFGNN_OK;
  const char *why = library || done < image->bytes ? NULL : dlerror();
  if (library)
    dlclose(library);
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "a body cannot be loaded: %.300s",
                     why ? why : "it is not whole");
}

dfgnn_status dfgnn__cc_load(void **found, const char *text, const char *symbol,
                            const char *const *options, const atomic_int *stop,
                            pthread_mutex_t *loading) {
  char compiler[PATH_MAX];
  struct stat info;
  dfgnn_keys_of keys;
  dfgnn_image image = {0};
  dfgnn_status status = DFGNN_OK;
  *found = NULL;
  if (!find_compiler(compiler, &info))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "there is no C compiler");
  make_keys(&keys, text, options, compiler, &info);
  pthread_mutex_lock(loading);
  if (dfgnn__cache_find(&image, &keys) && load(found, &image, symbol))
    dfgnn__cache_forget(&keys);
  pthread_mutex_unlock(loading);
  dfgnn__image_free(&image);
  if (*found)
    return DFGNN_OK;
  status = compile(&image, text, compiler, options, stop);
  pthread_mutex_lock(loading);
  if (!status)
    status = load(found, &image, symbol);
  if (!status && (image.symbol = strdup(symbol)))
    dfgnn__cache_store(&keys, &image, "cpu", "C of an edge program");
  pthread_mutex_unlock(loading);
  dfgnn__image_free(&image);
  return status;
}
