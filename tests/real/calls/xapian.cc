// xapian FOLDER put N: N documents, each printed once it is committed. xapian FOLDER get FILE: every printed one is there.
#include <fstream>
#include <iostream>
#include <string>
#include <xapian.h>

int main(int, char **words)
try {
    std::string folder = std::string(words[1]) + "/db";
    Xapian::WritableDatabase db(folder, Xapian::DB_CREATE_OR_OPEN);
    if (std::string(words[2]) == "put") {
        for (int left = std::stoi(words[3]); left > 0; left--) {
            std::string name = "Q" + std::to_string(db.get_lastdocid() + 1);
            Xapian::Document document;
            document.set_data(name + std::string(500, 'x'));
            for (int i = 0; i < 60; i++)
                document.add_posting("word" + std::to_string((left * 7 + i * 13) % 400), i + 1);
            document.add_boolean_term(name);
            db.replace_document(name, document);
            db.commit();
            std::cout << name << std::endl;
        }
        return 0;
    }
    std::ifstream printed(words[3]);
    std::string name;
    while (printed >> name)
        if (db.get_document(*db.postlist_begin(name)).get_data().compare(0, name.size(), name) != 0) {
            std::cout << "another document is found as " << name << "\n";
            return 1;
        }
    return Xapian::Database::check(folder, 0, &std::cout) ? 1 : 0;
} catch (const Xapian::Error &error) {
    std::cout << error.get_description() << "\n";
    return 1;
}
