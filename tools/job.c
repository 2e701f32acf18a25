/* job.c - YAML job files, dfgnn-job(5), by libyaml */
#include "tools/job.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tools/suggest.h"
#include <libgen.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* A key of the mapping and the option that its value sets as the command line
 * would.  An option without an argument takes true or false. */
typedef struct job_key {
  const char *name;
  int option; /* OPTION_COUNT: none, the values are graphs */
  int most;   /* entries of a list; 0: a single value */
} job_key;

static const job_key keys[] = {
    {"graphs", OPTION_COUNT, TOOL_MAX_LIST},
    {"operators", OPTION_OP, TOOL_MAX_LIST},
    {"passes", OPTION_PASS, TOOL_MAX_LIST},
    {"widths", OPTION_DIM, TOOL_MAX_LIST},
    {"heads", OPTION_HEADS, TOOL_MAX_LIST},
    {"dtypes", OPTION_DTYPE, TOOL_MAX_LIST},
    {"math", OPTION_MATH, TOOL_MAX_LIST},
    {"layouts", OPTION_LAYOUT, TOOL_MAX_LIST},
    {"devices", OPTION_DEVICE, TOOL_MAX_DEVICES},
    {"edge-dims", OPTION_EDGE_DIM, TOOL_MAX_LIST},
    {"edge-uses", OPTION_EDGE_USE, TOOL_MAX_LIST},
    {"messages", OPTION_MESSAGE, TOOL_MAX_LIST},
    {"programs", OPTION_PROGRAM, TOOL_MAX_LIST},
    {"budget", OPTION_BUDGET, 0},
    {"time-limit", OPTION_TIME_LIMIT, 0},
    {"store", OPTION_STORE, 0},
    {"seed", OPTION_SEED, 0},
    {"threads", OPTION_THREADS, 0},
    {"cold", OPTION_COLD, 0},
    {"deterministic", OPTION_NO_DETERMINISTIC, 0},
    {"weights", OPTION_WEIGHTS, 0},
    {"bias", OPTION_BIAS, 0},
    {"dropout", OPTION_DROPOUT, 0},
    {"exhaustive", OPTION_EXHAUSTIVE, 0},
    {"anonymous", OPTION_ANONYMOUS, 0},
};

enum { KEYS = sizeof keys / sizeof *keys };

typedef struct job {
  tool_settings *settings;
  tool_graphs *graphs; /* NULL: the command line has some */
  const char *path;
  char *folder;
  yaml_document_t document;
} job;

/* ---- values ------------------------------------------------------------- */

/* Prints "FILE:LINE: KEY: message"; key may be NULL. */
__attribute__((format(printf, 4, 5))) static int
wrong(const job *j, const yaml_node_t *at, const job_key *key,
      const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return tool_error("%s:%zu: %s%s%s", j->path, at->start_mark.line + 1,
                    key ? key->name : "", key ? ": " : "", message);
}

/* Says what tool_set() found, which names the option and not the key. */
static int refuse(const job *j, const yaml_node_t *at, const job_key *key) {
  const char *message = strstr(dfgnn_last_error(), ": ");
  return wrong(j, at, key, "%s", message ? message + 2 : dfgnn_last_error());
}

static int is_a(const job *j, const yaml_node_t *node, const job_key *key,
                yaml_node_type_t type) {
  static const char *const names[] = {
      [YAML_NO_NODE] = "nothing",
      [YAML_SCALAR_NODE] = "a single value",
      [YAML_SEQUENCE_NODE] = "a list",
      [YAML_MAPPING_NODE] = "a mapping",
  };
  if (node->type == type)
    return 1;
  wrong(j, node, key, "found %s, expected %s", names[node->type], names[type]);
  return 0;
}

/* The text of a single value; NULL, with a message, if it is none. */
static const char *text_of(const job *j, const yaml_node_t *node,
                           const job_key *key) {
  if (!is_a(j, node, key, YAML_SCALAR_NODE))
    return NULL;
  const char *text = (const char *)node->data.scalar.value;
  if (strlen(text) == node->data.scalar.length)
    return text;
  wrong(j, node, key, "found a NUL in a text, expected none");
  return NULL;
}

static int put(const job *j, const yaml_node_t *node, const job_key *key,
               const char *text) {
  char **kept = j->settings->owned;
  while (*kept)
    kept++;
  if (!(*kept = strdup(text)))
    return tool_error("out of memory");
  return tool_set(j->settings, key->option, *kept) ? refuse(j, node, key)
                                                   : TOOL_DONE;
}

static int put_flag(const job *j, const yaml_node_t *node, const job_key *key,
                    const char *text) {
  int yes = !strcmp(text, "true") || !strcmp(text, "yes");
  if (!yes && strcmp(text, "false") && strcmp(text, "no"))
    return wrong(j, node, key, "found '%s', expected true, false, yes or no",
                 text);
  *(int *)((char *)j->settings + tool_options[key->option].field) = yes;
  return TOOL_DONE;
}

/* Makes a path relative to the job file; a name without '/' and wildcards that
 * is no file there, such as a generator's specification, stays. */
static int put_graph(const job *j, const char *name) {
  struct stat info;
  char path[8192];
  snprintf(path, sizeof path, "%s%s%s", *name == '/' ? "" : j->folder,
           *name == '/' ? "" : "/", name);
  int stays = stat(path, &info) && !strpbrk(name, "*?[/");
  return tool_graphs_add(j->graphs, stays ? name : path);
}

static int take_single(const job *j, const yaml_node_t *node,
                       const job_key *key, int given) {
  char store[8192];
  const char *text = text_of(j, node, key);
  if (!text)
    return TOOL_FAILED;
  if (given)
    return TOOL_DONE;
  if (!tool_options[key->option].argument)
    return put_flag(j, node, key, text);
  if (key->option != OPTION_STORE || !*text || *text == '/')
    return put(j, node, key, text);
  snprintf(store, sizeof store, "%s/%s", j->folder, text);
  return put(j, node, key, store);
}

/* Entries are tried one by one, so that the message about a wrong one tells its
 * line, and then set together. */
static int take_entry(const job *j, const yaml_node_t *node, const job_key *key,
                      char **list, int given) {
  const char *text = text_of(j, node, key);
  if (!text)
    return TOOL_FAILED;
  if (given)
    return TOOL_DONE;
  if (key->option == OPTION_COUNT)
    return put_graph(j, text);
  tool_settings alone = *j->settings;
  if (tool_set(&alone, key->option, text))
    return refuse(j, node, key);
  size_t used = *list ? strlen(*list) : 0, size = used + strlen(text) + 2;
  char *longer = realloc(*list, size);
  if (!longer)
    return tool_error("out of memory");
  snprintf(longer + used, size - used, "%s%s", used ? "," : "", text);
  *list = longer;
  return TOOL_DONE;
}

static int take_list(job *j, const yaml_node_t *node, const job_key *key,
                     int given) {
  char *list = NULL;
  int status = TOOL_DONE, count = 0;
  if (!is_a(j, node, key, YAML_SEQUENCE_NODE))
    return TOOL_FAILED;
  const yaml_node_item_t *item = node->data.sequence.items.start,
                         *end = node->data.sequence.items.top;
  if (item == end)
    return wrong(j, node, key, "found no entry, expected one or more");
  for (; item < end && !status; item++) {
    const yaml_node_t *entry = yaml_document_get_node(&j->document, *item);
    status =
        count++ < key->most
            ? take_entry(j, entry, key, &list, given)
            : wrong(j, entry, key, "found %td entries, expected at most %d",
                    end - node->data.sequence.items.start, key->most);
  }
  if (!status && list)
    status = put(j, node, key, list);
  free(list);
  return status;
}

/* ---- the mapping --------------------------------------------------------- */

/* The number of the key that a node names; -1, with a message, if none. */
static int key_of(const job *j, const yaml_node_t *node) {
  const char *name = text_of(j, node, NULL), *names[KEYS + 1] = {0};
  char hint[64];
  if (!name)
    return -1;
  for (int k = 0; k < KEYS; k++) {
    names[k] = keys[k].name;
    if (!strcmp(name, names[k]))
      return k;
  }
  wrong(j, node, NULL, "found the key '%s', expected one of dfgnn-job(5)%s",
        name, tool_suggest(hint, sizeof hint, name, "", names));
  return -1;
}

static int take_mapping(job *j) {
  uint64_t seen = 0;
  int status = TOOL_DONE;
  const yaml_node_t *root = yaml_document_get_root_node(&j->document);
  if (!root || (root->type == YAML_SCALAR_NODE && !root->data.scalar.length))
    return tool_error("%s:1: empty, expected a mapping", j->path);
  if (!is_a(j, root, NULL, YAML_MAPPING_NODE))
    return TOOL_FAILED;
  const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
  for (; pair < root->data.mapping.pairs.top && !status; pair++) {
    const yaml_node_t *name = yaml_document_get_node(&j->document, pair->key),
                      *value =
                          yaml_document_get_node(&j->document, pair->value);
    int k = key_of(j, name);
    if (k < 0)
      return TOOL_FAILED;
    if (seen >> k & 1)
      return wrong(j, name, &keys[k], "found a second time");
    seen |= UINT64_C(1) << k;
    int given = keys[k].option == OPTION_COUNT
                    ? !j->graphs
                    : (int)(j->settings->given >> keys[k].option & 1);
    status = keys[k].most ? take_list(j, value, &keys[k], given)
                          : take_single(j, value, &keys[k], given);
  }
  return status;
}

/* ---- reading ------------------------------------------------------------ */

#define JOB_LIMIT (1 << 20)

/* Reads the whole file, ended by a NUL; NULL with a message if that fails. */
static char *slurp(size_t *size, const char *path) {
  int64_t told;
  int fd;
  ssize_t n = 1;
  dfgnn_status status =
      dfgnn__file_or_pipe_open(&fd, &told, path, "a job file");
  if (status) {
    tool_fail(status);
    return NULL;
  }
  char *text = malloc(JOB_LIMIT + 1);
  for (*size = 0; text && n > 0 && *size < JOB_LIMIT; *size += (size_t)n)
    if ((n = read(fd, text + *size, JOB_LIMIT - *size)) < 0)
      break;
  close(fd);
  if (!text || n < 0)
    tool_error("%s: cannot be read", path);
  else if (*size == JOB_LIMIT)
    tool_error("%s: 1 MiB or more, expected a job file", path);
  else if (memchr(text, 0, *size))
    tool_error("%s: found a NUL byte, expected YAML text", path);
  else {
    text[*size] = 0;
    return text;
  }
  free(text);
  return NULL;
}

/* Loads a document; 0, with a message, if it is no YAML. */
static int load(yaml_document_t *document, yaml_parser_t *parser,
                const char *path) {
  char where[160] = "";
  if (yaml_parser_load(parser, document))
    return 1;
  if (parser->context)
    snprintf(where, sizeof where, ", %s that begins on line %zu",
             parser->context, parser->context_mark.line + 1);
  tool_error("%s:%zu: %s%s", path, parser->problem_mark.line + 1,
             parser->problem ? parser->problem : "out of memory", where);
  return 0;
}

/* Lists inside one another; a job file has one inside a mapping.  libyaml takes
 * time that grows with the square of the depth. */
enum { MOST_DEPTH = 8 };

/* Refuses a text whose lists lie too deep before it is loaded; other faults are
 * left to the loading. */
static int check_depth(const job *j, const char *text, size_t size) {
  yaml_parser_t parser;
  int depth = 0, status = TOOL_DONE, end = 0;
  if (!yaml_parser_initialize(&parser))
    return tool_error("out of memory");
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  while (!status && !end) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event))
      break;
    depth += event.type == YAML_SEQUENCE_START_EVENT ||
             event.type == YAML_MAPPING_START_EVENT;
    depth -= event.type == YAML_SEQUENCE_END_EVENT ||
             event.type == YAML_MAPPING_END_EVENT;
    end = event.type == YAML_STREAM_END_EVENT;
    if (depth > MOST_DEPTH)
      status = tool_error("%s:%zu: found lists %d deep, expected a mapping of "
                          "values and lists",
                          j->path, event.start_mark.line + 1, depth);
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  return status;
}

/* Takes the only document of a text. */
static int take_text(job *j, const char *text, size_t size) {
  yaml_parser_t parser;
  yaml_document_t second;
  int status = check_depth(j, text, size);
  if (status)
    return status;
  status = TOOL_FAILED;
  if (!yaml_parser_initialize(&parser))
    return tool_error("out of memory");
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  if (load(&j->document, &parser, j->path)) {
    if (!yaml_document_get_root_node(&j->document)) {
      status = take_mapping(j);
    } else if (load(&second, &parser, j->path)) {
      const yaml_node_t *other = yaml_document_get_root_node(&second);
      status = other ? tool_error("%s:%zu: found a second document, expected "
                                  "one",
                                  j->path, second.start_mark.line + 1)
                     : take_mapping(j);
      yaml_document_delete(&second);
    }
    yaml_document_delete(&j->document);
  }
  yaml_parser_delete(&parser);
  return status;
}

int tool_job_read(tool_settings *settings, tool_graphs *graphs, char hash[33],
                  const char *path) {
  char *copy = strdup(path);
  size_t size;
  char *text = slurp(&size, path);
  int status = TOOL_FAILED;
  if (text && copy) {
    unsigned char digest[16];
    job j = {.settings = settings,
             .graphs = graphs->count ? NULL : graphs,
             .path = path,
             .folder = dirname(copy)};
    crypto_generichash(digest, sizeof digest, (const unsigned char *)text, size,
                       NULL, 0);
    sodium_bin2hex(hash, 33, digest, sizeof digest);
    status = take_text(&j, text, size);
  }
  free(text);
  free(copy);
  return status;
}
