/* tune_doctor.c - dfgnn-tune doctor: why calls on this machine would miss */
#include "db/field.h"
#include "lib/base/error.h"
#include "lib/base/load.h"
#include "lib/describe.h"
#include "lib/registry.h"
#include "tools/kernels.h"
#include "tools/lookup.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct doctor {
  const tool_settings *settings;
  json_t *rows;
  tool_records records; /* rows of all readable layers, of any device */
  int64_t exact, near, predicted, pinned, misses; /* calls by source */
  int broken; /* a store that was named cannot be used */
} doctor;

static void say(doctor *d, const char *of, const char *what,
                const char *verdict, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void say(doctor *d, const char *of, const char *what,
                const char *verdict, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  json_t *row = json_object();
  tool_put(row, "kind", of);
  tool_put(row, "name", what);
  tool_put(row, "verdict", verdict);
  tool_put(row, "why", text);
  json_array_append_new(d->rows, row);
}

/* ---- layers ------------------------------------------------------------- */

static dfgnn_status examine_layer(doctor *d, const dfgnn_store_layer *layer) {
  dfgnn_store *store = NULL;
  uint64_t invalid = 0;
  size_t before, after;
  const char *path = layer->path;
  if (access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR)) {
    int fatal = layer->named && !layer->writable;
    say(d, "store", path, fatal ? "broken" : "absent",
        layer->writable ? "nothing was measured into it yet"
                        : "there is no such file");
    d->broken |= fatal;
    return DFGNN_OK;
  }
  dfgnn__rows_get(d->records.rows, &before);
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__rows_load(d->records.rows, &invalid, store, NULL);
  dfgnn__store_close(store);
  d->records.row = dfgnn__rows_get(d->records.rows, &after);
  d->records.count = after;
  if (status) {
    say(d, "store", path, layer->named ? "broken" : "skipped", "%s",
        dfgnn_last_error());
    d->broken |= layer->named;
    return status == DFGNN_ERROR_MEMORY ? status : DFGNN_OK;
  }
  say(d, "store", path,
      invalid           ? "damaged"
      : after == before ? "empty"
                        : "good",
      "%zu rows that no layer before has, %llu invalid", after - before,
      (unsigned long long)invalid);
  if (layer->writable && access(path, W_OK))
    say(d, "store", path, "read-only", "measurements cannot be kept in it: %s",
        strerror(errno));
  return DFGNN_OK;
}

static int examine_layers(doctor *d) {
  dfgnn_context places = {0};
  dfgnn_status status = dfgnn__rows_create(&d->records.rows);
  if (!status)
    status = dfgnn__layers_find(&places, d->settings->store);
  for (size_t i = 0; i < places.layer_count && !status; i++)
    status = examine_layer(d, &places.layers[i]);
  if (!status && !places.layer_count)
    say(d, "store", "none", "absent", "no store is read or written");
  dfgnn__layers_free(&places);
  return status ? tool_fail(status) : tool_records_decide(&d->records);
}

/* ---- devices ------------------------------------------------------------ */

static void examine_device(doctor *d, const dfgnn_device_info *info) {
  char name[64], others[256] = "";
  int64_t here = 0, model = 0, use[DFGNN_USE_FOREIGN + 1] = {0};
  for (size_t i = 0; i < d->records.count; i++) {
    const dfgnn_measurement *row = &d->records.row[i];
    if (!strcmp(row->backend, info->backend) &&
        !strcmp(row->arch, info->arch)) {
      here++;
      model += !strcmp(row->model, info->model) && row->units == info->units;
      use[dfgnn__variant_use(row->variant, row->revision)]++;
    } else if (!strstr(others, row->arch)) {
      size_t n = strlen(others);
      snprintf(others + n, sizeof others - n, "%s%s", n ? ", " : "", row->arch);
    }
  }
  snprintf(name, sizeof name, "%s %s", info->backend, info->arch);
  if (!here)
    say(d, "device", name, "unmeasured",
        "no row is of this architecture%s%s; measure with dfgnn-tune run",
        *others ? ", only of " : "", others);
  else if (!model)
    say(d, "device", name, "kin",
        "%lld rows of the architecture, none of this model (%s, %d units)",
        (long long)here, info->model, info->units);
  else
    say(d, "device", name, "measured",
        "%lld rows of the architecture, %lld of this model", (long long)here,
        (long long)model);
  if (use[DFGNN_USE_OLDER] || use[DFGNN_USE_NEWER])
    say(d, "revision", name, "stale",
        "%lld rows of older and %lld of newer revisions of variants do not "
        "count; dfgnn-tune run measures those variants again",
        (long long)use[DFGNN_USE_OLDER], (long long)use[DFGNN_USE_NEWER]);
  if (use[DFGNN_USE_UNKNOWN])
    say(d, "revision", name, "unknown",
        "%lld rows name variants that this library does not have",
        (long long)use[DFGNN_USE_UNKNOWN]);
}

/* ---- calls -------------------------------------------------------------- */

#define MISS_LENGTH 384
#define KEY_FIELDS dfgnn__fields[DFGNN_GROUP_PROBLEM].count

static const dfgnn_field *key_field(size_t i) {
  return &dfgnn__fields[DFGNN_GROUP_PROBLEM].field[i];
}

static int is_cold(const dfgnn_measurement *row) {
  return !strncmp(row->protocol, "cold", 4);
}

/* How far a measurement is from the wanted one.  A different device, operator
 * or pass weighs most, then other fields that have to match, then the graph,
 * then sizes. */
static int strangeness(const dfgnn_measurement *wanted,
                       const dfgnn_measurement *m) {
  int sum = 64 * (strcmp(wanted->backend, m->backend) != 0) +
            64 * (strcmp(wanted->arch, m->arch) != 0);
  for (size_t i = 0; i < KEY_FIELDS; i++) {
    const dfgnn_field *field = key_field(i);
    if (dfgnn__field_compare(field, wanted, m))
      sum += field->key == DFGNN_KEY_SIZE       ? 1
             : field->names == DFGNN_NAMES_OP   ? 64
             : field->names == DFGNN_NAMES_PASS ? 64
                                                : 8;
  }
  return sum + 8 * (is_cold(wanted) != is_cold(m)) +
         4 * (m->signature.fingerprint != wanted->signature.fingerprint);
}

static void note(char text[MISS_LENGTH], const char *name, const char *there,
                 const char *here) {
  size_t n = strlen(text);
  if (strcmp(here, there))
    snprintf(text + n, MISS_LENGTH - n, "%s%s %s (here %s)", n ? ", " : "",
             name, there, here);
}

/* Lists the fields in which a measurement does not match the wanted one. */
static void note_gates(char text[MISS_LENGTH], const dfgnn_measurement *wanted,
                       const dfgnn_measurement *m) {
  static const char *const no_yes[] = {"no", "yes"};
  note(text, "backend", m->backend, wanted->backend);
  note(text, "architecture", m->arch, wanted->arch);
  for (size_t i = 0; i < KEY_FIELDS; i++) {
    const dfgnn_field *field = key_field(i);
    const void *here = dfgnn__field_get(field, wanted);
    const void *there = dfgnn__field_get(field, m);
    char x[24], y[24];
    if (field->key != DFGNN_KEY_GATE)
      continue;
    if (field->kind == DFGNN_FIELD_NAME) {
      note(text, field->word, *(const char *const *)there,
           *(const char *const *)here);
    } else if (dfgnn__field_is_flag(field)) {
      note(text, field->word, no_yes[!!*(const int *)there],
           no_yes[!!*(const int *)here]);
    } else {
      snprintf(x, sizeof x, "%lld",
               (long long)dfgnn__field_whole(field, there));
      snprintf(y, sizeof y, "%lld", (long long)dfgnn__field_whole(field, here));
      note(text, field->word, x, y);
    }
  }
  note(text, "caches", is_cold(m) ? "cold" : "warm",
       is_cold(wanted) ? "cold" : "warm");
}

/* Says why no measurement answered: how the one that comes next differs. */
static void explain_miss(doctor *d, const tool_case *each,
                         const dfgnn_problem *problem, const char *name) {
  const dfgnn_measurement *best = NULL;
  char text[MISS_LENGTH] = "";
  dfgnn_measurement wanted;
  dfgnn__describe(&wanted, each->ctx, each->graph, problem);
  for (size_t i = 0; i < d->records.decisions->count; i++) {
    const dfgnn_measurement *m = &d->records.decisions->decision[i].problem;
    if (!best || strangeness(&wanted, m) < strangeness(&wanted, best))
      best = m;
  }
  if (best)
    note_gates(text, &wanted, best);
  if (!best)
    say(d, "call", name, "miss", "nothing is measured");
  else if (*text)
    say(d, "call", name, "miss", "the nearest measurement, %s %lldx%lld, is %s",
        *best->graph ? best->graph : "a graph", (long long)best->heads,
        (long long)best->dim, text);
  else
    say(d, "call", name, "miss",
        "no graph within %.3g was measured, or not all of its portfolio",
        dfgnn__near);
}

static int examine_call(void *data, const tool_case *each) {
  doctor *d = data;
  tool_lookup lookup;
  dfgnn_choice choice = {0};
  char problem[128], name[512];
  dfgnn_status status = tool_lookup_case(&lookup, each);
  if (status)
    return tool_fail(status);
  dfgnn__select(&choice, lookup.table, &lookup.query);
  tool_problem_text(problem, sizeof problem, each->problem);
  snprintf(name, sizeof name, "%s, %s, %s", each->label, problem,
           each->info->backend);
  if (choice.variant && choice.source < DFGNN_SOURCE_MODEL)
    say(d, "call", name, dfgnn_name(DFGNN_NAMES_SOURCE, choice.source), "%s",
        choice.because);
  else
    explain_miss(d, each, &lookup.problem, name);
  d->exact += choice.source == DFGNN_SOURCE_EXACT;
  d->pinned += choice.source == DFGNN_SOURCE_PINNED;
  d->near += choice.source == DFGNN_SOURCE_NEAR;
  d->predicted += choice.source == DFGNN_SOURCE_MODEL;
  d->misses += choice.source == DFGNN_SOURCE_RULE;
  return tool_interrupted() ? TOOL_INTERRUPTED : TOOL_DONE;
}

/* ---- measurements -------------------------------------------------------- */

enum { MOST_NOISY = 8 }; /* problems that are listed */

/* The row that says most of a ranked variant's noise. */
static const dfgnn_measurement *noisy_row(const doctor *d,
                                          const dfgnn_decision *decision,
                                          const dfgnn_ranked *r) {
  size_t count;
  const dfgnn_measurement *const *row =
      tool_records_of(&d->records, &count, &decision->problem);
  for (size_t i = 0; i < count; i++)
    if (dfgnn__row_noise(row[i]) == r->noise &&
        !strcmp(row[i]->variant, r->variant) && row[i]->revision == r->revision)
      return row[i];
  return NULL;
}

static void say_noisy(doctor *d, const dfgnn_decision *decision, size_t i) {
  const dfgnn_ranked *r = &decision->ranked[i];
  const dfgnn_measurement *p = &decision->problem;
  const dfgnn_measurement *row = noisy_row(d, decision, r);
  char name[384], text[160];
  snprintf(name, sizeof name, "%s, %s %s %lldx%lld %s",
           *p->graph ? p->graph : "a graph", p->op, p->pass,
           (long long)p->heads, (long long)p->dim, p->dtype);
  if (row && r->noise == DFGNN_NOISE_WIDE)
    snprintf(text, sizeof text, "an interval of %.2f to %.2f, %lld samples",
             row->ratio_low, row->ratio_high, (long long)row->samples);
  else if (row && *row->noise)
    snprintf(text, sizeof text, "%lld of %lld samples, %.120s",
             (long long)row->disturbed, (long long)row->samples, row->noise);
  else
    snprintf(text, sizeof text, "%lld sample%s", (long long)r->samples,
             r->samples == 1 ? "" : "s");
  say(d, "noise", name, dfgnn__noise_name(r->noise), "%s %s: %s",
      i == 0 ? "the choice" : "a rival", r->variant, text);
}

/* Judges what is stored for a device by samples, spread and load. */
static void examine_noise(doctor *d, const dfgnn_device_info *info) {
  size_t problems = 0, noisy = 0, by[DFGNN_NOISE_ALONE + 1] = {0};
  char name[64];
  for (size_t k = 0; k < d->records.decisions->count; k++) {
    const dfgnn_decision *decision = &d->records.decisions->decision[k];
    int doubtful = 0;
    if (strcmp(decision->problem.backend, info->backend) ||
        strcmp(decision->problem.arch, info->arch))
      continue;
    problems++;
    for (size_t i = 0; i < decision->count; i++)
      if (dfgnn__ranked_doubtful(decision, i)) {
        by[decision->ranked[i].noise]++;
        if (!doubtful++ && noisy++ < MOST_NOISY)
          say_noisy(d, decision, i);
      }
  }
  snprintf(name, sizeof name, "%s %s", info->backend, info->arch);
  if (noisy)
    say(d, "noise", name, "noisy",
        "%zu of %zu problems rest on noisy rows (%zu of one sample, %zu "
        "disturbed, %zu wide): 'dfgnn-tune run GRAPH --again noisy' with the "
        "options of the problems measures those again",
        noisy, problems, by[DFGNN_NOISE_ALONE], by[DFGNN_NOISE_DISTURBED],
        by[DFGNN_NOISE_WIDE]);
  else if (problems)
    say(d, "noise", name, "calm",
        "the choices of all %zu problems rest on repeated samples of a quiet "
        "device",
        problems);
}

/* ---- the machine --------------------------------------------------------- */

static void examine_machine(doctor *d) {
  const struct timespec while_looking = {0, 200000000};
  const dfgnn_load before = dfgnn__load_read("");
  nanosleep(&while_looking, NULL);
  const dfgnn_load after = dfgnn__load_read("");
  const dfgnn_crowd crowd = dfgnn__load_between(&before, &after);
  const int threads = d->settings->threads ? d->settings->threads
                                           : (int)dfgnn__load_read("").cores;
  char name[64], text[256];
  snprintf(name, sizeof name, "%.3g cores, load %.1f", after.cores,
           after.average);
  dfgnn__crowd_text(text, sizeof text, &crowd, threads);
  if (*text)
    say(d, "machine", name, "busy", "%s: times would be noisy now", text);
  else
    say(d, "machine", name, "quiet", "a good time to measure");
}

static void examine_kernels(doctor *d) {
  char text[512];
  examine_machine(d);
  int can = tool_kernels_diagnose(text, sizeof text);
  say(d, "kernels", "CUDA", can ? "good" : "none", "%s", text);
}

static int examine(doctor *d, const tool_graphs *graphs) {
  tool_contexts contexts;
  examine_kernels(d);
  int status = examine_layers(d);
  if (status || d->broken)
    return status ? status : TOOL_STORE;
  DFGNN_TRY(tool_contexts_open(&contexts, d->settings));
  for (int i = 0; i < contexts.count; i++)
    examine_device(d, &contexts.info[i]);
  for (int i = 0; i < contexts.count; i++)
    examine_noise(d, &contexts.info[i]);
  tool_contexts_close(&contexts);
  if (!graphs->count)
    return TOOL_DONE;
  status = tool_each(d->settings, graphs, examine_call, d);
  int64_t calls = d->exact + d->near + d->predicted + d->pinned + d->misses;
  char total[32];
  snprintf(total, sizeof total, "%lld in all", (long long)calls);
  say(d, "calls", total, d->misses ? "some miss" : "all hit",
      "%lld exact, %lld near, %lld predicted, %lld pinned, %lld misses",
      (long long)d->exact, (long long)d->near, (long long)d->predicted,
      (long long)d->pinned, (long long)d->misses);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"kind", "OF", TOOL_TEXT},
                                        {"name", "WHAT", TOOL_TEXT},
                                        {"verdict", "VERDICT", TOOL_TEXT},
                                        {"why", "WHY", TOOL_TEXT},
                                        {NULL, NULL, 0}};
  doctor d = {.settings = settings, .rows = json_array()};
  tool_graphs graphs = {0};
  int status = tool_graphs_all(&graphs, count, operands);
  if (!status)
    status = examine(&d, &graphs);
  tool_graphs_free(&graphs);
  tool_records_free(&d.records);
  int printed = tool_report(settings, d.rows, columns);
  return status ? status : printed;
}

const tool_command tune_doctor = {
    .name = "doctor",
    .operands = "[GRAPH...]",
    .summary = "Say why a call on this machine would miss",
    .text =
        "Goes through all that may keep a call from its measurement: the "
        "stores (absent, damaged, unsigned), the identity of the device, "
        "revisions of variants, and, for the GRAPHs and problems given, the "
        "fields that have to match: operator, pass, type, math, layout, "
        "offsets, determinism, weights, bias, dropout, caches, and the "
        "distance to the nearest measured graph. It says, too, whether the "
        "machine is quiet enough to measure, and which stored choices rest on "
        "noisy rows: of one sample, of samples while others used the device, "
        "or with wide intervals. Exits with 5 if a store that "
        "was named cannot be used.",
    .options = HAS_PROBLEM | HAS(THREADS) | HAS(STORE) | HAS_TABLE,
    .main = command};
