/* filesystem.h - file systems, folders, and files that get their names whole */
#ifndef DFGNN_BASE_FILESYSTEM_H
#define DFGNN_BASE_FILESYSTEM_H

#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>

#define DFGNN_MOST_LINKS 40

/* Names the network file system that path, or its nearest existing directory,
 * is on; NULL if it is a local one.  Tests replace the function. */
extern const char *(*dfgnn__network_filesystem)(const char *path);
/* The directory part of a path, "." if it has none. */
void dfgnn__directory_of(char directory[PATH_MAX], const char *path);
/* The folder of the package's store and packs: share/dfgnn of the tree that the
 * library or program lies in, wherever that was moved to, else that of
 * configure. */
const char *dfgnn__package_folder(void);
/* Makes a folder and those above it, which nobody else may read: 0 or an errno.
 */
int dfgnn__make_folders(const char *path);
/* Follows the symbolic link that place is, one step: 1, 0 if it is none or is
 * not there, or -1 and errno. */
int dfgnn__follow_link(char place[PATH_MAX]);
/* path with such links followed to their end, which need not exist: 0 or an
 * errno. */
int dfgnn__follow_links(char place[PATH_MAX], const char *path);
/* path with the links of its folder followed, so that no part of it but the
 * last is one: 0 or an errno. */
int dfgnn__resolve_folder(char resolved[PATH_MAX], const char *path);
/* Opens the folder that a name lies in; 0, and why, if others than root and
 * the user can write it, sticky or not.  What lies in it is to be opened by
 * openat(): others may exchange a folder above it at any time. */
int dfgnn__folder_open(int *fd, char *why, size_t size, const char *directory);
/* Do root or the user own a file or folder, and can nobody else write it? */
int dfgnn__only_ours(const struct stat *info);
/* Opens a file for reading, with its links followed, and returns its
 * descriptor, or -1 and errno.  unsafe: why others than root and the user may
 * have written what was opened; "" if they cannot have. */
int dfgnn__file_open_safely(char *unsafe, size_t size, const char *path);
/* A URI for SQLite, so that options such as "immutable=1" can be given; NULL
 * without memory. */
char *dfgnn__sqlite_uri(const char *path, const char *options);
/* path.new-RANDOM, in memory of its own; NULL without memory. */
char *dfgnn__temporary_name(const char *path);
/* Removes files of such names, and what SQLite puts beside them, that nobody
 * has written for a day: their processes were killed. */
void dfgnn__remove_stale(const char *path);
/* Writes path's directory to the disk, so that its new names last. */
void dfgnn__sync_directory(const char *path);
/* Gives a finished file its name unless that is taken: 0 or an errno, with the
 * file still under its first name. */
int dfgnn__link_new(const char *made, const char *path);

#endif
