// leveldb FOLDER put N: N synced puts, each printed once it is stored. leveldb FOLDER get FILE: every printed key is there.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <leveldb/db.h>
#include <string>

int main(int, char **words)
{
    leveldb::DB *db;
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::Status opened = leveldb::DB::Open(options, std::string(words[1]) + "/db", &db);
    if (!opened.ok()) {
        puts(opened.ToString().c_str());
        return 1;
    }
    if (strcmp(words[2], "put") == 0) {
        leveldb::WriteOptions synced;
        synced.sync = true;
        for (int i = 0; i < atoi(words[3]); i++) {
            std::string key = "key" + std::to_string(i);
            if (!db->Put(synced, key, std::string(100, char('a' + i % 26))).ok())
                return 1;
            puts(key.c_str());
            fflush(stdout);
        }
    } else {
        std::ifstream printed(words[3]);
        std::string key, value;
        while (std::getline(printed, key) && !printed.eof())
            if (!db->Get(leveldb::ReadOptions(), key, &value).ok()) {
                printf("lost %s\n", key.c_str());
                return 1;
            }
    }
    delete db;
}
