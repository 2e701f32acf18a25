/* job.c - YAML job files, dfgnn-job(5), by libcyaml */
#include "tools/job.h"
#include "base/error.h"
#include "base/file.h"
#include "tools/job_lines.h"
#include <cyaml/cyaml.h>
#include <libgen.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Everything but flags is text here: tools/common_options.c reads it, as it
 * reads the command line. */
typedef struct job {
  char **graphs, **operators, **passes, **widths, **heads, **dtypes, **math,
      **layouts, **devices, **edge_dims, **edge_uses, **messages;
  uint32_t graphs_count, operators_count, passes_count, widths_count,
      heads_count, dtypes_count, math_count, layouts_count, devices_count,
      edge_dims_count, edge_uses_count, messages_count;
  char *budget, *time_limit, *store, *seed, *threads;
  int *cold, *deterministic, *weights, *bias, *dropout, *exhaustive, *anonymous;
} job;

/* ---- schema ------------------------------------------------------------- */

static const cyaml_schema_value_t text_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 4096)};

/* CYAML's own booleans take any word for true. */
static const cyaml_strval_t flags[] = {
    {"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0}};

#define OPTIONAL (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)
#define LIST(key, member)                                                      \
  CYAML_FIELD_SEQUENCE(key, OPTIONAL, job, member, &text_entry, 1,             \
                       CYAML_UNLIMITED)
#define FLAG(key, member)                                                      \
  CYAML_FIELD_ENUM_PTR(key, OPTIONAL | CYAML_FLAG_STRICT, job, member, flags,  \
                       sizeof flags / sizeof *flags)
#define TEXT(key, member)                                                      \
  CYAML_FIELD_STRING_PTR(key, OPTIONAL, job, member, 1, 4096)

static const cyaml_schema_field_t fields[] = {
    LIST("graphs", graphs),
    LIST("operators", operators),
    LIST("passes", passes),
    LIST("widths", widths),
    LIST("heads", heads),
    LIST("dtypes", dtypes),
    LIST("math", math),
    LIST("layouts", layouts),
    LIST("devices", devices),
    LIST("edge-dims", edge_dims),
    LIST("edge-uses", edge_uses),
    LIST("messages", messages),
    TEXT("budget", budget),
    TEXT("time-limit", time_limit),
    TEXT("store", store),
    TEXT("seed", seed),
    TEXT("threads", threads),
    FLAG("cold", cold),
    FLAG("deterministic", deterministic),
    FLAG("weights", weights),
    FLAG("bias", bias),
    FLAG("dropout", dropout),
    FLAG("exhaustive", exhaustive),
    FLAG("anonymous", anonymous),
    CYAML_FIELD_END};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, job, fields)};

/* ---- errors ------------------------------------------------------------- */

/* libcyaml says first what is wrong, and then where, from the inside out. */
typedef struct complaint {
  char what[512], key[64];
  int line;
} complaint;

static void hear(cyaml_log_t level, void *data, const char *format,
                 va_list arguments) {
  complaint *c = data;
  char text[512];
  (void)level;
  vsnprintf(text, sizeof text, format, arguments);
  text[strcspn(text, "\n")] = 0;
  const char *line = strstr(text, "line: ");
  if (line && !c->line)
    c->line = atoi(line + 6);
  const char *field = strstr(text, "in mapping field");
  const char *quote = field ? strchr(field, '\'') : NULL;
  if (quote && !*c->key)
    snprintf(c->key, sizeof c->key, "%.*s: ", (int)strcspn(quote + 1, "'"),
             quote + 1);
  if (!*c->what && !strstr(text, "Backtrace")) {
    const char *start = strncmp(text, "Load: ", 6) ? text : text + 6;
    snprintf(c->what, sizeof c->what, "%s", start);
  }
}

/* Names a kind of value, which libcyaml calls by a YAML event. */
static const char *kind_of(const char *yaml) {
  return strstr(yaml, "SEQUENCE")  ? "a list"
         : strstr(yaml, "MAPPING") ? "a mapping"
         : strstr(yaml, "ALIAS")   ? "an alias"
         : strstr(yaml, "END")     ? "the end of the file"
                                   : "a single value";
}

static void in_plain_words(char *text, size_t size, const char *what) {
  char wanted[64];
  const char *got = strstr(what, ", got event: ");
  if (got && sscanf(what, "Expecting %63[A-Za-z_]", wanted) == 1)
    snprintf(text, size, "found %s, expected %s", kind_of(got + 13),
             kind_of(wanted));
  else if (!strncmp(what, "Invalid ENUM value: ", 20))
    snprintf(text, size, "found '%s', expected true, false, yes or no",
             what + 20);
  else
    snprintf(text, size, "%s", what);
}

/* The line on which a key stands, else the one given. */
static int line_of(const char *text, const char *key, int otherwise) {
  size_t n = strlen(key);
  int line = 1;
  for (const char *p = text; p && *p; line++) {
    p += strspn(p, " ");
    if (!strncmp(p, key, n) && p[n + strspn(p + n, " ")] == ':')
      return line;
    p = strchr(p, '\n');
    p = p ? p + 1 : NULL;
  }
  return otherwise;
}

/* An unexpected key is reported with the line of the value before it. */
static int complain(const complaint *c, const char *path, const char *text,
                    cyaml_err_t bad) {
  char words[600];
  const char *what = *c->what ? c->what : cyaml_strerror(bad);
  const char *key = strstr(what, "Unexpected key: ");
  int line = c->line ? c->line : 1;
  in_plain_words(words, sizeof words, what);
  return tool_error("%s:%d: %s%s", path,
                    key ? line_of(text, strchr(key, ':') + 2, line) : line,
                    key ? "" : c->key, words);
}

/* ---- from the file to the settings -------------------------------------- */

typedef struct reading {
  tool_settings *settings;
  const char *path;
  const tool_job_lines *lines;
  char *folder;
} reading;

static int refuse(const reading *r, const char *key, int entry) {
  const char *message = strstr(dfgnn_last_error(), ": ");
  return tool_error("%s:%d: %s: %s", r->path,
                    tool_job_line_of(r->lines, key, entry), key,
                    message ? message + 2 : dfgnn_last_error());
}

/* Sets an option unless the command line did. */
static int put(const reading *r, int option, const char *key,
               const char *value) {
  if (!value || r->settings->given >> option & 1)
    return TOOL_DONE;
  char **kept = r->settings->owned;
  while (*kept)
    kept++;
  if (!(*kept = strdup(value)))
    return tool_error("out of memory");
  return tool_set(r->settings, option, *kept) ? refuse(r, key, 0) : TOOL_DONE;
}

/* Sets an option to a list; entries are tried one by one, so that the message
 * about a wrong one tells its line. */
static int put_list(const reading *r, int option, const char *key,
                    char *const *entry, uint32_t count, uint32_t most) {
  if (!entry || r->settings->given >> option & 1)
    return TOOL_DONE;
  if (count > most)
    return tool_error("%s:%d: %s: found %u entries, expected at most %u",
                      r->path, tool_job_line_of(r->lines, key, (int)most), key,
                      (unsigned)count, (unsigned)most);
  size_t size = 1, used = 0;
  for (uint32_t i = 0; i < count; i++) {
    tool_settings alone = *r->settings;
    if (tool_set(&alone, option, entry[i]))
      return refuse(r, key, (int)i);
    size += strlen(entry[i]) + 1;
  }
  char *list = malloc(size);
  if (!list)
    return tool_error("out of memory");
  for (uint32_t i = 0; i < count; i++)
    used += (size_t)snprintf(list + used, size - used, "%s%s", i ? "," : "",
                             entry[i]);
  int status = put(r, option, key, list);
  free(list);
  return status;
}

/* Makes a path relative to the job file; a name without '/' and wildcards that
 * is no file there, such as a generator's specification, stays. */
static void beside(char *out, size_t size, const reading *r, const char *name) {
  struct stat info;
  if (*name == '/')
    snprintf(out, size, "%s", name);
  else
    snprintf(out, size, "%s/%s", r->folder, name);
  if (stat(out, &info) && !strpbrk(name, "*?[/"))
    snprintf(out, size, "%s", name);
}

static int put_graphs(const reading *r, tool_graphs *graphs, const job *j) {
  char name[8192];
  int status = TOOL_DONE;
  for (uint32_t i = 0; i < j->graphs_count && !status; i++) {
    beside(name, sizeof name, r, j->graphs[i]);
    status = tool_graphs_add(graphs, name);
  }
  return status;
}

/* Sets the store, whose path is relative to the job file. */
static int put_store(const reading *r, const job *j) {
  char store[8192];
  if (!j->store)
    return TOOL_DONE;
  snprintf(store, sizeof store, "%s%s%s", *j->store == '/' ? "" : r->folder,
           *j->store == '/' ? "" : "/", j->store);
  return put(r, OPTION_STORE, "store", store);
}

static int put_all(const reading *r, tool_graphs *graphs, const job *j) {
  tool_settings *s = r->settings;
  const struct {
    int option;
    const char *key;
    char *const *entry;
    uint32_t count, most;
  } lists[] = {
#define LISTED_AS(name, key, member, most)                                     \
  {OPTION_##name, key, j->member, j->member##_count, most}
#define LISTED(name, key, most) LISTED_AS(name, #key, key, most)
      LISTED(OP, operators, TOOL_MAX_LIST),
      LISTED(PASS, passes, TOOL_MAX_LIST),
      LISTED(DIM, widths, TOOL_MAX_LIST),
      LISTED(HEADS, heads, TOOL_MAX_LIST),
      LISTED(DTYPE, dtypes, TOOL_MAX_LIST),
      LISTED(MATH, math, TOOL_MAX_LIST),
      LISTED(LAYOUT, layouts, TOOL_MAX_LIST),
      LISTED(DEVICE, devices, TOOL_MAX_DEVICES),
      LISTED_AS(EDGE_DIM, "edge-dims", edge_dims, TOOL_MAX_LIST),
      LISTED_AS(EDGE_USE, "edge-uses", edge_uses, TOOL_MAX_LIST),
      LISTED_AS(MESSAGE, "messages", messages, TOOL_MAX_LIST)
#undef LISTED
#undef LISTED_AS
  };
  const struct {
    int option;
    const char *key, *value;
  } single[] = {{OPTION_BUDGET, "budget", j->budget},
                {OPTION_TIME_LIMIT, "time-limit", j->time_limit},
                {OPTION_SEED, "seed", j->seed},
                {OPTION_THREADS, "threads", j->threads}};
  const struct {
    int option;
    const int *flag;
    int *field;
  } flagged[] = {{OPTION_COLD, j->cold, &s->cold},
                 {OPTION_NO_DETERMINISTIC, j->deterministic, &s->deterministic},
                 {OPTION_WEIGHTS, j->weights, &s->weights},
                 {OPTION_BIAS, j->bias, &s->bias},
                 {OPTION_DROPOUT, j->dropout, &s->dropout},
                 {OPTION_EXHAUSTIVE, j->exhaustive, &s->exhaustive},
                 {OPTION_ANONYMOUS, j->anonymous, &s->anonymous}};
  int status = TOOL_DONE;
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !status; i++)
    status = put_list(r, lists[i].option, lists[i].key, lists[i].entry,
                      lists[i].count, lists[i].most);
  for (size_t i = 0; i < sizeof single / sizeof *single && !status; i++)
    status = put(r, single[i].option, single[i].key, single[i].value);
  for (size_t i = 0; i < sizeof flagged / sizeof *flagged; i++)
    if (flagged[i].flag && !(s->given >> flagged[i].option & 1))
      *flagged[i].field = *flagged[i].flag;
  if (!status)
    status = put_store(r, j);
  if (!status && !graphs->count)
    status = put_graphs(r, graphs, j);
  return status;
}

/* ---- reading ------------------------------------------------------------ */

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
    tool_error("%s: found a NUL byte, expected YAML text", path);
  else {
    text[*size] = 0;
    return text;
  }
  free(text);
  return NULL;
}

int tool_job_read(tool_settings *settings, tool_graphs *graphs, char hash[33],
                  const char *path) {
  job *j = NULL;
  complaint c = {0};
  tool_job_lines lines = {0};
  char *copy = strdup(path);
  size_t size;
  char *text = slurp(&size, path);
  int status = TOOL_FAILED;
  if (!text || !copy)
    goto out;
  unsigned char digest[16];
  crypto_generichash(digest, sizeof digest, (const unsigned char *)text, size,
                     NULL, 0);
  sodium_bin2hex(hash, 33, digest, sizeof digest);
  if ((status = tool_job_lines_find(&lines, path, text, size)))
    goto out;
  cyaml_config_t config = {.log_fn = hear,
                           .log_ctx = &c,
                           .mem_fn = cyaml_mem,
                           .log_level = CYAML_LOG_ERROR};
  cyaml_err_t bad = cyaml_load_data((const uint8_t *)text, size, &config,
                                    &schema, (cyaml_data_t **)&j, NULL);
  if (bad) {
    status = complain(&c, path, text, bad);
    goto out;
  }
  if (j) {
    reading r = {settings, path, &lines, dirname(copy)};
    status = put_all(&r, graphs, j);
    cyaml_free(&config, &schema, j, 0);
  } else {
    status = tool_error("%s:1: empty, expected a mapping", path);
  }
out:
  tool_job_lines_free(&lines);
  free(text);
  free(copy);
  return status;
}
