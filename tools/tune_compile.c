/* tune_compile.c - dfgnn-tune compile: compiles GPU kernels before their first
 * use */
#include <stdlib.h>
#include <string.h>

#include "dfgnn_graph.h"
#include "kernels/engine/cache.h"
#include "lib/absent.h"
#include "lib/base/error.h"
#include "lib/collect.h"
#include "lib/key.h"
#include "lib/plan.h"
#include "select/select.h"
#include "tools/cells.h"
#include "tools/records.h"
#include "tools/report.h"
#include "tools/tune.h"

enum { MOST_ARCHITECTURES = 16 };

/* One architecture with the choices for it and their programs. */
typedef struct target {
  char name[16]; /* "sm_90" */
  dfgnn_device_info device;
  dfgnn_table *table;
  dfgnn_programs *programs;
  dfgnn_engine *engine;
  size_t choices, failed;
  size_t done; /* programs that are compiled or were in the cache */
  double start;
} target;

typedef struct compile {
  const tool_settings *settings;
  tool_records records;
  target target[MOST_ARCHITECTURES];
  int targets;
  target *current; /* the target that is being compiled */
  atomic_int stop; /* the run was interrupted */
  dfgnn_pack_writer *pack;
  dfgnn_status pack_status;
  char pack_message[512];
} compile;

/* ---- targets ------------------------------------------------------------- */

/* An architecture that is newer than the compiler gets PTX of an older one,
 * which a program on such a GPU would look for under another name. */
static int check_known(const compile *c, const char *arch) {
  const dfgnn_compiler_info *compiler = dfgnn__compiler();
  char name[16];
  if (!c->settings->pack)
    return TOOL_DONE;
  for (int i = 0; i < compiler->architecture_count; i++) {
    snprintf(name, sizeof name, "sm_%d", compiler->architectures[i]);
    if (!strcmp(name, arch))
      return TOOL_DONE;
  }
  return tool_error("%s: NVRTC %d.%d does not know it, so it cannot go into a "
                    "pack; dfgnn-tune info lists what it compiles for",
                    arch, compiler->major, compiler->minor);
}

static int add_target(compile *c, const char *arch) {
  for (int i = 0; i < c->targets; i++)
    if (!strcmp(c->target[i].name, arch))
      return TOOL_DONE;
  if (c->targets == MOST_ARCHITECTURES)
    return tool_usage("more than %d architectures", MOST_ARCHITECTURES);
  target *t = &c->target[c->targets];
  snprintf(t->name, sizeof t->name, "%s", arch);
  dfgnn__absent_device(&t->device, arch);
  dfgnn_status status = dfgnn__engine_offline(&t->engine, arch);
  if (!status)
    status = dfgnn__programs_create(&t->programs);
  if (!status)
    status = dfgnn__collect_graph_programs(t->programs);
  if (!status)
    status = dfgnn__table_create(&t->table, NULL, &t->device, c->records.row,
                                 c->records.count, c->records.count);
  c->targets++;
  return status ? tool_fail(status) : check_known(c, arch);
}

/* Targets are those of --arch, else the GPU of this machine, else the
 * architectures that the stores have rows of. */
static int find_targets(compile *c) {
  dfgnn_context *ctx = NULL;
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  int status = TOOL_DONE;
  if (c->settings->arch) {
    char list[256], *rest = list, *item;
    snprintf(list, sizeof list, "%s", c->settings->arch);
    while (!status && (item = strsep(&rest, ",")))
      status = add_target(c, item);
    return status;
  }
  options.device = "cuda";
  options.store = "";
  if (!dfgnn_context_create(&ctx, &options)) {
    status = add_target(c, ctx->info.arch);
    dfgnn_context_destroy(ctx);
    return status;
  }
  for (size_t i = 0; !status && i < c->records.count; i++)
    if (!strcmp(c->records.row[i].backend, "cuda"))
      status = add_target(c, c->records.row[i].arch);
  if (!status && !c->targets)
    status = tool_usage("there is no GPU and the stores know none: name "
                        "architectures with --arch, such as --arch sm_90");
  return status;
}

/* ---- choices ------------------------------------------------------------- */

static dfgnn_status add_variant(target *t, const dfgnn_variant *variant,
                                const dfgnn_setting *setting) {
  t->choices++;
  return dfgnn__collect_programs(t->programs, variant, setting, NULL, 1);
}

/* Adds the choice that a context on such a device would make and that of the
 * rule; of a graph that is named the whole portfolio; or all variants. */
static dfgnn_status add_problem(compile *c, target *t,
                                const dfgnn_problem *problem,
                                const dfgnn_matrix *matrix,
                                const dfgnn_signature *signature, int named) {
  const dfgnn_query query = {.setting = {.problem = problem,
                                         .matrix = matrix,
                                         .signature = signature,
                                         .device = &t->device},
                             .family = ""};
  dfgnn_choice choice = {0};
  dfgnn_status status = DFGNN_OK;
  if (c->settings->all) {
    for (size_t i = 0; !status && i < dfgnn__variant_count(); i++)
      if (!dfgnn__variant_refusal(dfgnn__variant(i), &query.setting))
        status = add_variant(t, dfgnn__variant(i), &query.setting);
    return status;
  }
  dfgnn__select(&choice, t->table, &query);
  if (choice.variant)
    status = add_variant(t, choice.variant, &query.setting);
  dfgnn__rule_choice(&choice, t->table, &query);
  if (!status && choice.variant)
    status = add_variant(t, choice.variant, &query.setting);
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const size_t members =
      named ? dfgnn__members(member, NULL, t->table, &query) : 0;
  for (size_t i = 0; i < members && !status; i++)
    status = add_variant(t, member[i], &query.setting);
  return status;
}

static dfgnn_matrix matrix_of(const dfgnn_signature *s) {
  return (dfgnn_matrix){.destinations = s->destinations,
                        .sources = s->sources,
                        .edges = s->edges,
                        .max_degree = s->max_degree,
                        .offsets64 = s->edges > INT32_MAX};
}

/* Adds every problem that the stores decide and the options want. */
static int add_decisions(compile *c) {
  const dfgnn_decisions *decisions = c->records.decisions;
  for (size_t i = 0; i < decisions->count; i++) {
    const dfgnn_measurement *row = &decisions->decision[i].problem;
    const dfgnn_matrix matrix = matrix_of(&row->signature);
    dfgnn_problem given, problem;
    if (strcmp(row->backend, "cuda") || !tool_row_wanted(c->settings, row) ||
        dfgnn__key_problem(&given, row) ||
        dfgnn__problem_complete(&problem, &given))
      continue;
    for (int k = 0; k < c->targets; k++) {
      dfgnn_status status =
          add_problem(c, &c->target[k], &problem, &matrix, &row->signature, 0);
      if (status)
        return tool_fail(status);
    }
  }
  return TOOL_DONE;
}

static int add_case(void *data, const tool_case *each) {
  compile *c = data;
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_problem problem;
  dfgnn_status status = dfgnn_graph_signature(&signature, each->graph);
  if (!status)
    status = dfgnn__problem_complete(&problem, each->problem);
  const dfgnn_matrix matrix = matrix_of(&signature);
  for (int k = 0; !status && k < c->targets; k++)
    status = add_problem(c, &c->target[k], &problem, &matrix, &signature, 1);
  return status ? tool_fail(status) : TOOL_DONE;
}

/* ---- compilation --------------------------------------------------------- */

static void keep_image(void *data, const dfgnn_program *program,
                       const dfgnn_keys_of *keys, const dfgnn_image *image,
                       const char *target_name) {
  compile *c = data;
  target *t = c->current;
  const size_t count = dfgnn__programs_count(t->programs);
  const double seconds = tool_now() - t->start;
  char text[512];
  dfgnn__program_text(text, sizeof text, program);
  t->done++;
  if (tool_interrupted())
    atomic_store(&c->stop, 1);
  tool_progress(c->settings, (double)t->done / (double)count,
                seconds * (double)(count - t->done) / (double)t->done,
                "%s: %zu of %zu programs", t->name, t->done, count);
  if (!c->pack || c->pack_status)
    return;
  c->pack_status = dfgnn__pack_add(c->pack, keys, image, target_name, text);
  if (c->pack_status)
    snprintf(c->pack_message, sizeof c->pack_message, "%s", dfgnn_last_error());
}

static void compile_target(compile *c, target *t, json_t *rows) {
  const size_t count = dfgnn__programs_count(t->programs);
  json_t *row = json_object();
  t->start = tool_now();
  c->current = t;
  dfgnn__engine_keep_images(t->engine, keep_image, c);
  dfgnn_status status = dfgnn__engine_prepare(t->engine, t->programs,
                                              c->settings->threads, &c->stop);
  tool_progress_end();
  if (status)
    (void)tool_fail(status);
  for (size_t i = 0; i < count; i++) {
    dfgnn_kernel_info info;
    t->failed += !dfgnn__engine_kernel_info(
        &info, t->engine, dfgnn__programs_get(t->programs, i));
  }
  tool_put(row, "arch", t->name);
  tool_put_count(row, "choices", (int64_t)t->choices);
  tool_put_count(row, "programs", (int64_t)count);
  tool_put_count(row, "failed", (int64_t)t->failed);
  tool_put_number(row, "seconds", tool_now() - t->start);
  json_array_append_new(rows, row);
}

static int write_pack(compile *c, int keep, json_t *rows) {
  dfgnn_cache_info info = {0};
  dfgnn_status status = dfgnn__pack_close(c->pack, keep, &info);
  c->pack = NULL;
  if (!keep)
    return TOOL_DONE;
  if (status)
    return tool_fail(status);
  json_t *row = json_object();
  tool_put(row, "pack", c->settings->pack);
  tool_put_count(row, "programs", info.entries);
  tool_put_number(row, "bytes", (double)info.bytes);
  json_array_append_new(rows, row);
  return TOOL_DONE;
}

/* The cache has to keep a kernel that is not packed. */
static int check_cache(const compile *c) {
  dfgnn_cache_info info;
  dfgnn__cache_describe(&info);
  if (c->settings->pack || (!*info.problem && !info.lost))
    return TOOL_DONE;
  if (*info.problem)
    return tool_error("%s: the kernels cannot be kept: %s", info.path,
                      info.problem);
  return tool_error("%s: %lld kernels could not be kept; is the disk full?",
                    info.path, (long long)info.lost);
}

static int compile_all(compile *c) {
  static const tool_column columns[] = {
      {"arch", "ARCH", TOOL_TEXT},        {"pack", "PACK", TOOL_TEXT},
      {"choices", "CHOICES", TOOL_COUNT}, {"programs", "PROGRAMS", TOOL_COUNT},
      {"failed", "FAILED", TOOL_COUNT},   {"seconds", "TIME", TOOL_SECONDS},
      {"bytes", "SIZE", TOOL_BYTES},      {NULL, NULL, 0}};
  json_t *rows = json_array();
  size_t failed = 0;
  int status = TOOL_DONE;
  if (check_cache(c)) {
    json_decref(rows);
    return TOOL_FAILED;
  }
  if (c->settings->pack && dfgnn__pack_create(&c->pack, c->settings->pack)) {
    json_decref(rows);
    return tool_fail(DFGNN_ERROR_IO);
  }
  for (int k = 0; k < c->targets && !tool_interrupted(); k++) {
    compile_target(c, &c->target[k], rows);
    failed += c->target[k].failed;
  }
  if (c->pack_status) {
    dfgnn__fail(c->pack_status, "%s", c->pack_message);
    status = tool_fail(c->pack_status);
  }
  if (c->pack) {
    int written = write_pack(c, !status && !tool_interrupted(), rows);
    status = status ? status : written;
  }
  int printed = tool_report(c->settings, rows, columns);
  if (!status)
    status = check_cache(c);
  return tool_interrupted() ? TOOL_INTERRUPTED
         : status           ? status
         : failed           ? TOOL_FAILED
                            : printed;
}

/* The kernels that build graphs are of no use alone. */
static int check_choices(const compile *c, int graphs) {
  size_t choices = 0;
  for (int k = 0; k < c->targets; k++)
    choices += c->target[k].choices;
  if (choices)
    return TOOL_DONE;
  if (graphs)
    return tool_error("no CUDA variant computes what the options ask for");
  return tool_error("no store has measured what the options ask for on a GPU: "
                    "name graphs to compile for");
}

static void release(compile *c) {
  for (int k = 0; k < c->targets; k++) {
    dfgnn__table_destroy(c->target[k].table);
    dfgnn__programs_destroy(c->target[k].programs);
    dfgnn__engine_close(c->target[k].engine);
  }
  tool_records_free(&c->records);
}

/* Adds the problems of graphs, or without graphs those of the stores' rows. */
static int add_problems(compile *c, tool_graphs *graphs) {
  tool_settings on_cpu = *c->settings;
  tool_cells cells = {0};
  int status = TOOL_DONE;
  on_cpu.device = "cpu"; /* only the signatures of graphs are needed */
  if (on_cpu.cells)
    status = tool_cells_read(&cells, &on_cpu, on_cpu.cells, on_cpu.only);
  if (!status && on_cpu.cells)
    status = tool_cells_ask(graphs, &cells);
  if (!status && graphs->count)
    status = tool_each(&on_cpu, graphs, add_case, c);
  if (!status && !graphs->count)
    status = add_decisions(c);
  tool_cells_free(&cells);
  return status;
}

static int command(tool_settings *settings, int count, char **operands) {
  compile c = {.settings = settings};
  tool_graphs graphs = {0};
  tool_catch_interrupts();
  int status = TOOL_DONE;
  DFGNN_GO(tool_records_load(&c.records, settings, 0, NULL));
  DFGNN_GO(find_targets(&c));
  if (count)
    DFGNN_GO(tool_graphs_all(&graphs, count, operands));
  DFGNN_GO(add_problems(&c, &graphs));
  DFGNN_GO(check_choices(&c, count));
  status = compile_all(&c);
out:
  tool_graphs_free(&graphs);
  release(&c);
  return status;
}

const tool_command tune_compile = {
    .name = "compile",
    .operands = "[GRAPH...]",
    .summary = "Compile GPU kernels ahead of their first use",
    .text =
        "Compiles the kernels that calls on a GPU will launch, for any "
        "architecture, without a GPU: those that build graphs, and for each "
        "graph and problem of the options the members of its portfolio and the "
        "variant that a program would choose, or every variant with --all. "
        "With --cells the problems of graphs are those of a table. Without "
        "graphs it does so for every problem that the stores have measured on "
        "a GPU, restricted by the problem options.\n"
        "\n"
        "Compiled kernels go to the user's cache; --threads says how many are "
        "compiled at once (default: as many as there are cores). --pack "
        "writes them to a file as well, for machines without a compiler: name "
        "it in DFGNN_KERNEL_PACK, or install it as a *.pack file where the "
        "package's store is. Without --arch it compiles for the GPU of this "
        "machine, else for the architectures that the stores have rows of.",
    .options = HAS_PROBLEM | HAS(ARCH) | HAS(PACK) | HAS(ALL) | HAS(THREADS) |
               HAS(STORE) | HAS(CELLS) | HAS(ONLY) | HAS_TABLE,
    .main = command};
