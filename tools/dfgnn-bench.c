/* dfgnn-bench.c - times variants and their dispatch */
#include "tools/bench.h"
#include <math.h>

static int command(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  if (!settings->regret && settings->given & (HAS(CELLS) | HAS(ONLY) |
                                              HAS(SURVEY) | HAS(TIME_LIMIT)))
    return tool_usage("--cells, --only, --survey and --time-limit are for "
                      "--regret");
  const tool_column *table =
      settings->dispatch ? bench_dispatch_columns : bench_time_columns;
  int status =
      settings->regret ? TOOL_DONE : tool_columns_check(settings, table);
  if (!status)
    status = tool_graphs_all(&graphs, count, operands);
  tool_catch_interrupts();
  if (!status && settings->regret) {
    status = bench_regret(settings, &graphs);
    tool_graphs_free(&graphs);
    return status;
  }
  bench b = {.settings = settings, .rows = json_array()};
  if (!status)
    status = tool_each(settings, &graphs,
                       settings->dispatch ? bench_dispatch : bench_time, &b);
  tool_graphs_free(&graphs);
  if (status == TOOL_USAGE || (status && !json_array_size(b.rows))) {
    json_decref(b.rows);
    return status;
  }
  tool_say_sources(settings, b.rows, "answer", "tuned choices");
  int printed = tool_report(settings, b.rows, table);
  if (status)
    return status;
  return b.wrong ? TOOL_WRONG : b.failed ? b.failed : printed;
}

static const tool_command bench_command = {
    .name = "",
    .operands = "GRAPH...",
    .summary = "Time variants of attention kernels on graphs",
    .text = "Variants are timed in interleaved rounds, so that drift hits all "
            "alike, after each was compared with a float64 reference. A row "
            "gives the median, its 95 % interval, the ratio to the rule's "
            "choice (paired by rounds), the speed-up over the unfused variant "
            "(the plain row loop where nothing is fused), and two floors at "
            "the copy bandwidth measured in the same run: the compulsory one "
            "(each input read and each output written once), which is a "
            "bound, and the gather one (each gathered row read once an edge), "
            "which caches can beat. Shares are never clipped.",
    .options = HAS_PROBLEM | HAS(EFFORT) | HAS(THREADS) | HAS(STORE) |
               HAS(BUDGET) | HAS(SEED) | HAS(VARIANTS) | HAS(ROUNDS) |
               HAS(CHECK) | HAS(NO_CHECK) | HAS(DISPATCH) | HAS(REGRET) |
               HAS(TIME_LIMIT) | HAS(CELLS) | HAS(ONLY) | HAS(SURVEY) |
               HAS_TABLE,
    .main = command};

static const tool_section sections[] = {
    {"OUTPUT",
     "An object of --json has graph, op, pass, dim, heads, dtype, math, "
     "layout, device, backend, arch, variant, revision, code (files of device "
     "code that a GPU's variant compiles), source, distance, role (tuned, "
     "rule, paper, unfused, smmf-pmf), median_ms, ci_low_ms, ci_high_ms, "
     "samples, clean_samples (not disturbed), ratio (to the rule's choice; "
     "below 1 is faster), prepare_ms (making the plan, and views of the graph "
     "that no variant before it needed; the rule's choice is first), "
     "payback_calls (until that is earned back), answer (the source of the "
     "tuned choice), rel_error, status (ok, wrong, failed, refused), reason, "
     "speedup_unfused, bytes, floor_ms, floor_share, gather_bytes, "
     "gather_floor_ms, gather_share, binds (the larger of the two floors), "
     "workspace_bytes, saved_bytes (kept for a backward pass), graph_bytes "
     "(copies and views of the graph that the variant uses), destinations, "
     "sources, edges, and the environment: units, driver, runtime, version, "
     "commit, copy_gbps.\n"
     "\n"
     "With --dispatch: cached_plan_ns, new_plan_ns, new_graph_ns, "
     "new_graph_ns_edge, execute_ns (host time of an execute call: on a GPU "
     "of the graph itself, on a CPU of a graph with one row and no edge).\n"
     "\n"
     "With --regret each cell of --cells is judged on each graph: what is "
     "chosen untuned, the rule's choice, what is chosen after 50 and 300 ms of "
     "tuning and after a race are timed again beside the ten best variants of "
     "--survey, in interleaved rounds. The table has, by cell, the geometric "
     "mean of their times over the least, and the worst; EXACT counts the "
     "graphs that the stores know, which say nothing of others. Variants of "
     "the survey that are gone since count with the time that they would have "
     "today. An object of --json has cell, best, best_ms, variants (of the "
     "survey), gone (of its ten best), source (of the choice), the names "
     "choice, "
     "rule, tuned_50ms, tuned_300ms and raced, and their times over the least "
     "as choice_regret and so on; one for each cell follows, with graphs, "
     "choice_mean, choice_worst and so on.\n"},
    {"EXAMPLES", "The tuned choice against the baselines:\n"
                 "    dfgnn-bench pubmed.npz --op gt --dim 128\n"
                 "\n"
                 "Every variant of one algorithm, as JSON:\n"
                 "    dfgnn-bench pubmed.npz --variants '*online*' --json\n"
                 "\n"
                 "The cost of a call on the host:\n"
                 "    dfgnn-bench pubmed.npz --dispatch\n"},
    {NULL, NULL}};

static const tool_command *const commands[] = {&bench_command, NULL};

static const tool_program program = {
    "dfgnn-bench", "time attention kernels and their dispatch",
    "A GRAPH is a file (Matrix Market, SciPy CSR .npz, METIS, SNAP or OGB edge "
    "list), a directory of such files, a quoted glob, or the specification of "
    "a generator; see dfgnn-graph(1).",
    commands, sections};

TOOL_MAIN(bench)(int argc, char **argv) {
  return tool_main(&program, argc, argv);
}
