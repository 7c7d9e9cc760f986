/* stack.c - see stack.h. The thread that is asked only notes its return addresses; the names are
 * looked up by the thread that asks, in the table of symbols of the program's file, as those of
 * functions that no other file calls are nowhere in memory. */
#include "stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/doing.h"

enum { DEPTH = 48, WAIT_MS = 500, SKIP = 2 }; /* the handler and what called it */

static void *frame[DEPTH];
static atomic_int frames; /* -1: asked, not answered */
static atomic_int asked;  /* the thread */

static void on_asked(int number)
{
    if (gettid() == atomic_load(&asked) && atomic_load(&frames) < 0)
        atomic_store(&frames, backtrace(frame, DEPTH));
}

void cli_stack_install(void)
{
    struct sigaction action = { .sa_flags = SA_RESTART };
    void *first[1];
    backtrace(first, 1); /* loads what it needs, which a handler may not */
    action.sa_handler = on_asked;
    sigemptyset(&action.sa_mask);
    sigaction(SHEAF__ASKS, &action, NULL);
}

/* ---- names ---- */

typedef struct program {
    const unsigned char *at;
    size_t size;
} program;

static program map_program(void)
{
    struct stat about;
    program p = { 0 };
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > (off_t)sizeof(Elf64_Ehdr)) {
        void *at = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED)
            p = (program){ at, (size_t)about.st_size };
    }
    if (fd >= 0)
        close(fd);
    return p;
}

/* Does [offset, offset + size) lie in the file? */
static bool lies_in(const program *p, uint64_t offset, uint64_t size)
{
    return offset <= p->size && size <= p->size - offset;
}

/* The function of the program at `address`, counted from where it is loaded; NULL: it has no table
 * (stripped), or none is there. */
static const char *name_at(const program *p, uint64_t address)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)p->at;
    if (p->at == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_shentsize != sizeof(Elf64_Shdr) ||
        !lies_in(p, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr)))
        return NULL;
    const Elf64_Shdr *section = (const Elf64_Shdr *)(const void *)(p->at + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &section[i];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= head->e_shnum ||
            !lies_in(p, s->sh_offset, s->sh_size) ||
            !lies_in(p, section[s->sh_link].sh_offset, section[s->sh_link].sh_size))
            continue;
        const Elf64_Sym *symbol = (const Elf64_Sym *)(const void *)(p->at + s->sh_offset);
        for (uint64_t k = 0; k < s->sh_size / sizeof *symbol; k++)
            if (ELF64_ST_TYPE(symbol[k].st_info) == STT_FUNC && address >= symbol[k].st_value &&
                address < symbol[k].st_value + symbol[k].st_size &&
                symbol[k].st_name < section[s->sh_link].sh_size)
                return (const char *)p->at + section[s->sh_link].sh_offset + symbol[k].st_name;
    }
    return NULL;
}

static size_t show(char *to, size_t size, const program *p, void *address)
{
    Dl_info about = { 0 };
    struct link_map *map = NULL;
    char *at = address;
    if (dladdr1(at - 1, &about, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return (size_t)snprintf(to, size, "    %p\n", address);
    const uint64_t offset = (uint64_t)at - map->l_addr;
    const char *file = strrchr(about.dli_fname, '/'), *name = about.dli_sname;
    if (map->l_name[0] == '\0' && name_at(p, offset - 1) != NULL)
        name = name_at(p, offset - 1);
    return (size_t)snprintf(to, size, "    %s (%s+0x%llx)\n", name == NULL ? "?" : name,
                            file == NULL ? about.dli_fname : file + 1, (unsigned long long)offset);
}

size_t cli_stack_of(int thread, char *to, size_t size)
{
    size_t used = 0;
    atomic_store(&asked, thread);
    atomic_store(&frames, -1);
    if (tgkill(getpid(), thread, SHEAF__ASKS) != 0)
        return 0;
    for (int ms = 0; ms < WAIT_MS && atomic_load(&frames) < 0; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    const int n = atomic_exchange(&frames, 0);
    const program p = map_program();
    for (int i = SKIP; i < n && used < size; i++) {
        const size_t line = show(to + used, size - used, &p, frame[i]);
        if (line >= size - used)
            break;
        used += line;
    }
    to[used < size ? used : size - 1] = '\0';
    if (p.at != NULL)
        munmap((void *)p.at, p.size);
    return used;
}
