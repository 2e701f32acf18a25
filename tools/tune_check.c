/* tune_check.c - dfgnn-tune verify and prune: the usable rows of a store */
#include "tools/kernels.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <string.h>
#include <time.h>

typedef struct uses {
  int64_t rows, use[DFGNN_USE_FOREIGN + 1], oldest, newest;
} uses;

static int note(void *data, const dfgnn_measurement *row) {
  uses *u = data;
  u->use[dfgnn__variant_use(row->variant, row->revision)]++;
  if (!u->rows || row->time < u->oldest)
    u->oldest = row->time;
  if (!u->rows || row->time > u->newest)
    u->newest = row->time;
  u->rows++;
  return 0;
}

/* ---- verify ------------------------------------------------------------- */

static dfgnn_status open_checked(dfgnn_store **store, const char *path,
                                 const dfgnn_keys *keys) {
  DFGNN_TRY(keys ? dfgnn__store_open_signed(store, path, keys)
                 : dfgnn__store_open(store, path, DFGNN_STORE_READ_ANY));
  return dfgnn__store_check(*store);
}

static void put_day(json_t *row, const char *key, int64_t seconds) {
  char text[32] = "";
  struct tm day;
  time_t t = (time_t)seconds;
  if (gmtime_r(&t, &day))
    strftime(text, sizeof text, "%Y-%m-%d", &day);
  tool_put(row, key, text);
}

static dfgnn_status verify(json_t *rows, int *bad, const char *path,
                           const dfgnn_keys *keys) {
  uses u = {0};
  uint64_t invalid = 0;
  dfgnn_store *store = NULL;
  dfgnn_status status = open_checked(&store, path, keys);
  if (!status)
    status = dfgnn__store_each(store, &invalid, NULL, note, &u);
  dfgnn__store_close(store);
  json_t *row = json_object();
  tool_put(row, "file", path);
  tool_put(row, "state",
           status    ? "unusable"
           : invalid ? "has invalid rows"
                     : "valid");
  tool_put_flag(row, "signed", keys && !status);
  if (status) {
    tool_put(row, "reason", dfgnn_last_error());
  } else {
    tool_put_count(row, "rows", u.rows);
    tool_put_count(row, "invalid", (int64_t)invalid);
    tool_put_count(row, "current", u.use[DFGNN_USE_CURRENT]);
    tool_put_count(row, "older", u.use[DFGNN_USE_OLDER]);
    tool_put_count(row, "newer", u.use[DFGNN_USE_NEWER]);
    tool_put_count(row, "unknown", u.use[DFGNN_USE_UNKNOWN]);
    tool_put_count(row, "foreign", u.use[DFGNN_USE_FOREIGN]);
  }
  if (!status && u.rows) {
    put_day(row, "oldest", u.oldest);
    put_day(row, "newest", u.newest);
  }
  json_array_append_new(rows, row);
  *bad |= status || invalid;
  return status;
}

static int verify_command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {
      {"file", "FILE", TOOL_TEXT},
      {"state", "STATE", TOOL_TEXT},
      {"signed", "SIGNED", TOOL_FLAG},
      {"rows", "ROWS", TOOL_COUNT},
      {"invalid", "INVALID", TOOL_COUNT},
      {"current", "CURRENT", TOOL_COUNT},
      {"older", "OLDER", TOOL_COUNT},
      {"newer", "NEWER", TOOL_COUNT | TOOL_WIDE},
      {"unknown", "UNKNOWN", TOOL_COUNT},
      {"foreign", "FOREIGN", TOOL_COUNT | TOOL_WIDE},
      {"oldest", "SINCE", TOOL_TEXT},
      {"newest", "UNTIL", TOOL_TEXT},
      {NULL, NULL, 0}};
  dfgnn_keys *keys = NULL;
  int bad = 0;
  dfgnn_status failed =
      settings->key ? dfgnn__keys_load(&keys, settings->key) : DFGNN_OK;
  if (failed)
    return tool_fail(failed);
  json_t *rows = json_array();
  for (int i = 0; i < count; i++)
    if (verify(rows, &bad, operands[i], keys))
      tool_fail(DFGNN_ERROR_STORE);
  dfgnn__keys_free(keys);
  int status = tool_report(settings, rows, columns);
  return bad ? TOOL_STORE : status;
}

/* ---- prune -------------------------------------------------------------- */

static int keep(void *data, const dfgnn_measurement *row) {
  uses *u = data;
  dfgnn_use use = dfgnn__variant_use(row->variant, row->revision);
  u->use[use]++;
  return use != DFGNN_USE_OLDER && use != DFGNN_USE_UNKNOWN;
}

static dfgnn_status prune(const char *path, dfgnn_prune_counts *counts, uses *u,
                          int dry) {
  dfgnn_store *store = NULL;
  /* opening for writing would create the file */
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status && dry)
    status = dfgnn__store_each(store, &counts->invalid, NULL, note, u);
  dfgnn__store_close(store);
  store = NULL;
  if (status || dry) {
    counts->kept = (uint64_t)(u->rows - u->use[DFGNN_USE_OLDER] -
                              u->use[DFGNN_USE_UNKNOWN]);
    return status;
  }
  status = dfgnn__store_open(&store, path, DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_prune(store, counts, keep, u);
  dfgnn__store_close(store);
  return status;
}

static int prune_store(json_t *rows, const char *path, int dry) {
  dfgnn_prune_counts counts = {0, 0, 0};
  uses u = {0};
  if (prune(path, &counts, &u, dry))
    return tool_fail(DFGNN_ERROR_STORE);
  json_t *row = json_object();
  tool_put(row, "file", path);
  tool_put_count(row, "kept", (int64_t)counts.kept);
  tool_put_count(row, "invalid", (int64_t)counts.invalid);
  tool_put_count(row, "older", u.use[DFGNN_USE_OLDER]);
  tool_put_count(row, "unknown", u.use[DFGNN_USE_UNKNOWN]);
  json_array_append_new(rows, row);
  return TOOL_DONE;
}

static int prune_command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {
      {"file", "FILE", TOOL_TEXT},        {"kept", "KEPT", TOOL_COUNT},
      {"invalid", "INVALID", TOOL_COUNT}, {"older", "OLDER", TOOL_COUNT},
      {"unknown", "UNKNOWN", TOOL_COUNT}, {NULL, NULL, 0}};
  char path[4096], *paths[] = {path};
  int status = TOOL_DONE;
  if (settings->kernels)
    return tool_kernels_prune(settings);
  if (settings->store && count)
    return tool_usage("found --store and '%s', expected one of the two",
                      *operands);
  if (!count) {
    status = tool_target_path(path, sizeof path, settings);
    operands = paths;
    count = 1;
  }
  json_t *rows = json_array();
  for (int i = 0; i < count && !status; i++)
    status = prune_store(rows, operands[i], settings->dry_run);
  if (!status)
    return tool_report(settings, rows, columns);
  json_decref(rows);
  return status;
}

const tool_command tune_verify = {
    .name = "verify",
    .operands = "FILE...",
    .summary = "Check stores: integrity, schema, rows, age, signature",
    .text =
        "Reads every page and every row. Rows that break a domain or do not "
        "have the hash of their content are invalid; the others are counted "
        "by what this library can do with them: current; older or newer than "
        "its revision of the variant; of an unknown variant; foreign, of a "
        "backend it does not have. With --key the file must be signed with "
        "this key, or with one of the directory's. Exits with 5 if a file is "
        "unusable or has invalid rows.",
    .options = HAS(KEY) | HAS_TABLE,
    .main = verify_command};

const tool_command tune_prune = {
    .name = "prune",
    .operands = "[STORE...]",
    .summary = "Remove rows that no library can use any more",
    .text =
        "Removes, in one transaction, the rows of variants that are gone, of "
        "revisions older than this library's, and invalid ones, from each "
        "STORE, or from the store that is written; --dry-run counts them. Rows "
        "of newer revisions, and of backends that this "
        "library does not have, stay. With --kernels the user's cache of "
        "compiled GPU kernels is emptied instead.",
    .options = HAS(STORE) | HAS(KERNELS) | HAS(DRY_RUN) | HAS_TABLE,
    .main = prune_command};
