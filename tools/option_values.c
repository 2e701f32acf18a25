/* option_values.c - texts of options become values of tool_settings */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/option_values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dfgnn_program.h"
#include "dfgnn_tune.h"
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"
#include "lib/base/locale.h"
#include "tools/suggest.h"

static void *field_of(tool_settings *settings, const tool_option *option) {
  return (char *)settings + option->field;
}

/* ---- single values ------------------------------------------------------- */

dfgnn_status option_flag(tool_settings *settings, const tool_option *option,
                         const char *text) {
  (void)text;
  *(int *)field_of(settings, option) = option->flag;
  return DFGNN_OK;
}

dfgnn_status option_text(tool_settings *settings, const tool_option *option,
                         const char *text) {
  *(const char **)field_of(settings, option) = text;
  return DFGNN_OK;
}

dfgnn_status option_store(tool_settings *settings, const tool_option *option,
                          const char *text) {
  if (strchr(text, ':'))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected one file without a colon: "
                       "DFGNN_STORE takes several, with colons between them",
                       text);
  return option_text(settings, option, text);
}

dfgnn_status option_effort(tool_settings *settings, const tool_option *option,
                           const char *text) {
  return dfgnn_parse(field_of(settings, option), DFGNN_NAMES_EFFORT, text);
}

static dfgnn_status whole(int64_t *out, const char *text, int64_t least,
                          int64_t most) {
  char *end;
  errno = 0;
  long long x = strtoll(text, &end, 10);
  if (end == text || *end || errno || x < least || x > most)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected a whole number from %lld to %lld",
                       text, (long long)least, (long long)most);
  *out = x;
  return DFGNN_OK;
}

dfgnn_status option_int(tool_settings *settings, const tool_option *option,
                        const char *text) {
  int64_t x = 0;
  dfgnn_status status = whole(&x, text, option->least, option->most);
  if (!status)
    *(int *)field_of(settings, option) = (int)x;
  return status;
}

dfgnn_status option_seed(tool_settings *settings, const tool_option *option,
                         const char *text) {
  int64_t x = 0;
  dfgnn_status status = whole(&x, text, 0, INT64_MAX);
  if (!status)
    *(uint64_t *)field_of(settings, option) = (uint64_t)x;
  return status;
}

#define MOST_SECONDS 36e6 /* 10000 hours */

dfgnn_status option_seconds(tool_settings *settings, const tool_option *option,
                            const char *text) {
  static const struct {
    const char *suffix;
    double seconds;
  } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  char *end;
  double x = dfgnn__number_of(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && !strcmp(end, units[i].suffix) && x > 0 &&
        x * units[i].seconds <= MOST_SECONDS) {
      *(double *)field_of(settings, option) = x * units[i].seconds;
      return DFGNN_OK;
    }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "found '%s', expected a time above zero such as 500ms, "
                     "10s, 2m or 1h, and at most %.0fh",
                     text, MOST_SECONDS / 3600);
}

/* Reads a date, or a time before now. */
dfgnn_status option_since(tool_settings *settings, const tool_option *option,
                          const char *text) {
  struct tm day = {0};
  char *end = strptime(text, "%Y-%m-%d", &day);
  if (end && *end == 'T')
    end = strptime(end, "T%H:%M:%S", &day);
  if (end && (!*end || !strcmp(end, "Z"))) {
    *(int64_t *)field_of(settings, option) = (int64_t)timegm(&day);
    return DFGNN_OK;
  }
  double x = dfgnn__number_of(text, &end);
  const char *const units = "smhd";
  static const double seconds[] = {1, 60, 3600, 86400};
  const char *unit = end != text && *end && !end[1] ? strchr(units, *end) : 0;
  if (!unit || !isfinite(x) || x < 0 || x > 1e9)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected a date such as 2026-11-30 or a "
                       "time ago such as 12h or 30d",
                       text);
  *(int64_t *)field_of(settings, option) =
      (int64_t)((double)time(NULL) - x * seconds[unit - units]);
  return DFGNN_OK;
}

dfgnn_status option_shard(tool_settings *settings, const tool_option *option,
                          const char *text) {
  (void)option;
  int i, n, length = 0;
  if (sscanf(text, "%5d/%5d%n", &i, &n, &length) != 2 || text[length] ||
      !isdigit((unsigned char)*text) || n < 1 || i > n)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected I/N with I from 1 to N (or from 0 "
                       "to N-1), such as 2/8",
                       text);
  settings->shard = i ? i : n;
  settings->shards = n;
  return DFGNN_OK;
}

dfgnn_status option_again(tool_settings *settings, const tool_option *option,
                          const char *text) {
  (void)option;
  if (!strcmp(text, "noisy"))
    settings->remeasure = DFGNN_REMEASURE_NOISY;
  else if (!strcmp(text, "all"))
    settings->remeasure = DFGNN_REMEASURE_ALL;
  else
    return dfgnn__fail(DFGNN_ERROR_INVALID, "found '%s', expected noisy or all",
                       text);
  return DFGNN_OK;
}

dfgnn_status option_device(tool_settings *settings, const tool_option *option,
                           const char *text) {
  if (!strcmp(text, "gpu"))
    text = "cuda";
  char *copy = strdup(text), *rest = copy, *item;
  int good = copy != NULL;
  while (good && (item = strsep(&rest, ",")))
    good = !strcmp(item, "auto") || !strcmp(item, "cpu") ||
           !strcmp(item, "cuda") || !strcmp(item, "all") ||
           (!strncmp(item, "cuda:", 5) && isdigit((unsigned char)item[5]) &&
            strspn(item + 5, "0123456789") == strlen(item + 5));
  free(copy);
  if (!good)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found '%s', expected auto, cpu, cuda, cuda:N or all",
                       text);
  *(const char **)field_of(settings, option) = text;
  return DFGNN_OK;
}

/* Reads names of orders; "all" means all that the library was built with. */
dfgnn_status option_orders(tool_settings *settings, const tool_option *option,
                           const char *text) {
  char *copy = strdup(text), *rest = copy, *item;
  unsigned orders = 0;
  dfgnn_status status =
      copy ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  while (!status && (item = strsep(&rest, ","))) {
    dfgnn_order order = DFGNN_ORDER_COUNT;
    if (!strcmp(item, "all"))
      for (int o = 0; o < DFGNN_ORDER_COUNT; o++)
        orders |= (unsigned)dfgnn__order_built((dfgnn_order)o) << o;
    else if (!(status = dfgnn_parse((int *)&order, DFGNN_NAMES_ORDER, item)))
      orders |= 1u << order;
  }
  free(copy);
  if (!status)
    *(unsigned *)field_of(settings, option) = orders;
  return status;
}

/* ---- lists --------------------------------------------------------------- */

/* Splits at commas and parses each part into consecutive slots. */
dfgnn_status option_list(tool_settings *settings, const tool_option *option,
                         const char *text) {
  char *slots = field_of(settings, option);
  char *copy = strdup(text), *rest = copy, *item;
  dfgnn_status status = copy ? DFGNN_OK : DFGNN_ERROR_MEMORY;
  int n = 0;
  while (!status && (item = strsep(&rest, ","))) {
    if (n == TOOL_MAX_LIST)
      status = dfgnn__fail(DFGNN_ERROR_INVALID, "more than %d values in a list",
                           TOOL_MAX_LIST);
    else
      status = option->item(option, slots + option->size * (size_t)n++, item);
  }
  free(copy);
  if (!status)
    *(int *)((char *)settings + option->count) = n;
  return status;
}

/* Types as torch and NumPy spell them. */
static const char *own_name(const tool_option *option, const char *text) {
  static const char *const aliases[][2] = {
      {"float16", "f16"}, {"half", "f16"},    {"bfloat16", "bf16"},
      {"float32", "f32"}, {"float64", "f64"}, {"double", "f64"}};
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (option->names == DFGNN_NAMES_DTYPE && !strcmp(text, aliases[i][0]))
      return aliases[i][1];
  return text;
}

dfgnn_status option_enumeration(const tool_option *option, void *slot,
                                const char *text) {
  return dfgnn_parse(slot, option->names, own_name(option, text));
}

const char *tool_op_name(dfgnn_op op) {
  return tool_is_named(op) ? dfgnn_edge_program_name(NULL, (int)op - TOOL_NAMED)
                           : dfgnn_name(DFGNN_NAMES_OP, (int)op);
}

/* Is it a name of an enumeration of the library? */
static int in_enumeration(dfgnn_names of, const char *name) {
  const char *known;
  for (int i = 0; (known = dfgnn_name(of, i)); i++)
    if (!strcmp(known, name))
      return 1;
  return 0;
}

const char *tool_option_name(const tool_option *option, int i) {
  const char *name;
  if (option->names != DFGNN_NAMES_OP || i < DFGNN_OP_COUNT)
    return dfgnn_name(option->names, i);
  i -= DFGNN_OP_COUNT;
  for (int k = 0; (name = dfgnn_edge_program_name(NULL, k)); k++)
    if (!in_enumeration(option->names, name) && !i--)
      break;
  return name;
}

dfgnn_status option_op(const tool_option *option, void *slot,
                       const char *text) {
  const char *names[TOOL_MAX_LIST] = {NULL}, *name;
  char hint[96], list[1024] = "";
  int value;
  if (!dfgnn_parse(&value, DFGNN_NAMES_OP, text)) {
    *(dfgnn_op *)slot = (dfgnn_op)value;
    return DFGNN_OK;
  }
  for (int i = 0; (name = dfgnn_edge_program_name(NULL, i)); i++)
    if (!strcmp(name, text)) {
      *(dfgnn_op *)slot = (dfgnn_op)(TOOL_NAMED + i);
      return DFGNN_OK;
    }
  for (int i = 0; i + 1 < TOOL_MAX_LIST; i++) {
    if (!(names[i] = tool_option_name(option, i)))
      break;
    const size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "unknown operator '%s', expected one of: %s%s", text, list,
                     tool_suggest(hint, sizeof hint, text, "", names));
}

dfgnn_status option_size(const tool_option *option, void *slot,
                         const char *text) {
  return whole(slot, text, 1, option->most);
}

dfgnn_status option_edge_dim(const tool_option *option, void *slot,
                             const char *text) {
  (void)option;
  if (!strcmp(text, "projected")) {
    *(int64_t *)slot = DFGNN_EDGE_PROJECTED;
    return DFGNN_OK;
  }
  return whole(slot, text, DFGNN_EDGE_PROJECTED, 65536);
}
