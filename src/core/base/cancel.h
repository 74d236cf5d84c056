/* SPDX-License-Identifier: MIT
 * No function of the library is a cancellation point: a thread that was cancelled inside of malloc would end with locks
 * held and lists half linked. So calls of the C library that are cancellation points (open, read, write, close,
 * pthread_join, printf) are made between these two functions. */
#ifndef HAK_CANCEL_H
#define HAK_CANCEL_H

#include <pthread.h>

#include "words.h"

/* Returns the argument for hak_cancel_resume. */
HAK_INLINE int hak_cancel_suspend(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

HAK_INLINE void hak_cancel_resume(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
