import json


def save(settings):
    with open("cfg.json", "w") as file:
        json.dump(settings, file)


save({"colour": "blue"})
print("saved")
