/* SPDX-License-Identifier: MIT
 * Doubly linked lists of any type with members `next` and `prev`; no lock. `list` is the address of the pointer to the
 * first item. Removing an item clears its links. */
#ifndef HAK_LIST_H
#define HAK_LIST_H

#define HAK_LIST_PUSH(list, item)         \
    do {                                  \
        __typeof__(item) item_ = (item);  \
        __typeof__(item) *list_ = (list); \
        item_->prev = NULL;               \
        item_->next = *list_;             \
        if (item_->next)                  \
            item_->next->prev = item_;    \
        *list_ = item_;                   \
    } while (0)

#define HAK_LIST_REMOVE(list, item)                                 \
    do {                                                            \
        __typeof__(item) item_ = (item);                            \
        *(item_->prev ? &item_->prev->next : (list)) = item_->next; \
        if (item_->next)                                            \
            item_->next->prev = item_->prev;                        \
        item_->next = item_->prev = NULL;                           \
    } while (0)

/* The same for a queue: *last points to the last item. */
#define HAK_QUEUE_ADD(first, last, item) HAK_QUEUE_ADD_BEHIND(first, last, item, next, prev)
#define HAK_QUEUE_ADD_FIRST(first, last, item) HAK_QUEUE_ADD_BEHIND(last, first, item, prev, next)
#define HAK_QUEUE_ADD_BEHIND(first, last, item, next, prev)    \
    do {                                                       \
        __typeof__(item) item_ = (item);                       \
        __typeof__(item) *last_ = (last);                      \
        item_->next = NULL;                                    \
        item_->prev = *last_;                                  \
        *(item_->prev ? &item_->prev->next : (first)) = item_; \
        *last_ = item_;                                        \
    } while (0)

#define HAK_QUEUE_REMOVE(first, last, item)                          \
    do {                                                             \
        __typeof__(item) item_ = (item);                             \
        *(item_->prev ? &item_->prev->next : (first)) = item_->next; \
        *(item_->next ? &item_->next->prev : (last)) = item_->prev;  \
        item_->next = item_->prev = NULL;                            \
    } while (0)

#endif
