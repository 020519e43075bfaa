/* One program, several scenes: argv is pool, scene, arguments of the scene. */
#ifndef SCENES_H
#define SCENES_H

#include "hand.h"

struct scene {
    const char *name;
    void (*play)(const char *pool, char **arguments);
};

static inline int play(const struct scene *scenes, int argc, char **argv)
{
    for (; argc > 2 && scenes->name; scenes++)
        if (strcmp(scenes->name, argv[2]) == 0) {
            scenes->play(argv[1], argv + 3);
            return 0;
        }
    return 98;
}
#endif
