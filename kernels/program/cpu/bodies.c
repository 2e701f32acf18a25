#include "kernels/program/cpu/bodies.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/engine/cc.h"
#include "kernels/engine/engine.h"
#include "kernels/program/cpu/body.h"
#include "kernels/program/cuda/codes.h"
#include "lib/base/error.h"

/* Edges that a program's walks visit before the compiler is asked: what runs a
 * few times over small graphs is not worth its time. */
enum { MOST_PATIENCE = 1 << 18 };

typedef enum state { WAITING, READY, FAILED } state;

/* A text that is compiled, for the life of the process. */
typedef struct text_of_body {
  struct text_of_body *next, *next_waiting;
  char *text;
  int simd;
  atomic_int state;
  body_function *const *functions;
} text_of_body;

/* A body of a program for types and sizes; guarded by the codes' lock. */
typedef struct dfgnn_body_code {
  struct dfgnn_body_code *next;
  int64_t names[DFGNN_SIZE_NAMES];
  uint8_t types[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
  int simd;
  int64_t visited; /* edges; -1: no body can be made */
  dfgnn_body *body;
  text_of_body *text;
} body_code;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static text_of_body *texts, *waiting;
static pthread_t worker;
static int works, has_ended;
/* The worker holds it where a fork() would leave a lock taken for ever. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop, hurry;

/* ---- in the background --------------------------------------------------- */

static void tell(const char *what) {
  const char *level = getenv("DFGNN_LOG");
  if (level && !strcmp(level, "debug"))
    fprintf(stderr, "dfgnn: debug: an edge program keeps its loops: %s\n",
            what);
}

static void make(text_of_body *t) {
  static const char *const sets[][9] = {
      {NULL},
      {"-mavx2", "-mfma", "-mf16c", NULL},
      {"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma",
       "-mf16c", "-mprefer-vector-width=512", NULL}};
  void *functions = NULL;
  const dfgnn_status status = dfgnn__cc_load(
      &functions, t->text, "dfgnn_bodies", sets[t->simd], &stop, &loading);
  if (status)
    tell(dfgnn_last_error());
  t->functions = functions;
  atomic_store(&t->state, status ? FAILED : READY);
}

static void *work(void *data) {
  (void)data;
  dfgnn__engine_give_way();
  pthread_mutex_lock(&lock);
  while (waiting && !atomic_load(&stop)) {
    text_of_body *t = waiting;
    waiting = t->next_waiting;
    pthread_mutex_unlock(&lock);
    make(t);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
  }
  works = 0;
  has_ended = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void before_fork(void) {
  pthread_mutex_lock(&loading);
  pthread_mutex_lock(&lock);
}
static void in_parent(void) {
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&loading);
}
/* The child has no worker: what the parent's was at stays with its loops. */
static void in_child(void) {
  works = has_ended = 0;
  pthread_cond_init(&changed, NULL);
  in_parent();
}

/* Begins the worker, with the lock, unless it is at work. */
static void begin_work(void) {
  static int prepared;
  sigset_t all, before;
  if (works || atomic_load(&stop))
    return;
  if (!prepared)
    prepared = !pthread_atfork(before_fork, in_parent, in_child);
  if (has_ended)
    pthread_join(worker, NULL);
  has_ended = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  works = !pthread_create(&worker, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The process ends, or unloads the library: no compiler outlives it. */
__attribute__((destructor)) static void end_work(void) {
  atomic_store(&stop, 1);
  pthread_mutex_lock(&lock);
  const int joins = works || has_ended;
  pthread_mutex_unlock(&lock);
  if (joins)
    pthread_join(worker, NULL);
}

/* The text, new or the same as before; it takes the string. */
static text_of_body *submit(char *text, int simd) {
  pthread_mutex_lock(&lock);
  text_of_body *t = texts;
  while (t && (t->simd != simd || strcmp(t->text, text) != 0))
    t = t->next;
  if (!t && (t = calloc(1, sizeof *t))) {
    text_of_body **last = &waiting;
    *t = (text_of_body){.next = texts, .text = text, .simd = simd};
    texts = t;
    while (*last)
      last = &(*last)->next_waiting;
    *last = t;
    text = NULL;
  }
  begin_work();
  pthread_mutex_unlock(&lock);
  free(text);
  return t;
}

static void wait_for(const text_of_body *t) {
  pthread_mutex_lock(&lock);
  while (works && atomic_load(&t->state) == WAITING)
    pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

int dfgnn__bodies_count(void) {
  int count = 0;
  pthread_mutex_lock(&lock);
  for (const text_of_body *t = texts; t; t = t->next)
    count += atomic_load(&t->state) == READY;
  pthread_mutex_unlock(&lock);
  return count;
}

void dfgnn__bodies_hurry(int by) { atomic_fetch_add(&hurry, by); }

/* ---- of a program -------------------------------------------------------- */

static int is_of(const body_code *c, const dfgnn_program_job *job, int simd) {
  const dfgnn_dag *dag = job->lowered->dag;
  int same = c->simd == simd &&
             !memcmp(c->names, job->binding->names, sizeof job->binding->names);
  for (int i = 0; same && i < dag->input_count; i++)
    same = c->types[i] == job->inputs[i].dtype;
  for (int i = 0; same && i < dag->output_count; i++)
    same = c->types[dag->input_count + i] == job->outputs[i].dtype;
  return same;
}

static body_code *new_code(const dfgnn_program_job *job, int simd) {
  const dfgnn_dag *dag = job->lowered->dag;
  body_code *c = calloc(1, sizeof *c);
  if (!c)
    return NULL;
  c->simd = simd;
  memcpy(c->names, job->binding->names, sizeof c->names);
  for (int i = 0; i < dag->input_count; i++)
    c->types[i] = (uint8_t)job->inputs[i].dtype;
  for (int i = 0; i < dag->output_count; i++)
    c->types[dag->input_count + i] = (uint8_t)job->outputs[i].dtype;
  c->next = job->codes->bodies;
  job->codes->bodies = c;
  return c;
}

static void free_body(body_code *c) {
  dfgnn__body_free(c->body);
  free(c);
}

void dfgnn__bodies_free(struct dfgnn_body_code *bodies) {
  for (body_code *next; bodies; bodies = next) {
    next = bodies->next;
    free_body(bodies);
  }
}

/* Makes the text, and has it compiled. */
static void begin(body_code *c, const dfgnn_program_job *job, int is_double) {
  int fused = c->simd > 0;
#ifdef __aarch64__
  fused = 1;
#endif
  c->body = dfgnn__body_generate(job, is_double, fused);
  char *text = c->body ? c->body->text : NULL;
  if (c->body)
    c->body->text = NULL;
  c->text = text ? submit(text, c->simd) : NULL;
  if (!c->text)
    c->visited = -1;
}

/* Counts a call; 1 if its body is to be there. */
static int is_due(body_code *c, const dfgnn_program_job *job) {
  if (c->visited < 0)
    return 0;
  c->visited += job->rows.edges * job->lowered->walk_count;
  return c->text || c->visited >= MOST_PATIENCE || atomic_load(&hurry);
}

static int is_wanted(const dfgnn_program_job *job) {
  const char *compiler = getenv("DFGNN_CC");
  return job->codes && !(compiler && !*compiler);
}

/* The code of a job, with its codes' lock; NULL: no memory. */
static body_code *code_of(const dfgnn_program_job *job, int simd) {
  body_code *c = job->codes->bodies;
  while (c && !is_of(c, job, simd))
    c = c->next;
  return c ? c : new_code(job, simd);
}

void dfgnn__body_find(dfgnn_program_job *job, int simd, int is_double) {
  if (!is_wanted(job))
    return;
  pthread_mutex_lock(&job->codes->lock);
  body_code *c = code_of(job, simd);
  if (c && is_due(c, job)) {
    if (!c->text)
      begin(c, job, is_double);
    if (c->text && atomic_load(&hurry))
      wait_for(c->text);
    if (c->text && atomic_load(&c->text->state) == READY) {
      job->body = c->body;
      job->functions = c->text->functions;
    }
  }
  pthread_mutex_unlock(&job->codes->lock);
}

int dfgnn__body_settled(const dfgnn_program_job *job, int simd, int is_double) {
  int settled = 1;
  if (!is_wanted(job))
    return settled;
  pthread_mutex_lock(&job->codes->lock);
  body_code *c = code_of(job, simd);
  if (c && !c->text && c->visited >= 0)
    begin(c, job, is_double);
  if (c && c->text)
    settled = atomic_load(&c->text->state) != WAITING;
  pthread_mutex_unlock(&job->codes->lock);
  return settled;
}
