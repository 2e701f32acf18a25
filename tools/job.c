/* job.c - YAML job files, dfgnn-job(5), by libcyaml */
#include "tools/job.h"
#include "base/error.h"
#include <cyaml/cyaml.h>
#include <libgen.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct job {
  char **graphs;
  dfgnn_op *op;
  dfgnn_pass *pass;
  dfgnn_dtype *dtype;
  dfgnn_math *math;
  dfgnn_layout *layout;
  int64_t *dim, *heads;
  char **devices;
  uint32_t graphs_count, op_count, pass_count, dtype_count, math_count,
      layout_count, dim_count, heads_count, devices_count;
  char *budget, *time_limit, *store;
  uint64_t *seed;
  int *threads;
  int *cold, *deterministic, *weights, *bias, *dropout, *exhaustive, *anonymous;
} job;

/* ---- schema ------------------------------------------------------------- */

static cyaml_strval_t op_names[DFGNN_OP_COUNT], pass_names[DFGNN_PASS_COUNT],
    dtype_names[DFGNN_DTYPE_COUNT], math_names[DFGNN_MATH_COUNT],
    layout_names[DFGNN_LAYOUT_COUNT];

static void fill_names(void) {
#define FILL(kind, last)                                                       \
  for (int i = 0; i < last; i++)                                               \
  kind##_names[i] = (cyaml_strval_t){dfgnn_##kind##_name((dfgnn_##kind)i), i}
  FILL(op, DFGNN_OP_COUNT);
  FILL(pass, DFGNN_PASS_COUNT);
  FILL(dtype, DFGNN_DTYPE_COUNT);
  FILL(math, DFGNN_MATH_COUNT);
  FILL(layout, DFGNN_LAYOUT_COUNT);
#undef FILL
}

#define NAMED(kind, last)                                                      \
  static const cyaml_schema_value_t kind##_entry = {                           \
      CYAML_VALUE_ENUM(CYAML_FLAG_STRICT, dfgnn_##kind, kind##_names, last)}
NAMED(op, DFGNN_OP_COUNT);
NAMED(pass, DFGNN_PASS_COUNT);
NAMED(dtype, DFGNN_DTYPE_COUNT);
NAMED(math, DFGNN_MATH_COUNT);
NAMED(layout, DFGNN_LAYOUT_COUNT);

static const cyaml_schema_value_t text_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 4096)};
static const cyaml_schema_value_t size_entry = {
    CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int64_t)};

/* CYAML's own booleans take any word for true. */
static const cyaml_strval_t flags[] = {
    {"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0}};

#define OPTIONAL (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)
#define LIST(key, member, entry, most)                                         \
  CYAML_FIELD_SEQUENCE(key, OPTIONAL, job, member, &entry, 1, most)
#define FLAG(key, member)                                                      \
  CYAML_FIELD_ENUM_PTR(key, OPTIONAL | CYAML_FLAG_STRICT, job, member, flags,  \
                       sizeof flags / sizeof *flags)
#define TEXT(key, member)                                                      \
  CYAML_FIELD_STRING_PTR(key, OPTIONAL, job, member, 1, 4096)

static const cyaml_schema_field_t fields[] = {
    LIST("graphs", graphs, text_entry, CYAML_UNLIMITED),
    LIST("operators", op, op_entry, TOOL_MAX_LIST),
    LIST("passes", pass, pass_entry, TOOL_MAX_LIST),
    LIST("widths", dim, size_entry, TOOL_MAX_LIST),
    LIST("heads", heads, size_entry, TOOL_MAX_LIST),
    LIST("dtypes", dtype, dtype_entry, TOOL_MAX_LIST),
    LIST("math", math, math_entry, TOOL_MAX_LIST),
    LIST("layouts", layout, layout_entry, TOOL_MAX_LIST),
    LIST("devices", devices, text_entry, TOOL_MAX_DEVICES),
    TEXT("budget", budget),
    TEXT("time-limit", time_limit),
    TEXT("store", store),
    CYAML_FIELD_UINT_PTR("seed", OPTIONAL, job, seed),
    CYAML_FIELD_INT_PTR("threads", OPTIONAL, job, threads),
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

/* libcyaml says what is wrong first and where after it. */
typedef struct complaint {
  char what[512];
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
  if (!*c->what && !strstr(text, "Backtrace")) {
    const char *start = strncmp(text, "Load: ", 6) ? text : text + 6;
    snprintf(c->what, sizeof c->what, "%s", start);
  }
}

/* The line that a key begins, else the one given. */
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

/* Of an unexpected key it tells the line of the value before it. */
static int line_of_complaint(const complaint *c, const char *text) {
  const char *key = strstr(c->what, "Unexpected key: ");
  int line = c->line ? c->line : 1;
  return key ? line_of(text, strchr(key, ':') + 2, line) : line;
}

/* ---- what it says, into the settings ------------------------------------ */

typedef struct reading {
  tool_settings *settings;
  const char *path, *text;
  char *folder;
} reading;

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
  if (!tool_set(r->settings, option, *kept))
    return TOOL_DONE;
  const char *message = strstr(dfgnn_last_error(), ": ");
  return tool_error("%s:%d: %s: %s", r->path, line_of(r->text, key, 1), key,
                    message ? message + 2 : dfgnn_last_error());
}

/* A path beside the job file; what cannot be one stays as it is. */
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

static int put_devices(const reading *r, const job *j) {
  char list[512] = "";
  for (uint32_t i = 0; i < j->devices_count; i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
             i ? "," : "", j->devices[i]);
  return *list ? put(r, OPTION_DEVICE, "devices", list) : TOOL_DONE;
}

static int check_sizes(const reading *r, const char *key, const int64_t *x,
                       uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (x[i] < 1 || x[i] > 1 << 20)
      return tool_error("%s:%d: %s: found %lld, expected 1 to %d", r->path,
                        line_of(r->text, key, 1), key, (long long)x[i],
                        1 << 20);
  return TOOL_DONE;
}

static int put_all(const reading *r, tool_graphs *graphs, const job *j) {
  tool_settings *s = r->settings;
#define GIVEN(name) (s->given & HAS(name))
#define COPY(name, member)                                                     \
  if (j->member && !GIVEN(name)) {                                             \
    memcpy(s->member, j->member, j->member##_count * sizeof *j->member);       \
    s->member##_count = (int)j->member##_count;                                \
  }
#define ASSIGN(name, member)                                                   \
  if (j->member && !GIVEN(name))                                               \
  s->member = *j->member
  COPY(OP, op)
  COPY(PASS, pass)
  COPY(DIM, dim)
  COPY(HEADS, heads)
  COPY(DTYPE, dtype)
  COPY(MATH, math)
  COPY(LAYOUT, layout)
  ASSIGN(SEED, seed);
  ASSIGN(COLD, cold);
  ASSIGN(NO_DETERMINISTIC, deterministic);
  ASSIGN(WEIGHTS, weights);
  ASSIGN(BIAS, bias);
  ASSIGN(DROPOUT, dropout);
  ASSIGN(EXHAUSTIVE, exhaustive);
  ASSIGN(ANONYMOUS, anonymous);
  if (j->threads && *j->threads < 1)
    return tool_error("%s:%d: threads: found %d, expected 1 or more", r->path,
                      line_of(r->text, "threads", 1), *j->threads);
  ASSIGN(THREADS, threads);
  char store[8192];
  if (j->store)
    snprintf(store, sizeof store, "%s%s%s", *j->store == '/' ? "" : r->folder,
             *j->store == '/' ? "" : "/", j->store);
  int status = check_sizes(r, "widths", j->dim, j->dim_count);
  if (!status)
    status = check_sizes(r, "heads", j->heads, j->heads_count);
  if (!status)
    status = put(r, OPTION_BUDGET, "budget", j->budget);
  if (!status)
    status = put(r, OPTION_TIME_LIMIT, "time-limit", j->time_limit);
  if (!status)
    status = put(r, OPTION_STORE, "store", j->store ? store : NULL);
  if (!status)
    status = put_devices(r, j);
  if (!status && !graphs->count)
    status = put_graphs(r, graphs, j);
  return status;
#undef GIVEN
#undef COPY
#undef ASSIGN
}

/* ---- reading ------------------------------------------------------------ */

#define JOB_LIMIT (1 << 20)

static char *slurp(size_t *size, const char *path) {
  struct stat info;
  FILE *file = NULL;
  char *text = NULL;
  if (!stat(path, &info) && S_ISDIR(info.st_mode)) {
    tool_error("%s: is a directory, expected a job file", path);
    return NULL;
  }
  if (!(file = fopen(path, "rb")) || !(text = malloc(JOB_LIMIT + 1))) {
    tool_error("%s: cannot be opened", path);
  } else if ((*size = fread(text, 1, JOB_LIMIT, file)) == JOB_LIMIT) {
    tool_error("%s: 1 MiB or more, expected a job file", path);
    free(text);
    text = NULL;
  } else {
    text[*size] = 0;
  }
  if (file)
    fclose(file);
  return text;
}

int tool_job_read(tool_settings *settings, tool_graphs *graphs, char hash[33],
                  const char *path) {
  job *j = NULL;
  complaint c = {"", 0};
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
  fill_names();
  cyaml_config_t config = {.log_fn = hear,
                           .log_ctx = &c,
                           .mem_fn = cyaml_mem,
                           .log_level = CYAML_LOG_ERROR};
  cyaml_err_t bad = cyaml_load_data((const uint8_t *)text, size, &config,
                                    &schema, (cyaml_data_t **)&j, NULL);
  if (bad) {
    status = tool_error("%s:%d: %s", path, line_of_complaint(&c, text),
                        *c.what ? c.what : cyaml_strerror(bad));
    goto out;
  }
  if (j) {
    reading r = {settings, path, text, dirname(copy)};
    status = put_all(&r, graphs, j);
    cyaml_free(&config, &schema, j, 0);
  } else {
    status = tool_error("%s:1: empty, expected a mapping", path);
  }
out:
  free(text);
  free(copy);
  return status;
}
