/* survey_file.c - reads and appends to the CSV of a survey */
#include "tools/survey_file.h"
#include "lib/base/file.h"
#include "lib/base/locale.h"
#include "tools/common.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char header[] =
    "cell,graph,variant,ms,rounds,variants,revision,device\n";

enum { FIELDS = 8 };

/* ---- reading ------------------------------------------------------------- */

/* Splits a line in place; quotes protect commas.  Returns the fields. */
static int split(char *line, char *field[FIELDS]) {
  int count = 0;
  for (char *at = line; count < FIELDS;) {
    char *to = at;
    int quoted = *at == '"';
    field[count++] = at;
    for (at += quoted; *at && (quoted || !strchr(",\r\n", *at)); at++) {
      if (quoted && *at == '"' && *++at != '"') {
        quoted = 0;
        at--;
        continue;
      }
      *to++ = *at;
    }
    const int more = *at == ',';
    *to = 0;
    if (!more)
      break;
    at++;
  }
  return count;
}

static tool_block *block_of(tool_survey_file *file, char *field[FIELDS],
                            size_t of) {
  tool_block *grown =
      realloc(file->block, (file->count + 1) * sizeof *file->block);
  if (!grown)
    return NULL;
  file->block = grown;
  tool_block *block = &grown[file->count];
  *block = (tool_block){.row = calloc(of, sizeof *block->row), .of = of};
  if (!block->row)
    return NULL;
  file->count++;
  snprintf(block->cell, sizeof block->cell, "%s", field[0]);
  snprintf(block->graph, sizeof block->graph, "%s", field[1]);
  snprintf(block->device, sizeof block->device, "%s", field[7]);
  return block;
}

static void add_row(tool_block *block, char *field[FIELDS]) {
  tool_surveyed *row = &block->row[block->count++];
  snprintf(row->variant, sizeof row->variant, "%s", field[2]);
  row->ms = dfgnn__number_of(field[3], NULL);
  row->rounds = atoi(field[4]);
  row->revision = atoi(field[6]);
}

static void drop_last(tool_survey_file *file) {
  free(file->block[--file->count].row);
}

/* Takes a row: it belongs to the unfinished block, if there is one, or begins
 * the next; an unfinished block that another follows was cut off.  *open says
 * whether the last block wants more rows. */
static void take_line(tool_survey_file *file, char *line, int *open) {
  char *field[FIELDS];
  const int fields = split(line, field);
  const size_t of = fields == FIELDS ? strtoul(field[5], NULL, 10) : 0;
  const int is_row = of > 0 && of <= 1 << 20;
  tool_block *block = *open ? &file->block[file->count - 1] : NULL;
  if (block && (!is_row || of != block->of || strcmp(block->cell, field[0]) ||
                strcmp(block->graph, field[1]))) {
    drop_last(file);
    block = NULL;
  }
  *open = 0;
  if (!is_row || (!block && !(block = block_of(file, field, of))))
    return;
  add_row(block, field);
  *open = block->count < of;
}

/* A line that a writer did not finish is the last one; what else is no row ends
 * its block, and the lines after it count. */
static int read_lines(tool_survey_file *file, FILE *in, const char *path) {
  char *line = NULL;
  size_t room = 0;
  int open = 0, status = TOOL_DONE;
  int64_t at = 0;
  for (ssize_t n; (n = getline(&line, &room, in)) > 0; at += n) {
    if (at == 0 && strcmp(line, header)) {
      status = tool_error("%s: is no survey, expected the header %.*s", path,
                          (int)strlen(header) - 1, header);
      break;
    }
    if (line[n - 1] != '\n')
      break;
    if (memchr(line, 0, (size_t)n))
      *line = 0;
    if (at > 0)
      take_line(file, line, &open);
    if (!open)
      file->complete = at + n;
  }
  if (open)
    drop_last(file);
  free(line);
  return status;
}

int tool_survey_read(tool_survey_file *file, const char *path) {
  FILE *in;
  *file = (tool_survey_file){0};
  if (access(path, F_OK) && errno == ENOENT)
    return TOOL_DONE;
  if (dfgnn__file_or_pipe_stream(&in, path, "a survey"))
    return tool_error("%s", dfgnn_last_error());
  int status = read_lines(file, in, path);
  fclose(in);
  return status;
}

void tool_survey_free(tool_survey_file *file) {
  while (file->count)
    drop_last(file);
  free(file->block);
  *file = (tool_survey_file){0};
}

const tool_block *tool_survey_find(const tool_survey_file *file,
                                   const char *cell, const char *graph) {
  for (size_t i = file->count; i-- > 0;)
    if (!strcmp(file->block[i].cell, cell) &&
        !strcmp(file->block[i].graph, graph))
      return &file->block[i];
  return NULL;
}

/* ---- writing ------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, text, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return 0;
    text += n;
    size -= (size_t)n;
  }
  return 1;
}

int tool_survey_current(const tool_block *block) {
  for (size_t k = 0; k < block->count; k++) {
    const dfgnn_variant *v = dfgnn__variant_find(block->row[k].variant);
    if (v && v->family->revision != block->row[k].revision)
      return 0;
  }
  return 1;
}

int tool_survey_begin(const char *path) {
  tool_survey_file file = {0};
  /* A FIFO that is opened for both waits for nobody. */
  const int fd =
      open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd >= 0 && dfgnn__file_or_pipe_check(fd, path, "a survey"))
    return tool_error("%s", dfgnn_last_error());
  /* Others append under the lock, so what is incomplete was left behind. */
  int good = fd >= 0 && !flock(fd, LOCK_EX);
  if (good && tool_survey_read(&file, path)) {
    close(fd);
    return TOOL_FAILED;
  }
  good = good && !ftruncate(fd, file.complete);
  if (good && !file.complete)
    good = write_all(fd, header, strlen(header));
  tool_survey_free(&file);
  if (!good)
    tool_error("%s: %s", path, strerror(errno));
  if (fd >= 0)
    close(fd);
  return good ? TOOL_DONE : TOOL_FAILED;
}

static void put_text(FILE *out, const char *text) {
  if (!strpbrk(text, ",\"")) {
    fputs(text, out);
    return;
  }
  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"')
      fputc('"', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

static const dfgnn_surveyed *sorted; /* of the block that is being written */

static int by_time(const void *a, const void *b) {
  const dfgnn_surveyed *x = &sorted[*(const size_t *)a],
                       *y = &sorted[*(const size_t *)b];
  return (x->ms > y->ms) - (x->ms < y->ms);
}

/* Lists the variants that have a time, the fastest first. */
static size_t rank(size_t *order, const dfgnn_survey *survey) {
  size_t count = 0;
  for (size_t i = 0; i < survey->count; i++)
    if (isfinite(survey->result[i].ms))
      order[count++] = i;
  sorted = survey->result;
  qsort(order, count, sizeof *order, by_time);
  return count;
}

static void put_block(FILE *out, const char *cell, const char *graph,
                      const char *device, const dfgnn_survey *survey,
                      const size_t *order, size_t count) {
  for (size_t k = 0; k < count; k++) {
    const dfgnn_variant *variant = survey->variant[order[k]];
    const dfgnn_surveyed *result = &survey->result[order[k]];
    put_text(out, cell);
    fputc(',', out);
    put_text(out, graph);
    fputc(',', out);
    put_text(out, variant->name);
    fprintf(out, ",%.6g,%d,%zu,%d,", result->ms, result->rounds, count,
            variant->family->revision);
    put_text(out, device);
    fputc('\n', out);
  }
}

int tool_survey_append(const char *path, const char *cell, const char *graph,
                       const char *device, const dfgnn_survey *survey) {
  char *text = NULL;
  size_t size = 0;
  size_t *order = malloc((survey->count + 1) * sizeof *order);
  FILE *out = open_memstream(&text, &size);
  int good = order && out;
  if (good)
    put_block(out, cell, graph, device, survey, order, rank(order, survey));
  if (out)
    good &= !fclose(out);
  const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  good = good && fd >= 0 && !flock(fd, LOCK_EX);
  const off_t end = good ? lseek(fd, 0, SEEK_END) : 0;
  if (good && !write_all(fd, text, size)) {
    good = 0;
    if (ftruncate(fd, end)) /* then the reader passes over what is there */
      (void)0;
  }
  if (!good)
    tool_error("%s: %s", path, strerror(errno));
  if (fd >= 0)
    close(fd);
  free(text);
  free(order);
  return good ? TOOL_DONE : TOOL_FAILED;
}
