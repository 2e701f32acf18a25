/* tune_store.c - dfgnn-tune stat, export, import, merge: whole stores */
#include "base/error.h"
#include "tools/jsonl.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- stat --------------------------------------------------------------- */

/* Different numbers in rising order; those beyond the room are left out. */
typedef struct numbers {
  int count;
  int64_t x[32];
} numbers;

/* What stat counts for one device, operator, pass and dtype. */
typedef struct coverage {
  const dfgnn_measurement *first;
  int64_t rows, ok, wrong, failed, problems;
  size_t graphs;
  uint64_t *fingerprint;
  numbers dims, heads;
} coverage;

static int same_group(const dfgnn_measurement *a, const dfgnn_measurement *b) {
  return !strcmp(a->backend, b->backend) && !strcmp(a->arch, b->arch) &&
         !strcmp(a->model, b->model) && !strcmp(a->op, b->op) &&
         !strcmp(a->pass, b->pass) && !strcmp(a->dtype, b->dtype);
}

static void note(numbers *list, int64_t x) {
  int at = 0;
  while (at < list->count && list->x[at] < x)
    at++;
  if ((at < list->count && list->x[at] == x) || list->count == 32)
    return;
  memmove(&list->x[at + 1], &list->x[at],
          (size_t)(list->count - at) * sizeof x);
  list->x[at] = x;
  list->count++;
}

static void put_numbers(json_t *row, const char *key, const numbers *list) {
  char text[32 * 12] = "";
  for (int i = 0; i < list->count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld",
             i ? "," : "", (long long)list->x[i]);
  tool_put(row, key, text);
}

static int note_graph(coverage *c, uint64_t fingerprint) {
  for (size_t i = 0; i < c->graphs; i++)
    if (c->fingerprint[i] == fingerprint)
      return 1;
  uint64_t *grown = realloc(c->fingerprint, (c->graphs + 1) * sizeof *grown);
  if (!grown)
    return 0;
  c->fingerprint = grown;
  grown[c->graphs++] = fingerprint;
  return 1;
}

static coverage *group_of(coverage **all, size_t *count,
                          const dfgnn_measurement *row) {
  for (size_t i = 0; i < *count; i++)
    if (same_group((*all)[i].first, row))
      return &(*all)[i];
  coverage *grown = realloc(*all, (*count + 1) * sizeof *grown);
  if (!grown)
    return NULL;
  *all = grown;
  grown[*count] = (coverage){.first = row};
  return &grown[(*count)++];
}

static void put_coverage(json_t *rows, const coverage *c) {
  json_t *row = json_object();
  tool_put(row, "backend", c->first->backend);
  tool_put(row, "arch", c->first->arch);
  tool_put(row, "device", c->first->model);
  tool_put(row, "op", c->first->op);
  tool_put(row, "pass", c->first->pass);
  tool_put(row, "dtype", c->first->dtype);
  tool_put_count(row, "graphs", (int64_t)c->graphs);
  put_numbers(row, "dims", &c->dims);
  put_numbers(row, "heads", &c->heads);
  tool_put_count(row, "problems", c->problems);
  tool_put_count(row, "rows", c->rows);
  tool_put_count(row, "ok", c->ok);
  tool_put_count(row, "wrong", c->wrong);
  tool_put_count(row, "failed", c->failed);
  json_array_append_new(rows, row);
}

static int count_rows(coverage **all, size_t *count,
                      const tool_settings *settings,
                      const tool_records *records) {
  for (size_t i = 0; i < records->count; i++) {
    const dfgnn_measurement *row = &records->row[i];
    if (!tool_row_wanted(settings, row))
      continue;
    coverage *c = group_of(all, count, row);
    if (!c || !note_graph(c, row->signature.fingerprint))
      return 0;
    c->rows++;
    c->ok += !strcmp(row->status, "ok");
    c->wrong += !strcmp(row->status, "wrong");
    c->failed += !strcmp(row->status, "failed");
    note(&c->dims, row->dim);
    note(&c->heads, row->heads);
  }
  for (size_t i = 0; i < records->decisions->count; i++)
    for (size_t g = 0; g < *count; g++)
      (*all)[g].problems +=
          same_group((*all)[g].first, &records->decisions->decision[i].problem);
  return 1;
}

static int stat_command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"arch", "ARCH", TOOL_TEXT},
                                        {"device", "DEVICE", TOOL_TEXT},
                                        {"op", "OP", TOOL_TEXT},
                                        {"pass", "PASS", TOOL_TEXT},
                                        {"dtype", "DTYPE", TOOL_TEXT},
                                        {"graphs", "GRAPHS", TOOL_COUNT},
                                        {"dims", "DIMS", TOOL_TEXT},
                                        {"heads", "HEADS", TOOL_TEXT},
                                        {"problems", "PROBLEMS", TOOL_COUNT},
                                        {"rows", "ROWS", TOOL_COUNT},
                                        {"wrong", "WRONG", TOOL_COUNT},
                                        {"failed", "FAILED", TOOL_COUNT},
                                        {NULL, NULL, 0}};
  tool_records records = {0};
  coverage *all = NULL;
  size_t groups = 0;
  (void)count;
  (void)operands;
  int status = tool_records_load(&records, settings);
  if (!status && !count_rows(&all, &groups, settings, &records))
    status = tool_error("out of memory");
  if (!status) {
    json_t *rows = json_array();
    for (size_t i = 0; i < groups; i++)
      put_coverage(rows, &all[i]);
    status = tool_report(settings, rows, columns);
    if (!settings->quiet && (records.invalid || records.unusable))
      fprintf(stderr,
              "%s: %llu invalid rows; %llu of variants or revisions that this "
              "library has not\n",
              tool_name, (unsigned long long)records.invalid,
              (unsigned long long)records.unusable);
  }
  for (size_t i = 0; i < groups; i++)
    free(all[i].fingerprint);
  free(all);
  tool_records_free(&records);
  return status;
}

/* ---- export ------------------------------------------------------------- */

static int export_command(tool_settings *settings, int count, char **operands) {
  tool_records records = {0};
  FILE *out = stdout;
  (void)count;
  (void)operands;
  int status = tool_records_load(&records, settings);
  if (!status && settings->output && !(out = fopen(settings->output, "wb")))
    status = tool_error("%s: %s", settings->output, strerror(errno));
  for (size_t i = 0; i < records.count && !status; i++) {
    dfgnn_measurement row = records.row[i];
    if (!tool_row_wanted(settings, &row) ||
        (settings->only_winners && !tool_row_wins(&records, &row)))
      continue;
    if (settings->anonymous)
      row.graph = row.family = row.host = "";
    json_t *object = tool_measurement_json(&row);
    if (json_dumpf(object, out,
                   JSON_COMPACT | JSON_ENSURE_ASCII |
                       JSON_REAL_PRECISION(17)) ||
        fputc('\n', out) == EOF)
      status = tool_error("cannot write: %s", strerror(errno));
    json_decref(object);
  }
  if (out && out != stdout && fclose(out) && !status)
    status = tool_error("%s: %s", settings->output, strerror(errno));
  tool_records_free(&records);
  return status;
}

/* ---- import ------------------------------------------------------------- */

static int open_target(dfgnn_store **store, const char *path) {
  dfgnn_status status = dfgnn__store_open(store, path, DFGNN_STORE_WRITE);
  return status ? tool_fail(status) : TOOL_DONE;
}

/* The store that is written: --store, else the first writable layer. */
static int target_path(char *path, size_t size, const tool_settings *settings) {
  dfgnn_context places = {0};
  dfgnn_status failed =
      settings->store ? DFGNN_OK : dfgnn__layers_find(&places, NULL);
  *path = 0;
  if (settings->store)
    snprintf(path, size, "%s", settings->store);
  for (size_t i = 0; i < places.layer_count; i++)
    if (places.layers[i].writable && !*path)
      snprintf(path, size, "%s", places.layers[i].path);
  dfgnn__layers_free(&places);
  if (failed)
    return tool_fail(failed);
  return *path ? TOOL_DONE : tool_usage("no store to write, expected --store");
}

#define LINE_LIMIT (1 << 20)

static int import_file(dfgnn_store *store, const char *path, int64_t *added,
                       int64_t *seen) {
  FILE *in = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  char *line = malloc(LINE_LIMIT);
  int status = TOOL_DONE;
  if (!in || !line)
    status = tool_error("%s: %s", path, strerror(errno));
  for (int64_t n = 1; !status && fgets(line, LINE_LIMIT, in); n++) {
    dfgnn_measurement row;
    json_error_t error;
    int new = 0;
    if (line[strspn(line, " \t\r\n")] == 0)
      continue;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    dfgnn_status failed =
        object ? tool_measurement_parse(&row, object)
               : dfgnn__fail(DFGNN_ERROR_FORMAT, "%s", error.text);
    if (!failed)
      failed = dfgnn__store_record(store, &new, &row);
    if (failed) {
      dfgnn__fail_prefix(failed, "%s:%lld: ", path, (long long)n);
      status = tool_fail(failed);
    }
    *added += new;
    ++*seen;
    json_decref(object);
  }
  if (!status && ferror(in))
    status = tool_error("%s: %s", path, strerror(errno));
  if (in && in != stdin)
    fclose(in);
  free(line);
  return status;
}

static void say_added(const tool_settings *settings, const char *path,
                      int64_t added, int64_t seen) {
  if (!settings->quiet)
    fprintf(stderr, "%s: %s: %lld rows added, %lld were there already\n",
            tool_name, path, (long long)added, (long long)(seen - added));
}

static int import_command(tool_settings *settings, int count, char **operands) {
  dfgnn_store *store = NULL;
  int64_t added = 0, seen = 0;
  char path[4096];
  int status = target_path(path, sizeof path, settings);
  if (!status)
    status = open_target(&store, path);
  for (int i = 0; i < count && !status; i++)
    status = import_file(store, operands[i], &added, &seen);
  if (store)
    dfgnn__store_close(store);
  if (!status)
    say_added(settings, path, added, seen);
  return status;
}

/* ---- merge -------------------------------------------------------------- */

static int merge_command(tool_settings *settings, int count, char **operands) {
  tool_records records = {0};
  dfgnn_store *store = NULL;
  int64_t added = 0, seen = 0;
  int status = TOOL_DONE;
  for (int i = 1; i < count && !status; i++)
    status = tool_records_add(&records, operands[i]);
  if (!status)
    status = tool_records_decide(&records);
  if (!status)
    status = open_target(&store, operands[0]);
  for (size_t i = 0; i < records.count && !status; i++) {
    int new = 0;
    if (!tool_row_wanted(settings, &records.row[i]) ||
        (settings->only_winners && !tool_row_wins(&records, &records.row[i])))
      continue;
    dfgnn_status failed = dfgnn__store_record(store, &new, &records.row[i]);
    if (failed)
      status = tool_fail(failed);
    added += new;
    seen++;
  }
  if (store)
    dfgnn__store_close(store);
  if (records.invalid && !settings->quiet)
    fprintf(stderr, "%s: %llu invalid rows skipped\n", tool_name,
            (unsigned long long)records.invalid);
  if (!status)
    say_added(settings, operands[0], added, seen);
  tool_records_free(&records);
  return status;
}

const tool_command tune_stat = {
    "stat",
    "",
    0,
    0,
    "Count what the stores hold",
    "Rows, graphs, widths and problems by device, operator, pass and dtype.",
    HAS_PROBLEM | HAS(STORE) | HAS_ALWAYS,
    stat_command};

const tool_command tune_export = {
    "export",
    "",
    0,
    0,
    "Write measurements as JSON Lines",
    "One object a line with every field of a measurement. Numbers keep all "
    "their digits, so that importing gives the same rows.",
    HAS_PROBLEM | HAS(STORE) | HAS(ONLY_WINNERS) | HAS(OUTPUT) |
        HAS(ANONYMOUS) | HAS_ALWAYS,
    export_command};

const tool_command tune_import = {
    "import",
    "FILE...",
    1,
    -1,
    "Add measurements from JSON Lines",
    "Adds each row that is not there yet to the store that is written. A FILE "
    "of - is standard input. A bad line is an error with its number; rows "
    "before it are kept.",
    HAS(STORE) | HAS_ALWAYS,
    import_command};

const tool_command tune_merge = {
    "merge",
    "TARGET SOURCE...",
    2,
    -1,
    "Add the rows of stores to a store",
    "The union of sets of rows: in any order, any number of times, the result "
    "is the same. TARGET is created if there is none.",
    HAS_PROBLEM | HAS(ONLY_WINNERS) | HAS_ALWAYS,
    merge_command};
