/* common.h - shared by the tools: one option table, its parser, its help and
 * its manual page, exit statuses, interruption and logging
 *
 * A tool declares commands, each a set of rows of the one option table, so an
 * option means the same everywhere and is described once. */
#ifndef DFGNN_TOOLS_COMMON_H
#define DFGNN_TOOLS_COMMON_H

#include "db/field.h"
#include "dfgnn.h"
#include "kernels/common/variant.h"
#include "lib/base/error.h"
#include <stdio.h>

typedef enum tool_exit {
  TOOL_DONE = 0,
  TOOL_FAILED = 1,
  TOOL_USAGE = 2,
  TOOL_TIME_LIMIT = 3,
  TOOL_WRONG = 4,
  TOOL_STORE = 5,
  TOOL_INTERRUPTED = 130
} tool_exit;

/* ---- options ------------------------------------------------------------ */

/* The options, in the order of a help page. */
enum {
  OPTION_OP,
  OPTION_PASS,
  OPTION_DIM,
  OPTION_HEADS,
  OPTION_DTYPE,
  OPTION_MATH,
  OPTION_LAYOUT,
  OPTION_DEVICE,
  OPTION_COLD,
  OPTION_NO_DETERMINISTIC,
  OPTION_WEIGHTS,
  OPTION_BIAS,
  OPTION_DROPOUT,
  OPTION_EDGE_DIM,
  OPTION_EDGE_USE,
  OPTION_MESSAGE,
  OPTION_PROGRAM,
  OPTION_EFFORT,
  OPTION_THREADS,
  OPTION_STORE,
  OPTION_BUDGET,
  OPTION_TIME_LIMIT,
  OPTION_CELLS,
  OPTION_ONLY,
  OPTION_SURVEY,
  OPTION_STATUS,
  OPTION_SEED,
  OPTION_JOB,
  OPTION_DRY_RUN,
  OPTION_EXHAUSTIVE,
  OPTION_AGAIN,
  OPTION_ANONYMOUS,
  OPTION_VARIANTS,
  OPTION_ROUNDS,
  OPTION_CHECK,
  OPTION_NO_CHECK,
  OPTION_DISPATCH,
  OPTION_REGRET,
  OPTION_ALL,
  OPTION_BEST,
  OPTION_FROM_ARCH,
  OPTION_ARCH,
  OPTION_FOR,
  OPTION_PACK,
  OPTION_KERNELS,
  OPTION_SINCE,
  OPTION_SKIP_INVALID,
  OPTION_KEY,
  OPTION_GENERATE_KEY,
  OPTION_SHARD,
  OPTION_REMOVE,
  OPTION_METHOD,
  OPTION_EDGE_ATTR,
  OPTION_MAP,
  OPTION_BY,
  OPTION_RECORDED,
  OPTION_LOCK,
  OPTION_LOCKED,
  OPTION_OUTPUT,
  OPTION_JSON,
  OPTION_WIDE,
  OPTION_COLUMNS,
  OPTION_QUIET,
  OPTION_HELP,
  OPTION_VERSION,
  OPTION_COUNT
};

/* A bit for each option. */
__extension__ typedef unsigned __int128 tool_option_set;
_Static_assert(OPTION_COUNT <= 128, "sets of options are 128 bits wide");

#define HAS(name) ((tool_option_set)1 << OPTION_##name)
/* THE list of the members of a problem of which options give lists, the slowest
 * to change first: the option, the member, its type, and whether a program,
 * whose text says it, has no such option. */
#define TOOL_LISTS(X)                                                          \
  X(OP, op, dfgnn_op, 0)                                                       \
  X(PASS, pass, dfgnn_pass, 0)                                                 \
  X(DTYPE, dtype, dfgnn_dtype, 0)                                              \
  X(MATH, math, dfgnn_math, 1)                                                 \
  X(LAYOUT, layout, dfgnn_layout, 1)                                           \
  X(HEADS, heads, int64_t, 0)                                                  \
  X(DIM, dim, int64_t, 0)                                                      \
  X(EDGE_DIM, edge_dim, int64_t, 1)                                            \
  X(EDGE_USE, edge_use, dfgnn_edge_use, 1)                                     \
  X(MESSAGE, message, dfgnn_message, 1)

#define TOOL_HAS_LIST(NAME, member, type, of_operators) HAS(NAME) |
#define HAS_PROBLEM                                                            \
  (TOOL_LISTS(TOOL_HAS_LIST) HAS(DEVICE) | HAS(COLD) | HAS(NO_DETERMINISTIC) | \
   HAS(WEIGHTS) | HAS(BIAS) | HAS(DROPOUT) | HAS(PROGRAM))
#define HAS_ALWAYS (HAS(QUIET) | HAS(HELP) | HAS(VERSION))
/* A command that prints a table takes these. */
#define HAS_TABLE (HAS_ALWAYS | HAS(JSON) | HAS(WIDE) | HAS(COLUMNS))

#define TOOL_MAX_LIST 256

/* The values that the options and the job file set. */
typedef struct tool_settings {
#define TOOL_LIST(NAME, member, type, of_operators)                            \
  type member[TOOL_MAX_LIST];                                                  \
  int member##_count;
  TOOL_LISTS(TOOL_LIST)
#undef TOOL_LIST
  int deterministic, weights, bias, dropout, cold, threads;
  dfgnn_effort effort;
  const char *device, *store, *variants, *job, *output;
  const char *program; /* files of edge programs, with commas between */
  double budget_s, time_limit_s;
  uint64_t seed;
  int rounds;
  int dry_run, exhaustive, remeasure, anonymous, no_check, dispatch, regret,
      all, kernels, best, json, wide, quiet,
      status; /* best: variants kept; 0: all rows */
  const char *from_arch, *arch, *absent, *pack, *key, *generate_key;
  int64_t since;     /* seconds since 1970 */
  int shard, shards; /* 1 .. shards; 0: all */
  int part, parts;   /* a fleet's process takes part 0 .. parts - 1; 0: all */
  int skip_invalid, remove;
  unsigned orders; /* --method: a bit for each dfgnn_order */
  const char *map;
  const char *by; /* how dfgnn-graph partition divides; NULL: by METIS */
  const char *edge_attr;
  const char *recorded, *cells, *survey; /* files */
  const char *columns;                   /* shown; NULL: those that fit */
  const char *only;                      /* names of cells; NULL: all */
  const char *lock, *locked;             /* written, and compared with */
  char *owned[32]; /* texts of a job file, freed at the end; the last is NULL */
  tool_option_set given; /* options of the command line, which a job file yields
                          * to */
} tool_settings;

typedef struct tool_option tool_option;
typedef dfgnn_status tool_set_function(tool_settings *settings,
                                       const tool_option *option,
                                       const char *text);
typedef dfgnn_status tool_item_function(const tool_option *option, void *slot,
                                        const char *text);

/* A row of the option table. */
struct tool_option {
  const char *name;     /* "dim" */
  int letter;           /* 'q' or 0 */
  const char *argument; /* "LIST"; NULL: none */
  const char *help;   /* a '%' in it stands for the names of the enumeration */
  dfgnn_names names;  /* the enumeration, or DFGNN_NAMES_NONE */
  const char *preset; /* what is set before the arguments; NULL: nothing */
  tool_set_function *set;   /* tools/option_values.h; NULL: it sets nothing */
  size_t field;             /* where in tool_settings */
  int flag;                 /* what an option without argument sets */
  int64_t least, most;      /* of a number */
  tool_item_function *item; /* of a list: its parser, */
  size_t size, count;       /* bytes of an item, where the items are counted */
};

extern const tool_option tool_options[OPTION_COUNT];

/* --op takes programs that have names, too.  In tool_settings.op their numbers
 * (dfgnn_edge_program_name) follow this one. */
enum { TOOL_NAMED = DFGNN_OP_PROGRAM + 1 };
static inline int tool_is_named(dfgnn_op op) { return (int)op >= TOOL_NAMED; }
/* The name of an operator or of such a program. */
const char *tool_op_name(dfgnn_op op);
/* The i-th name that an option of an enumeration takes; NULL beyond the last.
 */
const char *tool_option_name(const tool_option *option, int i);

/* Sets one option from text; on failure the thread's message says why. */
dfgnn_status tool_set(tool_settings *settings, int option, const char *value);

/* ---- programs and commands ---------------------------------------------- */

typedef struct tool_section {
  const char *title; /* "EXAMPLES"; NULL ends */
  const char *text;  /* paragraphs; lines that begin with a blank are literal */
} tool_section;

typedef struct tool_command {
  const char *name;     /* "run"; "" for a tool without commands */
  const char *operands; /* "IN [OUT]", "GRAPH..." for one or more; "" none */
  const char *summary;  /* one line */
  const char *text;     /* paragraphs */
  tool_option_set options;
  int selects; /* problem options choose among rows; none: all rows */
  int (*main)(tool_settings *settings, int count, char **operands);
} tool_command;

typedef struct tool_program {
  const char *name, *summary, *text;
  const tool_command *const *commands; /* ends with NULL */
  const tool_section *sections;
} tool_program;

/* The main function of a program; in the library of a wheel a function that the
 * command of that name calls. */
#ifdef TOOLS_IN_LIBRARY
#define TOOL_MAIN(name) DFGNN_API int dfgnn_main_##name
#else
#define TOOL_MAIN(name) int main
#endif

/* Parses the arguments, runs the command and returns the exit status. */
int tool_main(const tool_program *program, int argc, char **argv);

/* Print the program's manual page in man(7), and the help of one command (NULL:
 * the list of commands). */
void tool_manual(FILE *out, const tool_program *program);
void tool_help(FILE *out, const tool_program *program,
               const tool_command *command);

/* Prints what completes the program's arguments in "bash" or "zsh"; returns an
 * exit status. */
int tool_complete(FILE *out, const tool_program *program, const char *shell);

/* ---- running ------------------------------------------------------------ */

/* Prints the thread's message and returns the exit status that goes with it. */
int tool_fail(dfgnn_status status);
/* Prints a message of the tool's own; returns TOOL_FAILED. */
int tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a message that --quiet leaves out. */
void tool_note(const tool_settings *settings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The dfgnn_options.log of contexts, and a line of a fleet's process: nothing
 * sticks to the progress line. */
void tool_log(void *data, dfgnn_log_level level, const char *text);
void tool_relay(const char *device, const char *line, int length);
/* Prints a message that points to --help; returns TOOL_USAGE. */
int tool_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From now on the first SIGINT or SIGTERM only makes tool_interrupted return 1;
 * the second ends the program at once. */
void tool_catch_interrupts(void);
int tool_interrupted(void);

double tool_now(void); /* seconds, monotonic */

/* Prints a line on standard error, which overwrites the last one on a terminal;
 * elsewhere at most one every ten seconds. */
void tool_progress(const tool_settings *settings, double done, double eta_s,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tool_progress_end(void);

#endif
