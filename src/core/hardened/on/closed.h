/* SPDX-License-Identifier: MIT
 * See core/pages/closed.h. */
#ifndef HAK_ON_CLOSED_H
#define HAK_ON_CLOSED_H

/* Closes free pages that only the caller knows. */
void hak_closed_shut(char *base, size_t size);
/* Opens pages before they are used. False: the kernel refused. */
bool hak_closed_open(char *base, size_t size);

#endif
