/* common_run.c - parses argv, runs the command, returns its status */
#include "lib/base/error.h"
#include "tools/common.h"
#include "tools/suggest.h"
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Messages begin with this name, such as "dfgnn-tune run". */
static char command_name[64];

static int progress_open;

/* Clears the line that tool_progress left on a terminal. */
static void end_progress(void) {
  if (progress_open)
    fputs("\r\033[K", stderr);
  progress_open = 0;
}

static int message(const char *format, va_list arguments) {
  char text[2048], escaped[2048];
  vsnprintf(text, sizeof text, format, arguments);
  end_progress();
  fprintf(stderr, "%s: %s\n", command_name,
          dfgnn__escape(escaped, sizeof escaped, text));
  return TOOL_FAILED;
}

int tool_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message(format, arguments);
  va_end(arguments);
  return TOOL_FAILED;
}

void tool_note(const tool_settings *settings, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!settings->quiet)
    message(format, arguments);
  va_end(arguments);
}

void tool_relay(const char *device, const char *line, int length) {
  end_progress();
  fprintf(stderr, "%s: %.*s\n", device, length, line);
}

void tool_log(void *data, dfgnn_log_level level, const char *text) {
  static const char *const names[] = {"", "error", "warn", "info", "debug"};
  (void)data;
  end_progress();
  fprintf(stderr, "dfgnn: %s: %s\n", names[level], text);
}

int tool_usage(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message(format, arguments);
  va_end(arguments);
  fprintf(stderr, "Try '%s --help'.\n", command_name);
  return TOOL_USAGE;
}

int tool_fail(dfgnn_status status) {
  const char *text = dfgnn_last_error();
  tool_error("%s", *text ? text : dfgnn_status_string(status));
  switch (status) {
  case DFGNN_ERROR_STORE:
    return TOOL_STORE;
  case DFGNN_ERROR_WRONG:
    return TOOL_WRONG;
  case DFGNN_ERROR_INTERRUPTED:
    return TOOL_INTERRUPTED;
  default:
    return TOOL_FAILED;
  }
}

static volatile sig_atomic_t interrupts;

static void interrupt(int signal) {
  if (interrupts++)
    _exit(TOOL_INTERRUPTED);
  static const char note[] =
      "\ninterrupted: measurements are kept; interrupt again to quit at once\n";
  if (signal == SIGINT && write(STDERR_FILENO, note, sizeof note - 1) < 0)
    _exit(TOOL_INTERRUPTED);
}

void tool_catch_interrupts(void) {
  struct sigaction action = {.sa_handler = interrupt};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  struct sigaction before; /* nohup has it ignored, and that stays so */
  if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, NULL);
}

int tool_interrupted(void) { return interrupts > 0; }

double tool_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void tool_progress(const tool_settings *settings, double done, double eta_s,
                   const char *format, ...) {
  static double last;
  int terminal = isatty(STDERR_FILENO);
  double now = tool_now();
  if (!last) /* a log gets no line about quick work */
    last = terminal ? now - 1 : now;
  if (settings->quiet || now - last < (terminal ? 0.1 : 10))
    return;
  last = now;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s%3.0f%% ", terminal ? "\r\033[K" : "", 100 * done);
  if (eta_s >= 3600)
    fprintf(stderr, "ETA %.0fh%02.0fm ", eta_s / 3600,
            (double)((long)eta_s % 3600 / 60));
  else if (eta_s >= 60)
    fprintf(stderr, "ETA %ldm%02lds ", (long)eta_s / 60, (long)eta_s % 60);
  else if (eta_s >= 0)
    fprintf(stderr, "ETA %.0fs ", eta_s);
  fprintf(stderr, "%.*s%s", terminal ? 60 : 200, text, terminal ? "" : "\n");
  fflush(stderr);
  progress_open = terminal;
}

void tool_progress_end(void) { end_progress(); }

static const tool_command *find_command(const tool_program *program,
                                        const char *name) {
  for (int i = 0; program->commands[i]; i++)
    if (!strcmp(program->commands[i]->name, name))
      return program->commands[i];
  return NULL;
}

static int unknown_command(const tool_program *program, const char *name) {
  const char *names[64] = {NULL};
  char hint[96];
  for (int i = 0; program->commands[i] && i < 63; i++)
    names[i] = program->commands[i]->name;
  return tool_usage("unknown command '%s'%s", name,
                    tool_suggest(hint, sizeof hint, name, "", names));
}

static int unknown_option(const tool_command *command, const char *given) {
  const char *names[OPTION_COUNT + 1] = {NULL};
  char hint[96], word[40];
  int n = 0;
  for (int i = 0; i < OPTION_COUNT; i++)
    if (command->options >> i & 1)
      names[n++] = tool_options[i].name;
  snprintf(word, sizeof word, "%.*s", (int)strcspn(given + 2, "="), given + 2);
  return tool_usage("unknown or ambiguous option %s%s", given,
                    tool_suggest(hint, sizeof hint, word, "--", names));
}

/* Sets what the options of a command, and those of a problem that its files
 * may leave open, are without arguments. */
static void preset(tool_settings *settings, const tool_command *command) {
  for (int i = 0; i < OPTION_COUNT; i++)
    if (tool_options[i].preset && (command->options | HAS_PROBLEM) >> i & 1)
      (void)tool_set(settings, i, tool_options[i].preset);
}

/* Each word outside of brackets is an operand that has to be there. */
static int check_count(const char *operands, int count, char **given) {
  int least = 0, most = 0, depth = 0;
  for (const char *c = operands; *c; c++) {
    depth += (*c == '[') - (*c == ']');
    most += c == operands || c[-1] == ' ';
    least += (c == operands || c[-1] == ' ') && !depth;
  }
  if (count < least)
    return tool_usage("%s, expected %s",
                      count ? "too few operands" : "no operand", operands);
  if (count > most && !strstr(operands, "..."))
    return tool_usage("unexpected operand '%s'", given[most]);
  return TOOL_DONE;
}

/* Refuses two ways to say what is looked at or done, of which one would be
 * passed over. */
static int check_ways(const tool_settings *settings, int count, char **given) {
  static const int pairs[][2] = {{OPTION_DISPATCH, OPTION_REGRET},
                                 {OPTION_LOCK, OPTION_LOCKED},
                                 {OPTION_KERNELS, OPTION_STORE}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (settings->given >> pairs[i][0] & settings->given >> pairs[i][1] & 1)
      return tool_usage("--%s and --%s exclude each other",
                        tool_options[pairs[i][0]].name,
                        tool_options[pairs[i][1]].name);
  if (settings->kernels && count)
    return tool_usage("found --kernels and '%s', expected one of the two",
                      *given);
  return TOOL_DONE;
}

static int parse(tool_settings *settings, const tool_command *command, int argc,
                 char **argv, int *done, const tool_program *program) {
  struct option rows[OPTION_COUNT + 1] = {{0}};
  char letters[2 * OPTION_COUNT + 2] = ":";
  int n = 0;
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (!(command->options >> i & 1))
      continue;
    const tool_option *option = &tool_options[i];
    rows[n++] = (struct option){
        option->name, option->argument ? required_argument : no_argument, NULL,
        256 + i};
    if (option->letter)
      snprintf(letters + strlen(letters), 3, "%c%s", option->letter,
               option->argument ? ":" : "");
  }
  opterr = 0;
  int key;
  while ((key = getopt_long(argc, argv, letters, rows, NULL)) != -1) {
    int option = key - 256;
    for (int i = 0; key < 256 && i < OPTION_COUNT; i++)
      if (tool_options[i].letter == key)
        option = i;
    if (key == ':')
      return tool_usage("%s needs a value", argv[optind - 1]);
    if (key == '?' || option < 0) {
      if (optopt >= 256)
        return tool_usage("--%s takes no value",
                          tool_options[optopt - 256].name);
      if (optopt)
        return tool_usage("unknown option -%c", optopt);
      return unknown_option(command, argv[optind - 1]);
    }
    if (option == OPTION_HELP || option == OPTION_VERSION) {
      *done = 1;
      if (option == OPTION_HELP)
        tool_help(stdout, program, command);
      else
        printf("%s %s\n", program->name, dfgnn_version());
      return TOOL_DONE;
    }
    if (tool_set(settings, option, optarg))
      return tool_usage("%s", dfgnn_last_error());
    settings->given |= (tool_option_set)1 << option;
  }
  argc -= optind;
  argv += optind;
  int status = check_count(command->operands, argc, argv);
  return status ? status : check_ways(settings, argc, argv);
}

/* What jansson makes is whole, or the program ends: a row that lacks a field
 * would be another problem's. */
static void *allocate_or_end(size_t size) {
  void *memory = malloc(size);
  if (memory || !size)
    return memory;
  tool_error("out of memory");
  exit(TOOL_FAILED);
}

static int answer(const tool_program *program, int argc, char **argv) {
  int subcommands = *program->commands[0]->name != 0;
  snprintf(command_name, sizeof command_name, "%s", program->name);
  json_set_alloc_funcs(allocate_or_end, free);
  signal(SIGXFSZ, SIG_IGN); /* writing beyond a limit fails, and is said */
  const tool_command *command = program->commands[0];
  if (argc > 1 && !strcmp(argv[1], "--manual")) {
    tool_manual(stdout, program);
    return TOOL_DONE;
  }
  if (argc > 2 && !strcmp(argv[1], "--completion"))
    return tool_complete(stdout, program, argv[2]);
  if (subcommands) {
    if (argc < 2)
      return tool_usage("no command");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
      tool_help(stdout, program, NULL);
      return TOOL_DONE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
      printf("%s %s\n", program->name, dfgnn_version());
      return TOOL_DONE;
    }
    command = find_command(program, argv[1]);
    if (!command)
      return unknown_command(program, argv[1]);
    snprintf(command_name, sizeof command_name, "%s %s", program->name,
             command->name);
    argc--;
    argv++;
  }
  tool_settings settings = {.deterministic = 1};
  int done = 0;
  preset(&settings, command);
  int status = parse(&settings, command, argc, argv, &done, program);
  if (!status && !done)
    status = command->main(&settings, argc - optind, argv + optind);
  for (char **owned = settings.owned; *owned; owned++)
    free(*owned);
  return status;
}

int tool_main(const tool_program *program, int argc, char **argv) {
  const int status = answer(program, argc, argv);
  if (fflush(stdout) || ferror(stdout))
    return status ? status : tool_error("cannot write standard output");
  return status;
}
