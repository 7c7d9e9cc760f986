/* worker.c - see worker.h. */
#include "library/worker.h"

#include "base/base.h"
#include "comm/all.h"

enum { WAIT, ASK, END };
enum { POSITION = 1, EMBED = 2, EXPERT = 4 }; /* arrays that a prompt has */

/* What the first tells. */
typedef struct order {
    int64_t kind;
    int64_t n, arrays, pictures, look, number; /* of the prompt */
    int64_t sends;                             /* the picture's pixels follow */
} order;

static const char memory_for[] = "what the first process asks";

void sheaf__leader_release(sheaf__leader *leader)
{
    free(leader->picture);
    leader->picture = NULL;
}

/* ---- a prompt, from the first to all ---- */

/* ids, position, embed and expert, in one block. */
static size_t block_size(int64_t n)
{
    return (size_t)n * 10;
}

static void pack(int32_t *ids, const sheaf__prompt *p)
{
    const size_t n = (size_t)p->n;
    uint8_t *embed = (uint8_t *)(ids + 2 * n);
    memcpy(ids, p->ids, n * sizeof *ids);
    if (p->position != NULL)
        memcpy(ids + n, p->position, n * sizeof *ids);
    if (p->embed != NULL)
        memcpy(embed, p->embed, n);
    if (p->expert != NULL)
        memcpy(embed + n, p->expert, n);
}

static void unpack(sheaf__prompt *out, const order *o, const int32_t *ids,
                   const sheaf__picture *picture)
{
    const size_t n = (size_t)o->n;
    const uint8_t *embed = (const uint8_t *)(ids + 2 * n);
    *out = (sheaf__prompt){ .ids = ids,
                            .n = o->n,
                            .position = o->arrays & POSITION ? ids + n : NULL,
                            .embed = o->arrays & EMBED ? embed : NULL,
                            .expert = o->arrays & EXPERT ? embed + n : NULL,
                            .picture = o->pictures > 0 ? picture : NULL,
                            .pictures = o->pictures,
                            .look = o->look };
}

static sheaf_status *send_pixels(const sheaf__leader *leader, const sheaf__picture *picture,
                                 int64_t n, const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < towers && st == NULL; k++)
            st = sheaf__all_broadcast(leader->all, (float *)picture[i].of[k].pixels,
                                      (size_t)sheaf__view_numbers(&picture[i].of[k], &tower[k]) *
                                          sizeof(float));
    return st;
}

/* Of each picture, as their pointers are of one process alone. */
static sheaf_status *send_sizes(const sheaf__leader *leader, sheaf__picture *sizes, const order *o,
                                const sheaf__prompt *mine)
{
    sheaf_status *st =
        sheaf__all_agree(leader->all, sizes == NULL ? sheaf__no_memory(memory_for) : NULL);
    if (st != NULL)
        return st;
    if (mine != NULL)
        memcpy(sizes, mine->picture, (size_t)o->pictures * sizeof *sizes);
    for (int64_t i = 0; i < o->pictures; i++)
        for (int k = 0; k < SHEAF__MOST_TOWERS; k++)
            sizes[i].of[k].pixels = NULL;
    return sheaf__all_broadcast(leader->all, sizes, (size_t)o->pictures * sizeof *sizes);
}

/* Room for the pictures of those that follow. */
static sheaf_status *make_room(sheaf__leader *leader, const order *o, const sheaf_config *config,
                               const sheaf__prompt *mine)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    sheaf__picture *sizes = calloc((size_t)o->pictures + 1, sizeof *sizes);
    sheaf_status *st = send_sizes(leader, sizes, o, mine);
    if (st == NULL && mine == NULL) {
        free(leader->picture);
        leader->picture = sheaf__picture_room_like(sizes, o->pictures, tower, towers);
    }
    free(sizes);
    return st;
}

/* Space for both is there in all, or none begins. */
static sheaf_status *share(int32_t **block, const sheaf__picture **picture, sheaf__leader *leader,
                           const order *o, const sheaf_config *config, const sheaf__prompt *mine)
{
    sheaf_status *st = o->sends ? make_room(leader, o, config, mine) : NULL;
    *block = calloc(block_size(o->n), 1);
    *picture = mine == NULL ? leader->picture : mine->picture;
    TRY(st, sheaf__all_agree(leader->all, *block == NULL || (o->sends && *picture == NULL)
                                              ? sheaf__no_memory(memory_for)
                                              : NULL));
    if (st == NULL && mine != NULL)
        pack(*block, mine);
    TRY(st, sheaf__all_broadcast(leader->all, *block, block_size(o->n)));
    if (st == NULL && o->sends)
        st = send_pixels(leader, *picture, o->pictures, config);
    if (st == NULL && o->sends)
        leader->look = o->look;
    return st;
}

sheaf_status *sheaf__leader_ask(sheaf__leader *leader, const sheaf_config *config,
                                const sheaf__prompt *p, int64_t number)
{
    order o = { .kind = ASK,
                .n = p->n,
                .arrays = (p->position != NULL ? POSITION : 0) | (p->embed != NULL ? EMBED : 0) |
                          (p->expert != NULL ? EXPERT : 0),
                .pictures = p->pictures,
                .look = p->look,
                .number = number,
                .sends = p->pictures > 0 && p->look != leader->look };
    const sheaf__picture *picture;
    int32_t *block = NULL;
    if (sheaf__all_count(leader->all) == 1)
        return NULL;
    sheaf_status *st = sheaf__all_broadcast(leader->all, &o, sizeof o);
    TRY(st, share(&block, &picture, leader, &o, config, p));
    free(block);
    return st;
}

/* ---- the rest of the first's ---- */

static sheaf_status *anyone(sheaf_comm *all, bool *over, bool mine)
{
    int flag = mine;
    sheaf_status *st = sheaf_comm_any(all, &flag);
    *over = flag != 0;
    return st;
}

sheaf_status *sheaf__leader_wait(sheaf_comm *all, bool *over)
{
    order o = { .kind = WAIT };
    *over = false;
    if (sheaf__all_count(all) == 1)
        return NULL;
    sheaf_status *st = sheaf__all_broadcast(all, &o, sizeof o);
    return st == NULL ? anyone(all, over, false) : st;
}

sheaf_status *sheaf__leader_end(sheaf_comm *all, sheaf_status *st)
{
    order o = { .kind = END };
    if (sheaf__all_count(all) == 1)
        return st;
    sheaf_status *lost = sheaf__all_broadcast(all, &o, sizeof o);
    if (lost == NULL)
        return sheaf__all_agree(all, st);
    if (st == NULL)
        return lost;
    sheaf_status_free(lost);
    return st;
}

/* ---- those that follow ---- */

static sheaf_status *answer(sheaf_model *m, sheaf__leader *leader, const order *o, sheaf__asking *a)
{
    const sheaf__picture *picture;
    sheaf_answer *said = NULL;
    sheaf__prompt prompt;
    int32_t *block = NULL;
    sheaf_status *st = share(&block, &picture, leader, o, &m->opened.config, NULL);
    if (st == NULL) {
        a->generate.number = o->number;
        unpack(&prompt, o, block, picture);
        prompt.laid_out = true;
        st = sheaf__all_agree(m->all, sheaf__model_answer(&said, m, &prompt, 1, a));
        sheaf_answer_free(said);
    }
    free(block);
    return st;
}

sheaf_status *sheaf__worker_run(sheaf_model *m, const sheaf__asking *asking)
{
    sheaf__asking a = *asking;
    const atomic_int *stop = a.generate.stop_now;
    sheaf__leader leader = { .all = m->all };
    order o = { .kind = WAIT };
    bool over = false;
    sheaf_status *st = NULL;
    while (st == NULL && o.kind != END) {
        st = sheaf__all_broadcast(m->all, &o, sizeof o);
        if (st == NULL && o.kind == WAIT)
            st = anyone(m->all, &over, stop != NULL && atomic_load(stop) != 0);
        else if (st == NULL && o.kind == ASK)
            st = answer(m, &leader, &o, &a);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_PEER) {
            sheaf_status_free(st); /* the first has it, too, and says whether it goes on */
            st = NULL;
        }
    }
    sheaf__leader_release(&leader);
    return st == NULL ? sheaf__all_agree(m->all, NULL) : st;
}
