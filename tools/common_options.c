/* common_options.c - the option table of all tools */
#include "lib/base/error.h"
#include "tools/common.h"
#include "tools/option_values.h"
#include <stddef.h>

enum {
  MOST_THREADS = 4096, /* as dfgnn_options says */
  MOST_HEADS = 65535,  /* as dfgnn_problem says */
  MOST_DIM = 65536,
  MOST_COUNT = 1 << 30
};

#define FIELD(member) .field = offsetof(tool_settings, member)
#define LIST_OF(member, parser)                                                \
  .set = option_list, FIELD(member), .item = option_##parser,                  \
  .size = sizeof((tool_settings *)0)->member[0],                               \
  .count = offsetof(tool_settings, member##_count)
#define ENUMERATION_OF(member, NAMES)                                          \
  LIST_OF(member, enumeration), .names = DFGNN_NAMES_##NAMES

const tool_option tool_options[OPTION_COUNT] = {
    [OPTION_OP] = {.name = "op",
                   .argument = "LIST",
                   .preset = "gt",
                   .help = "operators: %",
                   ENUMERATION_OF(op, OP)},
    [OPTION_PASS] = {.name = "pass",
                     .argument = "LIST",
                     .preset = "forward",
                     .help = "passes: %",
                     ENUMERATION_OF(pass, PASS)},
    [OPTION_DIM] = {.name = "dim",
                    .argument = "LIST",
                    .preset = "64",
                    .help = "features per head",
                    LIST_OF(dim, size),
                    .most = MOST_DIM},
    [OPTION_HEADS] = {.name = "heads",
                      .argument = "LIST",
                      .preset = "1",
                      .help = "attention heads",
                      LIST_OF(heads, size),
                      .most = MOST_HEADS},
    [OPTION_DTYPE] = {.name = "dtype",
                      .argument = "LIST",
                      .preset = "f32",
                      .help = "storage of the features: %",
                      ENUMERATION_OF(dtype, DTYPE)},
    [OPTION_MATH] = {.name = "math",
                     .argument = "LIST",
                     .preset = "f32",
                     .help = "exactness of f32 products: %",
                     ENUMERATION_OF(math, MATH)},
    [OPTION_LAYOUT] = {.name = "layout",
                       .argument = "LIST",
                       .preset = "nhd",
                       .help = "order of dimensions: % for [nodes, heads, dim] "
                               "and [nodes, dim, heads]",
                       ENUMERATION_OF(layout, LAYOUT)},
    [OPTION_DEVICE] =
        {.name = "device",
         .argument = "LIST",
         .preset = "auto",
         .help = "auto (a GPU if there is one), cpu, cuda, cuda:N or all",
         .set = option_device,
         FIELD(device)},
    [OPTION_COLD] = {.name = "cold",
                     .help = "measure with flushed caches, and choose by such "
                             "measurements",
                     .set = option_flag,
                     FIELD(cold),
                     .flag = 1},
    [OPTION_NO_DETERMINISTIC] =
        {.name = "no-deterministic",
         .help = "also consider variants whose results differ "
                 "in the last bits from run to run",
         .set = option_flag,
         FIELD(deterministic),
         .flag = 0},
    [OPTION_WEIGHTS] = {.name = "weights",
                        .help = "write the attention weights [E,H] too",
                        .set = option_flag,
                        FIELD(weights),
                        .flag = 1},
    [OPTION_BIAS] = {.name = "bias",
                     .help = "add a bias [E,H] to the attention scores",
                     .set = option_flag,
                     FIELD(bias),
                     .flag = 1},
    [OPTION_DROPOUT] = {.name = "dropout",
                        .help = "drop attention weights, as in training; the "
                                "probability does not matter",
                        .set = option_flag,
                        FIELD(dropout),
                        .flag = 1},
    [OPTION_EDGE_DIM] = {.name = "edge-dim",
                         .argument = "LIST",
                         .preset = "0",
                         .help =
                             "features per edge; projected: they are [E,H,D] "
                             "already, of gat a scalar [E,H]; 0: none",
                         LIST_OF(edge_dim, edge_dim)},
    [OPTION_EDGE_USE] = {.name = "edge-use",
                         .argument = "LIST",
                         .preset = "both",
                         .help = "what gt adds edge features to: %",
                         ENUMERATION_OF(edge_use, EDGE_USE)},
    [OPTION_MESSAGE] = {.name = "message",
                        .argument = "LIST",
                        .preset = "copy",
                        .help = "what an edge carries in spmm and reduce: %",
                        ENUMERATION_OF(message, MESSAGE)},
    [OPTION_PROGRAM] =
        {.name = "program",
         .argument = "FILE",
         .help =
             "files of edge programs, dfgnn-program(5), with commas between "
             "them, in place of --op; the size H has the value of --heads, "
             "other names that of --dim",
         .set = option_text,
         FIELD(program)},
    [OPTION_EFFORT] = {.name = "effort",
                       .argument = "NAME",
                       .help =
                           "stored, estimate, measure, race or paper (default "
                           "DFGNN_EFFORT, else estimate)",
                       .set = option_effort,
                       FIELD(effort)},
    [OPTION_THREADS] = {.name = "threads",
                        .argument = "N",
                        .help =
                            "threads of the CPU backend (default: what OpenMP "
                            "uses)",
                        .set = option_int,
                        FIELD(threads),
                        .least = 1,
                        .most = MOST_THREADS},
    [OPTION_STORE] =
        {.name = "store",
         .argument = "FILE",
         .help = "the one store read and written; without it the layers "
                 "are read and the user's store is written",
         .set = option_text,
         FIELD(store)},
    [OPTION_BUDGET] = {.name = "budget",
                       .argument = "TIME",
                       .preset = "10s",
                       .help =
                           "wall time of one problem with its compilation, "
                           "such as 10s, 500ms or 2m: what would "
                           "be chosen without the run is measured whatever it "
                           "takes; a run has one for each operator, pass, "
                           "width, head count and type of each graph: see "
                           "--time-limit",
                       .set = option_seconds,
                       FIELD(budget_s)},
    [OPTION_TIME_LIMIT] =
        {.name = "time-limit",
         .argument = "TIME",
         .help =
             "wall time of the whole run; the next run measures the problems "
             "that are missing then",
         .set = option_seconds,
         FIELD(time_limit_s)},
    [OPTION_CELLS] =
        {.name = "cells",
         .argument = "FILE",
         .help = "a table of problems: lines with a name and the options of a "
                 "problem, such as 'gat8x8 --op gat --heads 8 --dim 8'",
         .set = option_text,
         FIELD(cells)},
    [OPTION_ONLY] = {.name = "only",
                     .argument = "LIST",
                     .help = "these cells of the table alone",
                     .set = option_text,
                     FIELD(only)},
    [OPTION_SURVEY] = {.name = "survey",
                       .argument = "FILE",
                       .help = "what 'dfgnn-tune survey' wrote, of which the "
                               "best are timed again",
                       .set = option_text,
                       FIELD(survey)},
    [OPTION_STATUS] = {.name = "status",
                       .help = "say what is measured and what is missing",
                       .set = option_flag,
                       FIELD(status),
                       .flag = 1},
    [OPTION_SEED] = {.name = "seed",
                     .argument = "N",
                     .preset = "1",
                     .help = "seed of the input values and of the order of "
                             "measurements",
                     .set = option_seed,
                     FIELD(seed)},
    [OPTION_JOB] = {.name = "job",
                    .argument = "FILE",
                    .help = "a job file, dfgnn-job(5); options given here "
                            "override it",
                    .set = option_text,
                    FIELD(job)},
    [OPTION_DRY_RUN] =
        {.name = "dry-run",
         .letter = 'n',
         .help = "change nothing, and show what would be measured, with an "
                 "estimate of the time, or removed",
         .set = option_flag,
         FIELD(dry_run),
         .flag = 1},
    [OPTION_EXHAUSTIVE] = {.name = "exhaustive",
                           .help = "measure every candidate to the end",
                           .set = option_flag,
                           FIELD(exhaustive),
                           .flag = 1},
    [OPTION_AGAIN] =
        {.name = "again",
         .argument = "WHAT",
         .help =
             "measure again what is stored: noisy, those variants that were "
             "measured once, under a load or with a wide interval, and are "
             "chosen or might be; or all",
         .set = option_again,
         FIELD(remeasure)},
    [OPTION_ANONYMOUS] =
        {.name = "anonymous",
         .help = "store neither the names of graphs and families nor "
                 "of the host",
         .set = option_flag,
         FIELD(anonymous),
         .flag = 1},
    [OPTION_VARIANTS] = {.name = "variants",
                         .argument = "LIST",
                         .help =
                             "all, tuned, rule, paper, unfused, smmf-pmf (the "
                             "better of the two), or names; * matches any text",
                         .set = option_text,
                         FIELD(variants)},
    [OPTION_ROUNDS] =
        {.name = "rounds",
         .argument = "N",
         .help = "interleaved rounds of samples (default: at most 15, "
                 "as the budget allows; with --regret 9)",
         .set = option_int,
         FIELD(rounds),
         .least = 2,
         .most = MOST_COUNT},
    [OPTION_CHECK] = {.name = "check",
                      .help = "compare each variant with the float64 "
                              "reference first",
                      .set = option_flag,
                      FIELD(no_check),
                      .flag = 0},
    [OPTION_NO_CHECK] = {.name = "no-check",
                         .help =
                             "do not compare the variants with the reference",
                         .set = option_flag,
                         FIELD(no_check),
                         .flag = 1},
    [OPTION_DISPATCH] =
        {.name = "dispatch",
         .help = "measure the cost of dispatch instead of the kernels",
         .set = option_flag,
         FIELD(dispatch),
         .flag = 1},
    [OPTION_REGRET] =
        {.name = "regret",
         .help = "measure instead how much slower choices are than the best "
                 "of all variants: needs --cells and --survey",
         .set = option_flag,
         FIELD(regret),
         .flag = 1},
    [OPTION_ALL] = {.name = "all",
                    .letter = 'a',
                    .help = "every variant, not the best alone",
                    .set = option_flag,
                    FIELD(all),
                    .flag = 1},
    [OPTION_BEST] = {.name = "best",
                     .argument = "N",
                     .help =
                         "only rows of the N fastest variants of each problem, "
                         "of the members of its portfolio and of the variants "
                         "they were compared with",
                     .set = option_int,
                     FIELD(best),
                     .least = 1,
                     .most = MOST_COUNT},
    [OPTION_FROM_ARCH] = {.name = "from-arch",
                          .argument = "LIST",
                          .help =
                              "only rows of these architectures, such as sm_90",
                          .set = option_text,
                          FIELD(from_arch)},
    [OPTION_ARCH] = {.name = "arch",
                     .argument = "LIST",
                     .help =
                         "architectures to compile for, such as sm_80,sm_90",
                     .set = option_text,
                     FIELD(arch)},
    [OPTION_FOR] = {.name = "for",
                    .argument = "ARCH[,MODEL]",
                    .help =
                        "a GPU that is not here, such as sm_90 or sm_90,H200, "
                        "by the stores and portfolios in use",
                    .set = option_text,
                    FIELD(absent)},
    [OPTION_PACK] = {.name = "pack",
                     .argument = "FILE",
                     .help = "write the compiled kernels to a pack as well",
                     .set = option_text,
                     FIELD(pack)},
    [OPTION_KERNELS] = {.name = "kernels",
                        .help =
                            "the cache of compiled kernels instead of a store",
                        .set = option_flag,
                        FIELD(kernels),
                        .flag = 1},
    [OPTION_SINCE] =
        {.name = "since",
         .argument = "TIME",
         .help = "only rows measured since a date such as 2026-11-30 (in "
                 "UTC), or in the last 12h or 30d",
         .set = option_since,
         FIELD(since)},
    [OPTION_SKIP_INVALID] =
        {.name = "skip-invalid",
         .help = "skip lines that are no measurement, instead of "
                 "refusing the file",
         .set = option_flag,
         FIELD(skip_invalid),
         .flag = 1},
    [OPTION_KEY] = {.name = "key",
                    .argument = "FILE",
                    .help =
                        "the secret key that signs; to verify, the public key, "
                        "or a directory of *.pub files, one of which must have "
                        "signed",
                    .set = option_text,
                    FIELD(key)},
    [OPTION_GENERATE_KEY] =
        {.name = "generate-key",
         .argument = "NAME",
         .help = "make the keys NAME.key, which signs and is to "
                 "be kept secret, and NAME.pub",
         .set = option_text,
         FIELD(generate_key)},
    [OPTION_SHARD] =
        {.name = "shard",
         .argument = "I/N",
         .help = "measure only every N-th problem, from the I-th on: "
                 "the shards 1/N to N/N (or 0/N to N-1/N) together are "
                 "all problems",
         .set = option_shard},
    [OPTION_REMOVE] = {.name = "remove",
                       .help = "remove what is named instead",
                       .set = option_flag,
                       FIELD(remove),
                       .flag = 1},
    [OPTION_METHOD] = {.name = "method",
                       .argument = "LIST",
                       .preset = "community",
                       .help = "degree, rcm, metis, community or all",
                       .set = option_orders,
                       FIELD(orders)},
    [OPTION_MAP] = {.name = "map",
                    .argument = "FILE",
                    .help =
                        "write the old numbers of nodes and edges to FILE, an "
                        ".npz of arrays rows, columns and edges",
                    .set = option_text,
                    FIELD(map)},
    [OPTION_EDGE_ATTR] =
        {.name = "edge-attr",
         .argument = "FILE",
         .help = "write edge_attr [edges, 3] to FILE, an .npz: the "
                 "length of an edge, and the direction of its "
                 "source to the east and to the north",
         .set = option_text,
         FIELD(edge_attr)},
    [OPTION_BY] =
        {.name = "by",
         .argument = "METHOD",
         .help = "metis, range, or a file with the part of each node, one "
                 "number per line, as gpmetis writes it (default metis)",
         .set = option_text,
         FIELD(by)},
    [OPTION_RECORDED] =
        {.name = "recorded",
         .argument = "FOLDER",
         .help = "the problems that programs met: what "
                 "dfgnn.record(model, *inputs).save(FOLDER) of Python or "
                 "processes with DFGNN_RECORD=FOLDER wrote",
         .set = option_text,
         FIELD(recorded)},
    [OPTION_LOCK] = {.name = "lock",
                     .argument = "FILE",
                     .help =
                         "write the choices to FILE, and print their digest",
                     .set = option_text,
                     FIELD(lock)},
    [OPTION_LOCKED] = {.name = "check",
                       .argument = "FILE",
                       .help = "compare the choices with those of a FILE that "
                               "--lock wrote",
                       .set = option_text,
                       FIELD(locked)},
    [OPTION_OUTPUT] = {.name = "output",
                       .letter = 'o',
                       .argument = "FILE",
                       .help = "write to FILE",
                       .set = option_text,
                       FIELD(output)},
    [OPTION_JSON] = {.name = "json",
                     .help = "print one flat JSON array of objects",
                     .set = option_flag,
                     FIELD(json),
                     .flag = 1},
    [OPTION_WIDE] = {.name = "wide",
                     .help = "on a terminal: every column with whole names, "
                             "however wide, as a pipe gets them",
                     .set = option_flag,
                     FIELD(wide),
                     .flag = 1},
    [OPTION_COLUMNS] = {.name = "columns",
                        .argument = "LIST",
                        .help =
                            "these columns of the table, by their JSON names",
                        .set = option_text,
                        FIELD(columns)},
    [OPTION_QUIET] = {.name = "quiet",
                      .letter = 'q',
                      .help = "show no progress",
                      .set = option_flag,
                      FIELD(quiet),
                      .flag = 1},
    [OPTION_HELP] = {.name = "help", .letter = 'h', .help = "print this help"},
    [OPTION_VERSION] = {.name = "version",
                        .letter = 'V',
                        .help = "print the version"},
};

dfgnn_status tool_set(tool_settings *settings, int number, const char *value) {
  const tool_option *option = &tool_options[number];
  dfgnn_status status = DFGNN_OK;
  if (option->argument && !*value)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "--%s: empty, expected %s",
                       option->name, option->argument);
  if (option->set)
    status = option->set(settings, option, value);
  if (status)
    dfgnn__fail_prefix(status, "--%s: ", option->name);
  return status;
}
