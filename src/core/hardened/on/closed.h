/* SPDX-License-Identifier: MIT
 * See core/pages/closed.h. */
#ifndef HAK_ON_CLOSED_H
#define HAK_ON_CLOSED_H

/* Free pages that the caller alone has. */
void hak_closed_shut(char *base, size_t size);
/* The same before they serve. False: the kernel refused. */
bool hak_closed_open(char *base, size_t size);

#endif
