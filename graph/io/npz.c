/* npz.c - sparse matrices as scipy.sparse.save_npz writes them
 *
 * A zip archive of NumPy arrays: format ('csr'), shape, indptr, indices, data,
 * and here optionally graph_ptr, the first node of each graph of a batch.  data
 * is not unpacked: every stored entry is an edge. */
#include "graph/io/formats.h"
#include "graph/io/input.h"
#include "graph/io/npy.h"
#include "lib/base/error.h"
#include "lib/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <minizip/unzip.h>

#define CHUNK ((int64_t)1 << 24)

typedef struct archive {
  const char *path;
  unzFile zip;
  int fd;       /* before minizip has it, else -1 */
  int64_t left; /* bytes that may still be unpacked */
} archive;

typedef struct array {
  dfgnn__npy npy;
  size_t item;    /* bytes of an element */
  char what[512]; /* "cora.npz: array 'indptr'" */
  char *data;
} array;

#define END_BYTES 22 /* a zip's last record without its comment */

/* A zip ends in a record whose last two bytes say how long a comment follows.
 * minizip accepts a comment that is cut off. */
static dfgnn_status check_end(int fd, int64_t size, const char *path) {
  unsigned char tail[END_BYTES + UINT16_MAX];
  int64_t length = size < (int64_t)sizeof tail ? size : (int64_t)sizeof tail;
  if (pread(fd, tail, (size_t)length, size - length) != length)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: cannot read: %s", path,
                       strerror(errno));
  int64_t at = length - 4;
  while (at >= 0 && memcmp(tail + at, "PK\5\6", 4))
    at--;
  int64_t there = length - at - END_BYTES;
  if (at < 0 || there < 0 ||
      there < (tail[at + 20] | (int64_t)tail[at + 21] << 8))
    return dfgnn__fail(
        DFGNN_ERROR_FORMAT,
        "%s: found %s, expected an .npz archive; is the file "
        "truncated?",
        path, at < 0 ? "no zip directory" : "the end of a zip archive cut off");
  return DFGNN_OK;
}

/* Has minizip read the file that was looked at, whatever its name means now. */
static void *open_given(void *given, const void *path, int mode) {
  int *fd = given;
  FILE *file = fdopen(*fd, "rb");
  (void)path;
  (void)mode;
  if (file)
    *fd = -1;
  return file;
}

static dfgnn_status open_archive(archive *a, const char *path) {
  int64_t size;
  *a = (archive){.path = path};
  DFGNN_TRY(dfgnn__file_open(&a->fd, &size, path, "a graph file"));
  dfgnn_status status = dfgnn__limit(&a->left, size);
  if (!status)
    status = check_end(a->fd, size, path);
  zlib_filefunc64_def functions;
  fill_fopen64_filefunc(&functions);
  functions.zopen64_file = open_given;
  functions.opaque = &a->fd;
  if (!status)
    a->zip = unzOpen2_64(path, &functions);
  if (a->fd >= 0)
    close(a->fd);
  if (!status && !a->zip)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found no zip directory, expected an .npz "
                         "archive; is the file truncated?",
                         path);
  return status;
}

/* Refuses two entries of the same name, as readers differ in which they take,
 * and encrypted entries. */
static dfgnn_status check_entries(archive *a) {
  static const char *const names[] = {"format.npy", "shape.npy",
                                      "indptr.npy", "indices.npy",
                                      "data.npy",   "graph_ptr.npy"};
  enum { NAMES = sizeof names / sizeof *names };
  int seen[NAMES] = {0};
  for (int code = unzGoToFirstFile(a->zip); code == UNZ_OK;
       code = unzGoToNextFile(a->zip)) {
    char entry[64] = "";
    unz_file_info64 info;
    if (unzGetCurrentFileInfo64(a->zip, &info, entry, sizeof entry - 1, NULL, 0,
                                NULL, 0) != UNZ_OK)
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found a damaged zip directory, expected an .npz "
                         "archive",
                         a->path);
    int k = 0;
    while (k < NAMES && strcmp(names[k], entry))
      k++;
    if (k == NAMES)
      continue;
    if (seen[k]++)
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found the entry %s twice, expected it once",
                         a->path, entry);
    if (info.flag & 1)
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found the entry %s encrypted, expected plain "
                         "arrays",
                         a->path, entry);
  }
  return DFGNN_OK;
}

/* Fails with a message that names the arrays of the archive. */
static dfgnn_status missing(archive *a, const char *name) {
  char list[256] = "";
  size_t used = 0;
  for (int code = unzGoToFirstFile(a->zip); code == UNZ_OK && used < 200;
       code = unzGoToNextFile(a->zip)) {
    char entry[64] = "";
    if (unzGetCurrentFileInfo64(a->zip, NULL, entry, sizeof entry - 1, NULL, 0,
                                NULL, 0) != UNZ_OK)
      break;
    char *dot = strrchr(entry, '.');
    if (dot)
      *dot = 0;
    for (char *p = entry; *p; p++)
      if (*p < ' ' || *p > '~')
        *p = '?';
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                             used ? ", " : "", entry);
  }
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found arrays %s, expected '%s': a SciPy CSR matrix "
                     "has format, shape, indptr, indices and data",
                     a->path, *list ? list : "none", name);
}

static int has(archive *a, const char *name) {
  char entry[64];
  snprintf(entry, sizeof entry, "%s.npy", name);
  return unzLocateFile(a->zip, entry, 1) == UNZ_OK;
}

/* Reads up to size bytes of the current entry; negative on damage. */
static int64_t read_bytes(archive *a, char *to, int64_t size) {
  int64_t got = 0;
  while (got < size) {
    int64_t step = size - got < CHUNK ? size - got : CHUNK;
    int n = unzReadCurrentFile(a->zip, to + got, (unsigned)step);
    if (n < 0)
      return -1;
    if (n == 0)
      break;
    got += n;
  }
  return got;
}

static dfgnn_status damaged(const array *x) {
  return dfgnn__fail(DFGNN_ERROR_FORMAT,
                     "%s: found damaged or truncated data, expected a stored "
                     "or deflated array",
                     x->what);
}

/* Opens the entry and parses its header; it stays open on success. */
static dfgnn_status open_array(archive *a, array *x, const char *name) {
  char header[DFGNN__NPY_HEADER];
  *x = (array){0};
  snprintf(x->what, sizeof x->what, "%.440s: array '%s'", a->path, name);
  if (!has(a, name))
    return missing(a, name);
  if (unzOpenCurrentFile(a->zip) != UNZ_OK)
    return damaged(x);
  size_t size = 0;
  dfgnn_status status = DFGNN_OK;
  if (read_bytes(a, header, 12) == 12)
    size = dfgnn__npy_header_size((const unsigned char *)header);
  if (size <= 12 || size > sizeof header)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found no NumPy header, expected one of at most "
                         "%d bytes",
                         x->what, DFGNN__NPY_HEADER);
  else if (read_bytes(a, header + 12, (int64_t)size - 12) != (int64_t)size - 12)
    status = damaged(x);
  else
    status = dfgnn__npy_parse(&x->npy, header, size, x->what);
  if (status)
    unzCloseCurrentFile(a->zip);
  return status;
}

/* Reads the elements of the open entry and closes it.  Memory grows with the
 * data that is there, not with the size in the header. */
static dfgnn_status read_data(archive *a, array *x) {
  dfgnn_status status = DFGNN_OK;
  int64_t size, got = 0, room = 0;
  if (__builtin_mul_overflow(x->npy.count, (int64_t)x->item, &size) ||
      size > a->left)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld elements, expected at most %lld bytes "
                         "in a file of its size; DFGNN_MAX_FILE raises the "
                         "limit",
                         x->what, (long long)x->npy.count, (long long)a->left));
  do {
    room = room ? 2 * room : CHUNK;
    if (room > size)
      room = size;
    char *more = realloc(x->data, (size_t)room + 1);
    if (!more)
      DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot allocate %lld bytes",
                           x->what, (long long)size));
    x->data = more;
    int64_t n = read_bytes(a, x->data + got, room - got);
    if (n < 0)
      DFGNN_GO(damaged(x));
    got += n;
  } while (got == room && room < size);
  a->left -= got;
  if (got < size || read_bytes(a, &(char){0}, 1) != 0)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %s bytes than the %lld elements of its "
                         "shape take",
                         x->what, got < size ? "fewer" : "more",
                         (long long)x->npy.count);
out:
  if (unzCloseCurrentFile(a->zip) != UNZ_OK && !status)
    status = damaged(x); /* the checksum */
  return status;
}

/* Reads a vector of 32- or 64-bit integers. */
static dfgnn_status read_integers(archive *a, array *x, const char *name) {
  DFGNN_TRY(open_array(a, x, name));
  dfgnn_status status = DFGNN_OK;
  int wide = !strcmp(x->npy.type, "<i8");
  if (!wide && strcmp(x->npy.type, "<i4"))
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found type '%s', expected '<i4' or '<i8'",
                         x->what, x->npy.type);
  else if (x->npy.dimensions != 1)
    status =
        dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: found %d dimensions, expected 1",
                    x->what, x->npy.dimensions);
  if (status) {
    unzCloseCurrentFile(a->zip);
    return status;
  }
  x->item = wide ? 8 : 4;
  return read_data(a, x);
}

static int64_t element(const array *x, int64_t i) {
  int32_t narrow;
  int64_t wide;
  if (x->item == 8) {
    memcpy(&wide, x->data + 8 * i, 8);
    return wide;
  }
  memcpy(&narrow, x->data + 4 * i, 4);
  return narrow;
}

/* Returns the elements as 64-bit integers; the array may give its data up. */
static dfgnn_status widen(int64_t **wide, array *x) {
  if (x->item == 8) {
    *wide = (int64_t *)x->data;
    x->data = NULL;
    return DFGNN_OK;
  }
  *wide = malloc((size_t)(x->npy.count + 1) * sizeof **wide);
  for (int64_t i = 0; *wide && i < x->npy.count; i++)
    (*wide)[i] = element(x, i);
  return *wide ? DFGNN_OK
               : dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot widen", x->what);
}

/* The bytes of an element of a type of one of the kinds, such as '<f4', '|S3'
 * or
 * '<U3', whose characters are UTF-32; 0: none, or more than MOST_ITEM. */
static int item_bytes(const char *type, const char *kinds) {
  enum { MOST_ITEM = 64 };
  int number = 0, end = 0;
  char order, kind;
  if (sscanf(type, "%c%c%2d%n", &order, &kind, &number, &end) != 3 ||
      type[end] || !strchr("<>|=", order) || !strchr(kinds, kind))
    return 0;
  number *= kind == 'U' ? 4 : 1;
  return number > 0 && number <= MOST_ITEM ? number : 0;
}

static dfgnn_status check_format(archive *a) {
  array x;
  DFGNN_TRY(open_array(a, &x, "format"));
  char text[64] = "", name[17] = "";
  const int bytes = item_bytes(x.npy.type, "SU");
  int64_t n = read_bytes(a, text, bytes);
  unzCloseCurrentFile(a->zip);
  if (!bytes)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found type '%s', expected a word such as '|S3'",
                       x.what, x.npy.type);
  if (n != bytes)
    return damaged(&x);
  const int unit = strchr(x.npy.type, 'U') ? 4 : 1;
  for (int i = 0, k = 0; i < bytes && text[i] && k < 16; i += unit)
    name[k++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
  if (strcmp(name, "csr"))
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found '%s', expected 'csr'; "
                       "scipy.sparse.save_npz(file, matrix.tocsr()) writes it",
                       x.what, name);
  return DFGNN_OK;
}

static dfgnn_status read_shape(archive *a, dfgnn__parts *parts) {
  array x;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_integers(a, &x, "shape"));
  if (x.npy.count != 2)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld elements, expected 2", x.what,
                         (long long)x.npy.count));
  parts->destinations = element(&x, 0);
  parts->sources = element(&x, 1);
  if (parts->destinations < 0 || parts->sources < 0 ||
      parts->sources > INT32_MAX)
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld x %lld, expected rows >= 0 and "
                         "columns of 0 to %d",
                         x.what, (long long)parts->destinations,
                         (long long)parts->sources, INT32_MAX);
out:
  free(x.data);
  return status;
}

/* Checks that offsets begin with 0 and never fall. */
static dfgnn_status check_monotone(const array *x, const int64_t *offsets) {
  for (int64_t i = 0; i < x->npy.count; i++)
    if (offsets[i] < (i ? offsets[i - 1] : 0) || (i == 0 && offsets[0] != 0))
      return dfgnn__fail(
          DFGNN_ERROR_FORMAT, "%s: found %lld at %lld, expected %s%lld",
          x->what, (long long)offsets[i], (long long)i, i ? "at least " : "",
          (long long)(i ? offsets[i - 1] : 0));
  return DFGNN_OK;
}

static dfgnn_status read_offsets(archive *a, dfgnn__parts *parts) {
  array x;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_integers(a, &x, "indptr"));
  if (x.npy.count - 1 != parts->destinations)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld elements, expected one more than the "
                         "%lld rows of shape",
                         x.what, (long long)x.npy.count,
                         (long long)parts->destinations));
  DFGNN_GO(widen(&parts->offsets, &x));
  status = check_monotone(&x, parts->offsets);
  parts->edges = parts->offsets[parts->destinations];
out:
  free(x.data);
  return status;
}

static dfgnn_status read_indices(archive *a, dfgnn__parts *parts) {
  array x;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_integers(a, &x, "indices"));
  if (x.npy.count != parts->edges)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found %lld elements, expected %lld, the last of "
                         "indptr",
                         x.what, (long long)x.npy.count,
                         (long long)parts->edges));
  for (int64_t e = 0; e < parts->edges; e++) {
    int64_t j = element(&x, e);
    if (j < 0 || j >= parts->sources)
      DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                           "%s: found column %lld at %lld, expected 0 to %lld",
                           x.what, (long long)j, (long long)e,
                           (long long)parts->sources - 1));
    int32_t narrow = (int32_t)j;
    memcpy(x.data + 4 * e, &narrow, 4); /* at or before element e */
  }
  parts->indices = (int32_t *)x.data;
  x.data = NULL;
out:
  free(x.data);
  return status;
}

static dfgnn_status read_graphs(archive *a, dfgnn__parts *parts) {
  array x;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(read_integers(a, &x, "graph_ptr"));
  if (parts->destinations != parts->sources)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "%s: found one with %lld x %lld nodes, expected a "
                         "square matrix",
                         x.what, (long long)parts->destinations,
                         (long long)parts->sources));
  DFGNN_GO(widen(&parts->graph_ptr, &x));
  DFGNN_GO(check_monotone(&x, parts->graph_ptr));
  parts->graphs = x.npy.count - 1;
  if (x.npy.count < 1 || parts->graph_ptr[parts->graphs] != parts->destinations)
    status = dfgnn__fail(
        DFGNN_ERROR_FORMAT,
        "%s: found %lld as its last element, expected %lld, "
        "the rows",
        x.what,
        (long long)(x.npy.count < 1 ? -1 : parts->graph_ptr[parts->graphs]),
        (long long)parts->destinations);
out:
  free(x.data);
  return status;
}

/* Checks the header of data alone: it must fit the indices, and the size of the
 * archive's entry. */
static dfgnn_status check_data(archive *a, const dfgnn__parts *parts) {
  array x;
  DFGNN_TRY(open_array(a, &x, "data"));
  unz_file_info64 info = {0};
  unzGetCurrentFileInfo64(a->zip, &info, NULL, 0, NULL, 0, NULL, 0);
  unzCloseCurrentFile(a->zip);
  const int item = item_bytes(x.npy.type, "biufc");
  int64_t size;
  if (!item)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found type '%s', expected numbers, as '<f4'",
                       x.what, x.npy.type);
  if (x.npy.dimensions != 1 || x.npy.count != parts->edges)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: found %lld elements, expected %lld as in indices",
                       x.what, (long long)x.npy.count, (long long)parts->edges);
  if (__builtin_mul_overflow(x.npy.count, item, &size) ||
      (int64_t)info.uncompressed_size - (int64_t)x.npy.header != size)
    return dfgnn__fail(
        DFGNN_ERROR_FORMAT,
        "%s: found %lld bytes behind its header, expected %lld "
        "elements of %lld bytes",
        x.what, (long long)info.uncompressed_size - (long long)x.npy.header,
        (long long)x.npy.count, (long long)item);
  return DFGNN_OK;
}

dfgnn_status dfgnn__read_npz(dfgnn__parts *parts, const char *path) {
  archive a;
  DFGNN_TRY(open_archive(&a, path));
  *parts = (dfgnn__parts){0};
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(check_entries(&a));
  /* indptr comes before format: an archive that is no sparse matrix at all gets
   * the message that lists its arrays. */
  if (!has(&a, "indptr"))
    DFGNN_GO(missing(&a, "indptr"));
  DFGNN_GO(check_format(&a));
  DFGNN_GO(read_shape(&a, parts));
  DFGNN_GO(
      dfgnn__limit_sizes(path, parts->destinations, parts->sources, a.left));
  DFGNN_GO(read_offsets(&a, parts));
  DFGNN_GO(read_indices(&a, parts));
  if (has(&a, "data"))
    DFGNN_GO(check_data(&a, parts));
  if (has(&a, "graph_ptr"))
    DFGNN_GO(read_graphs(&a, parts));
out:
  unzClose(a.zip);
  if (status)
    dfgnn__parts_free(parts);
  return status;
}
