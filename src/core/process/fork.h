/* SPDX-License-Identifier: MIT
 * fork(): all locks are held across it, taken in the order of their ranks, so that the child finds nothing half done.
 * Of all fork handlers ours are the innermost: whatever others lock or allocate in theirs, they do while our locks are
 * free, or, where the library was opened after they had registered, while the forking thread itself has them. */
#ifndef HAK_FORK_H
#define HAK_FORK_H

/* Registers the handlers, once: in the library's constructor, or before, at its first use (so that there is no second
 * thread yet, whose creation allocates), or when another library registers handlers of its own. */
void hak_fork_register(void);

#endif
