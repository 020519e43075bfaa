save() {
    printf '{"colour": "%s"}\n' "$1" > cfg.json.new &&
    sync cfg.json.new &&
    mv cfg.json.new cfg.json &&
    sync .
}

save blue && echo saved
