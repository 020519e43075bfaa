// Does the database come back as exactly what some first k batches make of it? `check FOLDER ACKED durable|consistent`
//
// It opens the database as a program would after a crash, with RESTORE_SYNC ("to restore to the last synchronized
// state"), walks all records and recomputes the content of each key for the k that "count" holds.
#include "content.h"

#include <cinttypes>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tkrzw_dbm_hash.h>

namespace {

int Wrong(const char* what, const std::string& detail) {
  printf("inconsistent: %s: %s\n", what, detail.c_str());
  return 1;
}

int CheckContent(tkrzw::HashDBM* dbm, uint64_t least, uint64_t most) {
  uint64_t k = 0, keys = 0;
  std::string text;
  tkrzw::Status status = dbm->Get("count", &text);
  if (status == tkrzw::Status::SUCCESS && text.size() == sizeof k) {
    memcpy(&k, text.data(), sizeof k);
  } else if (status != tkrzw::Status::NOT_FOUND_ERROR) {
    return Wrong("count", std::string(status));
  }
  if (k < least || k > most) {
    printf("inconsistent: %" PRIu64 " batches, expected %" PRIu64 " to %" PRIu64 "\n", k, least, most);
    return 1;
  }
  auto iterator = dbm->MakeIterator();
  status = iterator->First();
  std::string key;
  unsigned char value[VALUE_MAX];
  while (status == tkrzw::Status::SUCCESS && (status = iterator->Get(&key, &text)) == tkrzw::Status::SUCCESS) {
    const size_t size = content_expected(key.c_str(), k, value);
    if (size == 0 || size != text.size() || memcmp(value, text.data(), size) != 0) {
      return Wrong(key.c_str(), "not what " + std::to_string(k) + " batches make of it");
    }
    if (++keys > content_keys(k)) {
      return Wrong("iteration", "more records than were set");
    }
    status = iterator->Next();
  }
  if (status != tkrzw::Status::NOT_FOUND_ERROR) {
    return Wrong("iteration", std::string(status));
  }
  if (keys != content_keys(k)) {
    return Wrong("iteration", std::to_string(keys) + " records after " + std::to_string(k) + " batches, expected " +
                                  std::to_string(content_keys(k)));
  }
  printf("consistent: %" PRIu64 " batches, %" PRIu64 " records\n", k, keys);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t acked, least;
  if (argc != 4 || !content_promise(argv[3], acked = strtoull(argv[2], nullptr, 10), &least)) {
    fprintf(stderr, "usage: check FOLDER ACKED durable|consistent\n");
    return 2;
  }
  tkrzw::HashDBM dbm;
  tkrzw::HashDBM::TuningParameters tuning;
  tuning.update_mode = tkrzw::HashDBM::UPDATE_APPENDING;
  tuning.restore_mode = tkrzw::HashDBM::RESTORE_SYNC;
  tkrzw::Status status =
      dbm.OpenAdvanced(std::string(argv[1]) + "/data.tkh", true, tkrzw::File::OPEN_NO_CREATE, tuning);
  if (status != tkrzw::Status::SUCCESS) {
    return Wrong("OpenAdvanced", std::string(status));
  }
  if (!dbm.IsHealthy()) {
    return Wrong("IsHealthy", "false");
  }
  const int failed = CheckContent(&dbm, least, acked + 1);
  dbm.Close();
  return failed;
}
