/* cells.c - reads a table of problems */
#include "tools/cells.h"
#include "lib/base/file.h"
#include <stdlib.h>
#include <string.h>

static const char spaces[] = " \t\r\n";

/* The number of the problem option "--name"; OPTION_COUNT if there is none. */
static int option_of(const char *word) {
  int i = 0;
  while (i < OPTION_COUNT &&
         !((HAS_PROBLEM & ~HAS(DEVICE)) >> i & 1 && !strncmp(word, "--", 2) &&
           !strcmp(word + 2, tool_options[i].name)))
    i++;
  return i;
}

/* Sets the options of a line, whose words strtok_r cuts. */
static int set_options(tool_settings *settings, char **rest, const char *path,
                       int line) {
  tool_option_set seen = 0;
  char *word;
  while ((word = strtok_r(NULL, spaces, rest))) {
    const int option = option_of(word);
    if (option == OPTION_COUNT)
      return tool_error("%s:%d: found '%s', expected an option of a problem",
                        path, line, word);
    if (seen >> option & 1)
      return tool_error("%s:%d: found %s a second time", path, line, word);
    seen |= (tool_option_set)1 << option;
    const char *value =
        tool_options[option].argument ? strtok_r(NULL, spaces, rest) : "";
    if (!value)
      return tool_error("%s:%d: %s needs a value", path, line, word);
    if (tool_set(settings, option, value))
      return tool_error("%s:%d: %s", path, line, dfgnn_last_error());
  }
  return TOOL_DONE;
}

/* Is the name one of a list with commas?  NULL lists all. */
static int is_listed(const char *name, const char *list) {
  const size_t length = strlen(name);
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += !!*at)
    if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
      return 1;
  return !list;
}

static int add(tool_cells *cells, const tool_settings *settings,
               const char *name, const char *path, int line) {
  size_t count = 0;
  if (strlen(name) >= sizeof cells->cell->name)
    return tool_error("%s:%d: found the name %s, expected at most %zu "
                      "characters",
                      path, line, name, sizeof cells->cell->name - 1);
  tool_cell *grown =
      realloc(cells->cell, (cells->count + 1) * sizeof *cells->cell);
  if (!grown)
    return tool_error("out of memory");
  cells->cell = grown;
  for (size_t i = 0; i < cells->count; i++)
    if (!strcmp(cells->cell[i].name, name))
      return tool_error("%s:%d: found %s a second time", path, line, name);
  dfgnn_problem *problems = tool_problems(&count, settings);
  tool_cell *cell = &cells->cell[cells->count];
  if (!problems || count != 1) {
    free(problems);
    return tool_error("%s:%d: found %zu problems, expected one", path, line,
                      count);
  }
  snprintf(cell->name, sizeof cell->name, "%s", name);
  cell->problem = problems[0];
  free(problems);
  cells->count++;
  return TOOL_DONE;
}

/* Takes a line: a name and options, or nothing. */
static int take_line(tool_cells *cells, const tool_settings *settings,
                     char *text, const char *path, int line, const char *only) {
  tool_settings each = *settings;
  char *rest;
  text[strcspn(text, "#")] = 0;
  const char *name = strtok_r(text, spaces, &rest);
  if (!name)
    return TOOL_DONE;
  int status = set_options(&each, &rest, path, line);
  return status || !is_listed(name, only) ? status
                                          : add(cells, &each, name, path, line);
}

/* Is there a cell of each name of the list? */
static int check_listed(const tool_cells *cells, const char *path,
                        const char *list) {
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += !!*at) {
    const int length = (int)strcspn(at, ",");
    size_t i = 0;
    while (i < cells->count &&
           !((int)strlen(cells->cell[i].name) == length &&
             !strncmp(cells->cell[i].name, at, (size_t)length)))
      i++;
    if (i == cells->count)
      return tool_error("%s: found no cell '%.*s', which --only names", path,
                        length, at);
  }
  return cells->count ? TOOL_DONE : tool_error("%s: found no cell", path);
}

int tool_cells_read(tool_cells *cells, const tool_settings *settings,
                    const char *path, const char *only) {
  char *text = NULL;
  size_t room = 0;
  int status = TOOL_DONE;
  FILE *file;
  *cells = (tool_cells){0};
  if (dfgnn__file_or_pipe_stream(&file, path, "a table of problems"))
    return tool_error("%s", dfgnn_last_error());
  ssize_t n;
  for (int line = 1; !status && (n = getline(&text, &room, file)) > 0; line++)
    status =
        memchr(text, 0, (size_t)n)
            ? tool_error("%s:%d: found a NUL byte, expected text", path, line)
            : take_line(cells, settings, text, path, line, only);
  if (!status && ferror(file))
    status = tool_error("%s: cannot be read", path);
  free(text);
  fclose(file);
  return status ? status : check_listed(cells, path, only);
}

int tool_cells_ask(tool_graphs *graphs, const tool_cells *cells) {
  for (size_t g = 0; g < graphs->count; g++) {
    tool_recorded *asked = &graphs->graph[g].recorded;
    asked->problem = calloc(cells->count, sizeof *asked->problem);
    if (!asked->problem)
      return tool_error("out of memory");
    asked->count = cells->count;
    for (size_t c = 0; c < cells->count; c++)
      asked->problem[c] = cells->cell[c].problem;
  }
  return TOOL_DONE;
}

void tool_cells_free(tool_cells *cells) {
  free(cells->cell);
  *cells = (tool_cells){0};
}
