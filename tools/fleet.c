/* fleet.c - runs one process per device and gathers their rows in one table */
#include "tools/fleet.h"
#include "lib/backend.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct member {
  const tool_member *of;
  pid_t pid;
  int errors;      /* the read end of the member's standard error */
  FILE *rows;      /* the file that the member writes its rows to */
  char line[1024]; /* the unfinished last line of its errors */
  size_t length;
} member;

/* Writes a line "name<TAB>model" for each device; runs in a process of its own.
 */
static int probe(FILE *out, const char *device) {
  char list[512], *rest = list, *item;
  const int gpus = dfgnn__backend_cuda.device_count();
  snprintf(list, sizeof list, "%s", device);
  if (!strcmp(device, "all"))
    snprintf(list, sizeof list, "cpu");
  for (int i = 0; !strcmp(device, "all") && i < gpus && i < TOOL_FLEET_MAX; i++)
    snprintf(list + (i ? strlen(list) : 0), 16, "%scuda:%d", i ? "," : "", i);
  while ((item = strsep(&rest, ","))) {
    dfgnn_options options = DFGNN_OPTIONS_INIT;
    dfgnn_device_info info = DFGNN_DEVICE_INFO_INIT;
    dfgnn_context *ctx = NULL;
    options.device = item;
    options.store = "";
    dfgnn_status status = dfgnn_context_create(&ctx, &options);
    if (!status)
      status = dfgnn_context_device(&info, ctx);
    if (status)
      return tool_fail(status);
    fprintf(out, "%s\t%s %s\n", item, info.arch, info.model);
    dfgnn_context_destroy(ctx);
  }
  return fflush(out) ? TOOL_FAILED : TOOL_DONE;
}

static void share_out(tool_member *member, int count) {
  for (int i = 0; i < count; i++) {
    member[i].part = member[i].parts = 0;
    for (int k = 0; k < count; k++)
      if (!strcmp(member[i].model, member[k].model)) {
        member[i].parts++;
        member[i].part += k < i;
      }
  }
}

int tool_fleet_find(tool_member member[TOOL_FLEET_MAX], int *count,
                    const char *device) {
  char line[256];
  int status;
  FILE *found = tmpfile();
  if (!found)
    return tool_error("a temporary file cannot be made: %s", strerror(errno));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0)
    _exit(probe(found, device));
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    fclose(found);
    return tool_error("the devices cannot be listed");
  }
  rewind(found);
  for (*count = 0; *count < TOOL_FLEET_MAX && fgets(line, sizeof line, found);)
    *count += sscanf(line, "%31[^\t]\t%127[^\n]", member[*count].device,
                     member[*count].model) == 2;
  fclose(found);
  share_out(member, *count);
  return WEXITSTATUS(status);
}

static void live(member *m, int errors, tool_settings *settings,
                 int (*body)(void *data, json_t *rows), void *data) {
  json_t *rows = json_array();
  /* An interrupt of the terminal must reach the parent alone, which passes it
   * on once; if the parent ends, this process gets SIGTERM. */
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(errors, STDERR_FILENO);
  close(errors);
  settings->device = m->of->device;
  settings->part = m->of->part;
  settings->parts = m->of->parts;
  int status = body(data, rows);
  if (json_dumpf(rows, m->rows, JSON_COMPACT | JSON_REAL_PRECISION(17)) ||
      fflush(m->rows))
    status = status ? status : TOOL_FAILED;
  _exit(status);
}

static int start(member *m, const member *all, int count,
                 tool_settings *settings, int (*body)(void *data, json_t *rows),
                 void *data) {
  int pipes[2];
  m->rows = tmpfile();
  if (!m->rows || pipe(pipes))
    return tool_error("%s: cannot be started: %s", m->of->device,
                      strerror(errno));
  fflush(NULL);
  m->pid = fork();
  if (m->pid == 0) {
    close(pipes[0]);
    for (int i = 0; i < count; i++)
      if (&all[i] != m && all[i].pid > 0)
        close(all[i].errors);
    live(m, pipes[1], settings, body, data);
  }
  close(pipes[1]);
  m->errors = pipes[0];
  return m->pid > 0 ? TOOL_DONE
                    : tool_error("%s: cannot be started: %s", m->of->device,
                                 strerror(errno));
}

static void say(member *m) {
  if (m->length)
    tool_relay(m->of->device, m->line, (int)m->length);
  m->length = 0;
}

/* Passes on what there is of a member's standard error; 0 at its end. */
static int relay(member *m) {
  char bytes[512];
  ssize_t n = read(m->errors, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR)
    return 1;
  for (ssize_t i = 0; i < n; i++) {
    if (bytes[i] == '\n' || m->length == sizeof m->line)
      say(m);
    if (bytes[i] != '\n')
      m->line[m->length++] = bytes[i];
  }
  if (n <= 0)
    say(m);
  return n > 0;
}

static void relay_all(member *all, int count) {
  int passed_on = 0;
  for (int open = count; open > 0;) {
    struct pollfd polls[TOOL_FLEET_MAX];
    for (int i = 0; i < count; i++)
      polls[i] = (struct pollfd){all[i].errors, POLLIN, 0};
    int ready = poll(polls, (nfds_t)count, 500);
    if (tool_interrupted() && !passed_on) {
      passed_on = 1;
      for (int i = 0; i < count; i++)
        if (all[i].errors >= 0)
          kill(all[i].pid, SIGTERM);
    }
    for (int i = 0; ready > 0 && i < count; i++)
      if (polls[i].revents && !relay(&all[i])) {
        close(all[i].errors);
        all[i].errors = -1; /* poll skips negative ones */
        open--;
      }
  }
}

/* The graver of two exit statuses, which the other must not hide. */
static int graver(int a, int b) {
  static const int order[] = {TOOL_DONE,       TOOL_TIME_LIMIT, TOOL_WRONG,
                              TOOL_FAILED,     TOOL_USAGE,      TOOL_STORE,
                              TOOL_INTERRUPTED};
  int i = 0, j = 0, last = (int)(sizeof order / sizeof *order) - 1;
  while (i < last && order[i] != a)
    i++;
  while (j < last && order[j] != b)
    j++;
  return i > j ? a : b;
}

static int collect(json_t *rows, member *m) {
  int status;
  if (waitpid(m->pid, &status, 0) != m->pid)
    return tool_error("%s: its process cannot be waited for", m->of->device);
  rewind(m->rows);
  json_t *own = json_loadf(m->rows, 0, NULL);
  if (own)
    json_array_extend(rows, own);
  json_decref(own);
  if (WIFSIGNALED(status))
    return tool_error("%s: the process was ended by signal %d (%s)",
                      m->of->device, WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status);
}

int tool_fleet_run(json_t *rows, tool_settings *settings, const tool_member *of,
                   int count, int (*body)(void *data, json_t *rows),
                   void *data) {
  member all[TOOL_FLEET_MAX] = {{0}};
  int status = TOOL_DONE, started = 0;
  for (; started < count && !status; started++) {
    all[started].of = &of[started];
    status = start(&all[started], all, started, settings, body, data);
  }
  started -= status != TOOL_DONE;
  relay_all(all, started);
  for (int i = 0; i < started; i++)
    status = graver(status, collect(rows, &all[i]));
  for (int i = 0; i < count; i++)
    if (all[i].rows)
      fclose(all[i].rows);
  return status;
}
