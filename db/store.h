/* store.h - the tuning store: immutable measurements in SQLite
 *
 * One row is one measured (or rejected) variant of one problem on one device in
 * one run.  Its key is the BLAKE2b hash of its content, so a store is a set and
 * merging is a union.  The store knows names and numbers, nothing of kernels.
 */
#ifndef DFGNN_DB_STORE_H
#define DFGNN_DB_STORE_H

#include "dfgnn.h"

/* A measurement as it is written and read.  Strings are UTF-8 without control
 * characters, "" where not known; when read they are the store's and valid
 * inside the callback only.  Written ones may be NULL for "".
 *
 * Names (backend, arch, the problem's, variant, anchor, protocol, run, status)
 * are printable ASCII without spaces and quotes; the free texts (model, driver,
 * runtime, library, graph, family, tool, host, job, reason) are cleaned when
 * written: control characters and broken UTF-8 become '?', long text is cut.
 * db/field.c lists every domain. */
typedef struct dfgnn_measurement {
  /* device and environment */
  const char *backend, *arch, *model;
  int units;
  int64_t cache_bytes, memory_bytes, shared_bytes;
  const char *driver, *runtime, *library;
  /* problem: names as the command line spells them */
  const char *op, *pass, *dtype, *math, *layout;
  const char *index; /* "i32" or "i64" offsets */
  int64_t heads, dim;
  int deterministic, weights, bias, dropout;
  int64_t edge_dim;      /* features an edge; 0: none, -1: projected already */
  int edge_use, message; /* enumerators of dfgnn.h */
  const char *program;   /* the hash of an edge program, 16 hex digits; "": the
                          * operator is one of the library's */
  const char *program_text; /* its text on a line, whose names of values are one
                             * writer's; "" where it is longer than
                             * DFGNN_PROGRAM_TEXT bytes */
  const char *graph, *family; /* labels */
  dfgnn_signature signature;
  /* variant */
  const char *variant;
  int revision;
  /* run */
  const char *tool, *host, *job;
  const char *protocol; /* "warm" or "cold", then settings: "warm,graph" */
  const char *run; /* 32 hex digits: rows of one run share it; ratios to the
                    * anchor are comparable within it */
  uint64_t seed;
  double copy_gbps; /* read plus written by a large copy; 0: not measured */
  int64_t time;     /* seconds since 1970 */
  /* figures */
  const char *status;  /* "ok", "wrong", "failed", "refused" */
  const char *reason;  /* why it is "wrong", "failed" or "refused" */
  const char *anchor;  /* variant that ratio compares with; "" for none */
  int anchor_revision; /* 0: that of the anchor's row of the same run */
  double median_ms, ci_low_ms, ci_high_ms;
  double ratio, ratio_low,
      ratio_high; /* to the anchor, paired, 95 % interval */
  int64_t samples;
  double rel_error; /* against the float64 reference; kept as DBL_MAX if
                     * it is infinite or NaN */
  int64_t workspace_bytes;
  int64_t disturbed; /* of the samples: those that were taken while others used
                      * the device, or its clock fell */
  const char *noise; /* what was seen then; "" if nothing was */
} dfgnn_measurement;

enum { DFGNN_PROGRAM_TEXT = 16383 };

typedef struct dfgnn_store dfgnn_store;

typedef enum dfgnn_store_mode {
  DFGNN_STORE_READ,    /* the file must exist; never written.  With
                        * DFGNN_TRUSTED_KEYS it must be signed by one of them. */
  DFGNN_STORE_WRITE,   /* created, with its directory, or migrated, if needed */
  DFGNN_STORE_READ_ANY /* as READ, whoever signed it: for judging a file, and
                        * for one that this process writes itself */
} dfgnn_store_mode;

/* path ":memory:" with WRITE is a store in memory.
 *
 * DFGNN_ERROR_IO says that there is no such file, and only that; everything
 * else is DFGNN_ERROR_STORE with a message that names the file, what it is (a
 * directory, unreadable, not SQLite, another application's database, truncated,
 * damaged, with foreign tables, views or triggers, of another schema, above
 * 256 MiB) and what was expected.  A failed open changes no file.
 *
 * The file is not trusted.  SQLite is set defensive, without triggers, views,
 * extensions, mmap and trusted schema, with limits on sizes and on the steps of
 * a query; the text of the schema must be ours to the letter; cells are checked
 * as they are read, and each row must have the hash that its content gives.
 * A file below 1 MiB, or of any size if it is to be written, is also checked
 * as a whole (quick_check).
 *
 * A store of another version of the schema is refused; the message says what
 * to do.
 *
 * Concurrency: a new store appears whole or not at all, however many processes
 * create it.  It uses a write-ahead log; a locked file is waited for, up to a
 * minute.  On network file systems (NFS, Lustre, GPFS, CephFS, SMB, BeeGFS,
 * AFS, 9P, FUSE), whose locks cannot be trusted, WRITE is refused: tune into a
 * file on a local disk and copy or merge it; READ takes the file as immutable,
 * as it does where neither log nor lock file can be made (a read-only
 * directory).  A store is used by one thread at a time and not across fork. */
dfgnn_status dfgnn__store_open(dfgnn_store **store, const char *path,
                               dfgnn_store_mode mode);
/* Opens a whole store file from memory, for reading; path is its name in
 * messages.  The bytes are copied. */
dfgnn_status dfgnn__store_open_bytes(dfgnn_store **store, const char *path,
                                     const void *bytes, size_t size);
void dfgnn__store_close(dfgnn_store *store);

/* Tells the states of a store's files apart: the same as long as nobody writes
 * to them; 0 if there are none. */
uint64_t dfgnn__store_stamp(const char *path);
/* Opens for writing a file that this process knows in the state `stamp`: as
 * long as it is in that state, its pages are not looked at again. */
dfgnn_status dfgnn__store_open_known(dfgnn_store **store, const char *path,
                                     uint64_t stamp);
/* Changes when another connection than this one writes to the store. */
int64_t dfgnn__store_version(dfgnn_store *store);
const char *dfgnn__store_path(const dfgnn_store *store);

/* Adds one measurement in its own transaction, on the disk when this returns;
 * what is there already is left.  Safe against other processes doing the same.
 * DFGNN_ERROR_INVALID names a field outside its domain.  added may be NULL. */
dfgnn_status dfgnn__store_record(dfgnn_store *store, int *added,
                                 const dfgnn_measurement *measurement);

/* The same for many in one transaction: all are kept or none.  added (may be
 * NULL) grows by those that were new. */
dfgnn_status dfgnn__store_record_all(dfgnn_store *store, uint64_t *added,
                                     const dfgnn_measurement *rows,
                                     size_t count);

/* The same for rows that next gives, until it sets *row to NULL or fails; a row
 * is used before next is called again. */
typedef struct dfgnn_merge_counts {
  uint64_t added, known, skipped; /* skipped: invalid rows */
} dfgnn_merge_counts;
typedef dfgnn_status (*dfgnn_store_next)(void *data,
                                         const dfgnn_measurement **row);
dfgnn_status dfgnn__store_record_from(dfgnn_store *store,
                                      dfgnn_merge_counts *counts,
                                      dfgnn_store_next next, void *data);

/* DFGNN_ERROR_INVALID if recording the row would be refused. */
dfgnn_status dfgnn__measurement_check(const dfgnn_measurement *row);

/* Which rows to visit: a NULL or negative field does not restrict.  wanted is
 * asked about the rows that the fields let pass. */
typedef struct dfgnn_store_filter {
  const char *backend, *arch, *op, *pass, *dtype, *protocol_prefix, *status;
  const uint64_t *fingerprint;
  int64_t heads, dim;
  int (*wanted)(void *data, const dfgnn_measurement *row);
  void *data;
} dfgnn_store_filter;
#define DFGNN_STORE_FILTER_INIT                                                \
  { NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, NULL, NULL }

/* Calls visit for each valid row in the order of the content hash until it
 * returns non-zero; rows that break a domain, lack a part or do not have their
 * content's hash are added to invalid (may be NULL) and skipped, save those of
 * devices that the filter leaves out.  All rows are of one moment.  visit must
 * not use the store. */
typedef int (*dfgnn_store_visit)(void *data, const dfgnn_measurement *row);
dfgnn_status dfgnn__store_each(dfgnn_store *store, uint64_t *invalid,
                               const dfgnn_store_filter *filter,
                               dfgnn_store_visit visit, void *data);

/* Adds the rows of `in` that match to `out`, in one transaction: a union of
 * sets, so the order and number of merges does not matter.  Pins stay where
 * they are. counts (may be NULL) grows. */
dfgnn_status dfgnn__store_merge(dfgnn_store *out, dfgnn_merge_counts *counts,
                                dfgnn_store *in,
                                const dfgnn_store_filter *filter);
/* The same for several stores in one transaction; counts and filters (may be
 * NULL) have one element each. */
dfgnn_status dfgnn__store_merge_all(dfgnn_store *out,
                                    dfgnn_merge_counts *counts,
                                    dfgnn_store *const *in, size_t count,
                                    const dfgnn_store_filter *filters);

/* Removes the rows that keep refuses and the invalid ones, in one transaction,
 * and gives the space back.  counts (may be NULL) grows. */
typedef struct dfgnn_prune_counts {
  uint64_t kept, removed, invalid;
} dfgnn_prune_counts;
dfgnn_status dfgnn__store_prune(dfgnn_store *store, dfgnn_prune_counts *counts,
                                int (*keep)(void *data,
                                            const dfgnn_measurement *row),
                                void *data);

/* Looks at every page and index of the file, whatever its size. */
dfgnn_status dfgnn__store_check(dfgnn_store *store);

/* Writes all rows and no pin as a compact store without a log, which any file
 * system can serve: a new file that takes the name `path` whole, on the disk
 * and read-only when this returns.  The same rows give the same bytes. */
dfgnn_status dfgnn__store_publish(dfgnn_store *store, const char *path);

/* ---- signatures ----------------------------------------------------------
 *
 * Ed25519 over the BLAKE2b-512 of the file's bytes, kept as PATH.sig.  Key and
 * signature files are one line, "dfgnn-secret-key BASE64" and the like. */

/* Makes STEM.key, readable by its owner alone, and STEM.pub; neither may exist.
 */
dfgnn_status dfgnn__key_generate(const char *stem);
/* Only published stores and packs can be signed: the rows in a write-ahead log
 * are outside the file. */
dfgnn_status dfgnn__store_sign(const char *path, const char *secret_key);

/* Public keys: a file, or a directory whose *.pub files are taken. */
typedef struct dfgnn_keys dfgnn_keys;
dfgnn_status dfgnn__keys_load(dfgnn_keys **keys, const char *path);
/* The keys of DFGNN_TRUSTED_KEYS; *keys is NULL if it is not set.  An error if
 * it is empty, or if others than root and the user could write what it names.
 */
dfgnn_status dfgnn__trusted_keys(dfgnn_keys **keys);
/* DFGNN_ERROR_INVALID if others could write the keys or their folder. */
dfgnn_status dfgnn__keys_check(const dfgnn_keys *keys);
void dfgnn__keys_free(dfgnn_keys *keys);
/* DFGNN_ERROR_STORE unless one of the keys has signed the bytes of the file:
 * path.sig says so. */
dfgnn_status dfgnn__signature_check(const char *path, const dfgnn_keys *keys,
                                    const unsigned char *bytes, size_t size);
/* Opens for reading a file that one of the keys has signed.  The file is read
 * once, and the bytes that were checked are used from memory. */
dfgnn_status dfgnn__store_open_signed(dfgnn_store **store, const char *path,
                                      const dfgnn_keys *keys);

/* A pinned variant, local to a store file. */
typedef struct dfgnn_pin {
  const char *op, *pass, *dtype;
  int bias, dropout;    /* 1: problems with it alone; 0: with or without */
  uint64_t fingerprint; /* 0: any graph */
  const char *variant;
} dfgnn_pin;

/* Sets a pin, in place of one with the same other fields; variant NULL removes
 * that one. */
dfgnn_status dfgnn__store_pin(dfgnn_store *store, const dfgnn_pin *pin);
/* Bans a variant or a family by its name, or ends its ban.  Bans are local to a
 * store file, as pins are. */
dfgnn_status dfgnn__store_ban(dfgnn_store *store, const char *name, int ban);
typedef int (*dfgnn_store_visit_ban)(void *data, const char *name);
dfgnn_status dfgnn__store_each_ban(dfgnn_store *store,
                                   dfgnn_store_visit_ban visit, void *data);

typedef int (*dfgnn_store_visit_pin)(void *data, const dfgnn_pin *pin);
dfgnn_status dfgnn__store_each_pin(dfgnn_store *store,
                                   dfgnn_store_visit_pin visit, void *data);

/* ---- decisions ---------------------------------------------------------- */

/* The order of problems on devices: by the fields that db/field.c gives a key.
 * The device's other fields (memory, driver, runtime, library) are provenance;
 * only the first word of the protocol counts. */
int dfgnn__problem_compare(const dfgnn_measurement *a,
                           const dfgnn_measurement *b);
/* 1 if both are of the same device and problem. */
int dfgnn__same_problem(const dfgnn_measurement *a, const dfgnn_measurement *b);

/* Why a row says little about its variant. */
typedef enum dfgnn_noise {
  DFGNN_NOISE_NONE,
  DFGNN_NOISE_WIDE,      /* its interval reaches a factor either way */
  DFGNN_NOISE_DISTURBED, /* more than half of its samples were */
  DFGNN_NOISE_ALONE      /* one sample is no interval */
} dfgnn_noise;
#define DFGNN_NOISE_FACTOR 1.15 /* of a wide interval */
dfgnn_noise dfgnn__row_noise(const dfgnn_measurement *row);
/* "one sample", "disturbed", "wide"; "calm" where there is no noise. */
const char *dfgnn__noise_name(dfgnn_noise noise);

/* A variant in a decision, by all measurements of one problem on one device. */
typedef struct dfgnn_ranked {
  const char *variant;
  int revision;
  double log_ratio; /* natural log of its time over the fastest's, >= 0; the
                     * winner's is above 0 if it was chosen from a tie set */
  double median_ms; /* of its best evidence: for reports, never for choice */
  int tied;         /* 1: cannot be told apart from the fastest */
  int64_t samples;
  double error;      /* standard error of log_ratio, of the variant alone */
  int sure;          /* 1: measured well enough to be the winner */
  dfgnn_noise noise; /* of its best row */
} dfgnn_ranked;

typedef struct dfgnn_decision {
  dfgnn_measurement problem;  /* device, problem and graph fields, protocol and
                               * run, of its newest row; no figures */
  size_t count;               /* >= 1 */
  const dfgnn_ranked *ranked; /* [0] is the winner, of the tie set the member
                               * with least workspace; then by time */
  size_t rejections;
  const char *const *rejected; /* variants left out for their status */
} dfgnn_decision;

typedef struct dfgnn_decisions {
  size_t count;
  const dfgnn_decision *decision; /* ordered by device, then problem */
} dfgnn_decisions;

/* The decision of this problem; NULL if there is none. */
const dfgnn_decision *dfgnn__decision_find(const dfgnn_decisions *decisions,
                                           const dfgnn_measurement *problem);

/* 1 if the ranked variant's rows are noisy and it is the winner, or might be:
 * it is worth measuring again. */
int dfgnn__ranked_doubtful(const dfgnn_decision *decision, size_t i);

/* Pure: the same set of rows gives the same decisions in any order.
 *
 * Which rows count: for each variant, the rows of the newest revision that
 * usable accepts (NULL: accepts all).  Rows it refuses are counted in unusable
 * (may be NULL).  A variant is rejected if one of its counting rows is "wrong",
 * or if its newest "ok" row is not newer than the newest "failed" or "refused"
 * one.
 *
 * How they combine: an "ok" row says that log(time / anchor's time) is
 * log(ratio), with the standard error that its interval gives, at least
 * DFGNN_DECIDE_FLOOR.  Rows of a variant with the same anchor are averaged by
 * inverse variance; if they disagree by more than their intervals allow, the
 * variance grows accordingly (Birge's ratio).  The anchor with most rows (ties:
 * first by name) is the origin, with ratio 1; further anchors are joined to it
 * one by one, the surest first, through the variants measured with both, and
 * then count alike.  A variant that no chain of runs joins to the origin is
 * left out.  An anchor of another revision is another variant.
 *
 * Who ties: a variant whose distance d to the fastest, in log time, is at most
 * log(1 + margin), or at most three times that and below 1.96 standard errors
 * of the difference: it cannot be told apart.  The winner is the member of the
 * tie set that takes least workspace, the first by name of such.
 *
 * Some variants cannot change a choice.  A variant is sure if it has two
 * samples and its interval reaches three margins either way at most (5 % at
 * least).  One that is not leads, and may win, only if it has two samples and
 * its whole interval is below the fastest of the sure ones; where none is sure,
 * any may.  A variant of disturbed rows alone never does beside a sure one,
 * such as the anchor, since a load that slows two threads spares one.  The
 * interval of a disturbed row reaches a factor of DFGNN_LOUD_FACTOR either way
 * at least, and such rows and those of one sample count for nothing beside
 * better ones of the same variant and anchor. */
#define DFGNN_DECIDE_FLOOR 1e-3
#define DFGNN_LOUD_FACTOR 2.0
typedef int (*dfgnn_usable_function)(void *data, const char *variant,
                                     int revision);
dfgnn_status dfgnn__decide(dfgnn_decisions **decisions, uint64_t *unusable,
                           const dfgnn_measurement *rows, size_t count,
                           double margin, dfgnn_usable_function usable,
                           void *data);
void dfgnn__decisions_free(dfgnn_decisions *decisions);

/* Copies rows out of stores into one array that owns its strings. */
typedef struct dfgnn_rows dfgnn_rows;
dfgnn_status dfgnn__rows_create(dfgnn_rows **rows);
/* Adds every valid row of the store that matches; duplicates (same hash) are
 * added once.  On failure rows is as before.  The array that rows_get gives is
 * in the order of the hashes within each store and valid until the next load;
 * its strings live as long as rows. */
dfgnn_status dfgnn__rows_load(dfgnn_rows *rows, uint64_t *invalid,
                              dfgnn_store *store,
                              const dfgnn_store_filter *filter);
/* Adds those rows of another array that match; as above. */
dfgnn_status dfgnn__rows_copy(dfgnn_rows *rows, const dfgnn_rows *from,
                              const dfgnn_store_filter *filter);
/* Adds a copy of a row as a store would give it after writing it. */
dfgnn_status dfgnn__rows_add(dfgnn_rows *rows, const dfgnn_measurement *row);
const dfgnn_measurement *dfgnn__rows_get(const dfgnn_rows *rows, size_t *count);
void dfgnn__rows_free(dfgnn_rows *rows);

#endif
