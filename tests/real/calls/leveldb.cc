// leveldb FOLDER put N [BYTES]: N synced puts, each printed once it is stored. leveldb FOLDER get FILE: every printed key is
// there, and each value is whole. leveldb FOLDER repair FILE: the same of what leveldb::RepairDB makes of the folder.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <leveldb/db.h>
#include <string>

static std::string value_of(int i, size_t bytes)
{
    return std::string(bytes, char('a' + i % 26));
}

static int check(leveldb::DB *db, const char *file)
{
    std::ifstream printed(file);
    std::string key, value;
    while (std::getline(printed, key) && !printed.eof())
        if (!db->Get(leveldb::ReadOptions(), key, &value).ok()) {
            printf("lost %s\n", key.c_str());
            return 1;
        }
    leveldb::Iterator *all = db->NewIterator(leveldb::ReadOptions());
    int damaged = 0;
    for (all->SeekToFirst(); all->Valid(); all->Next()) {
        key = all->key().ToString();
        value = all->value().ToString();
        if (value != value_of(atoi(key.c_str() + 3), value.size())) {
            printf("damaged %s\n", key.c_str());
            damaged = 1;
        }
    }
    delete all;
    return damaged;
}

int main(int count, char **words)
{
    leveldb::DB *db;
    leveldb::Options options;
    std::string name = std::string(words[1]) + "/db";
    options.create_if_missing = true;
    if (strcmp(words[2], "repair") == 0) {
        options.paranoid_checks = true;
        leveldb::RepairDB(name, options);
    }
    leveldb::Status opened = leveldb::DB::Open(options, name, &db);
    if (!opened.ok()) {
        puts(opened.ToString().c_str());
        return 1;
    }
    int failed = 0;
    if (strcmp(words[2], "put") == 0) {
        leveldb::WriteOptions synced;
        synced.sync = true;
        for (int i = 0; i < atoi(words[3]) && !failed; i++) {
            std::string key = "key" + std::to_string(i);
            failed = !db->Put(synced, key, value_of(i, count > 4 ? (size_t)atoi(words[4]) : 100)).ok();
            if (!failed)
                puts(key.c_str());
            fflush(stdout);
        }
    } else
        failed = check(db, words[3]);
    delete db;
    return failed;
}
