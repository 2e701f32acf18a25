#include "tools/job_lines.h"
#include "tools/common.h"
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* The place in the document that the events have reached. */
typedef struct place {
  int documents, depth;
  int key;   /* the next scalar of the mapping is a key */
  int entry; /* the index in the key's list */
  char name[24];
} place;

static int add(tool_job_lines *lines, const place *p, int line) {
  tool_job_line *grown =
      realloc(lines->line, (lines->count + 1) * sizeof *grown);
  if (!grown)
    return tool_error("out of memory");
  lines->line = grown;
  tool_job_line *new = &grown[lines->count++];
  *new = (tool_job_line){.entry = p->entry, .line = line};
  memcpy(new->key, p->name, sizeof new->key);
  return TOOL_DONE;
}

static int take_scalar(tool_job_lines *lines, place *p, const char *path,
                       const yaml_event_t *event, int line) {
  const char *text = (const char *)event->data.scalar.value;
  if (strlen(text) != event->data.scalar.length)
    return tool_error("%s:%d: found a NUL in a text, expected none", path,
                      line);
  if (p->depth == 1 && p->key) {
    snprintf(p->name, sizeof p->name, "%s", text);
    p->key = p->entry = 0;
    return TOOL_DONE;
  }
  int status = add(lines, p, line);
  if (p->depth == 1)
    p->key = 1;
  else
    p->entry++;
  return status;
}

/* Takes keys and values of the first level; jobs have no deeper ones. */
static int take(tool_job_lines *lines, place *p, const char *path,
                const yaml_event_t *event) {
  int line = (int)event->start_mark.line + 1;
  switch (event->type) {
  case YAML_DOCUMENT_START_EVENT:
    if (p->documents++)
      return tool_error("%s:%d: found a second document, expected one", path,
                        line);
    return TOOL_DONE;
  case YAML_MAPPING_START_EVENT:
  case YAML_SEQUENCE_START_EVENT:
    p->depth++;
    if (p->depth == 1)
      p->key = 1;
    return TOOL_DONE;
  case YAML_MAPPING_END_EVENT:
  case YAML_SEQUENCE_END_EVENT:
    p->depth--;
    if (p->depth == 1)
      p->key = 1;
    return TOOL_DONE;
  case YAML_ALIAS_EVENT:
    if (p->depth == 1)
      p->key = !p->key;
    else
      p->entry++;
    return TOOL_DONE;
  case YAML_SCALAR_EVENT:
    return take_scalar(lines, p, path, event, line);
  default:
    return TOOL_DONE;
  }
}

int tool_job_lines_find(tool_job_lines *lines, const char *path,
                        const char *text, size_t size) {
  yaml_parser_t parser;
  place p = {0};
  int status = TOOL_DONE, over = 0;
  *lines = (tool_job_lines){0};
  if (!yaml_parser_initialize(&parser))
    return tool_error("out of memory");
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  while (!over && !status) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event))
      break;
    over = event.type == YAML_STREAM_END_EVENT;
    status = take(lines, &p, path, &event);
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  if (status)
    tool_job_lines_free(lines);
  return status;
}

void tool_job_lines_free(tool_job_lines *lines) {
  free(lines->line);
  *lines = (tool_job_lines){0};
}

int tool_job_line_of(const tool_job_lines *lines, const char *key, int entry) {
  int first = 1, found = 0;
  for (size_t i = 0; i < lines->count; i++) {
    const tool_job_line *line = &lines->line[i];
    if (strncmp(line->key, key, sizeof line->key - 1))
      continue;
    if (line->entry == entry)
      return line->line;
    if (!found++)
      first = line->line;
  }
  return first;
}
