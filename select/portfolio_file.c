/* portfolio_file.c - portfolios from their text */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "select/portfolio.h"
#include "select/portfolio_table.h"

enum {
  MOST_BYTES = 8 << 20,
  MOST_CELLS = 4096,
  MOST_GRAPHS = 4096,
  MOST_WORDS = 64 + MOST_GRAPHS /* of a line */
};

typedef struct reader {
  dfgnn_portfolios *all;
  const char *name;
  int line;
  int words;
  char *word[MOST_WORDS];
  dfgnn_device_portfolio *device;
  dfgnn_cell *cell;
  int16_t *times; /* [members][graphs] of the cell */
} reader;

static dfgnn_status wrong(const reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static dfgnn_status wrong(const reader *r, const char *format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: line %d: %s", r->name, r->line,
                     text);
}

static dfgnn_status no_memory(const reader *r) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", r->name);
}

/* ---- words --------------------------------------------------------------- */

static int to_number(double *x, const char *word) {
  char *end;
  *x = strtod(word, &end);
  return end != word && !*end && isfinite(*x);
}

static int to_whole(int64_t *x, const char *word, int64_t least, int64_t most) {
  char *end;
  errno = 0;
  *x = strtoll(word, &end, 10);
  return end != word && !*end && !errno && *x >= least && *x <= most;
}

/* "key=value": the value, if the key is this. */
static const char *value_of(const char *word, const char *key) {
  const size_t length = strlen(key);
  return !strncmp(word, key, length) && word[length] == '=' ? word + length + 1
                                                            : NULL;
}

static int copy_word(char *to, size_t size, const char *word) {
  const size_t length = strlen(word);
  if (length >= size)
    return 0;
  memcpy(to, word, length + 1);
  return 1;
}

/* Makes room for one more of a list; NULL without memory. */
static void *one_more(void *list, size_t count, size_t size) {
  return count & (count - 1) ? list
                             : realloc(list, (count ? 2 * count : 1) * size);
}

/* ---- statements ---------------------------------------------------------- */

static dfgnn_status read_signature(reader *r) {
  if ((size_t)r->words != dfgnn__signature_columns() + 1)
    return wrong(r, "found %d columns, expected %zu", r->words - 1,
                 dfgnn__signature_columns());
  for (int i = 1; i < r->words; i++)
    if (strcmp(r->word[i], dfgnn__signature_column((size_t)i - 1)))
      return wrong(r, "found column '%.40s', expected '%s'", r->word[i],
                   dfgnn__signature_column((size_t)i - 1));
  return DFGNN_OK;
}

static dfgnn_status read_graph(reader *r) {
  dfgnn_portfolios *all = r->all;
  const size_t columns = dfgnn__signature_columns();
  if ((size_t)r->words != columns + 2)
    return wrong(r, "found %d numbers of a graph, expected %zu", r->words - 2,
                 columns);
  if (all->graphs == MOST_GRAPHS)
    return wrong(r, "expected at most %d graphs", MOST_GRAPHS);
  void *grown = one_more(all->graph, all->graphs, sizeof *all->graph);
  if (!grown)
    return no_memory(r);
  all->graph = grown;
  dfgnn_known_graph *g = &all->graph[all->graphs];
  memset(g, 0, sizeof *g);
  g->signature.struct_size = sizeof g->signature;
  if (!copy_word(g->name, sizeof g->name, r->word[1]))
    return wrong(r, "the graph's name is too long");
  for (size_t i = 0; i < columns; i++) {
    double x;
    if (!to_number(&x, r->word[i + 2]) || x < 0 || x > 1e15)
      return wrong(r, "%s is '%.40s', expected a number from 0 to 1e15",
                   dfgnn__signature_column(i), r->word[i + 2]);
    dfgnn__signature_set(&g->signature, i, x);
  }
  all->graphs++;
  return DFGNN_OK;
}

static dfgnn_status read_device(reader *r) {
  dfgnn_portfolios *all = r->all;
  int64_t units, cache;
  const char *u = r->words == 5 ? value_of(r->word[3], "units") : NULL;
  const char *c = r->words == 5 ? value_of(r->word[4], "cache") : NULL;
  if (!u || !c || !to_whole(&units, u, 1, 1 << 20) ||
      !to_whole(&cache, c, 1, (int64_t)1 << 50))
    return wrong(r, "expected 'device BACKEND ARCH units=N cache=BYTES'");
  void *grown = one_more(all->device, all->devices, sizeof *all->device);
  if (!grown)
    return no_memory(r);
  all->device = grown;
  if (!(r->device = calloc(1, sizeof *r->device)))
    return no_memory(r);
  all->device[all->devices++] = r->device;
  r->cell = NULL;
  dfgnn_device_info *info = &r->device->info;
  info->struct_size = sizeof *info;
  info->units = (int)units;
  info->cache_bytes = cache;
  if (!copy_word(info->backend, sizeof info->backend, r->word[1]) ||
      !copy_word(info->arch, sizeof info->arch, r->word[2]))
    return wrong(r, "the device's name is too long");
  return DFGNN_OK;
}

static dfgnn_status read_compare(reader *r) {
  dfgnn_device_portfolio *d = r->device;
  for (int i = 1; i < r->words; i++) {
    if (d->quantities == DFGNN_QUANTITIES)
      return wrong(r, "expected at most %d quantities", DFGNN_QUANTITIES);
    if (!dfgnn__quantity_parse(&d->quantity[d->quantities++], r->word[i]))
      return wrong(r, "'%.60s' is no quantity, such as 'edges/units'",
                   r->word[i]);
  }
  return DFGNN_OK;
}

/* Reads the operator, the pass and "key=value". */
static dfgnn_status read_problem(reader *r, dfgnn_problem *p) {
  int op, pass;
  if (dfgnn_parse(&op, DFGNN_NAMES_OP, r->word[2]) ||
      dfgnn_parse(&pass, DFGNN_NAMES_PASS, r->word[3]))
    return wrong(r, "'%.40s %.40s' is no operator and pass", r->word[2],
                 r->word[3]);
  p->op = (dfgnn_op)op;
  p->pass = (dfgnn_pass)pass;
  for (int i = 4; i < r->words; i++) {
    const char *value;
    int name, good = 0;
    if ((value = value_of(r->word[i], "heads")))
      good = to_whole(&p->heads, value, 1, 1 << 20);
    else if ((value = value_of(r->word[i], "dim")))
      good = to_whole(&p->dim, value, 1, 1 << 20);
    else if ((value = value_of(r->word[i], "edge-dim")))
      good = to_whole(&p->edge_dim, value, DFGNN_EDGE_PROJECTED, 1 << 20);
    else if ((value = value_of(r->word[i], "dtype"))) {
      good = !dfgnn_parse(&name, DFGNN_NAMES_DTYPE, value);
      p->dtype = good ? (dfgnn_dtype)name : p->dtype;
    } else if ((value = value_of(r->word[i], "message"))) {
      good = !dfgnn_parse(&name, DFGNN_NAMES_MESSAGE, value);
      p->message = good ? (dfgnn_message)name : p->message;
    }
    if (!good)
      return wrong(r,
                   "found '%.40s', expected heads, dim, edge-dim, dtype or "
                   "message with a value",
                   r->word[i]);
  }
  return DFGNN_OK;
}

static dfgnn_status read_cell(reader *r) {
  dfgnn_portfolios *all = r->all;
  if (r->words < 4)
    return wrong(r, "expected 'cell NAME OPERATOR PASS heads=N dim=N ...'");
  if (all->cells == MOST_CELLS)
    return wrong(r, "expected at most %d cells", MOST_CELLS);
  void *grown = one_more(all->cell, all->cells, sizeof *all->cell);
  if (!grown)
    return no_memory(r);
  all->cell = grown;
  if (!(r->cell = calloc(1, sizeof *r->cell)))
    return no_memory(r);
  all->cell[all->cells++] = r->cell;
  r->times = NULL;
  r->cell->device = r->device;
  r->cell->problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  if (!copy_word(r->cell->name, sizeof r->cell->name, r->word[1]))
    return wrong(r, "the cell's name is too long");
  return read_problem(r, &r->cell->problem);
}

static int has_backend(const char *backend) {
  const size_t count = dfgnn__variant_count();
  const dfgnn_variant *all = dfgnn__variant(0);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(all[i].family->backend, backend))
      return 1;
  return 0;
}

/* NULL: the library has no such family. */
static const dfgnn_family *find_family(size_t *first, const char *backend,
                                       const char *name) {
  const size_t length = strlen(backend), count = dfgnn__variant_count();
  const dfgnn_variant *all = dfgnn__variant(0);
  const dfgnn_family *f = NULL;
  for (size_t i = 0; i < count; i++) {
    if (all[i].family == f)
      continue;
    f = all[i].family;
    if (!strcmp(f->backend, backend) && !strncmp(f->name, backend, length) &&
        f->name[length] == '.' && !strcmp(f->name + length + 1, name)) {
      *first = i;
      return f;
    }
  }
  return NULL;
}

/* "row", "row/4", "2row", likewise "head". */
static int parse_lanes(dfgnn_wanted *w, const char *value) {
  char *unit;
  const long times = strtol(value, &unit, 10);
  const int head = !strncmp(unit, "head", 4);
  if (!head && strncmp(unit, "row", 3))
    return 0;
  const char *rest = unit + (head ? 4 : 3);
  int64_t over = 1;
  if (*rest && (*rest != '/' || !to_whole(&over, rest + 1, 2, 32)))
    return 0;
  w->as = head ? DFGNN_WANTED_HEAD : DFGNN_WANTED_ROW;
  w->over = (int)over;
  w->times = unit == value ? 1 : times < 1 || times > 32 ? 0 : (int)times;
  return w->times;
}

/* Reads "order=place" of a family; 0: it has no such parameter or value. */
static int parse_wanted(dfgnn_wanted *w, const dfgnn_family *family,
                        const char *word) {
  for (int k = 0; k < DFGNN_MAX_PARAMETERS && family->parameters[k].name; k++) {
    const dfgnn_parameter *p = &family->parameters[k];
    const char *value = value_of(word, p->name);
    int64_t number;
    if (!value)
      continue;
    *w = (dfgnn_wanted){.parameter = k, .as = DFGNN_WANTED_NUMBER, .over = 1};
    for (int l = 0; l < DFGNN_MAX_LABELS && l < p->count; l++)
      if (p->labels[l] && !strcmp(p->labels[l], value)) {
        w->as = DFGNN_WANTED_LABEL;
        w->times = p->values[l];
        return 1;
      }
    if (to_whole(&number, value, -1, INT32_MAX)) {
      w->times = (int)number;
      return 1;
    }
    return parse_lanes(w, value);
  }
  return 0;
}

static dfgnn_status read_member(reader *r) {
  dfgnn_cell *c = r->cell;
  const char *backend = r->device->info.backend;
  if (c->members == DFGNN_CELL_MEMBERS || c->defaults || c->graphs)
    return wrong(r, "expected at most %d members, before defaults and graphs",
                 DFGNN_CELL_MEMBERS);
  dfgnn_member *m = &c->member[c->members++];
  m->family = r->words > 1 ? find_family(&m->first, backend, r->word[1]) : NULL;
  if (!m->family)
    return r->words > 1 && !has_backend(backend)
               ? DFGNN_OK
               : wrong(r, "the library has no family '%s.%.60s'", backend,
                       r->words > 1 ? r->word[1] : "");
  for (int i = 2; i < r->words; i++)
    if (m->count == DFGNN_MAX_PARAMETERS ||
        !parse_wanted(&m->wanted[m->count++], m->family, r->word[i]))
      return wrong(r, "%s has no parameter and value '%.60s'", m->family->name,
                   r->word[i]);
  return DFGNN_OK;
}

/* Reads "QUANTITY > LIMIT" at word i. */
static int parse_condition(dfgnn_condition *c, const reader *r, int i) {
  if (i + 2 >= r->words || !dfgnn__quantity_parse(&c->quantity, r->word[i]) ||
      !to_number(&c->limit, r->word[i + 2]))
    return 0;
  c->above = !strcmp(r->word[i + 1], ">");
  return c->above || !strcmp(r->word[i + 1], "<=");
}

static dfgnn_status read_default(reader *r) {
  dfgnn_cell *c = r->cell;
  int64_t member;
  if (c->defaults == DFGNN_CELL_DEFAULTS)
    return wrong(r, "expected at most %d defaults", DFGNN_CELL_DEFAULTS);
  dfgnn_default *d = &c->by[c->defaults];
  if (r->words < 2 || !to_whole(&member, r->word[1], 1, c->members))
    return wrong(r, "expected the number of one of %d members", c->members);
  d->member = (int)member - 1;
  for (int i = 2; i < r->words; i += 4)
    if (strcmp(r->word[i], i == 2 ? "if" : "and") ||
        d->conditions == DFGNN_CONDITIONS ||
        !parse_condition(&d->condition[d->conditions++], r, i + 1))
      return wrong(r, "expected 'default MEMBER if QUANTITY > LIMIT and ...'");
  size_t used = 0;
  for (int i = 3; i < r->words && used < sizeof d->text; i++)
    used += (size_t)snprintf(d->text + used, sizeof d->text - used, "%s%s",
                             i > 3 ? " " : "", r->word[i]);
  c->defaults++;
  return DFGNN_OK;
}

static dfgnn_status read_graphs(reader *r) {
  dfgnn_cell *c = r->cell;
  const dfgnn_portfolios *all = r->all;
  const int count = r->words - 1;
  if (count < 1 || c->graphs || !c->members)
    return wrong(r, "expected graphs once, after the members");
  int16_t *graph = calloc((size_t)count, sizeof *graph);
  c->graph = graph;
  r->times = malloc((size_t)c->members * (size_t)count * sizeof *r->times);
  if (!graph || !r->times) {
    free(r->times);
    return no_memory(r);
  }
  c->graphs = count;
  for (int m = 0; m < c->members; m++)
    c->member[m].time = r->times + (size_t)m * (size_t)count;
  for (int i = 0; i < c->members * count; i++)
    r->times[i] = DFGNN_TIME_NONE;
  size_t g = 0; /* cells name graphs in the order of the table */
  for (int i = 0; i < count; i++, g++) {
    while (g < all->graphs && strcmp(all->graph[g].name, r->word[i + 1]))
      g++;
    if (g == all->graphs)
      return wrong(r, "graph '%.40s' is not known, or not in their order",
                   r->word[i + 1]);
    graph[i] = (int16_t)g;
  }
  return DFGNN_OK;
}

static dfgnn_status read_times(reader *r) {
  const dfgnn_cell *c = r->cell;
  int64_t member, time;
  if (!c->graphs || r->words != c->graphs + 2 ||
      !to_whole(&member, r->word[1], 1, c->members))
    return wrong(r, "expected 'times MEMBER' and %d numbers, one a graph",
                 c->graphs);
  int16_t *at = r->times + (member - 1) * c->graphs;
  for (int i = 0; i < c->graphs; i++) {
    if (!strcmp(r->word[i + 2], "-"))
      continue;
    if (!to_whole(&time, r->word[i + 2], 0, 2000))
      return wrong(r, "found time '%.40s', expected 0 to 2000 or '-'",
                   r->word[i + 2]);
    at[i] = (int16_t)time;
  }
  return DFGNN_OK;
}

static dfgnn_status read_unranked(reader *r) {
  r->cell->unranked = 1;
  return DFGNN_OK;
}

/* A family that has left the library since it was surveyed is no mistake. */
static dfgnn_status read_unused(reader *r) {
  dfgnn_portfolios *all = r->all;
  size_t first;
  if (r->words != 2)
    return wrong(r, "expected 'unused FAMILY'");
  const dfgnn_family *f =
      find_family(&first, r->device->info.backend, r->word[1]);
  if (!f)
    return DFGNN_OK;
  void *grown =
      one_more(all->unused_family, all->unused, sizeof *all->unused_family);
  if (!grown)
    return no_memory(r);
  all->unused_family = grown;
  all->unused_family[all->unused++] = f;
  return DFGNN_OK;
}

/* ---- text ---------------------------------------------------------------- */

typedef enum needs { NOTHING, A_DEVICE, A_CELL } needs;
static const struct {
  const char *word;
  needs needs;
  dfgnn_status (*read)(reader *r);
} statements[] = {
    {"signature", NOTHING, read_signature}, {"graph", NOTHING, read_graph},
    {"device", NOTHING, read_device},       {"compare", A_DEVICE, read_compare},
    {"cell", A_DEVICE, read_cell},          {"member", A_CELL, read_member},
    {"default", A_CELL, read_default},      {"graphs", A_CELL, read_graphs},
    {"times", A_CELL, read_times},          {"unranked", A_CELL, read_unranked},
    {"unused", A_DEVICE, read_unused}};

static dfgnn_status read_line(reader *r, char *line) {
  char *rest = NULL;
  r->words = 0;
  for (char *w = strtok_r(line, " \t\r", &rest); w && *w != '#';
       w = strtok_r(NULL, " \t\r", &rest)) {
    if (r->words == MOST_WORDS)
      return wrong(r, "expected at most %d words", MOST_WORDS);
    r->word[r->words++] = w;
  }
  if (!r->words)
    return DFGNN_OK;
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (strcmp(r->word[0], statements[i].word))
      continue;
    if (statements[i].needs >= A_DEVICE && !r->device)
      return wrong(r, "expected a device before '%s'", r->word[0]);
    if (statements[i].needs == A_CELL && !r->cell)
      return wrong(r, "expected a cell before '%s'", r->word[0]);
    return statements[i].read(r);
  }
  return wrong(r, "'%.40s' is no statement", r->word[0]);
}

/* Finds the graph on which each member was best: on others it may have a time
 * without having run. */
static void find_measured(dfgnn_cell *c, const dfgnn_portfolios *all) {
  for (int m = 0; m < c->members; m++) {
    dfgnn_member *member = &c->member[m];
    int least = DFGNN_TIME_NONE;
    for (int g = 0; g < c->graphs; g++)
      if (member->time[g] < least) {
        least = member->time[g];
        member->measured = &all->graph[c->graph[g]].signature;
      }
  }
}

static int64_t most_edges(const dfgnn_cell *c, const dfgnn_portfolios *all) {
  int64_t most = 0;
  for (int g = 0; g < c->graphs; g++) {
    const int64_t edges = all->graph[c->graph[g]].signature.edges;
    most = edges > most ? edges : most;
  }
  return most;
}

/* text[size] is 0. */
static dfgnn_status read_lines(reader *r, char *text, size_t size) {
  const char *const last = text + size;
  dfgnn_status status = DFGNN_OK;
  while (text < last && !status) {
    char *end = memchr(text, '\n', (size_t)(last - text));
    char *next = end ? end + 1 : text + (last - text);
    if (end)
      *end = 0;
    r->line++;
    status = strlen(text) < (size_t)((end ? end : last) - text)
                 ? wrong(r, "found a NUL, expected text")
                 : read_line(r, text);
    text = next;
  }
  for (size_t i = 0; i < r->all->cells && !status; i++) {
    dfgnn_cell *c = r->all->cell[i];
    find_measured(c, r->all);
    c->most_edges = most_edges(c, r->all);
    if (!c->defaults || c->by[c->defaults - 1].conditions)
      status =
          wrong(r, "cell '%s' has no default without a condition", c->name);
  }
  return status;
}

dfgnn_status dfgnn__portfolios_read(dfgnn_portfolios *all, const char *name,
                                    const char *text, size_t size) {
  dfgnn_portfolios read = {0};
  if (size > MOST_BYTES)
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: %zu bytes, expected at most %d",
                       name, size, MOST_BYTES);
  reader *r = calloc(1, sizeof *r);
  char *copy = malloc(size + 1);
  dfgnn_status status = DFGNN_ERROR_MEMORY;
  if (!r || !copy) {
    dfgnn__fail(status, "%s: out of memory", name);
    goto out;
  }
  memcpy(copy, text, size);
  copy[size] = 0;
  unsigned char hash[(DFGNN_DIGEST_SIZE - 1) / 2];
  crypto_generichash(hash, sizeof hash, (const unsigned char *)text, size, NULL,
                     0);
  sodium_bin2hex(read.digest, sizeof read.digest, hash, sizeof hash);
  r->all = &read;
  r->name = name;
  /* numbers have points, whatever the program's locale has */
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  locale_t before = plain ? uselocale(plain) : (locale_t)0;
  status = read_lines(r, copy, size);
  if (plain) {
    uselocale(before);
    freelocale(plain);
  }
out:
  free(copy);
  free(r);
  if (status)
    dfgnn__portfolios_free(&read);
  else
    *all = read;
  return status;
}

void dfgnn__portfolios_free(dfgnn_portfolios *all) {
  for (size_t i = 0; i < all->cells; i++) {
    dfgnn_cell *c = all->cell[i];
    free((void *)c->member[0].time); /* of all members */
    free((void *)c->graph);
    dfgnn__grove_free(c->grove);
    free(c);
  }
  for (size_t i = 0; i < all->devices; i++)
    free(all->device[i]);
  free(all->cell);
  free(all->unused_family);
  free(all->device);
  free(all->graph);
  *all = (dfgnn_portfolios){0};
}

/* ---- the library's own --------------------------------------------------- */

__asm__(".section .rodata\n"
        ".local dfgnn__portfolio_bytes\n"
        "dfgnn__portfolio_bytes: .incbin \"select/portfolios.txt\"\n"
        ".local dfgnn__portfolio_bytes_end\n"
        "dfgnn__portfolio_bytes_end: .byte 0\n"
        ".previous\n");
extern const char dfgnn__portfolio_bytes[], dfgnn__portfolio_bytes_end[];

const char *dfgnn__portfolios_text(size_t *size) {
  *size = (size_t)(dfgnn__portfolio_bytes_end - dfgnn__portfolio_bytes);
  return dfgnn__portfolio_bytes;
}

static dfgnn_portfolios used;
static dfgnn_status opened;
static char complaint[512];

/* Reads the file that DFGNN_PORTFOLIOS names in place of the library's text. */
static dfgnn_status read_named(const char *path) {
  int fd;
  int64_t size;
  DFGNN_TRY(dfgnn__file_open(&fd, &size, path, "a file of portfolios"));
  dfgnn_status status = DFGNN_OK;
  const size_t wanted = size > MOST_BYTES ? MOST_BYTES + 1 : (size_t)size;
  char *text = malloc(wanted + 1);
  size_t got = 0;
  ssize_t n = 1;
  while (text && got < wanted && (n = read(fd, text + got, wanted - got)) > 0)
    got += (size_t)n;
  close(fd);
  if (!text)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  else if (n < 0)
    status = dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, strerror(errno));
  else
    status = dfgnn__portfolios_read(&used, path, text, got);
  free(text);
  return status;
}

static void open_once(void) {
  const char *named = getenv("DFGNN_PORTFOLIOS");
  size_t size;
  const char *text = dfgnn__portfolios_text(&size);
  opened = named && *named ? read_named(named)
                           : dfgnn__portfolios_read(
                                 &used, "the library's portfolios", text, size);
  if (opened)
    snprintf(complaint, sizeof complaint, "%s%s",
             named ? "DFGNN_PORTFOLIOS: " : "", dfgnn_last_error());
}

dfgnn_status dfgnn__portfolios_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_once);
  return opened ? dfgnn__fail(opened, "%s", complaint) : DFGNN_OK;
}

const dfgnn_portfolios *dfgnn__portfolios(void) {
  dfgnn__portfolios_open();
  return &used;
}
