/* balance.c - how evenly ranks share the heads of attention: see placement.h. */
#include "base/base.h"
#include "models/placement.h"

#include "schema/family.h"
#include "sheaf/owner.h"

/* Of one kind of heads: has some rank none, or do ranks differ by more than one? Then `text` (NULL:
 * none) says so. */
static bool is_uneven(sheaf_text *text, const char *what, int64_t heads, int slices, int ranks)
{
    int64_t least = heads, most = 0;
    int idle = 0;
    for (int r = 0; r < ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(slices, ranks, r);
        const int64_t has = heads * own.end / slices - heads * own.begin / slices;
        least = has < least ? has : least;
        most = has > most ? has : most;
        idle += has == 0;
    }
    if (idle == 0 && most - least <= 1)
        return false;
    if (text == NULL)
        return true;
    sheaf__text_add(text, "%s", text->size == 0 ? "" : ", ");
    if (idle > 0)
        sheaf__text_add(text, "%d rank%s none of the %" PRId64 " heads of %s", idle,
                        idle == 1 ? " has" : "s have", heads, what);
    else
        sheaf__text_add(text,
                        "ranks have %" PRId64 " to %" PRId64 " of the %" PRId64 " heads of %s",
                        least, most, heads, what);
    return true;
}

static bool any_is_uneven(sheaf_text *text, const sheaf_schema *schema, int ranks)
{
    const sheaf_config *c = &schema->config;
    const struct {
        const char *what;
        int64_t heads; /* key/value heads, which their query heads follow; 0: no such kind */
    } kinds[] = {
        { "attention", c->kv_heads },
        { "cross-attention", sheaf__has_cross(c) ? c->heads : 0 },
        { "the ViT", c->vit.heads },
        { "the tower", c->encoder.head_width > 0 ? c->encoder.width / c->encoder.head_width : 0 },
    };
    bool any = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].heads > 0)
            any = is_uneven(text, kinds[i].what, kinds[i].heads, schema->slices, ranks) || any;
    return any;
}

/* The sizes next to `ranks`, below and above, that share all heads well; 1 always does. */
static void add_others(sheaf_text *text, const sheaf_schema *schema, int ranks)
{
    int below = ranks - 1, above = ranks + 1;
    while (below > 1 && any_is_uneven(NULL, schema, below))
        below--;
    while (above <= schema->slices && any_is_uneven(NULL, schema, above))
        above++;
    if (above <= schema->slices)
        sheaf__text_add(text, "; `tp %d` and `tp %d` share them as evenly as can be", below, above);
    else
        sheaf__text_add(text, "; `tp %d` shares them as evenly as can be", below);
}

void sheaf__balance_note(const sheaf_schema *schema, int ranks, const sheaf_events *events)
{
    sheaf_text text = { 0 };
    if (ranks < 1 || ranks > schema->slices)
        return; /* refused elsewhere */
    if (any_is_uneven(&text, schema, ranks)) {
        add_others(&text, schema, ranks);
        sheaf_note(events, "`tp %d` is uneven, which costs time and changes no byte: %s", ranks,
                   text.failed ? "out of memory" : text.at);
    }
    sheaf__text_release(&text);
}
