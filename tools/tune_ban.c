/* tune_ban.c - dfgnn-tune ban: variants that no source chooses, local to a
 * store
 */
#include "lib/registry.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <string.h>

/* The number of variants that a name bans: a variant's, or a family's. */
static int64_t count_of(const char *name) {
  int64_t count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    count += !strcmp(dfgnn__variant(i)->name, name) ||
             !strcmp(dfgnn__variant(i)->family->name, name);
  return count;
}

static int put_ban(void *data, const char *name) {
  json_t *row = json_object();
  tool_put(row, "variant", name);
  tool_put_count(row, "variants", count_of(name));
  json_array_append_new(data, row);
  return 0;
}

static dfgnn_status put_bans(dfgnn_store *store, json_t *rows) {
  return dfgnn__store_each_ban(store, put_ban, rows);
}

static const tool_column columns[] = {{"variant", "BANNED", TOOL_TEXT},
                                      {"variants", "VARIANTS", TOOL_COUNT},
                                      {NULL, NULL, 0}};

static int command(tool_settings *settings, int count, char **operands) {
  dfgnn_store *store = NULL;
  char path[4096];
  DFGNN_TRY(tool_target_path(path, sizeof path, settings));
  if (!count && settings->remove)
    return tool_usage("--remove takes a VARIANT");
  if (!count)
    return tool_list_store(settings, path, put_bans, columns);
  for (int i = 0; i < count && !settings->remove; i++)
    if (!count_of(operands[i]))
      return tool_usage("the library has no variant or family '%s'; dfgnn-tune "
                        "variants lists them",
                        operands[i]);
  dfgnn_status failed = tool_target_open(&store, settings, path);
  for (int i = 0; i < count && !failed; i++)
    failed = dfgnn__store_ban(store, operands[i], !settings->remove);
  dfgnn__store_close(store);
  return failed ? tool_fail(failed) : TOOL_DONE;
}

const tool_command tune_ban = {
    .name = "ban",
    .operands = "[VARIANT...]",
    .summary = "Keep variants from being chosen, or list those",
    .text = "A banned variant, or family of variants, is chosen by no source "
            "but a pin and DFGNN_FORCE_VARIANT, and no tuning measures it. A "
            "ban is local to the store file, as a pin is; those of the site's "
            "store hold for all its users. Without VARIANT the bans are "
            "listed; --remove removes them.",
    .options = HAS(STORE) | HAS(REMOVE) | HAS_TABLE,
    .main = command};
