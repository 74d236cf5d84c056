/* SPDX-License-Identifier: MIT
 * From a trace to a plan. Events are put in the order of their numbers; then each address is followed from its
 * allocation to its free and gets a slot; then each thread's steps are written one after the other.
 * Gaps of the trace are closed: a free of an unknown block is left out, and a block at the address of one that still
 * lives ends that one first. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"
#include "plan.h"

/* An event; its index is its number. Once it is resolved, `address` is the slot, and `old` the number of touched bytes
 * plus 1. */
struct event {
    uint64_t address, old, size;
    uint32_t thread, turn;
    uint64_t time : 48, op : 8, align : 8;
};

enum { TAKEN = 8 }; /* the begin of a realloc: the block is no longer at its address */

struct block {
    uint64_t address, size, made; /* `made`: the event that allocated it */
    uint32_t turn, thread;
};

static struct {
    const unsigned char *data;
    size_t size;
    struct trace_header header;
    struct event *events;
    uint64_t count, first, last; /* events; the times of the first and the last one */
    uint64_t unknown, implied;
    struct block *blocks; /* by slot */
    uint32_t nblocks, room;
    uint32_t *table; /* from an address to a slot plus 1 */
    uint64_t mask, used;
    uint32_t *slots; /* free ones, the oldest first */
    uint64_t slots_begin, slots_end;
    uint32_t *pending; /* of each thread: the slot plus 1 whose realloc began */
    uint64_t threads;
} t;

static _Noreturn void fail(const char *path, const char *what)
{
    fprintf(stderr, "hakmem-replay: %s: %s\n", path, what);
    exit(2);
}

static void *room_for(size_t count, size_t size)
{
    void *p = mmap(NULL, count * size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        fail("the trace", "there is not enough memory for it");
    return p;
}

/* --- reading ------------------------------------------------------------------------------------------------ */

struct reader {
    const unsigned char *at, *end;
    uint64_t number, time, address;
    uint32_t thread;
};

static uint64_t read_number(struct reader *r)
{
    uint64_t n = 0;
    for (int shift = 0; r->at < r->end && shift < 64; shift += 7) {
        unsigned char c = *r->at++;
        n |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            break;
    }
    return n;
}

static uint64_t read_address(struct reader *r)
{
    uint64_t z = read_number(r);
    return r->address += z >> 1 ^ -(z & 1);
}

/* The event with this number, or a dummy if no event can have it. */
static struct event *event_of(uint64_t number)
{
    static struct event nowhere;
    return number < t.header.numbers ? &t.events[number] : &nowhere;
}

static void read_event(struct reader *r)
{
    unsigned first = *r->at++, op = first & TRACE_OP_MASK;
    if (op == TRACE_THREAD) {
        r->thread = (uint32_t)read_number(r);
        read_number(r);
        return;
    }
    r->number += first & TRACE_NEXT ? 1 : read_number(r);
    r->time += read_number(r);
    struct event *e = event_of(r->number);
    *e = (struct event){.op = (uint8_t)op, .thread = r->thread, .time = r->time};
    if (op == TRACE_REALLOC) {
        uint64_t began = r->number - read_number(r);
        *event_of(began) = (struct event){.op = TAKEN, .thread = r->thread, .address = read_address(r)};
    }
    if (op == TRACE_ALIGNED)
        e->align = (uint8_t)read_number(r);
    if (op != TRACE_FREE)
        e->size = read_number(r);
    e->address = read_address(r);
    if (r->time > t.last)
        t.last = r->time;
    if (r->time < t.first)
        t.first = r->time;
    t.count++;
}

static void read_chunk(const unsigned char *chunk, size_t size)
{
    struct trace_chunk head;
    memcpy(&head, chunk, sizeof head);
    struct reader r = {.at = chunk + sizeof head,
                       .end = chunk + size,
                       .number = head.number,
                       .time = head.time,
                       .address = head.address,
                       .thread = head.thread};
    while (r.at < r.end && *r.at) {
        read_event(&r);
        if (r.thread >= t.threads)
            t.threads = (uint64_t)r.thread + 1;
    }
}

static void read_trace(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        fail(path, strerror(errno));
    t.size = (size_t)st.st_size;
    t.data = t.size >= sizeof t.header ? mmap(NULL, t.size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (t.data == MAP_FAILED)
        fail(path, "it is no trace: too short");
    close(fd);
    memcpy(&t.header, t.data, sizeof t.header);
    if (memcmp(t.header.magic, TRACE_MAGIC, sizeof t.header.magic))
        fail(path, "it is no trace of hakmem");
    if (t.header.version != TRACE_VERSION)
        fail(path, "a trace of another version of the format; take the hakmem-replay that came with its library");
    /* An event takes two bytes and more. */
    if (t.header.chunk_bytes <= sizeof(struct trace_chunk) || t.header.numbers > t.size || t.header.time_shift > 16)
        fail(path, "its header is damaged");
    t.events = room_for(t.header.numbers + 1, sizeof *t.events);
    t.first = UINT64_MAX;
    for (uint64_t at = t.header.header_bytes; at < t.size; at += t.header.chunk_bytes) {
        size_t size = t.size - at < t.header.chunk_bytes ? t.size - at : t.header.chunk_bytes;
        if (size > sizeof(struct trace_chunk))
            read_chunk(t.data + at, size);
    }
    if (!t.count)
        fail(path, "there is no event in it");
    if (t.threads >> 24)
        fail(path, "its chunks are damaged");
    munmap((void *)(uintptr_t)t.data, t.size);
}

/* --- addresses to slots --------------------------------------------------------------------------------------- */

static uint64_t place_of(uint64_t address)
{
    return (address * 0x9e3779b97f4a7c15 >> 20) & t.mask;
}

static uint32_t *look_up(uint64_t address)
{
    uint64_t i = place_of(address);
    while (t.table[i] && t.blocks[t.table[i] - 1].address != address)
        i = (i + 1) & t.mask;
    return &t.table[i];
}

static void grow_table(void)
{
    uint32_t *old = t.table;
    uint64_t n = t.mask ? t.mask + 1 : 0;
    t.mask = n ? n * 2 - 1 : 65535;
    t.table = room_for(t.mask + 1, sizeof *t.table);
    for (uint64_t i = 0; i < n; i++)
        if (old[i])
            *look_up(t.blocks[old[i] - 1].address) = old[i];
    if (old)
        munmap(old, n * sizeof *old + 1);
}

static void insert(uint32_t slot)
{
    if (!t.table || ++t.used * 2 > t.mask)
        grow_table();
    *look_up(t.blocks[slot].address) = slot + 1;
}

/* The entries behind it move up, so that no gap hides them. */
static void take_out(uint32_t *place)
{
    uint64_t hole = (uint64_t)(place - t.table);
    t.used--;
    for (uint64_t i = (hole + 1) & t.mask; t.table[i]; i = (i + 1) & t.mask) {
        uint64_t home = place_of(t.blocks[t.table[i] - 1].address);
        if (((i - home) & t.mask) >= ((i - hole) & t.mask)) {
            t.table[hole] = t.table[i];
            hole = i;
        }
    }
    t.table[hole] = 0;
}

/* The slot that has been free longest, so that hardly any thread waits for its last step. */
static uint32_t new_slot(void)
{
    if (t.slots_end - t.slots_begin > 65536)
        return t.slots[t.slots_begin++];
    if (t.nblocks == t.room) {
        t.room = t.room ? t.room * 2 : 65536;
        t.blocks = realloc(t.blocks, t.room * sizeof *t.blocks);
        if (!t.blocks)
            fail("the trace", "there is not enough memory for it");
    }
    t.blocks[t.nblocks] = (struct block){0};
    return t.nblocks++;
}

static void begin_block(uint32_t slot, uint64_t i)
{
    struct event *e = &t.events[i];
    struct block *b = &t.blocks[slot];
    b->address = e->address;
    b->size = e->size;
    b->made = i;
    b->thread = e->thread;
    insert(slot);
    e->address = slot;
    e->old = 0;
    e->turn = b->turn++;
}

static void end_block(uint32_t slot)
{
    t.slots[t.slots_end++] = slot;
}

static uint32_t find_slot(uint64_t address)
{
    return t.table ? *look_up(address) : 0;
}

enum { UNSEEN = 64 }; /* a flag of the event that allocated a block: its free was not recorded */

/* The block that has lived at the address until now was freed at some time. */

static void end_unseen(struct event *e)
{
    uint32_t slot = find_slot(e->address);
    if (!slot--)
        return;
    take_out(look_up(e->address));
    t.implied++;
    t.events[t.blocks[slot].made].op |= UNSEEN;
}

/* Gives each event a slot, or drops the event. */
static void resolve(uint64_t i)
{
    struct event *e = &t.events[i];
    uint32_t slot;
    switch (e->op & (UNSEEN - 1)) {
    case TRACE_MALLOC:
    case TRACE_CALLOC:
    case TRACE_ALIGNED:
        end_unseen(e);
        begin_block(new_slot(), i);
        return;
    case TAKEN:
        slot = find_slot(e->address);
        t.pending[e->thread] = slot;
        if (slot)
            take_out(look_up(e->address));
        else
            t.unknown++;
        break;
    case TRACE_REALLOC:
        slot = t.pending[e->thread];
        t.pending[e->thread] = 0;
        end_unseen(e);
        if (!slot)
            e->op = TRACE_MALLOC;
        begin_block(slot ? slot - 1 : new_slot(), i);
        return;
    case TRACE_FREE:
        slot = find_slot(e->address);
        if (!slot--) {
            t.unknown++;
            break;
        }
        take_out(look_up(e->address));
        e->address = slot;
        e->turn = t.blocks[slot].turn++;
        end_block(slot);
        return;
    case TRACE_TOUCHED:
        slot = find_slot(e->address);
        if (slot)
            t.events[t.blocks[slot - 1].made].old = e->size + 1;
        break;
    default:
        break;
    }
    e->op = TRACE_END;
}

/* --- steps --------------------------------------------------------------------------------------------------- */

/* What a thread's steps are written to. */
struct stream {
    struct plan_step *steps;
    uint64_t count;
    uint32_t epoch; /* plus 1 */
    uint32_t first;
};

static struct {
    struct plan_header header;
    struct stream *streams;
    struct plan_epoch *epochs;
    uint64_t *sizes; /* of the block in each slot */
    uint64_t live;
} p;

static bool is_partly_touched(const struct event *e)
{
    return e->op != TRACE_FREE && e->old && e->old - 1 < e->size;
}

/* Counts the steps of the thread and of all threads; with `write`, also writes them. */
static void step(struct event *e, uint64_t epoch, bool write)
{
    static const uint8_t ops[] = {[TRACE_MALLOC] = PLAN_MALLOC,
                                  [TRACE_CALLOC] = PLAN_CALLOC,
                                  [TRACE_ALIGNED] = PLAN_ALIGNED,
                                  [TRACE_FREE] = PLAN_FREE,
                                  [TRACE_REALLOC] = PLAN_REALLOC};
    struct stream *s = &p.streams[e->thread];
    if (s->epoch != epoch + 1) {
        if (!s->epoch)
            s->first = (uint32_t)epoch;
        s->epoch = (uint32_t)epoch + 1;
        p.epochs[epoch].threads += !write;
        if (write)
            s->steps[s->count] = (struct plan_step){.op = PLAN_EPOCH_BEGINS, .slot = (uint32_t)epoch};
        s->count++;
    }
    bool partly = is_partly_touched(e);
    if (write)
        s->steps[s->count] = (struct plan_step){.slot = (uint32_t)e->address,
                                                .turn = e->turn,
                                                .size = e->size,
                                                .op = ops[e->op],
                                                .flags = partly ? PLAN_TOUCHED_LATER : 0,
                                                .align = e->align};
    s->count++;
    if (!partly)
        return;
    if (write)
        s->steps[s->count] =
            (struct plan_step){.slot = (uint32_t)e->address, .turn = e->turn + 1, .size = e->old - 1, .op = PLAN_TOUCH};
    s->count++;
}

static void account(const struct event *e)
{
    p.live -= p.sizes[e->address];
    p.sizes[e->address] = e->op == TRACE_FREE ? 0 : e->size;
    p.live += p.sizes[e->address];
    if (p.live > p.header.peak)
        p.header.peak = p.live;
}

/* All steps in the trace's order; an epoch ends with a tenth, too, and before a pause. */
static void walk(bool write)
{
    uint64_t done = 0, epoch = 0, begun = 0;
    unsigned tenth = 0;
    for (uint64_t i = 0; i < t.header.numbers; i++) {
        struct event *e = &t.events[i];
        if (e->op == TRACE_END)
            continue;
        uint64_t at = (e->time - t.first) << t.header.time_shift;
        if (done > begun && at - p.epochs[epoch].at > PLAN_EPOCH_NS) {
            begun = done;
            epoch++;
        }
        if (done == begun)
            p.epochs[epoch].at = at;
        step(e, epoch, write);
        if (!write)
            account(e);
        done++;
        bool ends = done - begun == PLAN_EPOCH || done == p.header.steps;
        while (tenth < PLAN_TENTHS && done >= p.header.steps * (tenth + 1) / PLAN_TENTHS) {
            if (!write)
                p.header.live[tenth] = p.live;
            p.epochs[epoch].tenth = ++tenth;
            ends = true;
        }
        if (ends) {
            begun = done;
            epoch++;
        }
    }
    p.header.epochs = epoch;
}

/* A block whose free was not seen is left out: a free at some later time would be a guess. One from a realloc stays. */
static void leave_out_unseen(void)
{
    for (uint64_t i = 0; i < t.header.numbers; i++) {
        struct event *e = &t.events[i];
        if (e->op & UNSEEN)
            e->op = (e->op & (UNSEEN - 1)) == TRACE_REALLOC ? TRACE_REALLOC : TRACE_END;
        p.header.steps += e->op != TRACE_END;
    }
}

static void write_plan(const char *path)
{
    uint64_t nthreads = 0, nsteps = 0;
    for (uint64_t i = 0; i < t.threads; i++) {
        nthreads += p.streams[i].count != 0;
        nsteps += p.streams[i].count;
    }
    p.header.threads = nthreads;
    size_t at = sizeof p.header + p.header.epochs * sizeof *p.epochs + nthreads * sizeof(struct plan_thread);
    size_t size = at + nsteps * sizeof(struct plan_step);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)size))
        fail(path, fd < 0 ? strerror(errno) : "there is no room for it");
    char *out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (out == MAP_FAILED)
        fail(path, strerror(errno));
    close(fd);
    memcpy(p.header.magic, PLAN_MAGIC, sizeof p.header.magic);
    memcpy(out, &p.header, sizeof p.header);
    memcpy(out + sizeof p.header, p.epochs, p.header.epochs * sizeof *p.epochs);
    struct plan_thread *thread = (void *)(out + sizeof p.header + p.header.epochs * sizeof *p.epochs);
    for (uint64_t i = 0; i < t.threads; i++) {
        struct stream *s = &p.streams[i];
        if (!s->count)
            continue;
        *thread++ = (struct plan_thread){.first = at, .steps = s->count, .epoch = s->first, .name = (uint32_t)i};
        s->steps = (void *)(out + at);
        at += s->count * sizeof(struct plan_step);
        s->count = s->epoch = 0;
    }
    walk(true);
}

int plan_make(const char *trace, const char *plan)
{
    read_trace(trace);
    t.slots = room_for(t.count + 1, sizeof *t.slots);
    t.pending = room_for(t.threads, sizeof *t.pending);
    for (uint64_t i = 0; i < t.header.numbers; i++)
        resolve(i);
    p.header.slots = t.nblocks;
    p.header.ended = (t.last - t.first) << t.header.time_shift;
    leave_out_unseen();
    p.streams = room_for(t.threads, sizeof *p.streams);
    p.sizes = room_for(t.nblocks, sizeof *p.sizes);
    p.epochs = room_for(p.header.steps + 1, sizeof *p.epochs); /* each has a step; few are in use */
    walk(false);
    if (plan)
        write_plan(plan);
    char name[sizeof t.header.program];
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = t.header.program[i] < ' ' || strchr("\"\\\177", t.header.program[i]) ? '?' : t.header.program[i];
    uint64_t threads = 0;
    for (uint64_t i = 0; i < t.threads; i++)
        threads += p.streams[i].first || p.streams[i].count || p.streams[i].epoch;
    printf("{\"program\": \"%.*s\", \"pid\": %u, \"parent\": %u, \"events\": %llu, \"lost\": %llu, \"threads\": %llu, "
           "\"steps\": %llu, \"unknown\": %llu, \"implied\": %llu, \"seconds\": %.6f, \"peak\": %llu, \"live\": [",
           (int)strnlen(t.header.program, sizeof name), name, t.header.pid, t.header.parent,
           (unsigned long long)t.count, (unsigned long long)t.header.lost, (unsigned long long)threads,
           (unsigned long long)p.header.steps, (unsigned long long)t.unknown, (unsigned long long)t.implied,
           (double)p.header.ended / 1e9, (unsigned long long)p.header.peak);
    for (int i = 0; i < PLAN_TENTHS; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)p.header.live[i]);
    puts("]}");
    return 0;
}
