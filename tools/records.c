/* records.c - rows of the stores, for show and for moving them */
#include "tools/records.h"
#include "lib/registry.h"
#include "tools/programs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIE_MARGIN 0.015

/* Rows of backends that this library does not have are shown and moved, too. */
static int usable(void *data, const char *variant, int revision) {
  dfgnn_use use = dfgnn__variant_use(variant, revision);
  (void)data;
  return use == DFGNN_USE_CURRENT || use == DFGNN_USE_FOREIGN;
}

int tool_records_add(tool_records *records, const char *path) {
  dfgnn_store *store = NULL;
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  uint64_t invalid = 0;
  dfgnn_status status = DFGNN_OK;
  if (!records->rows)
    status = dfgnn__rows_create(&records->rows);
  if (!status)
    status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__rows_load(records->rows, &invalid, store, &filter);
  if (store)
    dfgnn__store_close(store);
  if (status)
    return tool_fail(status);
  records->invalid += invalid;
  records->row = dfgnn__rows_get(records->rows, &records->count);
  return TOOL_DONE;
}

static int compare_rows(const void *x, const void *y) {
  const dfgnn_measurement *a = *(const dfgnn_measurement *const *)x;
  const dfgnn_measurement *b = *(const dfgnn_measurement *const *)y;
  const int c = dfgnn__problem_compare(a, b);
  return c ? c : (a > b) - (a < b);
}

int tool_records_decide(tool_records *records) {
  dfgnn__decisions_free(records->decisions);
  records->decisions = NULL;
  free(records->by_problem);
  records->by_problem = calloc(records->count + 1, sizeof *records->by_problem);
  if (!records->by_problem)
    return tool_error("out of memory");
  for (size_t i = 0; i < records->count; i++)
    records->by_problem[i] = &records->row[i];
  qsort(records->by_problem, records->count, sizeof *records->by_problem,
        compare_rows);
  dfgnn_status status =
      dfgnn__decide(&records->decisions, &records->unusable, records->row,
                    records->count, TIE_MARGIN, usable, NULL);
  return status ? tool_fail(status) : TOOL_DONE;
}

const dfgnn_measurement *const *
tool_records_of(const tool_records *records, size_t *count,
                const dfgnn_measurement *problem) {
  size_t low = 0, high = records->count, end;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (dfgnn__problem_compare(records->by_problem[middle], problem) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (end = low; end < records->count &&
                  dfgnn__same_problem(records->by_problem[end], problem);
       end++)
    ;
  *count = end - low;
  return records->by_problem + low;
}

/* A standard place whose store may not be read is passed over, as a context
 * does. */
static int add_place(tool_records *records, const dfgnn_store_layer *place) {
  if (!place->named && access(place->path, F_OK))
    return TOOL_DONE;
  int status = tool_records_add(records, place->path);
  return place->named || !getenv("DFGNN_TRUSTED_KEYS") ? status : TOOL_DONE;
}

int tool_records_load(tool_records *records, const tool_settings *settings,
                      int count, char **stores) {
  int status = TOOL_DONE;
  if (settings->store && count)
    return tool_usage("found --store and '%s', expected one of the two",
                      *stores);
  if (settings->store)
    status = tool_records_add(records, settings->store);
  for (int i = 0; i < count && !status; i++)
    status = tool_records_add(records, stores[i]);
  if (settings->store || count)
    return status ? status : tool_records_decide(records);
  dfgnn_context places = {0};
  dfgnn_keys *keys = NULL;
  dfgnn_status failed = dfgnn__trusted_keys(&keys);
  dfgnn__keys_free(keys);
  if (!failed)
    failed = dfgnn__layers_find(&places, NULL);
  for (size_t i = 0; i < places.layer_count && !failed && !status; i++)
    status = add_place(records, &places.layers[i]);
  dfgnn__layers_free(&places);
  if (failed)
    return tool_fail(failed);
  return status ? status : tool_records_decide(records);
}

void tool_records_free(tool_records *records) {
  tool_winners_free(records->winners);
  dfgnn__decisions_free(records->decisions);
  dfgnn__rows_free(records->rows);
  free(records->by_problem);
  *records = (tool_records){0};
}

/* Whether a member of the row's problem has a value of dfgnn_problem's. */
static int has(const dfgnn_measurement *row, const char *member, int64_t x) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  const dfgnn_field *field = fields->field;
  while (strcmp(field->name, member))
    field++;
  if (field->kind != DFGNN_FIELD_NAME)
    return dfgnn__field_whole(field, dfgnn__field_get(field, row)) == x;
  const char *name = dfgnn_name(field->names, (int)x);
  return name && !strcmp(name, dfgnn__field_string(field, row));
}

int tool_row_wanted(const tool_settings *s, const dfgnn_measurement *row) {
  int wanted = !(s->given & HAS(DEVICE)) || !strcmp(s->device, "all") ||
               !strcmp(s->device, "auto") ||
               !strncmp(s->device, row->backend, strlen(row->backend));
#define WANTED(NAME, member, type, of_operators)                               \
  int is_##member = !(s->given & HAS(NAME));                                   \
  for (int i = 0; i < s->member##_count && !is_##member; i++)                  \
    is_##member = has(row, #member, (int64_t)s->member[i]) ||                  \
                  (OPTION_##NAME == OPTION_OP &&                               \
                   tool_is_named((dfgnn_op)s->member[i]) &&                    \
                   tool_program_wanted(s, row));                               \
  wanted = wanted && is_##member;
  TOOL_LISTS(WANTED)
#undef WANTED
  return wanted && (!s->cold || !strncmp(row->protocol, "cold", 4)) &&
         (!(s->given & HAS(NO_DETERMINISTIC)) || !row->deterministic) &&
         (!s->weights || row->weights) && (!s->bias || row->bias) &&
         (!s->dropout || row->dropout) &&
         (!s->program || tool_program_wanted(s, row));
}

static int in_list(const char *list, const char *name) {
  size_t length = strlen(name);
  for (; *list; list += strcspn(list, ","), list += *list == ',')
    if (strcspn(list, ",") == length && !strncmp(list, name, length))
      return 1;
  return 0;
}

const char *tool_row_refusal(const tool_settings *s,
                             const dfgnn_measurement *row) {
  if (s->from_arch && !in_list(s->from_arch, row->arch))
    return "of another architecture";
  if (row->time < s->since)
    return "measured earlier";
  return tool_row_wanted(s, row) ? NULL : "of another problem";
}

int tool_target_path(char *path, size_t size, const tool_settings *settings) {
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

dfgnn_status tool_target_open(dfgnn_store **store,
                              const tool_settings *settings, const char *path) {
  if (settings->remove) {
    DFGNN_TRY(dfgnn__store_open(store, path, DFGNN_STORE_READ));
    dfgnn__store_close(*store);
    *store = NULL;
  }
  return dfgnn__store_open(store, path, DFGNN_STORE_WRITE);
}

int tool_list_store(const tool_settings *settings, const char *path,
                    dfgnn_status (*put)(dfgnn_store *store, json_t *rows),
                    const tool_column *columns) {
  dfgnn_store *store = NULL;
  json_t *rows = json_array();
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status)
    status = put(store, rows);
  else if (status == DFGNN_ERROR_IO) /* without a store there are none */
    status = DFGNN_OK;
  dfgnn__store_close(store);
  if (!status)
    return tool_report(settings, rows, columns);
  json_decref(rows);
  return tool_fail(status);
}
