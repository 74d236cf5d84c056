/* SPDX-License-Identifier: MIT
 * The hook of observers: libraries that interpose malloc, loaded before this one, each for one setting. An observer
 * registers by defining the setting's variable. So core knows it in its first call, which comes before constructors. */
#ifndef HAK_OBSERVER_H
#define HAK_OBSERVER_H

#include "words.h"

struct hak_observer {
    int (*set)(size_t value); /* changes the setting: 0 or -errno; NULL if it cannot change */
};

#define HAK_OBSERVER(setting) extern const struct hak_observer hak_observer_##setting __attribute__((weak))
HAK_OBSERVER(profile);
HAK_OBSERVER(trace);

#endif
