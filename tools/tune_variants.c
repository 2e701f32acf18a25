/* tune_variants.c - dfgnn-tune variants: every compiled-in variant */
#include "dfgnn_tune.h"
#include "lib/registry.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <string.h>

static int wanted(const tool_settings *s, int op, int pass) {
  int o = !(s->given & HAS(OP)), p = !(s->given & HAS(PASS));
  for (int i = 0; i < s->op_count; i++)
    o |= (int)(tool_is_named(s->op[i]) ? DFGNN_OP_PROGRAM : s->op[i]) == op;
  for (int i = 0; i < s->pass_count; i++)
    p |= (int)s->pass[i] == pass;
  return o && p;
}

static json_t *row_of(const dfgnn_variant_info *info,
                      const dfgnn_family *family, const char *op,
                      const char *pass) {
  json_t *row = json_object();
  tool_put(row, "variant", info->name);
  tool_put(row, "algorithm", info->algorithm);
  tool_put(row, "backend", info->backend);
  tool_put(row, "op", op);
  tool_put(row, "pass", pass);
  tool_put_count(row, "revision", info->revision);
  tool_put(row, "parameters", info->parameters);
  tool_put_flag(row, "paper", family->paper);
  tool_put_flag(row, "deterministic", info->deterministic);
  tool_put_flag(row, "bias", family->bias);
  tool_put_flag(row, "dropout", family->dropout);
  tool_put_flag(row, "edges", family->edge_ops != 0);
  tool_put_flag(row, "messages", family->messages != 0);
  return row;
}

/* Adds one row per operator and pass for JSON, one per variant for the table.
 */
static void add(json_t *rows, const tool_settings *s,
                const dfgnn_variant_info *info, const dfgnn_family *family) {
  char ops[128] = "", passes[64] = "";
  if (s->bias > family->bias || s->dropout > family->dropout ||
      (s->edge_dim[0] && !family->edge_ops) ||
      (s->message[0] && !(family->messages >> s->message[0] & 1)))
    return;
  for (int p = 0; p < DFGNN_PASS_COUNT; p++) {
    if (!(info->passes >> p & 1))
      continue;
    const char *pass = dfgnn_name(DFGNN_NAMES_PASS, (dfgnn_pass)p);
    snprintf(passes + strlen(passes), sizeof passes - strlen(passes), "%s%s",
             *passes ? "," : "", pass);
    for (int o = 0; o <= DFGNN_OP_PROGRAM; o++) {
      const char *op = dfgnn_name(DFGNN_NAMES_OP, (dfgnn_op)o);
      if (!op || !(info->ops >> o & 1) || !wanted(s, o, p))
        continue;
      if (s->json)
        json_array_append_new(rows, row_of(info, family, op, pass));
      if (!strstr(ops, op) || strcmp(strstr(ops, op), op))
        snprintf(ops + strlen(ops), sizeof ops - strlen(ops), "%s%s",
                 *ops ? "," : "", op);
    }
  }
  if (!s->json && *ops)
    json_array_append_new(rows, row_of(info, family, ops, passes));
}

static int command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"variant", "VARIANT", TOOL_VARIANT},
                                        {"op", "OP", TOOL_TEXT},
                                        {"pass", "PASS", TOOL_TEXT},
                                        {"bias", "BIAS", TOOL_FLAG},
                                        {"dropout", "DROPOUT", TOOL_FLAG},
                                        {"edges", "EDGES", TOOL_FLAG},
                                        {"messages", "MESSAGES", TOOL_FLAG},
                                        {"revision", "REVISION", TOOL_COUNT},
                                        {NULL, NULL, 0}};
  json_t *rows = json_array();
  (void)count;
  (void)operands;
  for (size_t i = 0; i < dfgnn_variant_count(); i++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    if (!dfgnn_variant_get(&info, i))
      add(rows, settings, &info, dfgnn__variant(i)->family);
  }
  return tool_report(settings, rows, columns);
}

const tool_command tune_variants = {
    .name = "variants",
    .operands = "",
    .summary = "List the variants of this library",
    .text =
        "Lists every compiled-in variant, whether its device is present or "
        "not. With --json a variant has one object for each operator and pass "
        "it computes. --bias, --dropout, --edge-dim and --message leave only "
        "variants that can do it.",
    .options = HAS(OP) | HAS(PASS) | HAS(BIAS) | HAS(DROPOUT) | HAS(EDGE_DIM) |
               HAS(MESSAGE) | HAS_TABLE,
    .selects = 1,
    .main = command};
