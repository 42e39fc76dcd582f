/* no_module.c -- a library that is no module.
 * SPDX-License-Identifier: GPL-3.0-or-later */
int kvr_something_else(void);

int kvr_something_else(void)
{
    return 1;
}
