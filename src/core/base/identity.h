/* SPDX-License-Identifier: MIT
 * Which process this is. Its number says it in its namespace only: a process 1 that makes a namespace has a child 1. */
#ifndef HAK_IDENTITY_H
#define HAK_IDENTITY_H

#include "words.h"

#define HAK_IDENTITY_BITS 29u

/* Made of number and namespace; without /proc of the number alone. errno stays. */
unsigned hak_identity(void);

#endif
