/* balance.c - how evenly ranks share the heads of attention: see placement.h. */
#include "models/placement.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "schema/family.h"
#include "sheaf/owner.h"

static sheaf__share share_of(const char *what, int64_t heads, int slices, int ranks)
{
    sheaf__share s = { .what = what, .heads = heads, .least = heads };
    for (int r = 0; r < ranks; r++) {
        const sheaf_range own = sheaf_owner_slices(slices, ranks, r);
        const int64_t has = heads * own.end / slices - heads * own.begin / slices;
        s.least = has < s.least ? has : s.least;
        s.most = has > s.most ? has : s.most;
        s.idle += has == 0;
    }
    return s;
}

int sheaf__shares(sheaf__share *share, const sheaf_schema *schema, int ranks)
{
    const sheaf_config *c = &schema->config;
    int n = 0;
    share[n++] = share_of("attention", c->kv_heads, schema->slices, ranks);
    if (sheaf__has_cross(c))
        share[n++] = share_of("cross-attention", c->heads, schema->slices, ranks);
    if (c->vit.heads > 0)
        share[n++] = share_of("the ViT", c->vit.heads, schema->slices, ranks);
    if (c->encoder.head_width > 0)
        share[n++] =
            share_of("the tower", c->encoder.width / c->encoder.head_width, schema->slices, ranks);
    return n;
}

static bool uneven(const sheaf__share *s)
{
    return s->idle > 0 || s->most - s->least > 1;
}

static bool serves_well(const sheaf_schema *schema, int ranks)
{
    sheaf__share share[SHEAF__SHARES];
    const int n = sheaf__shares(share, schema, ranks);
    for (int i = 0; i < n; i++)
        if (uneven(&share[i]))
            return false;
    return true;
}

/* The sizes next to `ranks`, below and above, that share all heads well; 1 always does. */
static void add_others(sheaf_text *text, const sheaf_schema *schema, int ranks)
{
    int below = ranks - 1, above = ranks + 1;
    while (below > 1 && !serves_well(schema, below))
        below--;
    while (above <= schema->slices && !serves_well(schema, above))
        above++;
    if (above <= schema->slices)
        sheaf__text_add(text, "; --tp %d and --tp %d share them as evenly as can be", below, above);
    else
        sheaf__text_add(text, "; --tp %d shares them as evenly as can be", below);
}

void sheaf__balance_note(const sheaf_schema *schema, int ranks, const sheaf_events *events)
{
    sheaf__share share[SHEAF__SHARES];
    if (ranks < 1 || ranks > schema->slices)
        return; /* refused elsewhere */
    const int n = sheaf__shares(share, schema, ranks);
    sheaf_text text = { 0 };
    for (int i = 0; i < n; i++) {
        if (!uneven(&share[i]))
            continue;
        const char *before = text.size == 0 ? "" : ", ";
        if (share[i].idle > 0)
            sheaf__text_add(&text, "%s%d rank%s none of the %" PRId64 " heads of %s", before,
                            share[i].idle, share[i].idle == 1 ? " has" : "s have", share[i].heads,
                            share[i].what);
        else
            sheaf__text_add(
                &text, "%sranks have %" PRId64 " to %" PRId64 " of the %" PRId64 " heads of %s",
                before, share[i].least, share[i].most, share[i].heads, share[i].what);
    }
    if (text.size > 0) {
        add_others(&text, schema, ranks);
        sheaf_note(events, "--tp %d is uneven, which costs time and changes no byte: %s", ranks,
                   text.at);
    }
    sheaf__text_release(&text);
}
