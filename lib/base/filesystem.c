/* filesystem.c - file systems, folders, and files that get their names whole */
#define _GNU_SOURCE /* renameat2, dladdr */
#include "lib/base/filesystem.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef DFGNN_DATADIR
#define DFGNN_DATADIR "/usr/local/share"
#endif

static char package_folder[PATH_MAX] = DFGNN_DATADIR "/dfgnn";

static void find_package_folder(void) {
  static const char *const up[] = {"..", "../.."}; /* bin, lib, lib/TRIPLET */
  char own[PATH_MAX], directory[PATH_MAX], path[PATH_MAX];
  Dl_info info;
  if (!dladdr(package_folder, &info) ||
      !realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe",
                own))
    return;
  dfgnn__directory_of(directory, own);
  for (size_t i = 0; i < sizeof up / sizeof *up; i++)
    if (snprintf(path, sizeof path, "%s/%s/share/dfgnn", directory, up[i]) <
            (int)sizeof path &&
        realpath(path, own)) {
      memcpy(package_folder, own, sizeof own);
      return;
    }
}

const char *dfgnn__package_folder(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_package_folder);
  return package_folder;
}

static const struct {
  uint32_t magic; /* statfs(2), Linux's magic.h */
  const char *name;
} network_filesystems[] = {
    {0x00006969u, "NFS"},      {0x0bd00bd0u, "Lustre"}, {0x47504653u, "GPFS"},
    {0x00c36400u, "CephFS"},   {0xff534d42u, "CIFS"},   {0xfe534d42u, "SMB"},
    {0x0000517bu, "SMB"},      {0x19830326u, "BeeGFS"}, {0x65735546u, "FUSE"},
    {0x5346414fu, "AFS"},      {0x6b414653u, "AFS"},    {0x73757245u, "Coda"},
    {0x20030528u, "OrangeFS"}, {0xaad7aaeau, "PanFS"},
    /* 9P is left out: virtual machines reach a disk of their host by it. */
};

void dfgnn__directory_of(char directory[PATH_MAX], const char *path) {
  snprintf(directory, PATH_MAX, "%s", path);
  char *slash = strrchr(directory, '/');
  if (!slash)
    strcpy(directory, ".");
  else
    slash[slash == directory] = 0;
}

static const char *network_filesystem(const char *path) {
  char at[PATH_MAX];
  struct statfs info;
  snprintf(at, sizeof at, "%s", path);
  while (statfs(at, &info) != 0) {
    if (errno != ENOENT || strcmp(at, ".") == 0 || strcmp(at, "/") == 0)
      return NULL;
    char up[PATH_MAX];
    dfgnn__directory_of(up, at);
    memcpy(at, up, sizeof at);
  }
  size_t count = sizeof network_filesystems / sizeof *network_filesystems;
  for (size_t i = 0; i < count; i++)
    if (network_filesystems[i].magic == (uint32_t)info.f_type)
      return network_filesystems[i].name;
  return NULL;
}

const char *(*dfgnn__network_filesystem)(const char *) = network_filesystem;

char *dfgnn__temporary_name(const char *path) {
  uint64_t random;
  randombytes_buf(&random, sizeof random);
  size_t size = strlen(path) + 32;
  char *name = malloc(size);
  if (name)
    snprintf(name, size, "%s.new-%016llx", path, (unsigned long long)random);
  return name;
}

/* Is a name `base`.new-RANDOM, or such a file's journal? */
static int is_temporary(const char *name, const char *base) {
  static const char *const ends[] = {"", "-journal", "-wal", "-shm"};
  const size_t length = strlen(base);
  if (strncmp(name, base, length) || strncmp(name + length, ".new-", 5))
    return 0;
  name += length + 5;
  if (strspn(name, "0123456789abcdef") != 16)
    return 0;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (!strcmp(name + 16, ends[i]))
      return 1;
  return 0;
}

void dfgnn__remove_stale(const char *path) {
  enum { DAY = 24 * 60 * 60 };
  char directory[PATH_MAX];
  struct stat info;
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  dfgnn__directory_of(directory, path);
  DIR *list = opendir(directory);
  for (const struct dirent *entry; list && (entry = readdir(list));)
    if (is_temporary(entry->d_name, base) &&
        !fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
        S_ISREG(info.st_mode) && info.st_mtime < time(NULL) - DAY)
      (void)unlinkat(dirfd(list), entry->d_name, 0);
  if (list)
    closedir(list);
}

void dfgnn__sync_directory(const char *path) {
  char directory[PATH_MAX];
  dfgnn__directory_of(directory, path);
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

int dfgnn__make_folders(const char *path) {
  char folder[PATH_MAX];
  if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
    return ENAMETOOLONG;
  for (char *at = folder + 1;; at++) {
    if (*at && *at != '/')
      continue;
    char end = *at;
    *at = 0;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
      return errno;
    *at = end;
    if (!end)
      return 0;
  }
}

int dfgnn__follow_link(char place[PATH_MAX]) {
  char target[PATH_MAX], folder[PATH_MAX], next[2 * PATH_MAX];
  ssize_t length = readlink(place, target, sizeof target - 1);
  if (length < 0)
    return errno == EINVAL || errno == ENOENT ? 0 : -1;
  target[length] = 0;
  dfgnn__directory_of(folder, place);
  if (*target == '/')
    strcpy(next, target);
  else
    snprintf(next, sizeof next, "%s/%s", folder, target);
  if (strlen(next) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(place, next);
  return 1;
}

int dfgnn__follow_links(char place[PATH_MAX], const char *path) {
  if (snprintf(place, PATH_MAX, "%s", path) >= PATH_MAX)
    return ENAMETOOLONG;
  for (int links = 0; links <= DFGNN_MOST_LINKS; links++) {
    int followed = dfgnn__follow_link(place);
    if (followed <= 0)
      return followed ? errno : 0;
  }
  return ELOOP;
}

int dfgnn__resolve_folder(char resolved[PATH_MAX], const char *path) {
  char folder[PATH_MAX], whole[PATH_MAX];
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  dfgnn__directory_of(folder, path);
  if (!realpath(folder, whole))
    return errno;
  const char *between = strcmp(whole, "/") ? "/" : "";
  return snprintf(resolved, PATH_MAX, "%s%s%s", whole, between, name) < PATH_MAX
             ? 0
             : ENAMETOOLONG;
}

int dfgnn__only_ours(const struct stat *info) {
  return (info->st_uid == 0 || info->st_uid == geteuid()) &&
         !(info->st_mode & (S_IWGRP | S_IWOTH));
}

int dfgnn__folder_open(int *fd, char *why, size_t size, const char *directory) {
  struct stat info;
  *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0 || fstat(*fd, &info))
    snprintf(why, size, "the folder %s cannot be opened: %s", directory,
             strerror(errno));
  else if (dfgnn__only_ours(&info))
    return 1;
  else if (info.st_uid != 0 && info.st_uid != geteuid())
    snprintf(why, size, "the folder %s belongs to another user", directory);
  else if (info.st_uid != geteuid() || info.st_mode & S_ISVTX)
    snprintf(why, size, "others can write the folder %s; name one of your own",
             directory);
  else
    snprintf(why, size, "others can write the folder %s; chmod go-w %s",
             directory, directory);
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
  return 0;
}

int dfgnn__file_open_safely(char *unsafe, size_t size, const char *path) {
  char resolved[PATH_MAX], directory[PATH_MAX];
  struct stat info;
  int folder;
  *unsafe = 0;
  if (!realpath(path, resolved)) { /* a pipe has no name */
    snprintf(unsafe, size, "its folder is not known");
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  }
  dfgnn__directory_of(directory, resolved);
  if (!dfgnn__folder_open(&folder, unsafe, size, directory))
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  int fd = openat(folder, strrchr(resolved, '/') + 1,
                  O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
  const int error = errno;
  close(folder);
  errno = error;
  if (fd >= 0 && (fstat(fd, &info) || !dfgnn__only_ours(&info)))
    snprintf(unsafe, size,
             "it must belong to root or to the user, and nobody else may be "
             "able to write it");
  return fd;
}

char *dfgnn__sqlite_uri(const char *path, const char *options) {
  size_t size = 3 * strlen(path) + strlen(options) + 16;
  char *uri = malloc(size);
  if (!uri)
    return NULL;
  char *out = uri + sprintf(uri, *path == '/' ? "file://" : "file:");
  for (const unsigned char *c = (const unsigned char *)path; *c; c++)
    if (*c <= ' ' || *c >= 0x7f || strchr("%?#", *c))
      out += sprintf(out, "%%%02X", *c);
    else
      *out++ = (char)*c;
  sprintf(out, "%s%s", *options ? "?" : "", options);
  return uri;
}

int dfgnn__link_new(const char *made, const char *path) {
  int error = 0;
  if (renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_NOREPLACE) != 0) {
    error = errno;
    /* Some file systems cannot do this; a store is refused for the moment in
     * which it has two names. */
    if (error != EEXIST && error != ENOENT && error != ENOSPC)
      error = link(made, path) ? errno : 0;
  }
  if (error == 0) {
    unlink(made);
    dfgnn__sync_directory(path);
  }
  return error;
}
