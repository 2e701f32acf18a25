/* tune_show.c - dfgnn-tune show: the contents of the stores */
#include "dfgnn_graph.h"
#include "lib/base/file.h"
#include "lib/key.h"
#include "lib/operator.h"
#include "lib/registry.h"
#include "lib/signature.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <fnmatch.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* Graphs to show: labels as patterns, and files by their fingerprint. */
typedef struct selection {
  int count;
  char **pattern;
  uint64_t *fingerprint; /* 0: not a file */
} selection;

static int fingerprint_of(uint64_t *fingerprint, const char *name) {
  struct stat info;
  *fingerprint = 0;
  if (stat(name, &info) || !S_ISREG(info.st_mode))
    return TOOL_DONE;
  return tool_fingerprint(fingerprint, name);
}

static int is_store(const char *path) {
  static const char mark[] = "SQLite format 3"; /* its NUL is part of it */
  char bytes[sizeof mark] = "";
  FILE *file;
  if (dfgnn__file_or_pipe_stream(&file, path, "a store"))
    return 0;
  const size_t n = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  return n == sizeof mark && !memcmp(bytes, mark, sizeof mark);
}

static int selected(const selection *s, const dfgnn_measurement *row) {
  int found = !s->count;
  for (int i = 0; i < s->count && !found; i++)
    found = s->fingerprint[i] ? s->fingerprint[i] == row->signature.fingerprint
                              : !fnmatch(s->pattern[i], row->graph, 0);
  return found;
}

/* The row that a ranked variant's figures are shown from: the one of most
 * samples. */
static const dfgnn_measurement *evidence(const tool_records *records,
                                         const dfgnn_decision *decision,
                                         const char *variant, int revision) {
  const dfgnn_measurement *best = NULL;
  size_t count;
  const dfgnn_measurement *const *rows =
      tool_records_of(records, &count, &decision->problem);
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *row = rows[i];
    if (strcmp(row->variant, variant) || row->revision != revision ||
        strcmp(row->status, "ok"))
      continue;
    if (!best || row->samples > best->samples)
      best = row;
  }
  return best;
}

static double ratio_of(const dfgnn_decision *decision, const char *algorithm) {
  double best = INFINITY;
  for (size_t i = 0; i < decision->count; i++) {
    const dfgnn_variant *v = dfgnn__variant_find(decision->ranked[i].variant);
    if (v && !strcmp(v->family->algorithm, algorithm))
      best = fmin(best, decision->ranked[i].log_ratio);
  }
  return exp(best);
}

/* The fingerprint and the type of indices tell apart problems whose graphs have
 * one name. */
static json_t *begin(const dfgnn_measurement *p, const char *variant) {
  json_t *row = tool_row_of(p);
  char fingerprint[24];
  snprintf(fingerprint, sizeof fingerprint, "%016llx",
           (unsigned long long)p->signature.fingerprint);
  tool_put(row, "fingerprint", fingerprint);
  tool_put(row, "index", p->index);
  tool_put(row, "protocol", p->protocol);
  tool_put_count(row, "destinations", p->signature.destinations);
  tool_put_count(row, "edges", p->signature.edges);
  tool_put(row, "variant", variant);
  tool_put(row, "source", "exact");
  tool_put_number(row, "distance", 0);
  return row;
}

/* Puts the compulsory bytes, and how long they take to copy where the row has
 * the bandwidth of a copy. */
static void put_bytes(json_t *row, const dfgnn_measurement *p,
                      const dfgnn_measurement *m) {
  dfgnn_problem problem;
  double bytes = NAN, floor_ms = NAN;
  if (!dfgnn__key_problem(&problem, p) &&
      dfgnn__operator(problem.op, problem.pass)) {
    bytes = dfgnn__compulsory_bytes(&problem, p->signature.destinations,
                                    p->signature.sources, p->signature.edges);
    tool_put_number(row, "bytes", bytes);
  }
  if (m && m->copy_gbps > 0)
    floor_ms = 1e-6 * bytes / m->copy_gbps;
  tool_put_number(row, "floor_ms", floor_ms);
  tool_put_number(row, "floor_share", m ? floor_ms / m->median_ms : NAN);
}

static void put_figures(json_t *row, const dfgnn_measurement *m,
                        double speedup_unfused) {
  tool_put_number(row, "median_ms", m ? m->median_ms : NAN);
  tool_put_number(row, "ci_low_ms", m ? m->ci_low_ms : NAN);
  tool_put_number(row, "ci_high_ms", m ? m->ci_high_ms : NAN);
  tool_put_number(row, "ratio", m ? m->ratio : NAN);
  tool_put(row, "anchor", m ? m->anchor : NULL);
  tool_put_number(row, "rel_error", m ? m->rel_error : NAN);
  tool_put(row, "status", m ? m->status : "ok");
  tool_put(row, "reason", m ? m->reason : "");
  tool_put_number(row, "speedup_unfused", speedup_unfused);
  tool_put_number(row, "workspace_bytes", m ? (double)m->workspace_bytes : NAN);
  tool_put(row, "saved_bytes", NULL);
  tool_put(row, "graph_bytes", NULL);
  tool_put_number(row, "samples", m ? (double)m->samples : NAN);
  tool_put_number(row, "disturbed", m ? (double)m->disturbed : NAN);
  tool_put(row, "noise", m ? m->noise : "");
  if (m)
    tool_put(row, "protocol", m->protocol);
  tool_put(row, "tool", m ? m->tool : NULL);
  tool_put_number(row, "time", m ? (double)m->time : NAN);
}

static void put_rejected(json_t *rows, const tool_records *records,
                         const dfgnn_decision *d) {
  size_t count;
  const dfgnn_measurement *const *found =
      tool_records_of(records, &count, &d->problem);
  for (size_t i = 0; i < count; i++) {
    const dfgnn_measurement *m = found[i];
    if (!strcmp(m->status, "ok"))
      continue;
    json_t *row = begin(&d->problem, m->variant);
    put_figures(row, m, NAN);
    put_bytes(row, &d->problem, m);
    json_array_append_new(rows, row);
  }
}

static void put_decision(json_t *rows, const tool_settings *settings,
                         const tool_records *records, const dfgnn_decision *d) {
  double unfused = ratio_of(d, "unfused");
  if (!isfinite(unfused)) /* nothing to fuse: the plain row loop */
    unfused = ratio_of(d, "row");
  for (size_t i = 0; i < (settings->all ? d->count : d->count > 0); i++) {
    const dfgnn_ranked *r = &d->ranked[i];
    json_t *row = begin(&d->problem, r->variant);
    const dfgnn_measurement *m = evidence(records, d, r->variant, r->revision);
    put_figures(row, m, unfused / exp(r->log_ratio));
    put_bytes(row, &d->problem, m);
    tool_put_number(row, "slower", exp(r->log_ratio));
    tool_put_flag(row, "tied", r->tied);
    tool_put_flag(row, "sure", r->sure);
    tool_put_flag(row, "doubtful", dfgnn__ranked_doubtful(d, i));
    tool_put_count(row, "measured", (int64_t)d->count);
    json_array_append_new(rows, row);
  }
  if (settings->all)
    put_rejected(rows, records, d);
}

static const tool_column columns[] = {
    TOOL_PROBLEM_COLUMNS,
    {"arch", "DEVICE", TOOL_TEXT},
    {"variant", "VARIANT", TOOL_VARIANT},
    {"median_ms", "TIME", TOOL_MS},
    {"ratio", "/RULE", TOOL_FIGURE},
    {"speedup_unfused", "UNFUSED", TOOL_TIMES},
    {"slower", "/BEST", TOOL_FIGURE},
    {"measured", "MEASURED", TOOL_COUNT | TOOL_WIDE},
    {"status", "STATUS", TOOL_TEXT},
    {"reason", "REASON", TOOL_TEXT},
    {NULL, NULL, 0}};

static int command(tool_settings *settings, int count, char **operands) {
  tool_records records = {0};
  uint64_t fingerprints[count + 1];
  char *patterns[count + 1], *stores[count + 1];
  selection s = {0, patterns, fingerprints};
  int status = TOOL_DONE, store_count = 0;
  for (int i = 0; i < count && !status; i++)
    if (is_store(operands[i])) {
      stores[store_count++] = operands[i];
    } else {
      status = fingerprint_of(&fingerprints[s.count], operands[i]);
      patterns[s.count++] = operands[i];
    }
  if (!status)
    status = tool_records_load(&records, settings, store_count, stores);
  if (!status) {
    json_t *rows = json_array();
    for (size_t i = 0; i < records.decisions->count; i++) {
      const dfgnn_decision *d = &records.decisions->decision[i];
      if (tool_row_wanted(settings, &d->problem) && selected(&s, &d->problem))
        put_decision(rows, settings, &records, d);
    }
    const int none = !json_array_size(rows);
    if (records.invalid)
      tool_note(settings, "%llu invalid rows skipped",
                (unsigned long long)records.invalid);
    status = tool_report(settings, rows, columns);
    if (none && s.count)
      status = tool_error("nothing is measured of %s%s; 'dfgnn-tune run GRAPH' "
                          "measures",
                          patterns[0], s.count > 1 ? " and the others" : "");
    else if (none)
      tool_note(settings,
                "nothing%s is measured; 'dfgnn-tune run GRAPH' measures",
                records.decisions->count ? " of that" : "");
  }
  tool_records_free(&records);
  return status;
}

const tool_command tune_show = {
    .name = "show",
    .operands = "[STORE...] [GRAPH...]",
    .summary = "Show the winners in the stores",
    .text =
        "Lists the winner of every measured problem, or with --all every "
        "measured variant, rejected ones included. A GRAPH is a file, or "
        "a name as it is stored, in which * matches any text; the stores are "
        "each STORE, or those of the layers. Problem "
        "options that are given restrict what is shown.",
    .options = HAS_PROBLEM | HAS(STORE) | HAS(ALL) | HAS_TABLE,
    .selects = 1,
    .main = command};
