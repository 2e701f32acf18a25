/* tune_survey.c - dfgnn-tune survey: measures all variants of cells of problems
 * on a folder of graphs */
#include "tools/cells.h"
#include "tools/fleet.h"
#include "tools/report.h"
#include "tools/survey_file.h"
#include "tools/tune.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/collect.h"

enum {
  LOST = 64,          /* exit status of a process whose device is gone */
  MOST_RESTARTS = 20, /* of one device's process */
  MOST_LOADED = 4000, /* programs in a device's memory */
  LOADERS = 8,        /* threads that load programs */
  NICE = 10           /* of threads that compile beside timed calls */
};
#define LONGEST_WAIT_S 60.0 /* for programs that another process compiles */

/* What the processes of all devices share.  A bit of ready[cell] stands for a
 * process that has compiled its part of the cell's programs. */
typedef struct shared {
  atomic_size_t next; /* the next item that no process has taken */
  atomic_size_t done;
  atomic_size_t failed;
  atomic_uint ready[];
} shared;

/* An item is a cell and a graph: number cell * graphs + graph. */
typedef struct survey {
  const tool_settings *settings;
  tool_cells cells;
  tool_graphs graphs;
  char (*label)[192]; /* [graphs] */
  char *wanted;       /* [items] */
  size_t items, count /* of the wanted ones */;
  shared *shared;
  double began, deadline;
} survey;

static size_t graph_count(const survey *s) { return s->graphs.count; }

/* ---- what there is to do ------------------------------------------------- */

static int label_graphs(survey *s) {
  s->label = calloc(graph_count(s) + 1, sizeof *s->label);
  if (!s->label)
    return tool_error("out of memory");
  for (size_t g = 0; g < graph_count(s); g++) {
    tool_graph_label(s->label[g], sizeof s->label[g], s->graphs.graph[g].name);
    for (size_t k = 0; k < g; k++)
      if (!strcmp(s->label[g], s->label[k]))
        return tool_usage("%s and %s have the same name, by which the survey "
                          "knows them",
                          s->graphs.graph[k].name, s->graphs.graph[g].name);
  }
  return TOOL_DONE;
}

/* NULL: there is no complete block of today's kernels. */
static const tool_block *
find_block(const survey *s, const tool_survey_file *file, size_t c, size_t g) {
  const tool_block *block =
      tool_survey_find(file, s->cells.cell[c].name, s->label[g]);
  return block && tool_survey_current(block) ? block : NULL;
}

/* Wants what the file lacks, of this shard. */
static int list_wanted(survey *s, const tool_survey_file *file) {
  const tool_settings *settings = s->settings;
  s->items = s->cells.count * graph_count(s);
  s->wanted = calloc(s->items + 1, 1);
  if (!s->wanted)
    return tool_error("out of memory");
  for (size_t i = 0; i < s->items; i++) {
    const size_t g = i % graph_count(s);
    const int mine = !settings->shards ||
                     (int)(g % (size_t)settings->shards) == settings->shard - 1;
    s->wanted[i] = mine && !find_block(s, file, i / graph_count(s), g);
    s->count += (size_t)s->wanted[i];
  }
  return TOOL_DONE;
}

static int report_status(const survey *s, const tool_survey_file *file) {
  static const tool_column columns[] = {
      {"cell", "CELL", TOOL_TEXT},        {"complete", "COMPLETE", TOOL_COUNT},
      {"missing", "MISSING", TOOL_COUNT}, {"variants", "VARIANTS", TOOL_COUNT},
      {"device", "DEVICE", TOOL_TEXT},    {NULL, NULL, 0}};
  json_t *rows = json_array();
  for (size_t c = 0; c < s->cells.count; c++) {
    json_t *row = json_object();
    int64_t complete = 0, variants = 0;
    const char *device = NULL;
    for (size_t g = 0; g < graph_count(s); g++) {
      const tool_block *block = find_block(s, file, c, g);
      complete += block != NULL;
      if (block && (int64_t)block->count > variants)
        variants = (int64_t)block->count;
      device = block ? block->device : device;
    }
    tool_put(row, "cell", s->cells.cell[c].name);
    tool_put_count(row, "complete", complete);
    tool_put_count(row, "missing", (int64_t)graph_count(s) - complete);
    tool_put_count(row, "variants", variants);
    tool_put(row, "device", device);
    json_array_append_new(rows, row);
  }
  return tool_report(s->settings, rows, columns);
}

/* ---- the process of a device --------------------------------------------- */

typedef struct surveyed_graph {
  dfgnn_csr *csr; /* NULL: it cannot be read */
  dfgnn_matrix matrix;
  dfgnn_signature signature;
} surveyed_graph;

typedef struct worker {
  const survey *s;
  dfgnn_context *ctx;
  dfgnn_harness_pool *pool; /* NULL: results are checked */
  dfgnn_device_info info;
  char device[160]; /* as the file has it */
  int part, parts;
  surveyed_graph *graph;
  _Atomic(dfgnn_programs *) *programs; /* [cells]; NULL: not yet listed */
  size_t cell, loaded; /* the cell whose programs are loaded, how many */
  int alone;           /* another process took too long: nobody waits for it */
  atomic_int stop;     /* the thread that compiles stops */
} worker;

static int stopped(void *data) {
  const survey *s = data;
  return tool_interrupted() || tool_now() >= s->deadline;
}

static dfgnn_status open_device(worker *w) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  options.device = w->s->settings->device;
  options.store = ""; /* what was measured changes nothing here */
  options.threads = w->s->settings->threads;
  dfgnn_status status = dfgnn_context_create(&w->ctx, &options);
  w->info = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
  if (!status)
    status = dfgnn_context_device(&w->info, w->ctx);
  if (strcmp(w->info.backend, "cpu"))
    snprintf(w->device, sizeof w->device, "%s", w->info.model);
  else
    snprintf(w->device, sizeof w->device, "%s, %d thread%s", w->info.model,
             w->info.units, w->info.units == 1 ? "" : "s");
  w->loaded = 0;
  w->cell = SIZE_MAX;
  if (!status && !(w->s->settings->given & HAS(CHECK)))
    status = dfgnn__harness_pool_create(&w->pool, w->ctx);
  return status;
}

static void close_device(worker *w) {
  dfgnn__harness_pool_destroy(w->pool);
  if (w->ctx)
    dfgnn_context_destroy(w->ctx);
  w->pool = NULL;
  w->ctx = NULL;
}

/* Makes a graph of the device for one item, so that views of many graphs do not
 * fill its memory. */
static dfgnn_status make_graph(dfgnn_graph **graph, const worker *w, size_t g) {
  dfgnn_csr csr = *w->graph[g].csr;
  csr.name = w->s->label[g];
  return dfgnn_graph_create_csr(graph, w->ctx, &csr, NULL);
}

static int is_used(const survey *s, size_t g) {
  for (size_t c = 0; c < s->cells.count; c++)
    if (s->wanted[c * graph_count(s) + g])
      return 1;
  return 0;
}

static dfgnn_status read_graph(worker *w, size_t g) {
  surveyed_graph *graph = &w->graph[g];
  dfgnn_graph *made;
  dfgnn_status status =
      dfgnn__csr_open(&graph->csr, w->s->graphs.graph[g].name);
  if (status) {
    graph->csr = NULL;
    return status;
  }
  graph->signature = (dfgnn_signature)DFGNN_SIGNATURE_INIT;
  DFGNN_TRY(make_graph(&made, w, g));
  status = dfgnn_graph_signature(&graph->signature, made);
  graph->matrix =
      (dfgnn_matrix){.destinations = graph->signature.destinations,
                     .sources = graph->signature.sources,
                     .edges = graph->signature.edges,
                     .max_degree = graph->signature.max_degree,
                     .offsets64 = graph->signature.edges > INT32_MAX};
  dfgnn_graph_destroy(made);
  return status;
}

static int read_graphs(worker *w) {
  int status = TOOL_DONE;
  for (size_t g = 0; g < graph_count(w->s) && !stopped((void *)w->s); g++)
    if (is_used(w->s, g) && read_graph(w, g)) {
      status = tool_fail(DFGNN_ERROR_IO);
      dfgnn_csr_free(w->graph[g].csr);
      w->graph[g].csr = NULL;
    }
  return status;
}

/* ---- programs ------------------------------------------------------------ */

static dfgnn_status list_graph(dfgnn_programs *list, const worker *w, size_t c,
                               size_t g, const dfgnn_variant **variant) {
  dfgnn_problem problem;
  dfgnn_status status =
      dfgnn__problem_complete(&problem, &w->s->cells.cell[c].problem);
  const dfgnn_setting setting = {.problem = &problem,
                                 .matrix = &w->graph[g].matrix,
                                 .signature = &w->graph[g].signature,
                                 .device = &w->info};
  const size_t count =
      status ? 0 : dfgnn__survey_variants(variant, &setting, NULL);
  for (size_t i = 0; i < count; i++)
    /* A variant whose programs cannot be listed compiles them itself. */
    (void)dfgnn__collect_programs(list, variant[i], &setting, NULL, 0);
  return status;
}

/* Lists the programs of a cell; NULL if there is no memory. */
static dfgnn_programs *list_cell(const worker *w, size_t c) {
  const dfgnn_variant **variant =
      calloc(dfgnn__variant_count() + 1, sizeof *variant);
  dfgnn_programs *list = NULL;
  if (variant && dfgnn__programs_create(&list))
    list = NULL;
  for (size_t g = 0; list && g < graph_count(w->s); g++)
    if (w->s->wanted[c * graph_count(w->s) + g] && w->graph[g].csr)
      (void)list_graph(list, w, c, g, variant);
  free(variant);
  return list;
}

/* Compiles this process's part of a list into the user's cache. */
static void compile_part(worker *w, dfgnn_engine *engine,
                         const dfgnn_programs *list) {
  dfgnn_programs *part;
  const int threads = w->s->settings->threads;
  const int cores = dfgnn__engine_processors() / w->parts;
  if (dfgnn__programs_create(&part))
    return;
  for (size_t i = 0; i < dfgnn__programs_count(list); i++)
    if ((int)(i % (size_t)w->parts) == w->part)
      (void)dfgnn__programs_add(part, dfgnn__programs_get(list, i));
  (void)dfgnn__engine_prepare(engine, part,
                              threads     ? threads
                              : cores > 1 ? cores
                                          : 1,
                              &w->stop);
  dfgnn__programs_destroy(part);
}

static void *compile_ahead(void *data) {
  worker *w = data;
  dfgnn_engine *engine;
  (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux of this thread alone */
  if (dfgnn__engine_offline(&engine, w->info.arch))
    engine = NULL;
  for (size_t c = 0; c < w->s->cells.count && !atomic_load(&w->stop); c++) {
    dfgnn_programs *list = list_cell(w, c);
    atomic_store(&w->programs[c], list);
    if (engine && list)
      compile_part(w, engine, list);
    atomic_fetch_or(&w->s->shared->ready[c], 1u << w->part);
  }
  if (engine)
    dfgnn__engine_close(engine);
  return NULL;
}

/* Waits until all processes have compiled their parts of a cell; one that takes
 * LONGEST_WAIT_S is not waited for again. */
static void await_programs(worker *w, size_t c) {
  const unsigned own = 1u << w->part;
  const unsigned all = w->parts < 32 ? (1u << w->parts) - 1 : ~0u;
  const struct timespec moment = {.tv_nsec = 2000000};
  const double began = tool_now();
  while (!stopped((void *)w->s)) {
    const unsigned wanted = w->alone ? own : all;
    if ((atomic_load(&w->s->shared->ready[c]) & wanted) == wanted)
      return;
    w->alone |= tool_now() - began > LONGEST_WAIT_S;
    nanosleep(&moment, NULL);
  }
}

/* Loads the programs of a cell, so that no sample waits for the compiler; what
 * nobody has compiled is compiled here. */
static dfgnn_status enter_cell(worker *w, size_t c) {
  if (!w->ctx->backend->engine || c == w->cell)
    return DFGNN_OK;
  await_programs(w, c);
  const dfgnn_programs *programs = atomic_load(&w->programs[c]);
  if (!programs)
    return DFGNN_OK;
  const size_t count = dfgnn__programs_count(programs);
  if (w->loaded && w->loaded + count > MOST_LOADED) {
    close_device(w);
    DFGNN_TRY(open_device(w));
  }
  w->loaded += count;
  w->cell = c;
  (void)dfgnn__engine_prepare(w->ctx->backend->engine(w->ctx->device), programs,
                              LOADERS, &w->stop);
  return DFGNN_OK;
}

/* ---- items --------------------------------------------------------------- */

static void show_progress(const worker *w, size_t i, const dfgnn_survey *found,
                          double seconds) {
  const survey *s = w->s;
  const double done =
      (double)(atomic_fetch_add(&s->shared->done, 1) + 1) / (double)s->count;
  const double spent = tool_now() - s->began;
  tool_progress(s->settings, done,
                fmin(spent * (1 - done) / done, s->deadline - tool_now()),
                "%s, %s: %zu variants in %.2f s",
                s->cells.cell[i / graph_count(s)].name,
                s->label[i % graph_count(s)], found->count, seconds);
}

/* Returns an exit status: failures of one item do not end the survey. */
static int measure(worker *w, size_t i) {
  const survey *s = w->s;
  const size_t c = i / graph_count(s), g = i % graph_count(s);
  const double began = tool_now();
  dfgnn_survey found = {0};
  dfgnn_graph *graph = NULL;
  int kept = TOOL_DONE;
  if (!w->graph[g].csr)
    return TOOL_DONE;
  dfgnn_status status = enter_cell(w, c);
  if (!status)
    status = make_graph(&graph, w, g);
  if (!status)
    status = dfgnn__survey(&found, w->ctx, graph, &s->cells.cell[c].problem,
                           w->pool, s->settings->seed, stopped, (void *)s);
  if (!status) {
    kept = tool_survey_append(s->settings->output, s->cells.cell[c].name,
                              s->label[g], w->device, &found);
    show_progress(w, i, &found, tool_now() - began);
  } else if (status != DFGNN_ERROR_INTERRUPTED) {
    dfgnn__fail_prefix(status, "%s, %s%s%s: ", s->cells.cell[c].name,
                       s->label[g], *found.lost ? ", " : "", found.lost);
    tool_fail(status);
    atomic_fetch_add(&s->shared->failed, 1);
  }
  dfgnn__survey_free(&found);
  const int lost =
      !w->ctx || (status == DFGNN_ERROR_DEVICE &&
                  w->ctx->backend->synchronize(w->ctx->device, NULL));
  if (!lost)
    dfgnn_graph_destroy(graph);
  return lost ? LOST : kept;
}

static int measure_all(worker *w) {
  const survey *s = w->s;
  int status = TOOL_DONE;
  while (!status && !stopped((void *)s)) {
    const size_t i = atomic_fetch_add(&s->shared->next, 1);
    if (i >= s->items)
      break;
    if (s->wanted[i])
      status = measure(w, i);
  }
  return status;
}

static int work(const survey *s) {
  worker w = {.s = s,
              .part = s->settings->parts ? s->settings->part : 0,
              .parts = s->settings->parts ? s->settings->parts : 1};
  pthread_t compiler;
  int compiles = 0, status = TOOL_DONE;
  w.graph = calloc(graph_count(s) + 1, sizeof *w.graph);
  w.programs = calloc(s->cells.count + 1, sizeof *w.programs);
  if (!w.graph || !w.programs)
    return tool_error("out of memory");
  dfgnn_status opened = open_device(&w);
  if (opened)
    return tool_fail(opened);
  const int unread = read_graphs(&w);
  if (w.ctx->backend->engine)
    compiles = !pthread_create(&compiler, NULL, compile_ahead, &w);
  status = measure_all(&w);
  atomic_store(&w.stop, 1);
  if (status == LOST)
    _exit(LOST); /* nothing on this device can be released */
  if (compiles)
    pthread_join(compiler, NULL);
  for (size_t c = 0; c < s->cells.count; c++)
    dfgnn__programs_destroy(atomic_load(&w.programs[c]));
  for (size_t g = 0; g < graph_count(s); g++)
    dfgnn_csr_free(w.graph[g].csr);
  close_device(&w);
  free(w.programs);
  free(w.graph);
  return status ? status : unread;
}

/* Waits for a process; an interruption of this one is passed on. */
static int wait_for(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) != child) {
    if (errno != EINTR)
      return TOOL_FAILED;
    kill(child, SIGTERM);
  }
  if (!WIFSIGNALED(status))
    return WEXITSTATUS(status);
  tool_error("a process was ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  return LOST;
}

/* Has a process survey on settings->device, and another one if that loses the
 * device or its life: the item that it had taken is left out. */
static int attend(void *data, json_t *rows) {
  const survey *s = data;
  (void)rows;
  for (int k = 0; k <= MOST_RESTARTS && !tool_interrupted(); k++) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0); /* the parent alone passes interruptions on */
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      const int status = work(s);
      fflush(NULL);
      _exit(status);
    }
    if (child < 0)
      return tool_error("a process cannot be started: %s", strerror(errno));
    const int status = wait_for(child);
    if (status != LOST)
      return status;
  }
  return TOOL_FAILED;
}

/* ---- the command --------------------------------------------------------- */

static int share(survey *s) {
  const size_t size =
      sizeof(shared) + s->cells.count * sizeof *s->shared->ready;
  s->shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (s->shared == MAP_FAILED)
    return tool_error("out of memory");
  return TOOL_DONE;
}

/* Finds the devices, which have to be of one model. */
static int find_devices(tool_member member[TOOL_FLEET_MAX], int *count,
                        const char *device) {
  int status = tool_fleet_find(member, count, device);
  for (int i = 1; !status && i < *count; i++)
    if (strcmp(member[i].model, member[0].model))
      status = tool_usage("--device: found %s and %s, expected devices of one "
                          "model, since a survey is of one",
                          member[0].model, member[i].model);
  return status;
}

static int run(survey *s, tool_settings *settings) {
  tool_member member[TOOL_FLEET_MAX];
  int devices = 0;
  DFGNN_TRY(find_devices(member, &devices, settings->device));
  DFGNN_TRY(share(s));
  int status = TOOL_DONE;
  s->began = tool_now();
  s->deadline =
      settings->time_limit_s > 0 ? s->began + settings->time_limit_s : INFINITY;
  json_t *rows = json_array();
  if (devices == 1) {
    settings->device = member[0].device;
    status = attend(s, rows);
  } else {
    status = tool_fleet_run(rows, settings, member, devices, attend, s);
  }
  json_decref(rows);
  const size_t done = atomic_load(&s->shared->done);
  tool_progress_end();
  tool_note(settings, "%zu of %zu measured in %.0f s, %zu failed", done,
            s->count, tool_now() - s->began, atomic_load(&s->shared->failed));
  if (status)
    return status;
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  if (done == s->count)
    return TOOL_DONE;
  if (tool_now() < s->deadline)
    return TOOL_FAILED;
  (void)tool_error("time limit reached; the same command resumes");
  return TOOL_TIME_LIMIT;
}

static void release(survey *s) {
  tool_cells_free(&s->cells);
  tool_graphs_free(&s->graphs);
  free(s->label);
  free(s->wanted);
}

static int command(tool_settings *settings, int count, char **operands) {
  survey s = {.settings = settings};
  tool_survey_file file = {0};
  int status = TOOL_DONE;
  tool_catch_interrupts();
  if (!settings->cells || !settings->output)
    status = tool_usage("no %s, expected --%s",
                        settings->cells ? "file to write" : "table of cells",
                        settings->cells ? "output FILE" : "cells FILE");
  if (!status)
    status =
        tool_cells_read(&s.cells, settings, settings->cells, settings->only);
  if (!status)
    status = tool_graphs_all(&s.graphs, count, operands);
  if (!status)
    status = label_graphs(&s);
  if (!status)
    status = tool_survey_read(&file, settings->output);
  if (!status)
    status = list_wanted(&s, &file);
  if (!status && settings->status) {
    status = report_status(&s, &file);
  } else if (!status && s.count) {
    status = tool_survey_begin(settings->output);
    if (!status)
      status = run(&s, settings);
  }
  tool_survey_free(&file);
  release(&s);
  return status;
}

const tool_command tune_survey = {
    .name = "survey",
    .operands = "GRAPH...",
    .summary = "Measure all variants of a table of problems",
    .text =
        "Portfolios are made from surveys, and dfgnn-bench "
        "--regret judges choices by them. For each graph and cell, a line of "
        "--cells with a name and the options of a problem, every variant is "
        "sampled, those of papers too: once, briefly; those within 1.75 times "
        "the best in two more rounds, interleaved; and the best ten in five "
        "rounds of full samples. Kernels are compiled ahead on all cores. "
        "Results are not compared with the reference unless --check is given: "
        "tests do that.\n"
        "\n"
        "--output is CSV with the columns cell, graph, variant, ms (the "
        "median), rounds (1: too slow to be sampled again), variants (how many "
        "rows the graph has in the cell), revision, device. The rows of a "
        "graph and cell are written together; the same command goes on where "
        "an "
        "interrupted one was, and measures again where a kernel's revision "
        "rose. With several devices, such as --device "
        "all, each has a process, and they share the work.",
    .options = HAS(CELLS) | HAS(ONLY) | HAS(OUTPUT) | HAS(STATUS) |
               HAS(DEVICE) | HAS(THREADS) | HAS(TIME_LIMIT) | HAS(SEED) |
               HAS(SHARD) | HAS(CHECK) | HAS_TABLE,
    .main = command};
