/* forest_file.c - forests as bytes
 *
 * Numbers are little-endian, texts a length (2 bytes) and that many bytes:
 *   count of forests (2), then of each forest
 *     key, origin, features (1), of each feature
 *       name, gain (8), thresholds (1), each a double (8)
 *     members (1), of each: trees (2), of each tree
 *       nodes (1), of each: feature (1), then a leaf's value (2) or the bin (1)
 *     covers (2), of each
 *       cell, family, graphs (2), settings (2)
 * Nodes are in preorder, so their structure needs no words. */
#include "select/forest.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/output.h"

static const char magic[] = "dfgnn-model 2\n";
enum { MAGIC = sizeof magic - 1, MOST_BYTES = 32 << 20, MOST_FORESTS = 256 };

/* ---- reading ------------------------------------------------------------- */

typedef struct reader {
  const unsigned char *at, *end;
  int bad;
} reader;

static uint64_t take(reader *r, int bytes) {
  uint64_t x = 0;
  if (r->end - r->at < bytes) {
    r->bad = 1;
    return 0;
  }
  for (int i = 0; i < bytes; i++)
    x |= (uint64_t)r->at[i] << (8 * i);
  r->at += bytes;
  return x;
}

static void take_text(reader *r, char *text, size_t size) {
  const size_t length = (size_t)take(r, 2);
  *text = 0;
  if (r->bad || length >= size || (size_t)(r->end - r->at) < length) {
    r->bad = 1;
    return;
  }
  for (size_t i = 0; i < length; i++) {
    text[i] = (char)r->at[i];
    r->bad |= r->at[i] < 0x20 || r->at[i] > 0x7e;
  }
  text[length] = 0;
  r->at += length;
}

static void take_feature(reader *r, dfgnn_forest_feature *f) {
  take_text(r, f->name, sizeof f->name);
  f->gain = take(r, 8);
  f->thresholds = (int)take(r, 1);
  if (f->thresholds > DFGNN_FOREST_BINS - 2) {
    f->thresholds = 0;
    r->bad = 1;
  }
  for (int k = 0; k < f->thresholds; k++) {
    const uint64_t bits = take(r, 8);
    memcpy(&f->threshold[k], &bits, sizeof bits);
    r->bad |= !(k ? f->threshold[k - 1] < f->threshold[k]
                  : f->threshold[k] == f->threshold[k]);
  }
}

/* Returns the position after the subtree that begins at node i, and sets where
 * right children begin; 0: the subtree does not end within `count` nodes. */
static int link_children(dfgnn_forest_node *node, int i, int count) {
  if (i >= count)
    return 0;
  if (node[i].feature == DFGNN_FOREST_LEAF)
    return i + 1;
  const int right = link_children(node, i + 1, count);
  if (!right)
    return 0;
  node[i].right = (uint8_t)right;
  return link_children(node, right, count);
}

static void take_tree(reader *r, dfgnn_forest *f) {
  const int count = (int)take(r, 1);
  dfgnn_forest_node *node = f->node + f->nodes;
  if (count < 1 || count > DFGNN_FOREST_NODES) {
    r->bad = 1;
    return;
  }
  for (int i = 0; i < count; i++) {
    node[i] = (dfgnn_forest_node){.feature = (uint8_t)take(r, 1)};
    if (node[i].feature == DFGNN_FOREST_LEAF)
      node[i].value = (int16_t)(uint16_t)take(r, 2);
    else
      node[i].bin = (uint8_t)take(r, 1);
    r->bad |= node[i].feature != DFGNN_FOREST_LEAF &&
              (node[i].feature >= f->features ||
               node[i].bin > f->feature[node[i].feature].thresholds);
  }
  if (!r->bad)
    r->bad = link_children(node, 0, count) != count;
  f->nodes += (size_t)count;
}

/* Makes room for the most trees and nodes that the bytes left can have: a node
 * takes at least two bytes. */
static int reserve(reader *r, dfgnn_forest *f) {
  const size_t left = (size_t)(r->end - r->at);
  f->node = malloc((left / 2 + DFGNN_FOREST_NODES) * sizeof *f->node);
  f->root = malloc((left / 3 + 1) * sizeof *f->root);
  return f->node && f->root;
}

static void give_back(dfgnn_forest *f, size_t trees) {
  void *node = realloc(f->node, (f->nodes ? f->nodes : 1) * sizeof *f->node);
  void *root = realloc(f->root, (trees ? trees : 1) * sizeof *f->root);
  f->node = node ? node : f->node;
  f->root = root ? root : f->root;
}

/* Covers are in order, so that they can be searched. */
static int take_covers(reader *r, dfgnn_forest *f) {
  const size_t count = (size_t)take(r, 2);
  if (r->bad || (size_t)(r->end - r->at) < 8 * count) {
    r->bad = 1;
    return 1;
  }
  f->cover = calloc(count + 1, sizeof *f->cover);
  if (!f->cover)
    return 0;
  for (; f->covers < count && !r->bad; f->covers++) {
    dfgnn_forest_cover *c = &f->cover[f->covers];
    take_text(r, c->cell, sizeof c->cell);
    take_text(r, c->family, sizeof c->family);
    c->graphs = (int)take(r, 2);
    c->settings = (int)take(r, 2);
    r->bad |= f->covers && dfgnn__forest_cover_order(c - 1, c) >= 0;
  }
  return 1;
}

/* Reads a forest; 0 without memory. */
static int take_forest(reader *r, dfgnn_forest *f) {
  size_t trees = 0;
  take_text(r, f->key, sizeof f->key);
  take_text(r, f->origin, sizeof f->origin);
  f->features = (int)take(r, 1);
  if (r->bad || f->features > DFGNN_FOREST_FEATURES) {
    r->bad = 1;
    return 1;
  }
  f->feature = calloc((size_t)f->features + 1, sizeof *f->feature);
  if (!f->feature)
    return 0;
  for (int k = 0; k < f->features && !r->bad; k++)
    take_feature(r, &f->feature[k]);
  f->members = (int)take(r, 1);
  if (r->bad || f->members < 1 || f->members > DFGNN_FOREST_MEMBERS) {
    r->bad = 1;
    return 1;
  }
  if (!reserve(r, f))
    return 0;
  for (int m = 0; m < f->members && !r->bad; m++) {
    f->trees[m] = (int)take(r, 2);
    r->bad |= f->trees[m] > DFGNN_FOREST_TREES;
    for (int t = 0; t < f->trees[m] && !r->bad; t++) {
      f->root[trees++] = (uint32_t)f->nodes;
      take_tree(r, f);
    }
  }
  give_back(f, trees);
  return r->bad || take_covers(r, f);
}

static dfgnn_status take_all(dfgnn_forests *all, reader *r, const char *name) {
  const size_t count = (size_t)take(r, 2);
  int memory = 1;
  if (count > MOST_FORESTS)
    r->bad = 1;
  else if (!(all->forest = calloc(count + 1, sizeof *all->forest)))
    memory = 0;
  while (memory && !r->bad && all->count < count)
    memory = take_forest(r, &all->forest[all->count++]);
  if (!memory)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", name);
  if (r->bad || r->at != r->end)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: the model is damaged at or after forest %zu, "
                       "expected one as 'dfgnn-tune model train' writes it",
                       name, all->count);
  return DFGNN_OK;
}

static void digest_bytes(char digest[DFGNN_DIGEST_SIZE], const void *bytes,
                         size_t size) {
  unsigned char hash[(DFGNN_DIGEST_SIZE - 1) / 2];
  crypto_generichash(hash, sizeof hash, bytes, size, NULL, 0);
  sodium_bin2hex(digest, DFGNN_DIGEST_SIZE, hash, sizeof hash);
}

dfgnn_status dfgnn__forests_read(dfgnn_forests *forests, const char *name,
                                 const void *bytes, size_t size) {
  const unsigned char *given = bytes;
  dfgnn_forests all = {0};
  dfgnn_status status = DFGNN_OK;
  if (size < MAGIC + 4 || memcmp(given, magic, MAGIC))
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: expected a model, whose first line is '%.*s'", name,
                       MAGIC - 1, magic);
  reader head = {.at = given + MAGIC, .end = given + MAGIC + 4};
  uLongf length = (uLongf)take(&head, 4);
  if (length > MOST_BYTES)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: %lu bytes when unpacked, expected at most %d", name,
                       length, MOST_BYTES);
  unsigned char *raw = malloc(length + 1);
  if (!raw)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", name);
  const uLongf expected = length;
  if (uncompress(raw, &length, given + MAGIC + 4, size - MAGIC - 4) != Z_OK ||
      length != expected) {
    status = dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: damaged, cannot be unpacked",
                         name);
  } else {
    reader r = {.at = raw, .end = raw + length};
    status = take_all(&all, &r, name);
  }
  free(raw);
  if (status) {
    dfgnn__forests_free(&all);
    return status;
  }
  digest_bytes(all.digest, bytes, size);
  *forests = all;
  return DFGNN_OK;
}

dfgnn_status dfgnn__forests_load(dfgnn_forests *forests, const char *path) {
  int64_t size = 0, got = 0;
  int fd = -1;
  dfgnn_status status = dfgnn__file_open(&fd, &size, path, "a model");
  if (status)
    return status;
  unsigned char *bytes = size <= MOST_BYTES ? malloc((size_t)size + 1) : NULL;
  while (bytes && got < size) {
    const ssize_t n = read(fd, bytes + got, (size_t)(size - got));
    if (n <= 0)
      break;
    got += n;
  }
  if (!bytes || got < size)
    status = dfgnn__fail(DFGNN_ERROR_IO,
                         "%s: %lld of %lld bytes read, expected a model of at "
                         "most %d",
                         path, (long long)got, (long long)size, MOST_BYTES);
  else
    status = dfgnn__forests_read(forests, path, bytes, (size_t)size);
  close(fd);
  free(bytes);
  return status;
}

/* ---- writing ------------------------------------------------------------- */

typedef struct writer {
  unsigned char *bytes;
  size_t count, room;
  int failed;
} writer;

static void put(writer *w, uint64_t x, int bytes) {
  if (w->count + 8 > w->room) {
    const size_t room = w->room ? 2 * w->room : 4096;
    unsigned char *grown = realloc(w->bytes, room);
    if (!grown) {
      w->failed = 1;
      return;
    }
    w->bytes = grown;
    w->room = room;
  }
  for (int i = 0; i < bytes; i++)
    w->bytes[w->count++] = (unsigned char)(x >> (8 * i));
}

static void put_text(writer *w, const char *text) {
  put(w, strlen(text), 2);
  for (; *text; text++)
    put(w, (unsigned char)*text, 1);
}

static void put_feature(writer *w, const dfgnn_forest_feature *f) {
  put_text(w, f->name);
  put(w, f->gain, 8);
  put(w, (uint64_t)f->thresholds, 1);
  for (int k = 0; k < f->thresholds; k++) {
    uint64_t bits;
    memcpy(&bits, &f->threshold[k], sizeof bits);
    put(w, bits, 8);
  }
}

static void put_forest(writer *w, const dfgnn_forest *f) {
  size_t tree = 0, trees = 0;
  put_text(w, f->key);
  put_text(w, f->origin);
  put(w, (uint64_t)f->features, 1);
  for (int k = 0; k < f->features; k++)
    put_feature(w, &f->feature[k]);
  put(w, (uint64_t)f->members, 1);
  for (int m = 0; m < f->members; m++)
    trees += (size_t)f->trees[m];
  for (int m = 0; m < f->members; m++) {
    put(w, (uint64_t)f->trees[m], 2);
    for (int t = 0; t < f->trees[m]; t++, tree++) {
      const size_t first = f->root[tree];
      const size_t end = tree + 1 < trees ? f->root[tree + 1] : f->nodes;
      put(w, end - first, 1);
      for (size_t i = first; i < end; i++) {
        const dfgnn_forest_node *node = &f->node[i];
        put(w, node->feature, 1);
        if (node->feature == DFGNN_FOREST_LEAF)
          put(w, (uint16_t)node->value, 2);
        else
          put(w, node->bin, 1);
      }
    }
  }
  put(w, f->covers, 2);
  for (size_t i = 0; i < f->covers; i++) {
    put_text(w, f->cover[i].cell);
    put_text(w, f->cover[i].family);
    put(w, (uint64_t)f->cover[i].graphs, 2);
    put(w, (uint64_t)f->cover[i].settings, 2);
  }
}

dfgnn_status dfgnn__forests_save(const dfgnn_forests *forests,
                                 const char *path) {
  static const dfgnn_output_kind kind = {.name = "a model",
                                         .mark = {{0, "dfgnn-model"}}};
  writer w = {0};
  dfgnn_status status = DFGNN_OK;
  put(&w, forests->count, 2);
  for (size_t i = 0; i < forests->count; i++)
    put_forest(&w, &forests->forest[i]);
  uLongf size = compressBound(w.count);
  unsigned char *file = malloc(MAGIC + 4 + size);
  if (w.failed || !file ||
      compress2(file + MAGIC + 4, &size, w.bytes, w.count, 9) != Z_OK) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a model");
  } else {
    memcpy(file, magic, MAGIC);
    for (int i = 0; i < 4; i++)
      file[MAGIC + i] = (unsigned char)(w.count >> (8 * i));
    status = dfgnn__write_bytes(path, &kind, file, MAGIC + 4 + size);
  }
  free(file);
  free(w.bytes);
  return status;
}

void dfgnn__forests_free(dfgnn_forests *forests) {
  for (size_t i = 0; i < forests->count; i++)
    dfgnn__forest_free(&forests->forest[i]);
  free(forests->forest);
  *forests = (dfgnn_forests){0};
}

const dfgnn_forest *dfgnn__forests_find(const dfgnn_forests *forests,
                                        const char *key) {
  for (size_t i = 0; i < forests->count; i++)
    if (!strcmp(forests->forest[i].key, key))
      return &forests->forest[i];
  return NULL;
}
