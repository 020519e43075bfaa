// A Tkrzw writer: `workload MODE FOLDER BATCHES` writes that many batches to a HashDBM; 0 only creates the database.
//
// The database is in appending mode and each batch ends with Synchronize(), so that "the last synchronized state", which
// RESTORE_SYNC promises to come back to, is the state after a whole batch. A batch is a marked operation.
//   hard              Synchronize(true); the bucket array shares the first page with the metadata
//   hard-many-pages   Synchronize(true); the bucket array covers several pages
//   soft              Synchronize(false): handed to the file system, not to the device
#include "content.h"

#include <crashcheck.h>
#include <cstdlib>
#include <string_view>
#include <tkrzw_dbm_hash.h>
#include <tkrzw_file_mmap.h>

namespace {

void Must(const tkrzw::Status& status, const char* what) {
  if (status != tkrzw::Status::SUCCESS) {
    fprintf(stderr, "%s: %s\n", what, std::string(status).c_str());
    exit(2);
  }
}

std::string_view Bytes(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

void Batch(tkrzw::HashDBM* dbm, uint64_t number, uint64_t* sum, bool hard) {
  unsigned char value[VALUE_MAX];
  char name[KEY_MAX];

  Must(dbm->Set("count", Bytes(&number, sizeof number)), "Set");
  snprintf(name, sizeof name, "slot/%02u", static_cast<unsigned>(number % SLOTS));
  Must(dbm->Set(name, Bytes(value, content_slot(value, number))), "Set");
  snprintf(name, sizeof name, "log/%06u", static_cast<unsigned>(number));
  Must(dbm->Set(name, Bytes(value, content_log(value, number))), "Set");
  *sum += content_term(number);
  Must(dbm->Set("sum", Bytes(sum, sizeof *sum)), "Set");
  if (number % LARGE_EVERY == 0) {
    Must(dbm->Set("large", Bytes(value, content_large(value, number))), "Set");
  }
  if (number > KEEP) {
    snprintf(name, sizeof name, "log/%06u", static_cast<unsigned>(number - KEEP));
    Must(dbm->Remove(name), "Remove");
  }
  Must(dbm->Synchronize(hard), "Synchronize");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: workload hard|hard-many-pages|soft FOLDER BATCHES\n");
    return 2;
  }
  const std::string_view mode = argv[1];
  const uint64_t batches = strtoull(argv[3], nullptr, 10);

  auto file = std::make_unique<tkrzw::MemoryMapParallelFile>();
  Must(file->SetAllocationStrategy(16 * 4096, 1.25), "SetAllocationStrategy");
  tkrzw::HashDBM dbm(std::move(file));
  tkrzw::HashDBM::TuningParameters tuning;
  tuning.update_mode = tkrzw::HashDBM::UPDATE_APPENDING;
  tuning.num_buckets = mode == "hard-many-pages" ? 4000 : 200;  // 4 bytes each
  Must(dbm.OpenAdvanced(std::string(argv[2]) + "/data.tkh", true, tkrzw::File::OPEN_DEFAULT, tuning), "OpenAdvanced");

  uint64_t sum = 0;
  for (uint64_t number = 1; number <= batches; number++) {
    CRASHCHECK_OP_BEGIN();
    Batch(&dbm, number, &sum, mode != "soft");
    CRASHCHECK_OP_END();
  }
  Must(dbm.Close(), "Close");
  return 0;
}
