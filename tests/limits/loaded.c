/* SPDX-License-Identifier: MIT
 *
 * loaded LIBRARY: loads it with RTLD_LOCAL while threads are already running,
 * uses hakmem_* through dlsym from all of them beside the C library's own
 * malloc, closes it, and loads it again while blocks and threads live on.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 6, BLOCKS = 500 };

static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*realloc)(void *, size_t);
    size_t (*usable_size)(void *);
    const char *(*version)(void);
} lib;

static pthread_barrier_t loaded, done;

static void fetch(void *handle, const char *name, void *into)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL)
        die("%s", dlerror());
    memcpy(into, &symbol, sizeof(symbol));
}

static void *load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        if (strstr(why, "initial-exec TLS")) /* musl gives its address at start or not at all */
            skip("%s", why);
        die("%s", why);
    }
    fetch(handle, "hakmem_malloc", &lib.malloc);
    fetch(handle, "hakmem_free", &lib.free);
    fetch(handle, "hakmem_realloc", &lib.realloc);
    fetch(handle, "hakmem_malloc_usable_size", &lib.usable_size);
    fetch(handle, "hakmem_version", &lib.version);
    if (lib.version() == NULL || *lib.version() == '\0')
        die("no version");
    return handle;
}

static void use(uint64_t seed)
{
    void *p[BLOCKS], *others[BLOCKS];
    size_t size[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        size[i] = mixed_size(&seed);
        p[i] = lib.malloc(size[i]);
        others[i] = malloc(size[i] % 5000 + 1); /* the C library's */
        if (p[i] == NULL || others[i] == NULL || lib.usable_size(p[i]) < size[i])
            die("%zu bytes not served", size[i]);
        mark(p[i], size[i], (unsigned char)i);
        mark(others[i], size[i] % 5000 + 1, (unsigned char)(i + 1));
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (!marked(p[i], size[i], (unsigned char)i) || !marked(others[i], size[i] % 5000 + 1, (unsigned char)(i + 1)))
            die("block %p of %zu bytes changed", p[i], size[i]);
        free(others[i]);
        p[i] = lib.realloc(p[i], size[i] * 2);
        if (p[i] == NULL)
            die("realloc to %zu refused", size[i] * 2);
        lib.free(p[i]);
    }
}

static void *work(void *arg)
{
    pthread_barrier_wait(&loaded); /* this thread is older than the library */
    use((uintptr_t)arg);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&loaded); /* and outlives its dlclose */
    use((uintptr_t)arg + 100);
    return NULL;
}

static void *work_young(void *arg)
{
    use((uintptr_t)arg + 1000);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t old[THREADS], young[THREADS];
    if (argc != 2)
        die("usage: loaded LIBRARY");
    alarm(60);
    pthread_barrier_init(&loaded, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&old[i], NULL, work, (void *)(i + 1)) != 0)
            die("no thread");
    void *handle = load(argv[1]);
    pthread_barrier_wait(&loaded);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&young[i], NULL, work_young, (void *)(i + 1)) != 0)
            die("no thread");
    use(1);
    void *kept = lib.malloc(1000);
    mark(kept, 1000, 9);
    for (int i = 0; i < THREADS; i++)
        pthread_join(young[i], NULL);
    pthread_barrier_wait(&done);
    dlclose(handle);

    handle = load(argv[1]);
    pthread_barrier_wait(&loaded);
    use(2);
    for (int i = 0; i < THREADS; i++)
        pthread_join(old[i], NULL);
    if (!marked(kept, 1000, 9))
        die("a block changed across dlclose");
    lib.free(kept);
    dlclose(handle);
    return 0;
}
