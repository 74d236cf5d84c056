/* SPDX-License-Identifier: MIT
 * Identifies the process. Its id is unique only within its namespace: if process 1 creates a namespace, its child is
 * process 1, too. */
#ifndef HAK_IDENTITY_H
#define HAK_IDENTITY_H

#include "words.h"

#define HAK_IDENTITY_BITS 29u

/* Computed from the process id and the namespace; without /proc, from the process id alone. Leaves errno unchanged. */
unsigned hak_identity(void);

#endif
