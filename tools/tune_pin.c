/* tune_pin.c - dfgnn-tune pin: choices set by hand, local to a store */
#include "lib/registry.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <inttypes.h>

static int put_pin(void *data, const dfgnn_pin *pin) {
  char hex[24];
  json_t *row = json_object();
  snprintf(hex, sizeof hex, "%016" PRIx64, pin->fingerprint);
  tool_put(row, "op", pin->op);
  tool_put(row, "pass", pin->pass);
  tool_put(row, "dtype", pin->dtype);
  tool_put_flag(row, "bias", pin->bias);
  tool_put_flag(row, "dropout", pin->dropout);
  tool_put(row, "fingerprint", pin->fingerprint ? hex : "any");
  tool_put(row, "variant", pin->variant);
  tool_put_flag(row, "known", dfgnn__variant_find(pin->variant) != NULL);
  json_array_append_new(data, row);
  return 0;
}

static dfgnn_status put_pins(dfgnn_store *store, json_t *rows) {
  return dfgnn__store_each_pin(store, put_pin, rows);
}

static const tool_column columns[] = {{"op", "OP", TOOL_TEXT},
                                      {"pass", "PASS", TOOL_TEXT},
                                      {"dtype", "DTYPE", TOOL_TEXT},
                                      {"bias", "BIAS", TOOL_FLAG},
                                      {"dropout", "DROPOUT", TOOL_FLAG},
                                      {"fingerprint", "GRAPH", TOOL_TEXT},
                                      {"variant", "VARIANT", TOOL_VARIANT},
                                      {NULL, NULL, 0}};

static int applies(const dfgnn_family *f, const tool_settings *s, int o, int p,
                   int t) {
  return f->ops & DFGNN_BIT(s->op[o]) && f->passes & DFGNN_BIT(s->pass[p]) &&
         f->dtypes & DFGNN_BIT(s->dtype[t]) && (!s->bias || f->bias) &&
         (!s->dropout || f->dropout);
}

/* Pins the variant where it applies, and counts that; NULL removes the pins.
 * Without a store it only counts. */
static dfgnn_status pin_all(dfgnn_store *store, int *count,
                            const tool_settings *s, uint64_t fingerprint,
                            const dfgnn_variant *variant) {
  dfgnn_status status = DFGNN_OK;
  *count = 0;
  for (int o = 0; o < s->op_count; o++)
    for (int p = 0; p < s->pass_count; p++)
      for (int t = 0; t < s->dtype_count && !status; t++) {
        if (variant && !applies(variant->family, s, o, p, t))
          continue;
        ++*count;
        if (store)
          status = dfgnn__store_pin(
              store,
              &(dfgnn_pin){.op = dfgnn_name(DFGNN_NAMES_OP, s->op[o]),
                           .pass = dfgnn_name(DFGNN_NAMES_PASS, s->pass[p]),
                           .dtype = dfgnn_name(DFGNN_NAMES_DTYPE, s->dtype[t]),
                           .bias = s->bias,
                           .dropout = s->dropout,
                           .fingerprint = fingerprint,
                           .variant = variant ? variant->name : NULL});
      }
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  dfgnn_store *store = NULL;
  uint64_t fingerprint = 0; /* any graph */
  char path[4096];
  DFGNN_TRY(tool_target_path(path, sizeof path, settings));
  int status = TOOL_DONE;
  for (int o = 0; o < settings->op_count; o++)
    if (tool_is_named(settings->op[o]))
      return tool_usage("--op: found the program %s, expected an operator: "
                        "a pin is for all programs or none",
                        tool_op_name(settings->op[o]));
  if (!count && !settings->remove)
    return tool_list_store(settings, path, put_pins, columns);
  if (settings->remove && count > 1)
    return tool_usage("--remove takes a GRAPH at most");
  const dfgnn_variant *variant =
      settings->remove ? NULL : dfgnn__variant_find(operands[0]);
  int pins;
  const char *graph = settings->remove ? count ? operands[0] : NULL
                      : count > 1      ? operands[1]
                                       : NULL;
  if (!variant && !settings->remove)
    return tool_usage("the library has no variant '%s'; dfgnn-tune variants "
                      "lists them",
                      operands[0]);
  (void)pin_all(NULL, &pins, settings, 0, variant);
  if (!pins)
    return tool_usage(
        "%s computes no %s %s of %s%s: name what it does by --op, "
        "--pass and --dtype",
        variant->name, tool_op_name(settings->op[0]),
        dfgnn_name(DFGNN_NAMES_PASS, settings->pass[0]),
        dfgnn_name(DFGNN_NAMES_DTYPE, settings->dtype[0]),
        settings->bias      ? " with a bias"
        : settings->dropout ? " with dropout"
                            : "");
  if (graph && (status = tool_fingerprint(&fingerprint, graph)))
    return status;
  dfgnn_status failed = tool_target_open(&store, settings, path);
  if (!failed)
    failed = pin_all(store, &pins, settings, fingerprint, variant);
  dfgnn__store_close(store);
  return failed ? tool_fail(failed) : TOOL_DONE;
}

const tool_command tune_pin = {
    .name = "pin",
    .operands = "[VARIANT [GRAPH]]",
    .summary = "Set a variant by hand, or list the pins",
    .text = "For the operators, passes and types that are given, the variant "
            "is used wherever it applies, or on one graph, whatever was "
            "measured; with --bias or --dropout only for problems that have "
            "it. A pin is local to the store file: it is neither merged nor "
            "exported nor published. Without VARIANT the pins are listed; "
            "--remove removes them.",
    .options = HAS(OP) | HAS(PASS) | HAS(DTYPE) | HAS(BIAS) | HAS(DROPOUT) |
               HAS(STORE) | HAS(REMOVE) | HAS_TABLE,
    .main = command};
