#include "tools/ranks.h"
#include <stdlib.h>

#ifdef HAVE_MPI

#include "lib/context.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES (2 * PATH_MAX + MPI_MAX_PROCESSOR_NAME)

/* Problems are numbered; a counter in the first rank's memory holds the number
 * of the next problem. */
static struct {
  MPI_Comm comm; /* ranks whose devices are of one model */
  MPI_Win counter;
  int open, taken;
  uint64_t mine; /* the problem that was taken last */
} share;
static int rank;

static void nap(void) { nanosleep(&(struct timespec){0, 2000000}, NULL); }

/* Waits without MPI_Wait, which keeps a core busy that others may measure on.
 */
static void await(MPI_Request *request) {
  for (int done = 0;;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done)
      return;
    nap();
  }
}

static void await_all(MPI_Comm comm) {
  MPI_Request request;
  MPI_Ibarrier(comm, &request);
  await(&request);
}

int tool_ranks_speak(void) { return rank == 0; }

const char *tool_ranks_library(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, ",\n")] = 0;
  return text;
}

int tool_ranks_launched(void) {
  static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                      "PMI_RANK", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (getenv(marks[i]))
      return 1;
  return 0;
}

/* ---- the counter --------------------------------------------------------- */

static uint64_t next_problem(void) {
  static const uint64_t one = 1;
  uint64_t found = 0;
  MPI_Request request;
  MPI_Rget_accumulate(&one, 1, MPI_UINT64_T, &found, 1, MPI_UINT64_T, 0, 0, 1,
                      MPI_UINT64_T, MPI_SUM, share.counter, &request);
  await(&request);
  return found;
}

int tool_ranks_take(size_t index) {
  if (!share.open)
    return 1;
  while (!share.taken || share.mine < index) {
    share.mine = next_problem();
    share.taken = 1;
  }
  return share.mine == index;
}

/* Some networks serve the counter only while its owner is inside MPI. */
void tool_ranks_attend(void) {
  int flag;
  if (share.open)
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, share.comm, &flag,
               MPI_STATUS_IGNORE);
}

static void open_share(void) {
  uint64_t *number;
  int own;
  MPI_Comm_rank(share.comm, &own);
  MPI_Win_allocate(own ? 0 : sizeof *number, sizeof *number, MPI_INFO_NULL,
                   share.comm, &number, &share.counter);
  MPI_Win_lock_all(0, share.counter);
  if (!own) {
    *number = 0;
    MPI_Win_sync(share.counter);
  }
  MPI_Barrier(share.comm);
  share.open = 1;
}

static void close_share(void) {
  await_all(share.comm);
  share.open = 0;
  MPI_Win_unlock_all(share.counter);
  MPI_Win_free(&share.counter);
  MPI_Comm_free(&share.comm);
}

/* ---- groups of ranks ----------------------------------------------------- */

/* The lowest rank that passes the same name. */
static int first_of_name(const char *name) {
  int size, first = 0;
  char own[NAME_BYTES] = "";
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char *all = malloc((size_t)size * sizeof own);
  if (!all)
    MPI_Abort(MPI_COMM_WORLD, tool_error("out of memory"));
  snprintf(own, sizeof own, "%s", name);
  MPI_Allgather(own, sizeof own, MPI_CHAR, all, sizeof own, MPI_CHAR,
                MPI_COMM_WORLD);
  while (strcmp(all + (size_t)first * sizeof own, own) != 0)
    first++;
  free(all);
  return first;
}

static int local_rank(void) {
  MPI_Comm host;
  int local;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL,
                      &host);
  MPI_Comm_rank(host, &local);
  MPI_Comm_free(&host);
  return local;
}

/* ---- stores -------------------------------------------------------------- */

/* Finds the store that this rank writes; "" if there is none. */
static void find_store(char path[PATH_MAX], const tool_settings *settings) {
  dfgnn_context places = {0};
  *path = 0;
  if (!dfgnn__layers_find(&places, settings->store) &&
      dfgnn__context_store(&places))
    snprintf(path, PATH_MAX, "%s", dfgnn__context_store(&places));
  dfgnn__layers_free(&places);
}

/* The communicator of one rank per store file; MPI_COMM_NULL for other ranks.
 */
static MPI_Comm keepers(const char *path) {
  char name[NAME_BYTES], host[MPI_MAX_PROCESSOR_NAME];
  char folder[PATH_MAX], real[PATH_MAX];
  const char *slash = strrchr(path, '/');
  int length;
  MPI_Comm comm;
  MPI_Get_processor_name(host, &length);
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
           slash ? path : ".");
  /* the file need not exist yet */
  snprintf(name, sizeof name, "%s:%s/%s", host,
           realpath(folder, real) ? real : folder, slash ? slash + 1 : path);
  int first = first_of_name(name);
  MPI_Comm_split(MPI_COMM_WORLD, *path && first == rank ? 0 : MPI_UNDEFINED,
                 rank, &comm);
  return comm;
}

static char *read_whole(size_t *size, const char *path) {
  FILE *in = fopen(path, "rb");
  char *bytes = NULL;
  long length;
  *size = 0;
  if (!in)
    return NULL;
  if (!fseek(in, 0, SEEK_END) && (length = ftell(in)) > 0 && length < INT_MAX &&
      (bytes = malloc((size_t)length))) {
    rewind(in);
    *size = fread(bytes, 1, (size_t)length, in);
  }
  fclose(in);
  return bytes;
}

/* Returns the store as bytes for dfgnn__store_open_bytes; NULL if there is
 * none.
 */
static char *pack(size_t *size, const char *path) {
  char folder[PATH_MAX], packed[sizeof folder + 8];
  const char *place = getenv("TMPDIR");
  dfgnn_store *store = NULL;
  char *bytes = NULL;
  *size = 0;
  snprintf(folder, sizeof folder, "%s/dfgnn-ranks.XXXXXX",
           place && *place ? place : P_tmpdir);
  if (access(path, F_OK))
    return NULL;
  if (!mkdtemp(folder)) {
    tool_error("%s: %s", folder, strerror(errno));
    return NULL;
  }
  snprintf(packed, sizeof packed, "%s/all.db", folder);
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ_ANY);
  if (!status)
    status = dfgnn__store_publish(store, packed);
  if (status)
    tool_fail(status);
  else
    bytes = read_whole(size, packed);
  dfgnn__store_close(store);
  unlink(packed);
  rmdir(folder);
  return bytes;
}

static int unpack(const char *path, const char *bytes, size_t size) {
  dfgnn_store *in = NULL, *out = NULL;
  dfgnn_status status = dfgnn__store_open(&out, path, DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_open_bytes(&in, "another rank's store", bytes, size);
  if (!status)
    status = dfgnn__store_merge(out, NULL, in, NULL);
  dfgnn__store_close(in);
  dfgnn__store_close(out);
  return status ? tool_fail(status) : TOOL_DONE;
}

/* Adds the rows of all store files to each of them. */
static int unite_stores(const tool_settings *settings) {
  char path[PATH_MAX];
  int count = 0, own, status = TOOL_DONE;
  find_store(path, settings);
  MPI_Comm comm = keepers(path);
  if (comm == MPI_COMM_NULL)
    return TOOL_DONE;
  MPI_Comm_size(comm, &count);
  MPI_Comm_rank(comm, &own);
  for (int from = 0; from < count && count > 1; from++) {
    size_t size = 0;
    char *bytes = from == own ? pack(&size, path) : NULL;
    int length = (int)size, failed;
    MPI_Bcast(&length, 1, MPI_INT, from, comm);
    if (from != own && length && !(bytes = malloc((size_t)length)))
      MPI_Abort(MPI_COMM_WORLD, tool_error("out of memory"));
    MPI_Bcast(bytes, length, MPI_BYTE, from, comm);
    if (from != own && length && (failed = unpack(path, bytes, (size_t)length)))
      status = failed;
    free(bytes);
  }
  MPI_Comm_free(&comm);
  return status;
}

/* ---- the run ------------------------------------------------------------- */

static void gather_rows(json_t *rows) {
  char *own = json_dumps(rows, JSON_COMPACT | JSON_REAL_PRECISION(17));
  int length = own ? (int)strlen(own) : 0, size, total = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int *lengths = calloc(2 * (size_t)size, sizeof *lengths);
  int *places = lengths + size;
  if (!lengths)
    MPI_Abort(MPI_COMM_WORLD, tool_error("out of memory"));
  MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 0; i < size; i++) {
    places[i] = total;
    total += lengths[i];
  }
  char *all = malloc((size_t)total + 1);
  if (!all)
    MPI_Abort(MPI_COMM_WORLD, tool_error("out of memory"));
  MPI_Gatherv(own, length, MPI_CHAR, all, lengths, places, MPI_CHAR, 0,
              MPI_COMM_WORLD);
  for (int i = 1; i < size && rank == 0; i++) {
    json_t *other = json_loadb(all + places[i], (size_t)lengths[i], 0, NULL);
    if (other)
      json_array_extend(rows, other);
    json_decref(other);
  }
  free(all);
  free(lengths);
  free(own);
}

static int gravest(int status) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int *all = calloc((size_t)size, sizeof *all);
  if (!all)
    MPI_Abort(MPI_COMM_WORLD, tool_error("out of memory"));
  MPI_Gather(&status, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 1; i < size; i++)
    status = tool_graver(status, all[i]);
  free(all);
  return rank ? TOOL_DONE : status;
}

int tool_ranks_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data) {
  int provided, united = TOOL_DONE;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided))
    return tool_error("MPI cannot start");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const tool_member *own = &member[local_rank() % count];
  settings->device = own->device;
  settings->quiet |= rank != 0; /* one progress display */
  MPI_Comm_split(MPI_COMM_WORLD, first_of_name(own->model), rank, &share.comm);
  if (!settings->dry_run)
    united = unite_stores(settings);
  open_share();
  int status = body(data, rows);
  close_share();
  await_all(MPI_COMM_WORLD);
  if (!settings->dry_run)
    united = tool_graver(united, unite_stores(settings));
  gather_rows(rows);
  status = gravest(tool_graver(status, united));
  MPI_Finalize();
  return status;
}

#else

int tool_ranks_launched(void) {
  const char *size = getenv("OMPI_COMM_WORLD_SIZE");
  if (!size)
    size = getenv("PMI_SIZE");
  if (size && atoi(size) > 1)
    fprintf(stderr,
            "%s: built without MPI: each of the %s processes measures every "
            "problem; share them with --shard, or configure --with-mpi\n",
            tool_name, size);
  return 0;
}

const char *tool_ranks_library(void) { return "none"; }

int tool_ranks_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data) {
  (void)settings, (void)member, (void)count;
  return body(data, rows);
}

int tool_ranks_speak(void) { return 1; }

int tool_ranks_take(size_t index) {
  (void)index;
  return 1;
}

void tool_ranks_attend(void) {}

#endif
