/* tune_store.c - dfgnn-tune stat and export: whole stores, as tables and text
 */
#include "lib/base/output.h"
#include "tools/jsonl.h"
#include "tools/kernels.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- stat --------------------------------------------------------------- */

/* Different numbers in rising order, at most 32. */
typedef struct numbers {
  int count;
  int64_t x[32];
} numbers;

/* The counts of stat for one device, operator, pass, dtype and flags. */
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
         !strcmp(a->pass, b->pass) && !strcmp(a->dtype, b->dtype) &&
         a->weights == b->weights && a->bias == b->bias &&
         a->dropout == b->dropout && a->edge_dim == b->edge_dim &&
         a->edge_use == b->edge_use && a->message == b->message;
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
  tool_put_flag(row, "weights", c->first->weights);
  tool_put_flag(row, "bias", c->first->bias);
  tool_put_flag(row, "dropout", c->first->dropout);
  tool_put_edges(row, c->first);
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
  for (size_t i = 0; i < records->decisions->count; i++) {
    const dfgnn_measurement *problem = &records->decisions->decision[i].problem;
    for (size_t g = 0; tool_row_wanted(settings, problem) && g < *count; g++)
      (*all)[g].problems += same_group((*all)[g].first, problem);
  }
  return 1;
}

static int stat_command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"arch", "ARCH", TOOL_TEXT},
                                        {"device", "DEVICE", TOOL_TEXT},
                                        {"op", "OP", TOOL_TEXT},
                                        {"program_name", "PROGRAM", TOOL_TEXT},
                                        {"pass", "PASS", TOOL_TEXT},
                                        {"dtype", "DTYPE", TOOL_TEXT},
                                        TOOL_FLAG_COLUMNS,
                                        {"graphs", "GRAPHS", TOOL_COUNT},
                                        {"dims", "DIMS", TOOL_TEXT},
                                        {"heads", "HEADS", TOOL_TEXT},
                                        {"problems", "PROBLEMS", TOOL_COUNT},
                                        {"rows", "ROWS", TOOL_COUNT},
                                        {"wrong", "WRONG", TOOL_COUNT},
                                        {"failed", "FAILED", TOOL_COUNT},
                                        {NULL, NULL, 0}};
  tool_records records = {0};
  if (settings->kernels)
    return tool_kernels_report(settings);
  coverage *all = NULL;
  size_t groups = 0;
  int status = tool_records_load(&records, settings, count, operands);
  if (!status && !count_rows(&all, &groups, settings, &records))
    status = tool_error("out of memory");
  if (!status) {
    json_t *rows = json_array();
    for (size_t i = 0; i < groups; i++)
      put_coverage(rows, &all[i]);
    if (!settings->json)
      tool_kernels_stat(settings);
    status = tool_report(settings, rows, columns);
    if (records.invalid || records.unusable)
      tool_note(settings,
                "%llu invalid rows; %llu rows of variants or revisions "
                "that this library does not have",
                (unsigned long long)records.invalid,
                (unsigned long long)records.unusable);
  }
  for (size_t i = 0; i < groups; i++)
    free(all[i].fingerprint);
  free(all);
  tool_records_free(&records);
  return status;
}

/* ---- export ------------------------------------------------------------- */

static int open_output(dfgnn_output *output, FILE **out, const char *path) {
  static const dfgnn_output_kind kind = {.name = "an export of a store",
                                         .mark = {{0, "{\"backend\":\""}}};
  dfgnn_status failed = dfgnn__output_open(output, path, &kind);
  if (failed)
    return tool_fail(failed);
  *out = fopen(output->made, "wb");
  return *out ? TOOL_DONE : tool_error("%s: %s", path, strerror(errno));
}

static int export_command(tool_settings *settings, int count, char **operands) {
  tool_records records = {0};
  dfgnn_output output = {.target = -1};
  FILE *out = stdout;
  const char *name = settings->output ? settings->output : "standard output";
  int status = tool_records_load(&records, settings, count, operands);
  if (!status && settings->best)
    status = tool_records_best(&records, settings->best);
  if (!status && settings->output)
    status = open_output(&output, &out, settings->output);
  for (size_t i = 0; i < records.count && !status; i++) {
    dfgnn_measurement row = records.row[i];
    if (tool_row_refusal(settings, &row) ||
        (settings->best && !tool_row_wins(&records, &row)))
      continue;
    if (settings->anonymous)
      row.graph = row.family = row.host = "";
    json_t *object = tool_measurement_json(&row);
    if (!object)
      status = tool_error("a row of %s on %s has a text that is not UTF-8",
                          row.variant, row.graph);
    else if (json_dumpf(object, out,
                        JSON_COMPACT | JSON_ENSURE_ASCII |
                            JSON_REAL_PRECISION(17)) ||
             fputc('\n', out) == EOF)
      status = tool_error("%s: cannot write: %s", name, strerror(errno));
    json_decref(object);
  }
  if (out && out != stdout && fclose(out) && !status)
    status = tool_error("%s: cannot write: %s", name, strerror(errno));
  if (settings->output && dfgnn__output_close(&output, !status) && !status)
    status = tool_fail(DFGNN_ERROR_IO);
  tool_records_free(&records);
  return status;
}

const tool_command tune_stat = {
    .name = "stat",
    .operands = "[STORE...]",
    .summary = "Count what the stores hold",
    .text =
        "Counts, in each STORE or in those of the layers, rows, graphs, widths "
        "and problems by device, operator, pass, "
        "dtype, and whether with attention weights, bias or dropout; and tells "
        "how many compiled kernels the user's cache holds, how large they are "
        "and how often they were used: --kernels shows that alone.",
    .options = HAS_PROBLEM | HAS(STORE) | HAS(KERNELS) | HAS_TABLE,
    .selects = 1,
    .main = stat_command};

const tool_command tune_export = {
    .name = "export",
    .operands = "[STORE...]",
    .summary = "Write measurements as JSON Lines",
    .text = "Writes one object per line, with every field of a measurement, of "
            "each STORE or of the layers, to standard output or --output. "
            "Numbers keep all their digits, so that importing gives the same "
            "rows.",
    .options = HAS_PROBLEM | HAS(STORE) | HAS(FROM_ARCH) | HAS(SINCE) |
               HAS(BEST) | HAS(OUTPUT) | HAS(ANONYMOUS) | HAS_ALWAYS,
    .selects = 1,
    .main = export_command};
