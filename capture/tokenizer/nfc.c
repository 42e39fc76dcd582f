/* nfc.c -- ranges of characters that normal form C leaves alone.
 *
 * Each character of these ranges has combining class 0 and NFC_Quick_Check
 * Yes, so a text of them only is in the form whatever their order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "nfc.h"

#include "kvr_text.h"

#include <inttypes.h>

static const struct {
    uint32_t first, last;
} safe[] = {
    {0x0000, 0x02ff}, /* Latin, IPA; combining marks follow */
    {0x0370, 0x0373},   {0x0375, 0x037d},
    {0x037f, 0x0386},   {0x0388, 0x0482}, /* Greek, Cyrillic */
    {0x048a, 0x0556},                     /* Armenian */
    {0x05d0, 0x05ea},   {0x0620, 0x064a}, /* Hebrew, Arabic letters */
    {0x0660, 0x066f},   {0x0966, 0x096f}, /* digits */
    {0x0e01, 0x0e37},   {0x0e3f, 0x0e47}, /* Thai without its low marks */
    {0x1e00, 0x1e99},                     /* more Latin */
    {0x2002, 0x20cf},                     /* spaces, punctuation, money */
    {0x2153, 0x2328},   {0x232b, 0x2adb}, /* numbers, arrows, mathematics */
    {0x3000, 0x3029},   {0x3030, 0x3098},
    {0x309b, 0x4dbf}, /* kana, CJK */
    {0x4e00, 0x9fff},   {0xac00, 0xd7a3},
    {0xfe00, 0xfe0f},                       /* variation selectors */
    {0xff00, 0xffef},   {0x1f000, 0x1faff}, /* pictures */
    {0x20000, 0x2a6df},
};

static int is_safe(uint32_t character)
{
    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++)
        if (character >= safe[i].first && character <= safe[i].last)
            return 1;
    return 0;
}

enum kvr_status kvr__nfc_check(const uint8_t *text, size_t size,
                               struct kvr_error *err)
{
    for (size_t at = 0; at < size;) {
        const uint8_t c = text[at];
        const size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        size_t bad;
        if (n == 1 || n > size - at || !kvr_utf8_valid(text + at, n, &bad)) {
            at++;
            continue;
        }
        uint32_t character = n == 2 ? c & 0x1f : n == 3 ? c & 0x0f : c & 7;
        for (size_t i = 1; i < n; i++)
            character = character << 6 | (text[at + i] & 0x3fu);
        if (!is_safe(character))
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "this tokenizer normalises text to NFC, which is "
                            "not done here, and U+%04" PRIX32
                            " at byte %zu might change; --ids takes token ids",
                            character, at);
        at += n;
    }
    return KVR_OK;
}
