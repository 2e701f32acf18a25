#define _GNU_SOURCE /* sched_getaffinity */
#include "lib/base/load.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/locale.h"

enum { LONGEST = 1 << 16, MOST_PATH = 1024 };

/* The beginning of a file; its length, or -1. */
static long read_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static long read_text(char *text, size_t size, const char *format, ...) {
  char path[MOST_PATH];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(path, sizeof path, format, arguments);
  va_end(arguments);
  text[0] = 0;
  if (length < 0 || (size_t)length >= sizeof path)
    return -1;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  long total = 0, got;
  while ((size_t)total + 1 < size &&
         (got = read(file, text + total, size - 1 - (size_t)total)) > 0)
    total += got;
  close(file);
  text[total] = 0;
  return total;
}

/* The number after a word that begins a line, DFGNN_UNKNOWN without it. */
static double after_word(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (const char *line = text; line && *line;) {
    double number;
    if (!strncmp(line, word, length) &&
        sscanf(line + length, "%lf", &number) == 1)
      return number;
    line = strchr(line, '\n');
    line = line ? line + 1 : NULL;
  }
  return DFGNN_UNKNOWN;
}

static double seconds_of(clockid_t clock) {
  struct timespec t;
  return clock_gettime(clock, &t) ? DFGNN_UNKNOWN
                                  : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dfgnn__seconds(void) { return seconds_of(CLOCK_MONOTONIC); }

dfgnn_load dfgnn__load_unknown(void) {
  return (dfgnn_load){.at = dfgnn__seconds(),
                      .cores = DFGNN_UNKNOWN,
                      .limit = INFINITY,
                      .average = DFGNN_UNKNOWN,
                      .running = DFGNN_UNKNOWN,
                      .busy = DFGNN_UNKNOWN,
                      .own = DFGNN_UNKNOWN,
                      .stolen = DFGNN_UNKNOWN,
                      .throttled = DFGNN_UNKNOWN,
                      .stalled = DFGNN_UNKNOWN,
                      .hot = DFGNN_UNKNOWN,
                      .use = DFGNN_UNKNOWN,
                      .mhz = DFGNN_UNKNOWN,
                      .top_mhz = DFGNN_UNKNOWN,
                      .slowed = DFGNN_UNKNOWN};
}

/* ---- processors ---------------------------------------------------------- */

/* Adds up the lines cpuN of proc/stat of the processors in a set. */
static void read_processors(dfgnn_load *load, const char *stat,
                            const cpu_set_t *set) {
  const double tick = 1 / (double)sysconf(_SC_CLK_TCK);
  for (const char *line = stat; line && *line;) {
    unsigned n;
    unsigned long long user, nice, system, idle, wait, irq, soft, steal = 0;
    const int numbered = !strncmp(line, "cpu", 3) && line[3] >= '0';
    if (numbered &&
        sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &n, &user,
               &nice, &system, &idle, &wait, &irq, &soft, &steal) >= 8 &&
        n < CPU_SETSIZE && CPU_ISSET(n, set)) {
      load->busy = fmax(load->busy, 0) +
                   tick * (double)(user + nice + system + irq + soft);
      load->stolen = fmax(load->stolen, 0) + tick * (double)steal;
    }
    line = strchr(line, '\n');
    line = line ? line + 1 : NULL;
  }
}

static void read_heat(dfgnn_load *load, const char *root,
                      const cpu_set_t *set) {
  char text[64];
  double times;
  for (unsigned n = 0; n < CPU_SETSIZE; n++)
    if (CPU_ISSET(n, set) &&
        read_text(text, sizeof text,
                  "%s/sys/devices/system/cpu/cpu%u/thermal_throttle/"
                  "core_throttle_count",
                  root, n) > 0 &&
        sscanf(text, "%lf", &times) == 1)
      load->hot = fmax(load->hot, 0) + times;
}

/* ---- control groups ------------------------------------------------------ */

/* The path of this process's group in a hierarchy: the line "N:NAMES:PATH" of
 * proc/self/cgroup whose names hold `name`; "" is version 2.  NULL: none. */
static char *group_path(char *text, const char *name) {
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line;
       line = strtok_r(NULL, "\n", &save)) {
    char *names = strchr(line, ':');
    char *path = names ? strchr(names + 1, ':') : NULL;
    if (!path)
      continue;
    *path++ = 0;
    for (char *own = names + 1, *next; own; own = next) {
      next = strchr(own, ',');
      if (next)
        *next++ = 0;
      if (!strcmp(own, name))
        return path;
    }
  }
  return NULL;
}

/* The processors' worth that a group may use: QUOTA over PERIOD, of one file in
 * version 2 and of two in version 1. */
static double group_limit(const char *folder) {
  char text[64], period[64];
  double quota, every;
  if (read_text(text, sizeof text, "%s/cpu.max", folder) > 0 &&
      sscanf(text, "%lf %lf", &quota, &every) == 2 && every > 0)
    return quota / every;
  if (read_text(text, sizeof text, "%s/cpu.cfs_quota_us", folder) > 0 &&
      read_text(period, sizeof period, "%s/cpu.cfs_period_us", folder) > 0 &&
      sscanf(text, "%lf", &quota) == 1 && sscanf(period, "%lf", &every) == 1 &&
      quota > 0 && every > 0)
    return quota / every;
  return INFINITY;
}

static double group_throttled(const char *folder) {
  char text[4096];
  if (read_text(text, sizeof text, "%s/cpu.stat", folder) <= 0)
    return DFGNN_UNKNOWN;
  const double us = after_word(text, "throttled_usec ");
  if (us >= 0)
    return 1e-6 * us;
  const double ns = after_word(text, "throttled_time ");
  return ns >= 0 ? 1e-9 * ns : DFGNN_UNKNOWN;
}

/* Looks at the group and at those above it: the tightest limit holds.  Inside a
 * container the path may be that of the host; its own root is then all. */
static void read_group(dfgnn_load *load, const char *root, const char *mount,
                       const char *path) {
  char folder[MOST_PATH], own[512];
  snprintf(own, sizeof own, "%s", path);
  for (;;) {
    const int length =
        snprintf(folder, sizeof folder, "%s%s%s", root, mount, own);
    if (length > 0 && (size_t)length < sizeof folder) {
      const double throttled = group_throttled(folder);
      load->limit = fmin(load->limit, group_limit(folder));
      if (throttled > load->throttled)
        load->throttled = throttled;
    }
    char *slash = strrchr(own, '/');
    if (!slash)
      return;
    *slash = 0;
  }
}

static void read_groups(dfgnn_load *load, const char *root) {
  static const char *const mounts[] = {"/sys/fs/cgroup/cpu",
                                       "/sys/fs/cgroup/cpu,cpuacct"};
  char text[4096], again[4096];
  if (read_text(text, sizeof text, "%s/proc/self/cgroup", root) <= 0)
    return;
  memcpy(again, text, sizeof again);
  const char *path = group_path(text, "");
  if (path)
    read_group(load, root, "/sys/fs/cgroup", path);
  path = group_path(again, "cpu");
  for (size_t i = 0; path && i < sizeof mounts / sizeof *mounts; i++)
    read_group(load, root, mounts[i], path);
}

/* ---- a reading ----------------------------------------------------------- */

static void allowed(cpu_set_t *set) {
  CPU_ZERO(set);
  if (sched_getaffinity(0, sizeof *set, set) || !CPU_COUNT(set))
    for (long n = 0; n < sysconf(_SC_NPROCESSORS_ONLN) && n < CPU_SETSIZE; n++)
      CPU_SET((unsigned)n, set);
}

static dfgnn_load read_load(const char *root) {
  dfgnn_load load = dfgnn__load_unknown();
  char *text = malloc(LONGEST);
  cpu_set_t set;
  allowed(&set);
  load.cores = CPU_COUNT(&set);
  load.own = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  if (!text)
    return load;
  double number;
  if (read_text(text, LONGEST, "%s/proc/loadavg", root) > 0 &&
      sscanf(text, "%lf", &number) == 1)
    load.average = number;
  if (read_text(text, LONGEST, "%s/proc/stat", root) > 0) {
    read_processors(&load, text, &set);
    load.running = after_word(text, "procs_running ");
  }
  if (read_text(text, LONGEST, "%s/proc/pressure/cpu", root) > 0) {
    const char *total = strstr(text, "total=");
    if (total && sscanf(total, "total=%lf", &number) == 1)
      load.stalled = 1e-6 * number;
  }
  free(text);
  read_groups(&load, root);
  read_heat(&load, root, &set);
  return load;
}

dfgnn_load dfgnn__load_read(const char *root) {
  const locale_t before = dfgnn__locale_begin();
  const dfgnn_load load = read_load(root);
  dfgnn__locale_end(before);
  return load;
}

double dfgnn__load_waited(void) {
  char text[128];
  double sum = DFGNN_UNKNOWN;
  DIR *tasks = opendir("/proc/self/task");
  for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
    unsigned long long ran, waited;
    if (entry->d_name[0] != '.' &&
        read_text(text, sizeof text, "/proc/self/task/%s/schedstat",
                  entry->d_name) > 0 &&
        sscanf(text, "%llu %llu", &ran, &waited) == 2)
      sum = fmax(sum, 0) + 1e-9 * (double)waited;
  }
  if (tasks)
    closedir(tasks);
  return sum;
}

/* ---- two readings -------------------------------------------------------- */

/* The growth of a counter over a time; DFGNN_UNKNOWN if it is not known. */
static double growth(double before, double after, double over) {
  return before < 0 || after < 0 || !(over > 0)
             ? DFGNN_UNKNOWN
             : fmax(after - before, 0) / over;
}

dfgnn_crowd dfgnn__load_between(const dfgnn_load *before,
                                const dfgnn_load *after) {
  const double seconds = after->at - before->at;
  const double busy = growth(before->busy, after->busy, seconds);
  const double own = growth(before->own, after->own, seconds);
  return (dfgnn_crowd){
      .seconds = seconds,
      .cores = fmin(after->cores, after->limit),
      .others = busy < 0 || own < 0 ? DFGNN_UNKNOWN
                                    : fmin(fmax(busy - own, 0), after->cores),
      .average = after->average,
      .stolen = growth(before->stolen, after->stolen,
                       seconds * fmax(after->cores, 1)),
      .throttled = growth(before->throttled, after->throttled, seconds),
      .stalled = growth(before->stalled, after->stalled, seconds),
      .hot = growth(before->hot, after->hot, seconds > 0),
      .use = after->use,
      .mhz = after->mhz,
      .top_mhz = after->top_mhz,
      .slowed = after->slowed};
}

/* A clock below this part of the fastest is slow. */
#define FULL_CLOCK 0.8

static int is_crowded(const dfgnn_crowd *c, int threads) {
  return c->others >= 0 && c->cores > 0 && c->others > DFGNN_QUIET_CORES &&
         c->others + threads > c->cores + DFGNN_QUIET_CORES;
}

static int is_limited(const dfgnn_crowd *c, int threads) {
  return c->cores > 0 && threads > c->cores + DFGNN_QUIET_CORES;
}

static int is_slow(const dfgnn_crowd *c) {
  return c->mhz > 0 && c->top_mhz > 0 && c->mhz < FULL_CLOCK * c->top_mhz;
}

int dfgnn__crowd_is_quiet(const dfgnn_crowd *c, int threads) {
  return !is_crowded(c, threads) && !is_limited(c, threads) &&
         c->stolen <= DFGNN_QUIET_SHARE && c->throttled <= DFGNN_QUIET_SHARE &&
         c->hot <= 0 && c->use <= DFGNN_QUIET_SHARE && c->slowed <= 0 &&
         !is_slow(c);
}

static void add(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *text, size_t size, const char *format, ...) {
  const size_t n = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  if (n + 2 < size) {
    snprintf(text + n, size - n, "%s", n ? ", " : "");
    const size_t m = strlen(text);
    vsnprintf(text + m, size - m, format, arguments);
  }
  va_end(arguments);
}

void dfgnn__crowd_text(char *text, size_t size, const dfgnn_crowd *c,
                       int threads) {
  text[0] = 0;
  if (is_limited(c, threads))
    add(text, size, "%d threads on %.3g cores", threads, c->cores);
  if (is_crowded(c, threads))
    add(text, size, "others keep %.1f of %.3g cores busy", c->others, c->cores);
  if (c->stolen > DFGNN_QUIET_SHARE)
    add(text, size, "%.0f %% of the time is stolen by other machines",
        100 * c->stolen);
  if (c->throttled > DFGNN_QUIET_SHARE)
    add(text, size, "a limit of %.3g cores stops threads %.0f %% of the time",
        c->cores, 100 * fmin(c->throttled, 1));
  if (c->hot > 0)
    add(text, size, "processors are slowed by heat");
  if (c->use > DFGNN_QUIET_SHARE)
    add(text, size, "others use the GPU %.0f %% of the time", 100 * c->use);
  if (c->slowed > 0)
    add(text, size, "heat or power slows the GPU");
  if (is_slow(c))
    add(text, size, "the clock is at %.0f of %.0f MHz", c->mhz, c->top_mhz);
}
