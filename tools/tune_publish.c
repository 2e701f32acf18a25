/* tune_publish.c - dfgnn-tune publish and sign: stores for others to read */
#include "tools/records.h"
#include "tools/tune.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct publication {
  const tool_settings *settings;
  tool_records records; /* with --best */
  uint64_t left_out;
} publication;

static int wanted(void *data, const dfgnn_measurement *row) {
  publication *p = data;
  int keep = !tool_row_refusal(p->settings, row) &&
             (!p->settings->best || tool_row_wins(&p->records, row));
  p->left_out += !keep;
  return keep;
}

static dfgnn_status add_store(dfgnn_store *all, dfgnn_merge_counts *counts,
                              publication *p, const char *path) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  dfgnn_store *store = NULL;
  filter.wanted = wanted;
  filter.data = p;
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__store_merge(all, counts, store, &filter);
  dfgnn__store_close(store);
  return status;
}

/* Adds the rows of --store, else of the stores that a context would read. */
static dfgnn_status add_stores(dfgnn_store *all, dfgnn_merge_counts *counts,
                               publication *p) {
  dfgnn_context places = {0};
  if (p->settings->store)
    return add_store(all, counts, p, p->settings->store);
  dfgnn_status status = dfgnn__layers_find(&places, NULL);
  for (size_t i = 0; i < places.layer_count && !status; i++)
    if (places.layers[i].named || !access(places.layers[i].path, F_OK))
      status = add_store(all, counts, p, places.layers[i].path);
  dfgnn__layers_free(&places);
  return status;
}

static int publish_command(tool_settings *settings, int count,
                           char **operands) {
  publication p = {.settings = settings};
  dfgnn_merge_counts counts = {0, 0, 0};
  dfgnn_store *all = NULL;
  int status = TOOL_DONE;
  (void)count;
  if (settings->best)
    status = tool_records_load(&p.records, settings, 0, NULL);
  if (settings->best && !status)
    status = tool_records_best(&p.records, settings->best);
  if (status)
    return status;
  dfgnn_status failed = dfgnn__store_open(&all, ":memory:", DFGNN_STORE_WRITE);
  if (!failed)
    failed = add_stores(all, &counts, &p);
  if (!failed)
    failed = dfgnn__store_publish(all, operands[0]);
  dfgnn__store_close(all);
  tool_records_free(&p.records);
  if (failed)
    return tool_fail(failed);
  tool_note(settings, "%s: %llu rows, %llu left out, %llu invalid", operands[0],
            (unsigned long long)counts.added, (unsigned long long)p.left_out,
            (unsigned long long)counts.skipped);
  return TOOL_DONE;
}

static int sign_command(tool_settings *settings, int count, char **operands) {
  dfgnn_status status = DFGNN_OK;
  if (!settings->generate_key == !settings->key)
    return tool_usage("expected either --key or --generate-key");
  if (settings->generate_key && count)
    return tool_usage("--generate-key takes no FILE");
  if (settings->key && !count)
    return tool_usage("no operand, expected FILE...");
  if (settings->generate_key)
    status = dfgnn__key_generate(settings->generate_key);
  for (int i = 0; i < count && !status; i++)
    status = dfgnn__store_sign(operands[i], settings->key);
  return status ? tool_fail(status) : TOOL_DONE;
}

const tool_command tune_publish = {
    .name = "publish",
    .operands = "FILE",
    .summary = "Write a compact, immutable store for others to read",
    .text =
        "Collects the rows of --store, else of all layers, into a new file "
        "that appears under its name only when it is whole: on the disk, "
        "read-only, without log, pins and traces of removed rows. Any number "
        "of nodes may read it, over any file system. The same rows give the "
        "same bytes.",
    .options = HAS_PROBLEM | HAS(STORE) | HAS(FROM_ARCH) | HAS(SINCE) |
               HAS(BEST) | HAS_ALWAYS,
    .selects = 1,
    .main = publish_command};

const tool_command tune_sign = {
    .name = "sign",
    .operands = "[FILE...]",
    .summary = "Sign published stores and packs",
    .text =
        "Writes FILE.sig, an Ed25519 signature, with the secret key of --key. "
        "With --generate-key it makes a pair of keys instead. A program that "
        "runs with DFGNN_TRUSTED_KEYS set to the public key, or to a "
        "directory of them, reads stores and uses packs of compiled kernels "
        "with such a signature, and no others.",
    .options = HAS(KEY) | HAS(GENERATE_KEY) | HAS_ALWAYS,
    .main = sign_command};
