#include <fstream>
#include <iostream>

#include "hand.h"

int main(int, char **argv)
{
    char *at = static_cast<char *>(map_file(open_file(argv[1], "a.db", 4096), 4096));
    STORE(1, at, 'a');
    std::cout << "one" << std::endl;
    STORE(1, at, 'b');
    std::ios::sync_with_stdio(false);
    std::cout << "two " << 2 << std::flush;
    STORE(1, at, 'c');
    std::ofstream file(in_pool(argv[1], "b.db"));
    file << "through a stream";
    file.close();
    try {
        throw 1;
    } catch (int) {
        STORE(1, at, 'd');
    }
    return 0;
}
