/* grid.c - runs the threads of a grid, block after block, one thread at a time
 *
 * A thread runs until it waits: for lanes of its warp, for its block, or for a
 * value that another block writes.  Then the next thread that can run does.
 * Nothing runs side by side, so a result depends on the order alone;
 * DFGNN_EMULATOR_ORDER is one of
 *   forward   blocks, warps and lanes in their order (the default)
 *   backward  in the opposite order
 *   SEED      a number: blocks in their order, threads at random
 * A kernel that is right gives the same results in each. */
#define _GNU_SOURCE
#include "grid.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fiber.h"

enum {
  WARP = EMULATED_WARP,
  MOST_WARPS = EMULATED_MOST_THREADS / WARP,
  STACK = 256 << 10,
  GUARD = 4096,
  SIGNAL_STACK = 64 << 10,
  MOST_YIELDS = 1 << 20,
  ERROR_MEMORY = 2,
  ERROR_ADDRESS = 700,
  ERROR_LAUNCH = 719
};

typedef enum state { RUNS, MEETS, AT_BARRIER, ENDED } state;

typedef struct copy {
  void *to;
  const void *from;
  int size, bytes, group;
} copy;

typedef struct thread {
  emulated_thread seen;
  fiber fiber;
  state state;
  int warp;
  emulated_place place; /* where it waits */
  /* the meeting of lanes that it waits for */
  unsigned mask;
  void *operand;
  emulated_together *together;
  /* copies under way */
  copy *copies;
  int copy_count, copy_room, group;
} thread;

typedef struct warp {
  unsigned lanes, runnable, ended;
  int meeting; /* lanes that wait for others */
} warp;

static struct {
  const emulated_launch *launch;
  emulated_block *block;
  thread threads[EMULATED_MOST_THREADS];
  warp warps[MOST_WARPS];
  int thread_count, warp_count;
  int ended, waiting, predicates, answer;
  thread *now;
  fiber main;
  char *stacks, *fixed, *dynamic, *dynamic_end, *signal_stack;
  int yields, failed, backward;
  uint64_t seed;
  pthread_t owner;
  int running;
} grid;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction old_action[2];

/* ---- reports ------------------------------------------------------------- */

static void say_where(const thread *t) {
  fprintf(stderr, "block (%u, %u, %u), thread %u (warp %d, lane %d)",
          grid.block->index.x, grid.block->index.y, grid.block->index.z,
          t->seen.index.x, t->warp, t->seen.lane);
}

static void begin_report(void) {
  const emulated_launch *l = grid.launch;
  fprintf(stderr,
          "emulator: %s <<<(%u, %u, %u), %u, %zu>>>\n"
          "emulator:   ",
          l->kernel->name, l->blocks.x, l->blocks.y, l->blocks.z, l->threads.x,
          l->dynamic_bytes);
}

static _Noreturn void leave(int error) {
  fiber lost;
  grid.failed = error;
  emulated_switch(&lost, &grid.main);
  abort();
}

static void fail(emulated_place place, const char *format, ...) {
  va_list list;
  begin_report();
  say_where(grid.now);
  fprintf(stderr, ", %s:%d (%s): ", place.file, place.line, place.call);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fprintf(stderr, "\n");
  leave(ERROR_LAUNCH);
}

static int same_place(const thread *a, const thread *b) {
  return a->state == b->state && a->mask == b->mask &&
         a->place.line == b->place.line &&
         !strcmp(a->place.file, b->place.file);
}

/* Prints one line for neighbours that wait alike. */
static void say_who_waits(void) {
  for (int i = 0; i < grid.thread_count;) {
    const thread *t = &grid.threads[i];
    int end = i + 1;
    while (end < grid.thread_count && same_place(t, &grid.threads[end]))
      end++;
    fprintf(stderr, "emulator:   threads %d to %d ", i, end - 1);
    if (t->state == ENDED)
      fprintf(stderr, "have ended\n");
    else if (t->state == AT_BARRIER)
      fprintf(stderr, "wait for the block at %s:%d (%s)\n", t->place.file,
              t->place.line, t->place.call);
    else
      fprintf(stderr, "wait for lanes 0x%08x at %s:%d (%s)\n", t->mask,
              t->place.file, t->place.line, t->place.call);
    i = end;
  }
}

static void all_wait(void) {
  begin_report();
  fprintf(stderr, "block (%u, %u, %u): every thread waits for another\n",
          grid.block->index.x, grid.block->index.y, grid.block->index.z);
  say_who_waits();
  leave(ERROR_LAUNCH);
}

/* ---- who runs ------------------------------------------------------------ */

static uint64_t chance(void) {
  grid.seed ^= grid.seed << 13;
  grid.seed ^= grid.seed >> 7;
  grid.seed ^= grid.seed << 17;
  return grid.seed;
}

/* A lane of a set that is not empty, the next after `lane` if there is one. */
static int lane_after(unsigned set, int lane) {
  if (grid.seed) {
    unsigned turn = (unsigned)chance() % WARP;
    unsigned turned = turn ? set >> turn | set << (WARP - turn) : set;
    return (int)((turn + (unsigned)__builtin_ctz(turned)) % WARP);
  }
  if (grid.backward) {
    unsigned below = set & ((1u << lane) - 1u);
    return 31 - __builtin_clz(below ? below : set);
  }
  unsigned above = lane == WARP - 1 ? 0 : set >> (lane + 1) << (lane + 1);
  return __builtin_ctz(above ? above : set);
}

static thread *find_next(int same_warp) {
  const thread *from = grid.now;
  const warp *w = &grid.warps[from->warp];
  int at = from->warp;
  if (same_warp && w->runnable && !(grid.seed && chance() % 8 == 0))
    return &grid.threads[at * WARP + lane_after(w->runnable, from->seen.lane)];
  for (int i = 0; i < grid.warp_count; i++) {
    at = grid.backward ? (at ? at - 1 : grid.warp_count - 1)
                       : (at + 1 == grid.warp_count ? 0 : at + 1);
    w = &grid.warps[at];
    if (w->runnable)
      return &grid.threads[at * WARP +
                           lane_after(w->runnable, grid.backward ? 0 : 31)];
  }
  return NULL;
}

static void go_on_with(thread *next) {
  thread *from = grid.now;
  if (next == from)
    return;
  grid.now = next;
  *grid.launch->module->current = &next->seen;
  emulated_switch(&from->fiber, &next->fiber);
}

static void wait_for_others(void) {
  thread *next = find_next(1);
  if (!next)
    all_wait();
  go_on_with(next);
}

static void set_state(thread *t, state s) {
  unsigned bit = 1u << t->seen.lane;
  t->state = s;
  if (s == RUNS)
    grid.warps[t->warp].runnable |= bit;
  else
    grid.warps[t->warp].runnable &= ~bit;
}

/* ---- meetings of lanes --------------------------------------------------- */

/* Whether all lanes of the mask are there.  A lane that waits elsewhere with
 * the same mask will never come, which is an error. */
static int all_met(const thread *t) {
  const warp *w = &grid.warps[t->warp];
  unsigned left = t->mask & w->lanes & ~w->ended;
  const thread *lanes = &grid.threads[t->warp * WARP];
  if (left & w->runnable)
    return 0;
  for (; left; left &= left - 1) {
    const thread *other = &lanes[__builtin_ctz(left)];
    if (other->state != MEETS || other->mask != t->mask)
      return 0;
    if (other->place.line != t->place.line || other->together != t->together)
      fail(t->place, "lane %d waits with the same mask 0x%08x at %s:%d (%s)",
           other->seen.lane, t->mask, other->place.file, other->place.line,
           other->place.call);
  }
  return 1;
}

static void meet_now(thread *t) {
  warp *w = &grid.warps[t->warp];
  thread *lanes = &grid.threads[t->warp * WARP];
  void *operands[WARP] = {NULL};
  unsigned here = t->mask & w->lanes & ~w->ended;
  for (unsigned left = here; left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    operands[lane] = lanes[lane].operand;
    lanes[lane].state = RUNS;
  }
  w->runnable |= here;
  w->meeting -= __builtin_popcount(here);
  t->together(operands);
}

static void meet(unsigned mask, void *operand, emulated_together *together,
                 emulated_place place) {
  thread *t = grid.now;
  warp *w = &grid.warps[t->warp];
  t->place = place;
  if (!(mask >> t->seen.lane & 1))
    fail(place, "the mask 0x%08x is without the lane that calls", mask);
  t->mask = mask;
  t->operand = operand;
  t->together = together;
  set_state(t, MEETS);
  w->meeting++;
  grid.yields = 0;
  if (all_met(t))
    meet_now(t);
  else
    wait_for_others();
}

/* ---- the block ----------------------------------------------------------- */

static void release_barrier(void) {
  for (int i = 0; i < grid.thread_count; i++)
    if (grid.threads[i].state == AT_BARRIER)
      set_state(&grid.threads[i], RUNS);
  grid.answer = grid.predicates;
  grid.waiting = grid.predicates = 0;
}

static void same_barrier(const thread *t) {
  for (int i = 0; i < grid.thread_count; i++) {
    const thread *other = &grid.threads[i];
    if (other->state == AT_BARRIER && other->place.line != t->place.line)
      fail(t->place, "thread %d waits for the block at %s:%d (%s)", i,
           other->place.file, other->place.line, other->place.call);
  }
}

static int barrier(int predicate, emulated_place place) {
  thread *t = grid.now;
  t->place = place;
  set_state(t, AT_BARRIER);
  grid.waiting++;
  grid.predicates += predicate != 0;
  grid.yields = 0;
  if (grid.waiting + grid.ended < grid.thread_count) {
    wait_for_others();
  } else {
    same_barrier(t);
    release_barrier();
  }
  return grid.answer;
}

static void yield(void) {
  if (grid.yields++ > MOST_YIELDS)
    fail((emulated_place){"", "", 0},
         "it waits for what nobody writes, or for a block behind it");
  go_on_with(find_next(0));
}

/* ---- asynchronous copies ------------------------------------------------- */

static void start_copy(void *to, const void *from, int size, int bytes) {
  thread *t = grid.now;
  if (t->copy_count == t->copy_room) {
    t->copy_room = t->copy_room ? 2 * t->copy_room : 16;
    t->copies = realloc(t->copies, (size_t)t->copy_room * sizeof *t->copies);
    if (!t->copies)
      abort();
  }
  t->copies[t->copy_count++] = (copy){to, from, size, bytes, t->group};
}

static void commit(void) { grid.now->group++; }

static void finish_copies(int pending) {
  thread *t = grid.now;
  int i = 0;
  for (; i < t->copy_count && t->copies[i].group < t->group - pending; i++) {
    const copy *c = &t->copies[i];
    memset(c->to, 0, (size_t)c->size);
    memcpy(c->to, c->from, (size_t)c->bytes);
  }
  t->copy_count -= i;
  memmove(t->copies, t->copies + i, (size_t)t->copy_count * sizeof *t->copies);
}

static int is_shared(const void *p) {
  const char *at = p;
  const emulated_launch *l = grid.launch;
  return (at >= grid.dynamic && at < grid.dynamic_end) ||
         (at >= grid.fixed && at < grid.fixed + l->fixed_bytes);
}

static const emulated_runtime runtime = {.meet = meet,
                                         .barrier = barrier,
                                         .yield = yield,
                                         .copy = start_copy,
                                         .commit = commit,
                                         .wait = finish_copies,
                                         .is_shared = is_shared,
                                         .fail = fail};

/* ---- wrong addresses ----------------------------------------------------- */

static void on_signal(int number, siginfo_t *info, void *context) {
  const struct sigaction *old = &old_action[number == SIGBUS];
  if (!grid.running || !pthread_equal(grid.owner, pthread_self())) {
    if (old->sa_flags & SA_SIGINFO && old->sa_sigaction)
      old->sa_sigaction(number, info, context);
    else
      (void)sigaction(number, old, NULL);
    return;
  }
  begin_report();
  say_where(grid.now);
  fprintf(stderr, ": illegal access of %p, %s; it last waited at %s:%d (%s)\n",
          info->si_addr, emulated_describe_address(info->si_addr),
          grid.now->place.file ? grid.now->place.file : "",
          grid.now->place.line,
          grid.now->place.call ? grid.now->place.call : "");
  if (getenv("DFGNN_EMULATOR_ABORT"))
    abort();
  leave(ERROR_ADDRESS);
}

static void catch_signals(void) {
  static int done;
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (done)
    return;
  done = 1;
  action.sa_sigaction = on_signal;
  (void)sigaction(SIGSEGV, &action, &old_action[0]);
  (void)sigaction(SIGBUS, &action, &old_action[1]);
}

/* ---- blocks -------------------------------------------------------------- */

/* Ends meetings whose other lanes waited only for one that has ended. */
static void meet_without(const thread *gone) {
  const warp *w = &grid.warps[gone->warp];
  for (int lane = 0; lane < WARP; lane++) {
    thread *t = &grid.threads[gone->warp * WARP + lane];
    if (w->lanes >> lane & 1 && t->state == MEETS && all_met(t))
      meet_now(t);
  }
}

static void begin_thread(void) {
  thread *t = grid.now;
  grid.launch->kernel->call(grid.launch->arguments);
  t = grid.now;
  set_state(t, ENDED);
  grid.warps[t->warp].ended |= 1u << t->seen.lane;
  grid.ended++;
  t->copy_count = 0;
  if (grid.ended == grid.thread_count)
    leave(0);
  if (grid.waiting && grid.waiting + grid.ended == grid.thread_count)
    release_barrier();
  if (grid.warps[t->warp].meeting)
    meet_without(t);
  wait_for_others();
  abort();
}

static char *map(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* Maps stacks and shared memory between pages that nobody may touch. */
static int get_memory(void) {
  static char *shared;
  if (grid.stacks)
    return 1;
  grid.stacks = map((size_t)STACK * EMULATED_MOST_THREADS);
  shared = map(EMULATED_MOST_SHARED + 3 * GUARD);
  grid.signal_stack = map(SIGNAL_STACK);
  if (!grid.stacks || !shared || !grid.signal_stack)
    return 0;
  for (int i = 0; i < EMULATED_MOST_THREADS; i++)
    (void)mprotect(grid.stacks + (size_t)i * STACK, GUARD, PROT_NONE);
  size_t whole = (EMULATED_MOST_SHARED + GUARD - 1) / GUARD * GUARD;
  (void)mprotect(shared, GUARD, PROT_NONE);
  (void)mprotect(shared + GUARD + whole, GUARD, PROT_NONE);
  grid.dynamic_end = shared + GUARD + whole;
  return 1;
}

static void begin_block(void) {
  const emulated_launch *l = grid.launch;
  unsigned x = 0, y = 0, z = 0;
  memset(grid.warps, 0, sizeof grid.warps);
  grid.ended = grid.waiting = grid.predicates = grid.yields = 0;
  for (int i = 0; i < grid.thread_count; i++) {
    thread *t = &grid.threads[i];
    warp *w = &grid.warps[i / WARP];
    t->seen = (emulated_thread){{x, y, z}, i % WARP};
    t->warp = i / WARP;
    t->state = RUNS;
    t->place = (emulated_place){"", "", 0};
    t->copy_count = t->group = 0;
    /* Stacks begin at different lines of the caches. */
    t->fiber = fiber_make(grid.stacks + (size_t)i * STACK,
                          STACK - (size_t)(i % 16) * 320, begin_thread);
    w->lanes |= 1u << i % WARP;
    w->runnable |= 1u << i % WARP;
    if (++x == l->threads.x) {
      x = 0;
      if (++y == l->threads.y) {
        y = 0;
        z++;
      }
    }
  }
  memset(grid.fixed, 0xff, l->fixed_bytes);
  memset(grid.dynamic, 0xff, l->dynamic_bytes);
  grid.now = &grid.threads[grid.backward ? grid.thread_count - 1 : 0];
  *l->module->current = &grid.now->seen;
}

static int run_blocks(void) {
  const emulated_index *n = &grid.launch->blocks;
  uint64_t count = (uint64_t)n->x * n->y * n->z;
  for (uint64_t i = 0; i < count && !grid.failed; i++) {
    uint64_t at = grid.backward ? count - 1 - i : i;
    grid.block->index =
        (emulated_index){(unsigned)(at % n->x), (unsigned)(at / n->x % n->y),
                         (unsigned)(at / n->x / n->y)};
    begin_block();
    emulated_switch(&grid.main, &grid.now->fiber);
  }
  return grid.failed;
}

static void choose_order(void) {
  const char *order = getenv("DFGNN_EMULATOR_ORDER");
  grid.backward = order && !strcmp(order, "backward");
  grid.seed = order ? strtoull(order, NULL, 10) * 0x9e3779b97f4a7c15u : 0;
}

int emulated_run_grid(const emulated_launch *launch) {
  stack_t signals = {.ss_size = SIGNAL_STACK}, before;
  const emulated_index *n = &launch->threads;
  pthread_mutex_lock(&one_at_a_time);
  int result = get_memory() ? 0 : ERROR_MEMORY;
  if (!result) {
    grid.launch = launch;
    grid.block = launch->module->block;
    *launch->module->runtime = &runtime;
    grid.block->threads = *n;
    grid.block->blocks = launch->blocks;
    grid.dynamic = grid.dynamic_end - (launch->dynamic_bytes + 15) / 16 * 16;
    grid.block->shared = grid.dynamic;
    grid.fixed = (char *)launch->module->shared() + launch->fixed_at;
    grid.thread_count = (int)(n->x * n->y * n->z);
    grid.warp_count = (grid.thread_count + WARP - 1) / WARP;
    grid.failed = 0;
    grid.owner = pthread_self();
    choose_order();
    catch_signals();
    signals.ss_sp = grid.signal_stack;
    (void)sigaltstack(&signals, &before);
    grid.running = 1;
    result = run_blocks();
    grid.running = 0;
    (void)sigaltstack(&before, NULL);
  }
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}
