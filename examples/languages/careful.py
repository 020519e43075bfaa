import json
import os


def save(settings):
    with open("cfg.json.new", "w") as file:
        json.dump(settings, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace("cfg.json.new", "cfg.json")
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


save({"colour": "blue"})
print("saved")
