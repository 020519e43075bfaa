// A Kyoto Cabinet writer: `workload MODE FOLDER TRANSACTIONS` runs that many on a HashDB; 0 only creates the database.
//
//   hard   begin_transaction(true): "risk on system crash: none" (doc/spex.html, "Transaction and Durability")
//   soft   begin_transaction(false): "risk on system crash: Some records may be missing"
// Each transaction is a marked operation, acknowledged when end_transaction has returned. The process ends without
// closing the database: closing adds nothing to what a committed transaction promises, and would delete the log.
#include "content.h"

#include <crashcheck.h>
#include <cstdlib>
#include <kchashdb.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace {

void Must(const kyotocabinet::HashDB& db, bool done, const char* what) {
  if (!done) {
    fprintf(stderr, "%s: %s\n", what, db.error().message());
    exit(2);
  }
}

void Set(kyotocabinet::HashDB* db, const char* name, const void* value, size_t size) {
  Must(*db, db->set(name, strlen(name), static_cast<const char*>(value), size), "set");
}

void Transaction(kyotocabinet::HashDB* db, uint64_t number, uint64_t* sum, bool hard) {
  unsigned char value[VALUE_MAX];
  char name[KEY_MAX];

  Must(*db, db->begin_transaction(hard), "begin_transaction");
  Set(db, "count", &number, sizeof number);
  snprintf(name, sizeof name, "slot/%02u", static_cast<unsigned>(number % SLOTS));
  Set(db, name, value, content_slot(value, number));
  snprintf(name, sizeof name, "log/%06u", static_cast<unsigned>(number));
  Set(db, name, value, content_log(value, number));
  *sum += content_term(number);
  Set(db, "sum", sum, sizeof *sum);
  if (number % LARGE_EVERY == 0) {
    Set(db, "large", value, content_large(value, number));
  }
  if (number > KEEP) {
    snprintf(name, sizeof name, "log/%06u", static_cast<unsigned>(number - KEEP));
    Must(*db, db->remove(name, strlen(name)), "remove");
  }
  Must(*db, db->end_transaction(true), "end_transaction");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: workload hard|soft FOLDER TRANSACTIONS\n");
    return 2;
  }
  const bool hard = std::string_view(argv[1]) == "hard";
  const uint64_t transactions = strtoull(argv[3], nullptr, 10);

  kyotocabinet::HashDB db;
  db.tune_buckets(1021);
  db.tune_map(1 << 20);
  Must(db, db.open(std::string(argv[2]) + "/data.kch", kyotocabinet::HashDB::OWRITER | kyotocabinet::HashDB::OCREATE),
       "open");
  uint64_t sum = 0;
  for (uint64_t number = 1; number <= transactions; number++) {
    CRASHCHECK_OP_BEGIN();
    Transaction(&db, number, &sum, hard);
    CRASHCHECK_OP_END();
  }
  if (transactions > 0) {
    fflush(stdout);
    _exit(0);
  }
  Must(db, db.close(), "close");
  return 0;
}
