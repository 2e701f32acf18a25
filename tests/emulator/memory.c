/* memory.c - memory of the emulated device
 *
 * An allocation ends at a page that nobody may touch, and begins behind one, so
 * that a kernel which reads or writes beyond it is caught, and so is a use of
 * memory after it was freed.  Alignment leaves bytes between the end and that
 * page; they are checked when the memory is freed.  DFGNN_EMULATOR_ALIGN is the
 * alignment, 256 without it as a driver's; 16 leaves fewer of these bytes. */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "grid.h"

enum { PAGE = 4096, MOST_SPARE = 256 };
static const size_t MOST_SPARE_BYTES = (size_t)512 << 20;

typedef struct allocation {
  char *begin, *map;
  size_t bytes, mapped;
} allocation;

static void *tree;
static size_t allocated;
/* Maps of freed allocations, which nobody may touch; new pages would cost more
 * than their reuse.  The oldest come first. */
static struct {
  char *map;
  size_t mapped;
} spare[MOST_SPARE];
static int spare_count;
static size_t spare_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The maps do not overlap, so whatever overlaps is equal. */
static int compare(const void *a, const void *b) {
  const allocation *x = a, *y = b;
  return x->map + x->mapped <= y->map ? -1 : y->map + y->mapped <= x->map;
}

static allocation *find(const void *p) {
  allocation key = {.map = (char *)(uintptr_t)p, .mapped = 1};
  allocation **found = tfind(&key, &tree, compare);
  return found ? *found : NULL;
}

static size_t alignment(void) {
  const char *text = getenv("DFGNN_EMULATOR_ALIGN");
  size_t given = text ? strtoul(text, NULL, 10) : 0;
  return given && !(given & (given - 1)) && given <= PAGE ? given : 256;
}

static void drop_spare(int i) {
  spare_bytes -= spare[i].mapped;
  spare_count--;
  memmove(&spare[i], &spare[i + 1], (size_t)(spare_count - i) * sizeof *spare);
}

static char *take_map(size_t mapped) {
  char *map = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < spare_count && !map; i++)
    if (spare[i].mapped == mapped) {
      map = spare[i].map;
      drop_spare(i);
    }
  pthread_mutex_unlock(&lock);
  if (map)
    return map;
  map = mmap(NULL, mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

static void give_map(char *map, size_t mapped) {
  (void)mprotect(map, mapped, PROT_NONE);
  pthread_mutex_lock(&lock);
  while (spare_count == MOST_SPARE ||
         (spare_count && spare_bytes + mapped > MOST_SPARE_BYTES)) {
    (void)munmap(spare[0].map, spare[0].mapped);
    drop_spare(0);
  }
  spare[spare_count].map = map;
  spare[spare_count++].mapped = mapped;
  spare_bytes += mapped;
  pthread_mutex_unlock(&lock);
}

void *emulated_allocate(size_t bytes) {
  size_t align = alignment();
  size_t room = (bytes + align - 1) & ~(align - 1);
  size_t whole = (room + PAGE - 1) & ~(size_t)(PAGE - 1);
  allocation *a = calloc(1, sizeof *a);
  char *map = a ? take_map(whole + 2 * PAGE) : NULL;
  if (!map || mprotect(map + PAGE, whole, PROT_READ | PROT_WRITE)) {
    free(a);
    return NULL;
  }
  memset(map + PAGE, 0xff, whole);
  *a = (allocation){.begin = map + PAGE + whole - room,
                    .map = map,
                    .bytes = bytes,
                    .mapped = whole + 2 * PAGE};
  pthread_mutex_lock(&lock);
  (void)tsearch(a, &tree, compare);
  allocated += bytes;
  pthread_mutex_unlock(&lock);
  return a->begin;
}

static int ends_are_whole(const allocation *a) {
  const char *first = a->map + PAGE, *last = a->map + a->mapped - PAGE;
  for (const char *p = first; p < last; p++)
    if ((p < a->begin || p >= a->begin + a->bytes) && *p != (char)0xff) {
      fprintf(stderr,
              "emulator: somebody wrote at byte %td of an allocation of %zu\n",
              p - a->begin, a->bytes);
      return 0;
    }
  return 1;
}

int emulated_free(uint64_t memory) {
  pthread_mutex_lock(&lock);
  allocation *a = find((void *)(uintptr_t)memory);
  int found = a && (uintptr_t)a->begin == memory;
  if (found) {
    (void)tdelete(a, &tree, compare);
    allocated -= a->bytes;
  }
  pthread_mutex_unlock(&lock);
  if (!found)
    return 0;
  int whole = ends_are_whole(a);
  give_map(a->map, a->mapped);
  free(a);
  return whole;
}

int emulated_inside(uint64_t memory, size_t bytes) {
  const char *p = (const char *)(uintptr_t)memory;
  pthread_mutex_lock(&lock);
  const allocation *a = find(p);
  int inside = !a || (p >= a->begin && p + bytes <= a->begin + a->bytes);
  pthread_mutex_unlock(&lock);
  return inside;
}

int emulated_owned(uint64_t memory, size_t bytes) {
  const char *p = (const char *)(uintptr_t)memory;
  pthread_mutex_lock(&lock);
  const allocation *a = find(p);
  int owned = a && p >= a->begin && p + bytes <= a->begin + a->bytes;
  pthread_mutex_unlock(&lock);
  return owned;
}

size_t emulated_allocated(void) { return allocated; }

/* It does not take the lock, which the thread that faulted may hold. */
const char *emulated_describe_address(const void *p) {
  static char text[128];
  const allocation *a = find(p);
  if (!a)
    return "in no allocation";
  snprintf(text, sizeof text, "at byte %td of an allocation of %zu",
           (const char *)p - a->begin, a->bytes);
  return text;
}
