/* circle.h - the groups of ranks that a rank makes calls with. */
#pragma once

typedef enum sheaf__circle {
    SHEAF__ANY_RANKS, /* of a group that has no name here */
    SHEAF__ALL_RANKS,
    SHEAF__ITS_GROUP,
    SHEAF__ITS_STAGE,
    SHEAF__ITS_PEERS,
    SHEAF__ALL_PROCESSES,
    SHEAF__CIRCLES
} sheaf__circle;
extern const char *const sheaf__circle_names[SHEAF__CIRCLES]; /* "its group"; NULL: none */
