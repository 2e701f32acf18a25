/* filesystem.c - file systems, folders, and files that get their names whole */
#define _GNU_SOURCE /* renameat2 */
#include "lib/base/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

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

int dfgnn__others_can_write(char *why, size_t size, const char *path) {
  char folder[PATH_MAX], up[PATH_MAX];
  struct stat info;
  dfgnn__directory_of(folder, path);
  for (int above = 0;; above = 1) {
    /* In a sticky folder others can add a name, but not exchange one. */
    const mode_t open_to_others = above ? S_IWOTH : S_IWGRP | S_IWOTH;
    int bad = stat(folder, &info) || (info.st_mode & open_to_others &&
                                      !(above && info.st_mode & S_ISVTX));
    if (bad) {
      snprintf(why, size, "others can write the folder %s; chmod go-w %s",
               folder, folder);
      return 1;
    }
    if (!above && info.st_uid != 0 && info.st_uid != geteuid()) {
      snprintf(why, size, "the folder %s belongs to another user", folder);
      return 1;
    }
    dfgnn__directory_of(up, folder);
    if (!strcmp(up, folder) || !strcmp(up, "."))
      return 0;
    strcpy(folder, up);
  }
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
  if (link(made, path) != 0) {
    error = errno;
    /* Some file systems have no hard links. */
    if (error != EEXIST && error != ENOENT && error != ENOSPC)
      error = renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_NOREPLACE)
                  ? errno
                  : 0;
  }
  if (error == 0) {
    unlink(made);
    dfgnn__sync_directory(path);
  }
  return error;
}
