/* table.c - rows as a table: whole in a pipe, fitted on a terminal */
#include "tools/report.h"
#include <libsmartcols.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
  MOST_COLUMNS = 64,
  CELL = 1024,
  LEAST_TEXT = 24, /* a column of texts is wrapped to no less */
  WIDTH_UNKNOWN = 80
};

typedef struct table {
  const tool_settings *settings;
  json_t *rows;
  const tool_column *column[MOST_COLUMNS];
  int width[MOST_COLUMNS];
  int count;
  int terminal; /* its width; 0: nothing is fitted */
} table;

static void with_unit(char *text, size_t size, double x, double step,
                      const char *const *units) {
  while (fabs(x) >= step && units[1]) {
    x /= step;
    units++;
  }
  snprintf(text, size, "%.3g %s", x, *units);
}

static void number(char *text, size_t size, double x, int format) {
  static const char *const times[] = {"ns", "us", "ms", "s", NULL};
  static const char *const bytes[] = {"B", "kB", "MB", "GB", NULL};
  switch (format) {
  case TOOL_FIGURE:
    snprintf(text, size, "%.3g", x);
    break;
  case TOOL_MS:
    with_unit(text, size, x * 1e6, 1000, times);
    break;
  case TOOL_SECONDS:
    with_unit(text, size, x * 1e9, 1000, times);
    break;
  case TOOL_NS:
    with_unit(text, size, x, 1000, times);
    break;
  case TOOL_BYTES:
    with_unit(text, size, x, 1000, bytes);
    break;
  case TOOL_SHARE:
    snprintf(text, size, "%.3g %%", 100 * x);
    break;
  case TOOL_TIMES:
    snprintf(text, size, "%.3gx", x);
    break;
  default:
    snprintf(text, size, "%.0f", x);
  }
}

/* The name of a variant without backend, operator and pass, which other columns
 * have. */
static const char *alias(const char *name) {
  const char *end = name;
  for (int dots = 0; dots < 3; dots++, end++)
    if (!(end = strpbrk(end, "./")) || *end == '/')
      return name;
  return end;
}

static int format_of(const tool_column *c) { return c->format & ~TOOL_WIDE; }

static int is_text(const tool_column *c) {
  const int format = format_of(c);
  return format == TOOL_TEXT || format == TOOL_VARIANT || format == TOOL_FLAG;
}

/* Writes a cell's text; "" for a missing or null value. */
static void cell(char *text, const table *t, json_t *row,
                 const tool_column *column) {
  json_t *value = json_object_get(row, column->key);
  const int format = format_of(column);
  const char *string = json_string_value(value);
  *text = 0;
  if (string)
    snprintf(text, CELL, "%s",
             t->terminal && format == TOOL_VARIANT ? alias(string) : string);
  else if (json_is_boolean(value))
    snprintf(text, CELL, "%s",
             json_is_true(value)   ? "yes"
             : format == TOOL_FLAG ? ""
                                   : "no");
  else if (json_is_number(value))
    number(text, CELL, json_number_value(value), format);
}

static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++)
    width += (*text & 0xc0) != 0x80;
  return width;
}

/* ---- the columns --------------------------------------------------------- */

static int is_filled(const table *t, const tool_column *column) {
  char text[CELL] = "";
  size_t i;
  json_t *row;
  json_array_foreach(t->rows, i, row) {
    cell(text, t, row, column);
    if (*text)
      return 1;
  }
  return 0;
}

static int is_named(const char *name, const char *list) {
  const size_t length = strlen(name);
  for (; *list; list += strcspn(list, ","), list += *list == ',')
    if (strcspn(list, ",") == length && !strncmp(list, name, length))
      return 1;
  return 0;
}

static void choose(table *t, const tool_column *columns) {
  const char *named = t->settings->columns;
  for (const tool_column *c = columns; c->heading && t->count < MOST_COLUMNS;
       c++)
    if ((named         ? is_named(c->key, named)
         : t->terminal ? !(c->format & TOOL_WIDE)
                       : 1) &&
        is_filled(t, c))
      t->column[t->count++] = c;
}

int tool_columns_check(const tool_settings *settings,
                       const tool_column *columns) {
  char known[CELL] = "", name[64];
  for (const tool_column *c = columns; c->heading; c++) {
    const size_t n = strlen(known);
    snprintf(known + n, sizeof known - n, "%s%s", n ? "," : "", c->key);
  }
  for (const char *list = settings->json ? NULL : settings->columns;
       list && *list; list += strcspn(list, ","), list += *list == ',') {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ","), list);
    if (!is_named(name, known))
      return tool_usage("--columns: found '%s', expected names of %s", name,
                        known);
  }
  return TOOL_DONE;
}

static void drop(table *t, int at) {
  t->count--;
  memmove(&t->column[at], &t->column[at + 1],
          (size_t)(t->count - at) * sizeof *t->column);
  memmove(&t->width[at], &t->width[at + 1],
          (size_t)(t->count - at) * sizeof *t->width);
}

/* ---- the heading of what all rows share ---------------------------------- */

static int is_shared(const table *t, const tool_column *column) {
  char first[CELL], text[CELL];
  size_t i;
  json_t *row;
  cell(first, t, json_array_get(t->rows, 0), column);
  json_array_foreach(t->rows, i, row) {
    cell(text, t, row, column);
    if (strcmp(first, text))
      return 0;
  }
  return 1;
}

static void print_shared(const table *t, const tool_column *column, int *at) {
  char text[CELL], word[CELL + 64], name[64];
  size_t n = 0;
  cell(text, t, json_array_get(t->rows, 0), column);
  for (; column->heading[n] && n < sizeof name - 1; n++)
    name[n] =
        (char)(column->heading[n] |
               (column->heading[n] >= 'A' && column->heading[n] <= 'Z' ? 0x20
                                                                       : 0));
  name[n] = 0;
  snprintf(word, sizeof word, "%s%s%s", name,
           format_of(column) == TOOL_FLAG ? "" : " ",
           format_of(column) == TOOL_FLAG ? "" : text);
  const int width = width_of(word);
  if (*at)
    *at += printf(*at + 3 + width > t->terminal ? ",\n" : ", ");
  if (*at + 1 + width > t->terminal)
    *at = 0;
  printf("%s", word);
  *at += width;
}

static void measure(table *t) {
  char text[CELL];
  size_t i;
  json_t *row;
  for (int c = 0; c < t->count; c++) {
    t->width[c] = width_of(t->column[c]->heading);
    json_array_foreach(t->rows, i, row) {
      cell(text, t, row, t->column[c]);
      const int width = width_of(text);
      t->width[c] = width > t->width[c] ? width : t->width[c];
    }
  }
}

static int sum(const table *t, int least) {
  int all = t->count - 1;
  for (int c = 0; c < t->count; c++)
    all += least && is_text(t->column[c]) && t->width[c] > LEAST_TEXT
               ? LEAST_TEXT
               : t->width[c];
  return all;
}

/* Takes columns out that say the same of every row; of a single row only as
 * many as have no room. */
static void share(table *t) {
  const int single = json_array_size(t->rows) == 1;
  int at = 0;
  for (int c = 0; c < t->count && t->count > 1;)
    if (is_shared(t, t->column[c]) && (!single || sum(t, 0) > t->terminal)) {
      print_shared(t, t->column[c], &at);
      drop(t, c);
    } else {
      c++;
    }
  if (at)
    printf("\n\n");
}

/* Leaves figures out from the right, and narrows texts, until the table fits.
 */
static void fit(table *t) {
  while (t->count > 1 && sum(t, 1) > t->terminal) {
    int last = t->count - 1;
    while (last > 0 && is_text(t->column[last]))
      last--;
    last = last > 0 ? last : t->count - 1;
    tool_note(t->settings, "there is no room for %s, which --wide shows",
              t->column[last]->heading);
    drop(t, last);
  }
  int room = t->terminal - sum(t, 1);
  for (int c = 0; c < t->count; c++) {
    if (!is_text(t->column[c]) || t->width[c] <= LEAST_TEXT)
      continue;
    const int more = t->width[c] - LEAST_TEXT;
    const int given = more < room ? more : room > 0 ? room : 0;
    t->width[c] = LEAST_TEXT + given;
    room -= given;
  }
  if (t->count == 1 && t->width[0] > t->terminal)
    t->width[0] = t->terminal;
}

/* ---- printing ------------------------------------------------------------ */

/* Breaks a text into lines of `width`, where it has a blank, comma or slash. */
static void wrap(char *out, size_t size, const char *text, int width) {
  size_t n = 0;
  while (width_of(text) > width && n + (size_t)width + 8 < size) {
    size_t end = 0, best = 0;
    for (int w = 0; w < width; w++) {
      do
        end++;
      while ((text[end] & 0xc0) == 0x80);
      if (strchr(" ,/", text[end - 1]) && 2 * w > width)
        best = end;
    }
    best = best ? best : end;
    memcpy(out + n, text, best);
    n += best;
    out[n++] = '\n';
    text += best;
  }
  snprintf(out + n, size - n, "%s", text);
}

static int add_columns(struct libscols_table *out, const table *t) {
  for (int c = 0; c < t->count; c++) {
    const tool_column *column = t->column[c];
    struct libscols_column *made = scols_table_new_column(
        out, column->heading, 0,
        is_text(column) ? t->terminal ? SCOLS_FL_WRAP : 0 : SCOLS_FL_RIGHT);
    if (!made)
      return -1;
    if (t->terminal && is_text(column) &&
        (scols_column_set_safechars(made, "\n") ||
         scols_column_set_wrapfunc(made, scols_wrapnl_chunksize,
                                   scols_wrapnl_nextchunk, NULL)))
      return -1;
  }
  return 0;
}

static int add_rows(struct libscols_table *out, const table *t) {
  char text[CELL], lines[2 * CELL];
  size_t i;
  json_t *row;
  json_array_foreach(t->rows, i, row) {
    struct libscols_line *line = scols_table_new_line(out, NULL);
    for (int c = 0; line && c < t->count; c++) {
      cell(text, t, row, t->column[c]);
      wrap(lines, sizeof lines, text, t->terminal ? t->width[c] : CELL);
      if (scols_line_set_data(line, (size_t)c, lines))
        return -1;
    }
    if (!line)
      return -1;
  }
  return 0;
}

static int terminal_width(const tool_settings *settings) {
  struct winsize size = {0};
  if (settings->wide || !isatty(STDOUT_FILENO))
    return 0;
  return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col
             ? size.ws_col
             : WIDTH_UNKNOWN;
}

int tool_table(const tool_settings *settings, json_t *rows,
               const tool_column *columns) {
  table t = {
      .settings = settings, .rows = rows, .terminal = terminal_width(settings)};
  DFGNN_TRY(tool_columns_check(settings, columns));
  choose(&t, columns);
  if (!t.count)
    return TOOL_DONE;
  if (t.terminal) {
    measure(&t);
    share(&t);
    fit(&t);
  }
  struct libscols_table *out = scols_new_table();
  int failed = !out || add_columns(out, &t) || add_rows(out, &t);
  if (!failed) {
    scols_table_enable_noheadings(out, !*t.column[0]->heading);
    scols_table_enable_nowrap(out, 0); /* the fitted columns are as wide */
    scols_table_set_termforce(out, SCOLS_TERMFORCE_NEVER);
    failed = scols_print_table(out);
  }
  scols_unref_table(out);
  return failed ? tool_error("cannot print the table") : TOOL_DONE;
}
