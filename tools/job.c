/* job.c - job files, dfgnn-job(5): graphs and options, one a line */
#include "tools/job.h"
#include "lib/base/file.h"
#include "tools/suggest.h"
#include <libgen.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const tool_option_set job_options =
    HAS_PROBLEM | HAS(BUDGET) | HAS(TIME_LIMIT) | HAS(STORE) | HAS(SEED) |
    HAS(THREADS) | HAS(EXHAUSTIVE) | HAS(ANONYMOUS);

typedef struct job {
  tool_settings *settings;
  tool_graphs *graphs; /* NULL: the command line has some */
  const char *path, *folder;
  int line;
  tool_option_set seen;
} job;

/* Makes a path relative to the job file; a name without '/' and wildcards that
 * is no file there, such as a generator's specification, stays. */
static int put_graph(const job *j, const char *name) {
  struct stat info;
  char path[8192];
  snprintf(path, sizeof path, "%s%s%s", *name == '/' ? "" : j->folder,
           *name == '/' ? "" : "/", name);
  int there = !stat(path, &info), stays = !there && !strpbrk(name, "*?[/");
  if (!there && strstr(name, " --"))
    return tool_error("%s:%d: found '%s', expected a graph, and each option on "
                      "a line of its own",
                      j->path, j->line, name);
  for (int i = 0; !there && i < OPTION_COUNT; i++) {
    const char *option = tool_options[i].name;
    const size_t length = strlen(option);
    if (job_options >> i & 1 && !strncmp(name, option, length) &&
        strchr(" \t=", name[length]))
      return tool_error("%s:%d: found '%s', expected a graph or --%s", j->path,
                        j->line, name, option);
  }
  j->graphs->job = j->path;
  j->graphs->line = j->line;
  return tool_graphs_add(j->graphs, stays ? name : path);
}

/* The number of the option of a name; OPTION_COUNT, with a message, if a job
 * has none such. */
static int option_of(const job *j, const char *name) {
  const char *names[OPTION_COUNT + 1] = {0};
  char hint[64];
  int known = 0;
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (!(job_options >> i & 1))
      continue;
    if (!strcmp(name, tool_options[i].name))
      return i;
    names[known++] = tool_options[i].name;
  }
  tool_error("%s:%d: found --%s, expected an option of dfgnn-job(5)%s", j->path,
             j->line, name, tool_suggest(hint, sizeof hint, name, "--", names));
  return OPTION_COUNT;
}

static int set(const job *j, int option, const char *value) {
  char store[8192], **kept = j->settings->owned;
  if (option == OPTION_STORE && *value && *value != '/') {
    snprintf(store, sizeof store, "%s/%s", j->folder, value);
    value = store;
  }
  while (*kept)
    kept++;
  if (!(*kept = strdup(value)))
    return tool_error("out of memory");
  return tool_set(j->settings, option, *kept)
             ? tool_error("%s:%d: %s", j->path, j->line, dfgnn_last_error())
             : TOOL_DONE;
}

static int take_option(job *j, char *text) {
  char *name = text + 2, *value = name + strcspn(name, " \t");
  if (*value)
    *value++ = 0;
  value += strspn(value, " \t");
  const int option = option_of(j, name);
  if (option == OPTION_COUNT)
    return TOOL_FAILED;
  if (j->seen >> option & 1)
    return tool_error("%s:%d: --%s: found a second time", j->path, j->line,
                      name);
  j->seen |= (tool_option_set)1 << option;
  if (!tool_options[option].argument != !*value)
    return tool_error("%s:%d: --%s: found '%s', expected %s", j->path, j->line,
                      name, value,
                      *value ? "no value" : tool_options[option].argument);
  return j->settings->given >> option & 1 ? TOOL_DONE : set(j, option, value);
}

/* Takes a line without its comment, which a '#' begins where a word would. */
static int take_line(job *j, char *line) {
  char *text = line + strspn(line, " \t\r"), *end = text;
  while (*end && !(*end == '#' && (end == text || strchr(" \t", end[-1]))))
    end++;
  while (end > text && strchr(" \t\r", end[-1]))
    end--;
  *end = 0;
  if (!*text)
    return TOOL_DONE;
  if (!strncmp(text, "--", 2))
    return take_option(j, text);
  return j->graphs ? put_graph(j, text) : TOOL_DONE;
}

#define JOB_LIMIT (1 << 20)

/* Reads the whole file, ended by a NUL; NULL with a message if that fails. */
static char *slurp(size_t *size, const char *path) {
  int64_t told;
  int fd;
  ssize_t n = 1;
  dfgnn_status status =
      dfgnn__file_or_pipe_open(&fd, &told, path, "a job file");
  if (status) {
    tool_fail(status);
    return NULL;
  }
  char *text = malloc(JOB_LIMIT + 1);
  for (*size = 0; text && n > 0 && *size < JOB_LIMIT; *size += (size_t)n)
    if ((n = read(fd, text + *size, JOB_LIMIT - *size)) < 0)
      break;
  close(fd);
  if (!text || n < 0)
    tool_error("%s: cannot be read", path);
  else if (*size == JOB_LIMIT)
    tool_error("%s: 1 MiB or more, expected a job file", path);
  else if (memchr(text, 0, *size))
    tool_error("%s: found a NUL byte, expected text", path);
  else {
    text[*size] = 0;
    return text;
  }
  free(text);
  return NULL;
}

int tool_job_read(tool_settings *settings, tool_graphs *graphs, char hash[33],
                  const char *path) {
  char *copy = strdup(path), *rest, *line;
  size_t size;
  char *text = slurp(&size, path);
  int status = text && copy ? TOOL_DONE : TOOL_FAILED;
  if (!status) {
    unsigned char digest[16];
    job j = {.settings = settings,
             .graphs = graphs->count ? NULL : graphs,
             .path = path,
             .folder = dirname(copy)};
    crypto_generichash(digest, sizeof digest, (const unsigned char *)text, size,
                       NULL, 0);
    sodium_bin2hex(hash, 33, digest, sizeof digest);
    for (rest = text; !status && (line = strsep(&rest, "\n"));) {
      j.line++;
      status = take_line(&j, line);
    }
  }
  free(text);
  free(copy);
  return status;
}
