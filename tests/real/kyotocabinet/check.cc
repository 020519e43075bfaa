// Does the database hold exactly what some first k transactions make of it? `check FOLDER ACKED durable|consistent`
//
// It opens the database as a program would after a crash: Kyoto Cabinet rolls back by its write-ahead log
// (data.kch.wal) and, if the database was not closed, repairs it. Then all records are walked and recomputed.
#include "content.h"

#include <cinttypes>
#include <cstdlib>
#include <kchashdb.h>
#include <memory>
#include <string>

namespace {

int Wrong(const char* what, const std::string& detail) {
  printf("inconsistent: %s: %s\n", what, detail.c_str());
  return 1;
}

int CheckContent(kyotocabinet::HashDB* db, uint64_t least, uint64_t most) {
  uint64_t k = 0, keys = 0;
  std::string key, text;
  if (db->get("count", &text)) {
    if (text.size() != sizeof k) {
      return Wrong("count", "another size");
    }
    memcpy(&k, text.data(), sizeof k);
  } else if (db->error() != kyotocabinet::BasicDB::Error::NOREC) {
    return Wrong("get", db->error().message());
  }
  if (k < least || k > most) {
    printf("inconsistent: %" PRIu64 " transactions, expected %" PRIu64 " to %" PRIu64 "\n", k, least, most);
    return 1;
  }
  const std::unique_ptr<kyotocabinet::DB::Cursor> cursor(db->cursor());
  cursor->jump();
  unsigned char value[VALUE_MAX];
  while (cursor->get(&key, &text, true)) {
    const size_t size = content_expected(key.c_str(), k, value);
    if (size == 0 || size != text.size() || memcmp(value, text.data(), size) != 0) {
      return Wrong(key.c_str(), "not what " + std::to_string(k) + " transactions make of it");
    }
    std::string found;
    if (!db->get(key, &found) || found != text) {
      return Wrong(key.c_str(), "listed, but not found by its key");
    }
    if (++keys > content_keys(k)) {
      return Wrong("iteration", "more records than were set");
    }
  }
  if (keys != content_keys(k) || db->count() != static_cast<int64_t>(keys)) {
    return Wrong("iteration", std::to_string(keys) + " records listed, " + std::to_string(db->count()) +
                                  " counted, expected " + std::to_string(content_keys(k)));
  }
  printf("consistent: %" PRIu64 " transactions, %" PRIu64 " records\n", k, keys);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t acked, least;
  if (argc != 4 || !content_promise(argv[3], acked = strtoull(argv[2], nullptr, 10), &least)) {
    fprintf(stderr, "usage: check FOLDER ACKED durable|consistent\n");
    return 2;
  }
  kyotocabinet::HashDB db;
  if (!db.open(std::string(argv[1]) + "/data.kch", kyotocabinet::HashDB::OWRITER)) {
    return Wrong("open", db.error().message());
  }
  const int failed = CheckContent(&db, least, acked + 1);
  db.close();
  return failed;
}
