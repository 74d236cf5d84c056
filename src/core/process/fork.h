/* SPDX-License-Identifier: MIT
 * fork(): the forking thread holds all locks across it, acquired in the order of their ranks, so that the child finds
 * consistent data. Our handlers are the innermost: handlers of other libraries lock and allocate while our locks are
 * free, or, if the library was opened after they had registered, while the forking thread itself holds them. */
#ifndef HAK_FORK_H
#define HAK_FORK_H

/* Registers the handlers, once: in the library's constructor; or earlier, at its first use (before a second thread
 * exists, since creating one allocates), or when another library registers handlers. */
void hak_fork_register(void);

#endif
