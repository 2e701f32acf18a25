/* completion.c - what completes a program's arguments in bash and zsh, from the
 * option table */
#include "tools/common.h"
#include <ctype.h>
#include <string.h>

/* The values of an enumeration with blanks between them. */
static void print_values(FILE *out, const tool_option *option) {
  for (int i = 0; option->names != DFGNN_NAMES_NONE; i++) {
    const char *name = tool_option_name(option, i);
    if (!name)
      return;
    fprintf(out, "%s%s", i ? " " : "", name);
  }
}

static int takes_values(const tool_option *option) {
  return option->argument && option->names != DFGNN_NAMES_NONE;
}

static int has(const tool_command *command, int option) {
  return (int)(command->options >> option & 1);
}

/* The name of a shell function: dfgnn-tune's is _dfgnn_tune. */
static void print_function(FILE *out, const tool_program *program) {
  fputc('_', out);
  for (const char *c = program->name; *c; c++)
    fputc(isalnum((unsigned char)*c) ? *c : '_', out);
}

/* ---- bash ---------------------------------------------------------------- */

static void bash_options(FILE *out, const tool_command *command) {
  for (int i = 0; i < OPTION_COUNT; i++)
    if (has(command, i))
      fprintf(out, " --%s", tool_options[i].name);
}

static void complete_bash(FILE *out, const tool_program *program) {
  const int subcommands = *program->commands[0]->name != 0;
  fprintf(out, "# bash completion of %s %s\n", program->name, dfgnn_version());
  print_function(out, program);
  fputs("() {\n"
        "  local word=$2 option=$3 words=\n"
        "  [ \"$word\" != = ] || word=\n"
        "  [ \"$option\" != = ] || option=${COMP_WORDS[COMP_CWORD-2]}\n"
        "  case $option in\n",
        out);
  for (int i = 0; i < OPTION_COUNT; i++)
    if (takes_values(&tool_options[i])) {
      fprintf(out, "  --%s) words='", tool_options[i].name);
      print_values(out, &tool_options[i]);
      fputs("' ;;\n", out);
    }
  fputs("  *)\n", out);
  if (subcommands) {
    fputs("    if [ \"$COMP_CWORD\" = 1 ]; then\n      words='", out);
    for (int i = 0; program->commands[i]; i++)
      fprintf(out, "%s ", program->commands[i]->name);
    fputs("--help --version'\n    elif [[ $word = -* ]]; then\n"
          "      case ${COMP_WORDS[1]} in\n",
          out);
    for (int i = 0; program->commands[i]; i++) {
      fprintf(out, "      %s) words='", program->commands[i]->name);
      bash_options(out, program->commands[i]);
      fputs("' ;;\n", out);
    }
    fputs("      esac\n    fi ;;\n", out);
  } else {
    fputs("    [[ $word != -* ]] || words='", out);
    bash_options(out, program->commands[0]);
    fputs("' ;;\n", out);
  }
  fputs("  esac\n"
        "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
        "}\n"
        "complete -o default -F ",
        out);
  print_function(out, program);
  fprintf(out, " %s\n", program->name);
}

/* ---- zsh ----------------------------------------------------------------- */

/* The first clause of a text, without what _arguments and quotes would read. */
static void zsh_text(FILE *out, const char *text) {
  for (; *text && !strchr(":;,%", *text); text++)
    fputc(strchr("'[]", *text) ? ' ' : *text, out);
}

static void zsh_options(FILE *out, const tool_command *command) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    const tool_option *option = &tool_options[i];
    if (!has(command, i))
      continue;
    fprintf(out, " \\\n    '--%s%s[", option->name,
            option->argument ? "=" : "");
    zsh_text(out, option->help);
    fputc(']', out);
    if (takes_values(option)) {
      fprintf(out, ":%s:(", option->argument);
      print_values(out, option);
      fputc(')', out);
    } else if (option->argument) {
      fprintf(out, ":%.*s:%s", (int)strcspn(option->argument, "["),
              option->argument,
              !strcmp(option->argument, "FILE") ? "_files" : " ");
    }
    fputc('\'', out);
  }
  fputs(" \\\n    '*:operand:_files'", out);
}

static void complete_zsh(FILE *out, const tool_program *program) {
  const int subcommands = *program->commands[0]->name != 0;
  fprintf(out, "#compdef %s\n", program->name);
  if (!subcommands) {
    fputs("_arguments", out);
    zsh_options(out, program->commands[0]);
    fputc('\n', out);
    return;
  }
  fputs("if ((CURRENT == 2)); then\n  local -a commands=(", out);
  for (int i = 0; program->commands[i]; i++) {
    fprintf(out, "\n    '%s:", program->commands[i]->name);
    zsh_text(out, program->commands[i]->summary);
    fputc('\'', out);
  }
  fputs(")\n  _describe command commands\n  return\nfi\n"
        "shift words\n((CURRENT--))\ncase $words[1] in\n",
        out);
  for (int i = 0; program->commands[i]; i++) {
    fprintf(out, "%s)\n  _arguments", program->commands[i]->name);
    zsh_options(out, program->commands[i]);
    fputs(" ;;\n", out);
  }
  fputs("esac\n", out);
}

int tool_complete(FILE *out, const tool_program *program, const char *shell) {
  if (!strcmp(shell, "bash"))
    complete_bash(out, program);
  else if (!strcmp(shell, "zsh"))
    complete_zsh(out, program);
  else
    return tool_usage("--completion: found '%s', expected bash or zsh", shell);
  return TOOL_DONE;
}
