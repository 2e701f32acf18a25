/* model_coverage.c - dfgnn-tune model coverage: which families were measured */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/absent.h"
#include "lib/base/error.h"
#include "lib/evidence.h"
#include "tools/model_material.h"
#include "tuner/coverage.h"

/* The families that are legal in a cell and how widely the material, or a
 * model, has measured them. */
typedef struct coverage {
  dfgnn_forest_cover *legal;
  size_t count;
  dfgnn_forests forests;       /* of a model */
  dfgnn_forest_cover *counted; /* of stores */
  size_t counted_count;
} coverage;

static const dfgnn_forest_cover *covered(const coverage *c,
                                         const dfgnn_forest_cover *legal) {
  const dfgnn_forest of_rows = {.cover = c->counted,
                                .covers = c->counted_count};
  const dfgnn_forest_cover *found =
      dfgnn__forest_cover_of(&of_rows, legal->cell, legal->family);
  for (size_t i = 0; i < c->forests.count && !found; i++)
    found = dfgnn__forest_cover_of(&c->forests.forest[i], legal->cell,
                                   legal->family);
  return found;
}

/* Prints the table; TOOL_FAILED if a legal family of a cell is on no graph. */
static int print_coverage(const tool_settings *settings, const coverage *c) {
  static const tool_column columns[] = {{"cell", "CELL", TOOL_TEXT},
                                        {"family", "FAMILY", TOOL_TEXT},
                                        {"graphs", "GRAPHS", TOOL_COUNT},
                                        {"settings", "SETTINGS", TOOL_COUNT},
                                        {NULL, NULL, 0}};
  json_t *rows = json_array();
  size_t empty = 0, thin = 0;
  const dfgnn_forest_cover *first = NULL;
  for (size_t i = 0; i < c->count; i++) {
    const dfgnn_forest_cover *found = covered(c, &c->legal[i]);
    const int graphs = found ? found->graphs : 0;
    json_t *row = json_object();
    tool_put(row, "cell", c->legal[i].cell);
    tool_put(row, "family", c->legal[i].family);
    tool_put_count(row, "graphs", graphs);
    tool_put_count(row, "settings", found ? found->settings : 0);
    json_array_append_new(rows, row);
    if (!graphs && !empty++)
      first = &c->legal[i];
    thin += graphs < DFGNN_COVERED_GRAPHS;
  }
  const int printed = tool_report(settings, rows, columns);
  if (!settings->quiet)
    fprintf(stderr,
            "%s: %zu families in cells, %zu on fewer than %d graphs, %zu on "
            "none\n",
            tool_name, c->count, thin, DFGNN_COVERED_GRAPHS, empty);
  if (printed || !empty)
    return printed;
  return tool_error(
      "%s was measured on no graph for %s; `dfgnn-tune run --plan "
      "cover` measures it",
      first->family, first->cell);
}

static int count_coverage(coverage *c, const tool_settings *settings, int count,
                          char **operands) {
  tool_material m = {0};
  if (count == 1 && !tool_is_store(operands[0])) {
    dfgnn_status loaded = dfgnn__forests_load(&c->forests, operands[0]);
    return loaded ? tool_fail(loaded) : TOOL_DONE;
  }
  int status = tool_material_gather(&m, settings, count, operands);
  if (!status && !m.records.decisions)
    status = tool_records_decide(&m.records);
  if (!status) {
    dfgnn_status counted = dfgnn__coverage(&c->counted, &c->counted_count,
                                           m.records.decisions, NULL);
    status = counted ? tool_fail(counted) : TOOL_DONE;
  }
  tool_material_free(&m);
  return status;
}

/* Describes the device of a forest, "cuda sm_90 attention.fwd", as far as the
 * legality of families asks for it. */
static dfgnn_status device_of(dfgnn_device_info *device,
                              const dfgnn_forest *forest) {
  char backend[16], arch[32];
  if (sscanf(forest->key, "%15s %31s", backend, arch) != 2)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "a forest is named '%s', expected a backend, an "
                       "architecture and a kind of operator",
                       forest->key);
  if (strcmp(backend, "cpu"))
    return dfgnn__absent_named(device, arch, NULL, 0);
  *device = (dfgnn_device_info)DFGNN_DEVICE_INFO_INIT;
  device->units = 1;
  snprintf(device->backend, sizeof device->backend, "%s", backend);
  snprintf(device->arch, sizeof device->arch, "%s", arch);
  return DFGNN_OK;
}

/* Adds the cells and families that are legal on a device; key as in
 * dfgnn__coverage_legal. */
static dfgnn_status add_legal(coverage *c, const dfgnn_device_info *device,
                              const char *key) {
  dfgnn_forest_cover *legal = NULL, *grown = NULL;
  size_t count = 0;
  dfgnn_status status = dfgnn__coverage_legal(&legal, &count, device, key);
  if (!status) {
    grown = realloc(c->legal, (c->count + count + 1) * sizeof *grown);
    if (!grown)
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  if (grown) {
    memcpy(grown + c->count, legal, count * sizeof *grown);
    c->legal = grown;
    c->count += count;
  }
  free(legal);
  return status;
}

/* Lists what is legal on the GPU that --for names, else of the kinds that the
 * model's forests rank on their devices, else on an sm_90. */
static dfgnn_status list_legal(coverage *c, const char *named) {
  dfgnn_device_info device;
  dfgnn_status status = DFGNN_OK;
  if (named || !c->forests.count) {
    status = dfgnn__absent_named(&device, named ? named : "sm_90", NULL, 0);
    return status ? dfgnn__fail_prefix(status, "--for: ")
                  : add_legal(c, &device, NULL);
  }
  for (size_t i = 0; i < c->forests.count && !status; i++) {
    const dfgnn_forest *forest = &c->forests.forest[i];
    status = device_of(&device, forest);
    if (!status)
      status = add_legal(c, &device, forest->key);
  }
  return status;
}

int tool_model_coverage(const tool_settings *settings, int count,
                        char **operands) {
  coverage c = {0};
  int done = count_coverage(&c, settings, count, operands);
  if (!done) {
    const dfgnn_status status = list_legal(&c, settings->absent);
    if (status == DFGNN_ERROR_INVALID)
      done = tool_usage("%s", dfgnn_last_error());
    else
      done = status ? tool_fail(status) : print_coverage(settings, &c);
  }
  free(c.legal);
  free(c.counted);
  dfgnn__forests_free(&c.forests);
  return done;
}
