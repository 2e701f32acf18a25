/* common_help.c - --help and the manual page, from the same tables */
#include "tools/common.h"
#include <ctype.h>
#include <string.h>

#define WIDTH 79
#define INDENT 24
enum { MOST_HELP = 2048 }; /* of an option, with the names that it takes */

/* Prints text wrapped, continuing at the column `indent`. */
static void wrap(FILE *out, const char *text, int indent, int column) {
  while (*text) {
    while (*text == ' ')
      text++;
    int length = (int)strcspn(text, " \n");
    if (column > indent && column + 1 + length > WIDTH) {
      fprintf(out, "\n%*s", indent, "");
      column = indent;
    } else if (column > indent) {
      fputc(' ', out);
      column++;
    }
    fprintf(out, "%.*s", length, text);
    column += length;
    text += length;
    if (*text == '\n') {
      text++;
      if (*text == ' ' ||
          *text == '\n') { /* a literal line, or a paragraph's end */
        fputc('\n', out);
        if (*text == '\n') {
          fputc('\n', out);
          text++;
        }
        if (*text != ' ') {
          fprintf(out, "%*s", indent, "");
          column = indent;
        }
        while (*text == ' ') {
          int line = (int)strcspn(text, "\n");
          fprintf(out, "%*s%.*s\n", indent, "", line, text);
          text += line + (text[line] == '\n');
          column = indent;
        }
        if (*text == '\n') {
          fputc('\n', out);
          text++;
        }
      }
    }
  }
  if (column > indent)
    fputc('\n', out);
}

/* The help of an option, with the names of its enumeration and the preset. */
static void fill_help(char *text, size_t size, const tool_option *option,
                      const tool_command *command) {
  const char *mark =
      option->names != DFGNN_NAMES_NONE ? strchr(option->help, '%') : NULL;
  const int selects =
      command && command->selects && HAS_PROBLEM >> (option - tool_options) & 1;
  size_t n = 0;
  if (selects && !option->argument) {
    snprintf(text, size, "only those for --%s", option->name);
    return;
  }
  if (!mark)
    n = (size_t)snprintf(text, size, "%s", option->help);
  else
    n = (size_t)snprintf(text, size, "%.*s", (int)(mark - option->help),
                         option->help);
  for (int i = 0; mark && n < size; i++) {
    const char *name = tool_option_name(option, i);
    if (!name)
      break;
    n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", name);
  }
  if (mark && n < size)
    n += (size_t)snprintf(text + n, size - n, "%s", mark + 1);
  if (option->preset && n < size)
    snprintf(text + n, size - n, " (default%s%s)", selects ? ": all" : " ",
             selects ? "" : option->preset);
}

static void option_help(FILE *out, const tool_option *option,
                        const tool_command *command) {
  char text[MOST_HELP];
  int n = option->letter ? fprintf(out, "  -%c, ", option->letter)
                         : fprintf(out, "      ");
  n += fprintf(out, "--%s%s%s", option->name, option->argument ? "=" : "",
               option->argument ? option->argument : "");
  if (n > INDENT - 2) {
    fputc('\n', out);
    n = 0;
  }
  fprintf(out, "%*s", INDENT - n, "");
  fill_help(text, sizeof text, option, command);
  wrap(out, text, INDENT, INDENT);
}

static void usage_line(FILE *out, const tool_program *program,
                       const tool_command *command, const char *prefix) {
  fprintf(out, "%s%s%s%s [OPTION...]%s%s\n", prefix, program->name,
          *command->name ? " " : "", command->name,
          *command->operands ? " " : "", command->operands);
}

static tool_option_set all_options(const tool_program *program) {
  tool_option_set options = 0;
  for (int i = 0; program->commands[i]; i++)
    options |= program->commands[i]->options;
  return options;
}

void tool_help(FILE *out, const tool_program *program,
               const tool_command *command) {
  if (!command && *program->commands[0]->name) {
    fprintf(out,
            "Usage: %s COMMAND [OPTION...] [OPERAND...]\n%c%s.\n\nCommands:\n",
            program->name, toupper((unsigned char)*program->summary),
            program->summary + 1);
    for (int i = 0; program->commands[i]; i++)
      fprintf(out, "  %-10s %s\n", program->commands[i]->name,
              program->commands[i]->summary);
    fprintf(out,
            "\n'%s COMMAND --help' lists the options of a command; the manual "
            "page is\n%s(1).\n",
            program->name, program->name);
    return;
  }
  if (!command)
    command = program->commands[0];
  usage_line(out, program, command, "Usage: ");
  fprintf(out, "%s.\n\n", command->summary);
  wrap(out, command->text, 0, 0);
  fprintf(out, "\nOptions:\n");
  for (int i = 0; i < OPTION_COUNT; i++)
    if (command->options >> i & 1)
      option_help(out, &tool_options[i], command);
}

/* Writes text with roff's escapes of backslashes, leading dots and quotes, and
 * minuses. */
static void roff(FILE *out, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\''))
      fputs("\\&", out);
    if (text[i] == '\\')
      fputs("\\e", out);
    else if (text[i] == '-')
      fputs("\\-", out);
    else
      fputc(text[i], out);
  }
}

static void roff_text(FILE *out, const char *text) {
  int literal = 0;
  while (*text) {
    size_t length = strcspn(text, "\n");
    if ((*text == ' ') != literal) {
      fputs(literal ? ".EE\n.RE\n" : ".PP\n.RS 4\n.EX\n", out);
      literal = !literal;
    }
    if (!length)
      fputs(".PP", out);
    else
      roff(out, text + (literal ? 1 : 0), length - (literal ? 1 : 0));
    fputc('\n', out);
    text += length + (text[length] == '\n');
  }
  if (literal)
    fputs(".EE\n.RE\n", out);
}

static void roff_options(FILE *out, tool_option_set options) {
  char text[MOST_HELP];
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (!(options >> i & 1))
      continue;
    const tool_option *option = &tool_options[i];
    fputs(".TP\n", out);
    if (option->letter)
      fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", out);
    roff(out, option->name, strlen(option->name));
    if (option->argument)
      fprintf(out, "\\fR=\\fI%s", option->argument);
    fputs("\\fR\n", out);
    fill_help(text, sizeof text, option, NULL);
    roff(out, text, strlen(text));
    fputs(".\n", out);
  }
}

void tool_manual(FILE *out, const tool_program *program) {
  fprintf(out, ".TH %s 1 \"\" \"dfgnn %s\" \"User Commands\"\n.SH NAME\n",
          program->name, dfgnn_version());
  fprintf(out, "%s \\- %s\n.SH SYNOPSIS\n", program->name, program->summary);
  for (int i = 0; program->commands[i]; i++) {
    const tool_command *c = program->commands[i];
    fprintf(out, "%s.B %s%s%s\n[\\fIOPTION\\fR...] %s\n", i ? ".br\n" : "",
            program->name, *c->name ? " " : "", c->name, c->operands);
  }
  fputs(".SH DESCRIPTION\n", out);
  roff_text(out, program->text);
  if (*program->commands[0]->name)
    fputs(".SH COMMANDS\n", out);
  for (int i = 0; program->commands[i]; i++) {
    const tool_command *c = program->commands[i];
    if (*c->name) {
      fprintf(out, ".SS %s %s\n", c->name, c->operands);
      roff(out, c->summary, strlen(c->summary));
      fputs(".\n.PP\n", out);
    }
    roff_text(out, c->text);
    if (*c->name) {
      fputs(".PP\nOptions:", out);
      for (int o = 0; o < OPTION_COUNT; o++)
        if ((c->options & ~HAS_TABLE) >> o & 1) {
          fputs(" \\fB\\-\\-", out);
          roff(out, tool_options[o].name, strlen(tool_options[o].name));
          fputs("\\fR", out);
        }
      fputs("\n", out);
    }
  }
  fputs(".SH OPTIONS\n", out);
  roff_options(out, all_options(program));
  fputs(".PP\nThe values of a list are separated by commas; lists together "
        "stand for every combination of their values. Commands that select "
        "among stored rows take all that an option of a problem does not "
        "restrict.\n"
        ".PP\nA terminal gets tables that fit it: what all rows share stands "
        "above them, a variant is named without its backend, operator and "
        "pass, and \\fB\\-\\-wide\\fR shows the rest. A pipe gets each column "
        "that has a value, with whole names; \\fB\\-\\-json\\fR has all "
        "fields.\n",
        out);
  for (const tool_section *s = program->sections; s && s->title; s++) {
    fprintf(out, ".SH %s\n", s->title);
    roff_text(out, s->text);
  }
  fputs(".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nfailed\n.TP\n2\nwrong "
        "usage\n.TP\n3\nthe time limit was reached; the same command "
        "resumes\n.TP\n4\na candidate failed its check\n.TP\n5\na store is "
        "invalid\n.TP\n130\ninterrupted; the measurements are kept\n.SH SEE "
        "ALSO\n.BR dfgnn\\-tune (1),\n.BR dfgnn\\-bench (1),\n.BR "
        "dfgnn\\-graph (1),\n.BR dfgnn\\-job (5),\n.BR dfgnn (7)\n",
        out);
}
