/* array.h - arrays that grow, and arrays in which a name is looked up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SHEAF_GROW - space for at least `need` elements in the array at `array`, a pointer to the
 * pointer:
 *
 *     if (!SHEAF_GROW(&c->job, &c->capacity, c->count + 1))
 *         return sheaf__no_memory("list of copies");
 *
 * `capacity` counts the elements that there is space for, and at least doubles when it is not
 * enough; NULL: the array gets exactly `need`. False when there is no memory; then all is as it
 * was. */
#define SHEAF_GROW(array, capacity, need) sheaf__grow((array), (capacity), (need), sizeof **(array))
bool sheaf__grow(void *array, int64_t *capacity, int64_t need, size_t size);

/* SHEAF_FIND - the element of `array`, of type `type` and ascending by `name`, a string that is a
 * member, that has this one; NULL: none has. */
#define SHEAF_FIND(type, name, array, count, wanted)                                               \
    ((type *)sheaf__find((array), (count), sizeof(type), offsetof(type, name), (wanted)))
void *sheaf__find(const void *array, int64_t count, size_t size, size_t at, const char *wanted);

/* sheaf__by_name - for qsort(): elements that are, or begin with, a pointer to their name.
 * sheaf__by_name_behind - pointers to such elements. */
int sheaf__by_name(const void *a, const void *b);
int sheaf__by_name_behind(const void *a, const void *b);
