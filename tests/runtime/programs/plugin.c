#include "hand.h"

void write_one(char *at);
void write_one(char *at)
{
    STORE(3, at, 'p');
}
