/* tokenize_bench.c - how fast texts become ids: tokenize_bench TOKENIZER TEXT. For tokenize.py,
 * which runs `tokenizers` beside it; times are of one thread's processor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "inputs/tokenizer/tokenizer.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(sheaf_status *st)
{
    if (st == NULL)
        return;
    sheaf_status_print(st, stderr);
    exit(3);
}

int main(int argc, char **argv)
{
    sheaf__tokenizer *t = NULL;
    char *text = NULL;
    size_t size;
    if (argc != 3) {
        fprintf(stderr, "usage: tokenize_bench TOKENIZER TEXT\n");
        return 2;
    }
    double begin = now();
    check(sheaf__tokenizer_open(&t, argv[1]));
    printf("open %.4f\n", now() - begin);
    check(sheaf__file_read_all(&text, &size, argv[2], SHEAF_TOKENIZER_TEXT_MAX));
    for (int round = 0; round < 3; round++) {
        int32_t *ids;
        int64_t count;
        char *back = NULL;
        begin = now();
        check(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, size, NULL));
        printf("encode %.4f %" PRId64 "\n", now() - begin, count);
        begin = now();
        check(sheaf__tokenizer_decode(&back, NULL, t, ids, count, false));
        printf("decode %.4f\n", now() - begin);
        free(back);
        free(ids);
    }
    free(text);
    sheaf__tokenizer_close(t);
    return 0;
}
