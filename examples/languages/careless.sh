save() {
    printf '{"colour": "%s"}\n' "$1" > cfg.json
}

save blue
echo saved
