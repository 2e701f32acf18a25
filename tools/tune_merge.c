/* tune_merge.c - dfgnn-tune merge and import: adds rows to a store, in one
 * transaction */
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tools/jsonl.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const tool_column columns[] = {
    {"source", "SOURCE", TOOL_TEXT}, {"added", "ADDED", TOOL_COUNT},
    {"known", "KNOWN", TOOL_COUNT},  {"skipped", "SKIPPED", TOOL_COUNT},
    {"why", "WHY", TOOL_TEXT},       {NULL, NULL, 0}};

/* Counts of the skipped rows of one source, one for each text of why[]. */
typedef struct reasons {
  int64_t count[6];
} reasons;

static const char *const why[] = {
    "invalid",          "of another architecture",
    "measured earlier", "of another problem",
    "not of a winner",  "of a problem that is gone"};

static void count_reason(reasons *r, const char *reason) {
  for (size_t i = 0; i < sizeof why / sizeof *why; i++)
    r->count[i] += !strcmp(why[i], reason);
}

static void put_source(json_t *rows, const char *source,
                       const dfgnn_merge_counts *counts, const reasons *r) {
  char text[256] = "";
  int64_t skipped = 0;
  for (size_t i = 0; i < sizeof why / sizeof *why; i++) {
    size_t n = strlen(text);
    skipped += r->count[i];
    if (r->count[i])
      snprintf(text + n, sizeof text - n, "%s%lld %s", n ? ", " : "",
               (long long)r->count[i], why[i]);
  }
  json_t *row = json_object();
  tool_put(row, "source", source);
  tool_put_count(row, "added", (int64_t)counts->added);
  tool_put_count(row, "known", (int64_t)counts->known);
  tool_put_count(row, "skipped", skipped);
  tool_put(row, "why", text);
  json_array_append_new(rows, row);
}

/* ---- what both do -------------------------------------------------------- */

typedef struct merge merge;

typedef struct source {
  const merge *of;
  reasons reasons;
} source;

struct merge {
  const tool_settings *settings;
  tool_records records; /* with --best */
  size_t count;
  dfgnn_store **store;
  dfgnn_store_filter *filter;
  dfgnn_merge_counts *counts;
  source *source;
};

static int wanted(void *data, const dfgnn_measurement *row) {
  source *s = data;
  const char *reason = tool_row_refusal(s->of->settings, row);
  if (!reason && s->of->settings->best && !tool_row_wins(&s->of->records, row))
    reason = "not of a winner";
  if (reason)
    count_reason(&s->reasons, reason);
  return !reason;
}

static int allocate(merge *m) {
  m->store = calloc(m->count, sizeof *m->store);
  m->filter = calloc(m->count, sizeof *m->filter);
  m->counts = calloc(m->count, sizeof *m->counts);
  m->source = calloc(m->count, sizeof *m->source);
  if (!m->store || !m->filter || !m->counts || !m->source)
    return tool_error("out of memory");
  for (size_t i = 0; i < m->count; i++)
    m->filter[i] = (dfgnn_store_filter)DFGNN_STORE_FILTER_INIT;
  return TOOL_DONE;
}

/* Adds the rows of all sources to the target, which is made only now. */
static int add_sources(merge *m, const char *target, char **paths) {
  dfgnn_store *store = NULL;
  dfgnn_status status = dfgnn__store_open(&store, target, DFGNN_STORE_WRITE);
  if (!status)
    status =
        dfgnn__store_merge_all(store, m->counts, m->store, m->count, m->filter);
  dfgnn__store_close(store);
  if (status)
    return tool_fail(status);
  if (m->settings->quiet && !m->settings->json)
    return TOOL_DONE;
  json_t *rows = json_array();
  for (size_t i = 0; i < m->count; i++) {
    m->source[i].reasons.count[0] += (int64_t)m->counts[i].skipped;
    put_source(rows, paths[i], &m->counts[i], &m->source[i].reasons);
  }
  return tool_report(m->settings, rows, columns);
}

static void close_sources(merge *m) {
  for (size_t i = 0; m->store && i < m->count; i++)
    dfgnn__store_close(m->store[i]);
  free(m->store);
  free(m->filter);
  free(m->counts);
  free(m->source);
  tool_records_free(&m->records);
}

/* ---- merge -------------------------------------------------------------- */

static int open_sources(merge *m, char **paths) {
  int status = allocate(m);
  for (size_t i = 0; i < m->count && !status; i++) {
    dfgnn_status failed =
        dfgnn__store_open(&m->store[i], paths[i], DFGNN_STORE_READ);
    m->source[i].of = m;
    m->filter[i].wanted = wanted;
    m->filter[i].data = &m->source[i];
    status = failed ? tool_fail(failed) : TOOL_DONE;
  }
  return status;
}

static int find_best(merge *m, char **paths) {
  int status = TOOL_DONE;
  for (size_t i = 0; i < m->count && !status; i++)
    status = tool_records_add(&m->records, paths[i]);
  if (!status)
    status = tool_records_decide(&m->records);
  return status ? status : tool_records_best(&m->records, m->settings->best);
}

static int merge_command(tool_settings *settings, int count, char **operands) {
  merge m = {.settings = settings, .count = (size_t)count - 1};
  char **paths = operands + 1;
  int status = open_sources(&m, paths);
  if (!status && settings->best)
    status = find_best(&m, paths);
  if (!status)
    status = add_sources(&m, operands[0], paths);
  close_sources(&m);
  return status;
}

/* ---- import ------------------------------------------------------------- */

#define LINE_LIMIT (1 << 20)

typedef struct reader {
  const tool_settings *settings;
  const char *path;
  FILE *in;
  char *line;
  size_t room;
  int64_t number;
  json_t *object; /* holds the strings of the last row */
  dfgnn_measurement row;
  reasons *reasons;
} reader;

static dfgnn_status parse_line(reader *r, size_t length) {
  json_error_t error;
  json_decref(r->object);
  r->object = NULL;
  if (length > LINE_LIMIT)
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "longer than %d bytes", LINE_LIMIT);
  if (memchr(r->line, 0, length))
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "found a NUL byte, expected text");
  r->object = json_loads(r->line, JSON_REJECT_DUPLICATES, &error);
  if (!r->object)
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s", error.text);
  dfgnn_status status = tool_measurement_parse(&r->row, r->object);
  return status ? status : dfgnn__measurement_check(&r->row);
}

/* Gives the row of the next line that the options want; NULL at the end. */
static dfgnn_status next_row(void *data, const dfgnn_measurement **row) {
  reader *r = data;
  *row = NULL;
  for (ssize_t n; (n = getline(&r->line, &r->room, r->in)) > 0;) {
    r->number++;
    if (strspn(r->line, " \t\r\n") == (size_t)n)
      continue;
    dfgnn_status status = parse_line(r, (size_t)n);
    if (status && !r->settings->skip_invalid)
      return dfgnn__fail_prefix(status, "%s:%lld: ", r->path,
                                (long long)r->number);
    const char *reason =
        status ? "invalid" : tool_row_refusal(r->settings, &r->row);
    if (!reason) {
      *row = &r->row;
      return DFGNN_OK;
    }
    count_reason(r->reasons, reason);
  }
  return ferror(r->in)
             ? dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", r->path, strerror(errno))
             : DFGNN_OK;
}

/* Reads a file's rows into a store in memory: no other is made or locked, while
 * lines may turn out wrong or come from a slow pipe. */
static dfgnn_status read_file(merge *m, size_t i, const char *path) {
  reader r = {.settings = m->settings,
              .path = path,
              .in = stdin,
              .reasons = &m->source[i].reasons};
  dfgnn_status status = DFGNN_OK;
  if (strcmp(path, "-"))
    status = dfgnn__file_or_pipe_stream(&r.in, path, "a file of JSON Lines");
  if (!status)
    status = dfgnn__store_open(&m->store[i], ":memory:", DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_record_from(m->store[i], &m->counts[i], next_row, &r);
  m->counts[i].added = 0; /* to memory */
  if (r.in != stdin)
    fclose(r.in);
  json_decref(r.object);
  free(r.line);
  return status;
}

static int import_command(tool_settings *settings, int count, char **operands) {
  merge m = {.settings = settings, .count = (size_t)count};
  char path[4096];
  int status = tool_target_path(path, sizeof path, settings);
  if (!status)
    status = allocate(&m);
  for (size_t i = 0; i < m.count && !status; i++) {
    dfgnn_status failed = read_file(&m, i, operands[i]);
    status = failed ? tool_fail(failed) : TOOL_DONE;
  }
  if (!status)
    status = add_sources(&m, path, operands);
  close_sources(&m);
  return status;
}

const tool_command tune_merge = {
    .name = "merge",
    .operands = "TARGET SOURCE...",
    .summary = "Add the rows of stores to a store",
    .text =
        "The result is the union of sets of rows, the same in any order and "
        "after any number of times. TARGET is created if there is none; all "
        "sources are added or none is. Printed are the numbers of rows added, "
        "known before and skipped, and why rows were skipped.",
    .options =
        HAS_PROBLEM | HAS(FROM_ARCH) | HAS(SINCE) | HAS(BEST) | HAS_TABLE,
    .selects = 1,
    .main = merge_command};

const tool_command tune_import = {
    .name = "import",
    .operands = "FILE...",
    .summary = "Add measurements from JSON Lines",
    .text =
        "Adds each row that is not there yet to the store that is written. A "
        "FILE of - is standard input. A line that is no measurement is an "
        "error that names its number, and nothing is added; with "
        "--skip-invalid it is skipped and counted. A row of a problem that "
        "only older versions had is skipped and counted, too.",
    .options = HAS_PROBLEM | HAS(STORE) | HAS(FROM_ARCH) | HAS(SINCE) |
               HAS(SKIP_INVALID) | HAS_TABLE,
    .selects = 1,
    .main = import_command};
