/* nfc.h -- whether a text is in Unicode's normal form C as it stands.
 *
 * Some tokenizers normalise first. Nearly all text is in that form already,
 * and this program does not rewrite it: what might change is refused.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef NFC_H
#define NFC_H

#include "kvr_error.h"

#include <stddef.h>
#include <stdint.h>

/* KVR_ERR_UNSUPPORTED names the first character that normalisation might
 * change, and its offset. Bytes that are not UTF-8 are passed over. */
enum kvr_status kvr__nfc_check(const uint8_t *text, size_t size,
                               struct kvr_error *err) KVR_MUST_CHECK;

#endif
