/* tune_report.c - dfgnn-tune report: a page about the measurements */
#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "tools/inputs.h"
#include "tools/report/report.h"
#include "tools/tune.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#if __has_include("tools/commit.h")
#include "tools/commit.h"
#else
#define DFGNN_COMMIT ""
#endif

/* Drops the files of folders that are no graphs; fails if nothing is left. */
static int pass_over(tool_graphs *graphs) {
  size_t kept = 0;
  for (size_t i = 0; i < graphs->count; i++) {
    dfgnn_csr *csr = NULL;
    if (graphs->listed[i] && dfgnn__csr_open(&csr, graphs->name[i])) {
      tool_fail(DFGNN_ERROR_FORMAT);
      free(graphs->name[i]);
      continue;
    }
    dfgnn_csr_free(csr);
    graphs->listed[kept] = graphs->listed[i];
    graphs->name[kept++] = graphs->name[i];
  }
  const int none = graphs->count && !kept;
  graphs->count = kept;
  return none ? TOOL_FAILED : TOOL_DONE;
}

/* The command line without --output, so that the same rows give the same bytes.
 */
static char *command_of(const tool_settings *settings, int count,
                        char **operands) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    return NULL;
  fprintf(out, "%s", tool_name);
  if (settings->store)
    fprintf(out, " --store %s", settings->store);
  if (settings->against)
    fprintf(out, " --against %s", settings->against);
  if (settings->copy_gbps > 0)
    fprintf(out, " --copy-gbps %g", settings->copy_gbps);
  if (settings->all)
    fprintf(out, " --all");
  for (int i = 0; i < count; i++)
    fprintf(out, " %s", operands[i]);
  fclose(out);
  return text;
}

static int print(const dfgnn_page *page) {
  if (fwrite(page->text, 1, page->size, stdout) == page->size &&
      !fflush(stdout))
    return TOOL_DONE;
  return tool_error("cannot write to standard output: %s", strerror(errno));
}

static int write_page(const tool_settings *settings, const tool_graphs *graphs,
                      const char *command) {
  dfgnn_report_options options = DFGNN_REPORT_OPTIONS_INIT;
  dfgnn_page page = {0};
  const char **names = calloc(graphs->count + 1, sizeof *names);
  if (!names)
    return tool_error("out of memory");
  for (size_t i = 0; i < graphs->count; i++)
    names[i] = graphs->name[i];
  options.store = settings->store;
  options.against = settings->against;
  options.graphs = names;
  options.command = command;
  options.commit = DFGNN_COMMIT;
  options.copy_gbps = settings->copy_gbps;
  options.all = settings->all;
  dfgnn_status made = dfgnn__report_files(&page, &options);
  if (!made && settings->output)
    made = dfgnn__report_write(settings->output, &page);
  int status = made               ? tool_fail(made)
               : settings->output ? TOOL_DONE
                                  : print(&page);
  if (!status && settings->output)
    tool_note(settings, "%s has %.2f MB", settings->output,
              1e-6 * (double)page.size);
  dfgnn__page_free(&page);
  free(names);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  char *made_by = command_of(settings, count, operands);
  int status = count ? tool_graphs_all(&graphs, count, operands) : TOOL_DONE;
  if (!status)
    status = pass_over(&graphs);
  if (!status)
    status = write_page(settings, &graphs, made_by);
  tool_graphs_free(&graphs);
  free(made_by);
  return status;
}

const tool_command tune_report = {
    .name = "report",
    .operands = "[GRAPH...]",
    .least = 0,
    .most = -1,
    .summary = "Make a page of HTML about the measurements",
    .text =
        "Makes one file that needs no network, drawn by its script: how much "
        "faster tuned choices are and what to tune next, a map of graphs and "
        "problems with the gain of tuning, the variants of "
        "each problem with their intervals, floors and predicted times, the "
        "effect of each parameter, the graphs and those near them, the cost "
        "of tuning, and the loss that there would have been on graphs without "
        "measurements. A GRAPH adds the degrees of its sources. --against "
        "compares with another store: what became faster or slower, and which "
        "winners changed. The same rows give the same bytes; the page is "
        "written whole or not at all.",
    .options = HAS(STORE) | HAS(AGAINST) | HAS(COPY_GBPS) | HAS(ALL) |
               HAS(OUTPUT) | HAS_ALWAYS,
    .main = command};
