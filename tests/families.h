/* families.h - for tests: what configs, tensors and cuts of a family are held against. */
#pragma once

#include "tests/small_config.h"
#include "tests/sources.h"

#include <jansson.h>

#include "catalog/boxes.h"

/* The config of a published model, to be changed. */
static inline json_t *published_object(const char *name)
{
    json_t *object = json_load_file(in_sources("tests/data/configs/%s.json", name), 0, NULL);
    assert_non_null(object);
    return object;
}

static inline sheaf_status *parse_object(sheaf_config *c, const json_t *object)
{
    char *text = json_dumps(object, 0);
    sheaf_status *st = parse_config(c, text);
    free(text);
    return st;
}

typedef struct refused_config {
    const char *text;
    sheaf_code code;
    const char *part; /* of what is said */
} refused_config;

static inline void check_refused(const refused_config *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sheaf_config c;
        CHECK_FAILS(parse_config(&c, rows[i].text), rows[i].code, rows[i].part);
    }
}

typedef struct wanted_cut {
    const char *name;
    int axis, parts;
    int64_t units, wide; /* of each part */
} wanted_cut;

static inline void check_cuts(const sheaf_schema *schema, const wanted_cut *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sheaf_tensor *t = sheaf_schema_find(schema, rows[i].name);
        assert_non_null(t);
        assert_int_equal(t->cut.nparts, rows[i].parts);
        assert_int_equal(t->cut.slices, schema->slices);
        for (int p = 0; p < rows[i].parts; p++)
            assert_true(t->cut.axis == rows[i].axis && t->cut.part[p].units == rows[i].units &&
                        t->cut.part[p].rows_per_unit == rows[i].wide);
    }
}

/* Numbers in all tensors, each of which is found by its name; with those that are computed? */
static inline int64_t count_numbers(const sheaf_schema *schema, bool computed)
{
    int64_t all = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        assert_ptr_equal(sheaf_schema_find(schema, t->name), t);
        if (computed || !t->buffer)
            all += sheaf__elements(t->ndim, t->shape);
    }
    return all;
}

/* Of two configs the second has all tensors of the first but `name`. */
static inline void check_lacks(const char *second, const char *first, const char *name)
{
    sheaf_schema *all = parse_schema(first), *less = parse_schema(second);
    for (int64_t i = 0; i < all->count; i++)
        if (sheaf_schema_find(less, all->tensor[i].name) == NULL)
            assert_string_equal(all->tensor[i].name, name);
    assert_null(sheaf_schema_find(less, name));
    assert_int_equal(less->count, all->count - 1);
    sheaf_schema_free(less);
    sheaf_schema_free(all);
}
