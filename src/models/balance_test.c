/* How ranks share heads. */
#include "models/placement.h"

#include "tests/check.h"

typedef struct heard {
    int notes;
    char text[512];
} heard;

static void hear(void *context, const sheaf_event *event)
{
    heard *h = context;
    h->notes++;
    snprintf(h->text, sizeof h->text, "%s", event->text);
}

static sheaf_schema model(int64_t heads, int64_t vit, int64_t tower, bool cross, int slices)
{
    sheaf_schema s = { .slices = slices };
    s.config.heads = s.config.kv_heads = heads;
    s.config.vit.heads = vit;
    s.config.encoder.width = 4 * tower;
    s.config.encoder.head_width = tower > 0 ? 4 : 0;
    s.config.cross_layers[1] = cross ? 2 : 0; /* layer 65 alone */
    return s;
}

static const struct {
    const char *name;
    int64_t heads, vit, tower;
    bool cross;
    int slices, ranks;
    const char *want[5]; /* in the note; none: no note */
} by_hand[] = {
    { "8 heads divide", 8, 0, 0, false, 8, 4, { NULL } },
    { "one more on some ranks is even enough", 8, 8, 0, false, 8, 3, { NULL } },
    { "32 heads over 3: slices 2, 3, 3", 32, 0, 0, false, 8, 3,
      LIST("ranks have 8 to 12 of the 32 heads of attention;", "`tp 2` and `tp 4`", NULL) },
    { "2 key/value heads over 4", 2, 0, 0, false, 8, 4,
      LIST("2 ranks have none of the 2 heads of attention", "`tp 2` shares", NULL) },
    { "a small tower beside even heads", 8, 8, 2, true, 8, 8,
      LIST("6 ranks have none of the 2 heads of the tower", "`tp 2` shares", NULL) },
    { "all kinds", 32, 16, 16, true, 8, 5,
      LIST("heads of attention", "heads of cross-attention", "2 to 4 of the 16 heads of the ViT",
           "heads of the tower", NULL) },
    { "16 slices share 32 heads over 5 more evenly", 32, 0, 0, false, 16, 5, { "6 to 8", NULL } },
    { "more ranks than slices are refused elsewhere", 8, 0, 0, false, 8, 9, { NULL } },
};

TEST(test_balance__notes_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        heard h = { 0 };
        const sheaf_events events = { hear, &h };
        const sheaf_schema s = model(by_hand[i].heads, by_hand[i].vit, by_hand[i].tower,
                                     by_hand[i].cross, by_hand[i].slices);
        sheaf__balance_note(&s, by_hand[i].ranks, &events);
        if (h.notes != (by_hand[i].want[0] != NULL))
            fail_msg("%s: %d notes: %s", by_hand[i].name, h.notes, h.text);
        for (int k = 0; k < 5 && by_hand[i].want[k] != NULL; k++)
            if (strstr(h.text, by_hand[i].want[k]) == NULL)
                fail_msg("%s: no '%s' in: %s", by_hand[i].name, by_hand[i].want[k], h.text);
    }
}
