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

/* Rows of names of an enumeration, of texts kept as they are, and of flags:
 * what the field of the settings becomes. */
#define ENUMERATION(NAME, of, member, given, text)                             \
  [OPTION_##NAME] = {.name = of,                                               \
                     .argument = "LIST",                                       \
                     .preset = given,                                          \
                     .help = text,                                             \
                     LIST_OF(member, enumeration),                             \
                     .names = DFGNN_NAMES_##NAME}
#define TEXT(NAME, of, member, operand, text, ...)                             \
  [OPTION_##NAME] = {.name = of,                                               \
                     .argument = operand,                                      \
                     .help = text,                                             \
                     .set = option_text,                                       \
                     FIELD(member),                                            \
                     ##__VA_ARGS__}
#define FLAG(NAME, of, member, value, text, ...)                               \
  [OPTION_##NAME] = {.name = of,                                               \
                     .help = text,                                             \
                     .set = option_flag,                                       \
                     FIELD(member),                                            \
                     .flag = value,                                            \
                     ##__VA_ARGS__}

const tool_option tool_options[OPTION_COUNT] = {
    [OPTION_OP] = {.name = "op",
                   .argument = "LIST",
                   .preset = "gt",
                   .help = "operators: %; those of which the library has a "
                           "formula alone are as --program is",
                   LIST_OF(op, op),
                   .names = DFGNN_NAMES_OP},
    ENUMERATION(PASS, "pass", pass, "forward", "passes: %"),
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
    ENUMERATION(DTYPE, "dtype", dtype, "f32", "storage of the features: %"),
    ENUMERATION(MATH, "math", math, "f32", "exactness of f32 products: %"),
    ENUMERATION(LAYOUT, "layout", layout, "nhd",
                "order of dimensions: % for [nodes, heads, dim] and [nodes, "
                "dim, heads]"),
    [OPTION_DEVICE] =
        {.name = "device",
         .argument = "LIST",
         .preset = "auto",
         .help = "auto (a GPU if there is one), cpu, cuda, cuda:N or all",
         .set = option_device,
         FIELD(device)},
    FLAG(COLD, "cold", cold, 1,
         "measure with flushed caches, and choose by such measurements"),
    FLAG(NO_DETERMINISTIC, "no-deterministic", deterministic, 0,
         "also consider variants whose results differ in the last bits from "
         "run to run"),
    FLAG(WEIGHTS, "weights", weights, 1,
         "write the attention weights [E,H] too"),
    FLAG(BIAS, "bias", bias, 1, "add a bias [E,H] to the attention scores"),
    FLAG(DROPOUT, "dropout", dropout, 1,
         "drop attention weights, as in training; the probability does not "
         "matter"),
    [OPTION_EDGE_DIM] = {.name = "edge-dim",
                         .argument = "LIST",
                         .preset = "0",
                         .help =
                             "features per edge; projected: they are [E,H,D] "
                             "already, of gat a scalar [E,H]; 0: none",
                         LIST_OF(edge_dim, edge_dim)},
    ENUMERATION(EDGE_USE, "edge-use", edge_use, "both",
                "what gt adds edge features to: %"),
    ENUMERATION(MESSAGE, "message", message, "copy",
                "what an edge carries in spmm and reduce: %"),
    TEXT(PROGRAM, "program", program, "FILE",
         "files of edge programs, dfgnn-program(5), with commas between them, "
         "in place of --op; the size H has the value of --heads, other names "
         "that of --dim"),
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
    [OPTION_STORE] = {.name = "store",
                      .argument = "FILE",
                      .help = "the one store read and written; without it the "
                              "layers are read and the user's store is written",
                      .set = option_store,
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
    TEXT(CELLS, "cells", cells, "FILE",
         "a table of problems: lines with a name and the options of a problem, "
         "such as 'gat8x8 --op gat --heads 8 --dim 8'"),
    TEXT(ONLY, "only", only, "LIST", "these cells of the table alone"),
    TEXT(SURVEY, "survey", survey, "FILE",
         "what 'dfgnn-tune survey' wrote, of which the best are timed again"),
    FLAG(STATUS, "status", status, 1,
         "say what is measured and what is missing"),
    [OPTION_SEED] = {.name = "seed",
                     .argument = "N",
                     .preset = "1",
                     .help = "seed of the input values and of the order of "
                             "measurements",
                     .set = option_seed,
                     FIELD(seed)},
    TEXT(JOB, "job", job, "FILE",
         "a job file, dfgnn-job(5); options given here override it"),
    FLAG(DRY_RUN, "dry-run", dry_run, 1,
         "change nothing, and show what would be measured, with an estimate of "
         "the time, or removed",
         .letter = 'n'),
    FLAG(EXHAUSTIVE, "exhaustive", exhaustive, 1,
         "measure every candidate to the end"),
    [OPTION_AGAIN] =
        {.name = "again",
         .argument = "WHAT",
         .help =
             "measure again what is stored: noisy, those variants that were "
             "measured once, under a load or with a wide interval, and are "
             "chosen or might be; or all",
         .set = option_again,
         FIELD(remeasure)},
    FLAG(ANONYMOUS, "anonymous", anonymous, 1,
         "store neither the names of graphs and families nor of the host"),
    TEXT(VARIANTS, "variants", variants, "LIST",
         "all, tuned, rule, paper, unfused, smmf-pmf (the better of the two), "
         "or names; * matches any text"),
    [OPTION_ROUNDS] =
        {.name = "rounds",
         .argument = "N",
         .help = "interleaved rounds of samples (default: at most 15, "
                 "as the budget allows; with --regret 9)",
         .set = option_int,
         FIELD(rounds),
         .least = 2,
         .most = MOST_COUNT},
    FLAG(CHECK, "check", no_check, 0,
         "compare each variant with the float64 reference first"),
    FLAG(NO_CHECK, "no-check", no_check, 1,
         "do not compare the variants with the reference"),
    FLAG(DISPATCH, "dispatch", dispatch, 1,
         "measure the cost of dispatch instead of the kernels"),
    FLAG(REGRET, "regret", regret, 1,
         "measure instead how much slower choices are than the best of all "
         "variants: needs --cells and --survey"),
    FLAG(ALL, "all", all, 1, "every variant, not the best alone",
         .letter = 'a'),
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
    TEXT(FROM_ARCH, "from-arch", from_arch, "LIST",
         "only rows of these architectures, such as sm_90"),
    TEXT(ARCH, "arch", arch, "LIST",
         "architectures to compile for, such as sm_80,sm_90"),
    TEXT(FOR, "for", absent, "ARCH[,MODEL]",
         "a GPU that is not here, such as sm_90 or sm_90,H200, by the stores "
         "and portfolios in use"),
    TEXT(PACK, "pack", pack, "FILE",
         "write the compiled kernels to a pack as well"),
    FLAG(KERNELS, "kernels", kernels, 1,
         "the cache of compiled kernels instead of a store"),
    [OPTION_SINCE] =
        {.name = "since",
         .argument = "TIME",
         .help = "only rows measured since a date such as 2026-11-30 (in "
                 "UTC), or in the last 12h or 30d",
         .set = option_since,
         FIELD(since)},
    FLAG(SKIP_INVALID, "skip-invalid", skip_invalid, 1,
         "skip lines that are no measurement, instead of refusing the file"),
    TEXT(KEY, "key", key, "FILE",
         "the secret key that signs; to verify, the public key, or a directory "
         "of *.pub files, one of which must have signed"),
    TEXT(GENERATE_KEY, "generate-key", generate_key, "NAME",
         "make the keys NAME.key, which signs and is to be kept secret, and "
         "NAME.pub"),
    [OPTION_SHARD] =
        {.name = "shard",
         .argument = "I/N",
         .help = "measure only every N-th problem, from the I-th on: "
                 "the shards 1/N to N/N (or 0/N to N-1/N) together are "
                 "all problems",
         .set = option_shard},
    FLAG(REMOVE, "remove", remove, 1, "remove what is named instead"),
    [OPTION_METHOD] = {.name = "method",
                       .argument = "LIST",
                       .preset = "community",
                       .help = "degree, rcm, metis, community or all",
                       .set = option_orders,
                       FIELD(orders)},
    TEXT(MAP, "map", map, "FILE",
         "write the old numbers of nodes and edges to FILE, an .npz of arrays "
         "rows, columns and edges"),
    TEXT(EDGE_ATTR, "edge-attr", edge_attr, "FILE",
         "write edge_attr [edges, 3] to FILE, an .npz: the length of an edge, "
         "and the direction of its source to the east and to the north"),
    TEXT(BY, "by", by, "METHOD",
         "metis, range, or a file with the part of each node, one number per "
         "line, as gpmetis writes it (default metis)"),
    TEXT(RECORDED, "recorded", recorded, "FOLDER",
         "the problems that programs met: what dfgnn.record(model, "
         "*inputs).save(FOLDER) of Python or processes with "
         "DFGNN_RECORD=FOLDER wrote"),
    TEXT(LOCK, "lock", lock, "FILE",
         "write the choices to FILE, and print their digest"),
    TEXT(LOCKED, "check", locked, "FILE",
         "compare the choices with those of a FILE that --lock wrote"),
    TEXT(OUTPUT, "output", output, "FILE", "write to FILE", .letter = 'o'),
    FLAG(JSON, "json", json, 1, "print one flat JSON array of objects"),
    FLAG(WIDE, "wide", wide, 1,
         "on a terminal: every column with whole names, however wide, as a "
         "pipe gets them"),
    TEXT(COLUMNS, "columns", columns, "LIST",
         "these columns of the table, by their JSON names"),
    FLAG(QUIET, "quiet", quiet, 1, "show no progress", .letter = 'q'),
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
